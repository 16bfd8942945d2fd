"""Every program in `examples/` runs by itself, soon, and says with its exit code that what it shows came out right."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 5
SCENARIOS = {  # of the documents the format comes from, and what a run says about each
    "publish_subscribe": ["published 1000", "subscriber 1 saw 1000", "subscriber 2 saw 1000"],
    "several_topics": ["one thread for all topics", "one thread for each topic"],
    "many_producers_shared": ["150000 messages in one order"],
    "many_producers_merged": ["9000 messages", "the first id is 3000"],
    "type_byte": ["'orders': 300, 'trades': 100"],
    "event_log": ["life 1: killed", "life 2: killed", "right to the cent"],
    "arrow": ["one batch: 10000 messages"],
}


def run(path: Path, *arguments: object) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), *map(str, arguments)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_every_scenario_has_a_program() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_example_ends_well_and_in_time(name: str) -> None:
    spent = []
    for _ in range(3):  # a busy machine gets more tries, not more time
        started = time.monotonic()
        code, said = run(EXAMPLES / f"{name}.py")
        spent.append(time.monotonic() - started)
        assert code == 0, said
        for words in SCENARIOS[name]:
            assert words in said
        if spent[-1] < SECONDS_MAX:
            return
    raise AssertionError(f"{name} takes {min(spent):.1f} s, more than {SECONDS_MAX}")


def test_example_keeps_its_files_where_it_is_told_to(tmp_path: Path) -> None:
    code, said = run(EXAMPLES / "type_byte.py", tmp_path / "kept")
    assert code == 0, said
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0.qd", "0.qx"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_example_says_how_it_is_run(name: str) -> None:
    assert f"    python examples/{name}.py [DIR]\n" in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
