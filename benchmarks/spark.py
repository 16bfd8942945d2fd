"""The source and the sink beside Spark's own: one warm session, by turns, CPU seconds and wall, ratios held to goals.

    python -m benchmarks.spark [--quick] [--only scan,sink] [--rounds 5] [--scale 1] [--dir DIR] [--out FILE]

The exit code is 1 when a goal is missed by more than 30 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.spark_cases import Bench

ROOT = Path(__file__).resolve().parents[1]
SLACK = 0.3
QUICK_SCALE = 0.05
GROUPS = ("scan", "large", "sink", "archive", "audit", "floor", "growth")


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description="serai on Spark beside Spark's own."
    )
    parser.add_argument("--quick", action="store_true", help="small counts and one round: does it run, not how fast")
    parser.add_argument("--only", default=",".join(GROUPS), metavar="A,B", help=f"groups, of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, help="rounds, of which the best counts (5; 1 with --quick)")
    parser.add_argument("--warm", type=int, help="rounds before them (3; 1 with --quick)")
    parser.add_argument("--scale", type=float, help=f"part of the full counts (1; {QUICK_SCALE} with --quick)")
    parser.add_argument("--dir", type=Path, help="where logs and Parquet lie (a temporary directory)")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "spark.json", help="JSON file")
    chosen = parser.parse_args(argv)
    chosen.only = chosen.only.split(",")
    if unknown := set(chosen.only) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    chosen.warm = chosen.warm if chosen.warm is not None else (1 if chosen.quick else 3)
    chosen.scale = chosen.scale or (QUICK_SCALE if chosen.quick else 1.0)
    return chosen


def main(argv: list[str] | None = None) -> int:
    """Run the chosen groups, print cases and goals, write the JSON."""
    chosen = arguments(argv)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # for Spark's workers
    from benchmarks import spark_cases
    from benchmarks.spark_rows import RowSource
    from serai.spark.session import session

    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="serai-bench-", dir=chosen.dir) as name:
        home = Path(name)
        confs = {"spark.driver.memory": "2g", "spark.sql.adaptive.enabled": "false"}
        spark = session(name="serai bench", master="local[2]", work_dir=home / "spark", confs=confs)
        try:
            spark.sparkContext.setLogLevel("OFF")  # a query that is stopped in the middle of a batch says so at length
            spark.dataSource.register(RowSource)
            java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # a session of ours has a gateway
            bench = spark_cases.Bench(spark, java, home, chosen.rounds, chosen.warm, chosen.scale, [], [])
            found: dict[str, dict[str, object]] = {}
            for group in GROUPS:
                if group in chosen.only:
                    found[group] = measured(bench, group)
        finally:
            spark.stop()
    report(bench)
    write_json(chosen.out, found)
    print(f"best of {chosen.rounds} rounds, {time.monotonic() - begun:.0f} s; every round is in {chosen.out}")
    if chosen.quick:
        print("--quick figures are not to be quoted, and no goal is asked for")
        return 0
    return 0 if all(goal.within(SLACK) for goal in bench.goals) else 1


def report(bench: Bench) -> None:
    """The tables."""
    print(f"{'case':52}{'java s':>9}{'python s':>10}{'CPU s':>8}{'wall s':>8}{'M rows/CPU s':>14}")
    for case in bench.cases:
        best = min(case.rounds, key=lambda took: took.cpu)
        rate = case.rows / case.cpu / 1e6 if case.cpu else 0
        print(f"{case.name:52}{best.java:9.2f}{best.python:10.2f}{case.cpu:8.2f}{case.wall:8.2f}{rate:14.2f}")
    print(f"\n{'goal':88}{'reached':>9}{'goal':>9}")
    for goal in bench.goals:
        word = "met" if goal.met else "within the slack" if goal.within(SLACK) else "NOT met"
        print(f"{goal.name:88}{goal.value:9.2f}{'>=' if goal.at_least else '<=':>4}{goal.bound:5.2f}  {word}")


def measured(bench: Bench, group: str) -> dict[str, object]:
    """Runs a group; what it found, for the JSON."""
    from benchmarks.spark_cases import GROUPS as RUN

    cases, goals, started = len(bench.cases), len(bench.goals), time.monotonic()
    RUN[group](bench)
    seconds = round(time.monotonic() - started)
    print(f"{group}: {seconds} s", file=sys.stderr)
    return {
        "rounds": bench.rounds, "scale": bench.scale, "seconds": seconds, "cores": os.cpu_count(), "load": os.getloadavg(),
        "goals": [{**asdict(goal), "met": goal.met} for goal in bench.goals[goals:]],
        "cases": [
            {"name": case.name, "rows": case.rows, "rounds": [asdict(took) for took in case.rounds]}
            for case in bench.cases[cases:]
        ],
    }  # fmt: skip


def write_json(path: Path, found: dict[str, dict[str, object]]) -> None:
    """Groups that were not run stay as they were: `--only` brings one of them up to date."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = before | found
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
