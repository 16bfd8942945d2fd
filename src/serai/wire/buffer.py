"""Bytes on their way: what a peer has sent so far, and pieces of an answer that stay where they are.

    read ──► Inbox.joined(read) ──► a view of whole frames, and of the beginning of one more
                    ▲                        │
                    └── Inbox.keep(rest) ◄───┘

Invariants
- a read that begins and ends with a frame is never copied
- a peer's claim about a length allocates nothing: the inbox grows by bytes that came
- a view stays valid as long as somebody holds it: kept bytes are handed out whole and never written again

Left to others: where a frame ends (the connection), the sockets (the gate).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from serai.errors import PeerError


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a mapped page, or of any bytes, that goes to the socket from where it lies."""

    view: memoryview

    def __len__(self) -> int:
        return self.view.nbytes


Piece: TypeAlias = "bytes | Span"


def joined(pieces: list[Piece]) -> list[Piece]:
    """The same bytes in fewer pieces: neighbouring small ones become one, spans stay."""
    whole: list[Piece] = []
    run: list[bytes] = []
    for piece in pieces:
        if isinstance(piece, Span):
            if run:
                whole.append(b"".join(run))
                run = []
            whole.append(piece)
        else:
            run.append(piece)
    if run:
        whole.append(b"".join(run))
    return whole


def flat(pieces: list[Piece]) -> bytes:
    """All of it as bytes."""
    return b"".join(bytes(piece.view) if isinstance(piece, Span) else piece for piece in pieces)


class Inbox:
    """The beginning of a frame whose end has not come."""

    def __init__(self, bytes_max: int) -> None:
        self._held = bytearray()
        self._bytes_max = bytes_max
        self._needed = 0

    def __len__(self) -> int:
        return len(self._held)

    def joined(self, data: bytes | memoryview) -> memoryview | None:
        """What is held and then the data; None while less than the next frame needs is there."""
        if not self._held:
            view = memoryview(data).cast("B")
            if len(view) < self._needed:
                self._held += view
                return None
            return view
        self._held += data
        if len(self._held) < self._needed:
            return None
        whole = memoryview(self._held)
        self._held = bytearray()
        return whole

    def keep(self, rest: memoryview, needed: int) -> None:
        """Keeps the bytes behind the last whole frame until `needed` of them are there."""
        assert not self._held, "what was kept has not been taken out"
        if needed > self._bytes_max:
            raise PeerError(f"a frame of {needed} bytes is larger than the limit of {self._bytes_max}")
        self._needed = needed
        self._held += rest
