"""The broker beside its peers: one run, side by side, ratios and goals, and every round as JSON.

    python -m benchmarks.broker [--quick] [--only produce,commit] [--rounds 5] [--dir DIR] [--out FILE]

    groups   produce   through the port by a loader in C, 100 B and 1 KiB, answered when received
             commit    answered when the disk has it: window 1000, 32 connections, one at a time
             fetch     answers of one MiB
             python    clients in Python: lists of 1000 in, lists out with acknowledgement
             latency   from the moment a message is due until a consumer holds it; what a page roll costs
             idle      start, memory, ten thousand topics, a thousand guests

README.md beside this file says how to read what is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import broker_idle, broker_latency, broker_python, broker_report, broker_rounds
from benchmarks.broker_load import Loader, Sheet
from benchmarks.broker_rounds import Bench
from benchmarks.queue_report import machine
from benchmarks.queue_rounds import warm_memory

GROUPS: dict[str, Callable[[Bench], None]] = {
    "produce": broker_rounds.produce,
    "commit": broker_rounds.commit,
    "fetch": broker_rounds.fetch,
    "python": broker_python.clients,
    "latency": broker_latency.latency,
    "idle": broker_idle.idle,
}
QUICK_SCALE = 0.02


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description="The broker beside its peers.")
    parser.add_argument("--quick", action="store_true", help="small counts and one round: does it run, not how fast")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="A,B", help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, help="rounds, of which the best counts (5; 1 with --quick)")
    parser.add_argument("--scale", type=float, help="part of the full counts (1; 0.02 with --quick)")
    parser.add_argument("--dir", type=Path, help="where the servers' data lies (a temporary directory on the disk)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "broker.json", help="JSON file")
    chosen = parser.parse_args(argv)
    chosen.only = chosen.only.split(",")
    if unknown := set(chosen.only) - GROUPS.keys():
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    chosen.scale = chosen.scale or (QUICK_SCALE if chosen.quick else 1.0)
    return chosen


def run(chosen: argparse.Namespace, directory: Path) -> Sheet:
    """Every chosen group."""
    sheet = Sheet()
    bench = Bench(directory, Loader(directory), sheet, chosen.rounds, chosen.scale)
    first, second = warm_memory(chosen.scale), warm_memory(chosen.scale)
    sheet.note(
        f"the first touch of half a GiB ran at {first:.1f} GiB/s, the second at {second:.1f}; it is done before every turn"
    )
    for name, group in GROUPS.items():
        if name in chosen.only:
            started = time.monotonic()
            group(bench)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    return sheet


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups, print measures and goals, write the JSON; always 0, as a missed goal is a finding."""
    chosen, begun = arguments(argv), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serai-bench-", dir=chosen.dir) as name:
        facts = machine(Path(name)) | {"versions": broker_report.versions()}
        print(
            f"{facts['cores']} cores of {facts['processor']} ({facts['architecture']}), {facts['memory_gib']} GiB, "
            f"Linux {facts['kernel']}, Python {facts['python']}, {facts['filesystem']}, load {facts['load']}\n"
            f"{facts['versions']}"
        )
        sheet = run(chosen, Path(name))
    facts |= {
        "load_after": os.getloadavg(), "rounds": chosen.rounds, "scale": chosen.scale, "only": chosen.only,
        "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip
    verdicts = [broker_report.judge(goal, sheet) for goal in broker_report.GOALS if goal.measure in sheet.figures]
    print("\n" + broker_report.measures_text(sheet))
    print("\n" + "\n".join(sheet.notes) + "\n")
    print(broker_report.goals_text(verdicts))
    broker_report.write_json(chosen.out, sheet, verdicts, facts)
    print(
        f"\nbest of {chosen.rounds} rounds, {facts['seconds']} s; every round is in {chosen.out}"
        + ("; --quick figures are not to be quoted" if chosen.scale < 1 else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
