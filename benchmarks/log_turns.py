"""What appending and committing cost: the groups `receive` and `commit` of `benchmarks.log`.

    native     the recorder over pages that are there already, in anonymous memory
    copy       the same bytes put into such pages by one memcpy for each record
    partition  a whole partition of an engine, as the broker calls it

A round of `receive` is one pass over 64 MiB; of `commit` a turn of each kind, again and again, so that the disk's moods
hit all alike.  Where an overhead is asked for, it is measured where a sync costs nothing.
"""

from __future__ import annotations

import mmap
import os
import select
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from serai import limits
from serai._core.dress import redress
from serai._core.entries import HOUSE, JAFKA, REAL, SEED
from serai._core.pages import Page
from serai._core.records import HEAD_BYTES, Recorder
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import Partition

NAMES = {HOUSE: "house", SEED: "seed", REAL: "real", JAFKA: "jafka"}
NOW_MS = 1_700_000_000_000
PAGE_BYTES = 64 << 20
BATCH, BODY_BYTES = 200, 100
WAITERS, PARTITIONS = 128, 1000


@dataclass(frozen=True)
class Found:
    """One line of the report: what was measured, and what it is held against."""

    group: str
    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


def house_set(count: int, body_bytes: int) -> bytes:
    """House messages with neither key nor headers."""
    head = (16 + body_bytes).to_bytes(4, "little") + bytes(4) + NOW_MS.to_bytes(8, "little")
    return b"".join(head + bytes((at + place) & 0xFF for place in range(body_bytes)) for at in range(count))


def dressed(data: bytes, dress: int) -> bytes:
    if dress == HOUSE:
        return data
    return redress(
        data,
        HOUSE,
        dress,
        inflated_max=limits.INFLATED_MAX,
        depth_max=limits.NESTED_MAX,
        bytes_max=1 << 30,
        app=b"shop",
    )


class Resident:
    """Pages that are in memory before anybody writes to them."""

    def __init__(self) -> None:
        self.pages = [Page(-1, PAGE_BYTES, True) for _ in range(3)]
        for page in self.pages:
            page.populate(0, PAGE_BYTES)

    def data(self, _offset: int, _need: int) -> tuple[Page, int]:
        return self.pages[0], PAGE_BYTES

    def slots(self, _offset: int, _need: int) -> tuple[Page, int]:
        return self.pages[1], PAGE_BYTES

    def records(self, _offset: int, _need: int) -> tuple[Page, int]:
        return self.pages[2], PAGE_BYTES


def recorder(supply: Resident) -> Recorder:
    return Recorder(
        supply, live=Page(-1, 4096, True), live_at=0, page_bytes=PAGE_BYTES, data_offset=0, ordinal=0, record_offset=0,
        place=0, time=0, identity=7, epoch=1, jafka_magic=1, inflated_max=limits.INFLATED_MAX,
        inflated_free=limits.INFLATED_FREE, inflated_ratio=limits.INFLATED_RATIO,
        depth_max=limits.NESTED_MAX, part_bytes=limits.PART_BYTES,
    )  # fmt: skip


def best(rounds: int, work: Callable[[], int]) -> float:
    """Nanoseconds of CPU of this thread for one of what `work` counts; the best round."""
    least = float("inf")
    for _ in range(rounds):
        started = time.thread_time_ns()
        count = work()
        least = min(least, (time.thread_time_ns() - started) / count)
    return least


# ---- receive -----------------------------------------------------------------------------------------------------


def receive(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """Appending without a sync."""
    supply, plain, house = Resident(), Page(-1, PAGE_BYTES, True), house_set(BATCH, BODY_BYTES)
    plain.populate(0, PAGE_BYTES)
    for dress, name in NAMES.items():
        data = dressed(house, dress)
        count = int(scale * (PAGE_BYTES - (1 << 20)) // (len(data) + HEAD_BYTES))
        copying = best(rounds, partial(copies, plain, data, count))
        storing = best(rounds, partial(from_the_start, supply, data, dress, count))
        yield Found(
            "receive", f"{BATCH} x {BODY_BYTES} B {name}, checksum, of the speed of copying", 100 * copying / storing, "%",
            at_least=60 if dress == HOUSE else None, note=f"copy {copying:,.0f} ns, append {storing:,.0f} ns a record",
        )  # fmt: skip
    one, count = house_set(1, BODY_BYTES), int(400_000 * scale)
    yield Found(
        "receive", "1 message a record, native", best(rounds, partial(from_the_start, supply, one, HOUSE, count)), "ns",
        at_most=250, note="the loop is Python's: its call is in it",
    )  # fmt: skip
    yield from through_an_engine(directory, rounds, scale)


def copies(page: Page, data: bytes, count: int) -> int:
    at, write, size = 0, page.write, len(data)
    for _ in range(count):
        write(at, data)
        at += size
    return count


def from_the_start(supply: Resident, data: bytes, dress: int, count: int) -> int:
    append = recorder(supply).append
    for _ in range(count):
        append(data, dress, NOW_MS)
    return count


def through_an_engine(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    one, many = house_set(1, BODY_BYTES), house_set(BATCH, BODY_BYTES)
    with engine_in(directory) as engine:
        log = engine.open("one")
        from_python = best(rounds, lambda: received(log, one, int(100_000 * scale)))
        yield Found("receive", "1 message a record, from Python, whole partition", from_python, "ns", at_most=1000)
        batch = best(rounds, lambda: received(log, many, int(1000 * scale)))
        text = f"{batch / BATCH:.1f} ns a message; the pages are fresh ones of a file, their first touch is in it"
        yield Found("receive", f"{BATCH} messages a record, from Python, whole partition", batch, "ns", note=text)


def received(log: Partition, data: bytes, count: int) -> int:
    append = log.append
    for _ in range(count):
        append(data, HOUSE, level=Level.RECEIVE, now_ms=NOW_MS)
    return count


@contextmanager
def engine_in(directory: Path) -> Iterator[LocalEngine]:
    path = Path(tempfile.mkdtemp(prefix="log-", dir=directory))
    try:
        with LocalEngine(path / "data") as engine:
            yield engine
    finally:
        shutil.rmtree(path, ignore_errors=True)


# ---- commit ------------------------------------------------------------------------------------------------------


def commit(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """Appending until it is on the disk."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else directory
    yield from overheads(memory, rounds, scale)
    turns = max(5, int(40 * scale))
    with engine_in(directory) as engine, base_file(directory) as sync_alone:
        bell = Bell(engine)
        log = engine.open("one")
        logs = [engine.open(f"many-{at}") for at in range(WAITERS)]
        one, own, alone, waiting, spread = [], [], [], [], []
        for log_of_many in logs:
            bell.committed([log_of_many], 1)
        for _ in range(rounds):
            for _ in range(turns):
                alone.append(timed(sync_alone))
                own.append(timed(lambda: by_itself(log)))
                one.append(timed(lambda: bell.committed([log], 1)))
                waiting.append(timed(lambda: bell.committed([log], WAITERS)))
            spread += [timed(lambda: bell.committed(logs, 1)) for _ in range(max(2, turns // 8))]
    middle = {name: statistics.median(times) for name, times in
              {"alone": alone, "own": own, "one": one, "waiting": waiting, "spread": spread}.items()}  # fmt: skip
    yield Found("commit", "fdatasync of one page, alone, median", middle["alone"] / 1e3, "us")
    yield Found("commit", "one waiter that flushes itself, median", middle["own"] / 1e3, "us")
    yield Found("commit", "one waiter, by the flush thread, median", middle["one"] / 1e3, "us")
    rate = WAITERS * middle["one"] / middle["waiting"]
    yield Found("commit", f"{WAITERS} positions waiting: times the rate of one", rate, "x", at_least=30,
                note=f"{WAITERS * 1e9 / middle['waiting']:,.0f} messages a second, one thread completes them")  # fmt: skip
    text = f"{middle['spread'] / 1e3:,.0f} us a turn"
    yield Found("commit", f"{WAITERS} partitions waiting: times the rate of one",
                WAITERS * middle["one"] / middle["spread"], "x", note=text)  # fmt: skip
    yield from thousand(directory, rounds, scale)


def overheads(memory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """What a waiter costs beside the sync, in a file system in memory."""
    count = int(2000 * scale)
    with engine_in(memory) as engine:
        bell, log = Bell(engine), engine.open("one")
        by_itself(log)
        own = min(statistics.median(timed(lambda: by_itself(log)) for _ in range(count)) for _ in range(rounds))
        thread = min(
            statistics.median(timed(lambda: bell.committed([log], 1)) for _ in range(count)) for _ in range(rounds)
        )
    where = f"in {memory}, where a sync costs nothing; append included"
    yield Found("commit", "one waiter that flushes itself, beside the sync", own / 1e3, "us", at_most=20, note=where)
    yield Found(
        "commit", "one waiter, by the flush thread, beside the sync", thread / 1e3, "us", at_most=20, note=where
    )


def thousand(directory: Path, rounds: int, scale: float) -> Iterator[Found]:
    """A turn over many partitions beside one over the same bytes in one partition."""
    count = max(100, int(PARTITIONS * scale))
    turns = max(2, int(6 * scale))
    with engine_in(directory) as engine:
        bell = Bell(engine)
        logs = [engine.open(f"many-{at}") for at in range(count)]
        one = engine.open("one")
        bell.committed(logs, 1)
        bell.committed([one], count)
        spread, whole = [], []
        for _ in range(rounds):
            spread += [timed(lambda: bell.committed(logs, 1)) for _ in range(turns)]
            whole += [timed(lambda: bell.committed([one], count)) for _ in range(turns)]
    apart, together = statistics.median(spread), statistics.median(whole)
    text = f"{apart / 1e6:,.1f} ms a turn, {together / 1e6:,.1f} ms for the same bytes in one; appends included"
    yield Found("commit", f"{count:,} dirty partitions in one turn, of the same bytes to one", apart / together, "x",
                at_most=3, note=text)  # fmt: skip


def timed(work: Callable[[], object]) -> int:
    started = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - started


ONE = house_set(1, BODY_BYTES)


def by_itself(log: Partition) -> None:
    log.append(ONE, HOUSE, level=Level.RECEIVE, now_ms=NOW_MS)
    log.commit()


class Bell:
    """Waits as the gate does: on the engine's descriptor."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.poll = select.poll()
        self.poll.register(engine.fileno(), select.POLLIN)

    def committed(self, logs: list[Partition], count: int) -> None:
        """Appends to each log so many records, then waits until all of them are on the disk."""
        last = [log.append(ONE, HOUSE, level=Level.COMMIT, now_ms=NOW_MS) for log in logs for _ in range(count)][
            -len(logs) :
        ]
        while not all(ticket.done for ticket in last):
            self.poll.poll(1000)
            with suppress(BlockingIOError):
                self.engine.moved()


@contextmanager
def base_file(directory: Path) -> Iterator[Callable[[], None]]:
    """A store of one message into a mapped file, and its sync: what nobody can go below."""
    fd, name = tempfile.mkstemp(dir=directory)
    try:
        os.write(fd, bytes(4 << 20))
        os.fsync(fd)
        place = 0
        with mmap.mmap(fd, 4 << 20) as page:

            def sync() -> None:
                nonlocal place
                page[place : place + 188] = bytes(188)
                place += 188
                os.fdatasync(fd)

            yield sync
    finally:
        os.close(fd)
        os.unlink(name)
