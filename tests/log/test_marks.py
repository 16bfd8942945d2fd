"""Two marks take turns; the valid one with the higher counter counts, and one damaged mark costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serai.errors import Corrupt, Locked
from serai.log import marks
from serai.log.engine import Level
from serai.log.format import MARK, MARK_AT, MARKS_BYTES, MARKS_FILE
from serai.log.marks import Mark
from serai.log.partition import open_partition
from tests.helpers import patch
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from pathlib import Path


def raw_of(*found: Mark | None) -> bytes:
    raw = bytearray(MARKS_BYTES)
    for at, mark in zip(MARK_AT, found, strict=True):
        if mark is not None:
            raw[at : at + MARK.size] = marks.pack(mark)
    return bytes(raw)


def test_mark_comes_back_as_it_was_packed() -> None:
    mark = Mark(*range(1, 12))
    assert marks.unpack(marks.pack(mark)) == mark


def test_higher_counter_counts(tmp_path: Path) -> None:
    older, newer = Mark(counter=7, end=5), Mark(counter=8, end=9)
    assert marks.newest(raw_of(older, newer), tmp_path) == newer
    assert marks.newest(raw_of(newer, older), tmp_path) == newer


def test_every_flipped_bit_of_a_mark_makes_the_other_one_count(tmp_path: Path) -> None:
    older, newer = Mark(counter=7, end=5, clean=1), Mark(counter=8, end=9, clean=1)
    sound = raw_of(older, newer)
    for bit in range(8 * MARK.size):
        raw = bytearray(sound)
        raw[MARK_AT[1] + bit // 8] ^= 1 << bit % 8
        assert marks.newest(bytes(raw), tmp_path) == older._replace(clean=0), "what lies above it has to be looked at"
        assert marks.damaged(bytes(raw)) == MARK_AT[1]


def test_marks_that_are_both_damaged_are_an_error_with_a_way_out(tmp_path: Path) -> None:
    for raw in (bytes(MARKS_BYTES), b"", raw_of(Mark(counter=1), None)[:100]):
        with pytest.raises(Corrupt, match="--repair"):
            marks.newest(raw, tmp_path / MARKS_FILE)


def test_marks_take_turns(tmp_path: Path) -> None:
    log = open_partition(tmp_path / "one", page_bytes=4096)
    counters = []
    for _ in range(4):
        log.append(oracle.encode(Entry(HOUSE, b"x")), HOUSE, level=Level.RECEIVE, now_ms=1)
        log.settle()
        raw = (tmp_path / "one" / MARKS_FILE).read_bytes()
        found = [marks.unpack(raw[at : at + MARK.size]) for at in MARK_AT]
        counters.append([mark.counter for mark in found if mark is not None])
    log.abandon()
    assert all(abs(a - b) == 1 for a, b in counters)
    assert [max(pair) for pair in counters] == list(range(max(counters[0]), max(counters[0]) + 4))


@pytest.mark.parametrize("at", MARK_AT)
def test_log_with_one_damaged_mark_opens_whole(tmp_path: Path, at: int) -> None:
    with open_partition(tmp_path / "one", page_bytes=4096) as log:
        for _ in range(30):
            log.append(oracle.encode(Entry(HOUSE, b"x" * 50)), HOUSE, level=Level.RECEIVE, now_ms=1)
            log.settle()
    patch(tmp_path / "one" / MARKS_FILE, at + 30, b"\xff\xff")
    with open_partition(tmp_path / "one") as log:
        assert log.end == 30
        assert sum(span.count for span in log.spans(0, bytes_max=1 << 20)) == 30


def test_second_writer_is_refused_and_the_lock_ends_with_the_first(tmp_path: Path) -> None:
    log = open_partition(tmp_path / "one", page_bytes=4096)
    with pytest.raises(Locked, match="open for writing already"):
        open_partition(tmp_path / "one")
    log.close()
    open_partition(tmp_path / "one").close()
