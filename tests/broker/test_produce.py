"""Messages in: which partition, who may, what comes back."""

from __future__ import annotations

import pytest

from serai._core.entries import HOUSE, REAL
from serai.broker import Delivery
from serai.broker.names import hash_of
from serai.errors import BadMessages
from serai.log.engine import Level
from tests.broker.kit import House, bodies_of, message_set, refused, words


def test_sets_without_a_partition_go_round(house: House) -> None:
    house.topic(partitions=3)
    guest = house.guest()
    seen = [house.broker.partition_of(house.produce(guest, words(2))) for _ in range(6)]
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


def test_key_decides_the_partition(house: House) -> None:
    house.topic(partitions=7)
    guest = house.guest()
    for key in ("order-1", "", "日本", "a" * 300):
        expected = hash_of(key) % 7 if key else 0
        assert {house.broker.partition_of(house.produce(guest, words(1), key=key)) for _ in range(2)} == {expected}


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 3105),
        ("polygenelubricants", 0x7FFFFFFF),
        ("order-1", 1207111310),
        ("zzzzzz", 685785664),
        ("Aa", 2112),
        ("BB", 2112),
        ("é", 233),
    ],
)
def test_hash_is_the_one_of_the_clients(key: str, expected: int) -> None:
    assert hash_of(key) == expected


def test_one_set_is_one_append_with_dense_ordinals(house: House) -> None:
    house.topic()
    guest = house.guest()
    first, second = house.produce(guest, words(200)), house.produce(guest, words(3))
    assert (first.ordinal, first.count, second.ordinal, second.count) == (0, 200, 200, 3)


def test_level_is_the_topics_then_the_requests_then_the_servers(house: House) -> None:
    house.topic()
    guest = house.guest()
    assert house.produce(guest, words(1)).level == Level.RECEIVE
    assert house.produce(guest, words(1), level=Level.COMMIT).level == Level.COMMIT
    house.done(house.broker.alter_topic("orders", policy={"level": "receive"}, now_ms=house.now_ms))
    assert house.produce(guest, words(1), level=Level.COMMIT).level == Level.RECEIVE


def test_topic_may_show_only_what_is_committed(house: House) -> None:
    house.topic(policy={"visible": "committed"})
    guest = house.guest()
    consumer = house.consumer(guest)
    ticket = house.produce(guest, words(3), level=Level.COMMIT)
    ticket.log.commit()
    assert bodies_of(house.fetch(consumer)) == words(3)
    log = house.broker.find("orders").partition(0).log
    assert house.fetch(consumer).count == 0
    assert log.committed == 3


def test_reader_of_committed_messages_is_woken_by_the_flush(house: House) -> None:
    house.topic(policy={"visible": "committed"})
    guest = house.guest()
    wait = house.ask(house.consumer(guest), wait_ms=1000)
    house.produce(guest, words(3)).log.commit()
    house.broker.moved()
    assert house.turn() == [wait]


@pytest.mark.parametrize("partition", [3, 99, 1 << 40])
def test_unknown_partition_is_refused(house: House, partition: int) -> None:
    house.topic(partitions=3)
    with refused("partition-unknown"):
        house.produce(house.guest(), words(1), partition=partition)


def test_transaction_is_refused_until_there_are_any(house: House) -> None:
    house.topic()
    with refused("unsupported"):
        house.produce(house.guest(), words(1), transaction=1)


def test_bad_set_is_the_peers_error_and_stores_nothing(house: House) -> None:
    house.topic()
    guest = house.guest()
    for data, dress in [(message_set(words(3))[:-1], HOUSE), (message_set(words(3)), REAL), (b"\0" * 40, HOUSE)]:
        with pytest.raises(BadMessages):
            house.broker.produce(guest, "orders", data, dress, app="app", now_ms=house.now_ms)
    assert house.broker.index("orders", None, 0).end == 0


def test_address_on_the_black_list_is_refused_as_producer_and_as_consumer(house: House) -> None:
    house.topic()
    house.done(
        house.broker.set_subscription("orders", "app", "producer", {"black_list": ["10.0.0.7"]}, now_ms=house.now_ms)
    )
    bad, good = house.guest(address="10.0.0.7"), house.guest(address="10.0.0.8")
    house.produce(good, words(1))
    with refused("black-listed"):
        house.produce(bad, words(1))
    assert house.fetch(house.consumer(bad)).count == 1
    house.broker.leave(bad)
    bad = house.guest(address="10.0.0.7")
    house.subscribe("orders", "app", black_list=["10.0.0.7"])
    consumer = house.consumer(bad)  # registering is no consumption
    with refused("black-listed"):
        house.fetch(consumer)
    with refused("black-listed"):
        house.broker.fetch_at(bad, "orders", "app", 0, 0, count=1, bytes_max=100, now_ms=house.now_ms)


def test_change_of_a_policy_reaches_open_sessions(house: House) -> None:
    house.topic()
    guest = house.guest(address="10.0.0.7")
    consumer = house.consumer(guest)
    house.produce(guest, words(30))
    assert house.ack(house.fetch(consumer, count=0)) == 10
    house.subscribe("orders", "app", batch_size=7, ack_timeout_ms=1234)
    delivery = house.fetch(consumer, count=0)
    assert (delivery.count, delivery.deadline_ms) == (7, house.now_ms + 1234)
    house.done(house.broker.alter_topic("orders", policy={"black_list": ["10.0.0.7"]}, now_ms=house.now_ms))
    with refused("black-listed"):
        house.produce(guest, words(1))
    with refused("black-listed"):
        house.fetch(consumer)


def test_paused_consumption_is_refused_and_goes_on_later(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3))
    house.subscribe("orders", "app", paused=True)
    with refused("paused"):
        house.fetch(consumer)
    house.subscribe("orders", "app", paused=None)
    assert house.fetch(consumer).count == 3


def test_delayed_messages_are_given_when_they_are_old_enough(house: House) -> None:
    house.topic()
    house.subscribe("orders", "app", delay_ms=1000)
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(2))
    house.now_ms += 600
    house.produce(guest, words(2, 2))
    assert house.fetch(consumer).count == 0
    house.now_ms += 399
    assert house.fetch(consumer).count == 0
    house.now_ms += 1
    delivery = house.fetch(consumer)
    assert bodies_of(delivery) == words(2)
    house.ack(delivery)
    house.now_ms += 600
    assert bodies_of(house.fetch(consumer)) == words(2, 2)


def test_reading_without_lock_leaves_everything_as_it_is(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(5))
    for ordinal, expected in [(0, words(5)), (3, words(2, 3)), (5, [])]:
        for group in (None, "app"):
            answer = house.broker.fetch_at(
                guest, "orders", group, 0, ordinal, count=10, bytes_max=1 << 20, now_ms=house.now_ms
            )
            assert isinstance(answer, Delivery)
            assert bodies_of(answer) == expected
    assert house.fetch(house.consumer(guest)).attempt == 1


def test_reading_without_lock_begins_at_the_position_when_asked(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(5))
    house.broker.seek("orders", "app", 0, 2, now_ms=house.now_ms)
    answer = house.broker.fetch_at(guest, "orders", "app", 0, -1, count=2, bytes_max=1 << 20, now_ms=house.now_ms)
    assert isinstance(answer, Delivery)
    assert answer.ordinal == 2
    for group, ordinal in [("app", 6), ("app", -2), (None, -1)]:
        with refused("out-of-range"):
            house.broker.fetch_at(guest, "orders", group, 0, ordinal, count=1, bytes_max=100, now_ms=house.now_ms)
