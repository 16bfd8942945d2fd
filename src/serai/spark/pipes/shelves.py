"""An archive looked at: its list of files, every file, and the rows beside those of the log they came from.

    list     positions that no file has although later ones are there, positions in two files        while planning
    file     there, of its length, its checksum; positions and times of its rows                     in the tasks
    rows     with a log: what stands there in both, column by column, whole batches at once          in the tasks

A file whose bytes are not those that were written is one finding, and its rows are not looked at.  What an archive has not
come to yet is counted, and no finding; nor are positions before its first file, which retention had taken before.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serai._core.crc import crc32c
from serai.errors import Corrupt
from serai.spark import columns
from serai.spark.options import Options, read_options
from serai.spark.pipes.archive import existing
from serai.spark.pipes.export import KEPT, epoch_of
from serai.spark.pipes.lake import File, Lake
from serai.spark.pipes.looking import BEHIND, FILE, NOTE, Asked, Piece, Place, Row, merged, trouble
from serai.spark.slices import Log, Slice, open_log

READ_BYTES = 4 << 20
BATCH_ROWS = 64_000
POSITIONS = ["partition", "offset", "timestamp", "timestampType"]
COMPARED = ("key", "value", "timestamp", "headers", "producer", "door", "sendTime")
INT = pa.int64()


@dataclass(frozen=True)
class Beside:
    """The log that files of an archive are compared with, and what of it is there."""

    path: str
    first: int
    end: int


class Shelves:
    """The files of an archive, and what is wrong with their list."""

    def __init__(self, asked: Asked, told: list[Row]) -> None:
        self.asked = asked
        self.told = told
        self.root = Path(asked.lake or "")
        files = [] if asked.lake is None else self._read(existing(asked.lake))
        self.files = [one for one in files if asked.wants(one.topic)]

    @property
    def topics(self) -> set[str]:
        return {one.topic for one in self.files}

    def _read(self, lake: Lake) -> list[File]:
        try:
            return lake.files()
        except Corrupt as error:
            self.told.append(trouble(error, f"{error}. Without it nobody can say which files count"))
        except (KeyError, TypeError) as error:
            words = f"a manifest in it does not say what it has to ({error}), so nobody can say which files count"
            self.told.append(Row("unreadable", "", file=str(lake.home / "manifests"), words=words))
        return []

    def pieces(self, logs: Sequence[Place]) -> list[tuple[Piece, int]]:
        """The files and their bytes; the list is looked at here and now."""
        beside = self._logs(logs) if self.asked.lake is not None else {}
        pieces: list[tuple[Piece, int]] = []
        for log, group in groupby(self.files, key=lambda one: one.log):
            files = list(group)
            self.told += among(files, beside.get(log))
            pieces += [
                (Stored(str(self.root), one, beside.get(log)), one.bytes) for one in files if self._is_wanted(one)
            ]
        self.told += [
            Row(BEHIND, topic, partition, messages=log.end - log.first)
            for (topic, partition, epoch), log in beside.items()
            if (topic, partition, epoch) not in {one.log for one in self.files}
        ]
        return pieces

    def _is_wanted(self, one: File) -> bool:
        """Whether a file may hold messages of the times that were asked for."""
        low, high = self.asked.since_ms, self.asked.until_ms
        early = low is not None and one.max_us is not None and one.max_us < low * 1000
        return not early and not (high is not None and one.min_us is not None and one.min_us >= high * 1000)

    def _logs(self, logs: Sequence[Place]) -> dict[tuple[str, int, str], Beside]:
        found = {}
        for path, topic, partition in logs:
            options = compare_options(str(path))
            try:
                log = open_log(Slice(topic, partition, str(path), 0, 0), options)
                try:
                    found[topic, partition, epoch_of(log)] = Beside(str(path), log.first(), log.end(committed=False))
                finally:
                    log.close()
            except (Corrupt, FileNotFoundError):  # whoever looks at the log names it
                continue
        return found


def among(files: Sequence[File], beside: Beside | None) -> Iterator[Row]:
    """Gaps and overlaps in the files of one log, and how far they go."""
    topic, partition, _epoch = files[0].log
    reach = files[0].first
    if beside is not None and beside.first < reach:
        words = f"the log has positions {beside.first} to {reach}, the archive begins at {reach}"
        yield Row("gap", topic, partition, beside.first, reach, files[0].path, words=words)
    for one in files:
        if one.first > reach:
            words = f"no manifest names a file of positions {reach} to {one.first}"
            yield Row("gap", topic, partition, reach, one.first, one.path, words=words)
        elif one.first < reach and one.first < one.last:
            words = f"positions {one.first} to {min(reach, one.last)} are in files before this one too"
            yield Row("duplicate", topic, partition, one.first, min(reach, one.last), one.path, words=words)
        reach = max(reach, one.last)
    if beside is not None and beside.end > reach:
        yield Row(BEHIND, topic, partition, messages=beside.end - reach)


def compare_options(path: str) -> Options:
    """The messages of a log as the archive keeps them, damaged ones left out."""
    return read_options({"logDir": path, "columns": KEPT, "onCorrupt": "skip", "failOnDataLoss": "false"})


# ---- files -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored(Piece):
    """A file of an archive."""

    root: str
    file: File
    beside: Beside | None

    def look(self) -> Iterator[Row]:
        yield Row(FILE, self.file.topic, self.file.partition, messages=self.file.rows, bytes=self.file.bytes)
        yield from merged(Look(Path(self.root), self.file, self.beside).findings())


class Look:
    """One file."""

    def __init__(self, root: Path, one: File, beside: Beside | None) -> None:
        self.root = root
        self.one = one
        self.beside = beside
        self.path = root / one.path
        self.reach = one.first  # the position that comes next
        self.rows = 0
        self.missing: list[tuple[int, int]] = []

    def row(self, kind: str, first: int, last: int, words: str, position: int | None = None) -> Row:
        return Row(kind, self.one.topic, self.one.partition, first, last, str(self.path), position, words)

    def findings(self) -> Iterator[Row]:
        one = self.one
        if not one.path:
            yield self.row("skipped", one.first, one.last, "none of these could be read when it was archived")
            return
        if (trouble := self._bytes()) is not None:
            yield trouble
            return
        try:
            yield from self._rows()
        except (pa.ArrowException, OSError) as error:
            yield self.row("unreadable", one.first, one.last, f"cannot be read as Parquet: {error}")

    def _bytes(self) -> Row | None:
        """Whether the bytes are those that were written."""
        one, size, total = self.one, 0, 0
        try:
            with open(self.path, "rb") as file:
                while piece := file.read(READ_BYTES):
                    size += len(piece)
                    total = crc32c(piece, total)
        except FileNotFoundError:
            return self._gone()
        except OSError as error:
            return self.row("unreadable", one.first, one.last, f"cannot be read ({error.strerror})")
        if size != one.bytes:
            words = f"has {size} bytes, its manifest says {one.bytes}"
            return self.row("unreadable", one.first, one.last, words, min(size, one.bytes))
        if total != one.crc:
            words = f"its bytes have the checksum {total:08x}, its manifest says {one.crc:08x}"
            return self.row("checksum", one.first, one.last, words)
        return None

    def _gone(self) -> Row:
        """A file that is not there: lost, or joined with others since the list was read."""
        one = self.one
        if one in Lake(self.root).files():
            return self.row("unreadable", one.first, one.last, "is not there although a manifest names it")
        words = f"{self.path} was joined with others while this looked at it; look again"
        return Row(NOTE, one.topic, one.partition, words=words)

    # ---- rows

    def _rows(self) -> Iterator[Row]:
        wanted = (
            KEPT.split(",") if self.beside is not None else [*POSITIONS, *(["value"] if not self.one.epoch else [])]
        )
        last_us: int | None = None
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False):
                offsets = batch.column("offset").to_numpy(zero_copy_only=False)
                yield from self._positions(batch, offsets)
                yield from self._times(batch, offsets, last_us)
                times = batch.column("timestamp")
                last_us = times[-1].value if len(times) and times[-1].is_valid else last_us
                yield from self._empty(batch, offsets)
                if self.beside is not None:
                    yield from self._compare(batch, offsets)
        self._pass_by(self.one.last)
        if self.rows != self.one.rows:
            words = f"has {self.rows} rows, its manifest says {self.one.rows}"
            yield self.row("different", self.one.first, self.one.last, words)
        known = sum(last - first for first, last in self.missing) == self.one.missing
        for first, last in self.missing:
            if known:
                yield self.row("skipped", first, last, "left out when it was archived: the log could not give them")
            else:
                yield self.row("gap", first, last, "the file has no rows of these positions")

    def _pass_by(self, position: int) -> None:
        if position > self.reach:
            self.missing.append((self.reach, position))

    def _positions(self, batch: pa.RecordBatch, offsets: np.ndarray[Any, Any]) -> Iterator[Row]:
        """Rows lie in the order of positions, each once, within what the file is named for."""
        self.rows += len(offsets)
        if not len(offsets):
            return
        if pc.any(pc.not_equal(batch.column("partition"), self.one.partition)).as_py():
            yield self.row("different", int(offsets[0]), int(offsets[-1]) + 1, "has rows of another partition")
        before = np.concatenate(([self.reach - 1], offsets[:-1]))
        for at in np.flatnonzero(offsets != before + 1).tolist():
            position, previous = int(offsets[at]), int(before[at])
            if position > previous:
                self._pass_by(position) if at == 0 else self.missing.append((previous + 1, position))
            elif position == previous:
                yield self.row("duplicate", position, position + 1, "this position has two rows")
            else:
                yield self.row("order", position, position + 1, f"stands behind position {previous}")
        if not self.one.first <= int(offsets.min()) <= int(offsets.max()) < self.one.last:
            words = f"its rows are not within the positions {self.one.first} to {self.one.last} it is named for"
            yield self.row("order", int(offsets.min()), int(offsets.max()) + 1, words)
        self.reach = max(self.reach, int(offsets.max()) + 1)

    def _times(self, batch: pa.RecordBatch, offsets: np.ndarray[Any, Any], last: int | None) -> Iterator[Row]:
        """Store times never fall."""
        times = batch.column("timestamp")
        if times.null_count:
            kept = pc.is_valid(times)
            times, offsets = times.filter(kept), offsets[kept.to_numpy(zero_copy_only=False)]
        micros = times.cast(INT).to_numpy(zero_copy_only=False)
        if not len(micros):
            return
        before = np.concatenate(([micros[0] if last is None else last], micros[:-1]))
        for at in np.flatnonzero(micros < before).tolist():
            words = f"was stored at {instant(micros[at])}, the row before it at {instant(before[at])}"
            yield self.row("order", int(offsets[at]), int(offsets[at]) + 1, words)

    def _empty(self, batch: pa.RecordBatch, offsets: np.ndarray[Any, Any]) -> Iterator[Row]:
        """Rows that stand for damaged messages: a partition's without a time, a queue's without a value."""
        empty = pc.less(batch.column("timestampType"), 0) if self.one.epoch else pc.is_null(batch.column("value"))
        for first, last in stretches(offsets[empty.to_numpy(zero_copy_only=False)]):
            yield self.row("skipped", first, last, "archived without their bodies: the log could not give them")

    # ---- beside the log

    def _compare(self, batch: pa.RecordBatch, offsets: np.ndarray[Any, Any]) -> Iterator[Row]:
        """Where a row of the archive is not the log's."""
        assert self.beside is not None
        first, last = max(int(offsets[0]), self.beside.first), min(int(offsets[-1]) + 1, self.beside.end)
        if first >= last:
            return
        kept = (offsets >= first) & (offsets < last) & (np.diff(offsets, prepend=-1) > 0)
        archived = pa.table(batch).filter(pa.array(kept))
        logged = logged_rows(self.beside.path, self.one.topic, self.one.partition, first, last)
        ours = archived.column("offset").to_numpy()
        theirs = logged.column("offset").to_numpy()
        if len(ours) != len(theirs) or (ours != theirs).any():  # what only one of them has is named elsewhere
            archived = archived.filter(pa.array(np.isin(ours, theirs)))
            logged = logged.filter(pa.array(np.isin(theirs, ours)))
        yield from self._unlike(archived, logged)

    def _unlike(self, archived: pa.Table, logged: pa.Table) -> Iterator[Row]:
        empty = pc.less(archived.column("timestampType"), 0) if self.one.epoch else None
        columns: dict[int, list[str]] = {}
        offsets = archived.column("offset").to_numpy()
        for name in COMPARED:
            left, right = archived.column(name).combine_chunks(), logged.column(name).combine_chunks()
            if not left.equals(right):
                for at in np.flatnonzero(unlike(left, right)).tolist():
                    if empty is None or not empty[at].as_py():
                        columns.setdefault(at, []).append(name)
        for at in sorted(columns):
            words = f"the log has another {' and '.join(columns[at])} there"
            yield self.row("different", int(offsets[at]), int(offsets[at]) + 1, words)


def unlike(left: pa.Array, right: pa.Array) -> np.ndarray[Any, Any]:
    """Which rows of two columns are not the same; both null is the same."""
    if pa.types.is_nested(left.type):
        return np.array([one != other for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True)])
    differ = pc.fill_null(pc.not_equal(left, right), False)
    found = pc.or_(differ, pc.xor(pc.is_null(left), pc.is_null(right)))
    return np.asarray(found.to_numpy(zero_copy_only=False))


def logged_rows(path: str, topic: str, partition: int, first: int, last: int) -> pa.Table:
    """Messages of a log in the columns of an archive."""
    options = compare_options(path)
    shape = columns.shape_of(options)
    piece = Slice(topic, partition, path, first, last)
    log: Log = open_log(piece, options)
    try:
        return pa.Table.from_batches(columns.batches(log, piece, shape, options), shape.schema)
    finally:
        log.close()


def stretches(positions: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """Positions that follow each other, as first..last."""
    if len(positions):
        edges = np.flatnonzero(np.diff(positions) != 1) + 1
        for run in np.split(positions, edges):
            yield int(run[0]), int(run[-1]) + 1


def instant(micros: int) -> str:
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=int(micros))).isoformat()
