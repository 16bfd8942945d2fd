"""audit: every gap, duplicate, bad checksum and order break of a log, of an archive, or of both side by side.

    kind      topic     partition  first    last     byte   words
    checksum  orders    0          104,000  105,000  8,192  its checksum is 5f0c2b11, its bytes have a7313b4e ...
    gap       payments  1          20,000   30,000          no manifest names a file of positions 20000 to 30000

Tasks look (`looking` at logs, `shelves` at archives) and give findings; Spark joins what only the whole can tell: sets that
one sender brought twice, wherever in a partition they lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serai.errors import Misuse
from serai.spark.options import count
from serai.spark.pipes.frame import Outcome, Pipe, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from serai.spark.pipes.frame import Job

SHOWN = ("kind", "topic", "partition", "first", "last", "file", "byte", "words")
IDENTITY = ("topic", "partition", "producer", "transaction", "sequence", "part")


@dataclass(frozen=True, kw_only=True)
class Audit(Pipe):
    """Looks at every record of a log, or every file of an archive, and names what is wrong; exit code 1 if anything is.

    Of a log, what `serai verify` looks at, divided among the cores: checksums, ordinals, places, times, slots, index, marks;
    and sets that one sender brought twice. Of an archive: positions that no file has, or two have, each file's length and
    checksum, and its rows. With both, every archived row is compared with the log's. A finding is a row: kind, topic,
    partition, positions first to last (`last` not among them), file, byte, words. The kinds:

      gap          positions that are not there although later ones are
      duplicate    positions, or a sender's set, that are there twice
      order        ordinals, places, times or parts that do not follow each other
      checksum     bytes that are not as they were written
      unreadable   what cannot be had: a page or file is missing or cut short, messages that cannot be walked
      index        slots, record index or marks that do not say what the records do
      transaction  a batch of Spark's sink that was decided and never finished
      skipped      damaged messages that the archive was told to leave out, or to keep without bodies
      different    an archived row that is not the log's, or a manifest that counts other rows

    No findings are: positions that retention gave up, what an archive has not come to yet, what is being written now.
    Partitions hold visible messages only; transactions of producers are not served yet, so none can be open.
    The directory's own state (catalogue, groups) is left to `serai verify`.
    """

    name = "audit"
    does = "name every gap, duplicate, bad checksum and order break of a log or an archive"
    example = "serai pipe run audit --data serai-data --lake lake"
    streams = False

    data: str | None = setting("the log: a data directory, a partition or a queue", metavar="DIR", default=None)
    lake: str | None = setting("an archive; with --data both are compared", metavar="DIR", default=None)
    topics: str | None = setting("only these, with commas between them", metavar="NAMES", default=None)
    since: str | None = setting("stored from then on: ISO text, or now-10m", metavar="TIME", default=None)
    until: str | None = setting("stored before then", metavar="TIME", default=None)
    to: str | None = setting("Parquet files of all findings, in a new directory", metavar="DIR", default=None)
    most: int = setting("findings to show", kind=count, metavar="N", default=20)

    def run(self, job: Job) -> Outcome:
        from pyspark.sql import functions as f

        from serai.spark.pipes import rows
        from serai.spark.pipes.looking import KINDS, NOTE, AuditSource

        if self.data is None and self.lake is None:
            raise Misuse("audit needs --data, a log, or --lake, an archive, or both")
        rows.check_free(self.to)
        job.spark.dataSource.register(AuditSource)
        with job.watching():
            seen = job.spark.read.format(AuditSource.name()).options(**self._options()).load().cache()
            found = seen.filter(f.col("kind").isin(*KINDS)).unionByName(repeated(seen))
            found = self._named(found.withColumnRenamed("position", "byte").select(*SHOWN))
            if self.to is not None:
                found.write.parquet(self.to)
            kinds = {row[0]: row[1] for row in found.groupBy("kind").count().collect()}
            sums = {row["kind"]: row for row in summed(seen).collect()}
            order = (f.col(name) for name in ("topic", "partition", "first", "kind", "file"))
            shown = rows.first_rows(found, self.most, *order) if kinds else []
            for note in seen.filter(f.col("kind") == NOTE).select("words").limit(self.most).collect():
                job.note(note[0])
            seen.unpersist()
        return Outcome(self._words(sums, kinds, len(shown)), SHOWN, shown, failed=bool(kinds))

    def _named(self, found: DataFrame) -> DataFrame:
        """Files as the directories were given, not from the root of the machine."""
        from pyspark.sql import functions as f

        for given in (self.data, self.lake):
            if given is not None:
                found = found.withColumn("file", f.replace("file", f.lit(f"{absolute(given)}/"), f.lit(f"{given}/")))
        return found

    def _options(self) -> dict[str, str]:
        given = {"data": self.data and absolute(self.data), "lake": self.lake and absolute(self.lake)}
        given |= {"topics": self.topics, "since": self.since, "until": self.until}
        return {name: text for name, text in given.items() if text is not None}

    def _words(self, sums: dict[str, Row], kinds: dict[str, int], shown: int) -> str:
        from serai.spark.pipes.looking import BEHIND, FILE, KINDS, LOG, UNNAMED
        from serai.spark.pipes.rows import cut

        parts = []
        if LOG in sums:
            one = sums[LOG]
            parts.append(
                f"{one['messages']:,} messages, {one['bytes']:,} bytes in {one['partitions']:,} partitions of {self.data}"
            )
        if FILE in sums:
            one = sums[FILE]
            parts.append(f"{one['messages']:,} rows, {one['bytes']:,} bytes in {one['pieces']:,} files of {self.lake}")
        words = "; ".join(parts) or "nothing is there to look at"
        if BEHIND in sums:
            words += f"; {sums[BEHIND]['messages']:,} messages are not archived yet"
        if not kinds:
            return f"{words}: nothing is wrong"
        whole = sum(kinds.values())
        said = ", ".join(f"{kinds[kind]:,} {kind}" for kind in KINDS if kind in kinds)
        more = f", and {sums[UNNAMED]['messages']:,} that are only counted" if UNNAMED in sums else ""
        return f"{words}: {whole:,} finding{'s' * (whole > 1)} ({said}){more}{cut(shown, whole)}"


def absolute(path: str) -> str:
    return str(Path(path).absolute())


def summed(seen: DataFrame) -> DataFrame:
    """What was looked at, by the kind of rows that say so."""
    from pyspark.sql import functions as f

    return seen.groupBy("kind").agg(
        f.sum("messages").alias("messages"), f.sum("bytes").alias("bytes"), f.count("*").alias("pieces"),
        f.count_distinct("topic", "partition").alias("partitions"),
    )  # fmt: skip


def repeated(seen: DataFrame) -> DataFrame:
    """Sets of a sender that are in a partition already, as findings."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from serai.spark.pipes.looking import SET

    before = f.min("first").over(Window.partitionBy(*IDENTITY))
    again = seen.filter(f.col("kind") == SET).withColumn("before", before).filter("first > before")
    words = "set %d of producer %d, transaction %d, is at position %d already"
    named = f.format_string(words, "sequence", "producer", "transaction", "before")
    return again.withColumns({"kind": f.lit("duplicate"), "words": named}).drop("before")
