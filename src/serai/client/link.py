"""One connection without I/O: calls go out, answers come in, each call ends in exactly one way.

    ask ──► Pending ──► an answer                       `reply`
       │       ├──────► the time is over                `error` OutcomeUnknown: nobody knows what became of it
       ▼       └──────► the connection broke            `error` OutcomeUnknown, or Unreachable if it was never sent
      out  ──► the socket's owner takes pieces away and says `sent`

Invariants
- a call ends once; `then` is called at that moment, by whoever brought the end about
- an answer that comes after its call's time is over is dropped
- a link that broke stays broken; a new connection is a new link

Left to others: sockets and clocks (sync, aio), connecting again (line).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.client.refusals import failure
from serai.doors.jmq.connection import Call, Connection, Reply, Role
from serai.doors.jmq.schema.frame import HOUSE
from serai.doors.jmq.schema.numbers import ONE_WAY
from serai.errors import OutcomeUnknown, SeraiError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai.doors.jmq.schema.commands import Command
    from serai.wire.buffer import Piece
    from serai.wire.layout import Layout

NEVER_S = float("inf")
ANSWERED, UNANSWERED = 1, ONE_WAY[HOUSE.dialect]  # the quality in a frame's head


class Pending:
    """A call that has not ended, or how it ended."""

    __slots__ = ("command", "deadline_s", "done", "error", "reply", "then")

    def __init__(self, command: Command, deadline_s: float, then: Callable[[Pending], None] | None = None) -> None:
        self.command = command
        self.deadline_s = deadline_s
        self.then = then
        self.done = False
        self.reply: Reply | None = None
        self.error: SeraiError | None = None

    def end(self, *, reply: Reply | None = None, error: SeraiError | None = None) -> None:
        """It ended; only the first end counts."""
        if self.done:
            return
        self.done, self.reply, self.error = True, reply, error
        if self.then is not None:
            self.then(self)

    def body(self) -> Layout | None:
        """The answer's payload; an error if there is none because something failed."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None, "the call has not ended"
        if self.reply.status:
            raise failure(self.reply.status, f"do {type(self.command).__name__}", self.reply.error)
        return self.reply.body


class Link:
    """One connection to a server."""

    def __init__(self) -> None:
        self._wire = Connection(Role.CLIENT, form=HOUSE)
        self._open: dict[int, Pending] = {}
        self._next_id = 0
        self.out: list[Piece] = []
        self.fault: SeraiError | None = None

    @property
    def open_count(self) -> int:
        """Calls that have not ended."""
        return len(self._open)

    @property
    def next_s(self) -> float:
        """When the first of them is over."""
        return min((pending.deadline_s for pending in self._open.values()), default=NEVER_S)

    def ask(
        self, command: Command, *, now_ms: int, deadline_s: float, quality: int = ANSWERED,
        then: Callable[[Pending], None] | None = None,
    ) -> Pending:  # fmt: skip
        """Send a command; one that wants no answer has ended at once."""
        pending = Pending(command, deadline_s, then)
        if self.fault is not None:
            pending.end(error=Unreachable(f"the connection is gone: {self.fault}"))
            return pending
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        self.out += self._wire.send(Call(command, self._next_id, now_ms, quality))
        if quality == UNANSWERED:
            pending.end()
        else:
            self._open[self._next_id] = pending
        return pending

    def receive(self, data: bytes | memoryview) -> None:
        """What the server sent; the link breaks if that cannot be meant."""
        try:
            for reply in self._wire.receive(data):
                assert isinstance(reply, Reply)
                pending = self._open.pop(reply.head.request_id, None)
                if pending is not None:
                    pending.end(reply=reply)
        except SeraiError as error:
            self.lose(error)
            return
        if self._wire.fault is not None:
            self.lose(self._wire.fault)

    def lose(self, why: SeraiError) -> None:
        """The connection broke: what was asked may have been done, or not."""
        if self.fault is not None:
            return
        self.fault = why
        self.out.clear()
        lost, self._open = self._open, {}
        for pending in lost.values():
            pending.end(error=OutcomeUnknown(f"{why}; {type(pending.command).__name__} may have been done, or not"))

    def expire(self, now_s: float) -> None:
        """End the calls whose time is over."""
        for number, pending in list(self._open.items()):
            if pending.deadline_s <= now_s:
                del self._open[number]
                name = type(pending.command).__name__
                pending.end(error=OutcomeUnknown(f"no answer to {name} in time; it may have been done, or not"))
