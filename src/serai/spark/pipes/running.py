"""Runs one pipeline: a Spark session, the place it goes on from, a query that is watched and stopped.

    run(pipe, asked, watch)        -> Outcome
        taken(place)               nobody else works there, and it is this pipeline's
        pipe.run(Run)              -> drive(writer): AvailableNow, or every so often until a signal
                                   -> batches(planned): the same without a stream
                                   -> watching(): anything else, by its tasks

SIGTERM and SIGINT ask for the end: a stream finishes the batch it is in, other work is taken back.  A second signal does not
wait for the batch either; what it breaks off is done again by the next run, and counted once.

Invariants
- rows are counted by positions of the log, whatever the query makes of them
- a session that was there before stays; one that was made here ends with the run
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from serai.errors import Misuse, SeraiError
from serai.spark.pipes import place as places
from serai.spark.pipes.frame import Outcome, Progress, Totals
from serai.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from serai.spark.pipes.frame import Asked, Pipe
    from serai.spark.pipes.planned import Batch, Planned

LOOK_S = 1  # between two looks at a query
BATCH_PATIENCE_S = 600.0  # for the batch a stopped stream is in
ROOT_WORDS = re.compile(r"^(?:serai\.[\w.]+|\w*Error|\w*Exception): (.+)$", re.MULTILINE)


class Failed(SeraiError):
    """A pipeline's query ended with an error; says it in the words of whoever raised it."""


class Stopped(Exception):
    """A signal took back work that was no stream."""


def run(pipe: Pipe, asked: Asked, watch: Callable[[Progress], None], note: Callable[[str], None] = print) -> Outcome:
    """One run from beginning to end."""
    path = asked.checkpoint or pipe.home()
    if pipe.streams and path is None:
        raise Misuse(f"{pipe.name} needs a place to remember how far it is: give --checkpoint")
    if asked.every_ms is not None and not pipe.streams:
        raise Misuse(f"{pipe.name} looks at what is there, once; --every is for pipelines that go on")
    pipe.check()
    with ExitStack() as stack:
        place = stack.enter_context(places.taken(path, pipe)) if pipe.streams and path is not None else None
        spark = stack.enter_context(_session(pipe, asked))
        job = Run(spark, place, asked, watch, note)
        stack.enter_context(job.listening())
        outcome = _finished(pipe, job, place)
        return replace(outcome, broken_off=job.stopping and asked.every_ms is None)


def _finished(pipe: Pipe, job: Run, place: places.Place | None) -> Outcome:
    tell = place.tell if place is not None else lambda **_said: None
    tell()
    try:
        outcome = pipe.run(job)
    except Stopped:
        tell(state="stopped")
        return Outcome("stopped; nothing of this run counts")
    except (PySparkException, Py4JError) as error:
        words = words_of(error)
        tell(state="failed", why=words)
        raise Failed(words) from error
    except BaseException as error:
        tell(state="failed", why=str(error))
        raise
    tell(state="stopped" if job.stopping else "done")
    return outcome


@contextmanager
def _session(pipe: Pipe, asked: Asked) -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    try:
        made = session(name=f"serai pipe {pipe.name}", master=asked.master, confs=asked.confs, vectors=False)
    except (PySparkException, Py4JError) as error:
        raise Failed(f"no Spark started at {asked.master or 'this machine'}; what it said stands above") from error
    echo = PySparkLogger.getLogger("SQLQueryContextLogger")  # prints what it raises, with all of Java below it
    said, echo.disabled = echo.disabled, True
    try:
        yield made
    finally:
        echo.disabled = said
        if made is not running:
            made.stop()


def words_of(error: Exception) -> str:
    """The sentence of the error a task, a reader or a writer raised, out of what Spark wrapped around it."""
    text = str(error)
    found = [match[1] for match in ROOT_WORDS.finditer(text) if "Py4J" not in match[0]]
    ours = re.search(r"^serai\.[\w.]+: (.+)$", text, re.MULTILINE)
    return ours[1] if ours else found[-1] if found else text.strip().splitlines()[0]


class Run:
    """The job of one run."""

    def __init__(
        self,
        spark: SparkSession,
        place: places.Place | None,
        asked: Asked,
        watch: Callable[[Progress], None],
        note: Callable[[str], None],
    ) -> None:
        self.spark = spark
        self.note = note
        self._place = place
        self._asked = asked
        self._watch = watch
        self._signals = 0
        self._taking_back = False
        self._in_batch = False

    @property
    def place(self) -> Path:
        assert self._place is not None, "only a pipeline that streams has a place"
        return self._place.path

    @property
    def stopping(self) -> bool:
        return self._signals > 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals ask for the end, for as long as this run goes on; the session has put its own handler there."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, _number: int, _frame: object) -> None:
        self._signals += 1
        if self._taking_back:
            self.spark.sparkContext.cancelAllJobs()
            raise Stopped
        if self._in_batch and self._signals > 1:
            self.spark.sparkContext.cancelAllJobs()

    # ---- batches without a stream

    def batches(self, planned: Planned, work: Callable[[Batch], None]) -> Totals:
        every, began, rows, count = self._asked.every_ms, time.monotonic(), 0, 0
        try:
            if every is None:
                planned.until_now()
            while not self.stopping:
                turn = time.monotonic()
                batch = planned.next()
                if batch is not None:
                    if not self._did(batch, work):
                        break
                    rows, count = rows + batch.rows, count + 1
                    self._tell(rows, count, batch.behind, time.monotonic() - began)
                elif every is None:
                    break
                while every is not None and not self.stopping and (left := turn + every / 1000 - time.monotonic()) > 0:
                    time.sleep(min(left, LOOK_S))
        except SeraiError as error:  # the log's, the archive's: as a query would have said it
            raise Failed(str(error)) from error
        finally:
            planned.close()
        return Totals(rows, count, time.monotonic() - began, stopped=self.stopping)

    def _did(self, batch: Batch, work: Callable[[Batch], None]) -> bool:
        """Whether a batch is through; not when a second signal broke it off."""
        self._in_batch = True
        try:
            work(batch)
        except (PySparkException, Py4JError):
            if self._signals > 1:
                return False
            raise
        finally:
            self._in_batch = False
        return True

    # ---- streams

    def drive(self, writer: DataStreamWriter) -> Totals:
        assert self._place is not None
        every = self._asked.every_ms
        timed = (
            writer.trigger(availableNow=True)
            if every is None
            else writer.trigger(processingTime=f"{every} milliseconds")
        )
        query = timed.option("checkpointLocation", str(self._place.checkpoint)).start()
        count = Count(query)
        try:
            while not query.awaitTermination(LOOK_S):
                self._look(count)
                if self.stopping:
                    self._let_finish(query)
        finally:
            query.stop()
        self._look(count)
        return Totals(count.rows, count.batches, count.seconds, stopped=self.stopping)

    def _look(self, count: Count) -> None:
        if count.look():
            self._tell(count.rows, count.batches, count.behind, count.seconds)

    def _tell(self, rows: int, batches: int, behind: int | None, seconds: float) -> None:
        assert self._place is not None
        self._place.tell(rows=rows, batches=batches, behind=behind)
        self._watch(Progress(rows, rows / max(seconds, 1e-3), behind))

    def _let_finish(self, query: StreamingQuery) -> None:
        """Waits until the batch is done that was going on when somebody said stop."""
        began, last = time.monotonic(), batch_of(query)
        while query.status["isTriggerActive"] and batch_of(query) == last and self._signals < 2:
            if time.monotonic() - began > BATCH_PATIENCE_S or query.awaitTermination(LOOK_S):
                break
        query.stop()

    # ---- other work

    @contextmanager
    def watching(self) -> Iterator[None]:
        if self.stopping:
            raise Stopped
        over = threading.Event()
        watcher = threading.Thread(target=self._count_tasks, args=(over,), daemon=True)
        watcher.start()
        self._taking_back = True
        try:
            yield
        except Exception as error:
            if self.stopping:
                raise Stopped from error
            raise
        finally:
            self._taking_back = False
            over.set()
            watcher.join()

    def _count_tasks(self, over: threading.Event) -> None:
        """Tasks of the stages at work; a session over Connect has no tracker."""
        tracker = getattr(self.spark, "_sc", None) and self.spark.sparkContext.statusTracker()
        began, done = time.monotonic(), 0
        while tracker and not over.wait(LOOK_S):
            stages = [info for one in tracker.getActiveStageIds() if (info := tracker.getStageInfo(one)) is not None]
            whole, through = sum(one.numTasks for one in stages), sum(one.numCompletedTasks for one in stages)
            if whole:
                done = max(done, through)
                self._watch(Progress(through, done / (time.monotonic() - began), whole - through, "tasks"))


def batch_of(query: StreamingQuery) -> int:
    """The last batch that is through; -1 before the first."""
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


class Count:
    """Rows of a query, from the positions its progress tells."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen = -1
        self._began = time.monotonic()
        self.rows = 0
        self.batches = 0
        self.behind: int | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def look(self) -> bool:
        """Takes in what is new; whether there was anything."""
        fresh = False
        for one in self._query.recentProgress:
            ends = [(positions(source["startOffset"]), positions(source["endOffset"])) for source in one["sources"]]
            rows = sum(end[key] - start.get(key, 0) for start, end in ends for key in end)
            if one["batchId"] <= self._seen or not rows:
                continue
            self._seen = one["batchId"]
            self.rows += rows
            self.batches += 1
            latest = [positions(source["latestOffset"]) for source in one["sources"]]
            gaps = [
                sum(there[key] - end.get(key, 0) for key in there) for there, (_, end) in zip(latest, ends, strict=True)
            ]
            self.behind = max(sum(gaps), 0)
            fresh = True
        return fresh


def positions(offset: Any) -> dict[tuple[str, str], int]:
    """The next position of each partition, out of a progress entry."""
    tree = json.loads(offset) if isinstance(offset, str) else offset
    if not isinstance(tree, dict) or "topics" not in tree:
        return {}
    return {(topic, part): position for topic, parts in tree["topics"].items() for part, position in parts.items()}
