"""Small files of an archive made into large ones: the same rows in the same order, other files.

    plan     neighbours: files of one log and one day, each beginning where the one before it ends
    join     reads them, checked against their checksums, and writes one file in their place      in a task
    compact  plan, join, and one manifest that names the new files instead of the old ones

A file is rewritten together with at least as many bytes as it has itself, or when that makes it as large as was asked for.
So a byte is copied as often as its file doubles, however small the batches were that brought it.

Invariants
- rows keep their order: what is joined are neighbours, by position
- the old files are named until the manifest is there, the new ones from then on, never both
- an old file that is not what its manifest says is an error, and stays as it is
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from serai._core.crc import crc32c
from serai.errors import Corrupt
from serai.spark.pipes.export import ParquetFile
from serai.spark.pipes.lake import File, Lake, mark_of, name_of

ROUND = 64  # groups of one manifest; what they replace is twice on the disk until it is written


def plan(files: Iterable[File], target: int) -> list[list[File]]:
    """Groups of files, each of which is to become one; `files` in the order of logs and positions."""
    found = []
    for _log, of_log in itertools.groupby(files, key=lambda one: one.log):
        there = list(of_log)
        if all(left.last <= right.first for left, right in itertools.pairwise(there)):
            found += [group for run in _runs(there) for group in _groups(run, target)]
    return (
        found  # positions that are there twice are of a queue that was made again: nobody knows which belong together
    )


def _runs(files: Sequence[File]) -> Iterator[list[File]]:
    """Stretches of neighbours in one folder."""
    run: list[File] = []
    for one in files:
        if run and not (one.path and run[-1].last == one.first and folder(run[-1]) == folder(one)):
            yield run
            run = []
        if one.path:
            run.append(one)
    yield run


def folder(one: File) -> str:
    return one.path.rpartition("/")[0]


def _groups(run: Sequence[File], target: int) -> Iterator[list[File]]:
    """What of a run is worth joining."""
    group: list[File] = []
    for one in run:
        if one.bytes >= target:
            yield from _worth(group)
            group = []
            continue
        group.append(one)
        if sum(part.bytes for part in group) >= target:
            yield group
            group = []
    yield from _worth(group)


def _worth(group: Sequence[File]) -> Iterator[list[File]]:
    """The files at the end of a group that is not large yet, from the first one that would at least double."""
    for at in range(len(group) - 1):
        if group[at].bytes <= sum(one.bytes for one in group[at + 1 :]):
            yield list(group[at:])
            return


def join(root: Path, group: Sequence[File]) -> File:
    """One file of the rows of several."""
    first, last = group[0], group[-1]
    out: ParquetFile | None = None
    try:
        for one in group:
            source = _checked(root, one)
            if out is None:
                out = ParquetFile((root / first.path).parent, first.first, source.schema_arrow)
            for batch in source.iter_batches():
                out.put(batch)
        assert out is not None, "a group has files"
        done = out.close(name_of(first.partition, first.first, last.last, mark_of(last.path)))
    except BaseException:
        if out is not None:
            out.discard()
        raise
    assert done.rows == sum(one.rows for one in group), (done.path, group)
    return replace(
        first, path=str(done.path.relative_to(root)), last=last.last, rows=done.rows, bytes=done.sink.bytes,
        crc=done.sink.crc, min_us=done.min_us, max_us=done.max_us,
    )  # fmt: skip


def _checked(root: Path, one: File) -> pq.ParquetFile:
    """A file whose bytes are those its manifest tells."""
    path = root / one.path
    data = pa.memory_map(str(path)).read_buffer()
    found = crc32c(memoryview(data))
    if found != one.crc:
        raise Corrupt(
            f"{path}: its checksum is {found:#010x}, the archive's manifest says {one.crc:#010x}: the file was changed. "
            f"It holds positions {one.first} to {one.last} of topic {one.topic} partition {one.partition}",
            file=str(path),
        )
    return pq.ParquetFile(pa.BufferReader(data))


def compact(
    lake: Lake, target: int, *, each: Callable[..., Iterable[File]] = map, stop: Callable[[], bool] = lambda: False
) -> tuple[int, int]:
    """Joins what is worth it; how many files became how many.  The old ones go with the next sweep."""
    before = after = 0
    while not stop() and (groups := plan(lake.files(), target)[:ROUND]):
        made = list(each(partial(join, lake.root), groups))
        gone = [one for group in groups for one in group]
        lake.replace(made, gone)
        before, after = before + len(gone), after + len(made)
    return before, after
