"""The cases: what is run on the source and the sink, and what stands against it.

    scan       2 M rows of 100 B: all columns, some, groupBy, count                       against Parquet
    large      2 M rows of 1 KiB, the same
    sink       rows into a log                                                            against a writer of rows
    archive    a log into Parquet, zstd                                                   against Parquet to Parquet
    audit      every record of a log, every file of its archive, both beside each other   against reading the values
    floor      micro-batches of 100 rows                                                  against the rate source
    growth     1, 4, 16 partitions; 2, 8, 32 M rows                                       against itself

A goal is a ratio of CPU seconds (of the wall for the floor, where waiting is the point): ours by theirs.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

import serai.spark
from benchmarks.spark_clock import Case, play
from benchmarks.spark_data import RECORD_ROWS, TOPIC, Rows, frame_of, write_log, write_parquet, write_queue
from serai.spark.pipes.archive import Archive, load
from serai.spark.pipes.audit import Audit
from serai.spark.pipes.frame import Asked, Outcome, Pipe
from serai.spark.pipes.running import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THREE = "key,value,timestamp"


@dataclass(frozen=True)
class Goal:
    """What was measured and what it is to be."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def within(self, slack: float) -> bool:
        """Whether it is met but for that part."""
        return self.value * (1 + slack) >= self.bound if self.at_least else self.value <= self.bound * (1 + slack)


@dataclass
class Bench:
    """Where a run stands: the session, a folder of its own, how much and how often."""

    spark: SparkSession
    java: int
    home: Path
    rounds: int
    warm: int
    scale: float
    cases: list[Case]
    goals: list[Goal]

    def rows(self, full: int, body_bytes: int = 100) -> Rows:
        return Rows(max(int(full * self.scale) // 1000, 20) * 1000, body_bytes)

    def play(self, cases: list[Case]) -> None:
        play(cases, java=self.java, warm=self.warm, rounds=self.rounds, tidy=self.tidy)
        self.cases += cases

    def tidy(self) -> None:
        self.spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]  # the gateway is there

    def ratio(self, name: str, ours: Case, theirs: Case, bound: float) -> None:
        self.goals.append(Goal(f"{name}: CPU, {ours.name} / {theirs.name}", ours.cpu / theirs.cpu, bound))


def to_nothing(frame: DataFrame) -> Callable[[], bool]:
    """Every row made, none kept."""

    def run() -> bool:
        frame.write.format("noop").mode("overwrite").save()
        return True

    return run


def grouped(frame: DataFrame) -> Callable[[], int]:
    """Count, bytes and last time of each key; how many keys there are."""
    return lambda: len(  # a frame of its own for every run: Spark keeps the shuffle files of one it knows
        frame.groupBy("key").agg(sql.count("*"), sql.sum(sql.length("value")), sql.max("timestamp")).collect()
    )


# ---- the source ------------------------------------------------------------------------------------------------------


def scan(bench: Bench) -> None:
    """All columns, some of them, a grouping and a count, against Parquet of the same rows."""
    _scan(bench, bench.rows(2_000_000, 100), "100 B")


def large(bench: Bench) -> None:
    """The same with larger bodies."""
    _scan(bench, bench.rows(2_000_000, 1024), "1 KiB")


def _scan(bench: Bench, rows: Rows, words: str) -> None:
    spark, n = bench.spark, rows.count
    data = write_log(bench.home / f"data-{rows.body_bytes}", rows)
    queue = write_queue(bench.home / f"queue-{rows.body_bytes}", rows)
    parquet = write_parquet(frame_of(spark, data), bench.home / f"parquet-{rows.body_bytes}")

    def ours(where: Path, **options: str) -> DataFrame:
        return frame_of(spark, where, **options)

    def theirs(*names: str) -> DataFrame:
        frame = spark.read.parquet(str(parquet))
        return frame.select(*names) if names else frame

    keys = RECORD_ROWS.__eq__
    every = n.__eq__
    peer = Case(f"Parquet, all columns, {words}", n, to_nothing(theirs()))
    peer_groups = Case(f"Parquet, groupBy, {words}", n, grouped(theirs()), check=keys)
    peer_count = Case(f"Parquet, count, {words}", n, theirs().count, check=every)
    whole = Case(f"log, all columns, {words}", n, to_nothing(ours(data)))
    value = Case(f"log, columns=value, {words}", n, to_nothing(ours(data, columns="value")))
    groups = Case(f"log, groupBy, columns={THREE}, {words}", n, grouped(ours(data, columns=THREE)), check=keys)
    count = Case(f"log, count, columns=offset, {words}", n, ours(data, columns="offset").count, check=every)
    index = Case(f"log, serai.spark.count, {words}", n, lambda: serai.spark.count(logDir=data), check=every)
    bare = Case(f"queue, all columns, {words}", n, to_nothing(ours(queue)))
    bare_value = Case(f"queue, columns=value, {words}", n, to_nothing(ours(queue, columns="value")))
    peer_value = Case(f"Parquet, value, {words}", n, to_nothing(theirs("value")))
    bench.play([peer, whole, bare, peer_value, value, bare_value, peer_groups, groups, peer_count, count, index])
    bench.ratio("all columns", whole, peer, 2.0)
    bench.ratio("value only", value, peer, 1.2)
    bench.ratio("value only, bare queue", bare_value, peer, 1.2)
    bench.ratio("groupBy", groups, peer_groups, 1.8)
    bench.ratio("count", count, peer_count, 2.2)
    bench.ratio("count from the index", index, peer_count, 2.2)
    for path in (data, queue, parquet):
        shutil.rmtree(path)


# ---- the sink --------------------------------------------------------------------------------------------------------


def sink(bench: Bench) -> None:
    """Keys and values into a new log: the Arrow sink, a writer of rows, and Spark's own Parquet writer."""
    rows = bench.rows(2_000_000)
    few = Rows(rows.count // 8, rows.body_bytes)  # a tenth would do: rows are that slow
    frame = _made(bench.spark, rows)
    some = _made(bench.spark, few)

    def into(frame: DataFrame, form: str) -> Callable[[], bool]:
        def run() -> bool:
            shutil.rmtree(bench.home / "out", ignore_errors=True)
            frame.write.format(form).mode("append").options(logDir=str(bench.home / "out"), topic=TOPIC).save()
            return True

        return run

    def into_parquet() -> bool:
        frame.write.option("compression", "none").mode("overwrite").parquet(str(bench.home / "out-parquet"))
        return True

    making = Case("rows made, not written", rows.count, to_nothing(frame))
    arrow = Case("sink", rows.count, into(frame, "serai"))
    slow = Case("writer of rows", few.count, into(some, "serai-rows"))
    parquet = Case("Parquet writer", rows.count, into_parquet)
    bench.play([making, arrow, slow, parquet])
    each = arrow.cpu / arrow.rows
    bench.goals.append(
        Goal("sink: rows a CPU second, writer of rows / sink", slow.cpu / slow.rows / each, 10, at_least=True)
    )
    shutil.rmtree(bench.home / "out", ignore_errors=True)
    shutil.rmtree(bench.home / "out-parquet", ignore_errors=True)


def _made(spark: SparkSession, rows: Rows) -> DataFrame:
    """Rows made in the JVM: as cheap as they get."""
    body = sql.lit("x" * (rows.body_bytes - 12)).cast("binary")
    name = sql.lpad(sql.col("id").cast("string"), 12, "0").cast("binary")
    return spark.range(0, rows.count, 1, 2).select(name.alias("key"), sql.concat(name, body).alias("value"))


# ---- the archive -----------------------------------------------------------------------------------------------------


def archive(bench: Bench) -> None:
    """A log into Parquet by the pipeline, Spark's own copy of the same rows from Parquet to Parquet, both with zstd."""
    rows = bench.rows(2_000_000)
    data = write_log(bench.home / "data-archive", rows)
    parquet = write_parquet(frame_of(bench.spark, data), bench.home / "parquet-archive")
    lake, copy = bench.home / "lake", bench.home / "copy"

    def ours() -> int:
        shutil.rmtree(lake, ignore_errors=True)
        outcome = run(
            Archive(data=str(data), to=str(lake)), Asked(), watch=lambda _progress: None, note=lambda _words: None
        )
        return sum(row["rows"] for row in outcome.rows)

    def theirs() -> bool:
        frame = bench.spark.read.parquet(str(parquet))
        frame.write.option("compression", "zstd").mode("overwrite").parquet(str(copy))
        return True

    own = Case("archive", rows.count, ours, check=rows.count.__eq__)
    peer = Case("Parquet -> Parquet", rows.count, theirs)
    bench.play([own, peer])
    bench.ratio("archive", own, peer, 0.30)
    for path in (data, parquet, lake, copy):
        shutil.rmtree(path)


# ---- the audit -------------------------------------------------------------------------------------------------------


def audit(bench: Bench) -> None:
    """All checks over a log and an archive of it, and Spark reading what they look at."""
    rows = bench.rows(2_000_000)
    data, lake = write_log(bench.home / "data-audit", rows), bench.home / "lake-audit"

    def done(pipe: Pipe) -> Callable[[], Outcome]:
        return lambda: run(pipe, Asked(), watch=lambda _progress: None, note=lambda _words: None)

    def sound(found: object) -> bool:
        return isinstance(found, Outcome) and not found.failed and f"{rows.count:,}" in found.words

    done(Archive(data=str(data), to=str(lake)))()
    values = Case("log, columns=value", rows.count, to_nothing(frame_of(bench.spark, data, columns="value")))
    files = Case("archive, all columns", rows.count, to_nothing(load(bench.spark, str(lake))))
    of_log = Case("audit of the log", rows.count, done(Audit(data=str(data))), check=sound)
    of_files = Case("audit of the archive", rows.count, done(Audit(lake=str(lake))), check=sound)
    of_both = Case("audit of both", rows.count, done(Audit(data=str(data), lake=str(lake))), check=sound)
    bench.play([values, files, of_log, of_files, of_both])
    bench.ratio("audit", of_log, values, 2.5)
    bench.ratio("audit", of_files, files, 1.5)
    bench.ratio("audit", of_both, values, 5.0)
    for path in (data, lake):
        shutil.rmtree(path)


# ---- micro-batches ---------------------------------------------------------------------------------------------------


def floor(bench: Bench) -> None:
    """How long a batch of 100 rows takes that does nothing, one a second: median of triggers, by turns."""
    batches = max(int(25 * bench.scale), 6)
    queue = write_queue(bench.home / "queue-floor", Rows(100_000, 100))
    data = write_log(bench.home / "data-floor", Rows(100_000, 100))
    frames = {
        "rate source": bench.spark.readStream.format("rate").options(rowsPerSecond=100, numPartitions=1).load(),
        "log": _hundreds(bench.spark, data),
        "queue": _hundreds(bench.spark, queue),
    }
    found: dict[str, list[float]] = {name: [] for name in frames}
    for turn in range(1 + bench.rounds):
        for name, frame in frames.items():
            took = _triggers(frame, bench.home / "checks" / f"{name}-{turn}", batches)
            if turn:
                found[name].append(took)
    best = {name: min(medians) for name, medians in found.items()}
    for name in ("log", "queue"):
        words = f"micro-batch floor: wall, {name} {best[name]:.0f} ms / rate source {best['rate source']:.0f} ms"
        bench.goals.append(Goal(words, best[name] / best["rate source"], 1.3))


def _hundreds(spark: SparkSession, where: Path) -> DataFrame:
    options = {"logDir": str(where), "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    return spark.readStream.format("serai").options(**options).load()


def _triggers(frame: DataFrame, checkpoint: Path, batches: int) -> float:
    """Median milliseconds of a trigger; the first five are not counted."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime="1 second").start()  # the rate source has something new as often
    try:
        took: dict[int, float] = {}
        while len(took) < batches + 5:
            query.awaitTermination(1)
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    took[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
    finally:
        query.stop()
    return statistics.median(took[batch] for batch in sorted(took)[5:])


# ---- growth ----------------------------------------------------------------------------------------------------------


def growth(bench: Bench) -> None:
    """CPU seconds a row, as rows and partitions grow."""
    groups: list[list[Case]] = []
    for partitions in (1, 4, 16):
        cases = []
        for millions in (2, 8, 32):
            rows = bench.rows(millions * 1_000_000)
            data = write_log(bench.home / f"growth-{partitions}-{millions}", rows, partitions=partitions)
            name = f"{millions} M rows in {partitions} partitions"
            cases.append(Case(name, rows.count, to_nothing(frame_of(bench.spark, data, columns="key,value,offset"))))
        groups.append(cases)
    bench.play([case for cases in groups for case in cases])
    for cases in groups:
        small, *larger = cases
        for case in larger:
            grown = (case.cpu / case.rows) / (small.cpu / small.rows)
            bench.goals.append(Goal(f"growth: CPU a row, {case.name} / {small.name}", grown, 1.2))


GROUPS: dict[str, Callable[[Bench], None]] = {
    "scan": scan,
    "large": large,
    "sink": sink,
    "archive": archive,
    "audit": audit,
    "floor": floor,
    "growth": growth,
}
