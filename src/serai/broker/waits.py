"""Parked requests: what cannot be answered yet, and what wakes it.

    Wait          one parked request.  The broker finishes it, `turn` hands it over, its asker takes `result()`
    Lot           where they are parked
      flushing    log     -> tickets that wait for the disk, in the order of their ordinals
      deadlines   time    -> what happens then: waits end, groups are looked at again
      finished    waits that `turn` will hand over

Deadlines are kept in buckets of 8 ms, so that adding and taking away cost one dictionary entry each: nearly every
wait ends before its deadline.  A deadline is kept at most 8 ms late, never early.

Invariants
- a wait is finished once, and handed over once
- the tickets of a log are looked at from the oldest on: one that is not done hides no other that is
- a wait whose session left, or that was dropped, is never handed over
- nothing is parked beyond the bounds of `limits`: one more is refused

Left to others: which groups have who waiting (`groups`), what a wait asks for (`delivery`, `desk`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from serai import limits
from serai.errors import Refused

if TYPE_CHECKING:
    from serai.broker.sessions import Session
    from serai.log.engine import Ticket

T = TypeVar("T")
BUCKET_BITS = 3
NEVER_MS = 1 << 62


class Wait(Generic[T]):
    """A request that is parked until the broker finishes it."""

    __slots__ = (
        "_error",
        "_result",
        "deadline_ms",
        "done",
        "dropped",
        "missing",
        "queue",
        "session",
        "since",
        "timed_out",
        "token",
    )

    def __init__(self, session: Session | None, deadline_ms: int, late: T | None = None) -> None:
        self.session = session
        self.deadline_ms = deadline_ms
        self.token: Any = None  # the asker's own
        self.since = 0.0  # the asker's own too: when it began to wait, if that is measured
        self.done = False
        self.dropped = False
        self.timed_out = False
        self.missing = 0  # logs that still have to reach this wait's tickets
        self.queue: dict[Wait[Any], Any] | None = None  # the pollers of a group or the readers of a partition
        self._result = late  # what the answer is when the time is over
        self._error: Exception | None = None

    def result(self) -> T:
        """The answer, or the refusal, of a finished wait."""
        assert self.done, "a parked wait has no result yet"
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # T may itself be optional

    def answer(self, result: T) -> None:
        """Finish with a result; `Lot.finish` does it."""
        self._result = result

    def refuse(self, error: Exception) -> None:
        """Finish with an error; `Lot.fail` does it."""
        self._error = error


class Deadlines:
    """Things and the times at which they are due, in buckets."""

    __slots__ = ("_buckets", "_ticks")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[Hashable, None]] = {}
        self._ticks: list[int] = []

    @property
    def next_ms(self) -> int:
        """When something is due at the latest."""
        return self._ticks[0] << BUCKET_BITS if self._ticks else NEVER_MS

    def add(self, due_ms: int, thing: Hashable) -> None:
        """Remember that something is due."""
        tick = (due_ms + (1 << BUCKET_BITS) - 1) >> BUCKET_BITS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
        bucket[thing] = None

    def remove(self, due_ms: int, thing: Hashable) -> None:
        """Forget it; nothing happens if it is not there."""
        bucket = self._buckets.get((due_ms + (1 << BUCKET_BITS) - 1) >> BUCKET_BITS)
        if bucket is not None:
            bucket.pop(thing, None)

    def due(self, now_ms: int) -> list[Hashable]:
        """Take everything that is due by now, oldest bucket first."""
        things: list[Hashable] = []
        while self._ticks and self._ticks[0] << BUCKET_BITS <= now_ms:
            things += self._buckets.pop(heappop(self._ticks))
        return things


class Lot:
    """Where waits are parked."""

    __slots__ = ("count", "deadlines", "finished", "flushing", "noted")

    def __init__(self) -> None:
        self.count = 0
        self.deadlines = Deadlines()
        self.finished: list[Wait[Any]] = []
        self.flushing: dict[object, deque[tuple[Ticket, Wait[Any]]]] = {}
        self.noted: list[Wait[Any]] = []  # the first that was parked for tickets since somebody took it from here

    def park(self, wait: Wait[Any]) -> None:
        """Take a wait in, unless too many wait already."""
        session = wait.session
        if self.count >= limits.WAITS_MAX or (session is not None and len(session.waits) >= limits.WAITS_SESSION_MAX):
            whose = "this connection" if self.count < limits.WAITS_MAX else "all connections"
            raise Refused(
                f"{whose} together have as many parked requests as are allowed; take answers before asking for more",
                code="too-many-waiting",
            )
        self.count += 1
        if session is not None:
            session.waits[wait] = None
        if wait.deadline_ms < NEVER_MS:
            self.deadlines.add(wait.deadline_ms, wait)

    def park_tickets(self, wait: Wait[Any], tickets: Iterable[Ticket]) -> None:
        """Take in a wait for tickets; with all of them done it is finished at once."""
        self.park(wait)
        last = {ticket.log: ticket for ticket in tickets if not ticket.done and ticket.failed is None}
        for log, ticket in last.items():
            queue = self.flushing.get(log)
            if queue is None:
                queue = self.flushing[log] = deque()
            queue.append((ticket, wait))
        wait.missing = len(last)
        if not last:
            self._end(wait)
        elif not self.noted:
            self.noted.append(wait)

    def flushed(self, log: object) -> None:
        """The committed position of a log moved, or the log failed."""
        queue = self.flushing.get(log)
        if queue is None:
            return
        while queue:
            ticket, wait = queue[0]
            if not wait.done and not ticket.done and ticket.failed is None:
                return
            queue.popleft()
            if not wait.done:
                wait.missing -= 1
                if not wait.missing:
                    self._end(wait)
        del self.flushing[log]

    def abandon(self, log: object) -> None:
        """Nobody will say more about a log: what waits for it is handed over as it is."""
        for _, wait in self.flushing.pop(log, ()):
            if not wait.done:
                self._end(wait)

    def finish(self, wait: Wait[T], result: T) -> None:
        """Answer a wait; `turn` hands it over."""
        if not wait.done:
            wait.answer(result)
            self._end(wait)

    def fail(self, wait: Wait[Any], error: Exception) -> None:
        """Answer a wait with an error."""
        if not wait.done:
            wait.refuse(error)
            self._end(wait)

    def drop(self, wait: Wait[Any]) -> None:
        """Forget a wait: its asker is gone."""
        wait.dropped = True
        if not wait.done:
            self._take(wait)

    def end_late(self, wait: Wait[Any]) -> None:
        """The time of a wait is over."""
        if not wait.done:
            wait.timed_out = True
            self._end(wait)

    def hand_over(self) -> list[Wait[Any]]:
        """Take the finished waits, in the order in which they ended."""
        finished = self.finished
        if not finished:
            return []
        self.finished = []
        return [wait for wait in finished if not wait.dropped and (wait.session is None or not wait.session.gone)]

    def _end(self, wait: Wait[Any]) -> None:
        self._take(wait)
        self.finished.append(wait)

    def _take(self, wait: Wait[Any]) -> None:
        wait.done = True
        self.count -= 1
        if wait.deadline_ms < NEVER_MS:
            self.deadlines.remove(wait.deadline_ms, wait)
        if wait.session is not None:
            wait.session.waits.pop(wait, None)
        if wait.queue is not None:
            wait.queue.pop(wait, None)
