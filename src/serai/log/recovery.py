"""Where a queue ends, and what a writer does with a tail that a crash left.

The used entries of a page are a prefix, so a binary search in the newest page that has any finds the
end; it reads the file and maps nothing.  After a power cut the prefix may have holes, because pages
reach the disk in any order.  So before a writer goes on, it looks at the newest entries and at what
lies behind the end:

    published, sound      ... | hole, or entry without its data | entries behind the hole
    kept                        cut: zeroed, as long as they are few; else refused, nothing touched

Invariants
- a reader never changes a file
- a message is cut only behind a hole or when its data is not there, never more than TAIL_CUT_MAX
- a cut is said once, as a warning of the logger `serai.log`
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from serai import limits
from serai.errors import Corrupt
from serai.log.format import DATA, PUBLISHED, SLOT, SLOT_BYTES, STORED_NAME
from serai.log.store import PageFiles

BLOCK = 1 << 20
log = logging.getLogger("serai.log")


@dataclass(frozen=True)
class Entry:
    """One index entry as it lies on disk."""

    offset: int
    begin: int
    size: int
    tag: bytes  # producer name in stored order, or checksum
    flag: int

    @property
    def published(self) -> bool:
        return self.flag == PUBLISHED


def read_entry(index: PageFiles, offset: int) -> Entry | None:
    """The entry at an offset, zero or not; None when its page is missing."""
    number, position = divmod(offset, index.page_bytes)
    try:
        fd = os.open(index.path(number), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        raw = os.pread(fd, SLOT_BYTES, position)
    finally:
        os.close(fd)
    return Entry(offset, *SLOT.unpack(raw)) if len(raw) == SLOT_BYTES else None


def blocks(index: PageFiles, start: int, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The index bytes from `start` on that are allocated on disk, in blocks with their offsets."""
    for number in index.numbers():
        base = number * index.page_bytes
        if base + index.page_bytes <= start or (stop is not None and base >= stop):
            continue
        with open(index.path(number), "rb", buffering=0) as file:
            position = max(start - base, 0)
            end = index.page_bytes if stop is None else min(index.page_bytes, stop - base)
            while position < end:
                try:
                    position = max(position, os.lseek(file.fileno(), position, os.SEEK_DATA) & ~(SLOT_BYTES - 1))
                except OSError:  # nothing but a hole from here on
                    break
                raw = os.pread(file.fileno(), min(BLOCK, end - position), position)
                if not raw:
                    break
                yield base + position, raw
                position += len(raw)


def _used_in(index: PageFiles, number: int, *, shared: bool) -> int:
    """How many entries of a page are used: binary search over the prefix."""
    with open(index.path(number), "rb", buffering=0) as file:
        low, high = 0, os.fstat(file.fileno()).st_size // SLOT_BYTES
        while low < high:
            middle = (low + high) // 2
            raw = os.pread(file.fileno(), SLOT_BYTES, middle * SLOT_BYTES)
            if len(raw) == SLOT_BYTES and (any(raw) if shared else raw[15] == PUBLISHED):
                low = middle + 1
            else:
                high = middle
        return low


def find_ends(index: PageFiles, *, shared: bool) -> tuple[int, int]:
    """The first offset there is, and the offset behind the last used entry."""
    numbers = index.numbers()
    first = numbers[0] * index.page_bytes if numbers else 0
    for number in reversed(numbers):
        used = _used_in(index, number, shared=shared)
        if used:
            return first, number * index.page_bytes + used * SLOT_BYTES
    return first, first


def find_end(index: PageFiles, *, shared: bool) -> int:
    """Offset behind the last used entry; the first offset there is when none is used."""
    return find_ends(index, shared=shared)[1]


def first_offset(index: PageFiles) -> int:
    """The lowest offset there is."""
    if index.path(0).exists():  # nearly always, and quicker than listing them all
        return 0
    numbers = index.numbers()
    return numbers[0] * index.page_bytes if numbers else 0


def resume(index: PageFiles, has_data: Callable[[int, int], bool], sound: Callable[[Entry], bool]) -> tuple[int, int]:
    """Index and data cursor of a single producer that goes on; cuts a torn tail first."""
    first, end = find_ends(index, shared=False)
    keep = hole = _before_hole(index, first, end)
    while keep > first:
        entry = read_entry(index, keep - SLOT_BYTES)
        if entry and entry.size >= 0 <= entry.begin and has_data(entry.begin, entry.size) and sound(entry):
            _check_begin(index, entry, first)
            break
        keep -= SLOT_BYTES
        if hole - keep > limits.TAIL_CUT_MAX * SLOT_BYTES:
            raise _too_much(index, keep, f"more than {limits.TAIL_CUT_MAX}")
    _clean_behind(index, keep)
    if keep == first:
        return keep, 0
    entry = read_entry(index, keep - SLOT_BYTES)
    assert entry is not None
    return keep, entry.begin + entry.size


def _check_begin(index: PageFiles, entry: Entry, first: int) -> None:
    """A writer goes on behind the newest entry: if that lies over the one before, it would overwrite messages."""
    before = read_entry(index, entry.offset - SLOT_BYTES) if entry.offset > first else None
    if before is None or not before.published or before.begin + before.size <= entry.begin:
        return
    path = index.path(entry.offset // index.page_bytes)
    raise Corrupt(
        f"{path} byte {entry.offset % index.page_bytes}: the newest entry (offset {entry.offset}) begins at {entry.begin}, but "
        f"the one before ends at {before.begin + before.size}; nothing was changed. `serai verify {index.directory}` says "
        "more, `--repair` cuts it off",
        file=str(path), position=entry.offset % index.page_bytes, expected=before.begin + before.size, found=entry.begin,
    )  # fmt: skip


def _before_hole(index: PageFiles, first: int, end: int) -> int:
    """`end`, or the first hole in the newest entries before it."""
    for number in index.numbers():
        base = number * index.page_bytes
        start, stop = max(base, first, end - BLOCK), min(base + index.page_bytes, end)
        if start >= stop:
            continue
        with open(index.path(number), "rb", buffering=0) as file:
            flags = os.pread(file.fileno(), stop - start, start - base)[15::SLOT_BYTES]
        if flags.count(PUBLISHED) != len(flags):
            return start + SLOT_BYTES * next(i for i, flag in enumerate(flags) if flag != PUBLISHED)
    return end


def _too_much(index: PageFiles, keep: int, lost: object) -> Corrupt:
    path = index.path(keep // index.page_bytes)
    return Corrupt(
        f"{path} is damaged at byte {keep % index.page_bytes} (offset {keep}) and {lost} published messages lie behind it; "
        f"nothing was changed. `serai verify {index.directory}` says more, `--repair` cuts them off",
        file=str(path), position=keep % index.page_bytes, expected="a published entry whose data is there", found="none",
    )  # fmt: skip


def _clean_behind(index: PageFiles, keep: int) -> None:
    """Zeroes what lies behind the entries that are kept; refuses when that would be many messages."""
    lost = 0
    torn: list[tuple[int, int]] = []
    for offset, raw in blocks(index, keep):
        if raw.count(0) == len(raw):
            continue
        lost += raw[15::SLOT_BYTES].count(PUBLISHED)
        torn.append((offset, len(raw)))
    if lost > limits.TAIL_CUT_MAX:
        raise _too_much(index, keep, lost)
    for offset, length in torn:
        zero(index, offset, length)
    if lost:
        log.warning(
            "%s: cut %d messages behind offset %d: a crash of the machine left them without their data or behind a hole",
            index.directory, lost, keep,
        )  # fmt: skip


def zero(index: PageFiles, offset: int, length: int) -> None:
    """Zeroes index bytes that no reader can rely on."""
    number, position = divmod(offset, index.page_bytes)
    fd = os.open(index.path(number), os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes(length), position)
    finally:
        os.close(fd)


def unfinished(index: PageFiles, start: int, name: int) -> Entry | None:
    """The claimed entry that a producer of several has not finished, from its last known one on."""
    stored = name.to_bytes(3, "little")
    for offset, raw in blocks(index, start):
        at = raw.find(stored + b"\0")
        while at >= 0:
            if at % SLOT_BYTES == 12:
                return Entry(offset + at - 12, *SLOT.unpack_from(raw, at - 12))
            at = raw.find(stored + b"\0", at + 1)
    return None


def page_sizes(directory: Path, suffixes: tuple[str, ...], *, data_ends: bool = False) -> dict[Path, int]:
    """Lengths of all page files below a directory; files of length 0 are half-made and do not count.

    With `data_ends`, of the data pages only the oldest and newest of each producer.
    """
    paths = [
        path
        for folder, names in _folders(str(directory))
        for path in _pages(folder, names, suffixes, data_ends=data_ends)
    ]
    return {Path(path): size for path in paths if (size := _size(path))}


def _folders(top: str) -> Iterator[tuple[str, list[str]]]:
    """The directory and those of its producers, each with what is in it."""
    names = os.listdir(top)
    yield top, names
    for name in [name for name in names if "." not in name]:  # pages are many, and their names have a dot
        if STORED_NAME.fullmatch(name) and os.path.isdir(folder := f"{top}/{name}"):
            yield folder, os.listdir(folder)


def _pages(folder: str, names: list[str], suffixes: tuple[str, ...], *, data_ends: bool) -> Iterator[str]:
    for suffix in suffixes:
        stems = [name[: -len(suffix)] for name in names if name.endswith(suffix)]
        numbers = sorted([int(stem) for stem in stems if stem.isdecimal()])
        if data_ends and suffix == DATA:
            numbers = numbers[:1] + numbers[1:][-1:]
        yield from (f"{folder}/{number}{suffix}" for number in numbers)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:  # compressed since it was listed
        return 0
