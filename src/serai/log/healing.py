"""What lies above the newest mark of a partition: taken over as far as it is whole, cut where it is torn.

    mark ... [record][record][part 1][part 2, last][record][part 1] torn ...
              adopted one after the other ------------------>| cut: a set without its last part goes too

Nothing above a mark is trusted: a record must have its checksum, which begins with the log's identity, the ordinal
and place that come next, and an epoch that does not fall.  So bytes of a page that was used before, or that a
recovery has cut earlier, are never taken for the log.

Invariants
- what was committed is adopted: its bytes were on the disk, and everything before it too
- slots and record index are written again for all that is adopted, and are zero behind it
- a truncation leaves no head behind that a later recovery could take for the log's
"""

import logging
import os
from typing import TYPE_CHECKING

from serai._core.records import FLAG_LAST, FLAG_WRAPPED, RECORD_BYTES, Recorder
from serai._core.trail import Head, Trail
from serai.errors import Misuse, OutOfRange
from serai.log import recovery
from serai.log.folder import Folder
from serai.log.format import SLOT_BYTES
from serai.log.marks import Mark
from serai.log.store import PageFiles

if TYPE_CHECKING:
    from serai.log.view import Reading

log = logging.getLogger("serai.log")
HEAD_WIPED = 16  # bytes of a head that are zeroed, so that it is none


def following(trail: Trail, begin: int, *, page_bytes: int, ordinal: int, place: int, epoch: int) -> Head | None:
    """The record that comes next at a data offset, or at the next page if the rest of this one was left empty."""
    starts = [begin]
    if begin % page_bytes:
        starts.append(begin - begin % page_bytes + page_bytes)
    for start in starts:
        head = trail.scan(start)
        if isinstance(head, Head) and head.ordinal == ordinal and head.place == place and head.epoch >= epoch:
            return head
    return None


def resume(folder: Folder, trail: Trail, recorder: Recorder, mark: Mark) -> None:
    """Takes over what is whole above the mark and cuts the rest."""
    begin, ordinal, place, epoch = mark.data_end, mark.end, mark.place, 0
    parts: list[Head] = []
    adopted = 0
    while True:
        head = following(trail, begin, page_bytes=folder.page_bytes, ordinal=ordinal, place=place, epoch=epoch)
        if head is None:
            break
        parts.append(head)
        begin, epoch = head.begin + head.length, head.epoch
        ordinal += head.messages
        place += head.place_length
        if head.flags & FLAG_LAST:
            for part in parts:
                recorder.adopt(
                    trail.payload(part.begin, part.length), part.dress, begin=part.begin, length=part.length,
                    time=part.time, place_length=part.place_length,
                )  # fmt: skip
            adopted += len(parts)
            parts = []
    clear(folder.slot_files, recorder.end * SLOT_BYTES)
    clear(folder.record_files, recorder.record_end)
    if adopted or parts:
        log.info(
            "%s: took over %d records above its mark, ordinals %d to %d%s", folder.path, adopted, mark.end, recorder.end,
            f"; cut {len(parts)} parts of a set that is not whole" if parts else "",
        )  # fmt: skip


def clear(files: PageFiles, start: int) -> None:
    """Zeroes a stream from an offset on, and removes the pages behind."""
    last = start // files.page_bytes
    for number in files.numbers():
        if number > last:
            files.path(number).unlink()
            files.forget(number)
    for offset, raw in recovery.blocks(files, start):
        if any(raw):
            recovery.zero(files, offset, len(raw))


def truncate(reading: "Reading", recorder: Recorder, ordinal: int) -> None:
    """Cuts a settled log at an ordinal; the caller writes the new mark."""
    bounds, folder = reading.bounds(), reading.folder
    if not bounds.first <= ordinal <= bounds.end:
        raise OutOfRange(
            f"log {folder.path.name} cannot be cut at {ordinal}: it holds {bounds.first} to {bounds.end}",
            first=bounds.first, end=bounds.end,
        )  # fmt: skip
    if ordinal == bounds.end:
        return
    at = reading.trail.find(ordinal, first=bounds.first_record, end=bounds.record_end)
    head = reading.trail.head(at)
    front = _front(reading, head, ordinal)
    for begin in [reading.trail.record(one)[2] for one in range(at, bounds.record_end, RECORD_BYTES)]:
        _wipe(folder, begin)
    recorder.move(data_offset=head.begin, ordinal=head.ordinal, record_offset=at, place=head.place, time=head.time)
    clear(folder.slot_files, head.ordinal * SLOT_BYTES)
    clear(folder.record_files, at)
    if front:
        recorder.append(front, head.dress, head.time, producer=head.producer, sequence=head.sequence)


def _front(reading: "Reading", head: Head, ordinal: int) -> bytes:
    """The messages of a record before the ordinal."""
    if ordinal == head.ordinal:
        return b""
    begin, _size = reading.trail.slot(ordinal)
    before, size = reading.trail.slot(ordinal - 1)
    if head.flags & FLAG_WRAPPED and begin == before:
        raise Misuse(
            f"log {reading.folder.path.name} cannot be cut at {ordinal}: it is in the middle of a batch that was stored as one; "
            f"cut at its start or at its end"
        )
    return bytes(reading.trail.payload(head.begin, before + size - head.begin))


def _wipe(folder: Folder, begin: int) -> None:
    path, position = folder.where(begin)
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes(HEAD_WIPED), position)
        os.fdatasync(fd)
    finally:
        os.close(fd)
