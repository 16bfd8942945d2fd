"""Arrow on both sides: batches that others read, columns and tables that writers take."""

from __future__ import annotations

import gc
import random
import shutil
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serai

FAR = 512 << 10  # bytes from which on a run is copied past the caches
NOISE = random.Random(2).randbytes(2 * FAR + 1000)
BODIES = [b"", b"a", b"\x00\xff", b"twelve bytes", b"more than twelve bytes", b"x" * 300]


def fill(folder: Path, bodies: list[bytes] = BODIES, page_size: int = 4096) -> serai.Queue:
    queue = serai.Queue(folder, page_size=page_size)
    queue.writer().append_many(bodies)
    return queue


# ---- batches that others read ------------------------------------------------------------------------


def test_pyarrow_reads_a_batch_as_a_table_and_its_values_as_a_column(tmp_path: Path) -> None:
    batch = fill(tmp_path).reader().read_batch()
    table = pa.record_batch(batch)
    assert table.schema == pa.schema(
        [pa.field("offset", pa.int64(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    assert table.column("offset").to_pylist() == [16 * i for i in range(len(BODIES))] == batch.offsets
    assert table.column("value").to_pylist() == BODIES == batch.to_list() == [bytes(view) for view in batch]
    column = pa.array(batch.values)
    column.validate(full=True)
    assert column.to_pylist() == BODIES
    assert pa.table(batch).equals(pa.Table.from_batches([table]))
    assert pa.chunked_array(batch.values).to_pylist() == BODIES


def test_polars_and_duckdb_read_a_batch(tmp_path: Path) -> None:
    batch = fill(tmp_path).reader().read_batch()
    frame = pl.DataFrame(batch)
    assert frame["value"].to_list() == BODIES
    assert frame["offset"].to_list() == batch.offsets
    found = duckdb.sql('select count(*), sum(octet_length(value)), max("offset") from batch')
    assert found is not None
    assert found.fetchall() == [(len(BODIES), sum(map(len, BODIES)), 16 * (len(BODIES) - 1))]


def test_bytes_of_a_batch_are_those_of_the_mapped_page(tmp_path: Path) -> None:
    """Nothing is copied: the column's buffer begins where the page's bytes lie."""
    reader = fill(tmp_path, [b"x" * 100] * 10).reader()
    batch, again = reader.read_batch(), reader.set_offset(0)
    assert again is not None
    column = pa.array(batch.values)
    first = pa.py_buffer(again.view()).address
    assert column.buffers()[2].address == first == pa.py_buffer(batch.data).address


def test_arrow_data_outlives_batch_reader_queue_and_files(tmp_path: Path) -> None:
    with fill(tmp_path / "q", page_size=256) as queue:
        reader = queue.reader()
        tables = []
        while len(batch := reader.read_batch(100)):
            tables.append(pa.record_batch(batch))
            shown = batch[0]
    del batch, reader, queue
    shutil.rmtree(tmp_path / "q")
    gc.collect()
    assert [value for table in tables for value in table.column("value").to_pylist()] == BODIES
    assert bytes(shown) == BODIES[-1]


def test_capsules_that_nobody_takes_are_released(tmp_path: Path) -> None:
    batch = fill(tmp_path, [bytes(1000)] * 1000, 1 << 20).reader().read_batch()
    before = pa.total_allocated_bytes()
    for _ in range(2000):
        batch.__arrow_c_array__()
        batch.__arrow_c_stream__()
        batch.values.__arrow_c_array__()
        batch.__arrow_c_schema__()
    gc.collect()
    assert pa.total_allocated_bytes() == before
    assert len(pa.record_batch(batch)) == len(batch)


def test_child_moved_out_of_a_table_lives_on(tmp_path: Path) -> None:
    table = pa.record_batch(fill(tmp_path).reader().read_batch())
    values = table.column("value")
    del table
    gc.collect()
    assert values.to_pylist() == BODIES


def test_empty_batch_is_an_empty_table(tmp_path: Path) -> None:
    reader = fill(tmp_path).reader()
    reader.skip(100)
    batch = reader.read_batch()
    assert len(batch) == batch.nbytes == 0
    assert pa.record_batch(batch).num_rows == 0
    assert pa.table(batch).num_rows == 0
    assert pa.array(batch.values).to_pylist() == []
    assert pl.DataFrame(batch).height == 0
    with pytest.raises(IndexError):
        batch[0]


def test_batches_of_several_producers_are_tables_too(tmp_path: Path) -> None:
    writers = [serai.MultiQueue(tmp_path, name=name, page_size=256) for name in ("AA0", "BB1")]
    for number in range(40):
        writers[number % 2].writer().append(b"%d" % number * 5)
    reader, seen = serai.MultiQueue(tmp_path).reader(), []
    while len(batch := reader.read_batch(64)):
        assert batch.nbytes <= 64
        seen += list(zip(pa.record_batch(batch)["offset"].to_pylist(), batch.to_list(), strict=True))
    assert seen == [(16 * number, b"%d" % number * 5) for number in range(40)]


# ---- columns and tables that writers take ------------------------------------------------------------

BINARY = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT = [pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("kind", BINARY, ids=str)
@pytest.mark.parametrize("page_size", [16, 256, 1 << 20])
def test_binary_columns_of_every_form_become_messages(kind: Any, page_size: int, tmp_path: Path) -> None:
    queue = serai.Queue(tmp_path, page_size=page_size)
    assert queue.writer().extend_arrow(pa.array(BODIES, kind)) == 16 * (len(BODIES) - 1)
    assert queue.writer().extend_arrow(pa.array(BODIES, kind)[2:5]) == 16 * (len(BODIES) + 2)
    assert queue.writer().extend_arrow(pa.array([], kind)) == -1
    assert list(queue.reader().payloads()) == BODIES + BODIES[2:5]


@pytest.mark.parametrize("kind", TEXT, ids=str)
def test_text_columns_become_their_utf8_bytes(kind: Any, tmp_path: Path) -> None:
    words = ["", "ascii", "grüße, 世界 and more than twelve"]
    queue = serai.Queue(tmp_path)
    queue.writer().extend_arrow(pa.chunked_array([pa.array(words, kind), pa.array(words, kind)]))
    assert list(queue.reader().payloads()) == [word.encode() for word in words] * 2


def test_columns_come_from_polars_numpy_sized_values_and_batches(tmp_path: Path) -> None:
    queue = serai.Queue(tmp_path)
    writer = queue.writer()
    writer.extend_arrow(pl.Series(["a", "b" * 20]))
    writer.extend_arrow(pa.array([b"abcd", b"efgh"], pa.binary(4)))
    writer.extend_arrow(queue.reader().read_batch())
    writer.extend_arrow(pa.table({"value": [b"t"], "other": [1]}))
    assert list(queue.reader().payloads()) == [b"a", b"b" * 20, b"abcd", b"efgh"] * 2 + [b"t"]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (pa.array([b"a", None, b"c"]), ValueError, "value 1 is null"),
        (pa.array([1, 2]), ValueError, "bytes or text"),
        (pa.array(["a", "a"]).dictionary_encode(), ValueError, "no message form|dictionary"),
        (pa.table({"a": [b"x"], "b": [b"y"]}), ValueError, "one column, or one named 'value'"),
        ([b"a", b"b"], TypeError, "PyCapsule"),
    ],
    ids=["null", "numbers", "dictionary", "two columns", "list"],
)
def test_column_that_cannot_be_messages_is_refused_and_writes_nothing(
    data: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    queue = serai.Queue(tmp_path)
    with pytest.raises(error, match=words):
        queue.writer().extend_arrow(data)
    assert queue.last() is None
    assert queue.writer().append(b"next") == 0


@pytest.mark.parametrize(("ends", "where"), [((0, 5, 3, 8), 1), ((0, 2**31 - 1, -(2**31), 8), 1), ((0, 5, 8, 7), 2)])
@pytest.mark.parametrize(("kind", "width"), [(pa.binary(), 4), (pa.large_binary(), 8)])
def test_ends_that_fall_are_refused(kind: Any, width: int, ends: tuple[int, ...], where: int, tmp_path: Path) -> None:
    """The copy loops trust the ends, so they are looked at first, also where a difference runs over."""
    stored = pa.py_buffer(b"".join(end.to_bytes(width, "little", signed=True) for end in ends))
    column = pa.Array.from_buffers(kind, 3, [None, stored, pa.py_buffer(b"12345678")])
    queue = serai.Queue(tmp_path)
    with pytest.raises(ValueError, match=f"fall at value {where}"):
        queue.writer().extend_arrow(column)
    assert queue.last() is None


@pytest.mark.parametrize("before", [0, 1, 15, 16, 63, 64])
@pytest.mark.parametrize("total", [FAR - 1, FAR, FAR + 1, FAR + 63, FAR + 64 + 7, 2 * FAR + 33])
def test_long_run_arrives_whole_wherever_it_begins_and_ends(total: int, before: int, tmp_path: Path) -> None:
    """Runs of half a MiB and more are stored another way than shorter ones."""
    bodies = [NOISE[at : at + 1000] for at in range(0, total, 1000)]
    bodies[-1] = bodies[-1][: total - 1000 * (len(bodies) - 1)]
    assert sum(map(len, bodies)) == total
    with serai.Queue(tmp_path, page_size=1 << 22) as queue:
        writer = queue.writer()
        writer.append(b"b" * before)
        assert writer.extend_arrow(pa.array(bodies, pa.binary())) == 16 * len(bodies)
        writer.append(b"behind")
        assert list(queue.reader().payloads()) == [b"b" * before, *bodies, b"behind"]
        data = (tmp_path / "0.qd").read_bytes()
    assert data[: before + total + 6] == b"b" * before + b"".join(bodies) + b"behind"
    assert not any(data[before + total + 6 :])


COLUMNS = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "char": (pa.uint16(), st.integers(0, 0xFFFF)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(38, 7), st.decimals(-(10**30), 10**30, places=7)),
    "big_integer": (pa.decimal128(38, 0), st.integers(-(10**37), 10**37)),
    "string": (pa.string(), st.text(st.characters(max_codepoint=127), max_size=30)),
    "unicode": (pa.large_string(), st.text(max_size=10)),
    "sized_bytes": (pa.binary_view(), st.binary(max_size=30)),
}


@settings(max_examples=30, deadline=None)
@given(data=st.data(), dialect=st.sampled_from(["seed", "java"]), page_size=st.sampled_from([16, 64, 4096]))
def test_columns_make_the_messages_that_rows_make(data: st.DataObject, dialect: str, page_size: int) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=6))
    rows = data.draw(st.lists(st.tuples(*[COLUMNS[kind][1] for kind in kinds]), max_size=8))
    columns = [pa.array([row[i] for row in rows], COLUMNS[kind][0]) for i, kind in enumerate(kinds)]
    table = pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(kinds))])
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        first, second = (serai.Queue(path, page_size=page_size, dialect=dialect) for path in (one, two))
        first.writer().template(*kinds).append_many(rows)
        last = second.writer().template(*kinds).extend_arrow(table)
        assert last == (16 * (len(rows) - 1) if rows else -1)
        assert list(first.reader().payloads()) == list(second.reader().payloads())
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("kinds", "table", "words"),
    [
        (("int", "int"), {"a": pa.array([1], pa.int32())}, "2 fields, the Arrow data 1"),
        (("int",), {"a": pa.array([1], pa.int64())}, "takes the Arrow formats i"),
        (("int",), {"a": pa.array([None], pa.int32())}, "null"),
        (("big_integer",), {"a": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}, "big_integer"),
    ],
)
def test_table_that_does_not_fit_the_template_is_refused(
    kinds: tuple[str, ...], table: dict[str, Any], words: str, tmp_path: Path
) -> None:
    queue = serai.Queue(tmp_path)
    with pytest.raises(ValueError, match=words):
        queue.writer().template(*kinds).extend_arrow(pa.table(table))
    assert queue.last() is None


def test_row_that_fails_leaves_the_rows_before_it_and_says_so(tmp_path: Path) -> None:
    queue = serai.Queue(tmp_path)
    table = pa.table({"a": ["fine", "also", "grün", "never"]})
    with pytest.raises(ValueError, match="row 2") as raised:
        queue.writer().template("string").extend_arrow(table)
    assert raised.value.__notes__ == ["2 messages of this call were written before"]
    assert list(queue.reader().rows("string")) == [("fine",), ("also",)]
    assert queue.writer().append(b"x") == 32
