"""archive: a log as Parquet files, by topic and day, each message once.

log  ->  tasks write Parquet (`export`)  ->  one manifest for each batch (`lake`)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from serai.errors import Misuse
from serai.spark.options import count, one_of, size
from serai.spark.pipes.frame import Outcome, Pipe, setting, truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from serai.spark.pipes.frame import Job
    from serai.spark.pipes.lake import File, Lake
    from serai.spark.pipes.planned import Batch
    from serai.spark.source import Stream

One = TypeVar("One")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Archive(Pipe):
    """Copies what a log holds into Parquet files, by topic and day.

    The tasks write the files themselves, straight from the mapped pages; Spark plans the work and repeats what failed.
    A batch counts when its manifest is there, so every message is in the archive once, whoever is killed when: read it with
    `serai.spark.pipes.archive.load(spark, "lake")`, or any reader of Parquet while no run is at work. A checkpoint that was
    lost is no loss: a new one goes on behind what the manifests name.

    Small batches make small files. With --compact 128MiB, neighbours of one day are joined until a file is about that large,
    after each batch and at the end, checked against their checksums. A frame that was loaded before may then ask for a file
    that is gone, which is an error: load it again.
    """

    name = "archive"
    does = "copy topics into Parquet, each message once"
    example = "serai pipe run archive --data serai-data --to lake"
    fixed = ("data", "to", "topics")

    data: str = setting("the log: a data directory or a queue", metavar="DIR")
    to: str = setting("where the Parquet files go", metavar="DIR")
    topics: str | None = setting("only these, with commas between them", metavar="NAMES", default=None)
    batch_rows: int | None = setting("messages of a batch, at most", kind=count, metavar="N", default=None)
    compact: int | None = setting(
        "join small files into ones of about this size", kind=size, metavar="SIZE", default=None
    )
    delta: bool = setting("name the files in a Delta table as well", kind=truth, metavar="BOOL", default=False)
    on_corrupt: str = setting(
        "damaged messages: fail, skip or null", kind=one_of("fail", "skip", "null"), metavar="WORD", default="fail"
    )

    def home(self) -> Path:
        return Path(self.to) / "_serai" / "archive"

    def check(self) -> None:
        from serai.spark.pipes.rows import check_log

        check_log(self.data, self.topics)

    def run(self, job: Job) -> Outcome:
        from serai.spark.pipes.delta import need_delta
        from serai.spark.pipes.lake import Lake
        from serai.spark.pipes.planned import Planned

        if self.delta:
            need_delta()
        lake = Lake(self.to)
        with lake.alone():
            lake.sweep()
            made = Made(lake, job, self)
            made.tell()
            stream = self._stream(job, lake)
            totals = job.batches(Planned(stream, job.place, lake.done), partial(made.commit, stream))
            made.join()
            lake.sweep()
        size_of = sum(one.bytes for one in made.files)
        words = f"{totals.sentence}; {len(made.files):,} files, {size_of:,} bytes in {self.to}{made.joining}"
        return Outcome(words, ("topic", "files", "rows", "bytes"), made.by_topic())

    def _stream(self, job: Job, lake: Lake) -> Stream:
        """What plans the batches; it is never given to Spark."""
        from serai.spark.columns import shape_of
        from serai.spark.options import read_options
        from serai.spark.pipes.export import KEPT
        from serai.spark.pipes.place import BATCH
        from serai.spark.source import Stream

        options = {"logDir": str(Path(self.data).absolute()), "columns": KEPT}
        options |= {"onCorrupt": self.on_corrupt, "startingOffsets": "earliest"}
        options |= {"subscribe": self.topics} if self.topics else {}
        options |= {"maxOffsetsPerTrigger": str(self.batch_rows)} if self.batch_rows else {}
        if not (job.place / BATCH).exists() and lake.files():
            options["startingOffsets"] = self._behind(lake, options)
        asked = read_options(options)
        return Stream(asked, shape_of(asked))

    def _behind(self, lake: Lake, options: dict[str, Any]) -> str:
        """Where a new checkpoint begins: behind what is archived."""
        from serai.spark.offsets import EARLIEST
        from serai.spark.options import read_options
        from serai.spark.pipes.export import epoch_of
        from serai.spark.slices import find_logs

        logs = find_logs(read_options(options))
        reach = lake.reach([(log.topic, log.partition, epoch_of(log)) for log in logs])
        found: dict[str, dict[str, int]] = {}
        for log in logs:
            found.setdefault(log.topic, {})[str(log.partition)] = reach.get((log.topic, log.partition), EARLIEST)
            log.close()
        return json.dumps(found)


class Made:
    """What the batches of a run brought."""

    def __init__(self, lake: Lake, job: Job, asked: Archive) -> None:
        self.lake = lake
        self.job = job
        self.target = asked.compact or 0
        self.delta = asked.delta
        self.files: list[File] = []
        self.joined = (0, 0)

    def commit(self, stream: Stream, batch: Batch) -> None:
        from serai.spark.pipes.export import export

        write = partial(export, shape=stream.shape, options=stream.options, root=self.lake.root)
        files = [file for some in self._in_tasks(write, batch.slices) for file in some]
        self.files += self.lake.commit(batch.query, batch.number, files)
        self.tell()
        self.join()

    def tell(self) -> None:
        """Brings the Delta table to where the manifests are, if there is to be one."""
        if self.delta:
            from serai.spark.pipes.delta import follow

            follow(self.lake)

    def join(self) -> None:
        """Makes small files large; what the last call replaced has been there for its readers until now."""
        from serai.spark.pipes.compact import compact, plan

        if not self.target or not plan(self.lake.files(), self.target):
            return
        self.lake.sweep()
        before, after = compact(self.lake, self.target, each=self._in_tasks, stop=lambda: self.job.stopping)
        self.joined = (self.joined[0] + before, self.joined[1] + after)
        self.tell()

    def _in_tasks(self, work: Callable[[One], Result], items: Sequence[One]) -> list[Result]:
        """What Spark does here: one task for each, what failed again elsewhere."""
        return self.job.spark.sparkContext.parallelize(items, len(items)).map(work).collect() if items else []

    @property
    def joining(self) -> str:
        before, after = self.joined
        return f"; {before:,} small ones became {after:,}" if before else ""

    def by_topic(self) -> list[dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        for one in self.files:
            row = rows.setdefault(one.topic, {"topic": one.topic, "files": 0, "rows": 0, "bytes": 0})
            row["files"] += 1
            row["rows"] += one.rows
            row["bytes"] += one.bytes
        return [rows[topic] for topic in sorted(rows)]


def existing(to: str) -> Lake:
    """An archive that is there."""
    from serai.spark.pipes.lake import Lake

    lake = Lake(to)
    if not lake.exists():
        raise Misuse(f"{lake.root} is no archive: it has no manifests; `serai pipe run archive --to` makes one")
    return lake


def load(spark: SparkSession, to: str) -> DataFrame:
    """The messages of an archive: the files its manifests name, none of a run that is still at work."""
    return frame_of(spark, to, existing(to).files())


def frame_of(spark: SparkSession, to: str, files: Sequence[File]) -> DataFrame:
    """The messages of these files of an archive."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from serai.spark.pipes.delta import arrow_schema

    schema, root = from_arrow_schema(arrow_schema()), Path(to).absolute()
    paths = [str(root / one.path) for one in files if one.path]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", str(root)).parquet(*paths)
