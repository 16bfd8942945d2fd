"""The source in a Spark session: exact rows, batch and streaming, every option that changes what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

import serai
from serai.spark.session import session
from serai.spark.slices import Slice
from serai.spark.source import PushingBatch, SeraiSource
from tests import helpers
from tests.spark.kit import Stream, load, numbered, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def pairs(low: int, high: int) -> list[tuple[int, bytes]]:
    return list(enumerate(numbered(low, high), low))


def test_rows_have_kafkas_columns(spark: SparkSession, fill: Callable[..., Path]) -> None:
    frame = load(spark, fill(numbered(0, 3)))
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == [
        "key binary", "value binary", "topic string", "partition int", "offset bigint", "timestamp timestamp",
        "timestampType int",
    ]  # fmt: skip
    assert rows_of(frame) == [(None, body, "orders", 0, at, None, -1) for at, body in pairs(0, 3)]


def test_ids_and_headers_when_asked(spark: SparkSession, tmp_path: Path) -> None:
    with serai.MultiQueue(tmp_path / "orders", "rw", "AA0") as queue:
        queue.writer().append_many(numbered(0, 2))
    frame = load(spark, tmp_path / "orders", includeIds=True, includeHeaders=True)
    assert rows_of(frame.select("offset", "headers", "messageId", "producer", "door", "sendTime")) == [
        (0, None, 0, "AA0", None, None), (1, None, 16, "AA0", None, None),
    ]  # fmt: skip


def test_columns_are_those_named_in_their_order(spark: SparkSession, fill: Callable[..., Path]) -> None:
    frame = load(spark, fill(numbered(0, 300), page_size=1 << 10), columns="value,offset")
    assert rows_of(frame) == [(body, at) for at, body in pairs(0, 300)]
    assert load(spark, fill([]), columns="offset").count() == 300


@pytest.mark.parametrize("name", ["single_java_straddle64", "multi_seed_two", "single_seed_types"])
def test_golden_directories(spark: SparkSession, tmp_path: Path, name: str) -> None:
    vector = helpers.load(name)
    frame = load(spark, vector.expand(tmp_path / "golden"), columns="messageId,value", dialect=vector.dialect)
    assert sorted(rows_of(frame)) == [(message.offset, message.payload) for message in vector.messages]


def test_tasks_together_give_every_row_once(spark: SparkSession, fill: Callable[..., Path]) -> None:
    frame = load(
        spark, fill(numbered(0, 5000), page_size=1 << 12), minPartitions=7, batchRows=100, columns="offset,value"
    )
    assert frame.rdd.getNumPartitions() == 7
    assert rows_of(frame) == pairs(0, 5000)


def test_range_by_offsets(spark: SparkSession, fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 100))
    frame = load(
        spark,
        path,
        startingOffsets='{"orders": {"0": 20}}',
        endingOffsets='{"orders": {"0": 25}}',
        columns="offset,value",
    )
    assert rows_of(frame) == pairs(20, 25)
    assert load(spark, path, startingOffsets="-10").count() == 10


def test_several_topics_in_one_frame(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(numbered(0, 10), name="one")
    fill(numbered(0, 20), name="two")
    frame = load(spark, tmp_path, columns="topic,offset", subscribe="one,two")
    assert sorted(rows_of(frame)) == [("one", at) for at in range(10)] + [("two", at) for at in range(20)]


def test_empty_queue_gives_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    assert load(spark, tmp_path / "orders").count() == 0


def test_declared_schema_makes_columns_of_bodies(spark: SparkSession, fill: Callable[..., Path]) -> None:
    path = fill([b'{"id": 7, "name": "x"}', b"no json"])
    frame = (
        spark.read.format("serai")
        .schema("id bigint, offset bigint, name string")
        .options(logDir=str(path), decode="json")
    )
    with pytest.raises(PySparkException, match="topic orders partition 0 offset 1: the body cannot be read"):
        frame.load().collect()
    assert rows_of(frame.option("onCorrupt", "null").load()) == [(7, 0, "x"), (None, 1, None)]


def test_typed_fields_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "orders") as queue:
        queue.writer().template("long", "string", "decimal").append_many([(at, f"n{at}", at) for at in range(50)])
    frame = load(spark, tmp_path / "orders", decode="fields", fields="id:long, name:string, amount:decimal(38,2)")
    assert [(row.id, row.name, str(row.amount)) for row in frame.orderBy("id").collect()] == [
        (at, f"n{at}", f"{at}.00") for at in range(50)
    ]


def test_unknown_option_is_refused_with_the_nearest_name(spark: SparkSession, fill: Callable[..., Path]) -> None:
    with pytest.raises(PySparkException, match=r"no option 'startingofsets': did you mean startingOffsets\?"):
        load(spark, fill(numbered(0, 1)), startingOfsets="earliest")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("offset >= 10 AND offset < 13 AND topic = 'orders' AND value IS NOT NULL", [10, 11, 12]),
        ("offset = 999", [999]),
        ("offset < 5 AND topic = 'others'", []),
        ("offset > 997 OR offset < 1", [0, 998, 999]),
        ("offset <= 4 AND offset > 4", []),
        ("partition IN (0, 1) AND offset > 998", [999]),
    ],
)
def test_pushed_filters_give_the_rows_spark_would(
    spark: SparkSession, fill: Callable[..., Path], condition: str, expected: list[int]
) -> None:
    path = fill(numbered(0, 1000))
    found = load(spark, path, pushdown=True, columns="offset,value,topic,partition").where(condition)
    assert [row[0] for row in rows_of(found)] == expected


def test_filters_on_offset_narrow_the_plan(fill: Callable[..., Path]) -> None:
    source = SeraiSource({"logDir": str(fill(numbered(0, 1000))), "pushdown": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingBatch)
    kept = EqualTo(("value",), b"x")
    filters = [GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 13), In(("topic",), ("orders", "b")), kept]
    assert list(reader.pushFilters(filters)) == [kept]
    assert [(piece.first, piece.last) for piece in reader.partitions() if isinstance(piece, Slice)] == [(10, 13)]


def test_without_pushdown_the_filters_are_sparks(spark: SparkSession, fill: Callable[..., Path]) -> None:
    assert load(spark, fill(numbered(0, 1000))).where("offset >= 10 AND offset < 13").count() == 3


def test_view_in_sql(spark: SparkSession, fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 7))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING serai OPTIONS (logDir '{path}')")
    assert spark.sql("SELECT count(*), max(offset) FROM seen").collect()[0][:] == (7, 6)


def test_session_is_made_once(spark: SparkSession) -> None:
    assert session() is spark


# ---- streams ---------------------------------------------------------------------------------------------------------


def stream(spark: SparkSession, path: Path, **options: Any) -> Stream:
    return Stream(spark, path, path.parent / f"{path.name}.checkpoint", columns="offset,value", **options)


def test_available_now_takes_all_in_batches_of_the_limit(spark: SparkSession, fill: Callable[..., Path]) -> None:
    query = stream(spark, fill(numbered(0, 1000), page_size=1 << 12), maxOffsetsPerTrigger=300)
    assert query.run() == pairs(0, 1000)
    assert query.sizes == [300, 300, 300, 100]


def test_query_goes_on_where_it_stopped(spark: SparkSession, fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 100))
    query = stream(spark, path)
    assert query.run() == pairs(0, 100)
    assert query.run() == []
    fill(numbered(100, 150))
    assert query.run() == pairs(100, 150)


def test_byte_limit_makes_small_batches(spark: SparkSession, fill: Callable[..., Path]) -> None:
    query = stream(spark, fill(numbered(0, 100)), maxBytesPerTrigger=28 * 40)
    assert query.run() == pairs(0, 100)
    assert query.sizes == [40, 40, 20]


def test_latest_is_the_default_start(spark: SparkSession, fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 10))
    query = stream(spark, path, startingOffsets="latest")
    assert query.run() == []
    fill(numbered(10, 13))
    assert query.run() == pairs(10, 13)
