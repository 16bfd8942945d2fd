"""Staying awake for guests that answer at once.

    turn ends ──► the loop polls without sleeping for `AWAKE_NS` ──► somebody spoke: worth it, again next time
                                                                └──► nobody did: worth less

A guest that sends one request, waits for its answer and sends the next speaks again within microseconds.  A processor that
went to sleep meanwhile is woken slowly, in a virtual machine in 20 to 50 us; that is more than the request costs, and takes as
much processor time as polling does (`make bench-broker`: one at a time).  Nobody else waits for it: the loop polls all
sockets as it always does.

Invariants
- what is spent in vain is bounded: `CREDIT_MAX` vigils in a row, then one in `TURNS_A_TRIAL` turns
- while somebody waits for the disk the loop sleeps: the flush thread needs the interpreter
- without guests that speak the loop sleeps; its own turn of every second tries as rarely as any other in vain
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

AWAKE_NS = 60_000  # longer than a guest that was asleep itself takes to answer
CREDIT_MAX = 8
TURNS_A_TRIAL = 32


class Vigil:
    """Whether the loop sleeps after a turn."""

    __slots__ = ("_credit", "_keeping", "_loop", "_turns", "_until_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._credit = CREDIT_MAX
        self._keeping = False
        self._turns = 0  # without a vigil
        self._until_ns = 0

    def keep(self) -> None:
        """A turn is over: stay awake if that was worth it lately."""
        if self._keeping:  # somebody spoke in time
            self._until_ns = time.monotonic_ns() + AWAKE_NS
            if self._credit < CREDIT_MAX:
                self._credit += 1
            return
        if not self._credit:
            self._turns += 1
            if self._turns < TURNS_A_TRIAL:
                return
            self._turns = 0
            self._credit = 1
        self._keeping = True
        self._until_ns = time.monotonic_ns() + AWAKE_NS
        self._loop.call_soon(self._look)

    def end(self) -> None:
        """Sleep from now on, whatever it was worth."""
        self._until_ns = 0

    def _look(self) -> None:
        """Once around the loop, which has looked at all sockets on its way here."""
        if time.monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._look)
            return
        self._keeping = False
        if self._until_ns:
            self._credit -= 1
