"""The seam to the log: what the source asks of a partition, whatever kind of directory it lies in.

    logDir                            topics
    a Quick-Queue directory           one, named as the directory, partition 0           `queues`
    a folder of such directories      one for each                                       `queues`
    a serai data directory            those of its catalogue                             `partitions`
    one partition of it               one, named as the directory                        `partitions`

A `Log` is opened by the driver to plan and by each task to read; it holds maps and descriptors, so it never
travels: a `Slice` does, which is names and numbers.

Invariants
- positions are dense, from 0: the nth message of the partition has position n for ever
- a `Log` changes nothing; what it gives below `end(committed=True)` is there after a power cut too
- `blocks(first, last)` gives last - first rows but for those that its `Tally` counts
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from serai.errors import Misuse, SeraiError
from serai.log.folder import is_partition
from serai.spark.options import Options


class DataLoss(SeraiError):
    """Messages the query was to read are gone; says where, from which to which, and how many."""


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: positions first..last of one partition, `last` not among them."""

    topic: str
    partition: int
    path: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass
class Tally:
    """What a read left out, and where the first of it was."""

    corrupt: int = 0  # entries of the log that cannot be read
    corrupt_rows: int = 0  # bodies that cannot be decoded
    abandoned: int = 0
    lost: int = 0
    first_words: str = ""

    def note(self, words: str) -> None:
        self.first_words = self.first_words or words

    @property
    def missing(self) -> int:
        return self.corrupt + self.abandoned + self.lost


@dataclass(frozen=True)
class Block:
    """Some rows that follow each other: for each column that was asked for, its array."""

    rows: int
    arrays: dict[str, pa.Array]


@dataclass(frozen=True)
class Wish:
    """How blocks are to be: which columns, how large, what to do about damage."""

    columns: frozenset[str]
    rows: int
    bytes: int
    on_corrupt: str
    on_abandoned: str
    fail_on_loss: bool
    tally: Tally = field(default_factory=Tally, compare=False)


class Log(Protocol):
    """One partition, opened for reading."""

    topic: str
    partition: int
    path: str

    def first(self) -> int:
        """The lowest position there is."""
        ...

    def end(self, *, committed: bool) -> int:
        """The position behind the last message that may be read."""
        ...

    def mark(self, position: int) -> str:
        """What tells this log from another at the same place, as far as `position`; "" when nothing does."""
        ...

    def count(self, first: int, last: int) -> int:
        """Rows of the positions first..last, by the index."""
        ...

    def weigh(self, first: int, last: int) -> int:
        """Bytes of the messages first..last, about."""
        ...

    def within(self, first: int, last: int, bytes_max: int) -> int:
        """The highest stop up to `last` with at most `bytes_max` bytes from `first` on, but at least one message."""
        ...

    def at_time(self, time_ms: int) -> int:
        """The first position stored at or after a time; the end when there is none."""
        ...

    def blocks(self, first: int, last: int, wish: Wish) -> Iterator[Block]:
        """The messages first..last."""
        ...

    def close(self) -> None: ...


def find_logs(options: Options) -> list[Log]:
    """Every log below the directory that the options choose, in the order of topic and partition."""
    assert options.log_dir is not None
    root = Path(options.log_dir.removeprefix("file://"))
    if not root.is_dir():
        raise Misuse(f"logDir {root} is not a directory on this machine")
    found = [log for log in _below(root, options) if _is_chosen(log, options)]
    missing = _asked(options) - {log.topic for log in found}
    if missing:
        there = sorted({log.topic for log in _below(root, options)})
        raise Misuse(f"{root} has no topic {', '.join(sorted(missing))}; it has {', '.join(there) or 'none'}")
    return sorted(found, key=lambda log: (log.topic, log.partition))


def _asked(options: Options) -> set[str]:
    return set(options.subscribe or ()) | set(options.assign or ())


def _is_chosen(log: Log, options: Options) -> bool:
    if options.assign is not None:
        return log.partition in options.assign.get(log.topic, ())
    if options.subscribe is not None:
        return log.topic in options.subscribe
    return options.subscribe_pattern is None or re.fullmatch(options.subscribe_pattern, log.topic) is not None


def _below(root: Path, options: Options) -> list[Log]:
    from serai.spark import partitions, queues

    if partitions.is_data(root):
        return list(partitions.logs_of(root))
    if is_partition(root):
        return [partitions.PartitionLog(str(root), root.resolve().name, 0)]
    if queues.is_queue(root):
        return [queues.QueueLog(str(root), root.resolve().name, options.dialect)]
    inner = sorted(Path(entry.path) for entry in os.scandir(root) if entry.is_dir())
    return [queues.QueueLog(str(path), path.name, options.dialect) for path in inner if queues.is_queue(path)] or [
        queues.QueueLog(str(root), root.resolve().name, options.dialect)  # nothing there yet: a queue that will be
    ]


def open_log(piece: Slice, options: Options) -> Log:
    """The log a slice is of, in the task that reads it."""
    from serai.spark import partitions, queues

    if is_partition(Path(piece.path)):
        return partitions.PartitionLog(piece.path, piece.topic, piece.partition)
    return queues.QueueLog(piece.path, piece.topic, options.dialect)
