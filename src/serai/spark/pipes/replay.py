"""replay: an archive back into a log, each message once.

archive  ->  a stream in the order of each partition (`lakestream`)  ->  the sink, once for each batch (`ledger`)

How far it is stands in the checkpoint; that a batch was written stands in the data directory itself, under the checkpoint's
query and the batch's number.  So nobody can be killed between the two: a batch that comes again is passed over.

Invariants
- messages of one partition of the archive go to one partition of the log, in their order
- nothing is written before the settings, the filter and the target were found good
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Locked, Misuse
from serai.spark.options import count, names
from serai.spark.pipes.frame import Outcome, Pipe, setting
from serai.spark.pipes.wanted import Wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from serai.spark.pipes.frame import Job

BATCH_ROWS = 1_000_000  # a batch is staged beside the log before it becomes visible: some hundred MiB
PATIENCE_S = 5.0  # for another query that commits to the same directory


@dataclass(frozen=True)
class Target:
    """Where messages go: the partitions of each topic, and where those ended before."""

    homes: Mapping[str, list[str]]
    ends: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Replay(Pipe):
    """Writes messages of an archive into a log again, by time, key or any filter.

    Key, headers, send time and body are those of the archive; the store time, the position and the door become new ones, and
    what an archive does not keep of a door's message (priority, flag, extension) is gone. An empty key becomes none, a
    message that had no send time gets that of 1970, and rows that stand for damaged messages are left out. All messages of
    one partition go to one partition, in their order: to that of the same number, modulo the partitions there are.
    --where is a condition of SQL over topic, partition, offset, timestamp, key, value, headers, producer, door and sendTime,
    as "cast(value as string) like '%anna%'".

    Each message comes once, whoever is killed when: a second run at the same place does nothing, or goes on with what was
    archived since. The same messages again, or others, need a place of their own, --checkpoint. A topic that is archived and
    replayed under its own name into the same directory comes again in its archive. No server may be at work there.
    """

    name = "replay"
    does = "write messages of an archive into a log again, each once"
    example = "serai pipe run replay --lake lake --data again"
    fixed = ("lake", "data", "topics", "since", "until", "key", "where", "into")

    lake: str = setting("the archive", metavar="DIR")
    data: str = setting("the data directory they go to; made when there is none", metavar="DIR")
    topics: tuple[str, ...] | None = setting(
        "only these, with commas between them", kind=names, metavar="NAMES", default=None
    )
    since: str | None = setting("stored from then on: ISO text, or now-10m", metavar="TIME", default=None)
    until: str | None = setting("stored before then", metavar="TIME", default=None)
    key: str | None = setting("of this key, as `search` shows it", default=None)
    where: str | None = setting("a condition of SQL", metavar="SQL", default=None)
    into: str | None = setting("a topic for all of them, instead of their own", metavar="NAME", default=None)
    partitions: int | None = setting(
        "partitions of a topic that is new; as many as were archived, if not said",
        kind=count,
        metavar="N",
        default=None,
    )
    batch_rows: int = setting("messages of a batch, at most", kind=count, metavar="N", default=BATCH_ROWS)

    def home(self) -> Path:
        return Path(self.data) / ".replay"

    def run(self, job: Job) -> Outcome:
        from serai.spark.pipes.lakestream import LakeSource
        from serai.spark.pipes.place import query_of

        wide = self._wide()
        job.spark.dataSource.register(LakeSource)
        found = self._chosen(job.spark.readStream.format(LakeSource.name()).options(**self._options()).load())
        target = self._target(wide)
        rows = self._addressed(found, {topic: len(homes) for topic, homes in target.homes.items()})
        totals = job.drive(rows.writeStream.format("serai").options(logDir=str(self._data)))
        made = self._written(target, query_of(job.place))
        written = sum(row["messages"] for row in made)
        words = f"{written:,} messages written into {self.data}; of the archive {totals.sentence}"
        return Outcome(words, ("topic", "partitions", "messages"), made)

    @property
    def _data(self) -> Path:
        return Path(self.data).absolute()

    def _options(self) -> dict[str, str]:
        given = {"topics": self.topics and ",".join(self.topics), "since": self.since, "until": self.until}
        fixed = {"lake": str(Path(self.lake).absolute()), "batchRows": str(self.batch_rows)}
        return fixed | {name: text for name, text in given.items() if text}

    # ---- what is there

    def _wide(self) -> dict[str, int]:
        """The topics that are written to, and how many partitions each had at most."""
        from serai.broker.names import check_name
        from serai.spark.pipes.archive import existing

        wanted = Wanted.of(self.topics, self.since, self.until)
        files = existing(self.lake).files()
        wanted.check({one.topic for one in files}, self.lake)
        if self.into is not None:
            check_name(self.into, what="a topic")
        found: dict[str, int] = {}
        for one in files:
            if wanted.has(one.topic):
                topic = self.into or one.topic
                found[topic] = max(found.get(topic, 0), one.partition + 1)
        return found

    def _target(self, wide: Mapping[str, int]) -> Target:
        """The topics, made where they are missing, and where they end now."""
        from serai.spark import ledger, sink
        from serai.spark.options import read_options

        sink.prepare(read_options({"logDir": str(self._data)}), overwrite=False)
        try:
            engine = ledger.engine_of(self._data, PATIENCE_S)
        except Locked:
            raise Locked(
                f"{self.data} is in use: a server, or another writer, works there, and a replay appends to the same log. Stop it "
                "and run this again: it goes on where it stood. Or replay into a directory of its own, with --data"
            ) from None
        with engine:
            told = {topic: self.partitions or count for topic, count in wide.items()}
            homes = ledger.make_topics(engine, sorted(wide), told)
            for topic, partitions in homes.items():
                if self.partitions not in (None, len(partitions)):
                    raise Misuse(
                        f"--partitions is {self.partitions}, but topic {topic} is there with {len(partitions)}: leave it out, or "
                        "name another topic with --into"
                    )
            return Target(homes, {name: engine.open(name).end for names in homes.values() for name in names})

    def _written(self, target: Target, query: str) -> list[dict[str, Any]]:
        """What this run wrote, counted in the log: records carry the number of their writer."""
        from serai.log.view import View
        from serai.spark.ledger import producer_of

        producer, found = producer_of(query), []
        for topic, homes in sorted(target.homes.items()):
            messages = 0
            for name in homes:
                with View(self._data / "p" / name) as view:
                    ordinal = target.ends[name]
                    while ordinal < view.end:
                        head = view.head(ordinal)
                        messages += head.messages if head.producer == producer else 0
                        ordinal = head.ordinal + head.messages
            found.append({"topic": topic, "partitions": len(homes), "messages": messages})
        return found

    # ---- the frame

    def _chosen(self, frame: DataFrame) -> DataFrame:
        """The messages that are asked for."""
        from pyspark.errors import AnalysisException

        from serai.spark.pipes.rows import of_key

        found = frame.where("value IS NOT NULL")
        found = found if self.key is None else found.where(of_key(self.key))
        if self.where is not None:
            try:
                found = found.where(self.where)
            except AnalysisException as error:  # a word that is wrong as well: Spark's ParseException is one of these
                words = " ".join(str(error).partition("\n\n==")[0].partition(";\n")[0].split())
                raise Misuse(f"--where is {self.where!r}; {words}") from None
        return found

    def _addressed(self, frame: DataFrame, counts: Mapping[str, int]) -> DataFrame:
        """Rows as the sink takes them, each partition of the archive to one of the log."""
        from pyspark.sql import functions as f

        pairs = [f.lit(each) for pair in counts.items() for each in pair]
        topic = f.col("topic") if self.into is None else f.lit(self.into)
        width = f.element_at(f.create_map(*pairs), topic) if counts else f.lit(1)  # a topic that comes later has one
        place = (f.col("partition") % f.coalesce(width, f.lit(1))).cast("int").alias("partition")
        own = [topic.alias("topic"), place, f.col("key"), f.col("value"), f.col("headers")]
        return frame.select(*own, f.col("sendTime").alias("timestamp"))
