"""Who writes here: open-file-description locks on ranges of files.

They belong to an open file, not to a process: two writers of one process see each other, closing
another descriptor of the same file loses nothing, and the kernel lets go when the holder dies.  They
conflict with the POSIX locks a Java producer takes.

A single-producer queue has no file that stays, so its writer holds the newest index page:

    take the new page's lock -> give the page its name -> let the old page's lock go

Whoever opens finds the newest name, takes its lock and looks again whether it is still the newest: at
no moment is the newest named page free while its writer lives.

Invariant: a forked child, which shares its parent's open files, never unlocks them.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serai.errors import Locked
from serai.log.format import WRITER_LOCK_BYTE

_FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len (0: to the end), l_pid


def _flock(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def try_lock(fd: int, *, start: int = 0, length: int = 0) -> bool:
    """Takes a write lock if nobody else has one."""
    return _take(fd, fcntl.F_WRLCK, start, length)


def try_share(fd: int, *, start: int = 0, length: int = 0) -> bool:
    """Takes a read lock, of which there may be many, if nobody has a write lock."""
    return _take(fd, fcntl.F_RDLCK, start, length)


def _take(fd: int, kind: int, start: int, length: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(kind, start, length))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int, *, start: int = 0, length: int = 0) -> None:
    """Gives the lock back.  Closing is not enough: a mapping of the file keeps its open file alive."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, start, length))


def is_held(path: Path) -> bool:
    """Whether somebody else holds any lock on the file; takes none.

    A file that is not there is held by nobody; any other failure to open it tells nothing and is raised.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, 0, 0))
    finally:
        os.close(fd)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


@contextmanager
def alone(directory: Path, work: str) -> Iterator[None]:
    """Keeps a second process from doing the same work on the directory at once."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Locked(
            f"{directory}: another process or thread is about to {work} it; try again when it is done"
        ) from None
    finally:
        os.close(fd)


class WriterLock:
    """The lock of a single-producer queue: always on its newest index page."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pid = os.getpid()
        self._fd = -1
        self.number = -1

    def take(self, number: int, fd: int) -> None:
        """Locks a page that is to become the newest; the lock on the one before stays."""
        if number > self.number and not try_lock(fd, start=WRITER_LOCK_BYTE, length=1):
            raise Locked(
                f"{self._directory} already has a writer, in this process or another; a single-producer queue takes one. "
                "Close it first, or use serai.MultiQueue for several producers"
            )

    def keep(self, number: int, fd: int) -> None:
        """The page has its name: its lock is the one that counts now."""
        if number > self.number:
            before = self._fd
            self._fd, self.number = os.dup(fd), number
            self._let_go(before)

    def drop(self, number: int, fd: int) -> None:
        """The page did not get its name."""
        if number > self.number:
            unlock(fd, start=WRITER_LOCK_BYTE, length=1)

    def release(self) -> None:
        before = self._fd
        self._fd = self.number = -1
        self._let_go(before)

    def _let_go(self, fd: int) -> None:
        if fd >= 0:
            if os.getpid() == self._pid:
                unlock(fd, start=WRITER_LOCK_BYTE, length=1)
            os.close(fd)
