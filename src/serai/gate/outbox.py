"""Answers on their way out of one socket: gathered, sent from where they lie, counted.

    put(pieces) ... put(pieces) -> flush: one call of the kernel for all of them, as far as the peer takes it

Small answers are joined into one piece, which costs less than a list of addresses; large ones go from the mapped page to the
kernel without a copy in between.

Invariants
- bytes leave in the order in which they were put
- `size` is what was put and not taken by the kernel yet

Left to others: when to flush and when to give up (session).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from serai import limits
from serai.wire.buffer import Span

if TYPE_CHECKING:
    import socket

    from serai.wire.buffer import Piece

VECTOR_MAX = 512  # pieces in one call of the kernel, which takes 1024


class Outbox:
    """What one guest has been answered and has not taken yet."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.size = 0

    def put(self, pieces: list[Piece]) -> None:
        """Add answers at the end."""
        for piece in pieces:
            data = piece.view if isinstance(piece, Span) else piece
            if len(data):
                self._pieces.append(data)
                self.size += len(data)

    def flush(self, sock: socket.socket) -> None:
        """Send until everything is gone or the peer takes no more; OSError when the connection is broken."""
        pieces = self._pieces
        while pieces:
            try:
                if len(pieces) == 1:
                    sent = sock.send(pieces[0])
                elif self.size <= limits.GATHER_BYTES:
                    sent = sock.send(self._gathered())
                else:
                    sent = sock.sendmsg([pieces[at] for at in range(min(len(pieces), VECTOR_MAX))])
            except (BlockingIOError, InterruptedError):
                return
            self._taken(sent)

    def clear(self) -> None:
        """Forget it all: the guest is gone."""
        self._pieces.clear()
        self.size = 0

    def _gathered(self) -> bytes:
        joined = b"".join(self._pieces)
        self._pieces.clear()
        self._pieces.append(joined)
        return joined

    def _taken(self, count: int) -> None:
        self.size -= count
        pieces = self._pieces
        while count:
            length = len(pieces[0])
            if count < length:
                pieces[0] = memoryview(pieces[0])[count:]
                return
            pieces.popleft()
            count -= length
