"""The archive: exact rows, once, whoever stops whom; files by topic and day; a list that other readers can follow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from serai.errors import Locked, Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark.pipes.archive import Archive
from serai.spark.pipes.frame import Asked, Outcome
from serai.spark.pipes.lake import File, Lake, folder_of
from serai.spark.pipes.running import run
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry
from tests.spark.kit import numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

DAY_MS = 86_400_000


def archive(path: Path, lake: Path, *, checkpoint: Path | None = None, **settings: Any) -> Outcome:
    pipe = Archive(data=str(path), to=str(lake), **settings)
    return run(pipe, Asked(checkpoint=checkpoint), lambda _progress: None, lambda _words: None)


def bodies(lake: Path) -> list[tuple[int, bytes]]:
    """Offset and value of every row of the files that count."""
    paths = [str(lake / one.path) for one in Lake(lake).files() if one.path]
    table = ds.dataset(paths, format="parquet").to_table(columns=["offset", "value"]) if paths else None
    rows = [] if table is None else list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows)


def file(first: int, last: int, *, partition: int = 0, epoch: str = "a") -> File:
    return File(f"{partition}-{first}-{last}", "orders", partition, epoch, first, last, last - first, 1, 1, None, None)


def test_archive_of_a_queue_has_every_message_once_over_runs(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path]
) -> None:
    queue, lake = fill(numbered(0, 5000)), tmp_path / "lake"
    archive(queue, lake, batch_rows=2000)
    assert bodies(lake) == list(enumerate(numbered(0, 5000)))
    fill(numbered(5000, 6000))
    archive(queue, lake, batch_rows=2000)
    archive(queue, lake, batch_rows=2000)
    assert bodies(lake) == list(enumerate(numbered(0, 6000)))


def test_archive_of_partitions_lies_by_topic_and_day(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for name, days in (("orders", (10, 10, 11)), ("pay/ments", (11,))):
            log = engine.open(name.replace("/", "-"))
            for at, day in enumerate(days):
                log.append(
                    encoded([Entry(HOUSE, b"%d" % at, b"key")]), HOUSE, level=Level.RECEIVE, now_ms=day * DAY_MS + at
                )
            log.commit()
    outcome = archive(tmp_path / "data", tmp_path / "lake")
    found = {(str((tmp_path / "lake" / one.path).parent.relative_to(tmp_path / "lake")), one.first, one.last)
             for one in Lake(tmp_path / "lake").files()}  # fmt: skip
    assert found == {
        ("topic=orders/day=1970-01-11", 0, 2), ("topic=orders/day=1970-01-12", 2, 3),
        ("topic=pay-ments/day=1970-01-12", 0, 1),
    }  # fmt: skip
    assert [(row["topic"], row["rows"]) for row in outcome.rows] == [("orders", 3), ("pay-ments", 1)]


def test_folders_are_named_as_other_readers_do() -> None:
    assert folder_of("a/b=c", "2026-01-01") == "topic=a%2Fb%3Dc/day=2026-01-01"
    assert folder_of("größe", "x") == "topic=größe/day=x"


# ---- the list of files -------------------------------------------------------------------------------------


def test_batch_counts_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.alone():
        assert lake.commit("query", 0, [file(0, 5)]) == [file(0, 5)]
        assert lake.commit("query", 0, [file(0, 5)]) == []
        assert lake.commit("another", 0, [file(0, 5), file(5, 7)]) == [file(5, 7)]
    assert Lake(tmp_path).files() == [file(0, 5), file(5, 7)]


def test_batch_that_overlaps_another_is_refused_with_numbers(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.alone():
        lake.commit("query", 0, [file(0, 5)])
        with pytest.raises(Misuse, match=r"has positions 3 to 5 .* brings 3 to 8"):
            lake.commit("another", 0, [file(3, 8)])


def test_log_that_was_made_again_is_another_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.alone():
        lake.commit("query", 0, [file(0, 5)])
        lake.commit("query", 1, [file(0, 3, epoch="b")])
    assert lake.reach([("orders", 0, "a")]) == {("orders", 0): 5}
    assert lake.reach([("orders", 0, "b"), ("orders", 1, "b")]) == {("orders", 0): 3}


def test_many_manifests_become_one_and_readers_follow(tmp_path: Path) -> None:
    lake, reader = Lake(tmp_path), Lake(tmp_path)
    with lake.alone():
        for number in range(200):
            lake.commit("query", number, [file(number, number + 1)])
            if number % 7 == 0:
                assert len(reader.files()) == number + 1
        assert lake.commit("query", 199, [file(199, 200)]) == []
    assert len(list((tmp_path / "_serai" / "manifests").iterdir())) <= 64
    assert [one.first for one in Lake(tmp_path).files()] == [one.first for one in reader.files()] == list(range(200))


def test_lake_takes_one_run(tmp_path: Path) -> None:
    with Lake(tmp_path).alone(), pytest.raises(Locked, match="another run"), Lake(tmp_path).alone():
        pass


def test_manifest_of_a_later_version_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.alone():
        lake.commit("query", 0, [file(0, 5)])
    path = tmp_path / "_serai" / "manifests" / "00000000.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"v": 2}))
    with pytest.raises(Misuse, match="version 2"):
        Lake(tmp_path).files()
