"""Partitions of the log as frames: every dress, exact times, damage and retention, without Spark but for the last ones."""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

import serai.spark
from serai.errors import Corrupt, NewerFormat
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from serai.spark.columns import batches, shape_of
from serai.spark.offsets import EARLIEST, starting
from serai.spark.options import read_options
from serai.spark.slices import DataLoss, Slice, find_logs
from serai.spark.source import SeraiSource, Stream, read_slice
from tests.core.dressing import DRESSES, encoded, sets
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, REAL, Entry
from tests.spark.kit import load, numbered, only_log, rows_of, wish

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from serai.log.partition import Partition

EVERYTHING = "offset,key,value,timestamp,timestampType,headers,messageId,door,sendTime"


def house(bodies: list[bytes], **fields: Any) -> bytes:
    return encoded([Entry(HOUSE, body, **fields) for body in bodies])


def put(log: Partition, bodies: list[bytes], *, now_ms: int = 1000, at_once: int = 10, **fields: Any) -> None:
    """Bodies as records of ten."""
    for start in range(0, len(bodies), at_once):
        log.append(house(bodies[start : start + at_once], **fields), HOUSE, level=Level.RECEIVE, now_ms=now_ms)


def told(path: Path, **options: str) -> list[dict[str, Any]]:
    """All rows of the one log there."""
    log = only_log(path, **options)
    chosen = read_options({"logDir": str(path), "columns": EVERYTHING, **options})
    piece = Slice(log.topic, log.partition, log.path, log.first(), log.end(committed=False))
    return [row for batch in batches(log, piece, shape_of(chosen), chosen) for row in batch.to_pylist()]


def instant(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def test_message_of_each_dress_has_its_columns(tmp_path: Path) -> None:
    headers = ((b"trace", b"1"), (b"caf\xc3\xa9", b"\xff"))
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        send = {"send_time": 1_700_000_000_123}
        one = Entry(HOUSE, b"house", b"k", headers=headers, **send)  # type: ignore[arg-type]
        two = Entry(REAL, b"real", b"id", attributes=oracle.text_of(headers), **send)  # type: ignore[arg-type]
        log.append(encoded([one]), HOUSE, level=Level.RECEIVE, now_ms=5000)
        log.append(encoded([two]), REAL, level=Level.RECEIVE, now_ms=6000)
        log.append(encoded([Entry(JAFKA, b"jafka")]), JAFKA, level=Level.RECEIVE, now_ms=7000)
        rows = told(tmp_path / "data")
    pairs = [{"key": "trace", "value": b"1"}, {"key": "café", "value": b"\xff"}]
    at = instant(1_700_000_000_123)

    def row(
        offset: int, key: bytes | None, value: bytes, ms: int, door: str, sent: Any, head: list[Any]
    ) -> dict[str, Any]:
        return {
            "offset": offset, "key": key, "value": value, "timestamp": instant(ms), "timestampType": 1, "headers": head,
            "messageId": 16 * offset, "door": door, "sendTime": sent,
        }  # fmt: skip

    assert rows == [
        row(0, b"k", b"house", 5000, "house", at, pairs),
        row(1, b"id", b"real", 6000, "jmq", at, pairs),
        row(2, None, b"jafka", 7000, "jafka", None, []),
    ]


@settings(max_examples=25, deadline=None)
@given(data=st.data(), batch_rows=st.integers(1, 9), cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_any_slice_of_any_partition_gives_the_oracles_messages(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, batch_rows: int, cut: tuple[float, float]
) -> None:
    path = tmp_path_factory.mktemp("any") / "data"
    expected: list[tuple[bytes, bytes, int]] = []
    with LocalEngine(path, page_bytes=1 << 12) as engine:
        log = engine.open("p")
        for now in range(data.draw(st.integers(1, 6))):
            dress = data.draw(st.sampled_from(DRESSES))
            raw = encoded(data.draw(sets(dress)))
            plain = [message for entry in oracle.decode(raw, dress) for message in oracle.flat(entry)]
            if raw and plain:
                log.append(raw, dress, level=Level.RECEIVE, now_ms=now)
                expected += [(message.body, message.key, now) for message in plain]
        first, last = sorted(round(part * len(expected)) for part in cut)
        found = [
            row
            for block in only_log(path).blocks(
                first, last, wish(rows=batch_rows, columns=frozenset({"value", "key", "timestamp"}))
            )
            for row in zip(
                block.arrays["offset"].to_pylist(), block.arrays["value"].to_pylist(), block.arrays["key"].to_pylist(),
                block.arrays["timestamp"].cast("int64").to_pylist(), strict=True,
            )
        ]  # fmt: skip
    assert found == [
        (at, body, key or None, 1000 * now) for at, (body, key, now) in list(enumerate(expected))[first:last]
    ]


def test_only_what_is_committed_is_read_unless_asked(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        put(log, numbered(0, 50))
        log.commit()
        put(log, numbered(50, 70))
        view = only_log(tmp_path / "data")
        assert view.end(committed=True) in (50, 70)  # the flush thread may have been here
        assert view.end(committed=False) == 70
        log.commit()
        assert view.end(committed=True) == 70


def test_rows_are_counted_by_the_index(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=1 << 12) as engine:
        for name in ("one", "two"):
            put(engine.open(name), numbered(0, 300))
            engine.open(name).commit()
    assert serai.spark.count(logDir=tmp_path / "data") == 600
    assert serai.spark.count(logDir=tmp_path / "data", subscribe="one", startingOffsets=-7) == 7
    assert [row["offset"] for row in told(tmp_path / "data", subscribe="two", columns="offset")] == [*range(300)]


def test_columns_of_the_index_alone_are_the_same_rows(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=1 << 12) as engine:
        log = engine.open("orders")
        for ms in range(40):
            put(log, numbered(0, 10), now_ms=ms)
        asked = {"columns": frozenset({"timestamp", "offset"}), "rows": 70}
        (view,) = find_logs(read_options({"logDir": str(tmp_path / "data")}))
        blocks = list(view.blocks(5, 400, wish(**asked)))
        assert [at for block in blocks for at in block.arrays["offset"].to_pylist()] == [*range(5, 400)]
        times = [time for block in blocks for time in block.arrays["timestamp"].cast("int64").to_pylist()]
        assert times == [1000 * (at // 10) for at in range(5, 400)]
        with pytest.raises(DataLoss, match="ends at position 400, but up to 405 was planned"):
            list(view.blocks(395, 405, wish(**asked)))
        first = log.retain(Retention(bytes_max=1 << 13), now_ms=0)
        left = wish(**asked, fail_on_loss=False)
        assert sum(block.rows for block in view.blocks(0, 400, left)) == 400 - first
        assert left.tally.lost == first > 0


def test_start_by_time_finds_the_record(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        for ms in range(1000, 2000, 100):
            put(log, numbered(0, 10), now_ms=ms)
        view = only_log(tmp_path / "data")
        options = read_options({"logDir": "x", "startingTimestamp": "1450"})
        assert starting(options, [view], default=EARLIEST, ends={("orders", 0): 100}) == {("orders", 0): 50}
        late = read_options({"logDir": "x", "startingTimestamp": "5000"})
        with pytest.raises(ValueError, match="no message as new as 5000 ms"):
            starting(late, [view], default=EARLIEST, ends={("orders", 0): 100})


def test_topics_have_the_names_of_the_catalogue(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for name in ("7-0", "7-1", "loose"):
            put(engine.open(name), numbered(0, 3))
        value = json.dumps({"name": "订单", "partitions": 3, "table": {}, "epoch": 1}).encode()
        engine.catalogue().put(b"topic/7", value, level=Level.COMMIT)
        engine.catalogue().put(b"ids", b'{"next": 8}', level=Level.COMMIT)
        logs = find_logs(read_options({"logDir": str(tmp_path / "data")}))
        assert [(log.topic, log.partition) for log in logs] == [("loose", 0), ("订单", 0), ("订单", 1)]
        (one,) = find_logs(read_options({"logDir": str(tmp_path / "data"), "assign": '{"订单": [1]}'}))
        assert one.path.endswith("7-1")


def test_data_of_tomorrow_is_refused_by_name(tmp_path: Path) -> None:
    LocalEngine(tmp_path / "data").close()
    (tmp_path / "data" / "format").write_text("serai-data 99\n")
    with pytest.raises(NewerFormat, match="version 99"):
        only_log(tmp_path / "data")


def test_byte_limit_counts_messages_with_their_heads(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        put(engine.open("orders"), numbered(0, 100), at_once=100)
        log = only_log(tmp_path / "data")
        assert log.weigh(0, 100) == 100 * (28 + 16)
        assert log.within(0, 100, 44 * 7 + 3) == 7
        assert log.within(0, 100, 1) == 1


# ---- what goes wrong ---------------------------------------------------------------------------------------------------


def damaged(tmp_path: Path) -> Path:
    """Records 0..9, 10..19, 20..29, of which the second has a wrong byte."""
    with LocalEngine(tmp_path / "data") as engine:
        put(engine.open("orders"), numbered(0, 30))
    page = tmp_path / "data" / "p" / "orders" / "0.qd"
    with open(page, "r+b") as file:
        at = page.read_bytes().index(numbered(15, 16)[0])
        file.seek(at)
        file.write(b"M")
    return tmp_path / "data"


def test_damaged_record_is_an_error_or_left_out_or_null(tmp_path: Path) -> None:
    path = damaged(tmp_path)
    with pytest.raises(Corrupt, match="its checksum is"):
        told(path)
    assert [row["offset"] for row in told(path, onCorrupt="skip")] == [*range(10), *range(20, 30)]
    values = [row["value"] for row in told(path, onCorrupt="null")]
    assert values == [*numbered(0, 10), *[None] * 10, *numbered(20, 30)]


def test_retention_that_overtakes_a_task_is_said_with_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=1 << 12) as engine:
        log = engine.open("orders")
        put(log, numbered(0, 400))
        piece = Slice("orders", 0, str(tmp_path / "data" / "p" / "orders"), 0, 400)
        first = log.retain(Retention(bytes_max=1 << 13), now_ms=0)
        assert 0 < first < 400
        words = f"positions 0 to {first} are no longer there, {first} messages; the first one is {first}"
        options = read_options({"logDir": piece.path, "columns": "offset,value"})
        with pytest.raises(DataLoss, match=words):
            list(read_slice(piece, shape_of(options), options))
        kinder = read_options({"logDir": piece.path, "columns": "offset,value", "failOnDataLoss": "false"})
        with caplog.at_level(logging.WARNING, "serai.spark"):
            found = [row for batch in read_slice(piece, shape_of(kinder), kinder) for row in batch.to_pylist()]
    assert found == [{"offset": at, "value": body} for at, body in enumerate(numbered(first, 400), first)]
    assert f"{first} messages are gone" in caplog.text


def test_pages_a_task_reads_stay_though_retention_gives_them_up_and_uses_them_again(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=1 << 12) as engine:
        log = engine.open("orders")
        put(log, numbered(0, 400))
        reading = only_log(tmp_path / "data").blocks(0, 400, wish(rows=40))
        block = next(reading)
        log.retain(Retention(bytes_max=1 << 13), now_ms=0)
        put(log, [b"something else" * 2] * 2000)  # over as many pages as were given up
        log.retain(Retention(bytes_max=1 << 13), now_ms=0)
        assert block.arrays["value"].to_pylist() == numbered(0, 40)
        later: list[bytes] = []
        with pytest.raises(DataLoss, match="no longer there"):
            later.extend(value for block in reading for value in block.arrays["value"].to_pylist())
        assert later == numbered(40, 40 + len(later))


def test_partition_made_again_is_seen_whatever_its_length(tmp_path: Path) -> None:
    def stream() -> Stream:
        source = SeraiSource({"logDir": str(tmp_path / "data"), "startingOffsets": "earliest"})
        made = source.streamReader(source.schema())
        assert isinstance(made, Stream)
        return made

    with LocalEngine(tmp_path / "data") as engine:
        put(engine.open("orders"), numbered(0, 30))
        engine.open("orders").commit()
        known = stream()
        end = known.latestOffset(known.initialOffset(), ReadAllAvailable())
        engine.remove("orders")
        put(engine.open("orders"), numbered(0, 90))
        engine.open("orders").commit()
        with pytest.raises(DataLoss, match="the message before position 30 is another one"):
            stream().latestOffset(end, ReadAllAvailable())


def test_gzip_bomb_is_bounded(tmp_path: Path) -> None:
    inner = (Entry(JAFKA, b"x" * 1000),) * 100
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        log.append(encoded([oracle.wrap(JAFKA, inner, oracle.GZIP)]), JAFKA, level=Level.RECEIVE, now_ms=0)
        log.commit()
    assert len(told(tmp_path / "data")) == 100


# ---- in Spark ----------------------------------------------------------------------------------------------------------


def test_frame_over_a_data_directory(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        put(engine.open("orders"), numbered(0, 500), key=b"k", headers=((b"a", b"b"),))
        engine.open("orders").commit()
        frame = load(spark, tmp_path / "data", includeHeaders=True, includeIds=True)
        rows = rows_of(frame.select("offset", "key", "value", "headers", "timestamp", "timestampType", "door"))
    time = rows[0][4]
    assert time.timestamp() == 1.0
    head = [("a", b"b")]
    found = [(*row[:3], [(pair.key, bytes(pair.value)) for pair in row[3]], *row[4:]) for row in rows]
    assert found == [(at, b"k", body, head, time, 1, "house") for at, body in enumerate(numbered(0, 500))]


def test_pushed_time_narrows_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        for second in range(10):
            put(log, numbered(second * 10, second * 10 + 10), now_ms=1000 * second)
        log.commit()
        frame = load(spark, tmp_path / "data", pushdown=True)
        found = frame.where("timestamp >= timestamp '1970-01-01 00:00:07Z'").select("offset", "value")
        assert rows_of(found) == list(enumerate(numbered(70, 100), 70))
