"""search: messages by time, key and text, in a log and its archive as in one table.

    log        positions first..end of each partition, of them those of the span       where = log
    archive    the files that may have such messages, less what the log holds          where = archive

Which of an archive's rows the log still holds is arithmetic: a file names the log it is of and its positions, so one that
lies within what the log holds is not read, one that lies outside is read whole, and one at the edge is read in part.

Invariants
- the log is looked at before the archive, and read at the positions it had then: what retention took away before was
  archived before, what it takes later is an error with numbers
- a message has one row: of topic, partition, position and log
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Misuse
from serai.spark.options import charset, count, names, pattern
from serai.spark.pipes.frame import Outcome, Pipe, setting
from serai.spark.pipes.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from serai.spark.pipes.frame import Job
    from serai.spark.pipes.lake import File
    from serai.spark.slices import Log

SHOWN = ("topic", "partition", "offset", "timestamp", "key", "value")
COLUMNS = (*SHOWN, "headers", "producer", "door", "sendTime")
ORDER = ("timestamp", "topic", "partition", "offset")
BYTEWISE = ("utf-8", "ascii", "iso8859-1", "iso8859-15")  # where bytes of a text are found only where the text stands


@dataclass(frozen=True, kw_only=True)
class Search(Pipe):
    """Looks for messages by time, key and text, in a log, in its archive, or in both as in one table.

    A message that is in both is found once, in the log; what retention has taken from the log is found in the archive. Files
    of the archive whose topic or times are others are not read. --text is looked for in the bytes of the body, as --charset
    writes it; --regex is a regular expression as Python has them, on the body as text. What is shown are the first messages
    by time, topic, partition and offset, bodies as text of the charset, or as hexadecimal digits where they are none; --to
    has all of them, with headers and send time, and bodies as they are. Messages of bare queues have no time.
    """

    name = "search"
    does = "find messages by time, key and text, in the log and its archive"
    example = "serai pipe run search --data serai-data --lake lake --text anna"
    streams = False

    data: str | None = setting("the log: a data directory or a queue", metavar="DIR", default=None)
    lake: str | None = setting("its archive", metavar="DIR", default=None)
    topics: tuple[str, ...] | None = setting(
        "only these, with commas between them", kind=names, metavar="NAMES", default=None
    )
    since: str | None = setting("stored from then on: ISO text, or now-10m", metavar="TIME", default=None)
    until: str | None = setting("stored before then", metavar="TIME", default=None)
    key: str | None = setting("of this key, as it is shown", default=None)
    text: str | None = setting("with this in the body", default=None)
    regex: str | None = setting("with this regular expression in the body", kind=pattern, default=None)
    charset: str = setting("how bodies are written", kind=charset, metavar="NAME", default="utf-8")
    most: int = setting("messages to show", kind=count, metavar="N", default=20)
    to: str | None = setting("Parquet files of all that is found, in a new directory", metavar="DIR", default=None)

    def run(self, job: Job) -> Outcome:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        from serai.spark.pipes import rows

        rows.check_free(self.to)
        with job.watching():
            found = self.look(job.spark, SHOWN if self.to is None else COLUMNS)
            hits = found.frame
            if self.to is not None:
                hits.sortWithinPartitions(*ORDER).write.parquet(self.to)
                hits = job.spark.read.schema(hits.schema).parquet(self.to)
            seen = Observation()
            hits = hits.observe(seen, f.count("*").alias("all"), f.count_if(f.col("where") == "log").alias("log"))
            first = hits.orderBy(*ORDER).limit(self.most)
            times = f.col("timestamp").cast("string").alias("time")
            shown = [self._shown(row) for row in first.select(*SHOWN, times, "where").collect()]
            sums = seen.get
        words = f"{sums['all']:,} messages, {sums['log']:,} in the log{rows.cut(len(shown), sums['all'])}"
        words += f"; {found.skipped:,} of {found.files:,} archive files were not read" if self.lake is not None else ""
        return Outcome(words, ("topic", "partition", "offset", "time", "key", "value", "where"), shown)

    def _shown(self, row: Row) -> dict[str, Any]:
        own = {name: row[name] for name in ("topic", "partition", "offset", "time")}
        key, value = as_words(row["key"], "utf-8"), as_words(row["value"], self.charset)
        return {**own, "key": key, "value": value, "where": row["where"]}

    # ---- the frame

    def look(self, spark: SparkSession, columns: Sequence[str]) -> Found:
        """The frame of what is found, and how much of the archive it reads."""
        from pyspark.sql import functions as f

        from serai.spark.pipes import archive, rows

        wanted = Wanted.of(self.topics, self.since, self.until)
        plan = self._plan(wanted)
        frames = []
        if plan.spans:
            found = rows.log_rows(spark, str(self.data), ",".join(columns), **plan.options)
            frames.append(found.withColumn("where", f.lit("log")))
        for files, cut in ((plan.whole, False), (plan.cut, True)):
            if files:
                found = archive.frame_of(spark, str(self.lake), files).where(_in_span(wanted))
                found = found.where(_outside(plan)) if cut else found
                frames.append(found.select(*columns, f.lit("archive").alias("where")))
        if not frames:
            nothing = archive.frame_of(spark, ".", [])
            frames.append(nothing.select(*columns, f.lit("archive").alias("where")))
        frame = reduce(lambda one, other: one.unionByName(other), frames)
        for condition in self._conditions():
            frame = frame.where(condition)
        return Found(frame, plan.files, plan.files - len(plan.whole) - len(plan.cut))

    def _plan(self, wanted: Wanted) -> Plan:
        from serai.spark.options import read_options
        from serai.spark.pipes.archive import existing
        from serai.spark.slices import find_logs
        from serai.spark.source import closing_all

        if self.data is None and self.lake is None:
            raise Misuse("search needs a place to look in: --data, a log, --lake, its archive, or both")
        there = find_logs(read_options({"logDir": str(Path(self.data).absolute())})) if self.data is not None else []
        with closing_all(there) as logs:
            plan = Plan(wanted, [log for log in logs if wanted.has(log.topic)])
            files = existing(self.lake).files() if self.lake is not None else []
            places = " and ".join(one for one in (self.data, self.lake) if one is not None)
            wanted.check([log.topic for log in logs] + [one.topic for one in files], places)
            plan.take(files)
        return plan

    def _conditions(self) -> list[Column]:
        from pyspark.sql import functions as f

        from serai.spark.pipes.rows import matching, of_key

        found = [of_key(self.key)] if self.key is not None else []
        if self.text is not None:
            try:
                raw = self.text.encode(self.charset)
            except UnicodeEncodeError as error:
                raise Misuse(
                    f"--text is {self.text!r}; {self.charset} cannot write it: {error.reason} at {error.start}"
                ) from None
            bytewise = self.charset in BYTEWISE
            found.append(f.contains("value", f.lit(raw)) if bytewise else matching(re.escape(self.text), self.charset))
        if self.regex is not None:
            found.append(matching(self.regex, self.charset))
        return found


def find(spark: SparkSession, **given: str) -> DataFrame:
    """What `search` finds, as a frame: `find(spark, data="serai-data", lake="lake", topics="orders", text="anna")`.

    The settings are those of the pipeline, as texts; the columns are `COLUMNS` and `where`, log or archive.
    """
    asked = Search.of(given)
    assert isinstance(asked, Search)
    return asked.look(spark, COLUMNS).frame


@dataclass(frozen=True)
class Found:
    """A frame, and what of the archive it does without."""

    frame: DataFrame
    files: int
    skipped: int


@dataclass(frozen=True)
class Span:
    """Positions of one partition of the log: what it holds, and what of that is in the span of times."""

    log: Log
    first: int
    end: int
    low: int
    high: int

    def holds(self, one: File) -> bool:
        """Whether a file is of this very log; a queue, which has no name of its own, is known by a message."""
        from serai.log.folder import is_partition
        from serai.spark.pipes.export import epoch_of
        from serai.spark.pipes.lake import mark_of

        if one.epoch or is_partition(Path(self.log.path)):
            return one.epoch == epoch_of(self.log)
        return mark_of(one.path) == self.log.mark(one.last)


@dataclass
class Plan:
    """What is read where; to be made while the logs are open."""

    wanted: Wanted
    logs: Sequence[Log]
    files: int = 0
    whole: list[File] = field(default_factory=list)  # files read whole
    cut: list[File] = field(default_factory=list)  # and those of which the log holds a part

    def __post_init__(self) -> None:
        self.spans = {(log.topic, log.partition): self._span(log) for log in self.logs}

    def _span(self, log: Log) -> Span:
        from serai.log.folder import is_partition

        if self.wanted.timed and not is_partition(Path(log.path)):
            raise Misuse(
                f"{log.path} is a queue, whose messages have no time: leave out --since and --until, or --topics"
            )
        first, end = log.first(), log.end(committed=True)
        since, until = self.wanted.since_us, self.wanted.until_us
        low = first if since is None else min(log.at_time(since // 1000), end)
        high = end if until is None else min(log.at_time(until // 1000), end)
        return Span(log, first, end, max(low, first), max(high, low, first))

    def take(self, files: Sequence[File]) -> None:
        """Divides the files of an archive."""
        self.files = sum(1 for one in files if one.path)
        for one in filter(self.wanted.may_be_in, files):
            span = self.spans.get((one.topic, one.partition))
            if span is None or one.last <= span.first or one.first >= span.end or not span.holds(one):
                self.whole.append(one)
            elif one.first < span.first or one.last > span.end:
                self.cut.append(one)

    @property
    def options(self) -> dict[str, str]:
        """Exactly these positions, as options of the source."""
        parts: dict[str, list[int]] = {}
        low: dict[str, dict[str, int]] = {}
        high: dict[str, dict[str, int]] = {}
        for (topic, partition), span in self.spans.items():
            parts.setdefault(topic, []).append(partition)
            low.setdefault(topic, {})[str(partition)] = span.low
            high.setdefault(topic, {})[str(partition)] = span.high
        return {
            "assign": json.dumps(parts),
            "startingOffsets": json.dumps(low),
            "endingOffsets": json.dumps(high),
        }


def _in_span(wanted: Wanted) -> Column:
    """Rows of the span."""
    from pyspark.sql import functions as f

    found = f.lit(True)
    if wanted.since_us is not None:
        found = found & (f.col("timestamp") >= f.timestamp_micros(f.lit(wanted.since_us)))
    if wanted.until_us is not None:
        found = found & (f.col("timestamp") < f.timestamp_micros(f.lit(wanted.until_us)))
    return found


def _outside(plan: Plan) -> Column:
    """Rows of files at the edge of what a log holds that lie beyond it; a map, as partitions may be many."""
    from pyspark.sql import functions as f

    edges = {(one.topic, one.partition): plan.spans[one.topic, one.partition] for one in plan.cut}
    name = f.concat(f.col("partition").cast("string"), f.lit("/"), f.col("topic"))

    def edge(values: dict[str, int]) -> Column:
        pairs = [f.lit(each) for pair in values.items() for each in pair]
        return f.element_at(f.create_map(*pairs), name)

    firsts = {f"{partition}/{topic}": span.first for (topic, partition), span in edges.items()}
    ends = {f"{partition}/{topic}": span.end for (topic, partition), span in edges.items()}
    return (f.col("offset") < edge(firsts)) | (f.col("offset") >= edge(ends))


def as_words(raw: bytes | None, codec: str) -> str | None:
    """Bytes for people: text where they are text, else hexadecimal digits."""
    if raw is None:
        return None
    try:
        return bytes(raw).decode(codec)
    except UnicodeDecodeError:
        return f"0x{raw.hex().upper()}"
