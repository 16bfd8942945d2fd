"""Queues: a directory of pages, one writer or several, any number of readers.

    Queue("dir")                      one producer; the ids of messages rise by 16
    MultiQueue("dir", "rw", "AA0")    one of several producers that share an index without a lock

Invariants
- opening changes nothing; the first `writer()` takes the lock, cleans the tail and makes what is missing
- there is one writer of a directory (of a producer name), and each queue gives the same one every time
- readers need no lock and may be in other threads and processes, each with a reader of its own
- the page size is that of the directory; an argument or the environment speaks only for a new one
- opening looks at the oldest and newest of the data pages, so it takes as long in a large queue as in a small one;
  the others are held to the same length when they are mapped
"""

import os
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from serai import config
from serai._core.pack import Message, Writer
from serai._core.reader import Reader
from serai.errors import Closed, Corrupt, Misuse, ReadOnly
from serai.log import recovery, seal
from serai.log.format import (
    CHECKSUMS,
    COMPRESSED,
    DATA,
    DIALECTS,
    FORMAT_FILE,
    INDEX,
    INDEX_JAVA,
    MARKS_FILE,
    MODES,
    OFFSET_MAX,
    PRODUCER_NAME,
    STATE,
    STORED_NAME,
    name_number,
)
from serai.log.seal import DataFiles
from serai.log.store import PageFiles, disk_bytes
from serai.log.supply import ReaderSupply, SharedSupply, WriterSupply

PAGES = (INDEX, INDEX_JAVA, DATA)


@dataclass(frozen=True)
class Stat:
    """What a queue directory holds, in numbers."""

    path: str
    kind: str  # "single" or "multi"
    dialect: str
    page_size: int
    messages: int
    first_offset: int
    end_offset: int
    data_begin: int
    data_end: int
    index_pages: int
    data_pages: int
    compressed_pages: int
    disk_bytes: int
    producers: list[str]


_writers: "weakref.WeakSet[Writer]" = weakref.WeakSet()


def _shut_inherited() -> None:
    """A forked child must not write through its parent's writers: the next call says so."""
    for writer in _writers:
        with suppress(RuntimeError):  # the fork came in the middle of another thread's call: no call works any more
            writer.shut()


os.register_at_fork(after_in_child=_shut_inherited)


def _one_of(value: str, allowed: tuple[str, ...], what: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise Misuse(f"{what} is {value!r}; it is {' or '.join(map(repr, allowed))}")
    return value


class Directory:
    """What both kinds of queue are: a directory, its page size, its mode, and readers."""

    shared: bool

    def __init__(
        self, path: str | os.PathLike[str], mode: str, page_size: int | None, dialect: str, checksum: str | None
    ) -> None:
        self.path = Path(path)
        self.mode = _one_of(mode.lower() if isinstance(mode, str) else mode, MODES, "mode")
        self.dialect = _one_of(dialect, DIALECTS, "dialect")
        self.checksum = checksum
        self._asked = page_size if page_size is None else config.check_page_bytes(page_size, what="page_size")
        if self.mode == "rw":
            if page_size is None and not self.path.exists():
                config.page_bytes_default()  # a wrong default is said before anything is made
            self._make_directory()
        elif not self.path.is_dir():
            raise Misuse(f"{self.path} is not a directory; mode 'r' makes none, mode 'rw' does")
        self._check_kind()
        self._page_bytes = 0  # not known: the directory has no pages yet
        self._index = PageFiles(self.path, self._index_suffix(), 0)
        self._streams: dict[str, DataFiles] = {}
        self._writer: Writer | None = None
        self._supply: WriterSupply | SharedSupply | None = None
        self._closed = False
        if not self.measure() and page_size is None:  # a wrong default is said now, not at the first message
            config.page_bytes_default()

    def _make_directory(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{self.path} cannot be a queue: it, or a part of its path, is a file") from None

    def _index_suffix(self) -> str:
        return INDEX

    def _check_kind(self) -> None:
        names = os.listdir(self.path)
        if self.mode == "rw" and FORMAT_FILE in names and MARKS_FILE in names:
            raise Misuse(
                f"{self.path} is a partition of a log: only the server that has its data directory writes it. Open it with mode "
                "'r', or give a directory of its own"
            )
        if not self.shared and any(name.endswith((STATE, INDEX_JAVA)) for name in names):
            raise Misuse(f"{self.path} is a queue of several producers; open it with serai.MultiQueue")
        if self.shared and any(name.endswith((DATA, COMPRESSED)) for name in names):
            raise Misuse(f"{self.path} is a queue of one producer; open it with serai.Queue")

    def measure(self) -> int:
        """The page size of the directory, 0 while it has no pages."""
        if self._page_bytes == 0:
            found = recovery.page_sizes(self.path, PAGES, data_ends=True)
            if len(set(found.values())) != 1:  # none, or one that is odd: all of them tell
                found = recovery.page_sizes(self.path, PAGES)
            if found:
                self._settle(_common_size(self.path, found))
        return self._page_bytes

    def _settle(self, page_bytes: int) -> None:
        if self._asked not in (None, page_bytes):
            raise Misuse(
                f"{self.path} has pages of {page_bytes} bytes, not {self._asked}; leave page_size out to take what is there"
            )
        self._index = PageFiles(self.path, self._index_suffix(), page_bytes)
        self._page_bytes = page_bytes

    @property
    def page_size(self) -> int:
        """Length of the page files: the directory's, or what a writer would give it now."""
        return self.measure() or self._asked or config.page_bytes_default()

    def stream(self, producer: str) -> DataFiles:
        stream = self._streams.get(producer)
        if stream is None:
            stream = DataFiles(PageFiles(self.path / producer, DATA, self._page_bytes))
            self._streams[producer] = stream
        return stream

    @property
    def index(self) -> PageFiles:
        """The index pages."""
        return self._index

    def _alive(self) -> None:
        if self._closed:
            raise Closed(f"the queue {self.path} is closed; open it again")

    def _need_write(self) -> None:
        self._alive()
        if self.mode == "r":
            raise ReadOnly(f"{self.path} was opened with mode 'r'; open it with 'rw' to write")

    def writer(self) -> Writer:
        """The writer of this queue: the same one each time, made and locked at the first call."""
        self._need_write()
        if self._writer is None or self._supply is None or self._supply.closed:
            self._settle(self.page_size)
            self._writer, self._supply = self._make_writer()
            _writers.add(self._writer)
        return self._writer

    def _make_writer(self) -> tuple[Writer, WriterSupply | SharedSupply]:
        raise AssertionError("each kind of queue has its own writer")

    def new_message(self) -> Writer:
        """Opens a message on the queue's writer."""
        writer, supply = self._writer, self._supply
        if writer is None or supply is None or supply.closed or self._closed:
            writer = self.writer()
        return writer.new_message()

    def reader(self, offset: int | None = None, *, checked: bool = True) -> Reader:
        """A reader from `offset` on, or from the first message.

        With checked=False an unpack call may run past the message end into the next one, as in the
        original library.
        """
        self._alive()
        first = recovery.first_offset(self._index) if self.measure() else 0
        start = first if offset is None else offset
        if not isinstance(start, int) or not 0 <= start <= OFFSET_MAX or start % 16:
            raise Misuse(
                f"{start!r} is not an offset of {self.path}: an entry has 16 bytes, so offsets are multiples of 16 from 0 on"
            )
        return Reader(
            ReaderSupply(self), offset=start, known=first, shared=self.shared,
            summed=self.checksum is not None, checked=checked, java=self.dialect == "java",
        )  # fmt: skip

    def last(self) -> Message | None:
        """The newest message, or None."""
        return self.reader().last()

    def force(self) -> None:
        """Brings everything this queue's writer wrote to the disk, over all pages since the last force."""
        self._alive()
        if self._writer is not None and self._supply is not None and not self._supply.closed:
            self._writer.force()

    def close(self) -> None:
        """Lets the writer go; readers and their messages stay usable.  May be called twice."""
        if self._writer is not None and self._supply is not None and not self._supply.closed:
            self._writer.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}{type(self).__name__} {str(self.path)!r} mode={self.mode!r} page_size={self.page_size}>"

    def producers(self) -> list[str]:
        """The names of the producers that ever wrote here; empty in a queue of one."""
        return []

    def _ends(self) -> Iterator[tuple[DataFiles, int]]:
        """Each data stream with the offset behind its last published byte."""
        raise AssertionError("each kind of queue knows its own streams")

    def compress(self) -> int:
        """Compresses every data page that is full and published; gives how many."""
        self._need_write()
        return sum(1 for stream, end in self._ends() for _number in seal.compress(stream, end))

    def expand(self) -> int:
        """Makes compressed pages plain again, as the Java library needs them; gives how many."""
        self._need_write()
        return sum(1 for stream, _end in self._ends() for _number in seal.expand(stream))

    def stat(self) -> Stat:
        """Counts what is there."""
        self._alive()
        self.measure()
        first, end = recovery.find_ends(self._index, shared=self.shared)
        entries = (
            [recovery.read_entry(self._index, first), recovery.read_entry(self._index, end - 16)] if end > first else []
        )
        lowest, newest = entries or (None, None)
        streams = [stream for stream, _end in self._ends()]
        return Stat(
            path=str(self.path),
            kind="multi" if self.shared else "single",
            dialect=self.dialect,
            page_size=self.page_size,
            messages=(end - first) // 16,
            first_offset=first,
            end_offset=end,
            data_begin=lowest.begin if lowest else 0,
            data_end=newest.begin + newest.size if newest else 0,
            index_pages=len(self._index.numbers()),
            data_pages=sum(len(stream.files.numbers()) for stream in streams),
            compressed_pages=sum(len(stream.sealed.numbers()) for stream in streams),
            disk_bytes=sum(map(disk_bytes, (self.path, *(self.path / name for name in self.producers())))),
            producers=self.producers(),
        )


def _common_size(directory: Path, found: dict[Path, int]) -> int:
    """The one length of all page files."""
    common, _count = Counter(found.values()).most_common(1)[0]
    for path, size in found.items():
        if size != common:
            raise Corrupt(
                f"the page files of {directory} have different lengths: most have {common} bytes, {path.name} has {size}; a "
                "queue has one page size. Restore the odd ones from a copy",
                file=str(path), expected=common, found=size,
            )  # fmt: skip
    path = next(iter(found))
    try:
        return config.check_page_bytes(common, what=str(path))
    except Misuse as error:
        raise Corrupt(f"{error}: it is no page file", file=str(path), expected="a power of two", found=common) from None


class Queue(Directory):
    """A queue with one producer.

    mode      "r" or "rw", in any letter case; "rw" makes the directory
    page_size length of page files in a new queue: a power of two from 16 to 2**30 (default: the
              environment's SERAI_PAGE_SIZE or QKQPsz, else 2**30)
    dialect   "seed" (default) or "java", how decimals and big integers are packed
    checksum  "index24" to keep 24 bits of CRC-32C in each index entry and check them on every read
    """

    shared = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str | None = "rw",
        page_size: int | None = None,
        dialect: str | None = "seed",
        checksum: str | None = None,
    ) -> None:
        if checksum is not None:
            _one_of(checksum, CHECKSUMS, "checksum")
        super().__init__(
            path, "rw" if mode is None else mode, page_size, "seed" if dialect is None else dialect, checksum
        )

    def _make_writer(self) -> tuple[Writer, WriterSupply | SharedSupply]:
        summed = self.checksum is not None
        supply = WriterSupply(self.path, self._index, self.stream(""), summed=summed)
        writer = Writer(
            supply, page_bytes=self._page_bytes, data_offset=supply.data_offset, slot_offset=supply.slot_offset,
            java=self.dialect == "java", summed=summed,
        )  # fmt: skip
        return writer, supply

    def _ends(self) -> Iterator[tuple[DataFiles, int]]:
        if not self.measure():
            return
        end = recovery.find_end(self._index, shared=False)
        entry = recovery.read_entry(self._index, end - 16) if end else None
        yield self.stream(""), entry.begin + entry.size if entry is not None and entry.published else 0


class MultiQueue(Directory):
    """A queue with several producers, each a process with a name of three letters or digits.

    Without a name it is read only.  The order of messages is the order in which entries were claimed.
    """

    shared = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str | None = None,
        name: str | None = None,
        page_size: int | None = None,
        dialect: str | None = "seed",
    ) -> None:
        if name is not None and not (isinstance(name, str) and PRODUCER_NAME.fullmatch(name)):
            raise Misuse(f"the producer name is {name!r}; it is exactly three letters or digits, as 'AA0'")
        self.name = name
        mode = ("rw" if name else "r") if mode is None else mode
        super().__init__(path, mode, page_size, "seed" if dialect is None else dialect, None)

    def _index_suffix(self) -> str:
        names = os.listdir(self.path)
        if any(name.endswith(INDEX_JAVA) for name in names):
            return INDEX_JAVA
        if any(name.endswith(INDEX) for name in names):
            return INDEX
        return INDEX_JAVA if self.dialect == "java" else INDEX

    def _make_writer(self) -> tuple[Writer, WriterSupply | SharedSupply]:
        if self.name is None:
            raise Misuse(
                f"{self.path} was opened without a producer name; give one to write: MultiQueue(dir, 'rw', 'AA0')"
            )
        supply = SharedSupply(self.path, self._index, self.name, self._page_bytes)
        writer = Writer(
            supply, page_bytes=self._page_bytes, data_offset=supply.data_offset, slot_offset=supply.slot_offset,
            java=self.dialect == "java", state=supply.state, name=name_number(self.name),
        )  # fmt: skip
        return writer, supply

    def producers(self) -> list[str]:
        names = {path.stem for path in self.path.glob("*" + STATE)}
        return sorted(name for name in names if STORED_NAME.fullmatch(name))

    def _ends(self) -> Iterator[tuple[DataFiles, int]]:
        if not self.measure():
            return
        for name in self.producers():
            ends = (self.path / (name + STATE)).read_bytes()[:16].ljust(16, b"\0")
            yield self.stream(name), min(int.from_bytes(ends[:8], "little"), int.from_bytes(ends[8:], "little"))
