"""metrics: how much came, and how long it took to be stored, by topic, key and minute.

    topic   key   minute               messages  bytes  p50 ms  p95 ms  p99 ms  max ms
    orders  anna  2026-11-19 02:14:00  1,204   120,400  0.0     1.0     3.0     7.0

The times are those between a producer's send time and the store time.  A queue directory keeps neither: its minute and its
delays are empty.  Percentiles are exact up to some thousands of messages a row, and within a ten-thousandth of their rank
beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serai.spark.options import count, names
from serai.spark.pipes.frame import Outcome, Pipe, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from serai.spark.pipes.frame import Job

BY = ("topic", "key", "minute")
READ = "topic,key,value,timestamp,sendTime"
RANKS = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
MEASURES = ("messages", "bytes", *RANKS, "max_ms")


def parts(text: str) -> str:
    """Some of `BY`, in that order."""
    asked = names(text)
    strange = [one for one in asked if one not in BY]
    if strange:
        raise ValueError(f"there is no {strange[0]!r}; it is some of {','.join(BY)}")
    return ",".join(one for one in BY if one in asked)


@dataclass(frozen=True, kw_only=True)
class Metrics(Pipe):
    """Counts messages and bytes, and measures store minus send time: percentiles by topic, key and minute.

    A minute is that of the store time, in UTC. With --to the whole table goes into Parquet files; what is shown are its first
    rows, the busiest keys of a minute first. Queue directories keep no times: their messages have no minute and no delays.
    """

    name = "metrics"
    does = "count messages and bytes and measure delays by topic, key and minute"
    example = "serai pipe run metrics --data serai-data"
    streams = False

    data: str = setting("the log: a data directory or a queue", metavar="DIR")
    topics: str | None = setting("only these, with commas between them", metavar="NAMES", default=None)
    by: str = setting("what a row is of, some of topic,key,minute", kind=parts, metavar="NAMES", default=",".join(BY))
    since: str | None = setting("stored from then on: ISO text, or now-10m", metavar="TIME", default=None)
    until: str | None = setting("stored before then", metavar="TIME", default=None)
    to: str | None = setting("Parquet files of the whole table, in a new directory", metavar="DIR", default=None)
    most: int = setting("rows to show", kind=count, metavar="N", default=20)

    def check(self) -> None:
        from serai.spark.pipes.rows import check_log

        check_log(self.data, self.topics)

    def run(self, job: Job) -> Outcome:
        from pyspark.sql import functions as f

        from serai.spark.pipes import rows

        rows.check_free(self.to)
        by = self.by.split(",")
        given = {"subscribe": self.topics, "startingTimestamp": self.since, "endingTimestamp": self.until}
        with job.watching():
            table = measured(rows.log_rows(job.spark, self.data, READ, **given), by)
            if self.to is not None:
                table.write.parquet(self.to)
                table = job.spark.read.schema(table.schema).parquet(self.to)
            table = table.cache()
            sums = table.agg(f.count("*"), f.sum("messages"), f.sum("bytes")).collect()[0]
            order = [f.col(one) for one in ("topic", "minute") if one in by] + [f.col("messages").desc()]
            order += [f.col("key")] * ("key" in by)
            shown = rows.first_rows(table, self.most, *order)
            table.unpersist()
        words = f"{sums[1] or 0:,} messages, {sums[2] or 0:,} bytes{rows.cut(len(shown), sums[0])}"
        return Outcome(words, tuple(one.replace("_", " ") for one in (*by, *MEASURES)), shown)


def measured(messages: DataFrame, by: list[str]) -> DataFrame:
    """Rows of topic, key, value, timestamp and sendTime as a row for each of `by`."""
    from pyspark.sql import functions as f

    from serai.spark.pipes.rows import as_text

    delay = (f.unix_micros("timestamp") - f.unix_micros("sendTime")).alias("delay")
    minute = f.date_trunc("minute", "timestamp").alias("minute")
    own = {"topic": f.col("topic"), "key": f.col("key"), "minute": minute}
    rows = messages.select(*(own[one] for one in by), f.octet_length("value").cast("bigint").alias("bytes"), delay)
    table = rows.groupBy(*by).agg(
        f.count("*").alias("messages"),
        f.sum("bytes").alias("bytes"),
        f.percentile_approx("delay", list(RANKS.values()), 10_000).alias("ranks"),
        (f.max("delay") / 1000).alias("max_ms"),
    )
    ranks = [(f.col("ranks")[at] / 1000).alias(name) for at, name in enumerate(RANKS)]
    shown = {"topic": f.col("topic"), "key": as_text(f.col("key")).alias("key"), "minute": f.col("minute")}
    return table.select(*(shown[one] for one in by), "messages", "bytes", *ranks, "max_ms")
