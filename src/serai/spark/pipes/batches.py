"""Between which positions a batch of a stream reads: what Spark wrote down before it ran the batch.

    <checkpoint>/offsets/7     v1, settings of the batch, then a line for each source: the positions it ends at

A pipeline that keeps those positions beside its own result can tell whether a batch is in there already, whoever was
killed when: the result stands at the batch's begin, or at its end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from serai.errors import Misuse
from serai.spark.offsets import Offsets

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = "-"  # Spark's word for a source that has no position yet


def ends(checkpoint: Path, batch: int) -> list[Offsets]:
    """Where a batch ends in each source, in the order the query names them."""
    path = checkpoint / "offsets" / str(batch)
    version, _settings, *sources = path.read_text(encoding="utf-8").splitlines()
    if version != "v1":
        raise Misuse(f"{path} has version {version!r}; this serai reads the v1 that Spark 4.3 writes")
    return [Offsets() if line == NOTHING else Offsets.from_json(json.loads(line)) for line in sources]


def begun(checkpoint: Path) -> bool:
    """Whether a query has planned a batch there."""
    return (checkpoint / "offsets").is_dir() and any((checkpoint / "offsets").glob("[0-9]*"))
