"""Batches without a query: written down before they are done, done again if they were cut off, and never twice."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from serai.errors import Misuse
from serai.spark.columns import shape_of
from serai.spark.options import read_options
from serai.spark.pipes.export import packs
from serai.spark.pipes.place import BATCH
from serai.spark.pipes.planned import Batch, Planned
from serai.spark.source import Stream
from tests.spark.kit import numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Keeper:
    """Whoever does the work, and remembers which batch it did last."""

    def __init__(self, queue: Path, place: Path, most: int) -> None:
        options = {"logDir": str(queue), "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
        self.asked = read_options(options)
        self.place = place
        self.last = -1

    def planned(self) -> Planned:
        """As a new process would have it."""
        return Planned(Stream(self.asked, shape_of(self.asked)), self.place, lambda _query: self.last)

    def did(self, batch: Batch | None) -> tuple[int, int]:
        assert batch is not None
        self.last = batch.number
        return batch.slices[0].first, batch.slices[-1].last


@pytest.fixture
def keeper(tmp_path: Path, fill: Callable[..., Path]) -> Keeper:
    (tmp_path / "place").mkdir()
    return Keeper(fill(numbered(0, 10)), tmp_path / "place", 4)


def test_batches_cover_what_was_there_when_the_run_began(keeper: Keeper, fill: Callable[..., Path]) -> None:
    planned = keeper.planned()
    planned.until_now()
    fill(numbered(10, 12))
    assert [keeper.did(planned.next()) for _ in range(3)] == [(0, 4), (4, 8), (8, 10)]
    assert planned.next() is None
    planned = keeper.planned()
    planned.until_now()
    assert keeper.did(planned.next()) == (10, 12)


def test_batch_that_was_cut_off_comes_again_and_one_that_counts_does_not(keeper: Keeper) -> None:
    first = keeper.planned().next()
    again = keeper.planned().next()
    assert first is not None
    assert again is not None
    assert (again.query, again.number, again.slices) == (first.query, first.number, first.slices)
    assert keeper.did(again) == (0, 4)
    assert keeper.did(keeper.planned().next()) == (4, 8)


def test_batch_says_what_is_behind_it(keeper: Keeper) -> None:
    batch = keeper.planned().next()
    assert batch is not None
    assert (batch.rows, batch.behind) == (4, 6)


def test_batch_of_a_later_version_is_refused(keeper: Keeper) -> None:
    keeper.planned().next()
    path = keeper.place / BATCH
    path.write_text(json.dumps(json.loads(path.read_text()) | {"v": 2}))
    with pytest.raises(Misuse, match="version 2"):
        keeper.planned()


def test_bodies_that_do_not_get_shorter_are_told_from_those_that_do() -> None:
    words = pa.array([b'{"name": "anna", "amount": %d}' % at for at in range(1000)], pa.binary())
    noise = pa.array([os.urandom(100) for _ in range(1000)], pa.binary())
    assert packs(pa.chunked_array([words, words]))
    assert not packs(pa.chunked_array([noise.slice(100), noise.slice(0, 100)]))
    assert packs(pa.chunked_array([noise.slice(0, 100), words]))
    assert packs(pa.chunked_array([pa.nulls(3, pa.binary())]))
    assert packs(pa.chunked_array([], pa.binary()))
