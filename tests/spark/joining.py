"""An archive of small files, made without Spark; as a program it dies at each call of the system while it joins them.

python -m tests.spark.joining join FOLDER
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from serai._core.entries import HOUSE
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark import columns
from serai.spark.options import read_options
from serai.spark.pipes.compact import compact
from serai.spark.pipes.export import KEPT, export
from serai.spark.pipes.lake import Lake
from serai.spark.slices import Slice, find_logs
from tests.core.dressing import encoded
from tests.faults import stepping
from tests.oracle.messages import HOUSE as DRESS
from tests.oracle.messages import Entry
from tests.spark.kit import numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_MS = 86_400_000
ROWS = 90  # two thirds of them of one day, the others of the next
BATCH = 10
TARGET = 1 << 20


def write(data: Path) -> None:
    """A log of two days."""
    with LocalEngine(data) as engine:
        log = engine.open("orders")
        for at, body in enumerate(numbered(0, ROWS)):
            day = 10 if at < 2 * ROWS // 3 else 11
            messages = encoded([Entry(DRESS, body, b"key %d" % (at % 7))])
            log.append(messages, HOUSE, level=Level.RECEIVE, now_ms=day * DAY_MS + at)
        log.commit()


def archived(data: Path, root: Path, batch: int = BATCH) -> Lake:
    """What `serai pipe run archive --batch-rows 10` makes of it."""
    options = read_options({"logDir": str(data), "columns": KEPT})
    (log,) = find_logs(options)
    lake = Lake(root)
    with lake.alone():
        for number, first in enumerate(range(0, log.end(committed=True), batch)):
            last = min(first + batch, log.end(committed=True))
            piece = Slice(log.topic, log.partition, log.path, first, last)
            lake.commit("query", number, export(piece, columns.shape_of(options), options, root))
    log.close()
    return lake


def rows_of(root: Path) -> list[tuple[int, bytes]]:
    """Offset and value, in the order of the files and of the rows in them."""
    found = []
    for one in Lake(root).files():
        table = pq.read_table(root / one.path, columns=["offset", "value"], partitioning=None)
        found += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return found


def on_the_disk(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.glob("topic=*/day=*/*"))


# ---- the scene ---------------------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    write(folder / "data")
    archived(folder / "data", folder / "lake")


def join(folder: Path, report: Callable[[int], None]) -> None:
    lake = Lake(folder / "lake")
    with lake.alone():
        lake.sweep()
        report(compact(lake, TARGET)[1])
        lake.sweep()


def check(folder: Path, reported: int) -> None:
    """Every row once, in order, before anybody tidies; then the next run does what was left."""
    root = folder / "lake"
    assert rows_of(root) == list(enumerate(numbered(0, ROWS)))
    assert reported < 0 or len(Lake(root).files()) == 2, "it was reported, and is not there"
    join(folder, lambda _number: None)
    assert rows_of(root) == list(enumerate(numbered(0, ROWS)))
    assert on_the_disk(root) == sorted(one.path for one in Lake(root).files())
    assert len(on_the_disk(root)) == 2


if __name__ == "__main__":
    stepping.SCENES["join"] = (prepare, join, check)
    stepping.main()
