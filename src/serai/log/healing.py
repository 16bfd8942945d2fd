"""What lies above the newest mark of a partition: taken over as far as it is whole, cut where it is torn.

    mark ... [record][record][part 1][part 2, last][record][part 1] torn ...
              adopted one after the other ------------------>| cut: a set without its last part goes too

Nothing above a mark is trusted: a record must have its checksum, which begins with the log's identity, the ordinal
and place that come next, the part number that comes next, and an epoch not below the mark's.  So bytes of a page that
was used before, or that a recovery or a truncation has given up, are never taken for the log.

A truncation moves the mark: its end goes back, its data end does not.  So nothing that was given up lies above it.

Invariants
- what was committed is adopted: its bytes were on the disk, and everything before it too
- what the disk does not give is not taken for a torn tail: nothing is cut, the log stays closed
- what is adopted is written once more and synced before a mark covers it: a kernel that failed to write it may
  believe that it did
- slots and record index are written again for all that is adopted, and are zero behind it
- a crash in the middle of a truncation leaves the log as it was, or cut; nothing before the cut is lost
"""

import errno
import logging
import os
from typing import TYPE_CHECKING

from serai import limits
from serai._core.crc import crc32c
from serai._core.messages import census, layout
from serai._core.records import FLAG_LAST, HEAD_BYTES, RECORD_BYTES, Recorder
from serai._core.trail import Head, Trail
from serai.errors import Misuse
from serai.log import recovery
from serai.log.folder import Folder
from serai.log.format import HEAD, HEAD_FIELDS, SLOT_BYTES
from serai.log.marks import Mark
from serai.log.store import PageFiles, Runway, sync_directory

if TYPE_CHECKING:
    from serai.log.view import Reading

log = logging.getLogger("serai.log")
_SUMMED = 8
_AGAIN_BYTES = 1 << 20


def following(
    trail: Trail, begin: int, *, page_bytes: int, ordinal: int, place: int, epoch: int, part: int
) -> Head | None:
    """The record that comes next at a data offset, or at the next page if the rest of this one was left empty."""
    starts = [begin]
    if begin % page_bytes:
        starts.append(begin - begin % page_bytes + page_bytes)
    for start in starts:
        head = trail.scan(start)
        if (
            isinstance(head, Head)
            and head.epoch >= epoch
            and (head.ordinal, head.place, head.part) == (ordinal, place, part)
        ):
            return head
    return None


def resume(folder: Folder, trail: Trail, recorder: Recorder, mark: Mark) -> None:
    """Takes over what is whole above the mark and cuts the rest."""
    begin, ordinal, place, epoch = mark.data_end, mark.end, mark.place, mark.epoch
    parts: list[Head] = []
    adopted = 0
    trail.unread = False
    while True:
        head = following(
            trail, begin, page_bytes=folder.page_bytes, ordinal=ordinal, place=place, epoch=epoch, part=len(parts)
        )
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
    if trail.unread:
        raise OSError(
            errno.EIO, f"{os.strerror(errno.EIO)} behind byte {begin} of the data, so nobody can say where it ends"
        )
    write_again(folder.data_files, mark.data_end, recorder.data_end)
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


def write_again(files: PageFiles, start: int, stop: int) -> None:
    """Writes the bytes of a stretch once more where they stand, and syncs them."""
    for number in files.numbers():
        base = number * files.page_bytes
        first, last = max(start - base, 0), min(stop - base, files.page_bytes)
        if first >= last:
            continue
        fd = os.open(files.path(number), os.O_RDWR | os.O_CLOEXEC)
        try:
            for at in range(first, last, _AGAIN_BYTES):
                os.pwrite(fd, os.pread(fd, min(_AGAIN_BYTES, last - at), at), at)
            os.fdatasync(fd)
        finally:
            os.close(fd)
    sync_directory(files.directory)


def truncated(reading: "Reading", runway: Runway, mark: Mark, ordinal: int, *, epoch: int) -> Mark:
    """The mark of a settled log that is cut at an ordinal.

    What a cut record keeps becomes a record of its own behind the data; it lies above the mark, for `resume`.
    """
    bounds = reading.bounds()
    at = reading.trail.holder(ordinal, first=bounds.first_record, end=bounds.record_end)
    head = reading.trail.head(at)
    front = _front(reading, head, ordinal)
    data_end = mark.data_end
    if front:
        counted = census(
            front, head.dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
            jafka_magic=reading.folder.format.jafka_magic,
        )  # fmt: skip
        head = head._replace(
            length=HEAD_BYTES + len(front), flags=head.flags | FLAG_LAST, messages=counted.messages,
            place_length=counted.jafka_bytes, epoch=epoch, part=0,
        )  # fmt: skip
        raw = sealed(head, front, reading.folder.identity)
        page_bytes = reading.folder.page_bytes
        if len(raw) > page_bytes - data_end % page_bytes:
            data_end += -data_end % page_bytes
        _put(runway, data_end, raw)
    before = head.time if at == bounds.first_record else reading.trail.record(at - RECORD_BYTES)[3]
    return mark._replace(
        clean=0, end=head.ordinal, data_end=data_end, record_end=at, place=head.place, time=min(before, head.time)
    )


def sealed(head: Head, messages: bytes, identity: int) -> bytes:
    """A record as it lies in the data."""
    words = {"sum": 0, "version": 1, **head._asdict()}
    raw = HEAD.pack(*(words[name] for name in HEAD_FIELDS)) + messages
    return raw[:4] + crc32c(raw[_SUMMED:], identity).to_bytes(4, "little") + raw[_SUMMED:]


def _put(runway: Runway, offset: int, raw: bytes) -> None:
    """Writes bytes behind the data, and syncs them."""
    page_bytes = runway.files.page_bytes
    while raw:
        piece = raw[: page_bytes - offset % page_bytes]
        page, _ = runway.ahead(offset, len(piece))
        page.write(offset % page_bytes, piece)
        offset += len(piece)
        raw = raw[len(piece) :]
    runway.force()


def _front(reading: "Reading", head: Head, ordinal: int) -> bytes:
    """The messages of a record before the ordinal."""
    payload = reading.trail.payload(head.begin, head.length)
    starts, counts = layout(payload, head.dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX)
    before, stop = head.ordinal, 0
    for start, count in zip(memoryview(starts).cast("i"), memoryview(counts).cast("i"), strict=True):
        stop = start
        if before >= ordinal:
            break
        before += count
        if before > ordinal:
            raise Misuse(
                f"log {reading.folder.path.name} cannot be cut at {ordinal}: it is in the middle of a batch that was stored as "
                "one; cut at its start or at its end"
            )
    return bytes(payload[:stop])
