"""What the helper thread does for a busy writer: the next page is made before it is wanted, the one before is left."""

import os
import time
from pathlib import Path

import pytest

from serai import limits
from serai._core.entries import HOUSE
from serai._core.pages import Page
from serai._core.records import HEAD_BYTES
from serai.log.engine import Level
from serai.log.partition import open_partition
from serai.log.state import message
from serai.log.store import PageFiles

PAGE_BYTES = 4 * limits.MIB


def test_a_page_that_was_left_still_has_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(bytes(PAGE_BYTES))
    with path.open("r+b") as file:
        page = Page(file.fileno(), PAGE_BYTES, True)
    page.populate(0, PAGE_BYTES)
    page.write(100, b"stays")
    page.leave()
    assert bytes(memoryview(page)[100:105]) == b"stays"
    page.write(200, b"comes")
    assert path.read_bytes()[100:205] == b"stays" + bytes(95) + b"comes"


def test_private_zeros_cannot_be_left() -> None:
    with pytest.raises(ValueError, match="private zeros"):
        Page(-1, PAGE_BYTES, True).leave()


def test_a_prepared_page_is_a_spare_which_the_next_page_takes(tmp_path: Path) -> None:
    files = PageFiles(tmp_path, ".qd", PAGE_BYTES, held=True)
    files.prepare(7, window=limits.MIB)
    files.prepare(8, window=limits.MIB)  # one is enough
    (spare,) = files.spares()
    assert spare.stat().st_size == PAGE_BYTES
    assert spare.stat().st_blocks * 512 >= limits.MIB
    fd, made = files.writing(7, window=limits.MIB, need=16)
    os.close(fd)
    assert made
    assert [path.name for path in tmp_path.iterdir()] == ["7.qd"]
    assert (tmp_path / "7.qd").read_bytes() == bytes(PAGE_BYTES)


def test_nothing_is_prepared_where_old_bytes_would_be_taken_for_new_ones(tmp_path: Path) -> None:
    PageFiles(tmp_path, ".qx", PAGE_BYTES).prepare(7, window=limits.MIB)
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_prepared_is_nobodys_trouble(tmp_path: Path) -> None:
    PageFiles(tmp_path / "gone", ".qd", PAGE_BYTES, held=True).prepare(7, window=limits.MIB)
    assert not list(tmp_path.iterdir())


def test_a_busy_writer_finds_its_next_page_ready_and_reads_all_it_wrote(tmp_path: Path) -> None:
    log = open_partition(tmp_path / "p", epoch=1, page_bytes=PAGE_BYTES)
    body = message(b"k", bytes(60_000))
    for _ in range(int(0.9 * PAGE_BYTES) // len(body)):
        log.append(body, HOUSE, level=Level.RECEIVE, now_ms=1)
    until = time.monotonic() + 10
    while not (spares := log.folder.data_files.spares()) and time.monotonic() < until:
        time.sleep(0.005)
    assert [path.name for path in spares] == ["1.qd.spare"]
    ready = spares[0].stat().st_ino
    for _ in range(PAGE_BYTES // len(body) // 2):
        log.append(body, HOUSE, level=Level.RECEIVE, now_ms=1)
    assert log.folder.data_files.path(1).stat().st_ino == ready
    assert sum(span.count for span in log.spans(0, bytes_max=1 << 30)) == log.end
    log.close()


def test_bulk_comes_in_large_memory_pages_and_in_small_ones_once_somebody_waits_for_the_disk(tmp_path: Path) -> None:
    page_bytes = 8 * limits.MIB
    many, few = message(b"k", bytes(200_000)), message(b"k", bytes(100))
    with open_partition(tmp_path / "log", page_bytes=page_bytes) as log:
        runway, data = log._runways[0], tmp_path / "log" / "1.qd"
        for _ in range(50):  # 10 MB
            log.append(many, HOUSE, level=Level.RECEIVE, now_ms=1)
        assert runway._is_bulk
        blocks = data.stat().st_blocks
        log.commit()
        assert not runway._is_bulk
        for _ in range(50):
            log.append(few, HOUSE, level=Level.COMMIT, now_ms=1)
        ready = runway._ready - log.data_end % page_bytes
        assert 0 <= ready < limits.MIB, "what was ready ahead in large pages is made ready anew, a little at a time"
        assert data.stat().st_blocks >= blocks, "its blocks stay reserved"
        for _ in range(150):  # some windows without anybody who waits
            log.append(many, HOUSE, level=Level.RECEIVE, now_ms=1)
        assert runway._is_bulk
    with open_partition(tmp_path / "log", page_bytes=page_bytes, epoch=2) as again:
        assert again.end == 250
        assert b"".join(bytes(span.data) for span in again.spans(50, bytes_max=1 << 20, messages_max=50)) == few * 50


def test_a_page_that_is_full_to_its_end_keeps_its_bytes_when_somebody_waits_for_the_disk(tmp_path: Path) -> None:
    page_bytes = 8 * limits.MIB
    many = message(b"k", bytes(200_000))
    with open_partition(tmp_path / "log", page_bytes=page_bytes) as log:
        runway = log._runways[0]
        for _ in range(50):
            log.append(many, HOUSE, level=Level.RECEIVE, now_ms=1)
        assert runway._is_bulk
        before = (tmp_path / "log" / "1.qd").read_bytes()
        assert not runway.hurry((runway.number + 1) * page_bytes), (
            "the cursor turns by itself, and nothing is taken back"
        )
        assert (tmp_path / "log" / "1.qd").read_bytes() == before
        assert log.spans(0, bytes_max=1 << 30)


@pytest.mark.parametrize("level", [Level.RECEIVE, Level.COMMIT])
@pytest.mark.parametrize("length", [1 << 16, 1 << 18, 1 << 20, 1 << 24])  # the last is longer than a page
def test_records_that_fill_pages_to_the_byte_stay_when_somebody_waits_for_the_disk(
    length: int, level: Level, tmp_path: Path
) -> None:
    page_bytes = 8 * limits.MIB
    many = message(b"k", bytes(length - HEAD_BYTES - 19))  # a record of exactly that length
    with open_partition(tmp_path / "log", page_bytes=page_bytes) as log:
        count = max(1, 2 * page_bytes // length)
        for _ in range(count):
            log.append(many, HOUSE, level=Level.RECEIVE, now_ms=1)
        assert log.data_end % page_bytes == 0
        log.commit()
        log.append(many, HOUSE, level=level, now_ms=1)
        log.commit()
        assert log.end == count + 1
    with open_partition(tmp_path / "log", page_bytes=page_bytes, epoch=2) as again:
        for ordinal in range(count + 1):
            (span,) = again.spans(ordinal, bytes_max=1 << 25, messages_max=1)
            assert bytes(span.data) == many
