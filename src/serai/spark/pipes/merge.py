"""merge: several queues as one topic, in the order of an id.

queues  ->  survey: ids and positions alone  ->  the decision, written down  ->  sorted rows through the sink

A message waits until every queue has brought a greater id: only then nothing can come before it or beside it.  What is ready
is a stretch of each queue, because each is in the order of its ids itself; so a decision is positions, and `queues` looks
them up.  A round is one decision.  It is written down before anything goes out, and the sink takes each round once: whoever is
killed, the next run writes the same rows of the same positions, or finds them there.

Spark's stream says when something came and up to where a round may look; its frame is never read.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Misuse
from serai.spark.options import DECODES, count, names, one_of
from serai.spark.pipes.frame import Outcome, Pipe, checked, setting, truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from serai.spark.pipes.frame import Job

STATE = "merged.json"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Merge(Pipe):
    """Brings several queues, or topics, into one topic in the order of an id in their bodies.

    Each queue is in the order of its ids itself; one that is not is an error with queue and position. A message waits until
    every queue has brought a greater id, so the next run goes on with what came, and the order stays exact; --final true lets
    out what waits, when nothing more comes. What comes below an id that was let out is late: an error, or with --late drop
    left out and counted.

    Equal ids keep the order of --data, then of the topics, then of the positions; --duplicates drop keeps the first of
    them, fail names two. Keys, headers, send times and bodies stay as they are. Every message goes out once, whoever is
    killed when. Read the topic as any other; as Parquet, with `serai pipe run archive`; as a table, with `fold`.
    """

    name = "merge"
    does = "bring several queues into one topic in the order of an id"
    example = "serai pipe run merge --data q/0,q/1,q/2 --fields 'id:long, text:string' --by id --to merged"
    fixed = ("data", "topics", "decode", "fields", "by", "to", "topic", "duplicates", "late")

    data: str = setting("queues and data directories, with commas between them", kind=checked(names), metavar="DIRS")
    to: str = setting("the data directory the topic lies in", metavar="DIR")
    by: str = setting("the column that holds the id", metavar="NAME")
    fields: str | None = setting("what a body begins with, as 'id:long, at:long'", metavar="FIELDS", default=None)
    decode: str | None = setting(
        f"how bodies are read: {', '.join(DECODES)}; with --fields it is fields", kind=one_of(*DECODES), metavar="WORD",
        default=None,
    )  # fmt: skip
    topics: str | None = setting("only these of data directories, in this order", kind=checked(names), metavar="NAMES",
                                 default=None)  # fmt: skip
    topic: str = setting("the topic they become", metavar="NAME", default="merged")
    duplicates: str = setting("messages of one id: keep, drop or fail", kind=one_of("keep", "drop", "fail"), metavar="WORD",
                              default="keep")  # fmt: skip
    late: str = setting("below what was let out: fail or drop", kind=one_of("fail", "drop"), metavar="WORD",
                        default="fail")  # fmt: skip
    final: bool = setting("let out at the end what waits for a greater id: true or false", kind=truth, metavar="WORD",
                          default=False)  # fmt: skip
    batch_rows: int | None = setting(
        "messages of each directory in a batch, at most", kind=count, metavar="N", default=None
    )
    on_corrupt: str = setting("messages that cannot be read: fail or skip", kind=one_of("fail", "skip"), metavar="WORD",
                              default="fail")  # fmt: skip

    def home(self) -> Path:
        return Path(self.to) / ".pipes" / f"merge-{self.topic}"

    def run(self, job: Job) -> Outcome:
        merging = Merging(self, job)
        if not merging.state["written"]:
            merging.write()
        totals = job.drive(merging.stream().writeStream.foreachBatch(merging.batch))
        if self.final and not job.stopping:
            merging.round(final=True)
        return merging.outcome(totals.sentence)


class Merging:
    """One run: rounds, each decided and then written."""

    def __init__(self, pipe: Merge, job: Job) -> None:
        from serai.spark.pipes.queues import Queues

        self.pipe = pipe
        self.job = job
        self.queues = Queues(pipe, job.spark)
        self.merged: dict[str, int] = {}
        self.dropped = 0
        self.state = self._remembered()

    def stream(self) -> DataFrame:
        """A frame over all queues, for the time and the positions of its batches."""
        from pyspark.sql import DataFrame

        limit = {"maxOffsetsPerTrigger": str(self.pipe.batch_rows)} if self.pipe.batch_rows else {}
        source = self.job.spark.readStream.format("serai")
        found = [source.options(**options, **limit, columns="offset").load() for options in self.queues.options]
        return reduce(DataFrame.unionAll, found)

    # ---- what is remembered

    def _remembered(self) -> dict[str, Any]:
        path = self.job.place / STATE
        try:
            state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.queues.check_target()
            return {"v": VERSION, "writer": f"merge/{uuid.uuid4()}", "round": -1, "from": [], "to": [], "after": None,
                    "last": None, "dropped": 0, "written": True}  # fmt: skip
        if state.get("v") != VERSION:
            raise Misuse(f"{path} has version {state.get('v')!r}, this serai reads version {VERSION}")
        return state

    def _remember(self, **said: Any) -> None:
        from serai.spark.pipes import batches

        self.state |= said
        batches.keep(self.job.place / STATE, self.state)

    # ---- rounds

    def batch(self, _events: DataFrame, _number: int) -> None:
        self.round(final=False)

    def round(self, *, final: bool) -> None:
        """Decides what goes out, and writes it."""
        from serai.spark.pipes import batches

        checkpoint = self.job.place / "spark"
        ends = batches.ends(checkpoint, batches.last(checkpoint))
        stretches = self.queues.stretches(self.state["to"], ends)
        decided = self.queues.decide(stretches, self.state["last"], final=final)
        if decided.moved:
            self._remember(
                round=self.state["round"] + 1, **{"from": self.queues.positions(stretches, "first")},
                to=self.queues.positions(decided.stretches, "last"), after=self.state["last"],
                last=decided.last or self.state["last"], dropped=decided.dropped, written=False,
            )  # fmt: skip
            self.write()

    def write(self) -> None:
        """The decided rows through the sink, which takes a round once."""
        stretches = self.queues.between(self.state["from"], self.state["to"])
        rows = self.queues.rows(stretches, self.state["after"])
        (
            rows.write.format("serai").mode("append")
            .options(logDir=str(Path(self.pipe.to).absolute()), topic=self.pipe.topic)
            .options(writerId=self.state["writer"], jobId=str(self.state["round"])).save()
        )  # fmt: skip
        self._remember(written=True)
        self.dropped += self.state["dropped"]
        for one in stretches:
            self.merged[one.words] = self.merged.get(one.words, 0) + len(one)

    def outcome(self, sentence: str) -> Outcome:
        waiting = {one.words: len(one) for one in self.queues.waiting(self.state["to"])}
        rows = [
            {"queue": words, "merged": self.merged.get(words, 0), "waiting": waiting.get(words, 0)}
            for words in dict.fromkeys((*waiting, *self.merged))
        ]
        done, left = sum(self.merged.values()) - self.dropped, sum(waiting.values())
        words = f"{sentence}; {done:,} messages into topic {self.pipe.topic} of {self.pipe.to}"
        words += f", {left:,} wait for a greater id in every queue" if left else ""
        words += f", {self.dropped:,} left out" if self.dropped else ""
        return Outcome(words, ("queue", "merged", "waiting"), rows)
