"""A partition that this process writes: records in, spans out, positions that become durable.

    append --> data, slots, record index of the mapped pages --> end           `_core.records`
    flush  --> the data pages on the disk                    --> committed     `log.flush`
    now and then also slots and index, and then a mark                         `log.marks`

Invariants
- what is acknowledged at level commit lies on the disk; slots and index are made again from the heads if need be
- a mark is written when data, slots and record index below it are durable, never before
- after a failed flush nothing more is appended or promised until the log is opened again; reading goes on
- one thread appends and reads; the flush thread only looks at published positions and at what is dirty
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from serai import limits
from serai._core.records import Recorder
from serai.errors import Closed, DiskFull, Failed
from serai.log import folder, healing, retention
from serai.log.engine import Level, Ticket, bad_messages
from serai.log.format import (
    LIVE_AT,
    LIVE_COMMITTED,
    LIVE_COMMITTED_PLACE,
    LIVE_DATA_END,
    LIVE_END,
    LIVE_PLACE,
    LIVE_RECORD_END,
    LIVE_TIME,
)
from serai.log.marks import Mark, Marks
from serai.log.retention import Retention
from serai.log.store import HURRIED_WINDOWS, NO_PAGE, Dirty, Runway
from serai.log.view import Bounds, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Buffer

    from serai._core.pages import Page


class Flusher(Protocol):
    """Who brings partitions to the disk in the background."""

    def note(self, partition: Partition) -> None: ...
    def want(self, partition: Partition) -> None: ...
    def count_failure(self) -> None: ...


class Turn(NamedTuple):
    """What one flush of a partition covers."""

    end: int
    place: int
    dirty: Dirty


class Partition(Reading):
    """The one writer of a partition, and a reader of it."""

    def __init__(self, directory: Path, *, epoch: int, flusher: Flusher | None = None) -> None:
        self.name = directory.name
        self.folder = folder.Folder(directory)
        self.failed: Exception | None = None
        self.flush_lock = threading.Lock()  # one flush at a time; taken by whoever flushes
        self._marks = Marks(directory)
        self.epoch = self._marks.epoch = max(epoch, self._marks.epoch)
        self._flusher = flusher
        self._noted = False
        self._wanted = False
        self._closed = False
        self._tidy = self._marks.mark.clean == 1  # the mark says all there is to say, until something is appended
        self._first = self._marks.mark
        self._marked_at = time.monotonic()
        self._runways = [
            Runway(files, window_first=first, window_max=most, spare=0, bulk=True)
            for files, first, most in (
                (self.folder.data_files, limits.DATA_WINDOW_FIRST, limits.DATA_WINDOW_MAX),
                (self.folder.slot_files, limits.SLOT_WINDOW_FIRST, limits.SLOT_WINDOW_MAX),
                (self.folder.record_files, limits.RECORD_WINDOW_FIRST, limits.SLOT_WINDOW_MAX),
            )
        ]
        self.trail = self.folder.trail()
        self._recorder = self._new_recorder(self._marks.mark)
        self._append = self._recorder.append
        self._live = self._marks.page
        try:
            self._recover()
            self.settle()
        except OSError as error:
            self.abandon()
            raise Failed(
                f"log {self.name} cannot be opened: the disk did not give or keep what lies above its newest mark ({error}). "
                "Nothing is lost by that; check the disk, then open the log again"
            ) from error
        except BaseException:
            self.abandon()
            raise

    def _new_recorder(self, mark: Mark) -> Recorder:
        return Recorder(
            self, live=self._marks.page, live_at=LIVE_AT, page_bytes=self.folder.page_bytes, data_offset=mark.data_end,
            ordinal=mark.end, record_offset=mark.record_end, place=mark.place, time=mark.time,
            identity=self.folder.identity, epoch=self.epoch, jafka_magic=self.folder.format.jafka_magic,
            inflated_max=limits.INFLATED_MAX, inflated_free=limits.INFLATED_FREE, inflated_ratio=limits.INFLATED_RATIO,
            depth_max=limits.NESTED_MAX, part_bytes=limits.PART_BYTES,
        )  # fmt: skip

    def _recover(self) -> None:
        """Takes over what lies above the newest mark, cuts what is torn, and says where the log stands."""
        mark = self._marks.mark
        self._marks.show_first(mark)
        if not mark.clean:
            self.folder.sweep()
            healing.resume(self.folder, self.trail, self._recorder, mark)
        if not mark.end <= self._marks.committed_before() <= self._recorder.end:
            self._marks.show_committed(mark.end, place=mark.place)
        self._recorder.show()
        self._marks.show_alive()
        self.trail.sure_from = self._recorder.record_end

    # ---- what the recorder asks for -----------------------------------------------------------------------

    def data(self, offset: int, need: int) -> tuple[Page, int]:
        return self._runways[0].ahead(offset, need)

    def slots(self, offset: int, need: int) -> tuple[Page, int]:
        return self._runways[1].ahead(offset, need)

    def records(self, offset: int, need: int) -> tuple[Page, int]:
        return self._runways[2].ahead(offset, need)

    # ---- appending ----------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        dress: int,
        *,
        level: Level,
        now_ms: int,
        client: bytes = b"",
        app: bytes = b"",
        partition: int = 0,
        producer: int = 0,
        sequence: int = 0,
        transaction: int = 0,
    ) -> Ticket:
        """Stores a set of messages as one record, or as several if it is long."""
        if self.failed is not None or self._closed:
            raise self._refusal()
        if self._tidy:
            self._untidy()
        if level == 2 and self._runways[0].hurried != HURRIED_WINDOWS:
            self._hurry()
        try:
            ordinal = self._append(data, dress, now_ms, client, app, partition, producer, sequence, transaction)
        except ValueError as error:
            raise bad_messages(f"log {self.name}", error) from None
        if not self._noted and self._flusher is not None:
            self._noted = True
            self._flusher.note(self)
        if level == 2 and not self._wanted and self._flusher is not None:
            self._wanted = True
            self._flusher.want(self)
        return Ticket(self, ordinal, self._recorder.count, level)

    def _hurry(self) -> None:
        """Somebody waits for the disk: what is written ahead comes in small pages from here on.

        The kernel divides no large page that is dirty, so it has to be a moment when all is on the disk.
        """
        if self.committed < self.end:
            return
        if self._runways[0].hurry(self._recorder.data_end):
            self._recorder.ask_again()

    def _untidy(self) -> None:
        """From now on a recovery has to look at what lies above the mark."""
        with self._failing():
            self._marks.write(self._marks.mark._replace(clean=0))
        self._tidy = False

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What the disk does not do in here ends all promises: done once more it might seem to succeed."""
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise self._refusal() from error

    def _refusal(self) -> Exception:
        if self._closed:
            return Closed(f"log {self.name} is closed; open it again")
        return Failed(
            f"log {self.name} takes nothing more: the disk did not keep what it was given ({self.failed}). What was "
            "acknowledged before is safe; check the disk, then open the log again, which checks what is there"
        )

    # ---- becoming durable ---------------------------------------------------------------------------------

    def commit(self) -> None:
        """Brings everything appended so far to the disk, in this thread."""
        if self.failed is not None or self._closed:
            raise self._refusal()
        with self.flush_lock:
            self.finish(self.begin())
        if self._runways[0].hurried != HURRIED_WINDOWS:
            self._hurry()
        if self.failed is not None:
            raise self._refusal()

    def begin(self) -> Turn:
        """What a flush that starts now will cover."""
        if self._closed:
            return Turn(0, 0, Dirty(self.folder.data_files, 0, NO_PAGE, made=False))
        self._noted = self._wanted = False
        end = self._live.load(LIVE_END)
        place = self._live.load(LIVE_PLACE)
        while (now := self._live.load(LIVE_END)) != end:  # place and end belong together
            end, place = now, self._live.load(LIVE_PLACE)
        return Turn(end, place, self._runways[0].dirty())

    def finish(self, turn: Turn) -> None:
        """Syncs the data pages of a turn; from then on its messages are committed."""
        try:
            turn.dirty.sync()
        except OSError as error:
            self.fail(error)
            return
        self.covered(turn)

    def covered(self, turn: Turn) -> None:
        """The data of a turn is on the disk."""
        self._runways[0].synced(turn.dirty)
        if self.failed is None and turn.end > self._live.load(LIVE_COMMITTED):
            self._marks.show_committed(turn.end, place=turn.place)

    def fail(self, error: Exception) -> None:
        """Nothing can be promised any more: a later sync that succeeds would prove nothing."""
        if self.failed is None and self._flusher is not None:
            self._flusher.count_failure()
        self.failed = self.failed or error

    def mark_is_behind(self) -> bool:
        """Whether a recovery would have anything to look at."""
        return not self._closed and self.failed is None and self._live.load(LIVE_END) > self._marks.mark.end

    def mark_is_due(self) -> bool:
        """Whether recovery would have much to look at."""
        behind = self._live.load(LIVE_DATA_END) - self._marks.mark.data_end
        return behind >= limits.MARK_EVERY_BYTES or time.monotonic() - self._marked_at >= limits.MARK_EVERY_S

    def settle(self, *, clean: bool = False) -> None:
        """Brings data, slots and record index to the disk, and then says so in a mark."""
        with self.flush_lock:
            if self.failed is not None or self._closed or self._tidy:
                return
            mark = self._mark_now()
            turn = self.begin()
            dirty = [runway.dirty() for runway in self._runways[1:]]
            try:
                turn.dirty.sync()
                for pages in dirty:
                    pages.sync()
                for runway, pages in zip(self._runways[1:], dirty, strict=True):
                    runway.synced(pages)
                self._marks.write(mark._replace(clean=int(clean)))
            except (OSError, DiskFull) as error:
                self.fail(error)
                return
            self._marked_at = time.monotonic()
            self._tidy = clean
            self.covered(turn)

    def _mark_now(self) -> Mark:
        """Where the log stands, as other readers see it: taken before anything is synced."""
        load = self._live.load
        end = load(LIVE_END)
        record_end, data_end, place = load(LIVE_RECORD_END), load(LIVE_DATA_END), load(LIVE_PLACE)
        if load(LIVE_END) != end:
            return self._mark_now()
        return self._first._replace(
            counter=self._marks.mark.counter, end=end, data_end=data_end, record_end=record_end, place=place,
            time=load(LIVE_TIME),
        )  # fmt: skip

    # ---- reading ------------------------------------------------------------------------------------------

    def bounds(self) -> Bounds:
        recorder = self._recorder
        committed = self._live.load(LIVE_COMMITTED)
        return Bounds(self._first.first, recorder.end, committed, self._first.first_record, recorder.record_end)

    @property
    def first(self) -> int:
        return self._first.first

    @property
    def end(self) -> int:
        return self._recorder.end

    @property
    def committed(self) -> int:
        return self._live.load(LIVE_COMMITTED)

    def places(self) -> tuple[int, int, int]:
        return self._first.first_place, self._recorder.place, self._live.load(LIVE_COMMITTED_PLACE)

    # ---- giving up ----------------------------------------------------------------------------------------

    def retain(self, policy: Retention, *, now_ms: int, unconsumed_from: int | None = None) -> int:
        """Gives up the oldest pages as the policy says; the first ordinal that is left."""
        if self._closed:
            raise self._refusal()
        kept = retention.first_kept(self, policy, now_ms=now_ms, unconsumed_from=unconsumed_from)
        if kept is not None and kept.first > self.first:
            self._begin_at(kept)
        return self.first

    def _begin_at(self, kept: retention.Kept) -> None:
        """The mark first: whoever opens the log from now on does not look for what goes."""
        self._first = self._first._replace(
            first=kept.first, first_record=kept.first_record, first_place=kept.first_place
        )
        self._marks.show_first(self._first)
        self._tidy = False
        self.settle()
        if self.failed is not None:
            raise self._refusal()
        with self._failing():
            self._marks.write_both(self._marks.mark)  # whichever of them is lost, the other names no page that is gone
        self.folder.forget()
        self.trail.forget()  # a page that this reader maps would not be used again
        retention.give_up(self.folder, kept)

    def truncate(self, ordinal: int) -> None:
        """Gives up every message from `ordinal` on; they can come again under the same ordinals."""
        if self.failed is not None or self._closed:
            raise self._refusal()
        bounds = self.bounds()
        if not bounds.first <= ordinal <= bounds.end:
            raise self._out_of_range("ordinal", ordinal, bounds)
        if ordinal == bounds.end:
            return
        if self._tidy:
            self._untidy()
        self.settle()
        with self.flush_lock, self._failing():
            if self.failed is not None:
                raise self._refusal()
            epoch = self.epoch + 1  # what is given up can never be taken for what comes under the same ordinals
            mark = healing.truncated(self, self._runways[0], self._marks.mark, ordinal, epoch=epoch)
            self.epoch = self._marks.epoch = epoch
            self._marks.write_both(mark)
            self._recorder = self._new_recorder(self._marks.mark)
            self._append = self._recorder.append
            self.trail = self.folder.trail()
            self._recover()
        self.settle()

    def close(self) -> None:
        """Brings everything to the disk and leaves a mark that says so.  May be called twice."""
        if self._closed:
            return
        try:
            self.settle(clean=True)
            if self._tidy:
                self._marks.show_dead()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Lets everything go as it is: what the end of the process would do."""
        self._closed = True
        for runway in self._runways:
            runway.release()
        self._live = self._marks.let_go()
        self._recorder.let_go(self._live)
        self.folder.forget()
        self.trail.forget()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def data_end(self) -> int:
        """Data offset behind the newest record."""
        return self._recorder.data_end

    @property
    def runways(self) -> list[Runway]:
        """The writing ends of data, slots and record index."""
        return self._runways

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_partition(
    directory: Path, *, epoch: int = 1, jafka_magic: int = 1, page_bytes: int = limits.LOG_PAGE_BYTES_DEFAULT,
    flusher: Flusher | None = None,
) -> Partition:  # fmt: skip
    """A partition by its folder, made when it is missing."""
    if not folder.is_partition(directory):
        folder.create(directory, jafka_magic=jafka_magic, page_bytes=page_bytes)
    return Partition(directory, epoch=epoch, flusher=flusher)
