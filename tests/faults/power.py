"""A disk that forgets: what a power cut could leave of a folder, at every instant of a real program.

    every call of `os` that changes the folder, and every look the test asks for, is an instant

    a file       what its last fsync covered; each sector of 512 bytes behind that as it was at any instant since
    a folder     its names as they were at any instant since the last fsync of the folder itself

`Disk` lets all calls through and writes down what they would have made durable.  Bytes that are stored through a mapping
are seen at the next instant.  `image` then builds one folder a power cut could have left.  A length that was given by
`ftruncate` is as old as any name the file has got since, as every journal has it; one that came by writing is not.
What is not modelled: a file system that loses the names of a folder out of order, or gives one file another's bytes.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

import serai.log.flush
import serai.log.local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    import pytest

SECTOR = 512
CALLS = (
    "posix_fallocate", "ftruncate", "link", "unlink", "rename", "replace", "mkdir", "rmdir", "pwrite", "fsync", "fdatasync",
)  # fmt: skip
Listing = dict[str, int]


class Disk:
    """Follows one folder; `instant` is called at each instant with nothing in flight but what the program does now."""

    def __init__(self, folder: Path, *, lying: bool = False) -> None:
        self.folder = folder
        self.lying = lying  # syncs that do nothing: the control
        self.instant: Callable[[], None] | None = None
        self.instants = 0
        self._fds: dict[int, int] = {}
        self._files: dict[int, list[bytes]] = {}
        self._folders: dict[int, list[Listing]] = {}
        self._sized: dict[int, int] = {}
        self._busy = False
        self._one_by_one = threading.RLock()  # the helper thread makes and renames pages too
        self._look(first=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds.values():
            os.close(fd)

    # ---- what happens -------------------------------------------------------------------------------------

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From here on every call that changes files is an instant, before it happens."""
        for name in CALLS:
            patch.setattr(
                os,
                name,
                self._watched(getattr(os, name), syncs=name in ("fsync", "fdatasync"), sizes=name == "ftruncate"),
            )
        for module in (serai.log.flush, serai.log.local):
            patch.setattr(module, "sync_file_system", self._watched_all(module.sync_file_system))

    def _watched(self, real: Callable[..., Any], *, syncs: bool, sizes: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            with self._one_by_one:
                self.look()
                answer = real(*arguments, **keywords)
                if syncs and not self.lying:
                    self._synced(os.fstat(arguments[0]).st_ino)
                if sizes:
                    self._sized[os.fstat(arguments[0]).st_ino] = arguments[1]
                return answer

        return call

    def _watched_all(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            with self._one_by_one:
                self.look()
                real(fd)
                if not self.lying:
                    for inode in [*self._files, *self._folders]:
                        self._synced(inode)

        return call

    def _synced(self, inode: int) -> None:
        for known in (self._files, self._folders):
            if inode in known:
                del known[inode][:-1]

    def look(self) -> None:
        """One instant; calls that looking itself makes are none."""
        with self._one_by_one:
            if self._busy:
                return
            self._busy = True
            try:
                self._look()
                self.instants += 1
                if self.instant is not None:
                    self.instant()
            finally:
                self._busy = False

    def _look(self, *, first: bool = False) -> None:
        """Writes down what is new in names and bytes; a folder that is there at first is durable, a later one is not."""
        for path, folders, files in os.walk(self.folder):
            inode = os.stat(path).st_ino
            listing: Listing = {}
            for name in (*folders, *files):
                listing[name] = self._inode(os.path.join(path, name))
            seen = self._folders.setdefault(inode, [listing] if first else [{}])
            if seen[-1] != listing:
                seen.append(listing)
        for inode, fd in self._fds.items():
            raw = os.pread(fd, os.fstat(fd).st_size, 0)
            versions = self._files.setdefault(inode, [raw] if first else [b""])
            if versions[-1] != raw:
                versions.append(raw)

    def _inode(self, path: str) -> int:
        """The file's number; its descriptor is kept, so that no later file gets the same one."""
        found = os.stat(path)
        if not os.path.isdir(path) and found.st_ino not in self._fds:
            self._fds[found.st_ino] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return found.st_ino

    # ---- what is left -------------------------------------------------------------------------------------

    def image(self, dice: Random) -> dict[str, bytes | None]:
        """One outcome of a power cut now: files with their bytes, folders with None."""
        leaning: dict[str, float] = defaultdict(
            lambda: dice.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        )  # by suffix: one stream may be far ahead
        out: dict[str, bytes | None] = {}
        self._take(os.stat(self.folder).st_ino, "", leaning, dice, out)
        return out

    def _take(
        self, inode: int, path: str, leaning: dict[str, float], dice: Random, out: dict[str, bytes | None]
    ) -> None:
        for name, child in _choose(self._folders.get(inode, [{}]), leaning["/"], dice).items():
            where = f"{path}{name}"
            if child in self._folders:
                out[where] = None
                self._take(child, f"{where}/", leaning, dice, out)
            else:
                versions, lean = self._files.get(child, [b""]), leaning[os.path.splitext(name)[1]]
                out[where] = mixed(versions, self._sized.get(child), lean, dice)


def _choose(versions: list[Any], lean: float, dice: Random) -> Any:
    """The newest with a probability, else any of them."""
    return versions[-1] if dice.random() < lean else dice.choice(versions)


def mixed(versions: list[bytes], sized: int | None, lean: float, dice: Random) -> bytes:
    """Sectors of several versions of a file; all of them when nothing was in flight."""
    if len(versions) == 1 and sized in (None, len(versions[0])):
        return versions[0]
    length = sized or len(_choose(versions, lean, dice))
    out = bytearray(versions[0][:length].ljust(length, b"\0"))
    for at in range(0, length, SECTOR):
        if dice.random() < lean:
            piece = versions[-1][at : at + SECTOR]
        else:
            piece = dice.choice(versions)[at : at + SECTOR]
        stop = min(at + SECTOR, length)
        out[at:stop] = piece[: stop - at].ljust(stop - at, b"\0")
    return bytes(out)


def lay_out(image: dict[str, bytes | None], folder: Path) -> Path:
    """An image as a folder."""
    folder.mkdir()
    for name, content in image.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder
