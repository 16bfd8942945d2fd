"""The partition log against its goals: one run, ratios where they can be had, every figure as JSON.

    python -m benchmarks.log [--quick] [--only receive,commit] [--rounds 5] [--dir DIR] [--out FILE]

    receive  appending: 200 messages a record beside copying, one message a record native and from Python
    commit   appending until it is on the disk: one waiter, 128, a thousand partitions
    dress    every dress into every other; spans of the same dress
    find     an ordinal, a place, a time in 100 million messages
    open     10,000 empty partitions

Warm-up: before each group half a GiB of memory is touched and freed (a guest whose host takes free memory back pays
ten times more for the first touch), pages of the native turns are made resident, and each measure takes the best of
its rounds, so the first one only warms caches.  Turns of `commit` are medians: a disk has moods.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.log_finds import dress, find, open_many
from benchmarks.log_turns import Found, commit, receive
from benchmarks.queue_report import machine
from benchmarks.queue_rounds import warm_memory

GROUPS: dict[str, Callable[[Path, int, float], Iterator[Found]]] = {
    "receive": receive, "commit": commit, "dress": dress, "find": find, "open": open_many,
}  # fmt: skip
QUICK_SCALE = 0.05


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.log", description="The partition log against its goals."
    )
    parser.add_argument("--quick", action="store_true", help="small counts and one round: does it run, not how fast")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="A,B", help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, help="rounds, of which the best counts (5; 1 with --quick)")
    parser.add_argument("--dir", type=Path, help="where the logs lie (a temporary directory; try /dev/shm too)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "log.json", help="JSON file")
    chosen = parser.parse_args(argv)
    chosen.only = chosen.only.split(",")
    if unknown := set(chosen.only) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    return chosen


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def line(found: Found) -> str:
    bound = ""
    if found.at_most is not None:
        bound = f"<= {number(found.at_most)}"
    elif found.at_least is not None:
        bound = f">= {number(found.at_least)}"
    verdict = {True: "met", False: "NOT met", None: ""}[found.met]
    return f"{found.group:8} {found.name:62} {number(found.value):>10} {found.unit:8} {bound:>10}  {verdict}"


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups, print each line as it is found, write the JSON; always 0, as a missed goal is a finding."""
    chosen = arguments(argv)
    scale, begun, all_found = (QUICK_SCALE if chosen.quick else 1.0), time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="serai-bench-", dir=chosen.dir) as name:
        directory = Path(name)
        facts = machine(directory)
        print(f"{facts['cores']} cores of {facts['processor']}, Linux {facts['kernel']}, Python {facts['python']}, "
              f"{facts['filesystem']}, load {facts['load']}\n")  # fmt: skip
        for group in chosen.only:
            warm_memory(scale)
            for found in GROUPS[group](directory, chosen.rounds, scale):
                all_found.append(found)
                print(line(found), flush=True)
                if found.note:
                    print(f"{'':9}  {found.note}")
    facts |= {"load_after": os.getloadavg(), "rounds": chosen.rounds, "quick": chosen.quick, "only": chosen.only,
              "directory": str(chosen.dir or tempfile.gettempdir()), "seconds": round(time.monotonic() - begun, 1),
              "warm_up": "half a GiB of memory touched before each group; native pages resident; best of the rounds"}  # fmt: skip
    judged = [found for found in all_found if found.met is not None]
    print(f"\n{sum(bool(found.met) for found in judged)} of {len(judged)} goals met, {facts['seconds']} s"
          + ("; --quick figures are not to be quoted" if chosen.quick else ""))  # fmt: skip
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    report = {**facts, "found": [{**asdict(found), "met": found.met} for found in all_found]}
    chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
