"""The queues a merge reads: where each stands, what of them is ready, and those rows in one order.

stretches     positions first..last of each queue, in the order that decides between equal ids
decide        looks at ids and positions alone: what is wrong with them, and where what is ready ends
rows          the messages of stretches, sorted
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, DecimalType, IntegralType, StringType, TimestampType

from serai.errors import Misuse
from serai.spark import columns
from serai.spark.offsets import Offsets
from serai.spark.options import names, read_options
from serai.spark.partitions import is_data, logs_of
from serai.spark.pipes import batches
from serai.spark.slices import find_logs
from serai.spark.source import closing_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, Row, SparkSession

    from serai.spark.pipes.merge import Merge

WHOLE = ("key", "headers", "sendTime")  # what a message of a data directory has beside its body
KINDS = (IntegralType, DecimalType, StringType, DateType, TimestampType)
Positions = list[dict[str, dict[str, int]]]  # of each directory: topic, partition


@dataclass(frozen=True)
class Stretch:
    """Positions first..last of one queue, `last` not among them."""

    order: int  # among all queues
    home: int  # which directory
    topic: str
    partition: int
    first: int
    last: int
    words: str  # its name for people

    def __len__(self) -> int:
        return max(self.last - self.first, 0)


@dataclass(frozen=True)
class Decided:
    """What goes out."""

    stretches: list[Stretch]
    last: str | None  # the greatest id of it
    dropped: int

    @property
    def moved(self) -> bool:
        return any(len(one) for one in self.stretches)


class Queues:
    """All queues of one merge."""

    def __init__(self, pipe: Merge, spark: SparkSession) -> None:
        self.pipe = pipe
        self.spark = spark
        self.options = [
            batches.reading(
                one, fields=pipe.fields, decode=pipe.decode, topics=pipe.topics if is_log(one) else None,
                on_corrupt=pipe.on_corrupt,
            )
            for one in names(pipe.data)
        ]  # fmt: skip
        self.kind = self._kind_of_id()

    def _kind_of_id(self) -> Any:
        """The type of the id; a column that cannot be one is an error before anything is read."""
        shape = columns.shape_of(read_options(self.options[0]))
        taken = {"value", "offset", *WHOLE} & set(shape.body.names)
        if taken:
            raise Misuse(f"--fields names {min(taken)!r}, which is the message's own: give the field another name")
        kinds = {one.name: one.dataType for one in columns.spark_schema(shape)}
        kind = kinds.get(self.pipe.by)
        if kind is None:
            raise Misuse(f"--by is {self.pipe.by!r}, and a message has no such column; it has {', '.join(kinds)}")
        if not isinstance(kind, KINDS):
            raise Misuse(
                f"--by is {self.pipe.by!r}, which is {kind.simpleString()}: an id is a whole number, a decimal, a text or a time"
            )
        return kind

    def check_target(self) -> None:
        """A merge that begins anew does so with a topic that has nothing."""
        pipe, to = self.pipe, Path(self.pipe.to)
        inputs = [Path(one).resolve() for one in names(pipe.data)]
        if to.resolve() in inputs and pipe.topic in names(pipe.topics or pipe.topic):
            raise Misuse(
                f"--to is one of --data, and topic {pipe.topic} would be merged into itself: name another --topic"
            )
        if not to.is_dir() or not is_data(to):
            return
        with closing_all([log for log in logs_of(to) if log.topic == pipe.topic]) as logs:
            there = sum(log.end(committed=False) for log in logs)
        if there:
            raise Misuse(
                f"{to} has {there:,} messages in topic {pipe.topic}, and no run that could go on from there is remembered: name "
                "another --topic, or the --checkpoint that was used"
            )

    # ---- positions

    @cached_property
    def _topics(self) -> tuple[str, ...]:
        return names(self.pipe.topics) if self.pipe.topics else ()

    def stretches(self, since: Positions, ends: Sequence[Offsets]) -> list[Stretch]:
        """What is there behind `since`, up to where the batch may look."""
        found: list[Stretch] = []
        for home, options in enumerate(self.options):
            done = since[home] if since else {}
            with closing_all(find_logs(read_options(options))) as logs:
                rank = {topic: at for at, topic in enumerate(self._topics)}
                for log in sorted(logs, key=lambda log: (rank.get(log.topic, 0), log.topic, log.partition)):
                    first = done.get(log.topic, {}).get(str(log.partition), log.first())
                    last = max(first, ends[home].positions.get((log.topic, log.partition), first))
                    found.append(self._stretch(len(found), home, log.topic, log.partition, first, last))
        return found

    def _stretch(self, order: int, home: int, topic: str, partition: int, first: int, last: int) -> Stretch:
        directory = names(self.pipe.data)[home]
        words = f"{directory} topic {topic} partition {partition}" if is_log(directory) else directory
        words = words if is_log(directory) or Path(directory).name == topic else f"{directory}/{topic}"
        return Stretch(order, home, topic, partition, first, last, words)

    def between(self, first: Positions, last: Positions) -> list[Stretch]:
        """Stretches of two positions that were remembered."""
        found: list[Stretch] = []
        for home, topics in enumerate(last):
            for topic, parts in topics.items():
                for part, stop in parts.items():
                    start = first[home][topic][part]
                    found.append(self._stretch(len(found), home, topic, int(part), start, stop))
        return found

    def waiting(self, done: Positions) -> list[Stretch]:
        """What is there now and has not gone out."""
        ends = []
        for options in self.options:
            with closing_all(find_logs(read_options(options))) as logs:
                ends.append({(log.topic, log.partition): log.end(committed=True) for log in logs})
        return self.stretches(done, [Offsets(one) for one in ends])

    def positions(self, stretches: Sequence[Stretch], edge: str) -> Positions:
        """One edge of stretches, in their order, to be remembered."""
        found: Positions = [{} for _ in self.options]
        for one in stretches:
            found[one.home].setdefault(one.topic, {})[str(one.partition)] = getattr(one, edge)
        return found

    # ---- rows

    def _frame(self, one: Stretch, wanted: Sequence[str]) -> DataFrame:
        told = {one.topic: {str(one.partition): one.first}}, {one.topic: {str(one.partition): one.last}}
        options = {name: text for name, text in self.options[one.home].items() if name != "subscribe"}
        options |= {"startingOffsets": json.dumps(told[0]), "endingOffsets": json.dumps(told[1])}
        options |= {"assign": json.dumps({one.topic: [one.partition]}), "columns": ",".join(wanted)}
        return self.spark.read.format("serai").options(**options).load().withColumn("_queue", f.lit(one.order))

    def rows(self, stretches: Sequence[Stretch], after: str | None) -> DataFrame:
        """The messages of stretches in their order, as the sink takes them."""
        by, frames = self.pipe.by, []
        for one in stretches:
            if len(one):
                own = WHOLE if is_log(names(self.pipe.data)[one.home]) else ()
                frames.append(self._frame(one, list(dict.fromkeys((by, "offset", "value", *own)))))
        rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)
        if after is not None:
            rows = rows.where(f.col(by) > f.lit(after).cast(self.kind))
        if self.pipe.duplicates == "drop":
            nth = f.row_number().over(Window.partitionBy(by).orderBy("_queue", "offset"))
            rows = rows.withColumn("_nth", nth).where("_nth = 1")
        kept = [f.col(name) for name in ("key", "headers") if name in rows.columns]
        kept += [f.col("sendTime").alias("timestamp")] if "sendTime" in rows.columns else []
        return rows.orderBy(by, "_queue", "offset").select("value", *kept, f.lit(0).alias("partition"))

    # ---- what is ready

    def decide(self, stretches: list[Stretch], last: str | None, *, final: bool) -> Decided:
        """Where what is ready ends in each queue; ids that cannot be merged are an error with their place."""
        nothing = Decided([replace(one, last=one.first) for one in stretches], None, 0)
        there = [one for one in stretches if len(one)]
        if not there or (not final and len(there) < len(stretches)):  # a queue that brought nothing may bring any id
            return nothing
        ids = reduce(DataFrame.unionAll, [self._ids(one) for one in there])
        late = f.coalesce(f.col("id") <= f.lit(last).cast(self.kind), f.lit(False))
        ids = ids.withColumn("live", f.when(~late, f.col("id"))).withColumn("late", late).persist()
        try:
            found = {row["_queue"]: row for row in self._survey(ids)}
            self._check(there, found, last)
            bounds = [row["top"] for row in found.values()]
            if not final and (len(bounds) < len(there) or None in bounds):
                return nothing
            ready = f.col("live").isNotNull() if final else f.col("live") < f.lit(min(bounds)).cast(self.kind)
            return self._ready(stretches, ids, ready)
        finally:
            ids.unpersist()

    def _ids(self, one: Stretch) -> DataFrame:
        return self._frame(one, list(dict.fromkeys((self.pipe.by, "offset")))).select(
            "_queue", "offset", f.col(self.pipe.by).alias("id")
        )

    def _survey(self, ids: DataFrame) -> list[Row]:
        """For each queue: its last id, and where something is wrong first."""
        before = Window.partitionBy("_queue").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
        told = ids.withColumn("before", f.last("live", ignorenulls=True).over(before))
        first = {
            "null_at": f.col("id").isNull(), "late_at": f.col("late"), "down_at": f.col("live") < f.col("before"),
        }  # fmt: skip
        return told.groupBy("_queue").agg(
            f.max("live").alias("top"),
            *(f.min(f.when(wrong, f.struct("offset", "id", "before"))).alias(name) for name, wrong in first.items()),
        ).collect()  # fmt: skip

    def _check(self, stretches: Sequence[Stretch], found: Mapping[int, Row], last: str | None) -> None:
        by = self.pipe.by
        for one in stretches:
            row = found.get(one.order)
            if row is None:  # none of its messages could be read, and that was allowed
                continue
            if row["null_at"] is not None:
                at = row["null_at"]["offset"]
                raise Misuse(
                    f"{one.words}, offset {at}: the message has no {by} (null), so it has no place in the order"
                )
            if row["down_at"] is not None:
                at, now, before = row["down_at"]
                raise Misuse(
                    f"{one.words}, offset {at}: {by} {now} comes behind {before}; a queue that is merged is in the order of its ids"
                )
            if row["late_at"] is not None and self.pipe.late == "fail":
                at, now, _before = row["late_at"]
                raise Misuse(
                    f"{one.words}, offset {at}: {by} {now} is late, ids up to {last} are merged already; --late drop leaves "
                    "such messages out"
                )

    def _ready(self, stretches: Sequence[Stretch], ids: DataFrame, ready: Column) -> Decided:
        top = f.max(f.when(ready, f.col("live")))
        rows = ids.groupBy("_queue").agg(
            f.min(f.when(f.col("live").isNotNull() & ~ready, f.col("offset"))).alias("stop"), top.alias("top"),
            top.cast("string").alias("text"), f.count(f.when(ready, 1)).alias("rows"),
        ).collect()  # fmt: skip
        stops = {row["_queue"]: row["stop"] for row in rows}
        chosen = [replace(one, last=one.last if (stop := stops.get(one.order)) is None else stop) for one in stretches]
        _top, last = max(((row["top"], row["text"]) for row in rows if row["top"] is not None), default=(None, None))
        kept = sum(row["rows"] for row in rows)
        if self.pipe.duplicates != "keep":
            different = ids.where(ready).select("live").distinct().count()
            if different < kept and self.pipe.duplicates == "fail":
                self._tell_duplicate(stretches, ids.where(ready))
            kept = different
        return Decided(chosen, last, sum(map(len, chosen)) - kept)

    def _tell_duplicate(self, stretches: Sequence[Stretch], ids: DataFrame) -> None:
        places = f.slice(f.array_sort(f.collect_list(f.struct("_queue", "offset"))), 1, 2).alias("places")
        row = ids.groupBy("live").agg(places).where("size(places) > 1").orderBy("live").first()
        assert row is not None
        words = {one.order: one.words for one in stretches}
        told = " and ".join(f"{words[queue]}, offset {at}" for queue, at in row["places"])
        raise Misuse(f"{self.pipe.by} {row['live']} stands twice: {told}; --duplicates drop keeps the first, keep both")


def is_log(directory: str) -> bool:
    """Whether it has topics, keys and headers: a data directory, not bare queues."""
    path = Path(directory)
    return path.is_dir() and is_data(path)
