"""What a query costs: CPU seconds of the JVM and of every Python at work, and the wall.

    this process -> java -> pyspark.daemon -> workers           all are counted

Each process is read from `/proc`.  Clock ticks are 10 ms, so a query should take a tenth of a second at least.

Cases take turns in every round, so the machine's noise hits all alike, and the least of the rounds counts: noise only
adds.  The first rounds are not counted: a JVM is four to ten times slower before it has compiled what it runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
TRIES = 5  # of a run in which a worker ends


@dataclass(frozen=True)
class Took:
    """What one run took, in seconds."""

    wall: float
    java: float
    python: float

    @property
    def cpu(self) -> float:
        return self.java + self.python


@dataclass
class Case:
    """Something to run, and what its rounds took."""

    name: str
    rows: int
    run: Callable[[], object]
    check: Callable[[object], bool] = bool
    rounds: list[Took] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        return min(took.cpu for took in self.rounds)

    @property
    def wall(self) -> float:
        return min(took.wall for took in self.rounds)


def family() -> dict[int, float]:
    """CPU seconds so far of this process and of each one below it."""
    parents, seconds = processes()
    below = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= grown
    return {pid: seconds[pid] for pid in below}


def processes() -> tuple[dict[int, int], dict[int, float]]:
    """Parent and CPU seconds of every process, those of ended children it waited for included."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(path.parent.name)
        parents[pid] = int(words[1])
        seconds[pid] = sum(map(int, words[11:15])) / TICKS
    return parents, seconds


def take(case: Case, java: int) -> Took:
    """One run of a case; again if a worker ended meanwhile, as Spark's daemon ignores its children and their time is lost."""
    for _ in range(TRIES):
        before, start = family(), time.perf_counter()
        found = case.run()
        wall, after = time.perf_counter() - start, family()
        if not case.check(found):
            raise AssertionError(f"{case.name}: the answer is wrong: {found!r}")
        if before.keys() <= after.keys():
            spent = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
            return Took(wall, spent.pop(java), sum(spent.values()))
    raise AssertionError(f"{case.name}: in each of {TRIES} runs a Python worker died")


def play(cases: list[Case], *, java: int, warm: int, rounds: int, tidy: Callable[[], object]) -> None:
    """Every case in every round; `tidy` runs between them and is not timed."""
    for turn in range(warm + rounds):
        for case in cases:
            tidy()
            took = take(case, java)
            if turn >= warm:
                case.rounds.append(took)
