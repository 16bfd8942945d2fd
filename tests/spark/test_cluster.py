"""Pipelines on a cluster: a master and two workers over a shared folder, one of which dies in the middle of a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from serai.log.local import LocalEngine
from serai.spark.pipes.lake import Lake
from tests.spark.cluster import Cluster, cluster
from tests.spark.joining import on_the_disk
from tests.spark.kit import SECONDS
from tests.spark.test_faults import START_S
from tests.spark.test_partitions import put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERAI = "import sys; from serai.cli import main; sys.exit(main())"
LOGS = ("orders", "trades")
ROWS = 20_000  # of each log, in four batches: a task writes a file of 5 MB


def bodies(seed: int) -> list[bytes]:
    dice = Random(seed)
    return [dice.randbytes(1000) for _ in range(ROWS)]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def pipe(machines: Cluster, *words: str) -> subprocess.Popen[str]:
    confs = ("spark.driver.memory=700m", "spark.executor.memory=500m", "spark.executor.cores=1")
    given = [word for conf in confs for word in ("--conf", conf)]
    return subprocess.Popen(
        [sys.executable, "-c", SERAI, "pipe", "run", *words, "--master", machines.url, *given],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def kill_a_worker_while_it_writes(machines: Cluster, lake: Path, driver: subprocess.Popen[str]) -> Path:
    """Stops the process that a half written file is of, and when the file is still there kills that process's machine."""
    deadline = time.monotonic() + SECONDS
    while driver.poll() is None and time.monotonic() < deadline:
        for half in lake.glob("topic=*/day=*/.*.tmp"):
            pid = int(half.name.split(".")[2])
            os.kill(pid, signal.SIGSTOP)
            if half.exists():
                machines.kill_worker_of(pid)
                return half
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
    raise AssertionError("no file was seen while it was written")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_archive_on_a_cluster_has_every_row_once_though_a_worker_dies(machines: Cluster, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for seed, name in enumerate(LOGS):
            log = engine.open(name)
            put(log, bodies(seed), at_once=500)
            log.commit()
    data, lake = str(tmp_path / "data"), tmp_path / "lake"
    batch = str(len(LOGS) * ROWS // 4)
    driver = pipe(machines, "archive", "--data", data, "--to", str(lake), "--batch-rows", batch, "--compact", "100MiB")
    half = kill_a_worker_while_it_writes(machines, lake, driver)
    words, _ = driver.communicate(timeout=START_S)
    assert driver.returncode == 0, words
    assert "40,000 rows in 4 batches" in words
    for seed, name in enumerate(LOGS):
        found: list[tuple[int, bytes]] = []
        for one in (one for one in Lake(lake).files() if one.topic == name):
            table = pq.read_table(lake / one.path, columns=["offset", "value"], partitioning=None)
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
        assert found == list(enumerate(bodies(seed)))
    assert not half.exists()
    assert on_the_disk(lake) == sorted(one.path for one in Lake(lake).files())
    assert [one.poll() for one in machines.workers].count(None) == 1
    assert len(on_the_disk(lake)) <= 4  # of eight
    auditor = pipe(machines, "audit", "--data", data, "--lake", str(lake), "--output", "json")
    words, _ = auditor.communicate(timeout=START_S)
    assert auditor.returncode == 0, words
    assert "40,000 messages" in words
