"""Settings: words, values, and what is stronger than what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serai import limits
from serai.broker.policy import (
    RANGES,
    WORDS,
    ConsumerPolicy,
    ProducerPolicy,
    TopicPolicy,
    check_role_table,
    check_topic_table,
    in_force,
)
from tests.broker.kit import refused


def test_defaults_are_those_of_the_real_server() -> None:
    consumer, producer = ConsumerPolicy(), ProducerPolicy()
    assert (consumer.ack_timeout_ms, consumer.batch_size, consumer.concurrent, consumer.delay_ms) == (300_000, 10, 1, 0)
    assert (consumer.retry, consumer.err_times, consumer.read_retry_probability) == (True, 3, 20)
    assert (consumer.nearby, consumer.paused, consumer.archive, consumer.seq) == (False,) * 4
    assert (producer.timeout_ms, producer.weight, producer.single) == (2000, (), False)


def test_subscription_is_stronger_than_topic_and_topic_than_default() -> None:
    topic, own = {"batch_size": 7, "delay_ms": 5}, {"delay_ms": 9}
    policy = in_force(ConsumerPolicy, topic, own)
    assert (policy.batch_size, policy.delay_ms, policy.ack_timeout_ms) == (7, 9, 300_000)


def test_tables_survive_json() -> None:
    table = {
        "weight": {1: 10, "2": 20},
        "black_list": ["a"],
        "priority": [3],
        "params": {"1": "x"},
        "retry_multiplier": 3,
    }
    checked = check_topic_table(table)
    again = json.loads(json.dumps(checked))
    assert again == checked
    assert in_force(ProducerPolicy, again).weight == ((1, 10), (2, 20))
    assert in_force(TopicPolicy, again).params == (("1", "x"),)


@pytest.mark.parametrize("word", sorted(RANGES))
def test_numbers_have_bounds(word: str) -> None:
    low, high = RANGES[word]
    for bound in (low, high):
        assert check_topic_table({word: bound}) == {word: bound}
    wrong: list[Any] = [low - 1, high + 1, True, None, "x", [1], 1.5j]
    for value in wrong:
        with refused("bad-policy"):
            check_topic_table({word: value})


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "strange"}, {"level": "none"}, {"visible": 1}, {"start": "now"}, {"paused": 1}, {"paused": "yes"},
        {"weight": [1]}, {"weight": {"a": 1}}, {"weight": {"1": -1}}, {"params": {"a": 1}}, {"black_list": "10.0.0.1"},
        {"black_list": [1]}, {"black_list": ["x"] * (limits.POLICY_WORDS_MAX + 1)}, {"priority": [-1]},
        {"black_list": ["x" * (limits.POLICY_WORD_BYTES_MAX + 1)]}, {"unheard": 1}, {"": 1},
    ],
    ids=lambda table: ascii(table)[:40],
)  # fmt: skip
def test_impossible_values_are_refused(table: dict[str, Any]) -> None:
    with refused("bad-policy"):
        check_topic_table(table)


def test_lists_may_be_as_long_as_their_bound() -> None:
    check_topic_table({"black_list": ["x" * limits.POLICY_WORD_BYTES_MAX] * limits.POLICY_WORDS_MAX})


def test_subscription_has_only_the_words_of_its_role() -> None:
    for role, kind in (("producer", ProducerPolicy), ("consumer", ConsumerPolicy)):
        assert check_role_table({"nearby": True}, role) == {"nearby": True}
        strange = set(WORDS[TopicPolicy]) - set(WORDS[kind])
        for word in strange:
            with refused("bad-policy"):
                check_role_table({word: WORDS[TopicPolicy][word]}, role)
    with refused("bad-policy"):
        check_role_table({}, "owner")
