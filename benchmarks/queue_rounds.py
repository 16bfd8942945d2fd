"""Rounds: everyone takes a turn in every round, so the machine's noise hits all alike.

    round 1:  serai  file  LMDB  RocksDB ...
    round 2:  serai  file  LMDB  RocksDB ...              best of the rounds, for each measure and each contestant
    ...

A contestant is a generator.  It opens its store in an empty directory, yields (measure, work) pairs, and closes the
store when it is resumed for the last time.  Only `work()` is timed; it does the messages and answers how many.

- Three clocks: wall; CPU of the calling thread (the kernel's page faults included); CPU of the whole process (helper
  threads too).
- The garbage collector is empty before a turn and off during it.
- A measure's figure is the least of its rounds, for each clock on its own: noise only adds.
- Memory is warmed before every turn.  A guest whose host takes free memory back pays about ten times more for the
  first touch of a page that was free for some seconds; without warming it is luck who pays.

Printing, goals and JSON are `queue_report`'s.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import mmap
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Contestant", "Load", "Sheet", "Steps", "Times", "Took", "play", "timed", "warm_memory"]

Steps = Iterator[tuple[str, Callable[[], int]]]

WARM_BYTES = 512 << 20  # more than any turn writes


@dataclass(frozen=True)
class Load:
    """What to write: how large the bodies are, and what part of the full counts (1 is the real run)."""

    body_bytes: int
    scale: float = 1.0

    @property
    def body(self) -> bytes:
        return (b"QZJX" + b"abcdefghij" * 200)[: self.body_bytes]

    def count(self, full: int) -> int:
        """The scaled count, a whole number of thousands."""
        return max(1, int(full * self.scale) // 1000) * 1000

    def at(self, measure: str) -> str:
        return f"{measure}, {self.body_bytes} B"


@dataclass(frozen=True)
class Contestant:
    """A name, the modules it needs (a blank between them), and its generator of timed steps."""

    name: str
    needs: str
    steps: Callable[[Path, Load], Steps]

    @property
    def missing(self) -> list[str]:
        return [module for module in self.needs.split() if importlib.util.find_spec(module) is None]


@dataclass(frozen=True)
class Took:
    """What one turn took, by each clock, for one message."""

    wall_ns: float
    thread_ns: float | None = None
    cpu_ns: float | None = None


def timed(work: Callable[[], int]) -> Took:
    """Run the work by all three clocks."""
    wall, thread, cpu = time.perf_counter_ns(), time.thread_time_ns(), time.process_time_ns()
    count = work()
    wall, thread, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - thread, time.process_time_ns() - cpu
    return Took(wall / count, thread / count, cpu / count)


@dataclass
class Times:
    """Nanoseconds per message of every round; the CPU clocks are missing where only moments were measured."""

    wall: list[float] = field(default_factory=list)
    thread: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def best_wall(self) -> float:
        return min(self.wall)

    @property
    def best_thread(self) -> float | None:
        return min(self.thread) if self.thread else None

    @property
    def best_cpu(self) -> float | None:
        return min(self.cpu) if self.cpu else None


@dataclass
class Sheet:
    """All measured times: measure -> contestant -> rounds, in the order they were first seen; and what was said."""

    times: dict[str, dict[str, Times]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, measure: str, name: str, took: Took) -> None:
        rounds = self.times.setdefault(measure, {}).setdefault(name, Times())
        rounds.wall.append(took.wall_ns)
        if took.cpu_ns is not None and took.thread_ns is not None:
            rounds.thread.append(took.thread_ns)
            rounds.cpu.append(took.cpu_ns)

    def find(self, measure: str, name: str) -> Times | None:
        return self.times.get(measure, {}).get(name)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def warm_memory(scale: float = 1.0) -> float:
    """Touch and free memory, so that what follows gets pages the host still backs; answers GiB/s of the touch.

    In huge pages, because the host takes back what is free in whole such blocks: the same amount touched in small pages
    left the next file at 0.4 to 2 GiB/s, in huge ones at 5 to 6.
    """
    size = int(WARM_BYTES * min(1.0, scale * 4))
    start = time.perf_counter()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
    return size / (1 << 30) / (time.perf_counter() - start)


def take_turn(contestant: Contestant, load: Load, directory: Path, sheet: Sheet) -> None:
    """One contestant, once, in an empty directory of its own that is removed afterwards."""
    place = Path(tempfile.mkdtemp(prefix="turn-", dir=directory))
    try:
        for measure, work in contestant.steps(place, load):
            gc.collect()
            gc.disable()
            try:
                sheet.add(measure, contestant.name, timed(work))
            finally:
                gc.enable()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def play(contestants: list[Contestant], loads: list[Load], directory: Path, rounds: int, sheet: Sheet) -> None:
    """Every contestant with every load, `rounds` times, taking turns."""
    for one in contestants:
        if one.missing:
            sheet.note(f"{one.name} left out: not installed: {', '.join(one.missing)}")
    present = [one for one in contestants if not one.missing]
    for _ in range(rounds):
        for load in loads:
            for contestant in present:
                warm_memory(load.scale)
                take_turn(contestant, load, directory, sheet)
