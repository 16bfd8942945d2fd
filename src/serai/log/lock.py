"""Who writes here: open-file-description locks on ranges of files.

They belong to an open file, not to a process: two writers of one process see each other, closing
another descriptor of the same file loses nothing, and the kernel lets go when the holder dies.  They
conflict with the POSIX locks a Java producer takes.
"""

import errno
import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len (0: to the end), l_pid


def _flock(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def try_lock(fd: int, *, start: int = 0, length: int = 0) -> bool:
    """Takes a write lock if nobody else has one."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, start, length))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int, *, start: int = 0, length: int = 0) -> None:
    """Gives the lock back.  Closing is not enough: a mapping of the file keeps its open file alive."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, start, length))


def is_locked(fd: int) -> bool:
    """Whether somebody else holds any lock on the file; takes none."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, 0, 0))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
