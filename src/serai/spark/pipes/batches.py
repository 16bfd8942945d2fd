"""Between which positions a batch of a stream reads: what Spark wrote down before it ran the batch.

    <checkpoint>/offsets/7     v1, settings of the batch, then a line for each source: the positions it ends at

A pipeline that keeps those positions beside its own result can tell whether a batch is in there already, whoever was
killed when: the result stands at the batch's begin, or at its end.  `reading` is what such a stream is opened with, `keep`
writes down what has to be there after a power cut.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.errors import Misuse
from serai.log.store import sync_directory
from serai.spark.offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING = "-"  # Spark's word for a source that has no position yet


def ends(checkpoint: Path, batch: int) -> list[Offsets]:
    """Where a batch ends in each source, in the order the query names them."""
    path = checkpoint / "offsets" / str(batch)
    version, _settings, *sources = path.read_text(encoding="utf-8").splitlines()
    if version != "v1":
        raise Misuse(f"{path} has version {version!r}; this serai reads the v1 that Spark 4.3 writes")
    return [Offsets() if line == NOTHING else Offsets.from_json(json.loads(line)) for line in sources]


def last(checkpoint: Path) -> int:
    """The newest batch that was planned; -1 when none was."""
    names = [path.name for path in (checkpoint / "offsets").glob("[0-9]*")]
    return max(map(int, names), default=-1)


def reading(
    data: str, *, fields: str | None, decode: str | None, topics: str | None, on_corrupt: str
) -> dict[str, str]:
    """The options of a source whose bodies become columns; with fields it is decode=fields."""
    options = {"logDir": str(Path(data).absolute()), "decode": decode or ("fields" if fields else "raw")}
    options |= {"onCorrupt": on_corrupt, "startingOffsets": "earliest"}
    options |= {"fields": fields} if fields else {}
    return options | ({"subscribe": topics} if topics else {})


def keep(path: Path, said: Mapping[str, Any]) -> None:
    """Replaces a file by what is said; either is there whole, whatever happens."""
    fresh = path.with_name(f"{path.name}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(said, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)
