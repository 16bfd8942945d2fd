"""Metrics: counts, bytes and delays by topic, key and minute, compared with Python's own sums over the same messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from serai.cli import main
from serai.errors import Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark.pipes.frame import Asked, Outcome
from serai.spark.pipes.metrics import Metrics
from serai.spark.pipes.running import run
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

MINUTE_MS = 60_000
KEYS = (b"anna", b"bert", b"\xff")


def measure(path: Path, **settings: Any) -> Outcome:
    return run(Metrics(data=str(path), **settings), Asked(), lambda _progress: None, lambda _words: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two topics, three keys, three minutes; the message n of a minute was n ms on its way."""
    with LocalEngine(tmp_path / "data") as engine:
        for topic in ("orders", "payments"):
            log = engine.open(topic)
            for minute in range(3):
                for number in range(100):
                    now = (minute + 1) * MINUTE_MS + number
                    one = Entry(HOUSE, b"x" * number, KEYS[number % 3], send_time=now - number)
                    log.append(encoded([one]), HOUSE, level=Level.RECEIVE, now_ms=now)
            log.commit()
    return tmp_path / "data"


def test_metrics_are_the_sums_and_ranks_of_every_topic_key_and_minute(spark: SparkSession, data: Path) -> None:
    outcome = measure(data)
    expected = {}
    for topic in ("orders", "payments"):
        for key in range(3):
            numbers = list(range(key, 100, 3))
            rank = {
                name: numbers[-(-len(numbers) * part // 100) - 1] for name, part in (("p50_ms", 50), ("p95_ms", 95))
            }
            for minute in range(1, 4):
                name = ("anna", "bert", "0xFF")[key]
                expected[topic, name, f"1970-01-01 00:0{minute}:00"] = (len(numbers), sum(numbers), rank, numbers[-1])
    found = {
        (row["topic"], row["key"], row["minute"]): (
            row["messages"], row["bytes"], {name: row[name] for name in ("p50_ms", "p95_ms")}, row["max_ms"],
        )
        for row in outcome.rows
    }  # fmt: skip
    assert found == expected
    assert outcome.words == "600 messages, 29,700 bytes"


def test_metrics_of_one_topic_and_span_go_into_files_whole(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    to = tmp_path / "metrics"
    told = measure(data, topics="orders", by="topic,minute", since="120000", until="180000", most=1, to=str(to))
    assert [(row["minute"], row["messages"], row["max_ms"]) for row in told.rows] == [
        ("1970-01-01 00:02:00", 100, 99.0)
    ]
    assert [(row.topic, row.messages) for row in spark.read.parquet(str(to)).collect()] == [("orders", 100)]
    with pytest.raises(Misuse, match="is there already"):
        measure(data, to=str(to))


def test_metrics_of_a_queue_have_no_times(
    spark: SparkSession, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(fill([b"a", b"bc"])), "--output", "jsonl"]
    assert main(["pipe", "run", "metrics", *words]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["messages"] == 2
    assert row["bytes"] == 3
    assert row["topic"] == "orders"
    assert row["key"] is row["minute"] is row["p99_ms"] is None


def test_rows_that_are_not_shown_are_counted(spark: SparkSession, data: Path) -> None:
    told = measure(data, by="topic,key", most=2)
    assert [row["messages"] for row in told.rows] == [102, 99]
    assert told.words.endswith("; the first 2 of 6 rows are shown")


def test_metrics_by_something_else_is_refused() -> None:
    with pytest.raises(Misuse, match="--by is 'colour'; there is no 'colour'; it is some of topic,key,minute"):
        Metrics.of({"data": "x", "by": "colour"})
