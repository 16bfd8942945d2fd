"""Frames into a log on this machine, batches or streams, each batch once.

    frame.writeStream.format("serai").option("logDir", "data").option("topic", "alerts")

    value                   string or binary; needed
    key, headers            optional; a row without a key is kept together with the rows of its Spark partition
    topic, partition        optional; option `topic` goes first, option `partitioner` says where the others go
    timestamp               optional: becomes the send time

A task stages its rows in a file; the driver makes all files of a batch visible (`ledger`).  A stream's writer is its
query id, which lives in the checkpoint; a batch that is to be written once over reruns names `writerId` and `jobId`.

Invariants
- rows of one Spark partition keep their order within a partition of the log
- nothing a failed or doubled task wrote becomes visible: only files that reached `commit` are named
"""

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from serai._core.envelopes import envelopes, spread
from serai.errors import Misuse
from serai.log.local import LocalEngine
from serai.spark import ledger
from serai.spark.options import Options
from serai.spark.partitions import is_data, read_catalogue
from serai.spark.queues import is_queue

TEXT = (StringType, BinaryType)
COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "value": TEXT, "key": TEXT, "topic": (StringType,), "partition": (IntegerType,), "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}  # fmt: skip


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task wrote."""

    writer: str
    name: str
    count: int
    bytes: int


def check_frame(options: Options, schema: StructType) -> None:
    """Whether a frame can be written, by its columns and types."""
    for one in schema.fields:
        allowed = COLUMNS.get(one.name)
        if allowed is None:
            raise Misuse(f"the frame has the column {one.name!r}; a log takes {', '.join(COLUMNS)}: select those")
        if not isinstance(one.dataType, allowed):
            words = " or ".join(kind.typeName() for kind in allowed)
            raise Misuse(f"the column {one.name} is {one.dataType.simpleString()}; it is {words}")
    if "value" not in schema.names:
        raise Misuse("the frame has no column 'value', the body of a message")
    if options.topic is None and "topic" not in schema.names:
        raise Misuse("say where to write: option('topic', name), or a column 'topic'")


def prepare(options: Options, *, overwrite: bool) -> Path:
    """The data directory, made when there is none."""
    if overwrite:
        raise Misuse("a log is only appended to: use mode('append')")
    assert options.log_dir is not None
    data = Path(options.log_dir.removeprefix("file://")).absolute()
    if data.is_dir() and is_queue(data):
        raise Misuse(
            f"{data} is a bare queue, which keeps no record of batches: name a serai data directory, or one that is empty or new"
        )
    if not data.is_dir() or not is_data(data):
        LocalEngine(data).close()
    return data


class Task:
    """Rows of one Spark partition on their way into a staged file."""

    def __init__(self, options: Options, data: Path, part: int) -> None:
        self.options = options
        self.part = part
        self.counts = {topic: count for topic, (_number, count) in read_catalogue(data).items()}

    def chunks(self, batch: pa.RecordBatch) -> Iterator[ledger.Chunk]:
        """The rows of an Arrow batch as sets of messages, one for each partition they go to."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        value = _text(columns["value"])
        if value.null_count:
            raise Misuse("a row has no value (null): write an empty one, or leave such rows out")
        frame: dict[str, Any] = {"values": _bytes(value), "ends": _ends(value)}
        if "key" in columns:
            key = _text(columns["key"])
            frame |= {
                "keys": _bytes(key),
                "key_ends": _ends(key),
                "key_bits": key.buffers()[0],
                "key_shift": key.offset,
            }
        if "headers" in columns:
            notes = [_notes(headers) for headers in columns["headers"].to_pylist()]
            edges = np.concatenate([[0], np.cumsum([len(note) for note in notes])]).astype(np.int32)
            frame |= {"notes": b"".join(notes), "note_ends": edges}
        if "timestamp" in columns:
            ms = columns["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(0).to_numpy() // 1000
            frame["times"] = np.ascontiguousarray(ms)
        for topic, rows in self._by_topic(columns, batch.num_rows):
            yield from self._by_partition(topic, rows, columns, frame)

    def _by_topic(self, columns: dict[str, pa.Array], rows: int) -> Iterator[tuple[str, Any]]:
        if self.options.topic is not None:
            yield self.options.topic, np.arange(rows, dtype=np.int32)
            return
        if columns["topic"].null_count:
            raise Misuse("a row has no topic (null) and option topic is not given")
        names = columns["topic"].dictionary_encode()
        which = names.indices.to_numpy()
        for at, topic in enumerate(names.dictionary.to_pylist()):
            yield topic, np.flatnonzero(which == at).astype(np.int32)

    def _by_partition(
        self, topic: str, rows: Any, columns: dict[str, pa.Array], frame: dict[str, Any]
    ) -> Iterator[ledger.Chunk]:
        count = self.counts.get(topic, 1)
        if count == 1 and "partition" not in columns:
            yield ledger.Chunk(topic, 0, len(rows), envelopes(rows=rows.data, **frame))
            return
        where = self._places(count, rows, columns, frame)
        for partition in np.unique(where).tolist():
            if not 0 <= partition < count:
                raise Misuse(f"topic {topic} has {count} partitions; a row is to go to partition {partition}")
            chosen = rows[where == partition] if count > 1 else rows
            yield ledger.Chunk(topic, partition, len(chosen), envelopes(rows=chosen.astype(np.int32).data, **frame))

    def _places(self, count: int, rows: Any, columns: dict[str, pa.Array], frame: dict[str, Any]) -> Any:
        """The partition of each row."""
        if self.options.partitioner == "roundrobin":
            where = (rows + self.part) % count
        elif self.options.partitioner == "hash" and "keys" in frame and count > 1:
            keys = {name: frame[name] for name in ("keys", "key_ends", "key_bits", "key_shift")}
            where = np.frombuffer(spread(**keys, partitions=count, keyless=self.part % count), np.int32)[rows]
        else:
            where = np.full(len(rows), self.part % count, np.int32)
        if "partition" in columns:
            told = pc.take(columns["partition"], pa.array(rows))
            where = np.where(told.is_valid().to_numpy(zero_copy_only=False), told.fill_null(0).to_numpy(), where)
        return where


def _text(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _bytes(array: pa.Array) -> Any:
    return array.buffers()[2] or b""


def _ends(array: pa.Array) -> Any:
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _notes(headers: list[dict[str, Any]] | None) -> bytes:
    """Headers as a house message has them."""
    if not headers:
        return b""
    parts = [struct.pack("<H", len(headers))]
    for header in headers:
        name, value = header["key"].encode(), header["value"] or b""
        parts.append(struct.pack("<H", len(name)) + name + struct.pack("<I", len(value)) + value)
    return b"".join(parts)


def stage(options: Options, data: Path, rows: Iterator[pa.RecordBatch], writer: str, batch: int) -> Staged:
    """What a task does: its rows into a file of its own."""
    context = TaskContext.get()
    part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    file = ledger.Stage(data, writer, batch, part, attempt)
    try:
        task = Task(options, data, part)
        for one in rows:
            if one.num_rows:
                for chunk in task.chunks(one):
                    file.put(chunk)
        if not file.count:
            file.discard()
            return Staged(writer, "", 0, 0)
        file.close()
    except BaseException:
        file.discard()
        raise
    return Staged(writer, file.path.name, file.count, file.bytes)


def settle(data: Path, messages: list[WriterCommitMessage | None], batch: int, *, once: bool) -> bool:
    """What the driver does: all of a batch becomes visible, or it was there already."""
    if any(message is None for message in messages):
        raise Misuse("a task of this batch said nothing; it is not committed, Spark runs it again")
    staged = [message for message in messages if isinstance(message, Staged)]
    if not staged:
        return False
    writer = staged[0].writer
    return ledger.commit(
        data, writer, batch, [ledger.path_of(data, writer, one.name) for one in staged if one.name], once=once
    )


def drop(data: Path, messages: list[WriterCommitMessage | None]) -> None:
    """Removes what a failed batch staged."""
    for one in messages:
        if isinstance(one, Staged) and one.name:
            ledger.path_of(data, one.writer, one.name).unlink(missing_ok=True)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming query into the log; made anew for every batch."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        check_frame(options, schema)
        if options.async_progress and options.exactly_once is not False:
            raise Misuse(
                "asyncProgressTrackingEnabled lets a crash repeat several batches as one, so they cannot be told: switch it "
                "off, or say exactlyOnce=false"
            )
        self.options = options
        self.data = prepare(options, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        writer = self.options.writer_id or query
        if writer is None or batch is None:
            raise Misuse("this Spark does not tell a task its query and batch; serai writes streams with Spark 4.3")
        return stage(self.options, self.data, iterator, writer, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        settle(self.data, messages, batchId, once=self.options.exactly_once is not False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        drop(self.data, messages)


class BatchWriter(DataSourceArrowWriter):
    """A frame into the log; once over reruns if `writerId` and `jobId` are given."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        check_frame(options, schema)
        if (options.writer_id is None) != (options.job_id is None):
            raise Misuse("a batch is written once by writerId and jobId together: give both, or none")
        self.options = options
        self.data = prepare(options, overwrite=overwrite)
        self.writer = f"{options.writer_id}/{options.job_id}" if options.job_id else f"batch/{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return stage(self.options, self.data, iterator, self.writer, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(self.data, messages, 0, once=self.options.job_id is not None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(self.data, messages)
