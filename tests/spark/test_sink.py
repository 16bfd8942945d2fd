"""The sink in a Spark session: what was written is read back exactly, each batch once."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from serai._core.crc import crc32c
from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.spark.kit import SECONDS, load, numbered, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def write(frame: DataFrame, data: Path, **options: Any) -> None:
    frame.write.format("serai").mode("append").options(logDir=str(data), **options).save()


def texts(spark: SparkSession, low: int, high: int, parts: int = 2) -> DataFrame:
    """A frame of the numbered bodies, in their order over its partitions."""
    return spark.range(low, high, 1, parts).select(sql.format_string("message %012d of many", "id").alias("value"))


def pipe(spark: SparkSession, path: Path, data: Path, checkpoint: Path, **options: Any) -> list[int]:
    """One life of a query from a queue into a topic: AvailableNow; gives the batches it ran."""
    frame = spark.readStream.format("serai").options(
        logDir=str(path), startingOffsets="earliest", maxOffsetsPerTrigger=100
    )
    query = (
        frame.load().select("value").writeStream.format("serai").options(logDir=str(data), topic="copy", **options)
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(SECONDS), "the query did not end"
    finally:
        query.stop()
    return [progress["batchId"] for progress in query.recentProgress if progress["numInputRows"]]


def bodies(spark: SparkSession, data: Path) -> list[bytes]:
    return [value for _at, value in rows_of(load(spark, data, subscribe="copy", columns="offset,value"))]


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before it noted that the batch was done; the hidden checksum goes too."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


# ---- batches -----------------------------------------------------------------------------------------------------------


def test_frame_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    now = dt.datetime(2026, 3, 4, 5, 6, 7, 891000, dt.UTC)
    rows = [
        (b"k1", b"one", [("a", b"1"), ("b", None)], now), (None, b"", None, None), (b"", b"three", [], now),
    ]  # fmt: skip
    schema = "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
    write(spark.createDataFrame(rows, schema).coalesce(1), tmp_path / "data", topic="orders")
    frame = load(spark, tmp_path / "data", includeHeaders=True, includeIds=True)
    found = rows_of(frame.select("topic", "partition", "offset", "key", "value", "headers", "sendTime", "door"))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert [
        (*row[:5], [(pair.key, bytes(pair.value)) for pair in row[5]], row[6].astimezone(dt.UTC), row[7])
        for row in found
    ] == [
        ("orders", 0, 0, b"k1", b"one", [("a", b"1"), ("b", b"")], now, "house"),
        ("orders", 0, 1, None, b"", [], epoch, "house"),
        ("orders", 0, 2, None, b"three", [], now, "house"),
    ]


def test_rows_of_a_spark_partition_keep_their_order(spark: SparkSession, tmp_path: Path) -> None:
    write(texts(spark, 0, 25_000, parts=1), tmp_path / "data", topic="copy")
    assert bodies(spark, tmp_path / "data") == numbered(0, 25_000)


def test_topics_and_partitions_by_column(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        value = json.dumps({"name": "wide", "partitions": 3, "table": {}}).encode()
        engine.catalogue().put_many([(b"topic/1", value), (b"ids", b'{"next": 2}')], level=Level.COMMIT)
    frame = spark.createDataFrame(
        [("wide", 2, "a"), ("wide", None, "b"), ("narrow", None, "c"), ("wide", 0, "d")],
        "topic string, partition int, value string",
    )
    write(frame.coalesce(1), tmp_path / "data")
    found = rows_of(load(spark, tmp_path / "data", columns="topic,partition,value"))
    assert sorted(found) == [("narrow", 0, b"c"), ("wide", 0, b"b"), ("wide", 0, b"d"), ("wide", 2, b"a")]
    with pytest.raises(PySparkException, match="topic wide has 3 partitions; a row is to go to partition 3"):
        write(frame.where("topic = 'wide'").withColumn("partition", sql.lit(3)), tmp_path / "data")


def test_equal_keys_meet_in_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        value = json.dumps({"name": "wide", "partitions": 3, "table": {}}).encode()
        engine.catalogue().put_many([(b"topic/1", value), (b"ids", b'{"next": 2}')], level=Level.COMMIT)
    frame = texts(spark, 0, 300).withColumn("key", sql.concat(sql.lit("k"), sql.substring("value", 20, 1)))
    write(frame, tmp_path / "data", topic="wide")
    found = rows_of(load(spark, tmp_path / "data", columns="partition,key,value"))
    assert sorted(value for _partition, _key, value in found) == numbered(0, 300)
    assert all(partition == crc32c(key) % 3 for partition, key, _value in found)


def test_batch_with_a_job_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):
        write(texts(spark, 0, 50), tmp_path / "data", topic="copy", writerId="import", jobId="files-1")
    write(texts(spark, 50, 60), tmp_path / "data", topic="copy", writerId="import", jobId="files-2")
    assert sorted(bodies(spark, tmp_path / "data")) == numbered(0, 60)


@pytest.mark.parametrize(
    ("select", "options", "words"),
    [
        ("value, 1 AS more", {"topic": "t"}, "column 'more'; a log takes value, key, topic"),
        ("1 AS value", {"topic": "t"}, "the column value is int; it is string or binary"),
        ("value AS key", {"topic": "t"}, "has no column 'value'"),
        ("value", {}, "say where to write"),
        ("value", {"topic": "t", "writerId": "w"}, "writerId and jobId together"),
    ],
)  # fmt: skip
def test_frame_that_cannot_be_written_is_refused(
    spark: SparkSession, tmp_path: Path, select: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        write(texts(spark, 0, 1).selectExpr(*select.split(", ")), tmp_path / "data", **options)


def test_overwrite_and_bare_queues_are_refused(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="only appended to"):
        texts(spark, 0, 1).write.format("serai").mode("overwrite").options(
            logDir=str(tmp_path / "data"), topic="t"
        ).save()
    with pytest.raises(PySparkException, match="a bare queue, which keeps no record of batches"):
        write(texts(spark, 0, 1), fill(numbered(0, 1)), topic="t")


def test_failing_task_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    frame = texts(spark, 0, 50_000).withColumn(
        "value", sql.expr("if(value like '%49999 of%', raise_error('stop'), value)")
    )
    with pytest.raises(PySparkException, match="stop"):
        write(frame, tmp_path / "data", topic="copy")
    assert load(spark, tmp_path / "data").count() == 0
    write(texts(spark, 0, 10), tmp_path / "data", topic="copy")
    assert sorted(bodies(spark, tmp_path / "data")) == numbered(0, 10)


def test_row_without_a_value_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="a row has no value"):
        write(spark.sql("SELECT CAST(NULL AS string) AS value"), tmp_path / "data", topic="t")


# ---- streams -----------------------------------------------------------------------------------------------------------


def test_stream_copies_each_message_once(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    path = fill(numbered(0, 250))
    assert pipe(spark, path, tmp_path / "data", tmp_path / "check") == [0, 1, 2]
    assert bodies(spark, tmp_path / "data") == numbered(0, 250)
    fill(numbered(250, 300))
    assert pipe(spark, path, tmp_path / "data", tmp_path / "check") == [3]
    assert bodies(spark, tmp_path / "data") == numbered(0, 300)


def test_replayed_batch_comes_once(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    path = fill(numbered(0, 250))
    pipe(spark, path, tmp_path / "data", tmp_path / "check")
    forget_commit(tmp_path / "check", 2)
    fill(numbered(250, 260))
    assert pipe(spark, path, tmp_path / "data", tmp_path / "check") == [2, 3]
    assert bodies(spark, tmp_path / "data") == numbered(0, 260)


def test_replayed_batch_comes_twice_without_exactly_once(
    spark: SparkSession, fill: Callable[..., Path], tmp_path: Path
) -> None:
    path = fill(numbered(0, 50))
    pipe(spark, path, tmp_path / "data", tmp_path / "check", exactlyOnce=False)
    forget_commit(tmp_path / "check", 0)
    pipe(spark, path, tmp_path / "data", tmp_path / "check", exactlyOnce=False)
    assert bodies(spark, tmp_path / "data") == numbered(0, 50) * 2
