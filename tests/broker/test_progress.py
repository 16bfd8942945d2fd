"""Positions, acknowledged ranges and delivery counts against the slow and obvious way of keeping them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from serai import limits
from serai.broker.progress import TIMES_MAX, Progress, decode
from tests.broker.kit import refused

END = 40
ORDINALS = st.integers(0, END)
RANGES = st.tuples(ORDINALS, ORDINALS).map(sorted).map(tuple)


class ProgressAgainstSets(RuleBasedStateMachine):
    """A position is a set of ordinals that are done; a delivery count is a number for each ordinal."""

    @initialize(start=ORDINALS)
    def begin(self, start: int) -> None:
        self.progress = Progress(start)
        self.done = set(range(start))
        self.times = dict.fromkeys(range(END + 1), 0)

    @rule(to=ORDINALS)
    def advance(self, to: int) -> None:
        self.progress.advance(to)
        self.done |= set(range(to))

    @rule(between=RANGES)
    def settle(self, between: tuple[int, int]) -> None:
        self.progress.settle(*between)
        self.done |= set(range(*between))

    @rule(between=RANGES)
    def deliver(self, between: tuple[int, int]) -> None:
        start, stop = max(between[0], self.progress.position), between[1]
        if start < stop:
            times = self.progress.deliver(start, stop)
            for ordinal in range(start, stop):
                self.times[ordinal] += 1
            assert times == self.times[start]

    @rule(to=ORDINALS)
    def move(self, to: int) -> None:
        self.progress.move(to)
        self.done = set(range(to))
        self.times = dict.fromkeys(range(END + 1), 0)

    @rule()
    def write_and_read(self) -> None:
        self.progress, epoch = decode(self.progress.encode(7))
        assert epoch == 7

    @rule(between=RANGES)
    def undo(self, between: tuple[int, int]) -> None:
        before = self.progress.encode(1)
        kept = self.progress.kept()
        self.progress.settle(*between)
        self.progress.advance(between[1])
        self.progress.put_back(kept)
        assert self.progress.encode(1) == before

    @rule(end=ORDINALS)
    def clip(self, end: int) -> None:
        self.progress.clip(end)
        if self.progress.position == end:  # what was done behind the end is not done any more
            self.done = {ordinal for ordinal in self.done if ordinal < end}
        self.done = {ordinal for ordinal in self.done if ordinal < end}
        for ordinal in range(end, END + 1):
            self.times[ordinal] = 0

    @invariant()
    def same_is_done(self) -> None:
        done = set(range(self.progress.position))
        for start, stop in self.progress.acked:
            assert self.progress.position < start < stop
            done |= set(range(start, stop))
        assert done == self.done
        assert self.progress.acked == sorted(self.progress.acked)

    @invariant()
    def barrier_is_the_next_that_is_done(self) -> None:
        behind = [ordinal for ordinal in self.done if ordinal > self.progress.position]
        assert self.progress.barrier == min(behind, default=-1)

    @invariant()
    def same_was_delivered(self) -> None:
        counted = {ordinal: times for start, stop, times in self.progress.tried for ordinal in range(start, stop)}
        expected = {
            ordinal: times for ordinal, times in self.times.items() if times and ordinal >= self.progress.position
        }
        assert counted == expected
        assert self.progress.tried == sorted(self.progress.tried)


TestProgressAgainstSets = ProgressAgainstSets.TestCase


@given(st.binary(max_size=80))
def test_any_bytes_are_a_position_or_a_value_error(data: bytes) -> None:
    try:
        progress, epoch = decode(data)
    except ValueError:
        return
    assert progress.encode(epoch) == data


def test_every_cut_of_a_position_is_refused() -> None:
    progress = Progress(5)
    progress.settle(9, 12)
    progress.deliver(5, 9)
    data = progress.encode(3)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="position"):
            decode(data[:length])


def test_acknowledged_ranges_have_a_bound() -> None:
    progress = Progress(0)
    for each in range(1, limits.ACKED_RANGES_MAX + 1):
        progress.settle(2 * each, 2 * each + 1)
    with refused("limit-reached"):
        progress.settle(0x10000, 0x10001)
    progress.settle(2, 5)  # joining two needs no room
    progress.settle(0x10000, 0x10001)
    decode(progress.encode(1))


def test_delivery_count_stops_at_its_largest() -> None:
    progress = Progress(0)
    progress.tried = [(0, 5, TIMES_MAX)]
    assert progress.deliver(0, 5) == TIMES_MAX
    assert progress.deliver(0, 3) == TIMES_MAX
    decode(progress.encode(1))
