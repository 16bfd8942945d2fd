"""The report: what was measured, the goals it is held against, and the machine it is true for.

- Goals are ratios inside one run, in five kinds:

    times   at least so many times as fast as a peer, wall clock (the CPU ratio stands beside it)
    rate    at least so many messages for each second of CPU the calling thread took
    units   at most so many empty calls a message, wall clock
    below   at most so many nanoseconds
    flat    the larger queue at most so many times the smaller one's time

- A goal whose contestant or peer did not run is "not run", never "met".
- The JSON file holds every round of everything, not only the best.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks import queue_growth as growth
from benchmarks import queue_hop as hop
from benchmarks import queue_own as own
from benchmarks.queue_peers import APPEND, BATCH, LISTS, ONE_BY_ONE
from benchmarks.queue_rounds import Sheet

__all__ = ["GOALS", "Goal", "Verdict", "judge", "machine", "measures_text", "verdicts_text", "write_json"]

Kind = Literal["times", "rate", "units", "below", "flat"]
PACKAGES = ["serai", "lmdb", "rocksdict", "queuelib", "faster-fifo", "pyzmq", "pyarrow", "Cython"]


@dataclass(frozen=True)
class Goal:
    """One line of the last table: (measure, contestant) held against (other measure, other contestant)."""

    kind: Kind
    measure: str
    contestant: str
    bound: float
    against: str = ""
    against_measure: str = ""


@dataclass(frozen=True)
class Verdict:
    """A goal and what was found, in the goal's own measure: judged by `value`; None where it was not run."""

    goal: Goal
    own_ns: float | None = None
    other_ns: float | None = None
    value: float | None = None
    cpu_value: float | None = None

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        at_least = self.goal.kind in ("times", "rate")
        return self.value >= self.goal.bound if at_least else self.value <= self.goal.bound


def goals() -> list[Goal]:
    """What the queue has to reach: floors, not ceilings."""
    one, many, read = f"{APPEND}, 100 B", f"{BATCH}, 100 B", f"{ONE_BY_ONE}, 100 B"
    lists, large = f"{LISTS}, 100 B", f"{BATCH}, 1024 B"
    peers = [
        (one, "LMDB", 5),
        (one, "RocksDB", 8),
        (one, "queuelib", 6),
        (one, "plain buffered file", 0.8),
        (many, "LMDB", 5),
        (many, "RocksDB", 5),
        (many, "plain buffered file", 0.7),
        (large, "LMDB", 4),
        (large, "RocksDB", 4),
        (read, "LMDB", 3),
    ]
    units = [(own.CHAIN, 8), (own.CHAIN_DECIMAL, 10), (own.TEMPLATE, 5), (own.ROWS, 2.5), (own.COLUMNS, 1)]
    spinning = [name for name, kind, *_ in hop.RUNS if kind in ("next", "wait", "spin")]
    flat = [growth.OPEN_READ, growth.OPEN_WRITE, growth.RANDOM]  # "the same", in a noisy world
    return [
        *(Goal("times", measure, own.SERAI, bound, peer) for measure, peer, bound in peers),
        Goal("times", read, own.OTHERWISE, 3, "LMDB"),
        Goal("times", lists, own.SERAI, 5, "LMDB", read),
        Goal("times", lists, own.OTHERWISE, 5, "LMDB", read),
        Goal("rate", f"{own.NATIVE}, 100 B", own.SERAI, 100e6),
        Goal("rate", f"{own.SCAN}, 100 B", own.SERAI, 100e6),
        *(Goal("units", measure, own.SERAI, bound, own.EMPTY, own.UNIT) for measure, bound in units),
        *(Goal("below", f"{hop.HOP}, {hop.SPINNING}, p50", name, 1000) for name in spinning),
        Goal("below", f"{hop.HOP}, {hop.SLEEPING}, p50", "serai, tail(idle='backoff')", 1e6),  # its longest nap
        *(Goal("flat", measure, growth.LARGE, 1.3, growth.SMALL) for measure in flat),
    ]


GOALS = goals()


def judge(goal: Goal, sheet: Sheet) -> Verdict:
    """Hold the best rounds against one goal."""
    mine = sheet.find(goal.measure, goal.contestant)
    if mine is None:
        return Verdict(goal)
    if goal.kind == "below":
        return Verdict(goal, own_ns=mine.best_wall, value=mine.best_wall)
    if goal.kind == "rate":
        assert mine.best_thread is not None
        return Verdict(goal, own_ns=mine.best_wall, value=1e9 / mine.best_thread, cpu_value=1e9 / mine.best_thread)
    other = sheet.find(goal.against_measure or goal.measure, goal.against)
    if other is None and goal.against == own.EMPTY:
        other = sheet.find(own.UNIT, own.BUILTIN)
    if other is None:
        return Verdict(goal, own_ns=mine.best_wall)
    upper, lower = (other, mine) if goal.kind == "times" else (mine, other)
    cpu_value = None
    if upper.best_thread is not None and lower.best_thread:
        cpu_value = upper.best_thread / lower.best_thread
    return Verdict(goal, mine.best_wall, other.best_wall, upper.best_wall / lower.best_wall, cpu_value)


# ---------------------------------------------------------------------------------------------- text


def rate(per_second: float) -> str:
    return f"{per_second / 1e6:.2f}M/s" if per_second >= 1e6 else f"{per_second / 1e3:.0f}k/s"


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def measures_text(sheet: Sheet) -> str:
    """Every measure with all who took part: the best round of each."""
    lines = []
    for measure, contestants in sheet.times.items():
        lines.append(f"\n{measure}")
        lines.append(f"    {'':34}{'wall ns':>12}{'thread ns':>12}{'CPU ns':>12}{'rate':>12}{'of the first':>14}")
        first = next(iter(contestants.values())).best_wall
        for name, times in contestants.items():
            clocks = "".join(f"{number(best):>12}" for best in (times.best_wall, times.best_thread, times.best_cpu))
            per_second = rate(1e9 / times.best_wall) if times.cpu else ""
            lines.append(f"    {name:34}{clocks}{per_second:>12}{times.best_wall / first:>12.2f} x")
    return "\n".join(lines)


def shown(value: float | None, kind: Kind) -> str:
    if value is None:
        return ""
    forms: dict[Kind, str] = {
        "times": f"{value:.2f} x",
        "rate": rate(value),
        "units": f"{value:.2f} units",
        "below": f"{value:,.0f} ns",
        "flat": f"{value:.2f} x",
    }
    return forms[kind]


def verdicts_text(verdicts: list[Verdict]) -> str:
    """The table of goals."""
    head = f"{'goal':78}{'wall':>13}{'thread CPU':>13}{'goal':>16}"
    lines = [head, "-" * (len(head) + 9)]
    for verdict in verdicts:
        goal = verdict.goal
        against = {"times": f" / {goal.against}", "units": "", "flat": f" / {goal.against}"}.get(goal.kind, "")
        who = "" if goal.contestant == own.SERAI else f": {goal.contestant}"
        sign = ">=" if goal.kind in ("times", "rate") else "<="
        word = {True: "met", False: "NOT met", None: "not run"}[verdict.met]
        wall = verdict.value if goal.kind != "rate" or verdict.own_ns is None else 1e9 / verdict.own_ns
        found = f"{shown(wall, goal.kind):>13}{shown(verdict.cpu_value, goal.kind):>13}"
        bound = f"{sign} {shown(goal.bound, goal.kind)}"
        lines.append(f"{goal.measure + who + against:78}{found}{bound:>16}  {word}")
    ran = [verdict for verdict in verdicts if verdict.met is not None]
    lines.append(
        f"\n{sum(1 for verdict in ran if verdict.met)} of {len(ran)} goals met"
        + (f", {len(verdicts) - len(ran)} not run" if len(ran) < len(verdicts) else "")
    )
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------- the machine


def machine(directory: Path) -> dict[str, object]:
    """What a reader must know to believe or repeat the figures."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "filesystem": filesystem(directory),
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": versions,
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def filesystem(directory: Path) -> str:
    """The kind of the file system that holds the directory: that of the longest mount point above it."""
    kind, longest = "unknown", -1
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, point, found, *_ = line.split()
        if directory.resolve().is_relative_to(point) and len(point) > longest:
            kind, longest = found, len(point)
    return kind


def write_json(path: Path, sheet: Sheet, verdicts: list[Verdict], facts: dict[str, object]) -> None:
    """Everything, all rounds, so that a later reader can judge for himself."""
    measures = {
        measure: {
            name: {
                "wall_ns": times.best_wall,
                "thread_ns": times.best_thread,
                "cpu_ns": times.best_cpu,
                "rounds": asdict(times),
            }
            for name, times in contestants.items()
        }
        for measure, contestants in sheet.times.items()
    }
    found = [{**asdict(verdict), "met": verdict.met} for verdict in verdicts]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**facts, "notes": sheet.notes, "goals": found, "measures": measures}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
