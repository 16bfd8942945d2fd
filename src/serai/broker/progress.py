"""How far a group is in a partition: one position, acknowledged ranges in front of it, how often what was delivered.

    ordinals   ... 90 91 92 93 94 95 96 97 98 99 ...
                   ^position       [acked]
                   [tried twice][tried once    ]

Everything below the position is done; so are the acknowledged ranges; the rest is to be delivered (again).
As bytes, which is how it survives, big endian:

     0  1  version, 1
     1  8  epoch of the writer
     9  8  position
    17  2  number of acknowledged ranges
    19  2  number of tried ranges
    21     acknowledged ranges (start 8, stop 8), then tried ranges (start 8, stop 8, times 4)

Invariants
- ranges are ascending, disjoint, not empty; acknowledged ones lie behind the position and do not touch it
- the position never goes back, except by `move`, which is somebody's wish
- acknowledging twice changes nothing
- the lists are never changed in place, so that `put_back` can undo a step that could not be written down

Left to others: when to write it down and who holds the lease (`groups`).
"""

from __future__ import annotations

import struct

from serai import limits
from serai.errors import Refused

HEAD = struct.Struct(">BQqHH")
RANGE = struct.Struct(">qq")
TRIED = struct.Struct(">qqI")
VERSION = 1
TIMES_MAX = (1 << 32) - 1
Kept = tuple[int, list[tuple[int, int]], list[tuple[int, int, int]]]


class Progress:
    """Where a group stands in one partition."""

    __slots__ = ("acked", "position", "tried")

    def __init__(self, position: int) -> None:
        self.position = position
        self.acked: list[tuple[int, int]] = []
        self.tried: list[tuple[int, int, int]] = []

    @property
    def barrier(self) -> int:
        """The first ordinal behind the position that is acknowledged already, -1 when none is."""
        return self.acked[0][0] if self.acked else -1

    def deliver(self, start: int, stop: int) -> int:
        """Count one delivery of start..stop; how often its first message was delivered by now."""
        assert start < stop
        tried = self.tried
        if not tried:
            self.tried = [(start, stop, 1)]
            return 1
        if len(tried) == 1 and tried[0][0] == start and tried[0][1] == stop:
            times = min(tried[0][2] + 1, TIMES_MAX)
            self.tried = [(start, stop, times)]
            return times
        self.tried = _counted(tried, start, stop)
        return next(times for low, high, times in self.tried if low <= start < high)

    def advance(self, to: int) -> None:
        """Everything below `to` is done."""
        if to <= self.position:
            return
        self.position = to
        if self.acked:
            for start, stop in self.acked:
                if start <= self.position < stop:
                    self.position = stop
            self.acked = [each for each in self.acked if each[0] > self.position]
        if self.tried:
            self.tried = [
                (max(start, self.position), stop, times) for start, stop, times in self.tried if stop > self.position
            ]

    def settle(self, start: int, stop: int) -> None:
        """These are done, whatever is before them."""
        start = max(start, self.position)
        if start >= stop:
            return
        if start == self.position:
            self.advance(stop)
            return
        merged = []
        for low, high in self.acked:
            if high < start or low > stop:
                merged.append((low, high))
            else:
                start, stop = min(low, start), max(high, stop)
        if len(merged) >= limits.ACKED_RANGES_MAX:
            raise Refused(
                f"{len(merged)} acknowledged ranges wait behind ordinal {self.position}, the most that are kept;"
                " acknowledge that one first",
                code="limit-reached",
            )
        merged.append((start, stop))
        self.acked = sorted(merged)

    def move(self, to: int) -> None:
        """Begin anew at `to`, forwards or back."""
        self.position = to
        self.acked = []
        self.tried = []

    def kept(self) -> Kept:
        """What `put_back` needs to undo what comes now."""
        return self.position, self.acked, self.tried

    def put_back(self, kept: Kept) -> None:
        """Be as before."""
        self.position, self.acked, self.tried = kept

    def clip(self, end: int) -> None:
        """Forget what was never stored: a power cut took messages that nobody was promised."""
        self.position = min(self.position, end)
        self.acked = [(start, min(stop, end)) for start, stop in self.acked if start < end]
        self.tried = [(start, min(stop, end), times) for start, stop, times in self.tried if start < end]

    def encode(self, epoch: int) -> bytes:
        """As it is written down."""
        acked, tried = self.acked, self.tried
        if not acked and len(tried) < 2:
            head = HEAD.pack(VERSION, epoch, self.position, 0, len(tried))
            return head + TRIED.pack(*tried[0]) if tried else head
        parts = [HEAD.pack(VERSION, epoch, self.position, len(acked), len(tried))]
        parts += [RANGE.pack(*each) for each in acked]
        parts += [TRIED.pack(*each) for each in tried]
        return b"".join(parts)


def decode(data: bytes) -> tuple[Progress, int]:
    """What was written down, and the epoch of who wrote it; ValueError if it cannot be right."""
    if len(data) < HEAD.size:
        raise ValueError(f"a position has {len(data)} bytes, at least {HEAD.size} are needed")
    version, epoch, position, acked, tried = HEAD.unpack_from(data)
    ends = HEAD.size + acked * RANGE.size
    if version != VERSION or len(data) != ends + tried * TRIED.size:
        raise ValueError(f"a position of version {version} with {len(data)} bytes cannot be read")
    progress = Progress(position)
    progress.acked = [RANGE.unpack_from(data, HEAD.size + each * RANGE.size) for each in range(acked)]
    progress.tried = [TRIED.unpack_from(data, ends + each * TRIED.size) for each in range(tried)]
    return progress, epoch


def _counted(tried: list[tuple[int, int, int]], start: int, stop: int) -> list[tuple[int, int, int]]:
    """The tried ranges after one more delivery of start..stop, neighbours that are alike joined."""
    pieces: list[tuple[int, int, int]] = []
    at = start
    for low, high, times in tried:
        if high <= start or low >= stop:
            pieces.append((low, high, times))
            continue
        if low < start:
            pieces.append((low, start, times))
        if at < low:
            pieces.append((at, low, 1))
        pieces.append((max(low, start), min(high, stop), min(times + 1, TIMES_MAX)))
        if high > stop:
            pieces.append((stop, high, times))
        at = min(high, stop)
    if at < stop:
        pieces.append((at, stop, 1))
    joined: list[tuple[int, int, int]] = []
    for piece in sorted(pieces):
        if joined and joined[-1][1] == piece[0] and joined[-1][2] == piece[2]:
            joined[-1] = (joined[-1][0], piece[1], piece[2])
        else:
            joined.append(piece)
    return joined
