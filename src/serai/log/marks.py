"""The marks of a partition: up to where everything is on the disk, and what a running writer tells other readers.

    0     mark A   128 bytes     the two take turns; the valid one with the higher counter counts
    1024  mark B
    2048  live area              numbers of 8 bytes, written as messages are appended

    mark  0 "SRMK"  4 crc u32 of what follows  8 counter u64  16 epoch u32  20 clean u32
          24 end  32 data end  40 record end  48 place  56 store time  64 first  72 first record  80 first place   i64

Invariants
- below a mark's ends data, slots and records are durable: a recovery looks only at what lies above
- a mark is written over the older one, so that a cut in the middle of it leaves the newer one valid
- a mark that takes something back (retention, truncation) is written over both, before anything goes
- one damaged mark costs nothing: the other one serves, and what lies above it is looked at
- the live area is believed only while a writer has not closed it, and since this machine was started; else the mark counts
"""

import logging
import os
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serai._core.pages import Page
from serai.errors import Corrupt, Locked
from serai.log import lock
from serai.log.format import (
    LIVE_AT,
    LIVE_BOOT,
    LIVE_COMMITTED,
    LIVE_COMMITTED_PLACE,
    LIVE_EPOCH,
    LIVE_FIRST,
    LIVE_FIRST_PLACE,
    LIVE_FIRST_RECORD,
    MARK,
    MARK_AT,
    MARK_MAGIC,
    MARKS_BYTES,
    MARKS_FILE,
)
from serai.log.store import space_for

log = logging.getLogger("serai.log")

__all__ = ["LIVE_AT", "Mark", "Marks", "newest"]


class Mark(NamedTuple):
    """Where a partition stands."""

    counter: int = 0
    epoch: int = 0
    clean: int = 0  # 1: closed in order, nothing lies above it
    end: int = 0
    data_end: int = 0
    record_end: int = 0
    place: int = 0
    time: int = 0
    first: int = 0
    first_record: int = 0
    first_place: int = 0


@cache
def boot_number() -> int:
    """A number that is another one after each start of this machine."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return zlib.crc32(text.strip().encode("ascii")) + 1


def pack(mark: Mark) -> bytes:
    raw = MARK.pack(MARK_MAGIC, 0, *mark)
    return raw[:4] + zlib.crc32(raw[8:]).to_bytes(4, "little") + raw[8:]


def unpack(raw: bytes) -> Mark | None:
    """The mark, None when these bytes are none."""
    magic, crc, *numbers = MARK.unpack(raw)
    return Mark(*numbers) if magic == MARK_MAGIC and zlib.crc32(raw[8:]) == crc else None


def newest(raw: bytes, path: Path) -> Mark:
    """The newest valid mark of a marks file."""
    found = [unpack(raw[at : at + MARK.size]) for at in MARK_AT] if len(raw) >= MARKS_BYTES else []
    marks = [mark for mark in found if mark is not None]
    if not marks:
        raise Corrupt(
            f"{path} holds no valid mark: it is cut short or damaged, so nobody can say up to where this log is on the disk. "
            f"Put the file back from a copy, or run `serai verify {path.parent} --repair`, which reads the whole log",
            file=str(path), position=0, expected="a mark", found=f"{len(raw)} bytes",
        )  # fmt: skip
    mark = max(marks)
    return mark._replace(clean=0) if damaged(raw) is not None else mark


def damaged(raw: bytes) -> int | None:
    """Where one of the two marks is not as it was written, None if both are."""
    found = {at: unpack(raw[at : at + MARK.size]) for at in MARK_AT}
    if found[MARK_AT[1]] is None and found[MARK_AT[0]] == Mark(clean=1) and not any(raw[MARK_AT[1] :][: MARK.size]):
        return None  # of a new partition: the second one was never written
    return next((at for at, mark in found.items() if mark is None), None)


class Marks:
    """The marks file of a partition that is open for writing, locked against a second writer."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / MARKS_FILE
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not lock.try_lock(fd):
                raise Locked(
                    f"{directory} is open for writing already, in this process or another; close it there first"
                )
            raw = os.pread(fd, MARKS_BYTES, 0)
            self.mark = newest(raw, self.path)
            if (at := damaged(raw)) is not None:
                log.warning(
                    "%s byte %d: this mark is damaged, or its writing was cut off; the other one serves, and what lies above it "
                    "is looked at", self.path, at,
                )  # fmt: skip
            self.page = Page(fd, MARKS_BYTES, True)  # the mapping keeps the lock: no descriptor stays open
        finally:
            os.close(fd)
        self.epoch = self.mark.epoch + 1  # each opening is a new owner

    def show_first(self, mark: Mark) -> None:
        """Tells other readers where the log begins."""
        self.page.store(LIVE_FIRST_PLACE, mark.first_place)
        self.page.store(LIVE_FIRST_RECORD, mark.first_record)
        self.page.store(LIVE_FIRST, mark.first)

    def show_committed(self, ordinal: int, *, place: int) -> None:
        self.page.store(LIVE_COMMITTED_PLACE, place)
        self.page.store(LIVE_COMMITTED, ordinal)

    def committed_before(self) -> int:
        """What a writer that was killed had said is committed: for its readers that never falls; -1 without one."""
        return self.page.load(LIVE_COMMITTED) if self.page.load(LIVE_BOOT) == boot_number() else -1

    def show_alive(self) -> None:
        """From here on the live area can be believed."""
        self.page.store(LIVE_EPOCH, self.epoch)
        self.page.store(LIVE_BOOT, boot_number())

    def show_dead(self) -> None:
        """From here on the newest mark counts."""
        self.page.store(LIVE_BOOT, 0)

    def let_go(self) -> Page:
        """Ends the lock, which lives as long as the mapping; the numbers stay, where nobody else sees them."""
        kept = Page(-1, MARKS_BYTES, True)
        kept.write(0, self.page)
        self.page = kept
        return kept

    def write(self, mark: Mark, *, sync: bool = True) -> None:
        """Writes the next mark over the older one."""
        mark = mark._replace(counter=self.mark.counter + 1, epoch=self.epoch)
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            with space_for(self.path):
                os.pwrite(fd, pack(mark), MARK_AT[mark.counter & 1])
            if sync:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        self.mark = mark

    def write_both(self, mark: Mark) -> None:
        """Writes a mark over both of them: for one that takes something back."""
        self.write(mark)
        self.write(mark)


def create(directory: Path) -> None:
    """Makes the marks file of a new partition: a mark of an empty log, closed in order."""
    path = directory / MARKS_FILE
    raw = bytearray(MARKS_BYTES)
    raw[MARK_AT[0] : MARK_AT[0] + MARK.size] = pack(Mark(clean=1))
    with space_for(path), open(path, "xb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
