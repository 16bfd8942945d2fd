"""A table that is replaced whole, by one rename.

    <root>/current -> versions/00000007             what counts; any reader of Parquet takes it as it is
    <root>/versions/00000007/part-*.parquet
    <root>/versions/00000007/_snapshot.json         {"v": 1, ...}: what whoever wrote it says of it
    <root>/versions/00000006/                       for readers that began before 7 was there

Invariants
- what `current` names is whole and flushed, the table and what is said of it: they change together or not at all
- a version that was not finished is swept by the next one
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Misuse
from serai.log.store import sync_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

CURRENT = "current"
SAID = "_snapshot.json"
VERSION = 1


class Snapshot:
    """The versions of one table."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()

    @property
    def _versions(self) -> Path:
        return self.root / "versions"

    def path(self) -> Path | None:
        """The directory of the version that counts; None before the first."""
        try:
            return self.root / os.readlink(self.root / CURRENT)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def said(self) -> dict[str, Any] | None:
        """What was written with it."""
        path = self.path()
        if path is None:
            return None
        found: dict[str, Any] = json.loads((path / SAID).read_text(encoding="utf-8"))
        if found.get("v") != VERSION:
            raise Misuse(f"{path / SAID} has version {found.get('v')!r}, this serai reads version {VERSION}")
        return found

    def replace(self, table: DataFrame, said: Mapping[str, Any]) -> None:
        """Makes a table the one that counts; it may be made of the one that did."""
        before = self.path()
        path = self._versions / f"{0 if before is None else int(before.name) + 1:08}"
        shutil.rmtree(path, ignore_errors=True)
        table.write.parquet(str(path))
        (path / SAID).write_text(json.dumps({"v": VERSION, **said}), encoding="utf-8")
        for one in path.iterdir():
            _flush(one)
        for folder in (path, self._versions):
            sync_directory(folder)
        link = self.root / f".{CURRENT}"
        link.unlink(missing_ok=True)
        link.symlink_to(path.relative_to(self.root))
        link.replace(self.root / CURRENT)
        sync_directory(self.root)
        self._sweep({path} if before is None else {path, before})

    def _sweep(self, kept: set[Path]) -> None:
        for path in self._versions.iterdir():
            if path not in kept:
                shutil.rmtree(path)


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
