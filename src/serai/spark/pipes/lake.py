"""Which files an archive consists of: a list that grows by whole batches.

    <lake>/topic=orders/day=2026-11-19/0-00000000000000000000-00000000000000001500-5d41402a.parquet
    <lake>/_serai/manifests/00000000.json      {"v": 1, "query": "...", "batch": 0, "add": [...], "remove": []}
    <lake>/_serai/manifests/00000001.json
    <lake>/_serai/lock                         held by the run that writes here

A file's name says partition, first and last position, and a mark of the log they are of, so that a batch which comes again
makes the same files.  What counts is what the manifests name: the sum of `add` less the sum of `remove`.  A manifest with
`whole` says everything anew, and the ones before it are given up.

Invariants
- a manifest appears at once and whole, under a number nobody has taken: it is linked into place
- a batch counts once: what a query has committed, or positions of a log that are there already, are passed over
- files that are named are there, flushed, before the manifest is; files nobody names are swept by the next run
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from serai.errors import Corrupt, Locked, Misuse
from serai.log.lock import try_lock
from serai.log.store import sync_directory

HOME = "_serai"
MANIFESTS = "manifests"
VERSION = 1
TRIES = 100  # to read manifests while somebody gives them up
WHOLE_EVERY = 64  # manifests, before one says everything anew
NO_DAY = "__HIVE_DEFAULT_PARTITION__"  # as every reader of such folders calls a null
SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")  # what those readers write as %XX


@dataclass(frozen=True)
class File:
    """One Parquet file: the rows of positions first..last, `last` not among them."""

    path: str  # below the lake; "" when none of the positions could be read
    topic: str
    partition: int
    epoch: str  # which log of that name; "" for a queue, which has no name of its own
    first: int
    last: int
    rows: int
    bytes: int
    crc: int  # CRC-32C of the file
    min_us: int | None
    max_us: int | None

    @property
    def log(self) -> tuple[str, int, str]:
        return (self.topic, self.partition, self.epoch)

    @property
    def missing(self) -> int:
        return self.last - self.first - self.rows


def folder_of(topic: str, day: str) -> str:
    """Where files of a topic and a day lie, as Hive and Spark name folders."""
    return f"topic={SPECIAL.sub(lambda found: f'%{ord(found[0]):02X}', topic)}/day={day}"


def name_of(partition: int, first: int, last: int, mark: str) -> str:
    return f"{partition}-{first:020}-{last:020}{mark and '-'}{mark}.parquet"


def mark_of(path: str) -> str:
    """The mark of the log in a file's name."""
    return "-".join(Path(path).stem.split("-")[3:])


class Lake:
    """The files of an archive; follows what others commit when asked again."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self._next = -1  # number of the next manifest; -1 before the first look
        self._files: dict[tuple[Any, ...], File] = {}
        self._done: dict[str, int] = {}  # last batch of each query

    @property
    def home(self) -> Path:
        return self.root / HOME

    @property
    def _manifests(self) -> Path:
        return self.home / MANIFESTS

    def exists(self) -> bool:
        return self._manifests.is_dir()

    def files(self) -> list[File]:
        """What the archive consists of now, in the order of the logs."""
        self._catch_up()
        return sorted(self._files.values(), key=lambda one: (*one.log, one.first, one.last))

    # ---- reading manifests

    def _catch_up(self) -> None:
        for _ in range(TRIES):
            if self._follow():
                return
            lost, self._next = self._next, -1  # what was to be read next was given up for a whole one
        path = self._path(lost)
        raise Corrupt(f"{path} is not there although later manifests are: put it back from a copy", file=str(path))

    def _follow(self) -> bool:
        """Takes in the manifests from the next one on; False if it is no longer there."""
        numbers = self._numbers()
        if self._next < 0:
            self._files, self._done = {}, {}
            self._next = numbers[0] if numbers else 0
        while (found := self._read(self._next)) is not None:
            self._take(found)
            self._next += 1
        return not numbers or numbers[-1] < self._next

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(name[:-5]) for name in os.listdir(self._manifests) if re.fullmatch(r"\d+\.json", name))
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> Path:
        return self._manifests / f"{number:08}.json"

    def _read(self, number: int) -> dict[str, Any] | None:
        path = self._path(number)
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Corrupt(f"{path} is no JSON: {error}", file=str(path)) from None
        if found.get("v") != VERSION:
            raise Misuse(f"{path} has version {found.get('v')!r}, this serai reads version {VERSION}")
        return found

    def _take(self, found: Mapping[str, Any]) -> None:
        if found.get("whole"):
            self._files, self._done = {}, dict(found["done"])
        gone = set(found["remove"])
        self._files = {key: one for key, one in self._files.items() if one.path not in gone} if gone else self._files
        for row in found["add"]:
            one = File(**row)
            self._files[(*one.log, one.first, one.last, one.path)] = one
        if found["query"]:
            self._done[found["query"]] = found["batch"]

    # ---- writing them

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For the one run that may write here."""
        self._manifests.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not try_lock(fd):
                raise Locked(f"{self.root} is in use: another run archives into it; one run can take all topics")
            yield
        finally:
            os.close(fd)

    def done(self, query: str) -> int:
        """The last batch of a query that counts; -1 when none does."""
        self._catch_up()
        return self._done.get(query, -1)

    def commit(self, query: str, batch: int, files: Sequence[File]) -> list[File]:
        """Adds a batch; gives the files that are new, none when the batch was there."""
        self._catch_up()
        if self._done.get(query, -1) >= batch:
            return []
        fresh = [one for one in files if not self._holds(one)]
        self._write({"query": query, "batch": batch, "add": [asdict(one) for one in fresh], "remove": []})
        return fresh

    def replace(self, files: Sequence[File], gone: Sequence[File]) -> None:
        """Other files for the same rows."""
        assert sum(one.rows for one in files) == sum(one.rows for one in gone), (files, gone)
        self._catch_up()
        add, remove = [asdict(one) for one in files], [one.path for one in gone]
        self._write({"query": "", "batch": 0, "add": add, "remove": remove})

    def _holds(self, one: File) -> bool:
        """Whether all positions of a file are there; a part of them is nothing an archive of one log can come to."""
        if not one.epoch:  # a queue may have been made again, and its positions say nothing about that
            return False
        low = one.first
        for there in self.files():
            if there.log == one.log and there.first <= low < there.last:
                low = there.last
        if low != one.first and low < one.last:
            raise Misuse(
                f"{self.root} has positions {one.first} to {low} of topic {one.topic} partition {one.partition}, and a batch "
                f"brings {one.first} to {one.last}: another checkpoint was used meanwhile. Go on with that one, or remove both"
            )
        return low >= one.last

    def _write(self, manifest: dict[str, Any]) -> None:
        self._link(self._next, manifest)
        if self._next % WHOLE_EVERY == 0:
            self._say_everything()

    def _link(self, number: int, manifest: dict[str, Any]) -> None:
        draft = self._manifests / f".{number:08}.{os.getpid()}"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"v": VERSION, **manifest}, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._path(number))
        except FileExistsError:
            raise Locked(f"{self._path(number)} was written meanwhile: another run archives into {self.root}") from None
        finally:
            draft.unlink()
        sync_directory(self._manifests)
        self._catch_up()

    def _say_everything(self) -> None:
        number, add = self._next, [asdict(one) for one in self.files()]
        self._link(number, {"query": "", "batch": 0, "add": add, "remove": [], "whole": True, "done": dict(self._done)})
        for before in self._numbers():
            if before < number:
                self._path(before).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Removes files that no manifest names, left by a run that died; gives their number."""
        named = {one.path for one in self.files()}
        found = [path for path in self.root.glob("topic=*/day=*/*") if str(path.relative_to(self.root)) not in named]
        for path in found:
            path.unlink(missing_ok=True)
        return len(found)

    # ---- what is there

    def reach(self, logs: Iterable[tuple[str, int, str]]) -> dict[tuple[str, int], int]:
        """How far each log is archived: the position behind the last one; none for logs that are not."""
        last: dict[tuple[str, int, str], int] = {}
        for one in self.files():
            last[one.log] = max(last.get(one.log, 0), one.last)
        return {(topic, part): last[topic, part, epoch] for topic, part, epoch in logs if (topic, part, epoch) in last}
