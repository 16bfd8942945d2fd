"""Bytes on their way: what a peer has sent so far, and pieces of an answer that stay where they are.

    read ──► Inbox.joined(read) ──► a view of whole frames, and of the beginning of one more
                    ▲                        │
                    └── Inbox.keep(rest) ◄───┘

Invariants
- a read that begins and ends with a frame is never copied
- a peer's claim about a length allocates nothing: the inbox grows by bytes that came
- a view stays valid as long as somebody holds it: kept bytes are handed out whole, and not written again before it is gone
- an inbox that holds nothing has no store; a few wait on a shelf for all of them

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


NOTHING = bytearray()  # never written: it has no room
LARGE_BYTES = 1 << 16  # a store from here on is used again
SHELVED_BYTES_MAX = 1 << 21
SHELVED_MAX = 4
_shelf: list[bytearray] = []  # stores that no inbox has, of the whole process

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
    """The beginning of a frame whose end has not come.

    Two stores take turns: while what one of them held is being handled, the rest of it goes to the other.
    """

    def __init__(self, bytes_max: int) -> None:
        self._store = self._spare = NOTHING
        self._size = 0  # of what is held, at the beginning of the store
        self._bytes_max = bytes_max
        self._needed = 0

    def __len__(self) -> int:
        return self._size

    def space(self, count: int) -> memoryview | None:
        """So many bytes right behind what is held: what is read into them need not be copied; None if little is held."""
        if self._size * 4 < count:
            return None
        self._make_room(count)
        return memoryview(self._store)[self._size : self._size + count]

    def joined(self, data: bytes | memoryview) -> memoryview | None:
        """What is held and then the data; None while less than the next frame needs is there."""
        if not self._size:
            view = memoryview(data).cast("B")
            if len(view) < self._needed:
                self._put(view)
                return None
            return view
        self._put(data)
        if self._size < self._needed:
            return None
        whole = memoryview(self._store)[: self._size]
        self._store, self._spare, self._size = self._spare, self._store, 0
        return whole

    def keep(self, rest: memoryview, needed: int) -> None:
        """Keeps the bytes behind the last whole frame until `needed` of them are there."""
        assert not self._size, "what was kept has not been taken out"
        if needed > self._bytes_max:
            raise PeerError(f"a frame of {needed} bytes is larger than the limit of {self._bytes_max}")
        self._needed = needed
        if len(rest):
            self._put(rest)
        elif self._store is not NOTHING or self._spare is not NOTHING:
            give_up(self._store)
            give_up(self._spare)
            self._store = self._spare = NOTHING

    def _put(self, data: bytes | memoryview) -> None:
        size = len(data)
        if not (isinstance(data, memoryview) and data.obj is self._store):  # else it was read into `space`
            self._make_room(size)
            self._store[self._size : self._size + size] = data
        self._size += size

    def _make_room(self, count: int) -> None:
        """A store that nobody looks at, with so many bytes behind what is held."""
        store, needed = self._store, self._size + count
        if len(store) >= needed and (self._size or is_free(store)):
            return
        self._store = store_of(needed)
        self._store[: self._size] = memoryview(store)[: self._size]


# ---- stores: memory that is fresh at every read costs more than what is read into it


def store_of(needed: int) -> bytearray:
    """A store for so many bytes, large ones with room for more: four times as much at most."""
    for at, store in enumerate(_shelf):
        if len(store) >= needed and is_free(store):
            return _shelf.pop(at)
    if needed < LARGE_BYTES:
        return bytearray(needed)
    return bytearray(needed + max(min(3 * needed, SHELVED_BYTES_MAX // 2), needed // 2))


def give_up(store: bytearray) -> None:
    """Let it go, or keep it for the next one; somebody may still look at it."""
    if LARGE_BYTES <= len(store) <= SHELVED_BYTES_MAX and len(_shelf) < SHELVED_MAX:
        _shelf.append(store)


def is_free(store: bytearray) -> bool:
    """Whether nobody looks at its bytes: only then its length may change."""
    try:
        store.append(store.pop())
    except (BufferError, IndexError):
        return not store
    return True
