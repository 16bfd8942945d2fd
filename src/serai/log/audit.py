"""Looking at everything in a data directory, or in one partition of it, and naming what is wrong.

    directory   format, epoch, what was left half made
    files       both marks; page lengths, missing pages
    records     every head and its checksum; ordinals, places, times and parts that follow each other
    messages    walked to their depth, counted, their own checksums compared
    slots       one for each message, as the messages lie; and an entry of the record index for each record

A record is found by its index entry, and if that leads astray, behind the record before it: so one flipped bit is one
problem, and what lies behind it is looked at too.

Invariants
- nothing is changed and no lock is taken but that of a page while it is mapped; a server may be at work
- a problem has its log, the first ordinal it touches if there is one, and file and byte
- what was given up by retention while this looked is no problem

Left to others: bare queues (`log.verify`), making slots and index again from the records (`log.rebuild`).
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from serai import limits
from serai._core.entries import HOUSE
from serai._core.messages import census, layout
from serai._core.records import FLAG_LAST, HEAD_BYTES, RECORD_BYTES
from serai._core.trail import Head
from serai.errors import Corrupt, Misuse, NewerFormat
from serai.log import folder, marks, verify
from serai.log.bare import is_bare
from serai.log.format import (
    DATA_KIND,
    FORMAT_FILE,
    LOG_KIND,
    MARKS_FILE,
    PUBLISHED,
    SLOT,
    STORE_VERSION,
)
from serai.log.healing import following
from serai.log.place import gaps, page_names
from serai.log.view import Bounds, View

PROBLEMS_MAX = 1000  # named one by one; the rest is counted
LEAD = 8  # records before a stretch that are walked to know what comes next; some of them may be damaged
_LEFT = re.compile(r"\..*\.(new|gone)")
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: in `log`, from message `ordinal` to below `end`, at byte `position` of `file`."""

    kind: str
    log: str
    ordinal: int | None
    file: str
    position: int | None
    text: str
    end: int | None = None  # the first ordinal that it does not touch


@dataclass
class Report:
    """What `audit` found."""

    path: str
    logs: int = 0
    records: int = 0
    messages: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    unnamed: int = 0  # problems beyond the first PROBLEMS_MAX
    notes: list[str] = field(default_factory=list)

    def add(
        self, kind: str, log: str, where: Path | tuple[Path, int | None], text: str, ordinal: int | None = None,
        end: int | None = None,
    ) -> None:  # fmt: skip
        file, position = where if isinstance(where, tuple) else (where, None)
        if len(self.problems) < PROBLEMS_MAX:
            stop = end if end is not None or ordinal is None else ordinal + 1
            self.problems.append(Problem(kind, log, ordinal, str(file), position, text, stop))
        else:
            self.unnamed += 1


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a directory is by its format file: "serai-data", "serai-log", or "" for anything else."""
    try:
        with open(Path(path) / FORMAT_FILE, "rb") as file:
            first = file.read(64)
    except OSError:
        return ""
    return next((kind for kind in (DATA_KIND, LOG_KIND) if first.startswith(kind.encode())), "")


def logs_of(path: Path) -> dict[str, Path]:
    """The partitions and state logs of a data directory, or the one partition that a directory is, by name."""
    if kind_of(path) == LOG_KIND:
        return {path.name: path}
    folder.read_words(path / FORMAT_FILE, kind=DATA_KIND, version=STORE_VERSION)
    found: dict[str, Path] = {}
    for room in ("p", "s"):
        if (path / room).is_dir():
            names = sorted(name for name in os.listdir(path / room) if not name.startswith("."))
            found |= {f"{room}/{name}": path / room / name for name in names}
    return found


def audit(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Report:
    """Looks at all of a data directory or a partition; `progress` hears (records done, records in all)."""
    path = Path(path)
    if not path.is_dir():
        raise Misuse(f"{path} is not a directory, so there is no log in it")
    report = Report(str(path))
    logs = logs_of(path)
    if kind_of(path) != LOG_KIND:
        _look_around(path, report)
    views = {name: opened(one, name, report) for name, one in logs.items()}
    walks = [
        Walk(view, name, report, is_state=logs[name].parent.name == "s")
        for name, view in views.items()
        if view is not None
    ]
    total, done = sum(walk.records for walk in walks), 0
    for walk in walks:
        for count in walk.run():
            if progress is not None:
                progress(done + count, total)
        done += walk.records
        if progress is not None:
            progress(done, total)
    return report


def _look_around(path: Path, report: Report) -> None:
    """The files of the directory itself."""
    try:
        text = (path / "epoch").read_text(encoding="ascii", errors="replace").strip()
        if not text.isdecimal():
            report.add("epoch", "", (path / "epoch", 0), f"holds {text[:40]!r}, not a number: no server starts here")
    except FileNotFoundError:
        report.add(
            "epoch", "", path / "epoch", "is not there: epochs would begin again, and old ones would be believed"
        )
    for room in ("p", "s"):
        for name in sorted(os.listdir(path / room)) if (path / room).is_dir() else []:
            if _LEFT.fullmatch(name):
                report.notes.append(
                    f"{path / room / name} was left half made or half removed; the next start removes it"
                )


def opened(path: Path, name: str, report: Report) -> View | None:
    """A partition as far as it can be opened, its files looked at from outside; a queue in its place is looked at whole."""
    report.logs += 1
    if is_bare(path):
        look_at_queue(path, name, report)
        return None
    try:
        one = folder.Folder(path)
    except FileNotFoundError:
        report.add("format", name, path / FORMAT_FILE, "is not there, so it cannot be said how to read this log")
        return None
    except (Corrupt, NewerFormat) as error:
        if len(report.path) == len(str(path)):  # the one that was asked for
            raise
        report.add("format", name, (path / FORMAT_FILE, 0), str(error))
        return None
    _check_pages(one, name, report)
    file = path / MARKS_FILE
    try:
        view = View(path)
    except (Corrupt, FileNotFoundError):
        report.add("marks", name, file, "holds no valid mark: nobody can say where this log begins and ends")
        return None
    if (at := marks.damaged(file.read_bytes())) is not None:
        report.add("marks", name, (file, at), "this mark is not as it was written; the other one serves")
    return view


def look_at_queue(path: Path, name: str, report: Report) -> None:
    """A bare queue that is served as a partition."""
    found = verify.verify(path)
    report.messages += found.messages
    report.records += found.messages
    report.bytes += found.bytes
    for one in found.problems:
        ordinal, end = (None if offset is None else offset // SLOT.size for offset in (one.offset, one.end))
        report.add(one.kind, name, (Path(one.file), one.position), one.text, ordinal, end)
    report.unnamed += found.unnamed
    report.notes += found.notes


def _check_pages(one: folder.Folder, name: str, report: Report) -> None:
    """Lengths of page files, and pages that are missing between others."""
    for files in (one.data_files, one.slot_files, one.record_files):
        numbers = files.numbers()
        for number in numbers:
            size = os.stat(files.path(number)).st_size
            if size != files.page_bytes:
                text = f"has {size} bytes, the pages of this log have {files.page_bytes}"
                report.add("page", name, (files.path(number), min(size, files.page_bytes)), text)
        for low, high in gaps(numbers):
            text = f"{page_names(low, high, files.suffix)} not there although later ones are"
            report.add("page", name, files.path(low), text)


class _Entry(NamedTuple):
    """Where a record begins, as the index says or as it has to be; a negative begin is not known."""

    begin: int
    ordinal: int
    place: int
    time: int


class Walk:
    """One log from its first record to its end, or the records of a stretch of its index."""

    def __init__(
        self, view: View, name: str, report: Report, *, start: int | None = None, stop: int | None = None,
        is_state: bool = False, each: Callable[[Head], object] | None = None,
    ) -> None:  # fmt: skip
        self.view = view
        self.name = name
        self.report = report
        self.is_state = is_state
        self.each = each  # hears of every record that is whole
        self.bounds: Bounds = view.bounds()
        self.places = view.places()
        self.epoch = view.epoch
        self.start = self.bounds.first_record if start is None else start
        self.stop = self.bounds.record_end if stop is None else stop
        self.time = 0
        self.part = 0
        self.next = _Entry(-1, self.bounds.first, self.places[0], 0)

    @property
    def records(self) -> int:
        return (self.stop - self.start) // RECORD_BYTES

    def run(self) -> Iterator[int]:
        """Looks at every record; tells how many are done."""
        self._come_up()
        for at in range(self.start, self.stop, RECORD_BYTES):
            head = self._step(at)
            if head is not None and self.each is not None:
                self.each(head)
            if not (at // RECORD_BYTES) % 256:
                yield (at - self.start) // RECORD_BYTES
        if self.stop >= self.bounds.record_end:
            self._at_the_end()
        self.view.close()

    def _step(self, at: int) -> Head | None:
        head = self._record(at)
        if head is not None:
            self._take(head)
        return head

    def _come_up(self) -> None:
        """To begin inside a log, the records before are walked without a word: what comes next is what they say."""
        if self.start <= self.bounds.first_record:
            return
        low = max(self.start - LEAD * RECORD_BYTES, self.bounds.first_record)
        while (entry := self._entry(low)) is None and low > self.bounds.first_record:
            low -= RECORD_BYTES
        if low > self.bounds.first_record and entry is not None:
            self.next, self.part = entry._replace(begin=-1), -1
        loud, self.report = self.report, Report(self.report.path)
        for at in range(low, self.start, RECORD_BYTES):
            self._step(at)
        self.report = loud

    def _add(
        self, kind: str, where: Path | tuple[Path, int | None], ordinal: int | None, text: str, end: int | None = None
    ) -> None:
        if ordinal is not None and (ordinal < self.view.first or self.view.epoch != self.epoch):
            return  # given up, or cut, since this began
        self.report.add(kind, self.name, where, text, ordinal, end)

    # ---- finding records ----------------------------------------------------------------------------------

    def _record(self, at: int) -> Head | None:
        """The record of an index entry, whichever of the two is wrong."""
        entry = self._entry(at)
        if entry is None:
            self._add("index", self._place_of(at), self.next.ordinal, "this entry of the record index cannot be read")
        found = self._scan(entry.begin) if entry is not None else ""
        if isinstance(found, Head) and found.ordinal == self.next.ordinal:
            if entry != (found.begin, found.ordinal, found.place, found.time):
                self._index_is_wrong(at, found)
            return found
        chained = self._chained()
        if chained is not None and (entry is None or chained.time == entry.time):
            if entry is not None:
                self._index_is_wrong(at, chained)
            return chained
        believed = entry is not None and (entry.ordinal, entry.place) == (self.next.ordinal, self.next.place)
        begin = entry.begin if entry is not None and (believed or self.next.begin < 0) else self.next.begin
        text = self._scan(begin) if begin >= 0 else "its begin is not known"
        if isinstance(text, Head):
            text = f"the record of ordinal {text.ordinal} lies there"
        ordinal = self.next.ordinal
        self._pass_by(at)
        text = f"{text}; nothing of it is given out"
        self._add("record", self.view.folder.where(max(begin, 0)), ordinal, text, max(self.next.ordinal, ordinal + 1))
        return None

    def _pass_by(self, at: int) -> None:
        """Behind a record that cannot be read its successor is believed."""
        after = _Entry(-1, self.bounds.end, self.places[1], self.time)
        if at + RECORD_BYTES < self.bounds.record_end:
            after = self._entry(at + RECORD_BYTES) or after
        self.next, self.part = after, -1

    def _entry(self, at: int) -> _Entry | None:
        try:
            ordinal, place, begin, time = self.view.trail.record(at)
        except Corrupt:
            return None
        return _Entry(begin, ordinal, place, time)

    def _index_is_wrong(self, at: int, head: Head) -> None:
        text = f"this entry of the record index does not say what the record at data byte {head.begin} does"
        self._add("index", self._place_of(at), head.ordinal, text, head.ordinal + head.messages)

    def _place_of(self, at: int) -> tuple[Path, int]:
        files = self.view.folder.record_files
        return files.path(at // files.page_bytes), at % files.page_bytes

    def _scan(self, begin: int) -> Head | str:
        try:
            return self.view.trail.scan(begin)
        except Corrupt as error:  # a page of another length
            return str(error.found)

    def _chained(self) -> Head | None:
        """The record behind the last one."""
        begin = self.next.begin
        if begin < 0:
            numbers = self.view.folder.data_files.numbers()
            begin = numbers[0] * self.view.folder.page_bytes if numbers else 0
        try:
            return following(
                self.view.trail, begin, page_bytes=self.view.folder.page_bytes, ordinal=self.next.ordinal,
                place=self.next.place, epoch=0, part=max(self.part, 0),
            )  # fmt: skip
        except Corrupt:
            return None

    # ---- looking at one -----------------------------------------------------------------------------------

    def _take(self, head: Head) -> None:
        """Looks at a record that was found whole."""
        report = self.report
        report.records += 1
        report.messages += head.messages
        report.bytes += head.length - HEAD_BYTES
        where = self.view.folder.where(head.begin)
        end = head.ordinal + head.messages
        if head.place != self.next.place:
            text = f"begins at place {head.place}, place {self.next.place} comes next"
            self._add("order", where, head.ordinal, text, end)
        if head.time < self.time:
            text = f"was stored at {head.time}, the record before it at {self.time}"
            self._add("order", where, head.ordinal, text, end)
        if self.part >= 0 and head.part != self.part:
            text = f"is part {head.part} of a set, part {self.part} comes next"
            self._add("order", where, head.ordinal, text, end)
        if self.is_state and head.dress != HOUSE:
            self._add("key", where, head.ordinal, f"has messages of dress {head.dress}, which have no keys", end)
        self.time = head.time
        self.part = 0 if head.flags & FLAG_LAST else head.part + 1
        self.next = _Entry(
            head.begin + head.length, head.ordinal + head.messages, head.place + head.place_length, head.time
        )
        self._look_inside(head)

    def _look_inside(self, head: Head) -> None:
        where = self.view.folder.where(head.begin)
        try:
            payload = self.view.trail.payload(head.begin, head.length)
            found = census(
                payload, head.dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
                jafka_magic=self.view.folder.format.jafka_magic,
            )  # fmt: skip
        except (ValueError, Corrupt) as error:
            text = f"its messages cannot be walked: {error}"
            self._add("messages", where, head.ordinal, text, head.ordinal + head.messages)
            return
        if (found.messages, found.jafka_bytes) != (head.messages, head.place_length):
            text = (
                f"says {head.messages} messages and {head.place_length} bytes for Jafka, its messages are {found.messages} "
                f"and {found.jafka_bytes}"
            )
            self._add("messages", where, head.ordinal, text, head.ordinal + head.messages)
            return
        try:
            self.view.trail.compare_slots(head.begin)
        except Corrupt:
            self._name_slots(head, payload)

    def _name_slots(self, head: Head, payload: memoryview | bytes) -> None:
        """Each slot of a record that does not lead to its message."""
        starts, counts = layout(payload, head.dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX)
        stops = [*memoryview(starts).cast("i")[1:], head.length - HEAD_BYTES]
        ordinal = head.ordinal
        for start, stop, count in zip(memoryview(starts).cast("i"), stops, memoryview(counts).cast("i"), strict=True):
            right = SLOT.pack(head.begin + HEAD_BYTES + start, stop - start, bytes(3), PUBLISHED)
            for one in range(ordinal, ordinal + count):
                self._compare_slot(one, right)
            ordinal += count

    def _compare_slot(self, ordinal: int, right: bytes) -> None:
        files = self.view.folder.slot_files
        number, position = divmod(ordinal * SLOT.size, files.page_bytes)
        path = files.path(number)
        try:
            with open(path, "rb") as file:
                found = os.pread(file.fileno(), SLOT.size, position)
        except OSError as error:
            self._add("slot", (path, position), ordinal, f"this slot cannot be read ({error.strerror})")
            return
        if found != right:
            self._add("slot", (path, position), ordinal, "this slot does not lead to its message")

    # ---- the end ------------------------------------------------------------------------------------------

    def _at_the_end(self) -> None:
        marks_file = self.view.folder.path / MARKS_FILE
        if self.view.epoch != self.epoch:
            self.report.notes.append(f"{self.name} was opened again or cut while this looked at it; look again")
            return
        if self.view.bounds() != self.bounds:
            return  # a writer is at work: bounds and places were not of the same moment
        if (self.next.ordinal, self.next.place) != (self.bounds.end, self.places[1]):
            text = (
                f"says that this log ends at ordinal {self.bounds.end}, place {self.places[1]}; its records end at "
                f"{self.next.ordinal}, {self.next.place}"
            )
            self._add("marks", marks_file, None, text)
        elif self.part > 0:
            self._add(
                "order", marks_file, self.next.ordinal, f"the last set ends with part {self.part - 1}, not its last"
            )
        if not self.view.alive and (above := self._above()):
            text = (
                f"{self.name}: {above} records lie above the newest mark; whoever opens it for writing takes them over"
            )
            self.report.notes.append(text)

    def _above(self) -> int:
        """Records that a crash left above the mark."""
        mark, count = self.view.mark(), 0
        if mark.clean or self.next.begin < 0:
            return 0
        begin, ordinal, place, part = mark.data_end, mark.end, mark.place, 0
        while head := following(
            self.view.trail, begin, page_bytes=self.view.folder.page_bytes, ordinal=ordinal, place=place,
            epoch=mark.epoch, part=part,
        ):  # fmt: skip
            begin, ordinal, place = head.begin + head.length, ordinal + head.messages, place + head.place_length
            part = 0 if head.flags & FLAG_LAST else part + 1
            count += 1
        return count
