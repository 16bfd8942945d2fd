"""fold: an event log as the table it comes to, kept up to date.

log  ->  rows of each event, summed by key (`taking`)  ->  with the snapshot there was, the next one (`snapshot`)

The snapshot says up to which positions the log is in it.  A batch that begins there is folded in; one that ends there is in
it already, and was only not noted by Spark when somebody was killed; any other one is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serai.errors import Misuse
from serai.spark.options import DECODES, count, names, one_of
from serai.spark.pipes import taking
from serai.spark.pipes.frame import Outcome, Pipe, checked, setting
from serai.spark.pipes.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from serai.spark.offsets import Offsets
    from serai.spark.pipes.frame import Job

BEGAN = "began.json"  # beside the checkpoint: where it began, which Spark writes down nowhere


@dataclass(frozen=True, kw_only=True)
class Fold(Pipe):
    """Folds the events of a log into a table: one row for each key, with sums, counts and first or last values.

    --fields says what a body holds, --by what the key is, --take what is kept of it: `balance = sum(amount), count(),
    last(note)` out of sum, count, min, max, first and last. An event that concerns several keys, or one under a condition, is
    turned into rows by --each: `account = source, change = -amount; account = target, change = amount where target <> ''`.
    What stands behind = is Spark SQL about one event.

    A run takes what is new since the last one and replaces the table, which then equals a fold over the whole log: every
    message counts once, whoever is killed when. Sums are of whole numbers and decimals, exact to the last digit; one that does
    not fit is an error. First and last go by topic, partition and offset. DIR/current is the table for any reader of
    Parquet, `serai.spark.pipes.fold.load(spark, DIR)` for Spark. A checkpoint that was lost is no loss: a new one goes on
    where the table stands.
    """

    name = "fold"
    does = "fold an event log into a table of balances, counts and last values by key"
    example = (
        "serai pipe run fold --data ledger --fields 'account:string, amount:decimal(38,2)' --by account "
        "--take 'balance=sum(amount), events=count()' --to balances"
    )
    fixed = ("data", "topics", "decode", "fields", "each", "by", "take", "to")

    data: str = setting("the log: a data directory or a queue", metavar="DIR")
    to: str = setting("where the table is kept", metavar="DIR")
    by: str = setting("the key: columns with commas between them", kind=checked(names), metavar="NAMES")
    take: str = setting("what is kept of a key's events", kind=checked(taking.read_take), metavar="SUMS")
    fields: str | None = setting(
        "what a body holds, as 'id:long, amount:decimal(38,2)'", metavar="FIELDS", default=None
    )
    decode: str | None = setting(
        f"how bodies are read: {', '.join(DECODES)}; with --fields it is fields", kind=one_of(*DECODES), metavar="WORD",
        default=None,
    )  # fmt: skip
    each: str | None = setting(
        "the rows an event becomes", kind=checked(taking.read_each), metavar="ROWS", default=None
    )
    topics: str | None = setting("only these, with commas between them", metavar="NAMES", default=None)
    batch_rows: int | None = setting("messages of a batch, at most", kind=count, metavar="N", default=None)
    on_corrupt: str = setting("messages that cannot be read: fail or skip", kind=one_of("fail", "skip"), metavar="WORD",
                              default="fail")  # fmt: skip
    most: int = setting("rows to show", kind=count, metavar="N", default=20)

    def home(self) -> Path:
        return Path(self.to) / "_serai" / "fold"

    def check(self) -> None:
        from serai.spark.pipes.rows import check_log

        check_log(self.data, self.topics)

    def run(self, job: Job) -> Outcome:
        from serai.log.lock import alone
        from serai.spark.pipes import rows

        Path(self.to).mkdir(parents=True, exist_ok=True)
        with alone(Path(self.to).absolute(), "fold into"):
            folding = Folding(self, job)
            stream = job.spark.readStream.format("serai").options(**folding.begin()).load()
            totals = job.drive(stream.writeStream.foreachBatch(folding.take_in))
        if folding.snapshot.path() is None:
            return Outcome(f"{totals.sentence}; there is nothing to fold yet")
        table = load(job.spark, self.to).cache()
        keys, order = table.count(), names(self.by)
        binary = {
            one.name: rows.as_text(table[one.name]) for one in table.schema if one.dataType.typeName() == "binary"
        }
        shown = rows.first_rows(
            table.withColumns(binary) if binary else table, self.most, *(table[one] for one in order)
        )
        table.unpersist()
        words = f"{totals.sentence}; {keys:,} keys in {self.to}{rows.cut(len(shown), keys)}"
        return Outcome(words, tuple(table.columns), shown)


class Folding:
    """One run: from events to the next snapshot."""

    def __init__(self, pipe: Fold, job: Job) -> None:
        self.pipe = pipe
        self.job = job
        self.snapshot = Snapshot(pipe.to)
        self.by = names(pipe.by)
        self.take = taking.read_take(pipe.take)
        self.each = taking.read_each(pipe.each) if pipe.each else ()
        self.settings = {name: value for name, value in pipe.described().items() if name in pipe.fixed and name != "to"}

    # ---- before the first batch

    def begin(self) -> dict[str, str]:
        """The options of the source; what is wrong with the settings is an error before anything is read."""
        from serai.spark.pipes import batches

        options = self._options()
        self._check_words(options)
        self._check_same()
        if batches.last(self.job.place / "spark") < 0:
            began = self.stands()
            batches.keep(self.job.place / BEGAN, began.to_json())
            options["startingOffsets"] = self._behind(options, began)
        return options

    def _options(self) -> dict[str, str]:
        from serai.spark.columns import ALWAYS, shape_of
        from serai.spark.options import read_options
        from serai.spark.pipes import batches

        pipe = self.pipe
        options = batches.reading(
            pipe.data, fields=pipe.fields, decode=pipe.decode, topics=pipe.topics, on_corrupt=pipe.on_corrupt
        )
        options |= {"maxOffsetsPerTrigger": str(pipe.batch_rows)} if pipe.batch_rows else {}
        body = shape_of(read_options(options)).body.names
        taken = [name for name in body if name in taking.POSITION]
        if taken:
            raise Misuse(f"--fields names {taken[0]!r}, which is the message's own: give the field another name")
        said = set(re.findall(r"\w+", f"{pipe.by} {pipe.take} {pipe.each or ''}".lower()))
        needed = taking.POSITION if any(one.how in taking.EDGES for one in self.take) else ("offset",)
        columns = [name for name in dict.fromkeys((*body, *ALWAYS)) if name.lower() in said or name in needed]
        return options | {"columns": ",".join(columns)}

    def _check_words(self, options: dict[str, str]) -> None:
        """Tries the words on no event at all."""
        from pyspark.errors import PySparkException

        from serai.spark.columns import shape_of, spark_schema
        from serai.spark.options import read_options

        if self.job.spark.conf.get("spark.sql.ansi.enabled") != "true":
            raise Misuse(
                "fold needs spark.sql.ansi.enabled=true: without it a sum that does not fit is null, not an error"
            )
        events = self.job.spark.createDataFrame([], spark_schema(shape_of(read_options(options))))
        try:
            table = taking.folded(taking.rows_of(events, self.each), self.by, self.take)
        except PySparkException as error:
            words = re.sub(r"\s+", " ", str(error).partition(";")[0]).strip()
            raise Misuse(f"--by, --take and --each do not fit the events: {words}") from None
        twice = [name for name in table.columns if table.columns.count(name) > 1]
        if twice:
            raise Misuse(f"--by and --take together name the column {twice[0]!r} twice")

    def _check_same(self) -> None:
        said = self.snapshot.said()
        changed = [
            name for name, now in self.settings.items() if said is not None and said["settings"].get(name) != now
        ]
        if said is not None and changed:
            was = ", ".join(f"{name} {said['settings'].get(name)!r}, now {self.settings[name]!r}" for name in changed)
            raise Misuse(
                f"the table in {self.pipe.to} was folded with {was}: it cannot go on from there; give another --to"
            )

    def _behind(self, options: dict[str, str], began: Offsets) -> str:
        """Where a new checkpoint begins: behind what is folded."""
        from serai.spark.offsets import EARLIEST, key_of
        from serai.spark.options import read_options
        from serai.spark.slices import find_logs
        from serai.spark.source import closing_all, settle

        asked = read_options(options)
        found: dict[str, dict[str, int]] = {}
        with closing_all(find_logs(asked)) as logs:
            gone = sorted(set(began.positions) - {key_of(log) for log in logs})
            if gone:
                raise Misuse(
                    f"{self.pipe.data} has no {gone[0][0]} partition {gone[0][1]} any more, of which messages are folded"
                )
            for log in logs:
                position = began.positions.get(key_of(log), EARLIEST)
                if position != EARLIEST:
                    position = settle(log, position, log.end(committed=True), began.marks.get(key_of(log), ""), asked)
                found.setdefault(log.topic, {})[str(log.partition)] = position
        return json.dumps(found)

    # ---- batches

    def stands(self) -> Offsets:
        """Up to where the log is in the snapshot."""
        from serai.spark.offsets import Offsets

        said = self.snapshot.said()
        return Offsets() if said is None else Offsets.from_json(said["offsets"])

    def take_in(self, events: DataFrame, batch: int) -> None:
        from pyspark.errors import ArithmeticException

        from serai.spark.offsets import Offsets
        from serai.spark.pipes import batches

        checkpoint = self.job.place / "spark"
        (end,) = batches.ends(checkpoint, batch)
        stands = self.stands()
        if stands.positions == end.positions:
            return
        began = json.loads((self.job.place / BEGAN).read_text(encoding="utf-8"))
        start = batches.ends(checkpoint, batch - 1)[0] if batch else Offsets.from_json(began)
        if stands.positions != start.positions:
            raise Misuse(
                f"the table in {self.pipe.to} stands at {stands.to_json()['topics']}, and batch {batch} begins at "
                f"{start.to_json()['topics']}: another checkpoint was used meanwhile. Go on with that one, or remove this one"
            )
        tables = [taking.folded(taking.rows_of(events, self.each), self.by, self.take)]
        before = self.snapshot.path()
        if before is not None:
            tables.insert(0, events.sparkSession.read.parquet(str(before)))
        table = taking.together(tables, self.by, self.take)
        try:
            self.snapshot.replace(table, {"offsets": end.to_json(), "settings": self.settings})
        except ArithmeticException as error:
            words = str(error).partition(". ")[0].splitlines()[0]
            raise Misuse(
                f"batch {batch}: {words}; the table in {self.pipe.to} stays as it was before the batch"
            ) from None


def load(spark: SparkSession, to: str) -> DataFrame:
    """The table as the last run left it."""
    snapshot = Snapshot(to)
    path, said = snapshot.path(), snapshot.said()
    if path is None or said is None:
        raise Misuse(f"{snapshot.root} has no table: `serai pipe run fold --to` makes one")
    take = taking.read_take(said["settings"]["take"])
    return spark.read.parquet(str(path)).drop(*(one.at for one in take if one.how in taking.EDGES))
