"""An archive as a stream: its messages as rows, read inside the tasks, in the order of each partition.

    driver   files of the manifests -> a chain for each partition: its logs, the older first, and their positions
    task     the pieces of one chain, one behind the other: Parquet -> Arrow, less what lies outside the span

    {"since": 1700000000000000, "topics": {"orders": {"0/5d41402a": 1500}}, "v": 1}       a place in the stream

A number is the next position of a partition's log, which has a mark for a name; so files may be written anew with the same
rows, and the place stands.  A span that was said as `now-1h` is read once, and travels with the place.

Invariants
- rows of a partition come in the order they were stored, within a batch and from batch to batch
- the same two places give the same rows, whatever came to the archive since
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from serai.errors import Misuse
from serai.spark import columns, planning
from serai.spark.options import names, read_options
from serai.spark.pipes.export import KEPT
from serai.spark.pipes.lake import File, Lake
from serai.spark.pipes.wanted import Wanted

VERSION = 1
ROWS = 20_000  # of an Arrow batch
LogKey = tuple[str, int, str]


def schema_of(root: Path) -> pa.Schema:
    return columns.shape_of(read_options({"logDir": str(root), "columns": f"topic,{KEPT}"})).schema


@dataclass(frozen=True)
class Stop:
    """A place in the stream: the next position of each log, and the span it is read with."""

    positions: Mapping[LogKey, int]
    since_us: int | None
    until_us: int | None

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, dict[str, int]] = {}
        for topic, partition, epoch in sorted(self.positions):
            topics.setdefault(topic, {})[f"{partition}/{epoch}"] = self.positions[topic, partition, epoch]
        spans = {"since": self.since_us, "until": self.until_us}
        return {name: value for name, value in spans.items() if value is not None} | {"topics": topics, "v": VERSION}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Stop:
        if given.get("v") != VERSION:
            raise Misuse(f"the checkpoint's place has version {given.get('v')!r}, this serai reads version {VERSION}")
        found = {}
        for topic, logs in given["topics"].items():
            for name, position in logs.items():
                partition, _, epoch = name.partition("/")
                found[topic, int(partition), epoch] = position
        return cls(found, given.get("since"), given.get("until"))


@dataclass(frozen=True)
class Piece:
    """Positions low..high of one file."""

    path: str
    low: int
    high: int


@dataclass(frozen=True)
class Reading(InputPartition):
    """What one task reads: pieces of one partition, in their order."""

    topic: str
    pieces: tuple[Piece, ...]
    since_us: int | None
    until_us: int | None


class LakeSource(DataSource):
    """Options `lake`, `topics`, `since`, `until`, `batchRows`."""

    @classmethod
    def name(cls) -> str:
        return "serai-lake"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(Path(self.options["lake"])))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        given = self.options.get("topics")
        wanted = Wanted.of(names(given) if given else None, self.options.get("since"), self.options.get("until"))
        return LakeStream(Path(self.options["lake"]), wanted, int(self.options["batchRows"]))


class LakeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as the query runs."""

    def __init__(self, root: Path, wanted: Wanted, rows_max: int) -> None:
        self.root = root
        self.wanted = wanted
        self.rows_max = rows_max
        self._lake: Lake | None = None
        self._target: dict[LogKey, int] | None = None
        self._latest: Stop | None = None
        self._turn = 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lake": None, "_target": None, "_latest": None}

    def _logs(self) -> dict[LogKey, list[File]]:
        """The files of each log, as far as they are wanted."""
        self._lake = self._lake or Lake(self.root)
        found: dict[LogKey, list[File]] = {}
        for one in self._lake.files():
            if self.wanted.has(one.topic):
                found.setdefault(one.log, []).append(one)
        for key, files in found.items():
            check_apart(self.root, key, files)
        return found

    # ---- where it stands

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        first = {key: files[0].first for key, files in self._logs().items()}
        return Stop(first, self.wanted.since_us, self.wanted.until_us).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = ends_of(self._logs())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self.rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._latest is None else self._latest.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begin, logs = Stop.from_json(start), self._logs()
        ends = ends_of(logs)
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
        self._latest = replace(begin, positions=ends)
        left = {key: pieces_of(files, begin.positions.get(key, 0), ends[key]) for key, files in logs.items()}
        ordered = list(chains(logs).values())
        backlogs = [sum(one.high - one.low for key in chain for one in left[key]) for chain in ordered]
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlogs)
        positions = dict(begin.positions)
        for chain, part in zip(ordered, planning.share(rows, backlogs, turn=self._turn), strict=True):
            rest = part
            for key in chain:
                for piece in left[key]:
                    step = min(rest, piece.high - piece.low)
                    rest -= step
                    positions |= {key: piece.low + step} if step else {}
        self._turn += 1
        return start if positions == begin.positions else replace(begin, positions=positions).to_json()

    # ---- a batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop, logs = Stop.from_json(start), Stop.from_json(end), self._logs()
        span = replace(self.wanted, since_us=stop.since_us, until_us=stop.until_us)
        self._check_there(logs, stop)
        found = []
        for (topic, _partition), chain in chains(logs).items():
            pieces: list[Piece] = []
            for key in chain:
                files = [one for one in logs[key] if span.may_be_in(one)]
                pieces += pieces_of(files, begin.positions.get(key, 0), stop.positions.get(key, 0))
            if pieces:
                found.append(Reading(topic, tuple(pieces), stop.since_us, stop.until_us))
        return found

    def _check_there(self, logs: Mapping[LogKey, Sequence[File]], stop: Stop) -> None:
        ends = ends_of(logs)
        for key, position in stop.positions.items():
            if ends.get(key, 0) < position:
                raise Misuse(
                    f"{self.root} has positions of topic {key[0]} partition {key[1]} up to {ends.get(key, 0)}, and this run had "
                    f"read up to {position}: it is another archive, or a part of it is gone. Bring it back, or give --checkpoint"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Reading):  # Spark's way to say that nothing was planned
            return
        pa.set_cpu_count(1)  # a core of this machine is what a task has
        schema = schema_of(self.root)
        for piece in partition.pieces:
            yield from self._rows(partition, piece, schema)

    def _rows(self, reading: Reading, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        keep = (ds.field("offset") >= piece.low) & (ds.field("offset") < piece.high)
        if reading.since_us is not None:
            keep &= ds.field("timestamp") >= pa.scalar(reading.since_us, columns.INSTANT)
        if reading.until_us is not None:
            keep &= ds.field("timestamp") < pa.scalar(reading.until_us, columns.INSTANT)
        own = [name for name in schema.names if name != "topic"]
        file = ds.dataset(str(self.root / piece.path), format="parquet")
        for batch in file.to_batches(
            columns=own, filter=keep, batch_size=ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
        ):
            if batch.num_rows:
                topic = pa.repeat(pa.scalar(reading.topic, pa.string()), batch.num_rows)
                arrays = [topic if one.name == "topic" else batch.column(one.name).cast(one.type) for one in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def ends_of(logs: Mapping[LogKey, Sequence[File]]) -> dict[LogKey, int]:
    return {key: max(one.last for one in files) for key, files in logs.items()}


def pieces_of(files: Iterable[File], first: int, last: int) -> list[Piece]:
    """What files have of the positions first..last."""
    edges = ((one.path, max(one.first, first), min(one.last, last)) for one in files)
    return [Piece(path, low, high) for path, low, high in edges if low < high]


def chains(logs: Mapping[LogKey, Sequence[File]]) -> dict[tuple[str, int], list[LogKey]]:
    """The logs a partition had, the older first: a topic that was made again has several."""
    found: dict[tuple[str, int], list[LogKey]] = {}
    for key in sorted(logs, key=lambda key: (min((one.min_us or 0) for one in logs[key]), key)):
        found.setdefault(key[:2], []).append(key)
    return found


def check_apart(root: Path, key: LogKey, files: Sequence[File]) -> None:
    """An error when positions stand for two messages: a queue that was made again has no name of its own."""
    end = 0
    for one in files:
        if one.first < end:
            raise Misuse(
                f"{root} has positions {one.first} to {min(one.last, end)} of {key[0]} twice: the queue was made again between two "
                "archives, and which message is meant cannot be told. Read them with `serai.spark.pipes.archive.load`"
            )
        end = one.last
