"""The directory a pipeline goes on from.

    <place>/pipe.json     which pipeline, its settings, how far it was when it last said so
    <place>/lock          held by the run that is at work
    <place>/spark         Spark's checkpoint, or
    <place>/batch.json    the batch that a pipeline without one is at (`planned`)

Invariants
- one run at a time: two queries that share a checkpoint would each write half of everything
- a place belongs to one pipeline with the settings it began with; other ones are refused by name
- `pipe.json` is replaced whole, never half written
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Locked, Misuse
from serai.log.lock import is_held, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serai.spark.pipes.frame import Pipe

FILE = "pipe.json"
LOCK = "lock"
CHECKPOINT = "spark"
BATCH = "batch.json"
VERSION = 1


class Place:
    """Where one run writes down how far it is."""

    def __init__(self, path: Path, pipe: Pipe) -> None:
        self.path = path
        self.said: dict[str, Any] = {
            "v": VERSION, "pipe": pipe.name, "settings": pipe.described(), "state": "running", "started_ms": now_ms(),
            "rows": 0, "batches": 0, "behind": None, "why": "",
        }  # fmt: skip

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def tell(self, **said: Any) -> None:
        """Writes down what changed."""
        self.said |= said | {"updated_ms": now_ms()}
        fresh = self.path / f"{FILE}.new"
        fresh.write_text(json.dumps(self.said, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.path / FILE)


@contextmanager
def taken(path: Path, pipe: Pipe) -> Iterator[Place]:
    """The place for one run: nobody else's, and of this very pipeline."""
    path.mkdir(parents=True, exist_ok=True)
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not try_lock(fd):
            raise Locked(
                f"{path} is in use: another run of {pipe.name} is at work there; stop it, or give --checkpoint"
            )
        _check_same(path, pipe)
        yield Place(path, pipe)
    finally:
        os.close(fd)


def _check_same(path: Path, pipe: Pipe) -> None:
    before = read(path)
    if before is None or not any((path / name).exists() for name in (CHECKPOINT, BATCH)):
        return
    if before["pipe"] != pipe.name:
        raise Misuse(f"{path} belongs to the pipeline {before['pipe']}, not to {pipe.name}; give another --checkpoint")
    now = json.loads(json.dumps(pipe.described()))
    changed = [name for name in pipe.fixed if before["settings"].get(name) != now.get(name)]
    if changed:
        was = ", ".join(f"{name} {before['settings'].get(name)!r}, now {now.get(name)!r}" for name in changed)
        raise Misuse(f"{path} was begun with {was}: it cannot go on from there; give another --checkpoint")


def read(path: Path) -> dict[str, Any] | None:
    """What the last run wrote down there; None when there was none."""
    try:
        found: dict[str, Any] = json.loads((path / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if found.get("v") != VERSION:
        raise Misuse(f"{path / FILE} has version {found.get('v')!r}, this serai reads version {VERSION}")
    return found


def query_of(path: Path) -> str:
    """The query whose checkpoint lies in a place: its name for ever."""
    found: str = json.loads((path / CHECKPOINT / "metadata").read_text(encoding="utf-8"))["id"]
    return found


def look(path: Path) -> list[dict[str, Any]]:
    """Every place in a directory and up to three folders below it, with whether it is at work now."""
    found = []
    for depth in range(4):
        for file in sorted(path.glob("/".join(["*"] * depth + [FILE]))):
            said = read(file.parent)
            assert said is not None
            if said["state"] == "running" and not is_held(file.parent / LOCK):
                said["state"] = "died"  # nobody is there to say so
            found.append(said | {"place": str(file.parent)})
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
