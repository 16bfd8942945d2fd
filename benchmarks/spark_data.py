"""The rows all cases run over: 8-byte keys, bodies of random bytes, one store time for each record.

The same rows lie in a data directory, in a bare queue, and in Parquet, which Spark itself wrote from the data directory
(uncompressed, two files).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import serai
from serai._core.entries import HOUSE
from serai._core.envelopes import envelopes
from serai.log.engine import Level
from serai.log.local import LocalEngine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_ROWS = 1000  # what one produce request brings; its keys are all different
START_MS = 1_700_000_000_000
TOPIC = "orders"


@dataclass(frozen=True)
class Rows:
    """How many, and how large their bodies are."""

    count: int
    body_bytes: int

    def bodies(self) -> Iterator[bytes]:
        """The bodies of one record after the other.  No two are alike, or Parquet would keep them once."""
        chance = np.random.default_rng(7)
        for _ in range(self.count // RECORD_ROWS):
            yield chance.bytes(RECORD_ROWS * self.body_bytes)


def write_log(data: Path, rows: Rows, *, partitions: int = 1) -> Path:
    """A data directory with one topic; records go round the partitions."""
    frame: dict[str, Any] = {
        "ends": np.arange(RECORD_ROWS + 1, dtype=np.int32) * rows.body_bytes,
        "keys": b"".join(b"k%07d" % name for name in range(RECORD_ROWS)),
        "key_ends": np.arange(RECORD_ROWS + 1, dtype=np.int32) * 8,
        "times": np.full(RECORD_ROWS, START_MS, np.int64),
    }
    with LocalEngine(data) as engine:
        table = json.dumps({"name": TOPIC, "partitions": partitions, "table": {}}).encode()
        engine.catalogue().put_many([(b"topic/1", table), (b"ids", b'{"next": 2}')], level=Level.COMMIT)
        logs = [engine.open(f"1-{partition}") for partition in range(partitions)]
        for record, bodies in enumerate(rows.bodies()):
            messages = envelopes(bodies, **frame)
            logs[record % partitions].append(messages, HOUSE, level=Level.RECEIVE, now_ms=START_MS + record)
        for log in logs:
            log.commit()
    return data


def write_queue(path: Path, rows: Rows) -> Path:
    """A bare queue of the same bodies."""
    size = rows.body_bytes
    with serai.Queue(path) as queue:
        writer = queue.writer()
        for bodies in rows.bodies():
            writer.append_many([bodies[at : at + size] for at in range(0, len(bodies), size)])
    return path


def frame_of(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("serai").options(logDir=str(path), **options).load()


def write_parquet(frame: DataFrame, path: Path) -> Path:
    frame.coalesce(2).write.option("compression", "none").parquet(str(path))
    return path
