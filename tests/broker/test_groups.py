"""Delivery with the lock: leases, acknowledgements, redelivery, as a client sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serai._core.entries import HOUSE
from serai.broker import NEWEST, OLDEST
from serai.errors import BadMessages
from tests.broker.kit import House, batch, bodies_of, message_set, refused, words

if TYPE_CHECKING:
    from serai.broker import Delivery

TIMEOUT_MS = 5_000


def test_consumer_gets_what_was_produced_from_the_oldest_on(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(3))
    delivery = house.fetch(house.consumer(guest))
    assert bodies_of(delivery) == words(3)
    assert (delivery.partition, delivery.ordinal, delivery.count, delivery.attempt) == (0, 0, 3, 1)


def test_partition_is_locked_until_it_is_acknowledged(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(20))
    first = house.fetch(house.consumer(one))
    assert house.fetch(house.consumer(other)).count == 0
    assert house.ack(first) == 10
    assert bodies_of(house.fetch(house.consumer(other))) == words(10, 10)


def test_lease_that_timed_out_is_delivered_again_and_counted(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(3))
    house.fetch(house.consumer(one), ack_timeout_ms=TIMEOUT_MS)
    house.now_ms += TIMEOUT_MS - 1
    assert house.fetch(house.consumer(other)).count == 0
    house.now_ms += 1
    again = house.fetch(house.consumer(other))
    assert (bodies_of(again), again.attempt) == (words(3), 2)


def test_late_acknowledgement_is_harmless(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(20))
    first = house.fetch(consumer)
    house.ack(first)
    second = house.fetch(consumer)
    assert house.ack(first) == 10  # repeated: no error, nothing moves, and the second lease stays
    assert house.fetch(house.consumer(house.guest())).count == 0
    assert house.ack(second) == 20


def test_acknowledgement_of_a_lost_lease_counts_if_it_begins_at_the_position(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(3))
    slow = house.fetch(house.consumer(one), ack_timeout_ms=TIMEOUT_MS)
    house.now_ms += TIMEOUT_MS
    again = house.fetch(house.consumer(other))
    assert house.ack(slow) == 3
    assert house.ack(again) == 3
    assert house.fetch(house.consumer(other)).count == 0


@pytest.mark.parametrize(
    "ordinals",
    [[], [0, 2], [0, 0, 1], [1, 1], [-1, 0], range(0), range(0, 4, 2), range(3, 99)],
    ids=str,
)
def test_acknowledgement_with_gaps_or_repeats_or_of_nothing_stored_is_refused(
    house: House, ordinals: list[int]
) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(5))
    house.fetch(house.consumer(guest))
    with refused("bad-ack"):
        house.broker.ack("orders", "app", 0, ordinals, now_ms=house.now_ms)
    assert house.broker.index("orders", "app", 0).position == 0


def test_ordinals_may_come_in_any_order(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(5))
    house.fetch(house.consumer(guest))
    assert house.broker.ack("orders", "app", 0, [2, 0, 1], now_ms=house.now_ms) == 3
    assert house.fetch(house.consumer(guest)).ordinal == 3


def test_messages_that_failed_stay_and_the_lock_is_free(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3))
    delivery = house.fetch(consumer)
    with refused("retry-disabled"):
        house.ack(delivery, failed=[1])
    again = house.fetch(consumer)
    assert (bodies_of(again), again.attempt) == (words(3), 2)


def test_messages_that_failed_without_retry_are_no_error(house: House) -> None:
    house.topic()
    house.subscribe("orders", "app", retry=False)
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3))
    assert house.ack(house.fetch(consumer), failed=[0]) == 0
    assert house.fetch(consumer).attempt == 2


@pytest.mark.parametrize("how", ["disconnect", "remove"])
def test_leases_end_with_their_holder(house: House, how: str) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(3))
    house.fetch(house.consumer(one))
    if how == "disconnect":
        house.broker.leave(one)
    else:
        house.broker.remove_consumer(one, "orders", "app")
    assert house.fetch(house.consumer(other)).attempt == 2


def test_release_gives_everything_back_after_a_delay(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(3))
    house.fetch(consumer)
    house.broker.release("orders", "app", 0, delay_ms=1000, now_ms=house.now_ms)
    house.now_ms += 999
    assert house.fetch(consumer).count == 0
    house.now_ms += 1
    assert house.fetch(consumer).attempt == 2


def test_renewed_lease_lasts_longer(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(3))
    house.fetch(house.consumer(guest), ack_timeout_ms=TIMEOUT_MS)
    house.now_ms += TIMEOUT_MS - 1
    until = house.broker.renew("orders", "app", 0, ack_timeout_ms=TIMEOUT_MS, now_ms=house.now_ms)
    assert until == house.now_ms + TIMEOUT_MS
    house.now_ms = until - 1
    assert house.fetch(house.consumer(house.guest())).count == 0
    house.now_ms = until
    assert house.broker.renew("orders", "app", 0, ack_timeout_ms=TIMEOUT_MS, now_ms=house.now_ms) == 0


def test_groups_have_their_own_positions_and_locks(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(3))
    day, night = house.consumer(guest, group="app.day"), house.consumer(guest, group="app.night")
    assert bodies_of(house.fetch(day)) == bodies_of(house.fetch(night)) == words(3)
    assert house.ack(house.fetch(house.consumer(guest)), "app") == 3
    assert house.broker.index("orders", "app.day", 0).position == 0


def test_batch_members_count_as_indexes(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(2))
    ticket = house.broker.produce(guest, "orders", batch(words(5, 2)), HOUSE, app="app", now_ms=house.now_ms)
    assert (ticket.ordinal, ticket.count) == (2, 5)
    first = house.fetch(consumer, count=2)
    assert (first.ordinal, first.count) == (0, 2)
    house.ack(first)
    second = house.fetch(consumer, count=1)  # a batch is not torn
    assert (second.ordinal, second.count, bodies_of(second)) == (2, 5, words(5, 2))
    assert house.ack(second) == 7


def test_batch_entered_in_its_middle_is_acknowledged_from_its_first_member_on(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.broker.produce(guest, "orders", batch(words(5)), HOUSE, app="app", now_ms=house.now_ms)
    house.broker.seek("orders", "app", 0, 3, now_ms=house.now_ms)
    delivery = house.fetch(consumer)
    assert (delivery.ordinal, delivery.count, delivery.spans[0].lead) == (3, 2, 3)
    assert house.broker.ack("orders", "app", 0, range(5), now_ms=house.now_ms) == 5


def test_messages_acknowledged_out_of_order_are_stepped_over(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(10))
    house.fetch(consumer)
    assert house.broker.settle_some("orders", "app", 0, [range(3, 5), range(7, 8)], now_ms=house.now_ms) == 0
    house.broker.release("orders", "app", 0, now_ms=house.now_ms)
    seen = []
    while (delivery := house.fetch(consumer)).count:
        seen += bodies_of(delivery)
        house.ack(delivery)
    assert seen == [b"0", b"1", b"2", b"5", b"6", b"8", b"9"]


def test_lease_ends_when_all_of_it_is_acknowledged_out_of_order(house: House) -> None:
    house.topic()
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(12))
    house.fetch(consumer)
    assert house.broker.settle_some("orders", "app", 0, [range(5, 10), range(5)], now_ms=house.now_ms) == 10
    assert house.fetch(consumer).ordinal == 10


def test_partitions_are_taken_in_turn(house: House) -> None:
    house.topic(partitions=3)
    guest = house.guest()
    for number in range(3):
        house.produce(guest, words(2, 10 * number), partition=number)
    consumer = house.consumer(guest)
    assert {house.fetch(consumer).partition for _ in range(3)} == {0, 1, 2}
    assert house.fetch(consumer).count == 0


def test_partitions_with_priority_come_first(house: House) -> None:
    house.topic(partitions=4, policy={"priority": [3, 1]})
    guest = house.guest()
    for number in range(4):
        house.produce(guest, words(1), partition=number)
    consumer = house.consumer(guest)
    assert [house.fetch(consumer).partition for _ in range(2)] == [3, 1]


def test_ordered_consumption_reads_partition_0_alone(house: House) -> None:
    house.topic(partitions=2)
    house.subscribe("orders", "app", seq=True)
    guest = house.guest()
    for number in range(2):
        house.produce(guest, words(3, number * 10), partition=number)
    consumer = house.consumer(guest)
    delivery = house.fetch(consumer)
    assert delivery.partition == 0
    assert house.fetch(consumer).count == 0
    house.ack(delivery)
    assert house.fetch(consumer).count == 0


def test_consumer_holds_no_more_partitions_than_its_policy_says(house: House) -> None:
    house.topic(partitions=3)
    house.subscribe("orders", "app", max_partitions=2)
    one, other = house.guest(), house.guest()
    for number in range(3):
        house.produce(one, words(1), partition=number)
    consumer = house.consumer(one)
    assert [house.fetch(consumer).count for _ in range(3)] == [1, 1, 0]
    assert house.fetch(house.consumer(other)).count == 1


def test_position_is_set_by_number_end_and_time(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(3))
    house.now_ms += 1000
    house.produce(guest, words(3, 3))
    broker = house.broker
    assert broker.seek("orders", "app", 0, NEWEST, now_ms=house.now_ms) == 6
    assert broker.seek("orders", "app", 0, OLDEST, now_ms=house.now_ms) == 0
    assert broker.seek("orders", "app", 0, 2, now_ms=house.now_ms) == 2
    assert house.fetch(house.consumer(guest)).ordinal == 2
    assert broker.seek_time("orders", "app", 0, house.now_ms, now_ms=house.now_ms) == 3
    assert house.fetch(house.consumer(guest)).ordinal == 3  # the lease ended with the position
    for outside in (-3, 7):
        with refused("out-of-range"):
            broker.seek("orders", "app", 0, outside, now_ms=house.now_ms)


def test_index_says_position_and_both_ends(house: House) -> None:
    house.topic()
    house.produce(house.guest(), words(3))
    assert house.broker.index("orders", "app", 0)[:3] == (0, 0, 3)
    assert house.broker.index("orders", None, 0).position == -1
    with refused("partition-unknown"):
        house.broker.index("orders", "app", 1)


def test_new_group_begins_where_its_policy_says_and_stays_there(house: House) -> None:
    house.topic()
    house.subscribe("orders", "app", start="newest")
    guest = house.guest()
    house.produce(guest, words(3))
    assert house.fetch(house.consumer(guest)).count == 0
    house.produce(guest, words(2, 3))
    house.restart()
    assert house.fetch(house.consumer(house.guest())).ordinal == 3


def test_bytes_are_limited_but_one_entry_always_passes(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, [b"x" * 1000] * 5)
    consumer = house.consumer(guest)
    assert house.ack(house.fetch(consumer, bytes_max=2100)) == 2
    assert house.fetch(consumer, bytes_max=10).count == 1


def test_removed_group_begins_anew(house: House) -> None:
    house.topic()
    guest = house.guest()
    house.produce(guest, words(3))
    house.ack(house.fetch(house.consumer(guest)))
    house.broker.remove_group("orders", "app")
    assert house.broker.index("orders", "app", 0).position == 0
    house.restart()
    assert house.broker.index("orders", "app", 0).position == 0


def test_group_view_shows_lag_and_holder(house: House) -> None:
    house.topic(partitions=2)
    guest = house.guest()
    consumer = house.consumer(guest)
    house.produce(guest, words(5), partition=1)
    delivery: Delivery = house.fetch(consumer, count=2)
    house.ack(delivery)
    house.fetch(consumer, count=2)
    (view,) = house.broker.groups("orders", now_ms=house.now_ms)
    row = view.partitions[1]
    assert (row.position, row.lag, row.holder, row.attempt) == (2, 3, consumer.id, 1)
    assert (view.delivered, view.acked, view.redelivered) == (4, 2, 0)
    house.restart()
    (view,) = house.broker.groups(now_ms=house.now_ms)
    assert (view.partitions[1].lag, view.partitions[1].holder) == (3, "")


def test_set_is_stored_together(house: House) -> None:
    house.topic()
    guest = house.guest()
    with pytest.raises(BadMessages):
        house.broker.produce(guest, "orders", message_set(words(3)) + b"broken", HOUSE, app="app", now_ms=house.now_ms)
    assert house.broker.index("orders", None, 0).end == 0
