"""Over Spark Connect, by a program that has no JVM: the source and the sink are found by their name, and give the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.faults.kit import ROOT
from tests.spark.kit import load, numbered
from tests.spark.test_faults import START_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_batches_streams_and_the_sink_work_over_connect(
    spark: SparkSession, fill: Callable[..., Path], tmp_path: Path
) -> None:
    queue, port = fill(numbered(0, 100)), spark.conf.get("spark.connect.grpc.binding.port")
    places = [str(queue), str(tmp_path / "data"), str(tmp_path / "check")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connecting", f"sc://127.0.0.1:{port}", *places],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "pyspark.sql.connect.session"
    assert found["columns"] == load(spark, queue).columns
    assert found["rows"] == [[at, body.decode()] for at, body in enumerate(numbered(0, 100))]
    assert found["sum"] == sum(range(100))
    assert found["copy"] == [body.decode() for body in numbered(0, 120)]
