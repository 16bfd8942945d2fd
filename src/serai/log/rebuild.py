"""Making slots, record index and marks of a log again from its records: the data is not touched, so nothing is lost.

    data   [record][given up][record] ~damaged~ [record]      every whole record of this log, in the order of the data
                    ^ a later one has its ordinals             those that a truncation or a recovery gave up fall out
    slots, index    written again for what is left; ordinals that cannot be read stay empty

Invariants
- a record is believed by its checksum, which begins with the log's identity, and never beyond what a valid mark says
- the marks are written last, over both; if there was none left, with an epoch above all that were seen
- nobody else may write meanwhile: the lock of the marks is held, and that of the data directory if there is one

Left to others: saying what is wrong (`log.audit`), taking over what lies above a mark (`log.healing`).
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serai import limits
from serai._core.messages import layout
from serai._core.records import FLAG_LAST, HEAD_BYTES, RECORD_BYTES
from serai._core.trail import Head, Trail
from serai.errors import Corrupt, Locked
from serai.log import marks
from serai.log.folder import Folder
from serai.log.format import MARK, MARK_AT, MARKS_BYTES, MARKS_FILE, PUBLISHED, RECORD, SLOT
from serai.log.lock import try_lock
from serai.log.marks import Mark
from serai.log.store import PageFiles, space_for, sync_directory

log = logging.getLogger("serai.log")


@dataclass(frozen=True)
class Plan:
    """What a rebuild would write: these records, and what it cannot find any more."""

    records: list[Head]
    missing: list[tuple[int, int]]  # first ordinal, and the one behind the last, of each stretch without a whole record
    mark: Mark  # as it will be written
    marks_lost: bool  # neither of the old ones was valid: the log ends where its last whole record does


def plan(path: Path) -> Plan:
    """Looks for every record of a log; changes nothing."""
    one = Folder(path)
    raw = (path / MARKS_FILE).read_bytes() if (path / MARKS_FILE).exists() else b""
    try:
        old: Mark | None = marks.newest(raw, path / MARKS_FILE)
    except Corrupt:
        old = None
    whole = _whole_sets(_latest(_found(one, one.trail(), old)))
    if old is not None:
        whole = [head for head in whole if old.first <= head.ordinal < old.end]
    mark = _mark_of(one, whole, old)
    return Plan(whole, _missing(whole, mark), mark, old is None)


def _found(one: Folder, trail: Trail, old: Mark | None) -> list[Head]:
    """Every whole record in the data, in order, also behind a damaged one if the index leads there."""
    hints = sorted({begin for begin in _begins(one) if begin >= 0})
    found: list[Head] = []
    at, stop = 0, 1 << 62 if old is None else old.data_end
    for number in one.data_files.numbers():
        at = max(at, number * one.page_bytes)
        end = min((number + 1) * one.page_bytes, stop)
        while at < end:
            head = _scan(trail, at)
            if head is not None:
                found.append(head)
                at = head.begin + head.length
                continue
            at = next((hint for hint in hints if at < hint < end), end)
    return found


def _begins(one: Folder) -> Iterator[int]:
    """Where the record index says that records begin."""
    for number in one.record_files.numbers():
        raw = one.record_files.path(number).read_bytes()
        yield from (entry[2] for entry in RECORD.iter_unpack(raw[: len(raw) & -RECORD_BYTES]) if any(entry))


def _scan(trail: Trail, begin: int) -> Head | None:
    try:
        head = trail.scan(begin)
    except Corrupt:  # a page of another length
        return None
    return head if isinstance(head, Head) else None


def _latest(found: list[Head]) -> list[Head]:
    """Without what was given up: a later record with the same ordinals came in its place, under a higher epoch."""
    kept: list[Head] = []
    for head in found:
        epoch, end = (kept[-1].epoch, kept[-1].ordinal + kept[-1].messages) if kept else (0, 0)
        if head.epoch < epoch or (head.epoch == epoch and head.ordinal < end):
            continue  # old bytes of a page that is used again
        while kept and kept[-1].ordinal + kept[-1].messages > head.ordinal:
            kept.pop()
        kept.append(head)
    return kept


def _whole_sets(heads: list[Head]) -> list[Head]:
    """Without the parts of a set whose last one never came."""
    while heads and not heads[-1].flags & FLAG_LAST:
        heads = heads[:-1]
    return heads


def _missing(heads: list[Head], mark: Mark) -> list[tuple[int, int]]:
    gaps, ordinal = [], mark.first
    for head in heads:
        if head.ordinal > ordinal:
            gaps.append((ordinal, head.ordinal))
        ordinal = head.ordinal + head.messages
    return gaps if ordinal >= mark.end else [*gaps, (ordinal, mark.end)]


def _mark_of(one: Folder, heads: list[Head], old: Mark | None) -> Mark:
    record_end = RECORD_BYTES * len(heads)
    if old is not None:  # what lies above it is taken over at the next opening, so its epoch stays
        return old._replace(clean=0, record_end=old.first_record + record_end)
    epoch = max([head.epoch for head in heads], default=0) + 1
    numbers = one.record_files.numbers()
    first_record = numbers[0] * one.page_bytes if numbers else 0
    if not heads:
        return Mark(epoch=epoch)
    first, last = heads[0], heads[-1]
    return Mark(
        epoch=epoch, end=last.ordinal + last.messages, data_end=last.begin + last.length, record_end=first_record + record_end,
        place=last.place + last.place_length, time=last.time, first=first.ordinal, first_record=first_record,
        first_place=first.place,
    )  # fmt: skip


# ---- writing -------------------------------------------------------------------------------------------------------


def rebuild(path: Path) -> Plan:
    """Writes slots, record index and marks again; what was written."""
    held = _lock(path)
    try:
        found, one = plan(path), Folder(path)
        trail = one.trail()
        at = found.mark.first_record
        for head in found.records:
            _put(one.record_files, at, RECORD.pack(head.ordinal, head.place, head.begin, head.time))
            _put(one.slot_files, head.ordinal * SLOT.size, _slots(trail, head))
            at += RECORD_BYTES
        for first, end in found.missing:
            _put(one.slot_files, first * SLOT.size, bytes(SLOT.size * (end - first)))
        for files in (one.slot_files, one.record_files):
            _sync(files)
        raw = bytearray(MARKS_BYTES)
        for more, start in enumerate(MARK_AT):
            raw[start : start + MARK.size] = marks.pack(found.mark._replace(counter=found.mark.counter + 2 + more))
        with space_for(path):
            os.pwrite(held[-1], raw, 0)
        os.fsync(held[-1])
        sync_directory(path)
        log.info("%s: slots and index of %d records were written again", path, len(found.records))
        return found
    finally:
        for fd in held:
            os.close(fd)


def _lock(path: Path) -> list[int]:
    """The lock of the data directory, if this lies in one, and that of the marks."""
    held: list[int] = []
    server = path.parent.parent / "lock"
    try:
        for file, makes in ((server, 0), (path / MARKS_FILE, os.O_CREAT)):
            if not (file.exists() or makes):
                continue
            held.append(os.open(file, os.O_RDWR | makes | os.O_CLOEXEC, 0o600))
            if not try_lock(held[-1]):
                raise Locked(f"{file} is held by a process at work; stop it before repairing")
    except BaseException:
        for fd in held:
            os.close(fd)
        raise
    return held


def _slots(trail: Trail, head: Head) -> bytes:
    starts, counts = layout(
        trail.payload(head.begin, head.length),
        head.dress,
        inflated_max=limits.INFLATED_MAX,
        depth_max=limits.NESTED_MAX,
    )
    begins = memoryview(starts).cast("i").tolist()
    stops = [*begins[1:], head.length - HEAD_BYTES]
    entries = zip(begins, stops, memoryview(counts).cast("i").tolist(), strict=True)
    return b"".join(
        SLOT.pack(head.begin + HEAD_BYTES + start, stop - start, bytes(3), PUBLISHED) * count
        for start, stop, count in entries
    )


def _put(files: PageFiles, offset: int, raw: bytes) -> None:
    while raw:
        number, position = divmod(offset, files.page_bytes)
        piece = raw[: files.page_bytes - position]
        path = files.path(number)
        if path.exists() and not files.present(number):
            os.truncate(path, files.page_bytes)
        fd, _made = files.writing(number, window=files.page_bytes, need=files.page_bytes)
        try:
            with space_for(path):
                os.pwrite(fd, piece, position)
        finally:
            os.close(fd)
        offset += len(piece)
        raw = raw[len(piece) :]


def _sync(files: PageFiles) -> None:
    for number in files.numbers():
        fd = os.open(files.path(number), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
