"""A bare Quick-Queue directory as a log of one partition: what an application wrote with `serai.Queue`, or Java.

Position n is the entry at index offset 16 n.  Runs of messages stay where they lie, the mapped page is the
Arrow buffer; messages of several producers, and pages so small that runs are short, are gathered.

Invariants
- what was published is never changed, so the same positions give the same rows at every reading.  The one
  exception is the entry of a producer that died: it has no row until the producer comes back and finishes it
- `end(committed=True)` brought everything below to the disk before it answers: a queue has no mark of its own
- nothing is read behind an entry that a living producer has not finished
"""

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from serai._core.arrow import Batch
from serai._core.columns import Columns
from serai._core.crc import crc32c
from serai._core.reader import Reader
from serai.errors import Corrupt, DeadProducer, Misuse
from serai.log import recovery
from serai.log.format import COMPRESSED, DATA, INDEX, INDEX_JAVA, PUBLISHED, SLOT_BYTES, STATE, name_text
from serai.log.lock import is_held
from serai.log.place import kind_of
from serai.log.queue import MultiQueue, Queue
from serai.log.store import PageFiles
from serai.spark.slices import Block, DataLoss, Wish

RUN_ROWS = 256  # a run shorter than this, and
RUN_BYTES = 256 << 10  # smaller than this, is gathered with what follows it
MARK_BYTES = 4096  # of a payload, that go into a mark
PATIENCE_S = 2.0  # for an entry below the planned end, on a machine that is busy


def is_queue(path: Path) -> bool:
    """Whether a directory itself has the files of a queue; folders of three letters below it may be queues of their own."""
    return any(name.endswith((INDEX, INDEX_JAVA, DATA, COMPRESSED, STATE)) for name in os.listdir(path))


class QueueLog:
    """One queue directory."""

    def __init__(self, path: str, topic: str, dialect: str) -> None:
        self.path = path
        self.topic = topic
        self.partition = 0
        self._dialect = dialect
        self._queue: Queue | MultiQueue = (
            MultiQueue(path, dialect=dialect)
            if kind_of(path) == "multi"
            else Queue(path, "r", dialect=dialect, checksum="index24")
        )
        self._settled = False  # its kind and page size are known
        self._whole = 0  # entries below are published, or their producer is dead
        self._flushed = 0

    @property
    def _index(self) -> PageFiles:
        return self._queue.index

    def _is_empty(self) -> bool:
        """Whether nothing was written yet; a queue that was opened empty may turn out to have several producers."""
        if not self._settled:
            if not self._queue.shared and kind_of(self.path) == "multi":
                self._queue = MultiQueue(self.path, dialect=self._dialect)
            self._settled = self._queue.measure() != 0
        return not self._settled

    def close(self) -> None:
        self._queue.close()

    # ---- where it begins and ends

    def first(self) -> int:
        return 0 if self._is_empty() else recovery.first_offset(self._index) // SLOT_BYTES

    def end(self, *, committed: bool) -> int:
        if self._is_empty():
            return 0
        end = recovery.find_end(self._index, shared=self._queue.shared) // SLOT_BYTES
        if self._queue.shared:
            end = self._whole = self._whole_until(end)
        if committed and end > self._flushed:
            self._flush(end)
        return end

    def _whole_until(self, end: int) -> int:
        """The first entry, from the last answer on, that a living producer has claimed and not finished."""
        for offset, raw in recovery.blocks(self._index, self._whole * SLOT_BYTES, end * SLOT_BYTES):
            for at in np.flatnonzero(flags_of(raw) != PUBLISHED).tolist():
                stamp = raw[at * SLOT_BYTES + 8 : (at + 1) * SLOT_BYTES]
                name = name_text(int.from_bytes(stamp[4:7], "little"))
                with suppress(FileNotFoundError):  # no state file: nobody of that name is at work
                    if is_held(Path(self.path) / (name + STATE)) and not self._is_published(offset + at * SLOT_BYTES):
                        return offset // SLOT_BYTES + at
        return end

    def _is_published(self, offset: int) -> bool:
        entry = recovery.read_entry(self._index, offset)
        return entry is not None and entry.published

    def _flush(self, end: int) -> None:
        """Brings entries and payloads below `end` to the disk: pages are many, those that changed are few."""
        since = max(self._flushed - 1, self.first())
        page = self._index.page_bytes
        _sync(self._index, since * SLOT_BYTES // page)
        before = recovery.read_entry(self._index, since * SLOT_BYTES)
        for producer in self._queue.producers() or [""]:
            number = before.begin // page if before is not None and not producer else 0
            with suppress(FileNotFoundError):
                _sync(PageFiles(Path(self.path) / producer, DATA, page), number)
        self._flushed = end

    def mark(self, position: int) -> str:
        """A checksum of the message before `position`: another queue of that length has another one."""
        entry = (
            None if self._is_empty() or position < 1 else recovery.read_entry(self._index, (position - 1) * SLOT_BYTES)
        )
        if entry is None or not entry.published:
            return ""
        name = name_text(int.from_bytes(entry.tag, "little")) if self._queue.shared else ""
        try:
            payload = self._queue.stream(name).read(entry.begin, min(entry.size, MARK_BYTES))
        except (OSError, ValueError, Corrupt):
            return ""
        return f"{crc32c(struct.pack('<qi', entry.begin, entry.size) + bytes(payload or b'')):08x}"

    # ---- how much it is

    def count(self, first: int, last: int) -> int:
        if not self._queue.shared:
            return last - first
        found = recovery.blocks(self._index, first * SLOT_BYTES, last * SLOT_BYTES)
        return sum(int(np.count_nonzero(flags_of(raw) == PUBLISHED)) for _offset, raw in found)

    def weigh(self, first: int, last: int) -> int:
        if last <= first:
            return 0
        if self._queue.shared:
            return int(sum(sizes.sum() for _at, sizes in self._sizes(first, last)))
        low = recovery.read_entry(self._index, first * SLOT_BYTES)
        high = recovery.read_entry(self._index, (last - 1) * SLOT_BYTES)
        return 0 if low is None or high is None else max(high.begin + high.size - low.begin, 0)

    def within(self, first: int, last: int, bytes_max: int) -> int:
        if not self._queue.shared:
            low, high = first + 1, last  # the most that fit, by halving: payloads lie one behind the other
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self.weigh(first, middle) <= bytes_max else (low, middle - 1)
            return low
        left = bytes_max
        for at, sizes in self._sizes(first, last):
            total = np.cumsum(sizes)
            fitting = int(np.searchsorted(total, left, side="right"))
            if fitting < len(sizes):
                return max(at + fitting, first + 1)
            left -= int(total[-1])
        return last

    def _sizes(self, first: int, last: int) -> Iterator[tuple[int, "np.ndarray[tuple[int], np.dtype[np.int64]]"]]:
        for offset, raw in recovery.blocks(self._index, first * SLOT_BYTES, last * SLOT_BYTES):
            words = np.frombuffer(raw, dtype="<i4").astype(np.int64)
            yield offset // SLOT_BYTES, words[2::4]

    def at_time(self, time_ms: int) -> int:
        raise Misuse(
            f"{self.path} is a queue whose messages have no store time, so none is found by {time_ms} ms: start it by "
            "offset, as -1000 or earliest"
        )

    # ---- the messages

    def blocks(self, first: int, last: int, wish: Wish) -> Iterator[Block]:
        reader = self._queue.reader(first * SLOT_BYTES)
        deadline = time.monotonic() + PATIENCE_S
        while reader.offset < last * SLOT_BYTES:
            before = reader.offset
            try:
                yield from self._some(reader, last * SLOT_BYTES, wish)
            except DeadProducer as error:
                if wish.on_abandoned == "fail":
                    raise
                wish.tally.abandoned += 1
                wish.tally.note(str(error))
            except Corrupt as error:
                yield from self._damaged(error, before, reader.offset, wish)
            if reader.offset != before:
                deadline = time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline:
                raise DataLoss(
                    f"{self.path} ends at position {before // SLOT_BYTES}, but up to {last} was planned: "
                    f"{last - before // SLOT_BYTES} messages are gone"
                )
            else:
                reader.wait(1000)

    def _some(self, reader: Reader, stop: int, wish: Wish) -> Iterator[Block]:
        """What one call of the core gives: a run as it lies, or rows gathered."""
        if not reader.shared:
            start = reader.offset
            batch = reader.read_batch(wish.bytes)
            whole = start + SLOT_BYTES * len(batch) >= stop
            if len(batch) >= RUN_ROWS or batch.nbytes >= RUN_BYTES or (whole and len(batch)):
                rows = min(len(batch), (stop - batch.first_offset) // SLOT_BYTES)
                if rows < len(batch):
                    reader.seek(batch.first_offset + rows * SLOT_BYTES)
                yield run_block(batch, rows)
                return
            reader.seek(start)
        columns = Columns()
        columns.take_from(reader, stop=stop, rows_max=wish.rows, bytes_max=wish.bytes)
        if len(columns):
            yield self._gathered(columns, wish)

    def _gathered(self, columns: Columns, wish: Wish) -> Block:
        rows = len(columns)
        value = pa.Array.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(columns.ends), pa.py_buffer(columns.values)]
        )
        offset = np.frombuffer(memoryview(columns.offsets), dtype=np.int64) // SLOT_BYTES
        arrays = {"value": value, "offset": pa.array(offset)}
        if "producer" in wish.columns:
            arrays["producer"] = _producers(np.frombuffer(memoryview(columns.names), dtype=np.int32))
        return Block(rows, arrays)

    def _damaged(self, error: Corrupt, before: int, after: int, wish: Wish) -> Iterator[Block]:
        """An entry, or the entries of a missing page, that cannot be read."""
        if wish.on_corrupt == "fail" or after <= before:
            raise error
        count = (after - before) // SLOT_BYTES
        wish.tally.note(str(error))
        wish.tally.corrupt += count
        if wish.on_corrupt == "null":
            wish.tally.corrupt -= count
            start = before // SLOT_BYTES
            yield Block(
                count,
                {"value": pa.nulls(count, pa.binary()), "offset": pa.array(range(start, start + count), pa.int64())},
            )


def flags_of(entries: bytes) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """The flag of each index entry."""
    return np.frombuffer(entries, dtype=np.uint8)[SLOT_BYTES - 1 :: SLOT_BYTES]


def run_block(batch: Batch, rows: int) -> Block:
    """A run as it lies in the page."""
    first = batch.first_offset // SLOT_BYTES
    value = pa.array(batch.values)
    return Block(rows, {
        "value": value if rows == len(batch) else value.slice(0, rows),
        "offset": pa.array(np.arange(first, first + rows, dtype=np.int64)),
    })  # fmt: skip


def _producers(names: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> pa.Array:
    known, which = np.unique(names, return_inverse=True)
    words = pa.array([name_text(int(name)) for name in known], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), words).cast(pa.string())


def _sync(files: PageFiles, since: int) -> None:
    for number in files.numbers():
        if number < since:
            continue
        with suppress(FileNotFoundError):  # compressed meanwhile, and synced by that
            fd = os.open(files.path(number), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
