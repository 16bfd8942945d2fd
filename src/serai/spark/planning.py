"""How much one batch takes, and how it is cut into tasks: arithmetic over positions, no Spark and no files.

    backlog of each log  ->  shares of a limit in proportion, at least one message each  ->  slices for tasks

Invariants
- shares add up to the limit exactly when there is that much; no log that has messages is left out for long:
  what rounding leaves over goes to the largest backlogs, and `turn` moves on when there is not one for each
- slices cover the ranges without gap or overlap, in order
- a task costs about 30 ms before it reads, so there are few: one for each core, unless they grow large
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from serai.spark.slices import Slice

TASK_ROWS = 500_000  # below this a second task costs more than it saves
TASK_ROWS_MAX = 4_000_000
TASK_BYTES_MAX = 256 << 20


def share(limit: int, backlogs: Sequence[int], *, turn: int) -> list[int]:
    """Parts of `limit` in proportion to the backlogs."""
    total = sum(backlogs)
    if total <= limit:
        return list(backlogs)
    parts = [min(backlog, max(limit * backlog // total, 1 if backlog else 0)) for backlog in backlogs]
    order = sorted(range(len(backlogs)), key=lambda at: (-backlogs[at], at))
    left = limit - sum(parts)
    while left > 0:
        for at in order:
            if left > 0 and parts[at] < backlogs[at]:
                parts[at] += 1
                left -= 1
    for at in order:
        taken = min(max(parts[at] - 1, 0), -left) if left < 0 else 0
        parts[at] -= taken
        left += taken
    start = turn % len(parts)
    for at in [*range(start, len(parts)), *range(start)]:  # more logs than messages: some wait, others next time
        if left < 0 and parts[at]:
            parts[at] -= 1
            left += 1
    return parts


@dataclass(frozen=True)
class Cutting:
    """How slices are wanted."""

    min_partitions: int | None
    rows_max: int | None
    cores: int


def divide(ranges: Sequence[Slice], bytes_of: Sequence[int], cutting: Cutting) -> list[Slice]:
    """The ranges cut for tasks: each at most as large as a task should be, together enough for the cores."""
    rows = sum(len(one) for one in ranges)
    wanted = cutting.min_partitions or min(cutting.cores, max(rows // TASK_ROWS, 1))
    pieces: list[Slice] = []
    for one, size in zip(ranges, bytes_of, strict=True):
        if not len(one):
            continue
        count = max(
            round(wanted * len(one) / rows), 1,
            -(-len(one) // (cutting.rows_max or TASK_ROWS_MAX)),
            -(-size // TASK_BYTES_MAX),
        )  # fmt: skip
        pieces += _cut(one, min(count, len(one)))
    return pieces


def _cut(one: Slice, count: int) -> list[Slice]:
    """The range in `count` parts that differ by one message at most."""
    edges = [one.first + len(one) * i // count for i in range(count + 1)]
    return [replace(one, first=low, last=high) for low, high in pairwise(edges)]
