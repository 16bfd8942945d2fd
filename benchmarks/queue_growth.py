"""Growth: a queue twenty times as large opens in the same time, and a random read in it costs the same.

Two queues of 1000-byte messages, 1 GB (one data page) and 20 GB (19 data pages of 1 GiB), are built by hand:

    n.qx    real: one published entry for every message (16 MB and 320 MB of them), as the writer would have left it
    n.qd    sparse files of the right length: every payload is zeros that no disk holds

- What is built must be what serai writes: message and byte counts, the last message, an append behind it and its
  reading back are checked before anything is timed.
- Opening is measured to the first answer: for reading until last(), for writing until the writer stands at the end.
- Random reads visit the same number of places in both, so the processor's caches hold the same share of either.
  Three measures: nothing in the page cache (the kernel reads ahead as much as the disk's settings say, which is most
  of it), pages cached but new to this reader's mapping, and every visit after that.  Only the last has a goal.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import shutil
import time
from array import array
from pathlib import Path
from typing import Any

from benchmarks.queue_rounds import Sheet, Took, timed, warm_memory

__all__ = ["COLD", "FIRST_VISIT", "LARGE", "OPEN_READ", "OPEN_WRITE", "RANDOM", "SMALL", "measure_growth"]

SMALL = "1 GB"
LARGE = "20 GB"
OPEN_READ = "open to read, until last()"
OPEN_WRITE = "open to write, until the writer stands"
RANDOM = "random read, set_offset(x).payload"
FIRST_VISIT = "random read, first visit of a cached page"
COLD = "random read, nothing cached"
PAGE_BYTES = 1 << 30
PUBLISHED = 0x7F << 56
CHUNK = 1_000_000  # entries written at a time
PLACES = 1000
COLD_PLACES = 40  # each may read megabytes ahead
VISITS = 10
OPENINGS = 20


def build(directory: Path, total_bytes: int, body_bytes: int) -> int:
    """A queue of that size; answers its message count."""
    directory.mkdir()
    count = total_bytes // body_bytes
    entries = array("q", bytes(16 * min(CHUNK, count)))
    entries[1::2] = array("q", [PUBLISHED | body_bytes]) * (len(entries) // 2)
    with open(directory / "0.qx", "wb") as index:
        for first in range(0, count, CHUNK):
            some = min(CHUNK, count - first)
            entries[0 : 2 * some : 2] = array("q", range(first * body_bytes, (first + some) * body_bytes, body_bytes))
            index.write(memoryview(entries)[: 2 * some])
        assert index.tell() <= PAGE_BYTES
        index.truncate(PAGE_BYTES)
    for page in range(-(-total_bytes // PAGE_BYTES)):
        with open(directory / f"{page}.qd", "wb") as data:
            data.truncate(PAGE_BYTES)
    return count


def check(directory: Path, count: int, body_bytes: int) -> None:
    """The built queue is a queue to serai, to its end and beyond."""
    import serai

    with serai.Queue(directory) as queue:
        last = queue.last()
        assert last is not None
        assert (last.offset, last.begin, last.size) == (16 * (count - 1), (count - 1) * body_bytes, body_bytes)
        offset = queue.writer().append(b"behind all others")
        assert offset == 16 * count
        message = queue.reader().set_offset(offset)
        assert message is not None
        assert message.payload == b"behind all others"


def open_read(directory: Path) -> int:
    import serai

    start = time.perf_counter_ns()
    with serai.Queue(directory, "r") as queue:
        assert queue.last() is not None
        return time.perf_counter_ns() - start


def open_write(directory: Path) -> int:
    import serai

    start = time.perf_counter_ns()
    with serai.Queue(directory) as queue:
        assert queue.writer().offset > 0
        return time.perf_counter_ns() - start


def forget(directory: Path) -> None:
    """Ask the kernel to drop what it holds of the data files; where it does not, both queues keep theirs."""
    for path in directory.glob("*.qd"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cache(directory: Path, begins: list[int], body_bytes: int) -> None:
    """Bring these messages into the page cache, without the pages around them."""
    for number, some in itertools.groupby(sorted(begins), lambda begin: begin // PAGE_BYTES):
        with open(directory / f"{number}.qd", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for begin in some:
                os.pread(file.fileno(), body_bytes, begin % PAGE_BYTES)


def visit(reader: Any, offsets: list[int]) -> Took:
    def work() -> int:
        for offset in offsets:
            _body = reader.set_offset(offset).payload
        return len(offsets)

    return timed(work)


def measure_random(directory: Path, name: str, count: int, *, body_bytes: int, seed: int, sheet: Sheet) -> None:
    """The same number of places in either queue: some cold, many once, the same many times."""
    import serai

    chance = random.Random(seed)
    places = [chance.randrange(count) for _ in range(PLACES)]
    offsets = [16 * place for place in places]
    forget(directory)
    with serai.Queue(directory, "r") as queue:
        reader = queue.reader()
        sheet.add(COLD, name, visit(reader, [16 * chance.randrange(count) for _ in range(COLD_PLACES)]))
        cache(directory, [place * body_bytes for place in places], body_bytes)
        sheet.add(FIRST_VISIT, name, visit(reader, offsets))
        for _ in range(VISITS):
            chance.shuffle(offsets)
            sheet.add(RANDOM, name, visit(reader, offsets))


def measure_growth(directory: Path, rounds: int, scale: float, sheet: Sheet) -> None:
    """Build both, check both, then take turns."""
    if importlib.util.find_spec("serai") is None:
        sheet.note("growth left out: not installed: serai")
        return
    body_bytes = 1000 if scale >= 1 else 20_000  # a quick run has the same sizes and fewer entries
    queues = [(SMALL, 1_000_000_000), (LARGE, 20_000_000_000)]
    places = {name: directory / f"growth-{total}" for name, total in queues}
    try:
        counts = {name: build(places[name], total, body_bytes) for name, total in queues}
        for name, place in places.items():
            check(place, counts[name], body_bytes)
        warm_memory(scale)
        for at in range(rounds):
            for measure, opening in ((OPEN_READ, open_read), (OPEN_WRITE, open_write)):
                taken: dict[str, list[int]] = {name: [] for name in places}
                for _ in range(OPENINGS):
                    for name, place in places.items():
                        taken[name].append(opening(place))
                for name, times in taken.items():
                    sheet.add(measure, name, Took(sorted(times)[OPENINGS // 2]))
            for name, place in places.items():
                measure_random(place, name, counts[name], body_bytes=body_bytes, seed=at, sheet=sheet)
    finally:
        for place in places.values():
            shutil.rmtree(place, ignore_errors=True)
