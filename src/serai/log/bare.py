"""A bare queue directory of one producer as a log: what an application wrote with `serai.Queue`, or Java, served as it is.

    n.qx   a slot for each message: the nth message has ordinal n        nothing is copied, nothing is added:
    n.qd   payloads, end to end, without heads                           the application can go on reading it

A message has no dress here, so what goes out is dressed on the way: a house message whose body is the payload.  What comes
in is undressed: bodies are kept, keys and headers are not.  A place needs no index: payloads follow each other, so the
Jafka log has 10 bytes for each message before one, and that message's begin.

Invariants
- an ordinal is a slot, as everywhere; what an application appends meanwhile is seen when it is published
- there is no mark: what was there is brought to the disk when the log is opened, what comes in at level commit at once
- store times, producers, transactions, truncation and retention are not to be had: refused, not made up
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from serai import limits
from serai._core.columns import Columns
from serai._core.dress import redress
from serai._core.entries import HOUSE, JAFKA
from serai._core.envelopes import envelopes
from serai._core.messages import census, cut
from serai._core.spans import Span, span_of_bytes
from serai._core.trail import Head
from serai.errors import Closed, Corrupt, Failed, OutOfRange, Refused
from serai.log import recovery
from serai.log.engine import Level, Ticket, bad_messages
from serai.log.format import DATA, INDEX, MARKS_FILE, RECORDS, SLOT_BYTES
from serai.log.place import kind_of
from serai.log.queue import Queue
from serai.log.store import PageFiles, disk_bytes, sync_directory

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Buffer

    from serai.log.retention import Retention

_HEAD_BYTES = 16  # of a house message without key and headers
_JAFKA_HEAD = 10  # magic 1
_ROWS_MAX = 1 << 20


def is_bare(directory: Path) -> bool:
    """Whether a directory is a queue of one producer, and no partition that lost a file."""
    if not directory.is_dir() or (directory / MARKS_FILE).exists() or any(directory.glob("*" + RECORDS)):
        return False
    return kind_of(directory) == "single"


class BareLog:
    """One queue directory as a partition of the log; one thread uses it."""

    def __init__(self, directory: str | os.PathLike[str], *, mode: str = "rw") -> None:
        self._queue = Queue(directory, mode)
        self.name = self._queue.path.name
        self.path = self._queue.path
        self._queue.measure()
        if mode == "rw" and self._is_summed():
            self._queue.checksum = "index24"
        self._reader = self._queue.reader()
        self.failed: Exception | None = None
        self._closed = False
        self._end = recovery.find_end(self._queue.index, shared=False) // SLOT_BYTES
        self.committed = self.first
        self._sync_all()

    def _is_summed(self) -> bool:
        end = recovery.find_end(self._queue.index, shared=False)
        newest = recovery.read_entry(self._queue.index, end - SLOT_BYTES) if end else None
        return newest is not None and any(newest.tag)

    def _sync_all(self) -> None:
        """Nobody says what of it is on the disk already."""
        for suffix in (DATA, INDEX):
            files = PageFiles(self.path, suffix, self._queue.page_size)
            for number in files.numbers():
                fd = os.open(files.path(number), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(fd)
                finally:
                    os.close(fd)
        sync_directory(self.path)
        self.committed = self._end

    # ---- where it stands ----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def first(self) -> int:
        return recovery.first_offset(self._queue.index) // SLOT_BYTES if self._queue.measure() else 0

    @property
    def end(self) -> int:
        """Behind the newest published message, whoever wrote it."""
        entry = recovery.read_entry(self._queue.index, self._end * SLOT_BYTES) if self._queue.measure() else None
        if entry is not None and entry.published:
            self._end = recovery.find_end(self._queue.index, shared=False) // SLOT_BYTES
        return self._end

    @property
    def first_place(self) -> int:
        return self.place_of(self.first)

    @property
    def end_place(self) -> int:
        return self.place_of(self.end)

    @property
    def committed_place(self) -> int:
        return self.place_of(self.committed)

    def disk_bytes(self) -> int:
        """What its files take."""
        return disk_bytes(self.path)

    def _slot(self, ordinal: int) -> recovery.Entry:
        entry = recovery.read_entry(self._queue.index, ordinal * SLOT_BYTES)
        if entry is None or not entry.published:
            path = self._queue.index.path(ordinal * SLOT_BYTES // self._queue.page_size)
            position = ordinal * SLOT_BYTES % self._queue.page_size
            raise Corrupt(
                f"{path} byte {position}: the slot of ordinal {ordinal} is missing or empty; `serai verify {self.path}` says more",
                file=str(path), position=position, expected="a published slot", found="none",
            )  # fmt: skip
        return entry

    def place_of(self, ordinal: int) -> int:
        """The Jafka byte offset of a message."""
        self._within(ordinal)
        if ordinal < self._end:
            return self._slot(ordinal).begin + _JAFKA_HEAD * ordinal
        if ordinal == 0:
            return 0
        newest = self._slot(ordinal - 1)
        return newest.begin + newest.size + _JAFKA_HEAD * ordinal

    def ordinal_at_place(self, place: int) -> int:
        """The message whose Jafka entry holds a byte offset."""
        low, high = self.first, self.end
        if not self.first_place <= place <= self.end_place:
            raise self._out_of_range("place", place)
        while low < high:
            middle = (low + high) // 2
            if self.place_of(middle + 1) <= place:
                low = middle + 1
            else:
                high = middle
        return low

    def ordinal_at_time(self, ms: int) -> int:
        raise self._unsupported(f"finding time {ms}", "its messages have no store time")

    def _within(self, ordinal: int) -> None:
        if not self.first <= ordinal <= self.end:
            raise self._out_of_range("ordinal", ordinal)

    def _out_of_range(self, what: str, value: int) -> OutOfRange:
        return OutOfRange(
            f"{what} {value} is not in queue {self.name}: it holds the ordinals {self.first} to {self.end}; start at "
            f"{self.first} (the oldest) or {self.end} (the end)", first=self.first, end=self.end,
        )  # fmt: skip

    def _unsupported(self, what: str, why: str) -> Refused:
        return Refused(
            f"{what} is not possible in {self.path}: it is a bare queue, and {why}; produce its messages into a topic of the "
            "log to have that", code="unsupported",
        )  # fmt: skip

    # ---- appending ----------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        dress: int,
        *,
        level: Level,
        transaction: int = 0,
        **_sender: object,
    ) -> Ticket:
        """Appends the bodies of a set of messages; who sent them, and when, a queue does not keep."""
        if self.failed is not None or self._closed:
            raise self._refusal()
        if transaction:
            raise self._unsupported("a transaction", "its messages do not say what they belong to")
        try:
            held = census(data, dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX)
        except ValueError as error:
            raise bad_messages(f"queue {self.name}", error) from None
        found = Columns()
        found.unfold(
            data, dress, lead=0, count=held.messages, ordinal=0, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
        )  # fmt: skip
        bodies, ends = memoryview(found.values), memoryview(found.ends).cast("i").tolist()
        ordinal = self.end
        self._queue.writer().append_many([bodies[start:stop] for start, stop in pairwise(ends)])
        self._end = ordinal + held.messages
        if level == Level.COMMIT:
            self.commit()
        return Ticket(self, ordinal, held.messages, level)

    def commit(self) -> None:
        """Brings everything that was appended here to the disk."""
        if self.failed is not None or self._closed:
            raise self._refusal()
        end = self._end
        try:
            self._queue.force()
        except OSError as error:
            self.failed = error
            raise self._refusal() from error
        self.committed = end

    def _refusal(self) -> Exception:
        if self._closed:
            return Closed(f"log {self.name} is closed; open it again")
        return Failed(
            f"queue {self.name} takes nothing more: the disk did not keep what it was given ({self.failed}); check the disk, "
            "then open it again"
        )

    # ---- reading ------------------------------------------------------------------------------------------

    def spans(
        self,
        ordinal: int,
        *,
        bytes_max: int,
        messages_max: int = _ROWS_MAX,
        committed: bool = False,
        oversize: bool = True,
    ) -> list[Span]:
        """The messages from `ordinal` on as one set of house messages, within both limits; empty at the end."""
        self._within(ordinal)
        limit = min(self.committed, self._end) if committed else self._end
        if ordinal >= limit or messages_max <= 0:
            return []
        found = Columns()
        self._reader.seek(ordinal * SLOT_BYTES)
        try:
            found.take_from(
                self._reader, stop=limit * SLOT_BYTES, rows_max=min(messages_max, _ROWS_MAX), bytes_max=bytes_max
            )
        except Corrupt as error:
            error.ordinal, error.next_ordinal = ordinal, max(self._reader.offset // SLOT_BYTES, ordinal + 1)
            raise
        house = envelopes(found.values, found.ends)
        run = cut(
            house, HOUSE, skip=0, bytes_max=bytes_max, messages_max=messages_max, inflated_max=0, depth_max=0
        )  # what each message has in front of it counts too
        stop, count = run.stop, run.messages
        if count == 0 and oversize and len(found):
            stop, count = int.from_bytes(house[:4], "little"), 1
        return [span_of_bytes(house[:stop], HOUSE, ordinal, count, self.place_of(ordinal))] if count else []

    def head(self, ordinal: int) -> Head:
        """What a head would say of one message."""
        self._within(ordinal)
        entry, place = self._slot(ordinal), self.place_of(ordinal)
        return Head(
            length=_HEAD_BYTES + entry.size, dress=HOUSE, flags=1, messages=1, ordinal=ordinal, place=place,
            place_length=_JAFKA_HEAD + entry.size, epoch=0, time=0, producer=0, sequence=0, transaction=0, part=0,
            begin=entry.begin,
        )  # fmt: skip

    def spans_at_place(self, place: int, *, bytes_max: int, committed: bool = True) -> list[memoryview | bytes]:
        """The bytes of the Jafka log from a place on, exactly `bytes_max` of them if there are so many."""
        limit = self.committed_place if committed else self.end_place
        if not self.first_place <= place <= limit:
            raise self._out_of_range("place", place)
        stop, ordinal = min(place + bytes_max, limit), self.ordinal_at_place(place)
        out: list[memoryview | bytes] = []
        while place < stop:
            (span,) = self.spans(ordinal, bytes_max=max(stop - place, 1), messages_max=_ROWS_MAX)
            shown = redress(
                span.data, HOUSE, JAFKA, inflated_max=0, depth_max=0, bytes_max=(1 << 31) - 1, jafka_magic=1
            )
            data = memoryview(shown)[place - span.place : stop - span.place]
            out.append(data)
            place += len(data)
            ordinal += span.count
        return out

    # ---- giving up ----------------------------------------------------------------------------------------

    def truncate(self, ordinal: int) -> None:
        raise self._unsupported(f"cutting at {ordinal}", "its application would not know")

    def retain(self, policy: Retention, *, now_ms: int, unconsumed_from: int | None = None) -> int:  # noqa: ARG002 - the seam's
        """Nothing is given up here: that is for the application the queue belongs to."""
        return self.first

    def close(self) -> None:
        """Brings what was appended to the disk and lets the queue go.  May be called twice."""
        if not self._closed:
            if self.failed is None:
                self.commit()
            self._closed = True
            self._queue.close()

    def abandon(self) -> None:
        """Lets the queue go as it is."""
        self._closed = True
        self._queue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
