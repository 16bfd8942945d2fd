"""Topics and subscriptions: made, changed, deleted, and still there after a start."""

from __future__ import annotations

from typing import Any

import pytest

from serai import limits
from serai.broker import Broker
from serai.errors import Corrupt, DiskFull, Refused
from serai.log.engine import Level
from tests.broker.kit import House, refused, words

BAD_NAMES = ["", ".", "..", "a/b", "../x", "a\0b", "a\nb", "x\x7f", "\x85", "\ud800", "n" * 256, "日" * 86]


def test_topic_is_made_by_an_effect_and_not_before(house: House) -> None:
    broker = house.broker
    wait = broker.create_topic("orders", partitions=2, now_ms=house.now_ms)
    assert house.turn() == []
    with refused("topic-unknown"):
        broker.find("orders")
    (effect,) = broker.effects()
    assert broker.effects() == []
    effect.run()
    broker.done(effect, None)
    assert house.turn() == [wait]
    assert broker.find("orders").partitions == 2


def test_catalogue_is_the_same_after_a_start(house: House) -> None:
    house.topic("orders", partitions=3, policy={"level": "receive", "params": {"a": "b"}, "priority": [1]})
    house.subscribe("orders", "billing", delay_ms=5, black_list=["10.0.0.1"])
    house.done(house.broker.alter_topic("orders", partitions=4, policy={"params": None}, now_ms=house.now_ms))
    before = (
        house.broker.subscriptions(),
        house.broker.find("orders").policy,
        house.broker.describe("orders", "billing")[1:3],
    )
    house.restart()
    after = (
        house.broker.subscriptions(),
        house.broker.find("orders").policy,
        house.broker.describe("orders", "billing")[1:3],
    )
    assert before == after
    topic = house.broker.find("orders")
    assert (topic.partitions, topic.policy.params, topic.order) == (4, (), (1, 0, 2, 3))


def test_first_use_makes_topic_and_subscriptions(house: House) -> None:
    guest = house.guest("shop")
    wait = house.broker.ensure(
        guest, ["orders", "logs"], app="shop.night", produces=True, consumes=True, now_ms=house.now_ms
    )
    house.done(wait)
    assert house.broker.ensure(guest, ["orders", "logs"], app="shop", produces=True, now_ms=house.now_ms) is None
    assert {(row.topic, row.app, row.role) for row in house.broker.subscriptions()} == {
        (topic, "shop", role) for topic in ("orders", "logs") for role in ("producer", "consumer")
    }
    house.produce(guest, words(1), app="shop")
    assert house.fetch(house.consumer(guest, group="shop.night")).count == 1


def test_two_who_use_a_topic_first_wait_for_the_same_change(house: House) -> None:
    waits = [
        house.broker.ensure(house.guest(), ["orders"], app="app", consumes=True, now_ms=house.now_ms) for _ in range(2)
    ]
    assert len(house.broker.catalogue.effects) == 1
    house.broker.settle()
    assert house.turn() == waits


def test_nothing_is_made_at_first_use_when_that_is_off(tmp_path: Any) -> None:
    with House(tmp_path / "data", auto_create=False) as house:
        assert house.broker.ensure(house.guest(), ["orders"], app="app", produces=True, now_ms=house.now_ms) is None
        with refused("topic-unknown"):
            house.produce(house.guest(), words(1))
        house.done(house.broker.create_topic("orders", now_ms=house.now_ms))
        with refused("subscription-unknown"):
            house.produce(house.guest(), words(1))
        with refused("subscription-unknown"):
            house.consumer(house.guest())
        with refused("subscription-unknown"):
            house.broker.ack("orders", "app", 0, range(1), now_ms=house.now_ms)
        with refused("subscription-unknown"):
            house.broker.describe("orders", "app")


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_name_is_made_by_nobody(house: House, name: str) -> None:
    guest = house.guest()
    assert house.broker.ensure(guest, [name], app="app", produces=True, consumes=True, now_ms=house.now_ms) is None
    for act in (
        lambda: house.broker.create_topic(name, now_ms=house.now_ms),
        lambda: house.produce(guest, words(1), name=name),
        lambda: house.consumer(guest, name),
        lambda: house.guest(name),
    ):
        with refused("bad-name"):
            act()


@pytest.mark.parametrize(
    "name", ["a", "n" * 255, "日" * 85, "a b", "..a", "ns.topic", "ORDERS", "😀", "a\\b:*"], ids=ascii
)
def test_any_other_name_is_a_directory_called_by_an_id(house: House, name: str) -> None:
    house.topic(name)
    house.produce(house.guest(), words(1), name=name)
    house.restart()
    assert house.fetch(house.consumer(house.guest(), name)).count == 1
    assert house.engine.partitions() == ["1-0"]


def test_name_is_found_ignoring_case_if_that_is_unique(house: House) -> None:
    for name in ("Orders", "logs", "LOGS"):
        house.topic(name)
    assert house.broker.find_ignoring_case("ORDERS").name == "Orders"
    assert house.broker.find_ignoring_case("logs").name == "logs"
    for name in ("Logs", "nothing"):
        with refused("topic-unknown"):
            house.broker.find_ignoring_case(name)


def test_topic_that_exists_is_not_made_again(house: House) -> None:
    house.topic()
    with refused("topic-exists"):
        house.broker.create_topic("orders", now_ms=house.now_ms)
    house.broker.create_topic("logs", now_ms=house.now_ms)
    with refused("topic-exists"):
        house.broker.create_topic("logs", now_ms=house.now_ms)


@pytest.mark.parametrize("partitions", [0, -1, limits.PARTITIONS_MAX + 1])
def test_number_of_partitions_has_bounds(house: House, partitions: int) -> None:
    with refused("limit-reached"):
        house.broker.create_topic("orders", partitions=partitions, now_ms=house.now_ms)
    house.topic(partitions=limits.PARTITIONS_MAX)
    with refused("limit-reached"):
        house.broker.alter_topic("orders", partitions=limits.PARTITIONS_MAX - 1, now_ms=house.now_ms)


def test_changes_under_way_build_on_each_other(house: House) -> None:
    house.topic()
    waits = [
        house.broker.alter_topic("orders", policy={"level": "receive"}, now_ms=house.now_ms),
        house.broker.alter_topic("orders", policy={"visible": "committed"}, now_ms=house.now_ms),
        house.broker.alter_topic("orders", partitions=2, now_ms=house.now_ms),
        house.broker.set_subscription("orders", "app", "consumer", {"delay_ms": 7}, now_ms=house.now_ms),
        house.broker.set_subscription("orders", "app", "consumer", {"seq": True}, now_ms=house.now_ms),
    ]
    house.broker.settle()
    assert house.turn() == waits
    topic = house.broker.find("orders")
    assert (topic.policy.level, topic.policy.visible, topic.partitions) == ("receive", "committed", 2)
    consumer = house.broker.describe("orders", "app").consumer
    assert consumer is not None
    assert (consumer.delay_ms, consumer.seq) == (7, True)


def test_deleted_topic_is_gone_with_everything_in_it(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(5))
    house.ack(house.fetch(consumer))
    wait = house.ask(consumer, wait_ms=1000)
    deletion = house.broker.delete_topic("orders", now_ms=house.now_ms)
    with refused("topic-unknown"):
        house.produce(guest, words(1))
    assert house.turn() == [wait]
    with refused("topic-unknown"):
        wait.result()  # type: ignore[union-attr]  # nothing was there, so it was a wait
    house.done(deletion)
    assert (house.engine.partitions(), house.broker.subscriptions(), house.broker.groups(now_ms=0)) == ([], [], [])
    house.topic()  # made anew: nothing of the old one is in it
    assert house.broker.find("orders").id == 2
    assert house.broker.index("orders", "app", 0)[:3] == (0, 0, 0)
    house.produce(guest, words(1))
    assert house.fetch(consumer).count == 1
    house.restart()
    assert list(house.broker.topics) == ["orders"]


def test_topic_used_while_it_is_deleted_is_made_anew(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.broker.delete_topic("orders", now_ms=house.now_ms)
    for _ in range(2):  # first the deletion, then the making
        wait = house.broker.ensure(guest, ["orders"], app="app", produces=True, now_ms=house.now_ms)
        assert wait is not None
        house.broker.settle()
        assert wait in house.turn()
    assert house.broker.ensure(guest, ["orders"], app="app", produces=True, now_ms=house.now_ms) is None
    assert house.produce(guest, words(1)).ordinal == 0


def test_effect_that_fails_changes_nothing_and_tells_everybody(house: House) -> None:
    house.topic("old")
    full = DiskFull("no space left")
    waits = [
        house.broker.create_topic("orders", now_ms=house.now_ms),
        house.broker.ensure(house.guest(), ["orders"], app="app", now_ms=house.now_ms),
        house.broker.delete_topic("old", now_ms=house.now_ms),
        house.broker.alter_topic("old", policy={"level": "receive"}, now_ms=house.now_ms) if False else None,
    ]
    for effect in house.broker.effects():
        house.broker.done(effect, full)
    assert house.turn() == [wait for wait in waits if wait is not None]
    for wait in waits:
        if wait is not None:
            with refused("disk-full"):
                wait.result()
    with refused("topic-unknown"):
        house.broker.find("orders")
    assert house.broker.find("old").partitions == 1
    house.topic("orders")


def test_description_has_the_policies_that_exist_and_who_owns_what(house: House) -> None:
    house.topic(partitions=2, policy={"timeout_ms": 700})
    house.done(house.broker.set_subscription("orders", "reader", "consumer", {"batch_size": 3}, now_ms=house.now_ms))
    both = house.broker.describe("orders", "app.night")
    assert both.producer is not None
    assert both.producer.timeout_ms == 700
    only = house.broker.describe("orders", "reader")
    assert only.producer is None
    assert only.consumer is not None
    assert (only.consumer.batch_size, only.consumer.ack_timeout_ms, only.consumer.retry) == (3, 300_000, True)
    assert [tuple(owner) for owner in only.owners] == [(0, 1, house.engine.epoch), (1, 1, house.engine.epoch)]


def test_removed_subscription_ends_what_it_allowed(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(1))
    for role in ("producer", "consumer"):
        house.done(house.broker.remove_subscription("orders", "app", role, now_ms=house.now_ms))
    with refused("subscription-unknown"):
        house.produce(guest, words(1))
    with refused("subscription-unknown"):
        house.fetch(consumer)
    with refused("subscription-unknown"):
        house.broker.remove_subscription("orders", "app", "consumer", now_ms=house.now_ms)


def test_partitions_that_were_added_are_used(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.done(house.broker.alter_topic("orders", partitions=2, now_ms=house.now_ms))
    house.produce(guest, words(1), partition=1)
    assert house.fetch(consumer).partition == 1


def test_registration_is_asked_for_and_repeatable(house: House) -> None:
    house.topic()
    guest, other = house.guest(), house.guest()
    assert house.consumer(guest) is house.consumer(guest)
    assert house.broker.add_producer(guest, "orders", "app") is house.broker.add_producer(guest, "orders", "app")
    assert house.broker.consumer(guest, "orders", "app").id != house.consumer(other).id
    with refused("consumer-unknown"):
        house.broker.consumer(guest, "orders", "app.other")
    house.broker.remove_producer(guest, "orders", "app")
    with refused("producer-unknown"):
        house.broker.producer(guest, "orders", "app")


def test_ids_of_sessions_are_never_used_twice(house: House) -> None:
    seen = {house.guest().id for _ in range(3)}
    house.restart()
    assert not seen & {house.guest().id for _ in range(3)}


def test_catalogue_of_a_newer_epoch_is_refused(house: House) -> None:
    house.engine.catalogue().put(
        b"topic/9", b'{"name":"x","partitions":1,"table":{},"epoch":99}', level=Level.RECEIVE
    )  # fmt: skip
    with refused("not-owner"):
        Broker(house.engine, **house.settings)


@pytest.mark.parametrize(
    ("act", "words_of_error"),
    [
        (lambda house: house.broker.find("missing"), "missing"),
        (lambda house: house.broker.create_topic("a/b", now_ms=0), "a/b"),
        (
            lambda house: house.broker.set_subscription("orders", "app", "consumer", {"dealy_ms": 1}, now_ms=0),
            "'delay_ms'",
        ),
    ],
)
def test_refusals_name_what_was_wrong(house: House, act: Any, words_of_error: str) -> None:
    house.topic()
    with pytest.raises(Refused, match=words_of_error):
        act(house)


def test_partitions_that_a_crash_left_behind_go_at_the_next_start(house: House) -> None:
    house.topic(partitions=2)
    house.topic("logs")
    for number in range(2):
        house.produce(house.guest(), words(1), partition=number)
    house.produce(house.guest(), words(1), name="logs")
    house.broker.delete_topic("orders", now_ms=house.now_ms)
    (effect,) = house.broker.effects()
    effect.removed = []  # killed after the catalogue was written
    effect.run()
    house.engine.open("strange-name")
    house.engine.open("99-0")  # an id that was not given away yet is nobody's to remove
    house.restart()
    assert house.engine.partitions() == ["1-0", "1-1", "2-0", "99-0", "strange-name"]
    house.broker.settle()
    assert house.engine.partitions() == ["2-0", "99-0", "strange-name"]
    assert house.fetch(house.consumer(house.guest(), "logs")).count == 1


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[1]", b'{"epoch":1}', b'{"epoch":1,"name":"x"}', b"null"])
def test_entry_that_cannot_be_read_is_named(house: House, data: bytes) -> None:
    house.engine.catalogue().put(b"topic/9", data, level=Level.RECEIVE)
    with pytest.raises(Corrupt, match="topic/9"):
        Broker(house.engine, **house.settings)
