"""Small files become large ones: the same rows, in order, once, whoever is killed when."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from serai.errors import Corrupt
from serai.spark.pipes.archive import load
from serai.spark.pipes.compact import compact, join, plan
from serai.spark.pipes.lake import File, Lake, mark_of, name_of
from tests.faults.kit import ROOT
from tests.spark.joining import ROWS, TARGET, archived, on_the_disk, rows_of, write
from tests.spark.kit import numbered
from tests.spark.kit import rows_of as rows_of_frame
from tests.spark.test_pipe_archive import archive
from tests.spark.test_pipe_audit import audit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

EVERY = list(enumerate(numbered(0, ROWS)))


def files(*sizes: int, day: str = "a", first: int = 0, epoch: str = "e") -> list[File]:
    """Neighbours of so many bytes, each of one row."""
    return [
        File(f"topic=t/day={day}/{at}.parquet", "t", 0, epoch, at, at + 1, 1, size, 0, None, None)
        for at, size in enumerate(sizes, first)
    ]


def sizes(groups: Sequence[Sequence[File]]) -> list[list[int]]:
    return [[one.bytes for one in group] for group in groups]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([], []),
        ([5], []),
        ([5, 5], [[5, 5]]),
        ([50, 50, 50], [[50, 50]]),  # as large as was asked for; the third waits for company
        ([100, 3, 200, 4, 4], [[4, 4]]),  # large ones stay as they are
        ([90, 3, 2, 1], [[3, 2, 1]]),  # copying 90 to gain 6 is not worth it
        ([90, 3, 20], [[90, 3, 20]]),  # it is when that makes it large enough
        ([99, 1, 99, 1], [[99, 1], [99, 1]]),
        ([0, 0], [[0, 0]]),
    ],
)
def test_files_are_joined_when_that_is_worth_the_copy(there: list[int], wanted: list[list[int]]) -> None:
    assert sizes(plan(files(*there), 100)) == wanted


def test_only_neighbours_of_one_day_and_one_log_are_joined() -> None:
    two_days = [*files(1, 1, day="a"), *files(1, 1, day="b", first=2), *files(1, 1, day="a", first=4)]
    assert [[one.first for one in group] for group in plan(two_days, 100)] == [[0, 1], [2, 3], [4, 5]]
    assert plan([*files(1), *files(1, first=2)], 100) == []  # position 1 is missing between them
    two_logs = [*files(1, epoch="x"), *files(1, first=1, epoch="y")]
    assert plan(two_logs, 100) == []


def test_positions_of_which_nothing_could_be_read_are_left_alone() -> None:
    left, hole, right = files(1, 1, 1)
    assert plan([left, dataclasses.replace(hole, path=""), right], 100) == []


def test_queue_that_was_made_again_is_left_alone() -> None:
    assert plan(sorted([*files(1, 1, epoch=""), *files(1, 1, epoch="")], key=lambda one: one.first), 100) == []


def test_byte_is_copied_as_often_as_its_file_doubles() -> None:
    there: list[File] = []
    copied = 0
    for number in range(1000):
        there += files(1, first=number)
        for group in plan(there, 64):
            made = dataclasses.replace(group[0], last=group[-1].last, bytes=sum(one.bytes for one in group))
            copied += made.bytes
            there = sorted([made, *(one for one in there if one not in group)], key=lambda one: one.first)
    assert copied <= 1000 * 6
    assert len(there) <= 1000 // 64 + 6
    assert all(left.last == right.first for left, right in itertools.pairwise(there))


@pytest.mark.parametrize("mark", ["", "0123456789abcdef"])
def test_mark_of_a_log_is_found_in_the_name(mark: str) -> None:
    assert mark_of("topic=a-b/day=2026-11-19/" + name_of(3, 5, 7, mark)) == mark


# ---- files -------------------------------------------------------------------------------------------------


def test_joined_file_has_the_rows_of_all_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "data")
    lake = archived(tmp_path / "data", tmp_path / "lake")
    before = lake.files()
    whole = [pq.read_table(tmp_path / "lake" / one.path, partitioning=None) for one in before[:6]]
    made = join(tmp_path / "lake", before[:6])
    table = pq.read_table(tmp_path / "lake" / made.path, partitioning=None)
    assert table.schema == whole[0].schema
    assert table.to_pylist() == [row for one in whole for row in one.to_pylist()]
    assert (made.first, made.last, made.rows) == (0, 60, 60)
    assert (made.min_us, made.max_us) == (before[0].min_us, before[5].max_us)
    assert made.bytes == (tmp_path / "lake" / made.path).stat().st_size
    assert mark_of(made.path) == made.epoch


def test_killed_at_any_call_of_the_system_every_row_is_there_once(in_memory: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.joining", "join", str(in_memory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 50


def test_file_that_was_changed_is_refused_and_the_archive_stays(tmp_path: Path) -> None:
    write(tmp_path / "data")
    lake = archived(tmp_path / "data", tmp_path / "lake")
    before, path = lake.files(), tmp_path / "lake" / lake.files()[2].path
    bytes_of = bytearray(path.read_bytes())
    bytes_of[40] ^= 1
    path.write_bytes(bytes_of)
    with (
        lake.alone(),
        pytest.raises(Corrupt, match=r"its checksum is .* positions 20 to 30 of topic orders partition 0"),
    ):
        compact(lake, TARGET)
    assert lake.files() == before
    lake.sweep()
    assert on_the_disk(tmp_path / "lake") == sorted(one.path for one in before)


def test_reader_sees_every_position_once_while_files_are_joined(tmp_path: Path) -> None:
    write(tmp_path / "data")
    lake = archived(tmp_path / "data", tmp_path / "lake", batch=1)
    over, seen = threading.Event(), set()

    def look() -> None:
        reader = Lake(tmp_path / "lake")
        while True:
            last = over.is_set()
            there = reader.files()
            spans = [(one.first, one.last) for one in there]
            assert [first for first, _ in spans] == [0, *(last for _, last in spans[:-1])]
            assert spans[-1][1] == ROWS
            seen.add(len(there))
            if last:
                return

    with ThreadPoolExecutor(1) as beside, lake.alone():
        looking = beside.submit(look)
        for size in (1 << 12, 1 << 13, 1 << 14, TARGET):
            compact(lake, size)
        over.set()
        looking.result()
    assert min(seen) == 2


def test_archive_joins_what_its_batches_brought(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data")
    archive(tmp_path / "data", tmp_path / "plain", batch_rows=10)
    outcome = archive(tmp_path / "data", tmp_path / "lake", batch_rows=10, compact=TARGET)
    assert "small ones became" in outcome.words
    lake = Lake(tmp_path / "lake")
    assert len(lake.files()) < 6 < len(Lake(tmp_path / "plain").files())
    assert rows_of(tmp_path / "lake") == rows_of(tmp_path / "plain") == EVERY
    frames = [load(spark, str(tmp_path / name)) for name in ("plain", "lake")]
    assert rows_of_frame(frames[0]) == rows_of_frame(frames[1])
    assert on_the_disk(tmp_path / "lake") == sorted(one.path for one in lake.files())
    archive(
        tmp_path / "data", tmp_path / "plain", batch_rows=10, compact=TARGET
    )  # no batch comes: they are joined all the same
    assert len(Lake(tmp_path / "plain").files()) == 2
    assert rows_of(tmp_path / "plain") == EVERY
    for name in ("plain", "lake"):
        assert not audit(data=tmp_path / "data", lake=tmp_path / name).rows
