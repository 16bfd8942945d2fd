"""What reading, finding and opening cost: the groups `dress`, `find` and `open` of `benchmarks.log`.

    dress   every dress into every other; spans of the same dress, whose cost must not know how many messages they hold
    find    by ordinal, place and time in 100 million messages
    open    an engine with 10,000 empty partitions

The 100 million messages are synthetic: the record index is real, 10 messages a record, in memory files; there is no data
behind it, as finding reads none.  The partitions are made by copying one and giving each an identity of its own.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.log_turns import NAMES, NOW_MS, Found, best, dressed, engine_in, house_set
from serai import limits
from serai._core.dress import redress
from serai._core.entries import HOUSE, JAFKA
from serai._core.pages import Page
from serai._core.records import RECORD_BYTES
from serai._core.trail import Trail
from serai.log import folder
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.view import View

MESSAGES, PER_RECORD = 100_000_000, 10
PARTITIONS = 10_000


# ---- dress -------------------------------------------------------------------------------------------------------


def dress(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """All sixteen cells, and spans."""
    count = 200
    sets = {kind: dressed(house_set(count, 100), kind) for kind in NAMES}
    cells = {}
    for source in NAMES:
        for target in NAMES:
            times = max(1, int(300 * scale))
            ns = best(rounds, lambda: count * sum(bool(into(sets[source], source, target)) for _ in range(times)))  # noqa: B023 - used at once
            cells[f"{NAMES[source]} into {NAMES[target]}"] = 1e3 / ns
    least = min(cells, key=cells.__getitem__)
    text = "the slowest is " + least + "; " + ", ".join(f"{name} {rate:.0f}" for name, rate in cells.items())
    yield Found("dress", "any dress into any other, 100 B messages", cells[least], "M/CPU s", at_least=10, note=text)
    yield from spans(directory, rounds, scale)


def into(data: bytes, source: int, target: int) -> bytes:
    return redress(
        data, source, target, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX, bytes_max=1 << 30,
        partition=3, index=1_000_000, term=7, store_time=NOW_MS, app=b"shop",
    )  # fmt: skip


def spans(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """A span of a million bytes in few messages and in many."""
    found = {}
    with engine_in(directory) as engine:
        for body_bytes in (100, 100_000):
            log = engine.open(f"of-{body_bytes}")
            log.append(house_set(900_000 // body_bytes, body_bytes), HOUSE, level=Level.RECEIVE, now_ms=NOW_MS)
            times = int(20_000 * scale)

            def look(log: object = log, times: int = times) -> int:
                get = log.spans  # type: ignore[attr-defined]  # a partition
                for _ in range(times):
                    get(0, bytes_max=1 << 20)
                return times

            found[body_bytes] = best(rounds, look)
    many, few = found[100], found[100_000]
    text = f"{many:.0f} ns for a span of 9,000 messages, {few:.0f} ns for one of 9 in as many bytes"
    yield Found(
        "dress", "same-dress span: cost a message", max(0.0, (many - few) / 9000), "ns", at_most=0.05, note=text
    )


# ---- find --------------------------------------------------------------------------------------------------------


class Index:
    """A record index of many records, and nothing else."""

    def __init__(self, count: int, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.pages: list[Page] = []
        numbers = array("q", bytes(page_bytes))
        per_page = page_bytes // RECORD_BYTES
        for start in range(0, count, per_page):
            for field, step in enumerate((PER_RECORD, 110 * PER_RECORD, 1300, 3)):
                numbers[field::4] = array("q", range(start * step, (start + per_page) * step, step))
            page = Page(-1, page_bytes, True)
            page.write(0, numbers.tobytes())
            self.pages.append(page)

    def records(self, offset: int, _need: int) -> tuple[Page, int] | None:
        number = offset // self.page_bytes
        return (self.pages[number], number * self.page_bytes) if number < len(self.pages) else None

    data = slots = records

    def damage(self, record: int, begin: int, ordinal: int, text: str) -> Exception:
        return AssertionError((record, begin, ordinal, text))


def find(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """Random finds, one after the other."""
    records = int(MESSAGES * scale) // PER_RECORD
    trail = Trail(
        Index(records, 64 << 20), page_bytes=64 << 20, identity=1, sure_from=1 << 62, inflated_max=1, depth_max=1
    )
    dice, looks, end = random.Random(1), 20_000, records * RECORD_BYTES
    ways: dict[str, tuple[Callable[..., int], int]] = {
        "an ordinal": (trail.find, PER_RECORD), "a place": (trail.find_place, 110 * PER_RECORD),
        "a time": (trail.find_time, 3),
    }  # fmt: skip
    for name, (way, step) in ways.items():
        wanted = [dice.randrange(records * step) for _ in range(looks)]

        def look(way: Callable[..., int] = way, wanted: list[int] = wanted) -> int:
            for value in wanted:
                way(value, first=0, end=end)
            return len(wanted)

        took = best(rounds, look)
        text = f"among {records * PER_RECORD:,} messages in {records:,} records; random, so most steps miss the cache"
        yield Found("find", name, took / 1e3, "us", at_most=5, note=text)
    yield from find_for_real(directory, rounds, scale)


def find_for_real(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """The same through a view of a partition with data, where what was found is looked at too."""
    count = int(200_000 * scale)
    with engine_in(directory) as engine:
        log = engine.open("jafka")
        data = dressed(house_set(PER_RECORD, 100), JAFKA)
        for at in range(count):
            log.append(data, JAFKA, level=Level.RECEIVE, now_ms=NOW_MS + 3 * at)
        dice = random.Random(2)
        with View(log.folder.path) as view:
            ends = {"an ordinal": view.end, "a place": view.end_place, "a time": 3 * count}
            ways: dict[str, Callable[[int], object]] = {
                "an ordinal": view.head, "a place": view.ordinal_at_place,
                "a time": lambda ms: view.ordinal_at_time(NOW_MS + ms),
            }  # fmt: skip
            for name, way in ways.items():
                wanted = [dice.randrange(ends[name]) for _ in range(2000)]

                def look(way: Callable[[int], object] = way, wanted: list[int] = wanted) -> int:
                    for value in wanted:
                        way(value)
                    return len(wanted)

                look()  # every record is compared with its checksum once
                took = best(rounds, look) / 1e3
                text = f"another process's view, {view.end:,} messages in {count:,} records; head and bounds looked at"
                yield Found("find", f"{name}, through a view", took, "us", at_most=5, note=text)


# ---- open --------------------------------------------------------------------------------------------------------


def open_many(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """An engine with many empty partitions, in a process of its own so that its memory can be told."""
    count = max(100, int(PARTITIONS * scale))
    place = Path(tempfile.mkdtemp(prefix="open-", dir=directory))
    try:
        make_partitions(place / "data", count)
        code = f"from benchmarks.log_finds import opened; opened({str(place / 'data')!r})"
        found = []
        for _ in range(min(rounds, 3)):
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            found.append([float(word) for word in done.stdout.split()])
        wall, cpu, mib = (min(numbers) for numbers in zip(*found, strict=True))
        yield Found("open", f"{count:,} empty partitions", wall, "s", at_most=3, note=f"{cpu:.2f} s of CPU")
        yield Found("open", "and the memory of that process", mib, "MiB", at_most=150)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def make_partitions(path: Path, count: int) -> None:
    with LocalEngine(path) as engine:
        engine.open("0")
    first = path / "p" / "0"
    words = (first / "format").read_text(encoding="ascii")
    identity = f"{folder.read_format(first).identity:016x}"
    marks = (first / "marks").read_bytes()
    for number in range(1, count):
        one = path / "p" / str(number)
        one.mkdir()
        (one / "format").write_text(
            words.replace(identity, f"{int(identity, 16) ^ number << 1:016x}"), encoding="ascii"
        )
        (one / "marks").write_bytes(marks)


def opened(path: str) -> None:
    """Opens all partitions of a data directory; prints seconds, CPU seconds and the peak of memory in MiB."""
    wall, cpu = time.perf_counter(), time.process_time()
    engine = LocalEngine(path)
    logs = [engine.open(name) for name in engine.partitions()]
    assert all(log.end == 0 for log in logs)
    took = time.perf_counter() - wall, time.process_time() - cpu
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert peak is not None
    print(*took, int(peak[1]) / 1024)
    sys.stdout.flush()
    os._exit(0)  # nothing was written: there is nothing to close
