"""Milliseconds since 1970 that never step back: the wall's time at the start, and the monotonic clock from there on.

A wall clock that is set while the server runs moves neither leases nor deadlines.  Store times drift from the wall by
what was set; the next start reads it again.
"""

import time


class Clock:
    """The one clock of a server."""

    __slots__ = ("_anchor_ns",)

    def __init__(self) -> None:
        self._anchor_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        """What the broker is told."""
        return (self._anchor_ns + time.monotonic_ns()) // 1_000_000
