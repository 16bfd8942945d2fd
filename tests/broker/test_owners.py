"""Ownership can be lost: nobody is left hanging, nothing is done for a partition that is not ours."""

from __future__ import annotations

from serai.broker import Wait
from serai.log.engine import Level
from tests.broker.kit import House, refused, words


def test_partition_of_another_node_is_neither_written_nor_read(house: House) -> None:
    house.topic(partitions=2)
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3), partition=0)
    house.produce(guest, words(3), partition=1)
    house.broker.disown("orders", 0, node=2, epoch=7)
    for act in (
        lambda: house.produce(guest, words(1), partition=0),
        lambda: house.broker.fetch_at(guest, "orders", None, 0, 0, count=1, bytes_max=100, now_ms=house.now_ms),
        lambda: house.broker.ack("orders", "app", 0, range(1), now_ms=house.now_ms),
        lambda: house.broker.index("orders", "app", 0),
    ):
        with refused("not-owner"):
            act()
    assert house.fetch(consumer).partition == 1
    assert house.fetch(consumer).count == 0
    assert {house.broker.partition_of(house.produce(guest, words(1))) for _ in range(3)} == {1}
    owners = house.broker.describe("orders", "app").owners
    assert [(owner.node, owner.epoch) for owner in owners] == [(2, 7), (1, house.engine.epoch)]


def test_topic_without_an_own_partition_has_no_owner(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.broker.disown("orders", 0)
    with refused("no-owner"):
        house.produce(guest, words(1))


def test_parked_requests_are_answered_when_ownership_is_lost(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    ticket = house.produce(one, words(3), level=Level.COMMIT)
    flush = house.broker.park(one, [ticket], deadline_ms=house.now_ms + 60_000)
    house.fetch(house.consumer(one))
    poll = house.ask(house.consumer(other), wait_ms=60_000)
    read = house.broker.fetch_at(
        other, "orders", None, 0, 3, count=1, bytes_max=100, wait_ms=60_000, now_ms=house.now_ms
    )
    assert isinstance(poll, Wait)
    assert isinstance(read, Wait)
    house.broker.disown("orders", 0)
    assert set(house.turn()) == {flush, poll, read}
    for wait in (poll, read):
        with refused("not-owner"):
            wait.result()
    verdict = house.broker.verdict(ticket)
    assert ticket.done or getattr(verdict, "code", "") == "not-owner"


def test_ownership_that_came_back_goes_on_where_it_was(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3))
    house.ack(house.fetch(consumer, count=2))
    house.fetch(consumer)
    house.broker.disown("orders", 0)
    house.broker.own("orders", 0)
    delivery = house.fetch(consumer)
    assert (delivery.ordinal, delivery.attempt) == (2, 2)


def test_fetch_of_a_topic_without_an_own_partition_is_refused_at_once(house: House) -> None:
    house.topic()
    consumer = house.consumer(house.guest())
    house.broker.disown("orders", 0)
    with refused("no-owner"):
        house.ask(consumer, wait_ms=1000)
