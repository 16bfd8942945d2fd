"""`make fuzz`: every target in `tests/fuzz` for some seconds, one after the other.

A target is a file `fuzz_*.py` that takes libFuzzer's arguments.  What it learns stays in
`build/corpus/<target>`, so that the next run starts where this one stopped.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(target: Path, seconds: int) -> bool:
    """Run one target; True if it found nothing."""
    corpus = ROOT / "build/corpus" / target.stem
    corpus.mkdir(parents=True, exist_ok=True)
    print(f"serai: {target.stem} for {seconds} s", file=sys.stderr, flush=True)
    module = ".".join(target.relative_to(ROOT).with_suffix("").parts)
    command = [sys.executable, "-m", module, f"-max_total_time={seconds}", "-print_final_stats=1", str(corpus)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run all targets, say which found something."""
    parser = argparse.ArgumentParser(description="run every fuzz target for some seconds")
    parser.add_argument("--seconds", type=int, default=60)
    seconds = parser.parse_args().seconds
    if importlib.util.find_spec("atheris") is None:
        print("serai: atheris is missing: it has no wheel for this Python; use Python 3.11", file=sys.stderr)
        return 1
    targets = sorted((ROOT / "tests/fuzz").glob("fuzz_*.py"))
    found = [target.stem for target in targets if not run(target, seconds)]
    print(f"{len(targets) - len(found)} passed, {len(found)} failed" + (f": {', '.join(found)}" if found else ""))
    return 1 if found or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
