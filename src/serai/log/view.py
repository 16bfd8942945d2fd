"""Reading a partition: by ordinal, by place, by time; from this process or from another.

    Reading    what every reader can do; it asks for bounds and a trail
    View       the partition of another process on this machine: maps its pages, changes nothing

    first ........... committed ........... end
          may be read by everybody   may be read, but a power cut can still take it away

Invariants
- a reader never goes beyond the end that the writer has published, nor beyond `committed` if asked to stay below it
- a page that is mapped is locked: it is not used again under a span that somebody holds
- without a writer since this machine was started, the newest mark says where the log ends
"""

import os
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from serai import limits
from serai._core.dress import redress
from serai._core.entries import JAFKA
from serai._core.messages import layout
from serai._core.pages import Page
from serai._core.records import RECORD_BYTES
from serai._core.spans import Span
from serai._core.trail import Head, Trail
from serai.errors import Corrupt, Misuse, OutOfRange
from serai.log import marks
from serai.log.folder import Folder, is_partition
from serai.log.format import (
    LIVE_BOOT,
    LIVE_COMMITTED,
    LIVE_COMMITTED_PLACE,
    LIVE_END,
    LIVE_EPOCH,
    LIVE_FIRST,
    LIVE_FIRST_PLACE,
    LIVE_FIRST_RECORD,
    LIVE_PLACE,
    LIVE_RECORD_END,
    MARKS_BYTES,
    MARKS_FILE,
)
from serai.log.store import disk_bytes

COUNT_MAX = 1 << 31


class Bounds(NamedTuple):
    """What there is to read: ordinals, and the record index entries that hold them."""

    first: int
    end: int
    committed: int
    first_record: int
    record_end: int


class Reading:
    """Every way into a partition; `bounds` and the trail come from who inherits."""

    folder: Folder
    trail: Trail

    def bounds(self) -> Bounds:
        raise AssertionError("each kind of reader knows its own bounds")

    @property
    def first(self) -> int:
        return self.bounds().first

    @property
    def end(self) -> int:
        return self.bounds().end

    @property
    def committed(self) -> int:
        return self.bounds().committed

    def disk_bytes(self) -> int:
        """What the files of the partition take, spare pages too; may be asked from any thread."""
        return disk_bytes(self.folder.path)

    def spans(
        self,
        ordinal: int,
        *,
        bytes_max: int,
        messages_max: int = COUNT_MAX,
        committed: bool = False,
        oversize: bool = True,
    ) -> list[Span]:
        """The messages from `ordinal` on, as whole entries within both limits; empty at the end.

        With `oversize` there is at least one entry, even if it is larger than `bytes_max`.
        """
        bounds = self.bounds()
        if not bounds.first <= ordinal <= bounds.end:
            raise self._out_of_range("ordinal", ordinal, bounds)
        try:
            return self.trail.spans(
                ordinal, first=bounds.first_record, end=bounds.record_end,
                limit=bounds.committed if committed else bounds.end,
                bytes_max=bytes_max, messages_max=messages_max, oversize=oversize,
            )  # fmt: skip
        except Corrupt as error:
            raise self._placed(error, ordinal) from None

    def _placed(self, error: Corrupt, ordinal: int) -> Exception:
        """Damage with the place where reading can go on; or that the messages were given up meanwhile."""
        now = self.bounds()
        if ordinal < now.first:
            self.trail.forget()
            return self._out_of_range("ordinal", ordinal, now)
        error.ordinal = ordinal if error.ordinal is None else error.ordinal
        error.next_ordinal = self._behind(ordinal, now)
        return error

    def _behind(self, ordinal: int, bounds: Bounds) -> int:
        """First ordinal of the record after the one that holds `ordinal`."""
        try:
            at = self.trail.find(ordinal, first=bounds.first_record, end=bounds.record_end)
            later = range(at + RECORD_BYTES, min(bounds.record_end, at + 5 * RECORD_BYTES), RECORD_BYTES)
            starts = [start for start in (self.trail.record(one)[0] for one in later) if start > ordinal]
            return min([*starts, bounds.end])  # of several, as one of them may be damaged too
        except (Corrupt, ValueError):
            per_page = self.folder.page_bytes // 16
            return min(bounds.end, (ordinal // per_page + 1) * per_page)

    def _out_of_range(self, what: str, value: int, bounds: Bounds) -> OutOfRange:
        return OutOfRange(
            f"{what} {value} is not in log {self.folder.path.name}: it holds the ordinals {bounds.first} to {bounds.end}; "
            f"start at {bounds.first} (the oldest) or {bounds.end} (the end)", first=bounds.first, end=bounds.end,
        )  # fmt: skip

    def head(self, ordinal: int) -> Head:
        """The head of the record that holds a message."""
        bounds = self.bounds()
        if not bounds.first <= ordinal < bounds.end:
            raise self._out_of_range("ordinal", ordinal, bounds)
        try:
            return self.trail.head(self.trail.holder(ordinal, first=bounds.first_record, end=bounds.record_end))
        except Corrupt as error:
            raise self._placed(error, ordinal) from None

    def ordinal_at_time(self, ms: int) -> int:
        """The first message that was stored at or after a time; the end when there is none."""
        bounds = self.bounds()
        at = self.trail.find_time(ms, first=bounds.first_record, end=bounds.record_end)
        for one in (at - RECORD_BYTES, at):  # times rise: if these two are right, so is what the search found
            if bounds.first_record <= one < bounds.record_end:
                self.trail.head(one)
        return max(bounds.first, self.trail.record(at)[0]) if at < bounds.record_end else bounds.end

    def places(self) -> tuple[int, int, int]:
        """Jafka's first, end and committed byte offset."""
        raise AssertionError("each kind of reader knows its own places")

    @property
    def first_place(self) -> int:
        return self.places()[0]

    @property
    def end_place(self) -> int:
        return self.places()[1]

    @property
    def committed_place(self) -> int:
        return self.places()[2]

    def ordinal_at_place(self, place: int) -> int:
        """The message whose Jafka entry holds a byte offset."""
        bounds, (first, end, _) = self.bounds(), self.places()
        if not first <= place <= end:
            raise self._out_of_range("place", place, bounds)
        if place == end:
            return bounds.end
        at = self.trail.find_place(place, first=bounds.first_record, end=bounds.record_end)
        head = self._head_at_place(place, at)
        if head.dress == JAFKA:
            return max(bounds.first, self.trail.message_at(at, place - head.place))
        starts, counts = self._entries(head)
        for start, count in zip(reversed(starts), reversed(counts), strict=True):
            head = head._replace(messages=head.messages - count)
            if start <= place - head.place:
                break
        return max(bounds.first, head.ordinal + head.messages)

    def _head_at_place(self, place: int, at: int) -> Head:
        head = self.trail.head(at)
        if not head.place <= place < head.place + head.place_length:
            raise self.folder.damage(
                at, -1, -1, f"the record index leads to place {head.place}, place {place} was looked for"
            )
        return head

    def place_of(self, ordinal: int) -> int:
        """The Jafka byte offset of a message; of a member of a wrapper, that of the wrapper."""
        bounds = self.bounds()
        if ordinal == bounds.end:
            return self.places()[1]
        head = self.head(ordinal)
        behind = ordinal - head.ordinal
        if behind == 0:
            return head.place
        place = head.place
        for start, count in zip(*self._entries(head), strict=True):
            place = head.place + start
            if behind < count:
                break
            behind -= count
        return place

    def _entries(self, head: Head) -> tuple[list[int], list[int]]:
        """Start and count of each entry of a record as the Jafka door shows it."""
        starts, counts = layout(
            self.jafka_bytes(head), JAFKA, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX
        )
        return memoryview(starts).cast("i").tolist(), memoryview(counts).cast("i").tolist()

    def jafka_bytes(self, head: Head) -> memoryview | bytes:
        """A record as a Jafka set; untouched if it is one."""
        payload = self.trail.payload(head.begin, head.length)
        if head.dress == JAFKA:
            return payload
        return redress(
            payload, head.dress, JAFKA, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
            bytes_max=(1 << 31) - 1, jafka_magic=self.folder.format.jafka_magic,
        )  # fmt: skip

    def spans_at_place(self, place: int, *, bytes_max: int, committed: bool = True) -> list[memoryview | bytes]:
        """The bytes of the Jafka log from a place on, exactly `bytes_max` of them if there are so many."""
        bounds, (first, end, durable) = self.bounds(), self.places()
        if not first <= place <= (durable if committed else end):
            raise self._out_of_range("place", place, bounds)
        stop = min(place + bytes_max, durable if committed else end)
        out: list[memoryview | bytes] = []
        at = self.trail.find_place(place, first=bounds.first_record, end=bounds.record_end)
        while place < stop:
            head = self._head_at_place(place, at)
            data = memoryview(self.jafka_bytes(head))[place - head.place : stop - head.place]
            out.append(data)
            place += len(data)
            at += RECORD_BYTES
        return out


class View(Reading):
    """A partition on this machine, read while another process may be writing it."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        path = Path(directory)
        if not path.is_dir() or not is_partition(path):
            raise Misuse(f"{path} is no partition: there is no format file in it")
        self.folder = Folder(path)
        self._open()

    def _open(self) -> None:
        marks_path = self.folder.path / MARKS_FILE
        fd = os.open(marks_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            mark = marks.newest(os.pread(fd, MARKS_BYTES, 0), marks_path)
            self._live = Page(fd, MARKS_BYTES, False)
        finally:
            os.close(fd)
        self._epoch = self._live.load(LIVE_EPOCH) if self.alive else mark.epoch
        self.trail = self.folder.trail()

    def _owned_by(self, epoch: int) -> None:
        """A new writer, or a truncation, may have put other pages in the place of those that are mapped here."""
        if epoch != self._epoch:
            self._epoch = epoch
            self.folder.forget()
            self.trail = self.folder.trail()

    @property
    def alive(self) -> bool:
        """Whether a writer told where it stands since this machine was started."""
        return self._live.load(LIVE_BOOT) == marks.boot_number()

    @property
    def epoch(self) -> int:
        """Whose partition it is: another one after each opening for writing, and each truncation."""
        self.bounds()
        return self._epoch

    def mark(self) -> marks.Mark:
        """The newest mark."""
        path = self.folder.path / MARKS_FILE
        return marks.newest(path.read_bytes(), path)

    def bounds(self) -> Bounds:
        if not self.alive:
            mark = self.mark()
            self._owned_by(mark.epoch)
            return Bounds(mark.first, mark.end, mark.end, mark.first_record, mark.record_end)
        load = self._live.load
        self._owned_by(load(LIVE_EPOCH))
        first, first_record, committed = load(LIVE_FIRST), load(LIVE_FIRST_RECORD), load(LIVE_COMMITTED)
        end = load(LIVE_END)  # before the record end, which is stored first
        return Bounds(first, end, min(committed, end), first_record, load(LIVE_RECORD_END))

    def places(self) -> tuple[int, int, int]:
        if not self.alive:
            mark = self.mark()
            return mark.first_place, mark.place, mark.place
        load = self._live.load
        return load(LIVE_FIRST_PLACE), load(LIVE_PLACE), load(LIVE_COMMITTED_PLACE)

    def close(self) -> None:
        """Lets all pages go that no span holds."""
        self.folder.forget()
        self.trail.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
