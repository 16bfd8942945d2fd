"""Every program in `examples/spark/` says with its end that what it shows came out right, and the guide shows it whole."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.examples.test_documents import blocks
from tests.spark.kit import numbered
from tests.spark.test_pipe_archive import archive

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"
GUIDE = EXAMPLES.parents[1] / "docs" / "guide" / "spark.md"
PROGRAMS = {
    "stream_join": "73 of 300 orders were paid within the hour",
    "alerts": "62 alerts about 5 sensors",
    "backfill": "20000 messages of history and 500 new ones, each once",
}


def test_every_program_is_known() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_ends_well(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    path = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path)])
    runpy.run_path(str(path), run_name="__main__")
    assert PROGRAMS[name] in capsys.readouterr().out
    assert f"    python examples/spark/{name}.py [DIR]\n" in path.read_text(encoding="utf-8")


def test_guide_shows_what_runs(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(numbered(0, 1000))
    archive(tmp_path / "orders", tmp_path / "lake")
    found = blocks(GUIDE, "python spark")
    assert len(found) == 3
    for code in found:  # Spark's planner is where the session was started, so paths are whole
        whole = re.sub(r'"(orders|data|lake)"', lambda name: repr(str(tmp_path / name[1])), code)
        exec(compile(whole, GUIDE.name, "exec"), {"spark": spark})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_declarative_pipelines_go_on_in_a_second_run(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "declarative" / "run.py"), str(tmp_path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2000 orders of 3 customers, 200 large ones", "3000 orders of 3 customers, 300 large ones",
    ]  # fmt: skip
