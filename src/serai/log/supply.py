"""What the compiled cursors ask the log for: pages, liveness, and the words for damage.

`WriterSupply` stands behind a `Writer`, `SharedSupply` behind one of several producers, `ReaderSupply`
behind every `Reader`.  Each holds the descriptors and locks of its side and nothing else.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from serai import limits
from serai._core.crc import crc32c
from serai._core.pages import Page, entry_sum
from serai.errors import Closed, Corrupt, DeadProducer, Locked, Misuse, SeraiError
from serai.log import recovery
from serai.log.format import (
    DATA,
    SLOT_BYTES,
    STATE,
    STATE_BYTES,
    STATE_LAYOUT,
    STORED_NAME,
    name_number,
    name_text,
)  # fmt: skip
from serai.log.lock import WriterLock, is_held, try_lock, unlock
from serai.log.seal import DataFiles
from serai.log.store import PageFiles, Runway, reserve, space_for, sync_directory

Fetch = Callable[[int, int], tuple[Page, int] | None]


class WriterSupply:
    """The log's side of a single producer: runways for both streams, and the directory's lock."""

    def __init__(self, directory: Path, index: PageFiles, data: DataFiles, *, summed: bool) -> None:
        self._pid = os.getpid()
        self._lock = WriterLock(directory)
        self._data_runway = _data_runway(data.files)
        self._slot_runway = _slot_runway(index, self._lock)
        self.closed = False  # from here on there is something to close
        self.directory = directory
        self._index = index
        self._data = data
        try:
            self._take_directory()
            index.sweep()
            data.files.sweep()
            self.slot_offset, self.data_offset = recovery.resume(index, data.has, self._sound(data, summed=summed))
        except BaseException:
            self.close()
            raise

    def _take_directory(self) -> None:
        """Locks the newest index page, the one place every writer passes."""
        window = limits.SLOT_WINDOW_FIRST
        for _ in range(1000):
            numbers = self._index.numbers()
            newest = numbers[-1] if numbers else 0
            fd, made = self._index.writing(newest, window=window, need=2 * SLOT_BYTES, lock=self._lock)
            os.close(fd)
            self._slot_runway.made = self._slot_runway.made or made
            if self._index.numbers()[-1] == newest:
                return
            self._lock.release()  # the holder turned the page before it left
        raise Locked(f"{self.directory}: its index pages change faster than they can be locked")

    def _sound(self, data: DataFiles, *, summed: bool) -> Callable[[recovery.Entry], bool]:
        def sound(entry: recovery.Entry) -> bool:
            want = int.from_bytes(entry.tag, "little")
            if not (summed and want):
                return True
            payload = data.read(entry.begin, entry.size)
            return entry_sum(crc32c(payload), entry.offset, entry.begin, entry.size) == want

        return sound

    def data(self, offset: int, need: int) -> tuple[Page, int]:
        self._alive()
        number = offset // self._index.page_bytes
        if number != self._data_runway.number:
            self._data.make_plain(number)
        return self._data_runway.ahead(offset, need)

    def slots(self, offset: int) -> tuple[Page, int]:
        self._alive()
        return self._slot_runway.ahead(offset, SLOT_BYTES)

    def _alive(self) -> None:
        check_alive(f"the writer of {self.directory}", closed=self.closed, pid=self._pid)

    def force(self) -> None:
        self._alive()
        self._data_runway.force()
        self._slot_runway.force()

    def close(self) -> None:
        self.closed = True
        self._data_runway.release()
        self._slot_runway.release()
        self._lock.release()

    def __del__(self) -> None:
        """A queue that was dropped and never closed lets the next writer in."""
        if not getattr(self, "closed", True):
            self.close()


class SharedSupply:
    """The log's side of one of several producers: its own data stream, the common index, its state file."""

    def __init__(self, directory: Path, index: PageFiles, name: str, page_bytes: int) -> None:
        self._state_fd = -1
        self._pid = os.getpid()
        self._data = DataFiles(PageFiles(directory / name, DATA, page_bytes))
        self._data_runway = _data_runway(self._data.files)
        self._slot_runway = _slot_runway(index, None)
        self.closed = False
        self.directory = directory
        self.name = name
        self._index = index
        self._state_fd = self._open_state()
        try:
            with space_for(directory / name):
                (directory / name).mkdir(exist_ok=True)
            self._data.files.sweep()
            index.sweep(older_than_s=limits.HALF_MADE_AGE_S)
            self.state = Page(self._state_fd, STATE_BYTES, True)
            self._resume()
        except BaseException:
            self.close()
            raise

    def _open_state(self) -> int:
        path = self.directory / (self.name + STATE)
        with space_for(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not try_lock(fd):
                raise Locked(
                    f"producer {self.name} of {self.directory} is already at work, in this process or another; "
                    "every producer needs a name of its own"
                )
            size = os.fstat(fd).st_size
            if size > STATE_BYTES:
                raise Corrupt(
                    f"{path} has {size} bytes; a producer's state has {STATE_BYTES}",
                    file=str(path), expected=STATE_BYTES, found=size,
                )  # fmt: skip
            with space_for(path):
                reserve(fd, 0, STATE_BYTES)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _resume(self) -> None:
        """Takes up the own data stream and finishes the entry a crash left unfinished."""
        end_a, end_b, last, _unused = STATE_LAYOUT.unpack(bytes(self.state))
        self.data_offset = max(end_a, end_b)
        path = str(self.directory / (self.name + STATE))
        if end_a < 0 or end_b < 0 or last < 0 or last % SLOT_BYTES:
            raise Corrupt(
                f"{path} holds {end_a}, {end_b}, {last}: two data ends and an index offset cannot be that",
                file=path, position=0, expected="two ends and a multiple of 16", found=(end_a, end_b, last),
            )  # fmt: skip
        entry = recovery.unfinished(self._index, last, name_number(self.name))
        if entry is not None:
            begin = self.data_offset - entry.size
            number, position = divmod(entry.offset, self._index.page_bytes)
            if begin < 0:
                raise Corrupt(
                    f"{path} ends at {self.data_offset}, but the unfinished entry at offset {entry.offset} has {entry.size} "
                    "bytes", file=path, position=0, expected=f"at least {entry.size}", found=self.data_offset,
                )  # fmt: skip
            fd, _made = self._index.writing(number, window=limits.SLOT_WINDOW_FIRST, need=2 * SLOT_BYTES)
            try:
                Page(fd, self._index.page_bytes, True).finish(position, begin)
            finally:
                os.close(fd)
            self.state.write(16, entry.offset.to_bytes(8, "little"))
        self.slot_offset = recovery.find_end(self._index, shared=True)

    def data(self, offset: int, need: int) -> tuple[Page, int]:
        self._alive()
        if self._slot_runway.number < 0:  # before any data: pages of another length must not get ours beside them
            self._slot_runway.ahead(self.slot_offset, SLOT_BYTES)
        number = offset // self._index.page_bytes
        if number != self._data_runway.number:
            self._data.make_plain(number)
        return self._data_runway.ahead(offset, need)

    def slots(self, offset: int) -> tuple[Page, int]:
        self._alive()
        return self._slot_runway.ahead(offset, SLOT_BYTES)

    def _alive(self) -> None:
        check_alive(f"producer {self.name} of {self.directory}", closed=self.closed, pid=self._pid)

    def force(self) -> None:
        self._alive()
        self._data_runway.force()
        self._slot_runway.force()
        os.fdatasync(self._state_fd)
        sync_directory(self.directory)

    def close(self) -> None:
        self.closed = True
        self._data_runway.release()
        self._slot_runway.release()
        if self._state_fd >= 0:
            if os.getpid() == self._pid:  # a forked child must not free its parent's name
                unlock(self._state_fd)
            os.close(self._state_fd)
        self._state_fd = -1

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close()


def check_alive(who: str, *, closed: bool, pid: int) -> None:
    """Refuses a writer that was closed or that a fork has copied."""
    if closed:
        raise Closed(f"{who} is closed; open the queue again to write")
    if os.getpid() != pid:
        raise Misuse(f"{who} belongs to process {pid}, which forked this one; open the queue again in each process")


def _data_runway(files: PageFiles) -> Runway:
    return Runway(files, window_first=limits.DATA_WINDOW_FIRST, window_max=limits.DATA_WINDOW_MAX, spare=0)


def _slot_runway(files: PageFiles, lock: WriterLock | None) -> Runway:
    return Runway(
        files, window_first=limits.SLOT_WINDOW_FIRST, window_max=limits.SLOT_WINDOW_MAX, spare=SLOT_BYTES, lock=lock
    )


class Home(Protocol):
    """The queue as its readers see it."""

    path: Path
    shared: bool

    @property
    def index(self) -> PageFiles: ...
    def measure(self) -> int: ...
    def stream(self, producer: str, /) -> DataFiles: ...


class ReaderSupply:
    """The log's side of a reader: maps pages, tells the dead from the slow, and words the errors."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.directory = home.path
        self._missing = -1
        self._stalled_offset = -1
        self._stalled_since = 0.0

    @property
    def _index(self) -> PageFiles:
        return self._home.index

    def page_bytes(self) -> int:
        return self._home.measure()

    def slots(self, offset: int, _need: int) -> tuple[Page, int] | None:
        number = offset // self._index.page_bytes
        page = self._index.reading(number)
        if page is not None:
            return page, number * self._index.page_bytes
        if number != self._missing:  # look around once, not at every poll of the tail
            self._missing = number
            self._explain_missing(number, offset)
        return None

    def _explain_missing(self, number: int, offset: int) -> None:
        numbers = self._index.numbers()
        if number in numbers or not numbers or number > numbers[-1]:  # half-made, or not made yet
            return
        if self._index.path(number).exists():  # made while the directory was listed: the later page was later
            return
        self._missing = -1
        path = self._index.path(number)
        if number < numbers[0]:
            raise Misuse(
                f"offset {offset} of {self.directory} is no longer there: the first one is "
                f"{numbers[0] * self._index.page_bytes}"
            )
        raise Corrupt(
            f"{path} is missing although later index pages are there, so the messages from offset {offset} to "
            f"{(number + 1) * self._index.page_bytes} cannot be found; reading goes on behind them",
            file=str(path), expected="an index page", found="no file",
        )  # fmt: skip

    def resume(self, offset: int) -> int:
        """Where reading goes on when the page of an offset is missing: the next one that is there."""
        later = [number for number in self._index.numbers() if number * self._index.page_bytes > offset]
        return later[0] * self._index.page_bytes if later else offset

    def data(self, name: int) -> Fetch:
        if not self._home.shared:
            return self._home.stream("").fetch
        if not STORED_NAME.fullmatch(name_text(name)):
            raise self._bad_name(name)
        return self._home.stream(name_text(name)).fetch

    def _bad_name(self, name: int) -> Corrupt:
        return Corrupt(
            f"an index entry of {self.directory} names the producer {name_text(name)!r}, which no producer can have; the entry "
            f"is skipped. `serai verify {self.directory}` says where", file=str(self.directory),
            expected="three letters or digits", found=name_text(name),
        )  # fmt: skip

    def published(self) -> int:
        return recovery.find_end(self._index, shared=self._home.shared)

    def last(self) -> int:
        """Offset of the newest entry, -1 when there is none."""
        if not self._home.measure():
            return -1
        first, end = recovery.find_ends(self._index, shared=self._home.shared)
        return end - SLOT_BYTES if end > first else -1

    def stalled(self, offset: int, name: int) -> SeraiError | None:
        """Whether the producer of a claimed entry is gone; asked again and again while it is not."""
        now = time.monotonic()
        if offset != self._stalled_offset:
            self._stalled_offset, self._stalled_since = offset, now
            return None
        if now - self._stalled_since < limits.DEAD_AFTER_MS / 1000:
            return None
        self._stalled_since = now
        producer = name_text(name)
        if not STORED_NAME.fullmatch(producer):
            return self._bad_name(name)
        if is_held(self.directory / (producer + STATE)):
            return None
        return DeadProducer(
            f"producer {producer} of {self.directory} is not running and left the entry at offset {offset} unfinished; it is "
            "skipped. The producer completes it when it starts again, for readers that have not passed it",
            offset=offset, producer=producer,
        )  # fmt: skip

    def damage(self, offset: int, begin: int, size: int, name: int, text: str) -> Corrupt:
        number, position = divmod(offset, self._index.page_bytes)
        path = self._index.path(number)
        whose = f" of producer {name_text(name)}" if self._home.shared else ""
        return Corrupt(
            f"{path} byte {position}: the entry at offset {offset}{whose} says begin {begin}, size {size}: {text}. "
            f"It is skipped; `serai verify {self.directory}` looks at all of them",
            file=str(path), position=position, expected="an entry whose bytes are there and unchanged", found=(begin, size),
        )  # fmt: skip

    def closed(self) -> Closed:
        return Closed(f"this reader of {self.directory} is closed; make a new one with queue.reader()")
