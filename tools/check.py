"""`make check`: everything that can be said about the tree without running the suite.

Each check is one command.  They run side by side, longest first, and each answers with one line, its name
and its seconds; a failed one is followed by all it printed.  `python -m tools.check ruff types` runs only
the named ones (the pre-commit hooks do that), `--fix` lets ruff repair and format instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PYTHON = sys.executable


def core_modules() -> list[str]:
    """The compiled modules, as stubtest wants them."""
    return sorted(f"serai._core.{path.stem}" for path in (ROOT / "src/serai/_core").glob("*.pyx"))


# stubtest opens mypy's default cache and cannot be told another; two that make it at once find it locked.
CHECKS = {
    "types": [PYTHON, "-m", "mypy", "--cache-dir", ".mypy_cache/types"],
    "stubs": [PYTHON, "-m", "mypy.stubtest", "--concise", "--allowlist", "tools/stubtest.allow", *core_modules()],
    "laws": [PYTHON, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "tests/laws"],
    "imports": [str(BIN / "lint-imports"), "--no-cache"],
    "docs": [PYTHON, "-m", "tools.docs", "--check"],
    "formats": [PYTHON, "docs/generate.py", "--check"],
    "ruff": [PYTHON, "-m", "ruff", "check", "--output-format=concise", "."],
    "format": [PYTHON, "-m", "ruff", "format", "--check", "--output-format=concise", "."],
}
REPAIRS = {
    "ruff": [PYTHON, "-m", "ruff", "check", "--fix", "."],
    "format": [PYTHON, "-m", "ruff", "format", "."],
}


@dataclass(frozen=True)
class Answer:
    """How one check ended."""

    name: str
    seconds: float
    ok: bool
    words: str


def ask(name: str, command: list[str]) -> Answer:
    """Run one check and keep all it says."""
    started = time.monotonic()
    # Colour and progress are for a terminal, and the checks talk into a pipe.
    env = {**os.environ, "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=env, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    return Answer(name, time.monotonic() - started, done.returncode == 0, done.stdout.decode(errors="replace"))


def show(answer: Answer) -> None:
    """One line, and everything a failed check printed."""
    print(f"{answer.name:<10} {'ok' if answer.ok else 'FAILED':<7} {answer.seconds:6.1f} s", flush=True)
    if not answer.ok:
        print(answer.words.rstrip(), flush=True)
        print(f"(again: {Path(PYTHON).relative_to(ROOT)} -m tools.check {answer.name})\n", flush=True)


def check(names: list[str]) -> int:
    """Run the named checks side by side; the number that failed."""
    started = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        for future in as_completed(pool.submit(ask, name, CHECKS[name]) for name in names):
            answer = future.result()
            show(answer)
            failed += not answer.ok
    print(f"{len(names) - failed} of {len(names)} checks hold, {time.monotonic() - started:.1f} s")
    return failed


def repair() -> int:
    """Let ruff fix what it can and format; what it cannot fix is printed."""
    answers = [ask(name, command) for name, command in REPAIRS.items()]
    for answer in answers:
        print(answer.words.rstrip())
    return sum(not answer.ok for answer in answers)


def main() -> int:
    """Choose what to run by the command line."""
    wanted = sys.argv[1:]
    if wanted == ["--fix"]:
        return 1 if repair() else 0
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        print(f"no check is called {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    return 1 if check(wanted or list(CHECKS)) else 0


if __name__ == "__main__":
    sys.exit(main())
