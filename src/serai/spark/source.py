"""What Spark calls: `format("serai")` for batches and streams.

    driver   SeraiSource -> Batch.partitions                              every query once
                         -> Stream.initialOffset, latestOffset, partitions    one object as long as the query runs
    tasks    read(slice): opens the log, yields Arrow batches

A stream holds its logs open between batches; what travels to tasks is options, shape and slice.

Invariants
- positions are asked once for a batch, below the committed end unless `isolation=uncommitted`
- `latestOffset` never goes back, and under AvailableNow never beyond what was there when the query started
- messages that are gone are an error with numbers, or with failOnDataLoss=false a warning with the same numbers
"""

import datetime as dt
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as api
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from serai.spark import columns, offsets, planning, sink
from serai.spark.offsets import EARLIEST, LATEST, Key, Offsets, key_of
from serai.spark.options import Options, read_options
from serai.spark.slices import DataLoss, Log, Slice, find_logs, open_log

log_to = logging.getLogger("serai.spark")
HEAVY = frozenset({"key", "value", "headers"})  # columns whose bytes are those of the messages
BYTES_A_CORE = 1 << 30  # of one batch of a stream, unless an option says else


class SeraiSource(DataSource):
    """`spark.read.format("serai")` and `readStream`."""

    extra: tuple[str, ...] = ()  # names of options a subclass reads itself

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.asked: Options = read_options(options, extra=self.extra)

    @classmethod
    def name(cls) -> str:
        return "serai"

    def shape(self) -> columns.Shape:
        return columns.shape_of(self.asked)

    def schema(self) -> StructType:
        return columns.spark_schema(self.shape())

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = PushingBatch if self.asked.pushdown else Batch
        return kind(self.asked, columns.shape_of(self.asked, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return Stream(self.asked, columns.shape_of(self.asked, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        return sink.BatchWriter(self.asked, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        return sink.StreamWriter(self.asked, schema, overwrite=overwrite)


def read_slice(piece: InputPartition, shape: columns.Shape, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of one slice, in the process that needs them."""
    if not isinstance(piece, Slice):  # Spark's way to say that nothing was planned
        return
    log = open_log(piece, options)
    try:
        yield from columns.batches(log, piece, shape, options)
    finally:
        log.close()


@contextmanager
def closing_all(logs: list[Log]) -> Iterator[list[Log]]:
    try:
        yield logs
    finally:
        for log in logs:
            log.close()


def slices_of(
    logs: Sequence[Log], ranges: Mapping[Key, tuple[int, int]], shape: columns.Shape, options: Options
) -> list[Slice]:
    """Ranges of positions as slices for tasks; large bodies make more of them if they are read."""
    found = [(log, *ranges[key_of(log)]) for log in logs if key_of(log) in ranges]
    whole = [Slice(log.topic, log.partition, log.path, first, max(first, last)) for log, first, last in found]
    heavy = not shape.own.isdisjoint(HEAVY)
    weights = [log.weigh(first, last) if heavy else 0 for log, first, last in found]
    cutting = planning.Cutting(options.min_partitions, options.max_records_per_partition, os.cpu_count() or 1)
    return planning.divide(whole, weights, cutting)


def ends_of(logs: Sequence[Log], options: Options) -> dict[Key, int]:
    return {key_of(log): log.end(committed=options.isolation == "committed") for log in logs}


def settle(log: Log, position: int, stop: int, mark: str, options: Options) -> int:
    """Where reading goes on at a remembered position: there, or, when messages are gone, where there are some."""
    first, found = log.first(), ""
    if position > stop:
        found = (
            f"position {position} was read before, but the log ends at {stop}: it was cut or made again; "
            f"reading goes on at {first}"
        )
    elif position < first:
        found = f"positions {position} to {first} are no longer there, {first - position} messages; the first one is {first}"
    elif mark and (now := log.mark(position)) and now != mark:
        found = (
            f"the message before position {position} is another one (mark {now}, was {mark}): the log was made again; reading "
            f"goes on at {first}, and up to {position - first} messages of the new log would have been passed over"
        )
    if not found:
        return position
    words = f"topic {log.topic} partition {log.partition} in {log.path}: {found}"
    if options.fail_on_data_loss:
        raise DataLoss(f"{words}. Option failOnDataLoss=false goes on without them")
    log_to.warning("%s", words)
    return first


# ---- batches -----------------------------------------------------------------------------------------------


class Batch(DataSourceReader):
    """One query over what is there."""

    def __init__(self, options: Options, shape: columns.Shape) -> None:
        self.options = options
        self.shape = shape

    def partitions(self) -> Sequence[InputPartition]:
        with closing_all(find_logs(self.options)) as logs:
            return slices_of(logs, self._ranges(logs), self.shape, self.options)

    def count(self) -> int:
        """Rows there are, without reading one."""
        with closing_all(find_logs(self.options)) as logs:
            ranges = self._ranges(logs)
            return sum(log.count(first, max(first, last)) for log in logs for first, last in [ranges[key_of(log)]])

    def _ranges(self, logs: list[Log]) -> dict[Key, tuple[int, int]]:
        ends = ends_of(logs, self.options)
        begin = offsets.starting(self.options, logs, default=EARLIEST, ends=ends)
        stop = offsets.ending(self.options, logs, ends=ends)
        ranges = {}
        for log in logs:
            key = key_of(log)
            ranges[key] = (settle(log, begin[key], ends[key], "", self.options), min(stop[key], ends[key]))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slice(partition, self.shape, self.options)


class PushingBatch(Batch):
    """Takes filters on offset, partition, topic and timestamp; Spark refuses the method unless its conf allows it."""

    def __init__(self, options: Options, shape: columns.Shape) -> None:
        super().__init__(options, shape)
        self.low, self.high = 0, 1 << 62
        self.kept: list[tuple[str, tuple[Any, ...]]] = []
        self.since_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for one in filters:
            if not self._takes(one):
                yield one

    def _takes(self, one: Filter) -> bool:
        """Whether the plan answers a filter exactly; a time only narrows the plan."""
        column = ".".join(getattr(one, "attribute", ()))
        value = getattr(one, "value", None)
        if column == "timestamp" and isinstance(one, (api.GreaterThan, api.GreaterThanOrEqual)):
            if isinstance(value, dt.datetime):
                self.since_ms = max(self.since_ms or 0, int(value.timestamp() * 1000))
            return False
        if column in ("topic", "partition") and isinstance(one, (api.EqualTo, api.In)):
            self.kept.append((column, tuple(one.value) if isinstance(one, api.In) else (value,)))
            return True
        if column != "offset" or not isinstance(value, int):
            return False
        low, high = BOUNDS.get(type(one), lambda _value: (None, None))(value)
        if low is None or high is None:
            return False
        self.low, self.high = max(self.low, low), min(self.high, high)
        return True

    def _ranges(self, logs: list[Log]) -> dict[Key, tuple[int, int]]:
        ranges = super()._ranges(logs)
        found = {}
        for log in logs:
            first, last = ranges[key_of(log)]
            own = {"topic": log.topic, "partition": log.partition}
            if any(own[column] not in values for column, values in self.kept):
                continue
            if self.since_ms is not None:
                first = max(first, log.at_time(self.since_ms))
            found[key_of(log)] = (max(first, self.low), min(last, self.high))
        return found


BOUNDS: dict[type, Any] = {
    api.EqualTo: lambda value: (value, value + 1),
    api.GreaterThan: lambda value: (value + 1, 1 << 62),
    api.GreaterThanOrEqual: lambda value: (value, 1 << 62),
    api.LessThan: lambda value: (0, value),
    api.LessThanOrEqual: lambda value: (0, value + 1),
}


# ---- streams -----------------------------------------------------------------------------------------------


class Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query that goes on; lives on the driver as long as it runs."""

    def __init__(self, options: Options, shape: columns.Shape) -> None:
        self.options = options
        self.shape = shape
        self._forget()

    def _forget(self) -> None:
        self._logs: list[Log] = []
        self._first: Offsets | None = None
        self._target: dict[Key, int] | None = None
        self._latest: Offsets | None = None
        self._last_batch = time.monotonic()
        self._turn = 0

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: no log, no map, no descriptor."""
        return {"options": self.options, "shape": self.shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _open(self) -> list[Log]:
        """The logs, opened once; topics and partitions that came since are found too."""
        known = {key_of(log): log for log in self._logs}
        found = []
        for log in find_logs(self.options):
            if key_of(log) in known:
                log.close()
                log = known[key_of(log)]
            found.append(log)
        self._logs = found
        return found

    # ---- where it stands

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Asked twice at the first start: the answer is kept, or `latest` would move in between."""
        if self._first is None:
            logs = self._open()
            ends = ends_of(logs, self.options)
            begin = offsets.starting(self.options, logs, default=LATEST, ends=ends)
            self._first = self._marked(logs, begin)
        return self._first.to_json()

    def _marked(self, logs: Sequence[Log], positions: Mapping[Key, int]) -> Offsets:
        marks = {key_of(log): log.mark(positions[key_of(log)]) for log in logs if key_of(log) in positions}
        return Offsets(dict(positions), marks)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = ends_of(self._open(), self.options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        return ReadMaxBytes(self._bytes_max()) if self._bytes_max() else ReadAllAvailable()

    def _bytes_max(self) -> int:
        given = self.options.max_bytes_per_trigger
        return BYTES_A_CORE * (os.cpu_count() or 1) if given is None else given

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._latest is None else self._latest.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next batch goes."""
        logs = self._open()
        ends = ends_of(logs, self.options)
        begin = self._begin(logs, Offsets.from_json(start))
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
        self._latest = Offsets(dict(ends))
        backlog = sum(ends[key] - begin[key] for key in begin if ends[key] > begin[key])
        if backlog == 0 or self._waits(backlog):
            return start
        stop = self._admit(logs, begin, ends, limit)
        self._last_batch = time.monotonic()
        self._turn += 1
        return self._marked(logs, stop).to_json()

    def _begin(self, logs: Sequence[Log], start: Offsets) -> dict[Key, int]:
        """Where the batch begins in each log: as remembered, or at the first message of a log that is new."""
        begin = {}
        for log in logs:
            key = key_of(log)
            position, mark = start.positions.get(key), start.marks.get(key, "")
            begin[key] = (
                log.first() if position is None else settle(log, position, log.end(committed=False), mark, self.options)
            )
        self._check_gone(start, begin)
        return begin

    def _check_gone(self, start: Offsets, begin: Mapping[Key, int]) -> None:
        gone = [key for key in start.positions if key not in begin]
        if gone and self.options.fail_on_data_loss:
            words = ", ".join(f"{topic} partition {partition}" for topic, partition in gone)
            raise DataLoss(
                f"{words}: read before, and no longer there. Option failOnDataLoss=false goes on without them"
            )

    def _waits(self, backlog: int) -> bool:
        """Whether a batch would be smaller than wanted and its time has not come."""
        least = self.options.min_offsets_per_trigger
        if least is None or self._target is not None or backlog >= least:
            return False
        return time.monotonic() - self._last_batch < self.options.max_trigger_delay_ms / 1000

    def _admit(
        self, logs: Sequence[Log], begin: Mapping[Key, int], ends: Mapping[Key, int], limit: ReadLimit
    ) -> dict[Key, int]:
        """The stop of each log within the limits."""
        keys = [key_of(log) for log in logs]
        stop = {key: max(ends[key], begin[key]) for key in keys}
        if isinstance(limit, ReadAllAvailable):
            return stop
        if isinstance(limit, ReadMaxRows):
            parts = planning.share(limit.max_rows, [stop[key] - begin[key] for key in keys], turn=self._turn)
            stop = {key: begin[key] + part for key, part in zip(keys, parts, strict=True)}
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._bytes_max()
        if bytes_max:
            weights = [log.weigh(begin[key], stop[key]) for log, key in zip(logs, keys, strict=True)]
            parts = planning.share(bytes_max, weights, turn=self._turn)
            for log, key, part, weight in zip(logs, keys, parts, weights, strict=True):
                if part < weight and stop[key] > begin[key]:
                    stop[key] = log.within(begin[key], stop[key], part)
        return stop

    # ---- a batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        logs = self._open()
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        ranges = {}
        for log in logs:
            key = key_of(log)
            if key in stop.positions:
                first, last = begin.positions.get(key, log.first()), stop.positions[key]
                ranges[key] = (settle(log, first, last, begin.marks.get(key, ""), self.options), last)
        return slices_of(logs, ranges, self.shape, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_slice(partition, self.shape, self.options)

    def stop(self) -> None:
        for log in self._logs:
            log.close()
        self._logs = []
