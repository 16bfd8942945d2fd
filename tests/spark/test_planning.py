"""Shares and slices: sums are exact, nothing is left out, tasks are few and not too large."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serai.spark.planning import TASK_BYTES_MAX, TASK_ROWS, TASK_ROWS_MAX, Cutting, divide, share
from serai.spark.slices import Slice

BACKLOGS = st.lists(st.integers(0, 1_000_000), min_size=1, max_size=40)


@given(limit=st.integers(1, 500_000), backlogs=BACKLOGS, turn=st.integers(0, 1000))
def test_shares_add_up_to_the_limit_or_to_all_there_is(limit: int, backlogs: list[int], turn: int) -> None:
    parts = share(limit, backlogs, turn=turn)
    assert sum(parts) == min(limit, sum(backlogs))
    assert all(0 <= part <= backlog for part, backlog in zip(parts, backlogs, strict=True))


@given(backlogs=BACKLOGS)
def test_every_backlog_gets_something_when_there_is_one_for_each(backlogs: list[int]) -> None:
    parts = share(len(backlogs), backlogs, turn=0)
    assert all(part > 0 for part, backlog in zip(parts, backlogs, strict=True) if backlog)


def test_shares_are_in_proportion() -> None:
    assert share(100, [900, 90, 10], turn=0) == [90, 9, 1]


def test_small_backlogs_do_not_starve_when_the_limit_is_below_their_number() -> None:
    served: set[int] = set()
    for turn in range(6):
        served |= {at for at, part in enumerate(share(2, [5] * 6, turn=turn)) if part}
    assert served == set(range(6))


def pieces(
    first: int, last: int, size: int = 0, *, least: int | None = None, most: int | None = None, cores: int = 2
) -> list[Slice]:
    return divide([Slice("t", 0, "x", first, last)], [size], Cutting(least, most, cores))


@given(
    first=st.integers(0, 1000), rows=st.integers(0, 20_000_000), size=st.integers(0, 1 << 34), cores=st.integers(1, 64)
)
def test_slices_cover_the_range_without_gap_or_overlap(first: int, rows: int, size: int, cores: int) -> None:
    found = pieces(first, first + rows, size, cores=cores)
    edges = [first] + [piece.last for piece in found]
    assert [piece.first for piece in found] == edges[:-1]
    assert edges[-1] == first + rows
    assert all(0 < len(piece) <= TASK_ROWS_MAX for piece in found)


def test_small_range_is_one_task_and_large_ones_use_the_cores() -> None:
    assert len(pieces(0, 1000)) == 1
    assert len(pieces(0, 2 * TASK_ROWS)) == 2
    assert len(pieces(0, 3 * TASK_ROWS)) == 2
    assert len(pieces(0, 1000, 3 * TASK_BYTES_MAX)) == 3


def test_options_split_further() -> None:
    assert len(pieces(0, 1000, least=7)) == 7
    assert [len(piece) for piece in pieces(0, 1000, most=300)] == [250] * 4
    assert len(pieces(0, 3, least=7)) == 3


def test_skewed_ranges_are_split_by_their_length() -> None:
    ranges = [Slice("t", 0, "x", 0, 900), Slice("t", 1, "x", 0, 100)]
    found = divide(ranges, [0, 0], Cutting(10, None, 2))
    assert [piece.partition for piece in found] == [0] * 9 + [1]


def test_empty_ranges_are_no_tasks() -> None:
    assert divide([Slice("t", 0, "x", 5, 5)], [0], Cutting(None, None, 2)) == []
