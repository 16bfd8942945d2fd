"""Parquet written inside the tasks: what a task gives back is not messages but the files it made of them.

    driver   plans positions as for any stream (`planned`)
    task     mapped pages -> Arrow -> `.name.tmp`, flushed -> its name         one file for each day of its slice
             gives back path, positions, rows, bytes, checksum
    driver   commits the files of a batch (`lake`)

The messages never pass through the JVM, which makes this about four times as fast as Spark's own Parquet writer.

Invariants
- the same positions give a file of the same name with the same rows, whoever writes it, however often
- a name appears when the file is complete and on the disk
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serai._core.crc import crc32c
from serai.log.folder import is_partition
from serai.log.store import space_for, sync_directory
from serai.spark import columns
from serai.spark.pipes.lake import NO_DAY, File, folder_of, name_of
from serai.spark.slices import Log, Slice, open_log

if TYPE_CHECKING:
    from serai.spark.options import Options

KEPT = "partition,offset,key,value,timestamp,timestampType,headers,producer,door,sendTime"
ROW_GROUP_ROWS = 1_000_000
ROW_GROUP_BYTES = 64 << 20
DAY_US = 86_400_000_000
SAMPLE_BYTES = 256 << 10  # of the bodies of a row group, from the beginning of each batch in it
WORTH = 0.95  # of its bytes; bodies that stay longer than that are not compressed: it takes three times what writing them does


def epoch_of(log: Log) -> str:
    """What tells a log from another one of its name; a bare queue has nothing that stays."""
    return log.mark(log.first()) if is_partition(Path(log.path)) else ""


def export(piece: Slice, shape: columns.Shape, options: Options, root: Path) -> list[File]:
    """The files of one slice."""
    pa.set_cpu_count(1)  # a core of this machine is what a task has
    log = open_log(piece, options)
    try:
        writing = Days(log, piece, root, shape.schema)
        try:
            for batch in columns.batches(log, piece, shape, options):
                writing.put(batch)
            return writing.close()
        except BaseException:
            writing.discard()
            raise
    finally:
        log.close()


class Days:
    """Batches of a slice into a file for each day they are of."""

    def __init__(self, log: Log, piece: Slice, root: Path, schema: pa.Schema) -> None:
        self.log = log
        self.piece = piece
        self.root = root
        self.schema = schema
        self.made: list[File] = []
        self.now: ParquetFile | None = None
        self.day: int | None = None

    def put(self, batch: pa.RecordBatch) -> None:
        times = batch.column("timestamp")
        if times.null_count == len(times):
            self._put(None, batch)
            return
        days = pc.divide(times.cast(pa.int64()), DAY_US).to_numpy(zero_copy_only=False)
        start = 0
        for edge in [*(at + 1 for at in (days[1:] != days[:-1]).nonzero()[0].tolist()), len(days)]:
            self._put(int(days[start]), batch.slice(start, edge - start))
            start = edge

    def _put(self, day: int | None, batch: pa.RecordBatch) -> None:
        if self.now is None or day != self.day:
            first = batch.column("offset")[0].as_py() if self.now is not None else self.piece.first
            self._turn(first)
            self.day = day
            self.now = ParquetFile(self.root / folder_of(self.log.topic, day_text(day)), first, self.schema)
        self.now.put(batch)

    def _turn(self, last: int) -> None:
        """Ends the file at hand, before a position."""
        if self.now is None:
            return
        queue = not is_partition(Path(self.log.path))
        mark = self.log.mark(last) if queue else epoch_of(self.log)
        done = self.now.close(name_of(self.log.partition, self.now.first, last, mark))
        self.made.append(self._file(str(done.path.relative_to(self.root)), self.now.first, last, done))
        self.now = None

    def _file(self, path: str, first: int, last: int, done: ParquetFile | None) -> File:
        log = self.log
        if done is None:
            return File(path, log.topic, log.partition, epoch_of(log), first, last, 0, 0, 0, None, None)
        return File(
            path, log.topic, log.partition, epoch_of(log), first, last, done.rows, done.sink.bytes, done.sink.crc,
            done.min_us, done.max_us,
        )  # fmt: skip

    def close(self) -> list[File]:
        self._turn(self.piece.last)
        if not self.made:  # none of the positions could be read, and that was allowed
            self.made.append(self._file("", self.piece.first, self.piece.last, None))
        return self.made

    def discard(self) -> None:
        if self.now is not None:
            self.now.discard()


def day_text(day: int | None) -> str:
    """A day since 1970 as folders name it."""
    return NO_DAY if day is None else (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()


class Sink:
    """A file that knows its length and checksum."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by `close`
        self.path = path
        self.bytes = 0
        self.crc = 0
        self.closed = False

    def write(self, piece: Any) -> int:
        view = memoryview(piece).cast("B")
        if self.file.closed:  # given up; pyarrow's writer still wants to end it when it goes away
            return len(view)
        self.crc = crc32c(view, self.crc)
        self.bytes += len(view)
        with space_for(self.path):
            while view:
                view = view[self.file.write(view) :]
        return len(memoryview(piece).cast("B"))

    def flush(self) -> None:
        """Nothing is kept back here."""

    def close(self) -> None:
        """pyarrow's word for its own end; the file is closed by whoever opened it."""
        self.closed = True


class ParquetFile:
    """One file on its way."""

    def __init__(self, folder: Path, first: int, schema: pa.Schema) -> None:
        self.first = first
        self.rows = 0
        self.min_us: int | None = None
        self.max_us: int | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f".{first}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        self.sink = Sink(self.path)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._out: pq.ParquetWriter | None = None

    def put(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._size += batch.nbytes
        self.rows += len(batch)
        if sum(map(len, self._waiting)) >= ROW_GROUP_ROWS or self._size >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting)
        span = pc.min_max(group.column("timestamp").cast(pa.int64())).as_py()
        if span["min"] is not None:
            self.min_us = span["min"] if self.min_us is None else min(self.min_us, span["min"])
            self.max_us = span["max"] if self.max_us is None else max(self.max_us, span["max"])
        self._out = self._out or self._opened(group)
        self._out.write_table(group, row_group_size=len(group))
        self._waiting, self._size = [], 0

    def _opened(self, group: pa.Table | None) -> pq.ParquetWriter:
        """The writer, once there is something to see of what it is to write; dense positions are told as differences."""
        packed = dict.fromkeys(_leaves(self._schema), "zstd")
        if group is not None and not packs(group.column("value")):
            packed["value"] = "none"
        return pq.ParquetWriter(
            pa.PythonFile(self.sink, mode="w"), self._schema, compression=packed,
            use_dictionary=["key", "producer", "door"], column_encoding={"offset": "DELTA_BINARY_PACKED"},
            write_statistics=["partition", "offset", "key", "timestamp", "sendTime"],
        )  # fmt: skip

    def close(self, name: str) -> ParquetFile:
        """Brings it to the disk and gives it its name."""
        self._flush()
        self._out = self._out or self._opened(None)
        self._out.close()
        os.fsync(self.sink.file.fileno())
        self.sink.file.close()
        self.path = self.path.rename(self.path.with_name(name))
        sync_directory(self.path.parent)
        return self

    def discard(self) -> None:
        self.sink.file.close()
        self.path.unlink(missing_ok=True)


def _leaves(schema: pa.Schema) -> list[str]:
    """The columns as Parquet counts them."""
    plain = [one.name for one in schema if not pa.types.is_list(one.type)]
    return [*plain, *(f"{one.name}.list.element.{part.name}" for one in schema if pa.types.is_list(one.type)
                      for part in one.type.value_type)]  # fmt: skip


def packs(bodies: pa.ChunkedArray) -> bool:
    """Whether bodies become shorter; pictures, and what was compressed before, do not."""
    share = SAMPLE_BYTES // max(bodies.num_chunks, 1)
    sample = b"".join(_some(chunk, share) for chunk in bodies.chunks)
    return not sample or len(pa.compress(sample, codec="zstd", asbytes=True)) < WORTH * len(sample)


def _some(bodies: pa.BinaryArray, size: int) -> bytes:
    """The first bytes of an array's bodies."""
    ends = np.frombuffer(bodies.buffers()[1], np.int32)[bodies.offset :][: len(bodies) + 1]
    values = bodies.buffers()[2]
    return b"" if values is None or not len(bodies) else values[ends[0] : min(ends[-1], ends[0] + size)].to_pybytes()
