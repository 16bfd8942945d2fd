"""Page files of one stream: finding, making, mapping and reserving them.

    <directory>/<n><suffix>    every file of one length from the moment its name exists

Invariants
- a page file appears whole: it is made under another name, reserved, sized, and then linked
- a writer's bytes land only on pages that are reserved and were touched: a full disk is an error, never a signal
- the first reservation is 256 KiB of data and 64 KiB of index; a busy writer's window doubles
- a reader creates nothing
"""

import errno
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from mmap import PAGESIZE
from pathlib import Path

from serai import limits
from serai._core.pages import LARGE_BYTES, OpenPage, Page, leave_range
from serai.errors import Corrupt, DiskFull, QueueFull, Refused
from serai.log import residency
from serai.log.format import READER_LOCK_BYTE
from serai.log.lock import WriterLock, try_lock, try_share

SPARE = ".spare"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EFAULT)  # EFAULT: see Runway


def reserve(fd: int, start: int, stop: int) -> None:
    """Reserves the blocks of start..stop; OSError when there is no space."""
    os.posix_fallocate(fd, start, stop - start)


def hold(fd: int, path: Path) -> bool:
    """Locks a page for reading; False when it is being given up, or its name means another file by now.

    The lock belongs to the open file, which the mapping keeps alive: it ends when the last span of the page does.
    """
    if not try_share(fd, start=READER_LOCK_BYTE, length=1):
        return False
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def new_name(path: Path) -> Path:
    """The name a file is made under before it is whole; nobody else makes the same one."""
    return path.with_name(f"{path.name}.{os.urandom(6).hex()}.new")


class PageFiles:
    """The page files of one stream in one directory."""

    def __init__(self, directory: Path, suffix: str, page_bytes: int, *, held: bool = False) -> None:
        self.directory = directory
        self.suffix = suffix
        self.page_bytes = page_bytes
        self.held = held  # a page is locked for as long as it is mapped for reading, so that nobody uses it again
        self._pages: OrderedDict[int, Page] = OrderedDict()

    def path(self, number: int) -> Path:
        return self.directory / f"{number}{self.suffix}"

    def numbers(self) -> list[int]:
        """The numbers of the pages that are there, in order."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        digits = [name[: -len(self.suffix)] for name in names if name.endswith(self.suffix)]
        found = [int(text) for text in digits if _NUMBER.fullmatch(text)]
        return sorted(number for number in found if number <= limits.PAGE_NUMBER_MAX)

    def present(self, number: int) -> bool:
        """Whether the page is there with its full length."""
        try:
            return os.stat(self.path(number)).st_size == self.page_bytes
        except FileNotFoundError:
            return False

    def reading(self, number: int) -> Page | None:
        """The page mapped for reading; None while it is not there."""
        page = self._pages.get(number)
        if page is None:
            path = self.path(number)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                size = os.fstat(fd).st_size
                if size == 0 or (self.held and not hold(fd, path)):
                    return None
                self._check_size(path, size)
                page = Page(fd, self.page_bytes, False)
            finally:
                os.close(fd)
            self._pages[number] = page
            if len(self._pages) > limits.PAGES_MAPPED_MAX:
                self._pages.popitem(last=False)
        return page

    def _check_size(self, path: Path, size: int) -> None:
        if size not in (0, self.page_bytes):
            raise Corrupt(
                f"{path} has {size} bytes; the pages of this queue have {self.page_bytes}",
                file=str(path), expected=self.page_bytes, found=size,
            )  # fmt: skip

    def writing(self, number: int, *, window: int, need: int, lock: WriterLock | None = None) -> tuple[int, bool]:
        """An open descriptor of the page for writing, and whether it was made now.

        A new page has `window` bytes reserved, on a disk that is nearly full just `need`.  With a lock
        the page is locked before anybody else can see that it is there.
        """
        if number > limits.PAGE_NUMBER_MAX:
            raise QueueFull(
                f"{self.directory} is full: page {limits.PAGE_NUMBER_MAX}{self.suffix} is the last one of the format; "
                "start a new queue"
            )
        path = self.path(number)
        for _ in range(1000):
            try:
                return self._open(path, number, window, need, lock), False
            except FileNotFoundError:
                fd = self._make(path, number, window, need, lock)
            if fd is not None:
                return fd, True
        raise Refused(f"{path} can be neither opened nor made: something else takes and leaves its name all the time")

    def _open(self, path: Path, number: int, window: int, need: int, lock: WriterLock | None) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if lock is not None:
                lock.take(number, fd)
                lock.keep(number, fd)
            size = os.fstat(fd).st_size
            self._check_size(path, size)
            if size == 0:  # a writer of another program died between making and sizing it
                self._size(fd, path, window, need)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _make(self, path: Path, number: int, window: int, need: int, lock: WriterLock | None) -> int | None:
        """Makes a page whole under another name, then names it; None when somebody else was faster."""
        made = new_name(path)
        spare = self.spare()
        if spare is not None:
            os.rename(spare, made)
        with space_for(path):
            fd = os.open(made, os.O_RDWR | (0 if spare else os.O_CREAT | os.O_EXCL) | os.O_CLOEXEC, 0o644)
        try:
            self._size(fd, path, window, need)
            if lock is not None:
                lock.take(number, fd)
            with space_for(path):
                os.link(made, path)
            if lock is not None:
                lock.keep(number, fd)
        except (FileExistsError, FileNotFoundError):  # another one has the name, or swept ours away
            if lock is not None:
                lock.drop(number, fd)
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        finally:
            made.unlink(missing_ok=True)
        return fd

    def _size(self, fd: int, path: Path, window: int, need: int) -> None:
        try:
            reserve(fd, 0, min(_page_end(window), self.page_bytes))
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            with space_for(path):
                reserve(fd, 0, min(_page_end(need), self.page_bytes))
        with space_for(path):  # the limit of a file's size may be lower than the page size
            os.ftruncate(fd, self.page_bytes)

    def forget(self, number: int) -> None:
        """Lets the mapping of a page go whose file is no longer there."""
        self._pages.pop(number, None)

    def forget_all(self) -> None:
        self._pages.clear()

    def spares(self) -> list[Path]:
        """Pages that were given up and wait to be used again."""
        return sorted(self.directory.glob(f"*{self.suffix}{SPARE}"))

    def spare(self) -> Path | None:
        """One of them; its bytes are old ones, so only a stream whose records are summed keeps any."""
        return next(iter(self.spares()), None) if self.held else None

    def prepare(self, number: int, *, window: int) -> None:
        """Makes a spare for a page that will be wanted soon, its first bytes in memory; if that fails, who wants it makes it."""
        if not self.held or self.spares():
            return
        path = self.path(number)
        made = new_name(path)
        with suppress(OSError):
            fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                reserve(fd, 0, min(window, self.page_bytes))
                os.ftruncate(fd, self.page_bytes)
                os.posix_fadvise(fd, 0, window, os.POSIX_FADV_WILLNEED)
                os.rename(made, path.with_name(path.name + SPARE))
            finally:
                os.close(fd)
                made.unlink(missing_ok=True)

    def give_up(self, number: int, *, keep: bool) -> None:
        """Removes a page, or keeps its file as a spare if nobody reads it any more."""
        path = self.path(number)
        self.forget(number)
        if keep and len(self.spares()) < limits.SPARES_MAX:
            with suppress(FileNotFoundError):
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if try_lock(fd, start=READER_LOCK_BYTE, length=1):  # goes with the descriptor: nobody maps it
                        os.rename(path, path.with_name(path.name + SPARE))
                        return
                finally:
                    os.close(fd)
        path.unlink(missing_ok=True)

    def sweep(self, *, older_than_s: float = 0) -> None:
        """Removes what killed writers left half made: at once under the writer's lock, else by age."""
        half_made = re.compile(rf"\d+{re.escape(self.suffix)}\.[0-9a-f]{{1,12}}\.new")
        for name in os.listdir(self.directory):
            if half_made.fullmatch(name):
                path = self.directory / name
                with suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime >= older_than_s:
                        path.unlink()


@contextmanager
def space_for(path: Path) -> Iterator[None]:
    """Says "no space" in the house's words; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise DiskFull(
            f"no space for {path} ({os.strerror(error.errno or 0)}): what was to be written is not there, reading goes on; "
            "free space on that file system and write again"
        ) from error


def disk_bytes(directory: Path) -> int:
    """The blocks of all files in a directory, not of those in folders below it."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # renamed or removed since it was listed
                total += entry.stat().st_blocks * 512 if entry.is_file() else 0
    return total


def _page_start(position: int) -> int:
    """Down to the memory page: the first touch of one needs blocks for the whole of it."""
    return position & ~(PAGESIZE - 1)


def _page_end(position: int) -> int:
    return (position + PAGESIZE - 1) & ~(PAGESIZE - 1)


HURRIED_WINDOWS = 2  # so much is written without anybody waiting for the disk before a stream is filled in bulk again
NO_BULK = -1


def _large_end(position: int) -> int:
    return -(-position // LARGE_BYTES) * LARGE_BYTES


class Runway:
    """What lies ready ahead of one writer's cursor in one stream.

        position ......... ready ............ reserved ............ page end
                  may be written    has blocks       a hole

    Reserving is not enough: on a disk that has filled up since, some file systems cannot even make a
    reserved block writable, and a store there would end in a signal.  So the cursor moves only over
    pages that were touched under madvise, where the refusal is an error.  A quiet writer touches a few
    pages at a time; for a busy one the helper thread is ahead.

    `spare` bytes behind what the writer may use are ready too: a reader looks at the entry behind the
    last published one.
    """

    def __init__(
        self, files: PageFiles, *, window_first: int, window_max: int, spare: int, lock: WriterLock | None = None,
        bulk: bool = False,
    ) -> None:  # fmt: skip
        self.files = files
        self.window = self.window_first = window_first
        self.window_max = window_max
        self.spare = spare
        self._file = NO_PAGE
        self.hurried = (
            0 if bulk else NO_BULK
        )  # windows to come in small memory pages: of a large one, a sync writes all
        self.dirty_from: int | None = None  # lowest page written since the last force
        self.made = False  # a file appeared since the last force
        self._lock = lock
        self._page: Page | None = None
        self._left: Page | None = None  # the page before, until the helper is told to leave it
        self._prepared = -1  # the page the helper was asked to make
        self._reserved = 0
        self._ready = 0
        self._step = limits.TOUCH_FIRST
        self._is_quiet = False  # little is written: a touch brings in what it is for, and no run of memory pages
        self._ask: residency.Ask | None = None

    def ahead(self, offset: int, need: int) -> tuple[Page, int]:
        """The page of `offset`, and the position up to which it may be written, at least `need` bytes on."""
        page_bytes = self.files.page_bytes
        number, position = divmod(offset, page_bytes)
        if number != self.number or self._page is None:
            self._turn(number, position, need)
        assert self._page is not None
        floor = min(page_bytes, position + need + self.spare)
        if self._reserved < page_bytes and (floor > self._reserved or self._reserved - position <= self.window // 2):
            self._reserve(floor)
        if self._ask is not None:
            self._ready = max(self._ready, self._ask.done)
        if floor > self._ready:
            self._touch(floor)
        if self.window >= limits.RESIDENT_WINDOW_MIN and self._ready < self._reserved:
            self._ask_helper(self._page)
        if self.dirty_from is None or number < self.dirty_from:
            self.dirty_from = number
        return self._page, page_bytes if self._ready >= page_bytes else self._ready - self.spare

    def _turn(self, number: int, position: int, need: int) -> None:
        floor = position + need + self.spare
        fd, fresh = self.files.writing(number, window=floor, need=floor, lock=self._lock)
        file = OpenPage(fd, number)
        page = Page(fd, self.files.page_bytes, True)
        self.made = self.made or fresh
        self._is_quiet = self.window < limits.RESIDENT_WINDOW_MIN
        if self._is_quiet:
            page.one_by_one()
        self._left = self._page if self.window >= limits.RESIDENT_WINDOW_MIN else None
        self._step = limits.TOUCH_FIRST
        # all at once, for an interrupt; what is reserved already costs nothing to reserve again
        self._file, self._page, self._ask, self._reserved, self._ready = file, page, None, position, position

    def _reserve(self, floor: int) -> None:
        """Reserves the next window; when the disk has no room for it, just what is needed now."""
        start = _page_start(self._reserved)
        free = self._free()
        if free < limits.DISK_FREE_SCARCE:  # the last blocks are left to the file system, which may need one itself
            self.window = min(self.window_first, free // 8)
        goal = max(floor, self._reserved) + self.window
        goal = min(self.files.page_bytes, _large_end(goal) if self._is_bulk else _page_end(goal))
        if self.hurried > 0:
            self.hurried -= 1
        if goal <= self._reserved:
            return
        try:
            reserve(self.fd, start, goal)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            goal = min(self.files.page_bytes, _page_end(floor))
            if goal <= self._reserved:
                return
            with space_for(self.files.path(self.number)):
                reserve(self.fd, start, goal)
        self.window = min(max(self.window * 2, self.window_first), self.window_max)
        self._reserved = goal
        if self._is_quiet and self._page is not None and self.window >= limits.RESIDENT_WINDOW_MIN:
            self._is_quiet = False
            self._page.in_runs()

    @property
    def _is_bulk(self) -> bool:
        """Whether memory comes in large pages: much is written, and nobody waits for the disk after each little of it."""
        return self.files.page_bytes >= LARGE_BYTES and self.window >= limits.RESIDENT_WINDOW_MIN and not self.hurried

    def hurry(self, offset: int) -> bool:
        """Somebody waits for the disk: whatever lies ready ahead of an offset in large pages is made ready anew in small ones.

        True: the cursor has to ask again.  One that has come to the end of its page stands at the next: nothing is ahead.
        """
        was_bulk, self.hurried = self._is_bulk, HURRIED_WINDOWS
        number, position = divmod(offset, self.files.page_bytes)
        if not was_bulk or self._page is None or number != self.number:
            return False
        if self._ask is not None:
            self._ask.end()
        self._page.in_small()
        start = _page_end(position)
        with suppress(OSError):  # what stays large costs time, and nothing else
            leave_range(self.fd, start, self._reserved)
        self._ask, self._ready, self._step = None, start, limits.TOUCH_FIRST
        return True

    def _free(self) -> int:
        disk = os.fstatvfs(self.fd)
        return disk.f_bavail * disk.f_frsize

    def _touch(self, floor: int) -> None:
        """Makes the next few pages writable."""
        assert self._page is not None
        start = _page_start(self._ready)
        leaps = (
            self._is_bulk and self._step >= limits.TOUCH_MAX
        )  # not behind a turn, where a request waits for each touch
        step = _large_end(self._ready + 1) if leaps else _page_end(self._ready + self._step)
        goal = max(floor, min(self._reserved, step))
        try:
            self._page.populate(start, goal, large=leaps)
        except OSError:
            goal = floor
            with space_for(self.files.path(self.number)):
                self._touch_little(start, goal)
        self._ready = goal
        self._step = min(self._step * 2, limits.TOUCH_MAX)

    def _touch_little(self, start: int, goal: int) -> None:
        """Touches on a disk that is nearly full.

        The kernel may hold a run of memory pages as one that is larger than what is reserved, and wants
        blocks for all of it: so what it holds is dropped and brought in page by page.
        """
        assert self._page is not None
        self._page.one_by_one()
        run_start, run_end = start & ~(LARGE_BYTES - 1), goal + LARGE_BYTES
        os.fsync(self.fd)  # blocks that were freed just now count only after a commit of the journal
        os.posix_fadvise(self.fd, run_start, run_end - run_start, os.POSIX_FADV_DONTNEED)
        self._page.populate(start, goal)

    def _ask_helper(self, page: Page) -> None:
        if self._ask is None or self._ask.done >= self._ask.stop:
            self._ask = residency.ask(page, start=self._ready, stop=self._reserved, large=self._is_bulk)
        if self._reserved >= self.files.page_bytes and self._prepared <= self.number:
            self._prepared = self.number + 1
            if self._free() >= self.files.page_bytes + limits.DISK_FREE_SCARCE:
                residency.later(partial(self.files.prepare, self._prepared, window=limits.PREPARED_BYTES))
        if self._left is not None:
            residency.later(self._left.leave)  # to take a long page out of memory's tables costs milliseconds
            self._left = None

    def force(self) -> None:
        """Brings every page written since the last force to the disk."""
        dirty = self.dirty()
        dirty.sync()
        self.synced(dirty)

    def dirty(self) -> "Dirty":
        """What was written since the last force; another thread may bring it to the disk."""
        file = self._file
        first = file.number if self.dirty_from is None else self.dirty_from
        return Dirty(self.files, first, file, made=self.made)

    def synced(self, dirty: "Dirty") -> None:
        """What `dirty` named is on the disk; the page it ended with may have been written again since."""
        if dirty.last >= 0:
            self.dirty_from = max(self.dirty_from or 0, dirty.last)
            self.made = self.made and not (dirty.made and self.number == dirty.last)

    @property
    def number(self) -> int:
        """The page under the cursor, -1 before the first byte."""
        return self._file.number

    @property
    def fd(self) -> int:
        return self._file.fd

    def release(self) -> None:
        """Lets the current page go."""
        self._file, self._page, self._left, self._ask = NO_PAGE, None, None, None


NO_PAGE = OpenPage(-1, -1)


class Dirty:
    """Pages to bring to the disk: older ones by name, the newest by its open file."""

    __slots__ = ("_file", "_files", "_first", "made")

    def __init__(self, files: PageFiles, first: int, file: OpenPage, *, made: bool) -> None:
        self._files = files
        self._first = first
        self._file = file
        self.made = made

    @property
    def last(self) -> int:
        return self._file.number

    def sync(self) -> None:
        for number in range(self._first, self.last):
            try:
                fd = os.open(self._files.path(number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # compressed (and synced) or dropped meanwhile
                continue
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        if self.last >= 0:
            os.fdatasync(self._file.fd)
        if self.made:
            sync_directory(self._files.directory)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Makes a directory and what is missing of the way to it, all of it durable; nobody else may look into it."""
    if directory.is_dir():
        return
    if not directory.parent.exists():
        make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    sync_directory(directory.parent)
