"""How long something took, each time it was done: counted between fixed bounds, as `/metrics` shows it.

    seconds      0.0001   0.00025  ...   10
    counts     |        |        |     |    | longer than all

Invariants
- one thread adds, any thread looks: what is seen may be short of the newest time, never torn
- no time is kept, so that a server that runs for a year needs no more than one that begins
"""

from bisect import bisect_left
from itertools import accumulate

from serai import limits


class Times:
    """The times of one kind of work since the start."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(limits.TIME_BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        """It was done once more."""
        self.counts[bisect_left(limits.TIME_BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    def steps(self) -> list[tuple[str, float]]:
        """Each bound and how often it took no longer: the last one holds all."""
        names = [*map(str, limits.TIME_BOUNDS_S), "+Inf"]
        return [(name, float(count)) for name, count in zip(names, accumulate(self.counts), strict=True)]
