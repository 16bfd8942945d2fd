"""What an audit looks at, cut into tasks, and the rows they give back: findings, sets that name their sender, sums.

    driver   plans pieces: the files of a log, a stretch of its record index, files of an archive (`shelves`)
    task     looks at its piece with what `serai verify` looks with (`log.audit`), names what is wrong

A stretch begins with what the records before it say comes next, so the stretches of a log together find what one walk from
its first record to its last would find.

Invariants
- nothing is changed; a server may be at work, and what retention gave up meanwhile is no finding
- a position is named as everywhere: first..last, `last` not among them
- a finding is one damage; records that are missing together, because their page is, are one finding
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from serai._core.records import HEAD_BYTES, RECORD_BYTES
from serai.errors import Corrupt, Misuse, NewerFormat
from serai.log import audit
from serai.log.bare import is_bare
from serai.log.folder import is_partition
from serai.log.format import MARKS_FILE
from serai.log.lock import is_held
from serai.log.place import kind_of
from serai.log.view import View
from serai.spark import ledger, planning
from serai.spark.offsets import now_ms, read_time
from serai.spark.options import names
from serai.spark.partitions import is_data, places_of, read_state
from serai.spark.pipes.whole import RUN_RECORDS, whole
from serai.spark.queues import is_queue
from serai.spark.slices import Slice

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from serai._core.trail import Head

KINDS = (
    "gap", "duplicate", "order", "checksum", "unreadable", "index", "transaction", "skipped", "different",
)  # fmt: skip
KIND_OF = {  # a problem of `log.audit` or `log.verify`
    "record": "checksum", "checksum": "checksum", "order": "order", "slot": "index", "index": "index", "marks": "index",
    "begin": "index", "size": "index", "name": "index", "state": "index", "hole": "gap", "missing": "gap", "unfinished": "gap",
}  # fmt: skip
SET, NOTE, UNNAMED, LOG, FILE, BEHIND = "set", "note", "unnamed", "log", "file", "behind"  # rows that are no findings
ROW = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("kind", "topic", "file", "words")),
        pa.field("partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in ("first", "last", "position", "messages", "bytes")),
        *(pa.field(name, pa.int64()) for name in ("producer", "transaction", "sequence", "part")),
    ]
)
NOT_THERE = re.compile("its (last )?page is missing|the disk does not|its begin is|the record of ordinal")
IDENTITY = ("ordinal", "messages", "producer", "transaction", "sequence", "part")  # of a set, in a head
SMALL_BYTES = 8 << 20  # below this a task of its own costs more than it saves


@dataclass(frozen=True)
class Row:
    """A finding, if its kind is one of `KINDS`."""

    kind: str
    topic: str
    partition: int | None = 0
    first: int | None = None
    last: int | None = None
    file: str | None = None
    position: int | None = None
    words: str | None = None
    messages: int = 0
    bytes: int = 0
    producer: int | None = None  # of a set, with all that follows
    transaction: int | None = None
    sequence: int | None = None
    part: int | None = None


@dataclass(frozen=True)
class Asked:
    """What is to be looked at, as it travels in the options of the source."""

    data: str | None = None
    lake: str | None = None
    topics: tuple[str, ...] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Asked:
        now = now_ms()
        times = {name: read_time(options[name], name=name, now=now) for name in ("since", "until") if name in options}
        topics = names(options["topics"]) if "topics" in options else None
        return cls(options.get("data"), options.get("lake"), topics, times.get("since"), times.get("until"))

    def wants(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


class Piece(InputPartition):
    """What one task looks at."""

    def look(self) -> Iterator[Row]:
        raise AssertionError("each kind of piece knows its own way")


@dataclass(frozen=True)
class Told(Piece):
    """What was found while the work was planned."""

    rows: tuple[Row, ...]

    def look(self) -> Iterator[Row]:
        yield from self.rows


@dataclass(frozen=True)
class Several(Piece):
    """Pieces for one task."""

    pieces: tuple[Piece, ...]

    def look(self) -> Iterator[Row]:
        for piece in self.pieces:
            yield from piece.look()


def handfuls(pieces: Sequence[tuple[Piece, int]]) -> list[Piece]:
    """Pieces and their bytes as tasks: enough for the cores, none too small to be worth one."""
    share = sum(weight for _piece, weight in pieces) // (os.cpu_count() or 1) + 1
    most = min(max(share, SMALL_BYTES), planning.TASK_BYTES_MAX)
    hands: list[list[Piece]] = [[]]
    held = 0
    for piece, weight in pieces:
        if held and held + weight > most:
            hands.append([])
            held = 0
        hands[-1].append(piece)
        held += weight
    return [Several(tuple(hand)) for hand in hands]


class AuditSource(DataSource):
    """Rows of what a log and an archive are found to be."""

    @classmethod
    def name(cls) -> str:
        return "serai-audit"

    def schema(self) -> StructType:
        return from_arrow_schema(ROW)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return Looking(Asked.of(self.options))


class Looking(DataSourceReader):
    """One audit."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        from serai.spark.pipes.shelves import Shelves

        told: list[Row] = []
        logs = places(self.asked, told)
        shelves = Shelves(self.asked, told)
        known = {topic for _path, topic, _number in logs} | shelves.topics
        missing = [topic for topic in self.asked.topics or () if topic not in known]
        if missing:
            raise Misuse(f"--topics names {', '.join(missing)}, of which nothing is there")
        found = [*pieces_of(logs, self.asked), *shelves.pieces(logs)]
        return handfuls([*found, (Told(tuple(told)), 0)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Piece):  # the other is Spark's way to say that nothing was planned
            pa.set_cpu_count(1)  # a core of this machine is what a task has
            yield pa.RecordBatch.from_pylist([asdict(row) for row in partition.look()], schema=ROW)


# ---- which logs --------------------------------------------------------------------------------------------

Place = tuple[Path, str, int]  # a folder, its topic and partition


def places(asked: Asked, told: list[Row]) -> list[Place]:
    """Every log that was asked for; none of them is opened, as it may be damaged."""
    if asked.data is None:
        return []
    root = Path(asked.data)
    if not root.is_dir():
        raise Misuse(f"--data {root} is not a directory on this machine")
    return [one for one in _below(root, told) if asked.wants(one[1])]


def _below(root: Path, told: list[Row]) -> list[Place]:
    if is_data(root):
        try:
            return places_of(root)
        except Corrupt as error:
            told.append(trouble(error, f"{error}. Without the catalogue topics are called as their folders"))
            return [(path, path.name, 0) for path in sorted((root / "p").iterdir()) if not path.name.startswith(".")]
    inner = [] if is_partition(root) or is_queue(root) else sorted(path for path in root.iterdir() if path.is_dir())
    return [(path, path.resolve().name, 0) for path in inner if is_queue(path)] or [(root, root.resolve().name, 0)]


def trouble(error: Corrupt, words: str, topic: str = "") -> Row:
    """Damage that an error tells, as a finding."""
    return Row("unreadable", topic, file=error.file, position=error.position, words=words)


def _is_queue(path: Path) -> bool:
    return is_bare(path) or (kind_of(path) == "multi" and not (path / MARKS_FILE).exists())


# ---- pieces of logs ----------------------------------------------------------------------------------------


def pieces_of(logs: Iterable[Place], asked: Asked) -> list[tuple[Piece, int]]:
    """The files of each log, and stretches of its records, with the bytes there are to read."""
    pieces: list[tuple[Piece, int]] = []
    ranges: list[Slice] = []
    weights: list[int] = []
    for path, topic, partition in logs:
        queue = _is_queue(path)
        if queue and (asked.since_ms is not None or asked.until_ms is not None):
            raise Misuse(f"{path} is a queue, whose messages have no store time: leave --since and --until out")
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if queue else 0
        pieces.append((Files(topic, partition, str(path)), size))
        if not queue and is_partition(path) and (stretch := _stretch(path, asked)) is not None:
            ranges.append(Slice(topic, partition, str(path), *(at // RECORD_BYTES for at in stretch)))
            weights.append(_bytes_of(path, *stretch))
    cores = os.cpu_count() or 1
    each = sum(weights) / max(sum(map(len, ranges)), 1)  # bytes of a record
    cutting = planning.Cutting(cores if sum(weights) > cores * SMALL_BYTES else None, None, cores)
    for one in planning.divide(ranges, weights, cutting):
        records = Records(one.topic, one.partition, one.path, one.first, one.last)
        pieces.append((records, round(len(one) * each)))
    if asked.data is not None and asked.topics is None and is_partition(Path(asked.data) / "s" / ledger.STATE):
        pieces.append((Batches(asked.data), 0))
    return pieces


def _stretch(path: Path, asked: Asked) -> tuple[int, int] | None:
    """The record index offsets to look at; None when nobody can say, which `Files` names."""
    try:
        view = View(path)
    except (Corrupt, NewerFormat, FileNotFoundError):  # no marks, no words to read it by
        return None
    with view:
        bounds = view.bounds()
        start, stop = bounds.first_record, bounds.record_end
        with suppress(Corrupt):  # a search that damage leads astray: then all of it is looked at
            late = start if asked.since_ms is None else view.trail.find_time(asked.since_ms, first=start, end=stop)
            soon = stop if asked.until_ms is None else view.trail.find_time(asked.until_ms, first=start, end=stop)
            return late, max(late, soon)
        return start, stop


def _bytes_of(path: Path, start: int, stop: int) -> int:
    with View(path) as view, suppress(Corrupt):
        if start < stop:
            return max(view.trail.record(stop - RECORD_BYTES)[2] - view.trail.record(start)[2], 0)
    return 0


@dataclass(frozen=True)
class Files(Piece):
    """The files of a log from outside; a queue whole, as it has no records to divide it by."""

    topic: str
    partition: int
    path: str

    def look(self) -> Iterator[Row]:
        report, path = audit.Report(""), Path(self.path)
        if _is_queue(path):
            audit.look_at_queue(path, self.topic, report)
        elif (view := audit.opened(path, self.topic, report)) is not None:
            view.close()
        yield from rows_of(report, self.topic, self.partition)


@dataclass(frozen=True)
class Records(Piece):
    """A stretch of the records of a log, by their numbers in the record index."""

    topic: str
    partition: int
    path: str
    first: int
    last: int

    def look(self) -> Iterator[Row]:
        report = audit.Report("")
        with View(self.path) as view:
            for start, stop in self._runs(view):
                found = whole(view, start, stop)
                if found is None:
                    yield from self._walk(start, stop, report)
                    continue
                heads, begins = found
                report.messages += int(heads["messages"].sum(dtype="i8"))
                report.bytes += int(heads["length"].sum(dtype="i8")) - HEAD_BYTES * len(heads)
                sent = heads["producer"] != 0
                for head, begin in zip(heads[sent], begins[sent].tolist(), strict=True):
                    yield self._set(view, begin, {name: int(head[name]) for name in IDENTITY})
        yield from rows_of(report, self.topic, self.partition)

    def _runs(self, view: View) -> Iterator[tuple[int, int]]:
        """Record index offsets; the last record of a log is by itself, for the walk, which knows how a log ends."""
        stop = self.last * RECORD_BYTES
        end = min(stop, view.bounds().record_end - RECORD_BYTES)
        for start in range(self.first * RECORD_BYTES, end, RUN_RECORDS * RECORD_BYTES):
            yield start, min(start + RUN_RECORDS * RECORD_BYTES, end)
        if end < stop:
            yield max(end, self.first * RECORD_BYTES), stop

    def _walk(self, start: int, stop: int, report: audit.Report) -> Iterator[Row]:
        """The same, record by record: this names what is wrong."""
        heads: list[Head] = []
        view = View(self.path)
        for _ in audit.Walk(view, self.topic, report, start=start, stop=stop, each=heads.append).run():
            pass
        for head in heads:
            if head.producer:
                yield self._set(view, head.begin, head._asdict())

    def _set(self, view: View, begin: int, words: Mapping[str, int]) -> Row:
        file, position = view.folder.where(begin)
        return Row(
            SET, self.topic, self.partition, words["ordinal"], words["ordinal"] + words["messages"], str(file), position,
            producer=signed(words["producer"]), transaction=signed(words["transaction"]), sequence=words["sequence"],
            part=words["part"],
        )  # fmt: skip


def signed(number: int) -> int:
    """64 bits as Spark has them."""
    return number - (number >> 63 << 64)


@dataclass(frozen=True)
class Batches(Piece):
    """What the sink's ledger has decided and nobody has finished."""

    data: str

    def look(self) -> Iterator[Row]:
        home = Path(self.data) / "s" / ledger.STATE
        try:
            entries = read_state(home)
        except Corrupt as error:
            yield trouble(error, str(error))
            return
        busy = is_held(Path(self.data) / "lock")
        for key, raw in sorted(entries.items()):
            entry = ledger.Entry.load(raw)
            if not entry.copying:
                continue
            text = f"batch {entry.batch} of writer {key.decode()} was decided and is not finished"
            if busy:
                yield Row(NOTE, "", words=f"{text}; {self.data} is in use, so somebody may be at it")
            else:
                text = f"{text}: a part of its messages is in the log; whoever commits there next brings the rest"
                yield Row("transaction", "", None, file=str(home), words=text)


# ---- rows of a report --------------------------------------------------------------------------------------


def rows_of(report: audit.Report, topic: str, partition: int) -> Iterator[Row]:
    """What was looked at, and the problems as findings."""
    yield Row(LOG, topic, partition, messages=report.messages, bytes=report.bytes)
    yield from (Row(NOTE, topic, partition, words=note) for note in report.notes)
    if report.unnamed:
        yield Row(UNNAMED, topic, partition, messages=report.unnamed)
    yield from merged(_finding(problem, topic, partition) for problem in report.problems)


def _finding(problem: audit.Problem, topic: str, partition: int) -> Row:
    kind = KIND_OF.get(problem.kind, "unreadable")
    if problem.kind == "record" and NOT_THERE.match(problem.text):
        kind = "unreadable"
    return Row(kind, topic, partition, problem.ordinal, problem.end, problem.file, problem.position, problem.text)


def merged(rows: Iterable[Row]) -> Iterator[Row]:
    """Findings of one kind, file and reason that follow each other as one."""
    last: Row | None = None
    for row in rows:
        if last is not None and _go_on(last, row):
            last = replace(last, last=row.last)
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _go_on(last: Row, row: Row) -> bool:
    same = (last.kind, last.topic, last.partition, last.file, last.words, last.last)
    return row.kind in ("unreadable", "different") and same == (
        row.kind, row.topic, row.partition, row.file, row.words, row.first,
    )  # fmt: skip
