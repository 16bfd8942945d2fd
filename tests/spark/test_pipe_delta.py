"""The archive as a Delta table: the same rows, each once, at every version, whatever a run that died left unsaid."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from serai.errors import Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark.pipes.archive import load
from serai.spark.pipes.compact import compact
from serai.spark.pipes.delta import follow
from serai.spark.pipes.lake import File, Lake
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry
from tests.spark.joining import BATCH, ROWS, TARGET, archived, write
from tests.spark.kit import numbered
from tests.spark.kit import rows_of as rows_of_frame
from tests.spark.test_pipe_archive import archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

EVERY = list(enumerate(numbered(0, ROWS)))


def rows_of(lake: Path, version: int | None = None) -> list[tuple[int, bytes]]:
    """Offset and value of a table, as deltalake itself reads it."""
    table = DeltaTable(str(lake), version=version).to_pyarrow_table(columns=["offset", "value"])
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def unsaid(folder: Path) -> tuple[Lake, list[File]]:
    """Files of a log, and an archive that does not name them yet."""
    write(folder / "data")
    files = archived(folder / "data", folder / "lake").files()
    shutil.rmtree(folder / "lake" / "_serai")
    return Lake(folder / "lake"), files


def test_table_has_the_rows_of_the_archive_at_every_version(tmp_path: Path) -> None:
    lake, files = unsaid(tmp_path)
    with lake.alone():
        for number, one in enumerate(files):
            lake.commit("query", number, [one])
            assert follow(lake) == 1
            assert follow(lake) == 0
    assert DeltaTable(str(lake.root)).version() == len(files)
    assert [rows_of(lake.root, at) for at in (1, 4, len(files))] == [EVERY[:BATCH], EVERY[: 4 * BATCH], EVERY]


def test_joined_files_are_no_change_of_data(tmp_path: Path) -> None:
    write(tmp_path / "data")
    lake = archived(tmp_path / "data", tmp_path / "lake")
    with lake.alone():
        follow(lake)
        compact(lake, TARGET)
        assert follow(lake) == 9 + 2
        lake.sweep()
    assert rows_of(tmp_path / "lake") == EVERY
    log = (tmp_path / "lake" / "_delta_log" / f"{2:020}.json").read_text()
    assert log.count('"dataChange":false') == 9 + 2
    assert '"dataChange":true' not in log


def test_what_was_left_unsaid_is_said_by_the_next_run(tmp_path: Path) -> None:
    lake, files = unsaid(tmp_path)
    with lake.alone():
        lake.commit("query", 0, files[:3])
        follow(lake)
        lake.commit("query", 1, files[3:])  # by runs that died before they told the table
        compact(lake, TARGET)
        lake.sweep()
    assert follow(Lake(lake.root)) == 3 + 2
    assert rows_of(lake.root) == EVERY


def test_topics_and_days_are_columns_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for name in ("orders", "a-b"):
            log = engine.open(name)
            log.append(encoded([Entry(HOUSE, b"%d" % at) for at in range(3)]), HOUSE, level=Level.RECEIVE, now_ms=1)
            log.commit()
    archive(tmp_path / "data", tmp_path / "lake", delta=True)
    archive(tmp_path / "data", tmp_path / "lake", delta=True)
    table = DeltaTable(str(tmp_path / "lake"))
    assert table.version() == 1
    found = table.to_pyarrow_table()
    assert sorted({(row["topic"], str(row["day"])) for row in found.to_pylist()}) == [
        ("a-b", "1970-01-01"), ("orders", "1970-01-01"),
    ]  # fmt: skip
    names = load(spark, str(tmp_path / "lake")).columns
    assert found.schema.names == names
    assert len(rows_of_frame(load(spark, str(tmp_path / "lake")))) == found.num_rows == 6


def test_queue_without_times_and_a_name_that_folders_escape(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path]
) -> None:
    archive(fill(numbered(0, 5), name="a=b c"), tmp_path / "lake", delta=True, compact=TARGET)
    table = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table(columns=["topic", "day", "offset"])
    assert table.to_pylist() == [{"topic": "a=b c", "day": None, "offset": at} for at in range(5)]


def test_missing_package_is_said_with_the_line_that_installs_it(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(Misuse, match=r"pip install 'serai\[lake\]'"):
        archive(fill([b"a"]), tmp_path / "lake", delta=True)
