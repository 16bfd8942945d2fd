"""Looking at everything in a queue directory, and naming what is wrong with it.

    files     page lengths, missing pages, compressed pages that do not inflate, producer states
    entries   end flags, holes, begin after end, sizes, producer names, unfinished entries
    bytes     the data page of each message, and its 24-bit checksum where there is one

The index is read in blocks and taken apart by runs of equal end flags, so that a sound queue costs a
few C loops for each 65,536 entries; only where something is odd is an entry looked at by itself.
Bytes are read through the compiled reader, and only where entries have checksums.

Invariants
- verifying changes nothing, takes no lock, and goes on behind every problem
- a writer at work is no problem: what looks wrong is read again before it is named
- a note is something to know (a torn tail, pages given up at the head), not a problem
- `repair` cuts only behind the first entry that readers cannot pass, or entries whose bytes are not there
"""

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from serai._core.reader import Reader
from serai.errors import Corrupt, Locked, Misuse
from serai.log import recovery
from serai.log.format import (
    CHECKSUMS,
    COMPRESSED,
    DATA,
    FORMAT_FILE,
    PUBLISHED,
    SLOT,
    SLOT_BYTES,
    STATE,
    STATE_BYTES,
    STATE_LAYOUT,
    STORED_NAME,
    WRITER_LOCK_BYTE,
    name_text,
)  # fmt: skip
from serai.log.lock import try_lock, unlock
from serai.log.place import Entry, Place, entries, folders, gaps, kind_of, page_names, stretches
from serai.log.seal import DataFiles
from serai.log.store import sync_directory
from serai.log.supply import ReaderSupply

__all__ = ["Cut", "Entry", "Problem", "Report", "cut", "entries", "repair", "verify"]

PROBLEMS_MAX = 1000  # named one by one; the rest is counted
SUM_BATCH_BYTES = 1 << 24
RUNS = re.compile(rb"\x7f+|\x00+|[^\x00\x7f]+")
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: byte `position` of `file`, the messages at `offset` to below `end`."""

    kind: str
    file: str
    position: int | None
    offset: int | None
    text: str
    end: int | None = None


@dataclass
class Report:
    """What `verify` found."""

    path: str
    kind: str  # "single" or "multi"
    page_size: int
    messages: int = 0
    bytes: int = 0
    checksums: int = 0  # messages whose checksum was compared
    problems: list[Problem] = field(default_factory=list)
    unnamed: int = 0  # problems beyond the first PROBLEMS_MAX
    notes: list[str] = field(default_factory=list)

    def add(
        self, kind: str, where: Path | tuple[Path, int | None], offset: int | None, text: str, end: int | None = None
    ) -> None:
        file, position = where if isinstance(where, tuple) else (where, None)
        if len(self.problems) < PROBLEMS_MAX:
            stop = end if end is not None or offset is None else offset + SLOT_BYTES
            self.problems.append(Problem(kind, str(file), position, offset, text, stop))
        else:
            self.unnamed += 1


@dataclass(frozen=True)
class Cut:
    """What `repair` takes away: everything from `offset` on, `messages` published ones among it."""

    offset: int
    messages: int
    needed: bool


# ---- verify ----------------------------------------------------------------------------------------


def verify(path: str | os.PathLike[str], *, checksum: str | None = None, progress: Progress | None = None) -> Report:
    """Looks at every file, entry and checksum of a queue; `progress` hears (messages done, messages in all).

    Checksums are compared wherever an entry has one; with checksum="index24" those that have none are counted too.
    """
    if checksum is not None and checksum not in CHECKSUMS:
        raise Misuse(f"checksum is {checksum!r}; it is {' or '.join(map(repr, CHECKSUMS))} or None")
    place = Place(path)
    _refuse_others(place.path)
    report = Report(str(place.path), "multi" if place.shared else "single", place.page_bytes if place.lengths else 0)
    _check_lengths(place, report)
    _check_numbers(place, report)
    walk = _Walk(place, report, progress)
    walk.run()
    for producer in folders(place.path) if place.shared else [""]:
        _check_sealed(place.stream(producer), report)
    if place.shared:
        _check_states(place, walk, report)
    elif (checksum or report.checksums) and walk.unsummed:
        report.notes.append(f"{walk.unsummed} messages have no checksum")
    return report


def _refuse_others(path: Path) -> None:
    """A directory that holds other things and no page was not meant, or lost what says what it is."""
    others = [name for name in sorted(os.listdir(path)) if not name.endswith(".new")]
    if others and not kind_of(path):
        raise Misuse(
            f"{path} is neither a queue nor a data directory of serai: {others[0]} is there, but no page of a queue and no "
            f"'{FORMAT_FILE}' file. Give the directory that was meant, or put that file back from a copy"
        )


def _check_lengths(place: Place, report: Report) -> None:
    right = place.page_bytes
    for path, length in sorted(place.lengths.items()):
        if length != right:
            text = f"has {length} bytes, the pages of this queue have {right}"
            report.add("length", (path, min(length, right)), None, text)
    for path in sorted(place.path.rglob("*.new")):
        report.notes.append(f"{path} was left half made; the next writer removes it")
    for path in sorted(place.path.glob("*" + STATE)) if not place.shared else []:
        report.add("state", path, None, "is a producer's state in a queue of one producer, which cannot be opened so")


def _check_numbers(place: Place, report: Report) -> None:
    numbers = place.index.numbers()
    if not numbers and (place.lengths or any(place.path.glob("*" + COMPRESSED))):
        report.add(
            "missing", place.index.path(0), None, "is not there, nor any other index page: no message can be found"
        )
    elif not numbers:
        report.notes.append("there are no pages: nothing was written here yet")
    elif numbers[0]:
        first = numbers[0] * place.page_bytes
        report.notes.append(f"the first index page is {numbers[0]}: messages below offset {first} are gone")
    for low, high in gaps(numbers):
        start, stop = low * place.page_bytes, (high + 1) * place.page_bytes
        names = page_names(low, high, place.index.suffix)
        report.add(
            "missing",
            place.index.path(low),
            start,
            f"{names} not there: offsets {start} to {stop} cannot be read",
            stop,
        )


def _check_sealed(stream: DataFiles, report: Report) -> None:
    """Inflates every frame of every compressed page; each frame has a checksum of its own."""
    for number in stream.sealed.numbers():
        path = stream.sealed.path(number)
        if stream.files.present(number):
            report.notes.append(f"{path} has its plain page beside it, which is what readers take")
        try:
            sealed = stream.sealed_page(number)
        except Corrupt as error:
            report.add("compressed", (path, error.position), None, str(error.found))
            continue
        for frame in range(len(sealed.starts) - 1 if sealed else 0):
            try:
                assert sealed is not None
                sealed.frames(frame, frame + 1)
            except Corrupt as error:
                report.add("compressed", (path, error.position), None, str(error.found))


def _check_states(place: Place, walk: "_Walk", report: Report) -> None:
    """Every producer has a state file of 32 bytes that knows where its data ends."""
    for path in sorted(place.path.glob("*" + STATE)):
        raw = path.read_bytes()
        if len(raw) != STATE_BYTES:
            text = f"has {len(raw)} bytes, a producer's state has {STATE_BYTES}"
            report.add("state", (path, min(len(raw), STATE_BYTES)), None, text)
            continue
        end_a, end_b, last, _unused = STATE_LAYOUT.unpack(raw)
        line = walk.lines.get(path.stem)
        if end_a < 0 or end_b < 0 or last < 0 or last % SLOT_BYTES:
            report.add("state", (path, 0), None, f"holds {end_a}, {end_b}, {last}: not two data ends and an offset")
        elif line is not None and line.end > max(end_a, end_b):
            text = f"says its data ends at {max(end_a, end_b)}, but its last message ends at {line.end}"
            report.add("state", (path, 0), None, text)
    for name, line in sorted(walk.lines.items()):
        path = place.path / (name + STATE)
        if not path.exists():
            text = "is not there although its producer wrote messages: it would write over them"
            report.add("state", path, line.first, text)


# ---- the walk over the index -----------------------------------------------------------------------


class _Walk:
    """Goes over the index once; `next` is the offset behind the last entry that is in use."""

    def __init__(self, place: Place, report: Report, progress: Progress | None) -> None:
        self.place = place
        self.report = report
        self.progress = progress
        self.lines: dict[str, _Line] = {}
        self.unsummed = 0
        self._numbers = place.index.numbers()
        self.next = self._numbers[0] * place.page_bytes if self._numbers else 0
        self._sums = None if place.shared else _Sums(place, report)
        self._leftover = -1  # of the first entry that has bytes and no stamp

    def run(self) -> None:
        first = self.next
        end = recovery.find_end(self.place.index, shared=self.place.shared)
        for offset, raw in recovery.blocks(self.place.index, first):
            self._block(offset, raw[: len(raw) & -SLOT_BYTES])
            if self.progress is not None:
                self.progress(min(self.next, end) - first >> 4, end - first >> 4)
        if self._leftover >= self.next:
            file, position = self.place.where(self._leftover)
            self.report.notes.append(
                f"{file} byte {position}: an entry was begun here and never published (a torn tail)"
            )

    def _block(self, offset: int, raw: bytes) -> None:
        flags = raw[15::SLOT_BYTES]
        for run in RUNS.finditer(flags):
            at = offset + SLOT_BYTES * run.start()
            part = raw[SLOT_BYTES * run.start() : SLOT_BYTES * run.end()]
            if flags[run.start()] == PUBLISHED:
                self._reach(at)
                self._published(at, part)
            elif flags[run.start()]:
                self._reach(at)
                self._odd(at, part)
            elif part.count(0) != len(part):
                self._unready(at, part)

    def _reach(self, offset: int) -> None:
        """An entry in use stands at `offset`: what lies between it and the last one must be in use too."""
        if offset <= self.next:
            return
        page_bytes, start = self.place.page_bytes, self.next
        first, last = start // page_bytes, (offset - 1) // page_bytes
        there = [number for number in self._numbers if first <= number <= last]
        if len(there) <= last - first:  # a missing page was named already
            self._lose_line()
        for low, high in stretches(there):
            self._between(max(start, low * page_bytes), min(offset, (high + 1) * page_bytes))
        self.next = offset

    def _between(self, start: int, stop: int) -> None:
        again = list(recovery.blocks(self.place.index, start, stop))
        if sum(len(raw) for _offset, raw in again) == stop - start and all(self._in_use(raw) for _offset, raw in again):
            self.next = start  # a writer was here since the block was read
            for offset, raw in again:
                self._block(offset, raw)
            return
        text = f"{(stop - start) // SLOT_BYTES} entries are not published although later ones are: readers stop here"
        self.report.add("hole", self.place.where(start), start, text, stop)
        self._lose_line()

    def _in_use(self, raw: bytes) -> bool:
        marks = [raw[at::SLOT_BYTES] for at in ((12, 15) if self.place.shared else (15,))]
        return all(any(marked) for marked in zip(*marks, strict=True))

    def _lose_line(self) -> None:
        for line in self.lines.values():
            line.known = False

    def _odd(self, start: int, part: bytes) -> None:
        for at in range(0, len(part), SLOT_BYTES):
            file, position = self.place.where(start + at)
            text = f"the end flag is {part[at + 15]:#04x}, neither 0 nor {PUBLISHED:#04x}: readers stop here"
            self.report.add("flag", (file, position + 15), start + at, text)
        self.next = start + len(part)
        self._lose_line()

    def _unready(self, start: int, part: bytes) -> None:
        """Entries with bytes and without a flag: the torn tail of one producer, or claimed by one of several."""
        for at, (_begin, size, tag, _flag) in enumerate(SLOT.iter_unpack(part)):
            offset = start + SLOT_BYTES * at
            if self.place.shared and any(tag):
                self._reach(offset)
                self._unfinished(offset, size, tag)
            elif self._leftover < self.next and any(part[SLOT_BYTES * at : SLOT_BYTES * (at + 1)]):
                self._leftover = offset

    def _unfinished(self, offset: int, size: int, tag: bytes) -> None:
        self.next = offset + SLOT_BYTES
        name = name_text(int.from_bytes(tag, "little"))
        alive = self.place.at_work(name)
        entry = recovery.read_entry(self.place.index, offset)
        if entry is not None and entry.published:
            self._published(offset, SLOT.pack(entry.begin, entry.size, entry.tag, entry.flag))
        elif alive:
            self.report.notes.append(f"producer {name} is at work on the entry at offset {offset}")
        else:
            text = (
                f"producer {name} is not running and left its message of {size} bytes unfinished: readers say so once "
                "and skip it, the producer completes it when it starts again"
            )
            self.report.add("unfinished", self.place.where(offset), offset, text)

    def _published(self, start: int, part: bytes) -> None:
        count = len(part) // SLOT_BYTES
        self.next = start + len(part)
        self.report.messages += count
        offsets = range(start, self.next, SLOT_BYTES)
        begins, sizes = _columns(part)
        self.report.bytes += sum(sizes) if min(sizes) >= 0 else sum(size for size in sizes if size > 0)
        if self.place.shared:
            self._sort(offsets, begins, sizes, part)
            return
        self._line("").take(offsets, begins, sizes)
        tagged = count - _untagged(part)
        self.unsummed += count - tagged
        if tagged and self._sums is not None:
            self.report.checksums += tagged
            self._sums.compare(start, self.next)

    def _sort(self, offsets: range, begins: Sequence[int], sizes: Sequence[int], part: bytes) -> None:
        """Deals the entries of several producers out, each to its own line."""
        hands: dict[bytes, tuple[list[int], list[int], list[int]]] = {}
        tags = memoryview(part)
        for offset, begin, size, at in zip(offsets, begins, sizes, range(12, len(part), SLOT_BYTES), strict=True):
            hand = hands.setdefault(bytes(tags[at : at + 3]), ([], [], []))
            hand[0].append(offset)
            hand[1].append(begin)
            hand[2].append(size)
        for tag, hand in hands.items():
            name = name_text(int.from_bytes(tag, "little"))
            if STORED_NAME.fullmatch(name):
                self._line(name).take(*hand)
                continue
            for offset in hand[0]:
                file, position = self.place.where(offset)
                self.report.add("name", (file, position + 12), offset, f"{name!r} is no producer's name")

    def _line(self, producer: str) -> "_Line":
        if producer not in self.lines:
            self.lines[producer] = _Line(self.place, self.report, producer)
        return self.lines[producer]


def _columns(part: bytes) -> tuple[Sequence[int], Sequence[int]]:
    """The begins and the sizes of a run of entries."""
    whole = memoryview(part)
    return whole.cast("q")[::2].tolist(), whole.cast("i")[2::4].tolist()


def _untagged(part: bytes) -> int:
    """How many entries have zeros where a checksum would be."""
    tags = [part[at::SLOT_BYTES] for at in (12, 13, 14)]
    if tags[0].count(0) == len(tags[0]) and not any(tags[1]) and not any(tags[2]):
        return len(tags[0])
    return sum(1 for tag in zip(*tags, strict=True) if not any(tag))


# ---- one data stream -------------------------------------------------------------------------------


class _Line:
    """The messages of one producer lie one behind the other; this is how far they were followed.

    A producer of several may leave a gap (it died before it claimed an entry), never an overlap.
    """

    def __init__(self, place: Place, report: Report, producer: str) -> None:
        self.place = place
        self.report = report
        self.producer = producer
        self.first = -1  # offset of its first entry
        self.end = 0  # data offset behind its last message
        self.known = False  # whether `end` is the end of the entry before
        self._stream = place.stream(producer)
        self._there: list[tuple[int, int]] = []
        self._named: set[int] = set()  # first pages of absent stretches that were named

    def take(self, offsets: Sequence[int], begins: Sequence[int], sizes: Sequence[int]) -> None:
        """Follows a run of entries, which are neighbours of this producer."""
        if self.first < 0:
            self.first = offsets[0]
        start = self.end if self.known else begins[0]
        line = list(accumulate(sizes, initial=start))
        end = line.pop()
        if line == begins and min(sizes) >= 0 <= start:
            self.end, self.known = end, True
            self._need(offsets, begins, self.end)
        else:
            self._take_odd(offsets, begins, sizes, start)

    def _take_odd(self, offsets: Sequence[int], begins: Sequence[int], sizes: Sequence[int], start: int) -> None:
        """Finds the entries that break the line; behind one either its own end or the old line goes on."""
        ends = {start}
        since = 0
        for i, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
            text = self._oddity(begin, size, ends)
            if text:
                kind = "begin" if size >= 0 <= begin else "size"
                self.report.add(kind, self.place.where(offsets[i]), offsets[i], text)
                self._need(offsets[since:i], begins[since:i], max(ends) if i > since else 0)
                since = i + 1
                ends = {end + max(size, 0) for end in ends} | ({begin + size} if size >= 0 <= begin else set())
            else:
                ends = {begin + size}
        self.end = min(ends)
        self.known = len(ends) == 1
        self._need(offsets[since:], begins[since:], self.end)

    def _oddity(self, begin: int, size: int, ends: set[int]) -> str:
        if size < 0 or begin < 0:
            return f"begin {begin} and size {size} cannot be right"
        if begin in ends or (self.place.shared and begin > min(ends)):
            return ""
        return f"it begins at {begin}, but the message before it ends at {min(ends)}: one of the two entries is wrong"

    def _need(self, offsets: Sequence[int], begins: Sequence[int], end: int) -> None:
        """Names the data pages that these messages need and that are not there."""
        if not begins or end <= begins[0]:
            return
        first, last = begins[0] // self.place.page_bytes, (end - 1) // self.place.page_bytes
        if not any(low <= first and last <= high for low, high in self._there):
            self._there = self._look()
        for low, high in self._absent(first, last):
            if low in self._named:
                continue
            self._named.add(low)
            low, high = max(low, first), min(high, last)
            offset = offsets[max(0, bisect_right(begins, low * self.place.page_bytes) - 1)]
            names = page_names(low, high, DATA)
            text = f"{names} not there, with bytes of the message at offset {offset} and what follows"
            self.report.add("data", self._stream.files.path(low), offset, text)

    def _look(self) -> list[tuple[int, int]]:
        """The stretches of data pages that are there."""
        files = self._stream.files
        whole = {number for number in files.numbers() if files.present(number)}
        return stretches(sorted(whole.union(self._stream.sealed.numbers())))

    def _absent(self, first: int, last: int) -> list[tuple[int, int]]:
        """The stretches of pages that first..last needs and that are not there."""
        bounds = [-1, *(bound for stretch in self._there for bound in stretch), last + 1]
        gaps = [(low + 1, high - 1) for low, high in zip(bounds[::2], bounds[1::2], strict=True)]
        return [(low, high) for low, high in gaps if low <= high and low <= last and high >= first]


class _Sums(ReaderSupply):
    """Compares checksums through the compiled reader."""

    def __init__(self, place: Place, report: Report) -> None:
        super().__init__(place)
        self._place = place
        self._report = report
        self._reader: Reader | None = None
        self._stop = 0
        self._said = ""

    def published(self) -> int:
        """The walk knows better than a search: there may be holes."""
        return self._stop

    def damage(self, offset: int, begin: int, size: int, name: int, text: str) -> Corrupt:
        self._said = text
        return super().damage(offset, begin, size, name, text)

    def compare(self, start: int, stop: int) -> None:
        self._stop = max(stop, self._stop)
        reader = self._reader
        if reader is None or reader.offset < start:
            reader = self._reader = self._make_reader(start)
        while reader.offset < stop:
            before = reader.offset
            try:
                if not len(reader.read_batch(SUM_BATCH_BYTES)):
                    return
            except Corrupt:
                if reader.offset == before:
                    return
                self._name(reader.offset - SLOT_BYTES)

    def readable(self, offset: int) -> bool:
        """Whether the message at an offset is there, whole and unchanged."""
        self._stop = offset + SLOT_BYTES
        try:
            return self._make_reader(offset).next() is not None
        except Corrupt:
            return False

    def _make_reader(self, offset: int) -> Reader:
        return Reader(self, offset=offset, known=offset, shared=False, summed=True, checked=True, java=False)

    def _name(self, offset: int) -> None:
        if "checksum" not in self._said:  # the walk names the others
            return
        text = f"{self._said}: the entry or its bytes were changed"
        self._report.add("checksum", self._place.where(offset), offset, text)


# ---- repair ------------------------------------------------------------------------------------------


def cut(path: str | os.PathLike[str]) -> Cut:
    """What `repair` would take away."""
    place = Place(path)
    if place.shared:
        raise Misuse(
            f"{place.path} is a queue of several producers, which is not cut: each producer completes its own "
            "unfinished entry when it starts again, and readers skip it until then"
        )
    return _plan(place)


def _plan(place: Place) -> Cut:
    first = keep = recovery.first_offset(place.index)
    lost, broken, dirty = 0, False, False
    for offset, raw in recovery.blocks(place.index, first):
        flags = raw[15::SLOT_BYTES]
        good = 0 if broken or offset != keep else len(flags) - len(flags.lstrip(bytes([PUBLISHED])))
        keep += SLOT_BYTES * good
        broken = broken or good < len(flags)
        lost += flags[good:].count(PUBLISHED)
        dirty = dirty or any(flags[good:])
    supply = _Sums(place, Report("", "", place.page_bytes))
    while keep > first and not (supply.readable(keep - SLOT_BYTES) and _follows(place, keep - SLOT_BYTES, first)):
        keep -= SLOT_BYTES
        lost += 1
    return Cut(keep, lost, needed=lost > 0 or dirty)


def _follows(place: Place, offset: int, first: int) -> bool:
    """Whether the newest entry lies behind the one before it: a writer goes on where it ends."""
    entry = recovery.read_entry(place.index, offset)
    before = recovery.read_entry(place.index, offset - SLOT_BYTES) if offset > first else None
    return entry is None or before is None or before.begin + before.size <= entry.begin


def repair(path: str | os.PathLike[str]) -> int:
    """Cuts a single-producer queue where readers cannot go on; gives how many published messages went.

    Takes the writer's lock, so that no writer is at work meanwhile.
    """
    cut(path)
    place = Place(path)
    locked = _lock_pages(place)
    try:
        plan = _plan(place)
        number = plan.offset // place.page_bytes
        for later in reversed([found for found in place.index.numbers() if found > number]):
            place.index.path(later).unlink()
        for offset, raw in recovery.blocks(place.index, plan.offset):
            if any(raw):
                recovery.zero(place.index, offset, len(raw))
        for fd in locked:
            os.fsync(fd)
        sync_directory(place.path)
        return plan.messages
    finally:
        for fd in locked:
            unlock(fd, start=WRITER_LOCK_BYTE, length=1)
            os.close(fd)


def _lock_pages(place: Place) -> list[int]:
    """The writer's lock on every index page, so that it holds whichever page is the newest."""
    held: list[int] = []
    try:
        for number in reversed(place.index.numbers()):
            fd = os.open(place.index.path(number), os.O_RDWR | os.O_CLOEXEC)
            held.append(fd)
            if not try_lock(fd, start=WRITER_LOCK_BYTE, length=1):
                raise Locked(f"{place.path} has a writer, in this process or another; stop it before repairing")
    except BaseException:
        for fd in held:
            os.close(fd)
        raise
    return held
