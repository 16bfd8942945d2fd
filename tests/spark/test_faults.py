"""What goes wrong around a running query: whoever dies, whatever happens to the log, the exact rows are compared."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import serai
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from tests.spark.kit import SECONDS, Stream, load, numbered, rows_of
from tests.spark.test_partitions import put
from tests.spark.test_sink import bodies, pipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


START_S = 200  # a Spark of its own on a busy machine; 10 on an idle one


def stream(spark: SparkSession, path: Path, **options: Any) -> Stream:
    return Stream(spark, path, path.parent / f"{path.name}.checkpoint", columns="offset,value", **options)


def pairs(low: int, high: int) -> list[tuple[int, bytes]]:
    return list(enumerate(numbered(low, high), low))


def below(pid: int) -> list[int]:
    """A process and those it started."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def killed_when(moment: Callable[[], bool], command: list[str], notes: Path) -> str:
    """Starts a query, kills its driver, JVM and workers at once at that moment; gives what it printed."""
    with open(notes / "words", "w+") as words:
        driver = subprocess.Popen(command, stdout=words, stderr=words)
        deadline = time.monotonic() + START_S
        while not moment() and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in below(driver.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait(SECONDS)
        words.seek(0)
        return words.read()


def test_killed_workers_and_a_killed_driver_lose_nothing_and_double_nothing(
    spark: SparkSession, fill: Callable[..., Path], tmp_path: Path
) -> None:
    path, notes, data = fill(numbered(0, 450), page_size=1 << 10), tmp_path / "notes", tmp_path / "data"
    notes.mkdir()
    command = [sys.executable, "-m", "tests.spark.copying", str(path), str(data), str(tmp_path / "check"), str(notes)]
    words = killed_when((notes / "asleep").exists, command, notes)
    assert (notes / "died").exists(), words
    assert (notes / "asleep").exists(), words
    assert bodies(spark, data) == numbered(0, 300)
    fill(numbered(450, 470))
    assert pipe(spark, path, data, tmp_path / "check") == [3, 4]
    assert bodies(spark, data) == numbered(0, 470)
    assert [path.name for path in (data / ".staged").rglob("*-*-*")] == []


def test_retention_that_overtakes_a_query_is_an_error_with_numbers_or_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalEngine(tmp_path / "orders", page_bytes=1 << 12) as engine:
        log = engine.open("orders")
        put(log, numbered(0, 50))
        log.commit()
        query = stream(spark, tmp_path / "orders")
        assert query.run() == pairs(0, 50)
        put(log, numbered(50, 400))
        log.commit()
        first = log.retain(Retention(bytes_max=1 << 13), now_ms=0)
        assert 50 < first < 400
        with pytest.raises(
            PySparkException, match=f"positions 50 to {first} are no longer there, {first - 50} messages"
        ):
            query.run()
        assert query.run(failOnDataLoss=False) == pairs(first, 400)
        put(log, numbered(400, 410))
        log.commit()
        assert query.run() == pairs(400, 410)


def test_log_made_again_is_an_error_or_read_from_its_first_message(
    spark: SparkSession, fill: Callable[..., Path]
) -> None:
    path = fill(numbered(0, 50))
    query = stream(spark, path)
    assert query.run() == pairs(0, 50)
    shutil.rmtree(path)
    fill(numbered(1000, 1080))
    with pytest.raises(
        PySparkException, match=r"the message before position 50 is another one .*: the log was made again"
    ):
        query.run()
    again = list(enumerate(numbered(1000, 1080)))
    assert query.run(failOnDataLoss=False) == again
    fill(numbered(1080, 1090))
    assert query.run() == list(enumerate(numbered(1080, 1090), 80))


def test_pages_that_roll_while_a_query_reads_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    written = threading.Event()

    def write() -> None:
        with serai.Queue(tmp_path / "orders", page_size=1 << 10) as queue:  # 64 entries a page, 36 payloads
            writer = queue.writer()
            for low in range(0, 6000, 20):
                writer.append_many(numbered(low, low + 20))
                time.sleep(0.005)
        written.set()

    (tmp_path / "orders").mkdir()
    query = stream(spark, tmp_path / "orders", maxOffsetsPerTrigger=1000)
    thread = threading.Thread(target=write)
    thread.start()
    found = []
    while not written.is_set():
        found += query.run()
    thread.join()
    assert [*found, *query.run()] == pairs(0, 6000)


def test_partition_whose_pages_roll_while_a_frame_is_read_gives_what_was_planned(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=1 << 12) as engine:
        log = engine.open("orders")
        put(log, numbered(0, 1000))
        log.commit()
        stop = threading.Event()

        def write() -> None:
            for low in range(1000, 1 << 20, 100):
                if stop.is_set():
                    break
                put(log, numbered(low, low + 100))
                log.commit()
                time.sleep(0.01)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            frames = [rows_of(load(spark, tmp_path / "data", columns="offset,value", batchRows=100)) for _ in range(3)]
        finally:
            stop.set()
            thread.join()
    assert [rows == pairs(0, len(rows)) for rows in frames] == [True] * 3
    assert 1000 <= len(frames[0]) < len(frames[2])
