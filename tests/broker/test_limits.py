"""Every bound of the broker: at the limit it goes, one beyond it is refused, by its word."""

from __future__ import annotations

import pytest

from serai import limits
from serai.broker import Wait
from tests.broker.kit import House, refused, words


@pytest.fixture
def topic(house: House) -> House:
    house.topic()
    return house


def test_topics_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 3)
    for name in "abc":
        house.topic(name)
    with refused("limit-reached"):
        house.broker.create_topic("d", now_ms=house.now_ms)
    with refused("limit-reached"):
        house.broker.ensure(house.guest(), ["d"], app="app", produces=True, now_ms=house.now_ms)
    house.done(house.broker.delete_topic("a", now_ms=house.now_ms))
    house.topic("d")


def test_one_request_makes_only_so_many_topics(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PLAN_TOPICS_MAX", 3)
    guest = house.guest()
    with refused("limit-reached"):
        house.broker.ensure(guest, "abcd", app="app", produces=True, now_ms=house.now_ms)
    house.done(house.broker.ensure(guest, "abc", app="app", produces=True, now_ms=house.now_ms))
    assert list(house.broker.topics) == ["a", "b", "c"]


def test_groups_of_a_topic_are_bounded(topic: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    guest = topic.guest()
    topic.consumer(guest, group="app.1")
    topic.consumer(guest, group="app.2")
    with refused("limit-reached"):
        topic.consumer(guest, group="app.3")
    topic.consumer(topic.guest(), group="app.2")


def test_registrations_of_a_connection_are_bounded(topic: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTERED_MAX", 2)
    guest = topic.guest()
    for group in ("app.1", "app.2"):
        topic.consumer(guest, group=group)
        topic.broker.add_producer(guest, "orders", group)
    with refused("limit-reached"):
        topic.consumer(guest, group="app.3")
    with refused("limit-reached"):
        topic.broker.add_producer(guest, "orders", "app.3")
    for each in range(5):  # whoever produces under many names costs no memory
        topic.produce(guest, words(1), app=f"app.{each}")
    assert len(guest.routes) <= 2


def test_what_is_asked_for_is_cut_to_the_bounds(topic: House) -> None:
    guest = topic.guest()
    topic.produce(guest, words(3))
    delivery = topic.fetch(
        topic.consumer(guest), count=1 << 40, bytes_max=1 << 50, ack_timeout_ms=limits.LEASE_MS_MAX + 1
    )
    assert (delivery.count, delivery.deadline_ms) == (3, topic.now_ms + limits.LEASE_MS_MAX)
    wait = topic.ask(topic.consumer(topic.guest()), wait_ms=limits.LONG_POLL_MS_MAX + 1)
    assert isinstance(wait, Wait)
    assert wait.deadline_ms == topic.now_ms + limits.LONG_POLL_MS_MAX
    until_ms = topic.broker.renew("orders", "app", 0, ack_timeout_ms=1 << 60, now_ms=topic.now_ms)
    assert until_ms == topic.now_ms + limits.LEASE_MS_MAX
    topic.broker.release("orders", "app", 0, delay_ms=1 << 60, now_ms=topic.now_ms)
    topic.now_ms = until_ms
    assert topic.fetch(topic.consumer(guest), bytes_max=-5, count=-5).count == 1  # one entry always passes
