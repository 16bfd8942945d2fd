"""What is parked and what wakes it: appends, freed leases, ends of leases and delays, flushes, deadlines."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

import pytest

from serai import limits
from serai.broker import Delivery, Wait
from serai.broker.waits import NEVER_MS, Deadlines
from serai.errors import OutcomeUnknown
from serai.log.engine import Level
from tests.broker.kit import House, bodies_of, refused, words

if TYPE_CHECKING:
    from serai.broker import Session

POLL_MS = 10_000


def parked(house: House, guest: Session, **words: Any) -> Wait[Delivery]:
    answer = house.ask(house.consumer(guest, **words), wait_ms=POLL_MS)
    assert isinstance(answer, Wait)
    assert not answer.done
    return answer


def test_long_poll_is_woken_by_an_append(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    wait = parked(house, one)
    assert house.turn() == []
    house.produce(other, words(2))
    house.produce(other, words(2, 2))
    assert house.turn() == [wait]
    assert bodies_of(wait.result()) == words(4)  # one look for everything a round appended
    assert house.turn() == []


def test_long_poll_ends_empty_at_its_deadline(house: House) -> None:
    house.topic()
    wait = parked(house, house.guest())
    assert house.now_ms + POLL_MS <= house.broker.next_ms <= house.now_ms + POLL_MS + 8
    assert house.turn(after_ms=POLL_MS - 1) == []
    assert house.turn(after_ms=9) == [wait]
    assert wait.timed_out
    assert wait.result().count == 0
    assert house.broker.next_ms == NEVER_MS


def test_long_poll_takes_at_its_deadline_what_just_came(house: House) -> None:
    house.topic()
    guest = house.guest()
    wait = parked(house, guest)
    house.produce(guest, words(1))
    assert house.turn(after_ms=POLL_MS + 8) == [wait]
    assert (wait.timed_out, wait.result().count) == (False, 1)


def test_longest_waiting_is_served_first(house: House) -> None:
    house.topic(partitions=2)
    waits = [parked(house, house.guest()) for _ in range(3)]
    house.produce(house.guest(), words(1), partition=0)
    house.produce(house.guest(), words(1), partition=1)
    assert house.turn() == waits[:2]
    assert not waits[2].done


def test_long_poll_is_woken_by_an_acknowledgement_that_frees_the_lock(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(12))
    delivery = house.fetch(house.consumer(one))
    wait = parked(house, other)
    house.ack(delivery)
    assert house.turn() == [wait]
    assert wait.result().ordinal == 10


def test_long_poll_is_woken_by_the_end_of_the_lease_it_waits_for(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(3))
    lease = house.fetch(house.consumer(one), ack_timeout_ms=3000)
    wait = parked(house, other)
    assert lease.deadline_ms <= house.broker.next_ms <= lease.deadline_ms + 8
    assert house.turn(after_ms=2999) == []
    assert house.turn(after_ms=9) == [wait]
    assert wait.result().attempt == 2


def test_long_poll_is_woken_when_the_holder_is_gone(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    house.produce(one, words(3))
    house.fetch(house.consumer(one))
    wait = parked(house, other)
    house.broker.leave(one)
    assert house.turn() == [wait]


def test_long_poll_is_woken_when_a_delay_is_over(house: House) -> None:
    house.topic()
    house.subscribe("orders", "app", delay_ms=2000)
    guest = house.guest()
    house.produce(guest, words(2))
    house.now_ms += 500
    house.produce(guest, words(2, 2))
    wait = parked(house, guest)
    assert house.turn(after_ms=1499) == []
    assert house.broker.next_ms <= house.now_ms + 9
    assert house.turn(after_ms=9) == [wait]
    assert bodies_of(wait.result()) == words(2)


def test_wait_of_a_session_that_left_is_forgotten(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    wait = parked(house, one)
    house.broker.leave(one)
    house.produce(other, words(1))
    assert house.turn(after_ms=POLL_MS + 8) == []
    assert not one.waits
    assert wait.done
    assert house.broker.counts.waits == 0
    assert house.fetch(house.consumer(other)).count == 1


def test_finished_wait_of_a_session_that_left_is_not_handed_over(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    wait = house.broker.park(one, [house.produce(other, words(1))], deadline_ms=house.now_ms + 1000)
    house.broker.drop(wait)
    assert house.turn() == []


def test_long_poll_hears_of_a_pause(house: House) -> None:
    house.topic()
    wait = parked(house, house.guest())
    house.broker.set_subscription("orders", "app", "consumer", {"paused": True}, now_ms=house.now_ms)
    house.broker.settle()
    assert wait in house.turn()
    with refused("paused"):
        wait.result()


def test_reader_without_lock_is_woken_by_an_append(house: House) -> None:
    house.topic()
    guest = house.guest()
    wait = house.broker.fetch_at(
        guest, "orders", None, 0, 0, count=5, bytes_max=1000, wait_ms=POLL_MS, now_ms=house.now_ms
    )
    assert isinstance(wait, Wait)
    house.produce(guest, words(2))
    assert house.turn() == [wait]
    assert bodies_of(wait.result()) == words(2)


def test_reader_without_lock_ends_empty_at_its_deadline(house: House) -> None:
    house.topic()
    wait = house.broker.fetch_at(
        None, "orders", None, 0, 0, count=5, bytes_max=1000, wait_ms=POLL_MS, now_ms=house.now_ms
    )
    assert house.turn(after_ms=POLL_MS + 8) == [wait]
    assert isinstance(wait, Wait)
    assert wait.result().count == 0


def ring(house: House) -> None:
    assert select.select([house.engine.fileno()], [], [], 10)[0], "the engine did not ring"
    house.broker.moved()


def test_tickets_of_a_request_are_answered_together_when_the_disk_has_them(house: House) -> None:
    house.topic(partitions=2)
    guest = house.guest()
    tickets = [house.produce(guest, words(2), partition=each, level=Level.COMMIT) for each in (0, 1)]
    wait = house.broker.park(guest, tickets, deadline_ms=house.now_ms + 5000)
    answered: list[Wait[Any]] = []
    while not answered:
        ring(house)
        answered = house.turn()
    assert answered == [wait]
    assert wait.result() == tickets
    assert all(house.broker.verdict(ticket) is None for ticket in tickets)
    assert [house.broker.partition_of(ticket) for ticket in tickets] == [0, 1]


def test_tickets_that_are_done_already_are_answered_in_the_next_turn(house: House) -> None:
    house.topic()
    guest = house.guest()
    wait = house.broker.park(guest, [house.produce(guest, words(1), level=Level.RECEIVE)], deadline_ms=NEVER_MS)
    assert house.turn() == [wait]


def test_ticket_that_is_late_has_an_unknown_outcome(house: House) -> None:
    house.topic()
    guest = house.guest()
    ticket = house.produce(guest, words(1), level=Level.COMMIT)
    wait = house.broker.park(guest, [ticket], deadline_ms=house.now_ms)
    # The disk may be quicker than this test, and then there is nothing to be unsure of.
    assert house.turn(after_ms=8) == [wait]
    assert wait.timed_out or ticket.done
    assert isinstance(house.broker.verdict(ticket), OutcomeUnknown) or ticket.done


def test_parked_requests_of_one_connection_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITS_SESSION_MAX", 3)
    house.topic()
    guest = house.guest()
    for _ in range(3):
        parked(house, guest)
    with refused("too-many-waiting"):
        parked(house, guest)
    parked(house, house.guest())
    monkeypatch.setattr(limits, "WAITS_MAX", 4)
    with refused("too-many-waiting"):
        parked(house, house.guest())
    assert house.broker.counts.waits == 4


def test_deadlines_are_kept_late_by_a_bucket_and_never_early() -> None:
    deadlines = Deadlines()
    for due_ms in range(100, 140):
        deadlines.add(due_ms, due_ms)
    deadlines.remove(110, 110)
    deadlines.remove(110, 110)
    seen = []
    for now_ms in range(90, 160):
        for thing in deadlines.due(now_ms):
            assert isinstance(thing, int)
            assert thing <= now_ms <= thing + 8
            seen.append(thing)
        assert deadlines.next_ms > now_ms
    assert seen == [each for each in range(100, 140) if each != 110]


def test_answer_of_a_session_that_left_in_the_same_round_is_not_handed_over(house: House) -> None:
    house.topic()
    one, other = house.guest(), house.guest()
    wait = house.broker.park(one, [house.produce(one, words(1))], deadline_ms=NEVER_MS)
    assert wait.done
    house.broker.leave(one)
    assert house.turn() == []
    assert house.fetch(house.consumer(other)).count == 1


def test_long_poll_times_out_even_when_nothing_else_happens_for_days(house: House) -> None:
    house.topic()
    guest = house.guest()
    for _ in range(50):
        wait = parked(house, guest)
        assert house.turn(after_ms=POLL_MS + 8) == [wait]
    group = house.broker.find("orders").groups["app"]
    assert not group.pollers
    assert not guest.waits
