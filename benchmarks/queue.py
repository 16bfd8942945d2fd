"""The queue beside its peers: one run, side by side, ratios and goals, and every round as JSON.

    python -m benchmarks.queue [--quick] [--only append,hop] [--rounds 5] [--dir DIR] [--out FILE]

    groups   append   one message a call, 100 B and 1 KiB: serai and seven peers
             batch    lists of 1000, then reading one at a time, in lists, as Arrow
             native   the compiled loops by themselves: append on resident pages, index scan
             fields   four typed fields, in units of an empty call
             hop      from process to process: spinning, blocking, asleep
             growth   1 GB and 20 GB: opening and random reads

README.md beside this file says how to read what is printed.  The run takes under four minutes, --quick under 20 s.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # or this file would hide the standard library's `queue`

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # or numpy, behind pyarrow, starts threads of its own

import argparse
import tempfile
import time

from benchmarks import queue_growth, queue_hop, queue_own, queue_peers, queue_report
from benchmarks.queue_rounds import Load, Sheet, play, warm_memory

GROUPS = ["append", "batch", "native", "fields", "hop", "growth"]
QUICK_SCALE = 0.05


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description="The queue beside its peers.")
    parser.add_argument("--quick", action="store_true", help="small counts and one round: does it run, not how fast")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="A,B", help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, help="rounds, of which the best counts (5; 1 with --quick)")
    parser.add_argument("--dir", type=Path, help="where the stores lie (a temporary directory; try /dev/shm too)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "queue.json", help="JSON file")
    chosen = parser.parse_args(argv)
    chosen.only = chosen.only.split(",")
    if unknown := set(chosen.only) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    return chosen


def run_group(group: str, directory: Path, rounds: int, scale: float, sheet: Sheet) -> None:
    sizes = [Load(100, scale), Load(1024, scale)]
    if group == "append":
        play([*queue_own.append_own(), *queue_peers.append_peers()], sizes, directory, rounds, sheet)
    elif group == "batch":
        play([*queue_own.batch_own(), *queue_peers.batch_peers()], sizes, directory, rounds, sheet)
    elif group == "native":
        play(queue_own.native_contestants(), sizes, directory, rounds, sheet)
    elif group == "fields":
        play(queue_own.field_contestants(directory), [Load(0, scale)], directory, rounds, sheet)
    elif group == "hop":
        queue_hop.measure_hops(directory, rounds, scale, sheet)
    else:
        queue_growth.measure_growth(directory, rounds, scale, sheet)


def say_machine(facts: dict[str, object]) -> None:
    versions = facts["versions"]
    assert isinstance(versions, dict)
    print(
        f"{facts['cores']} cores of {facts['processor']} ({facts['architecture']}), {facts['memory_gib']} GiB, "
        f"Linux {facts['kernel']}, Python {facts['python']}, {facts['filesystem']}, load {facts['load']}"
    )
    print(", ".join(f"{name} {version}" for name, version in versions.items()))


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups, print measures and goals, write the JSON; always 0, as a missed goal is a finding."""
    chosen = arguments(argv)
    scale, sheet, begun = (QUICK_SCALE if chosen.quick else 1.0), Sheet(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serai-bench-", dir=chosen.dir) as name:
        directory = Path(name)
        facts = queue_report.machine(directory)
        say_machine(facts)
        first, second = warm_memory(scale), warm_memory(scale)
        sheet.note(
            "memory was warmed before every turn; before all of them the first touch of half a GiB ran at "
            f"{first:.1f} GiB/s, the second at {second:.1f}"
        )
        for group in GROUPS:
            if group in chosen.only:
                started = time.monotonic()
                run_group(group, directory, chosen.rounds, scale, sheet)
                print(f"{group}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    facts |= {
        "load_after": os.getloadavg(),
        "rounds": chosen.rounds,
        "quick": chosen.quick,
        "only": chosen.only,
        "directory": str(chosen.dir or tempfile.gettempdir()),
        "seconds": round(time.monotonic() - begun, 1),
    }
    measured = {goal.measure for goal in queue_report.GOALS} & sheet.times.keys()
    verdicts = [queue_report.judge(goal, sheet) for goal in queue_report.GOALS if goal.measure in measured]
    print(queue_report.measures_text(sheet))
    print("\n" + "\n".join(sheet.notes) + "\n")
    print(queue_report.verdicts_text(verdicts))
    queue_report.write_json(chosen.out, sheet, verdicts, facts)
    print(
        f"best of {chosen.rounds} rounds, {facts['seconds']} s; every round is in {chosen.out}"
        + ("; --quick figures are not to be quoted" if chosen.quick else "")
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
