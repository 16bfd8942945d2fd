"""The local engine: the pages on this machine are the truth.

    <data>/format      text: serai-data 1
    <data>/lock        held by the process that serves this directory
    <data>/epoch       text: grows by one at every start
    <data>/p/<id>/     a partition       (`log.partition`)
    <data>/s/<name>/   a state log       (`log.state`); the catalogue is the one of that name

Invariants
- one engine has a data directory; a second one is refused, also in the same process
- the epoch is on the disk before anything is written under it
- names of partitions are safe as file names: letters, digits, `_`, `-`, `.`, not beginning with a dot
"""

import os
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from serai import limits
from serai._core.pages import sync_file_system
from serai.errors import Closed, Corrupt, Locked, Misuse
from serai.log import folder
from serai.log.bare import BareLog, is_bare
from serai.log.engine import Condition, Log
from serai.log.flush import FlushThread
from serai.log.format import DATA_KIND, FORMAT_FILE, STORE_VERSION
from serai.log.lock import try_lock
from serai.log.partition import Partition
from serai.log.state import State
from serai.log.store import make_directory, space_for, sync_directory

_PARTS = ("p", "s")  # partitions, state logs
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class LocalEngine:
    """All partitions and state logs under one data directory."""

    def __init__(self, directory: str | os.PathLike[str], *, page_bytes: int = limits.LOG_PAGE_BYTES_DEFAULT) -> None:
        self.path = Path(directory)
        self.page_bytes = page_bytes
        self._closed = False
        self._open_directory()
        try:
            self.epoch = self._next_epoch()
            self._flush = FlushThread(self.path)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._logs: dict[str, Partition] = {}
        self._states: dict[str, State] = {}
        self._damaged_before = 0  # in logs that are gone, or were opened again

    def _open_directory(self) -> None:
        path = self.path / FORMAT_FILE
        if path.exists():
            folder.read_words(path, kind=DATA_KIND, version=STORE_VERSION)
        else:
            self._make_directory(path)
        self._lock_fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not try_lock(self._lock_fd):
            os.close(self._lock_fd)
            raise Locked(
                f"{self.path} is served by another process already: one server has a data directory. Stop that one, or give this "
                "one a directory of its own (--data)"
            )
        for half in (*self.path.glob("[ps]/.*.new"), *self.path.glob("[ps]/.*.gone")):
            shutil.rmtree(half, ignore_errors=True)  # of a process that was killed while it made or removed one

    def _make_directory(self, path: Path) -> None:
        """The format file last: until it is there, a start that was cut off is begun again."""
        try:
            with space_for(self.path):
                make_directory(self.path)
        except (FileExistsError, NotADirectoryError):
            raise Misuse(f"{self.path} cannot be a data directory: it, or a part of its path, is a file") from None
        others = [name for name in os.listdir(self.path) if not name.startswith(".")]
        strange = [name for name in others if name not in _PARTS or any((self.path / name).iterdir())]
        if strange:
            raise Misuse(
                f"{self.path} is not empty and is no data directory of serai ({strange[0]} is there); give an empty directory"
            )
        for name in _PARTS:
            (self.path / name).mkdir(exist_ok=True)
        folder.write_words(path, kind=DATA_KIND, version=STORE_VERSION, words={})
        sync_directory(self.path)

    def _next_epoch(self) -> int:
        path = self.path / "epoch"
        try:
            text = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            text = "0"
        if not text.isdecimal():
            raise Corrupt(
                f"{path} holds {text[:40]!r}, not a number", file=str(path), expected="a number", found=text[:40]
            )
        made = path.with_name(".epoch.new")
        with space_for(path), open(made, "w", encoding="ascii") as file:
            file.write(f"{int(text) + 1}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
        sync_directory(self.path)
        return int(text) + 1

    # ---- partitions ---------------------------------------------------------------------------------------

    def open(self, partition: str, *, jafka_magic: int = 1) -> Partition:
        """The partition of that name, made when it is missing; the same object every time.

        A bare queue directory of that name, or a link to one, is served as it is (`log.bare`).
        """
        log = self._logs.get(partition)
        if log is None or log.closed:
            self._alive()
            self._damaged_before += _damaged(log)
            path = self._folder_of("p", partition)
            log = self._logs[partition] = (
                self._open_bare(path)
                if is_bare(path)
                else self._open(path, page_bytes=self.page_bytes, jafka_magic=jafka_magic)
            )
        return log

    def _open_bare(self, path: Path) -> Any:
        """A `Log` too; whoever needs more of it than that made the directory, and knows that it is a partition."""
        return BareLog(path)

    def _open(self, path: Path, *, page_bytes: int, jafka_magic: int) -> Partition:
        if not folder.is_partition(path):
            folder.create(path, jafka_magic=jafka_magic, page_bytes=page_bytes)
        return Partition(path, epoch=self.epoch, flusher=self._flush)

    def _folder_of(self, kind: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise Misuse(f"{name!r} cannot be the name of a partition: letters, digits, '_', '-' and '.', at most 100")
        return self.path / kind / name

    def _alive(self) -> None:
        if self._closed:
            raise Closed(f"the engine of {self.path} is closed")

    def partitions(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path / "p") if _NAME.fullmatch(name))

    def remove(self, partition: str) -> None:
        """Removes a partition and all it holds; spans that somebody has stay readable."""
        path = self._folder_of("p", partition)
        log = self._logs.pop(partition, None)
        self._damaged_before += _damaged(log)
        if log is not None:
            log.abandon()
        gone = path.with_name(f".{partition}.{os.urandom(6).hex()}.gone")
        try:
            os.rename(path, gone)
        except FileNotFoundError:
            return
        sync_directory(path.parent)
        shutil.rmtree(gone)

    # ---- state --------------------------------------------------------------------------------------------

    def state(self, name: str) -> State:
        state = self._states.get(name)
        if state is None:
            self._alive()
            log = self._open(self._folder_of("s", name), page_bytes=limits.STATE_PAGE_BYTES, jafka_magic=1)
            state = self._states[name] = State(log)
        return state

    def catalogue(self) -> State:
        return self.state("catalogue")

    # ---- completion and the end ---------------------------------------------------------------------------

    def condition(self) -> Condition:
        """How the disk served so far."""
        logs = [*self._logs.values(), *(state.log for state in self._states.values())]
        damaged = self._damaged_before + sum(map(_damaged, logs))
        return Condition(self._flush.times, self._flush.failures, damaged)

    def fileno(self) -> int:
        """Readable when committed positions moved, or when a flush failed."""
        return self._flush.bell

    def moved(self) -> list[Log]:
        return list(self._flush.moved())

    def close(self) -> None:
        """Brings everything to the disk and leaves clean marks.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._flush.stop()
        logs = [*self._logs.values(), *(state.log for state in self._states.values())]
        try:
            if len(logs) >= limits.SYNC_TOGETHER:
                sync_file_system(self._lock_fd)
            for log in logs:
                log.close()
        finally:
            os.close(self._lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _damaged(log: Log | None) -> int:
    """Places of a log that were found damaged; a bare queue keeps no count."""
    return len(log.folder.damaged) if isinstance(log, Partition) else 0
