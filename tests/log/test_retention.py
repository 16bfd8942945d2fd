"""What a partition forgets: whole pages, oldest first, by age, size and disk, never what a consumer needs.

A page is 4096 bytes; a message fills a tenth of one, and message n is stored at n seconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from serai.errors import OutOfRange
from serai.log.engine import Level
from serai.log.partition import open_partition
from serai.log.retention import Retention
from serai.log.view import View
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from serai.log.partition import Partition

PAGE_BYTES = 4096
COUNT = 200


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Partition]:
    with open_partition(tmp_path / "one", page_bytes=PAGE_BYTES) as one:
        fill(one, COUNT)
        yield one


def fill(log: Partition, count: int) -> None:
    for at in range(log.end, log.end + count):
        raw = oracle.encode(Entry(HOUSE, b"%6d" % at * 50))
        log.append(raw, HOUSE, level=Level.RECEIVE, now_ms=1000 * at)


def pages(log: Partition) -> list[int]:
    return sorted(int(path.stem) for path in log.folder.path.glob("*.qd"))


def page_of(log: Partition, ordinal: int) -> int:
    return log.head(ordinal).begin // PAGE_BYTES


def bodies(log: Partition) -> list[bytes]:
    spans = log.spans(log.first, bytes_max=1 << 20)
    return [entry.body for span in spans for entry in oracle.decode(bytes(span.data), HOUSE)]


def test_pages_whose_newest_message_is_too_old_go(log: Partition) -> None:
    first = log.retain(Retention(age_ms=50_000), now_ms=150_000)
    assert first == log.first
    assert log.head(first).time <= 100_000 < log.head(first).time + 11_000, "at most a page of older ones stays"
    assert pages(log)[0] == page_of(log, first)
    assert bodies(log) == [b"%6d" % at * 50 for at in range(first, COUNT)]


def test_nothing_goes_that_is_young_enough(log: Partition) -> None:
    assert log.retain(Retention(age_ms=10**9), now_ms=200_000) == 0


def test_pages_above_the_size_go(log: Partition) -> None:
    log.retain(Retention(bytes_max=5 * PAGE_BYTES), now_ms=0)
    assert len(pages(log)) == 5
    assert bodies(log)[-1] == b"%6d" % (COUNT - 1) * 50


def test_pages_go_while_the_disk_is_too_full(log: Partition) -> None:
    assert log.retain(Retention(disk_used_max=1.0), now_ms=0) == 0
    log.retain(Retention(disk_used_max=0.0), now_ms=0)
    assert len(pages(log)) == 1, "the page of the newest message always stays"


def test_disk_watermark_gives_up_no_more_than_it_needs(log: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(log.folder.path)
    size = real.f_blocks * real.f_frsize
    used = (real.f_blocks - real.f_bavail) * real.f_frsize
    monkeypatch.setattr(os, "statvfs", lambda _path: real)  # the disk as it was then, whatever others write meanwhile
    before = len(pages(log))
    log.retain(Retention(disk_used_max=(used - 2.5 * PAGE_BYTES) / size), now_ms=0)
    assert before - len(pages(log)) == 3


def test_what_is_not_consumed_stays_unless_the_policy_says_so(log: Partition) -> None:
    assert log.retain(Retention(bytes_max=0), now_ms=0, unconsumed_from=57) <= 57
    assert page_of(log, log.first) == page_of(log, 57)
    log.retain(Retention(bytes_max=0, keep_unconsumed=False), now_ms=0, unconsumed_from=57)
    assert log.first > 57


def test_first_ordinal_outlives_the_process(log: Partition, tmp_path: Path) -> None:
    first = log.retain(Retention(bytes_max=3 * PAGE_BYTES), now_ms=0)
    place = log.first_place
    log.close()
    mark = byhand.mark_of(tmp_path / "one")
    assert (mark.first, mark.first_place) == (first, place)
    with open_partition(tmp_path / "one") as again:
        assert (again.first, again.first_place) == (first, place)
        with pytest.raises(OutOfRange) as caught:
            again.spans(first - 1, bytes_max=1)
        assert caught.value.first == first


def test_page_that_nobody_reads_is_used_again(log: Partition) -> None:
    inodes = {os.stat(path).st_ino for path in log.folder.path.glob("*.qd")}
    log.trail.forget()
    log.folder.forget()
    log.retain(Retention(bytes_max=PAGE_BYTES), now_ms=0)
    assert len(list(log.folder.path.glob("*.spare"))) == 2
    fill(log, 60)
    assert {os.stat(path).st_ino for path in log.folder.path.glob("*.qd")} & inodes
    assert bodies(log)[-60:] == [b"%6d" % at * 50 for at in range(COUNT, COUNT + 60)]


def test_page_is_not_used_again_while_a_span_of_it_is_held(log: Partition) -> None:
    with View(log.folder.path) as view:
        (span,) = view.spans(0, bytes_max=PAGE_BYTES - 300)[:1]
        held = memoryview(span.data) if isinstance(span.data, memoryview) else None
        big = oracle.encode(Entry(HOUSE, b"y" * 9000))  # larger than what is gathered: a view of pages or a copy
        log.append(big, HOUSE, level=Level.RECEIVE, now_ms=10**6)
        kept = bytes(span.data)
        log.retain(Retention(bytes_max=PAGE_BYTES), now_ms=0)
        fill(log, 100)
        assert bytes(span.data) == kept
        assert held is None or bytes(held) == kept


def test_view_of_a_page_given_up_keeps_its_bytes(tmp_path: Path) -> None:
    with open_partition(tmp_path / "one", page_bytes=65536) as log:
        large = [oracle.encode(Entry(HOUSE, bytes([at]) * 20_000)) for at in range(40)]
        for at, raw in enumerate(large):
            log.append(raw, HOUSE, level=Level.RECEIVE, now_ms=at)
        with View(tmp_path / "one") as view:
            spans = view.spans(0, bytes_max=60_000)
            assert all(isinstance(span.data, memoryview) for span in spans)
            log.retain(Retention(bytes_max=0), now_ms=0)
            for at, raw in enumerate(large):
                log.append(raw, HOUSE, level=Level.RECEIVE, now_ms=100 + at)
            assert b"".join(bytes(span.data) for span in spans) == b"".join(large[: sum(span.count for span in spans)])
            with pytest.raises(OutOfRange):
                view.spans(0, bytes_max=100)
