"""Sets of messages as a kind: they stay bytes, and are walked by the compiled core only.

    counted   | count | message | message | ...        not counted   | bytes | message | message | ...

Invariants
- no object is made for a message
- what came in is a view of what was read, what goes out are spans of where it is stored
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serai._core import frames
from serai.wire.buffer import Span, flat
from serai.wire.layout import Fixed, Form, Kind, Malformed, Truncated

if TYPE_CHECKING:
    from serai.wire.buffer import Piece
    from serai.wire.layout import Decoding, Encoding


@dataclass(slots=True, eq=False)
class Messages:
    """A set of messages in pieces, how many entries it is, and their dress; `entries` when they were read."""

    pieces: list[Piece]
    count: int
    dress: int
    entries: frames.Entries | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Messages) and (self.count, flat(self.pieces)) == (other.count, flat(other.pieces))

    __hash__ = None  # type: ignore[assignment]  # pieces may be added


@dataclass(frozen=True)
class MessageKind(Kind):
    """Messages end to end behind their count, or behind their bytes."""

    name: str
    length: Fixed
    dress: int
    counted: bool

    def bytes_min(self, form: Form) -> int:
        return self.length.bytes_min(form)

    def decode(self, code: Decoding, target: str, _form: Form) -> None:
        size = code.fresh()
        code.fixed(size, self.length)
        taken = code.name(counted if self.counted else sized)
        code.line(f"{target}, at = {taken}(data, at, max({size}, 0), {self.dress})")

    def encode(self, code: Encoding, value: str, _form: Form) -> None:
        length = f"{value}.count" if self.counted else f"sum(map(len, {value}.pieces))"
        code.fixed(length, self.length)
        code.line(f"for piece in {value}.pieces: put(piece)")


def counted(data: memoryview, at: int, count: int, dress: int) -> tuple[Messages, int]:
    """So many messages from a byte on, and where they end."""
    try:
        found, at = frames.entries_of(data, dress, start=at, entries=count)
    except EOFError as error:
        raise Truncated(f"a message is cut: {error}") from None
    except ValueError as error:
        raise Malformed(f"a message is broken: {error}") from None
    return Messages([Span(memoryview(found.data))], found.entries, found.dress, found), at


def sized(data: memoryview, at: int, size: int, dress: int) -> tuple[Messages, int]:
    """The messages in so many bytes from a byte on, and where they end."""
    if size > len(data) - at:
        raise Truncated(f"byte {at}: messages of {size} bytes, {len(data) - at} are there")
    try:
        found, at = frames.entries_of(data[: at + size], dress, start=at)
    except EOFError as error:
        raise Malformed(f"a message is cut: {error}") from None
    except ValueError as error:
        raise Malformed(f"a message is broken: {error}") from None
    return Messages([Span(memoryview(found.data))], found.entries, found.dress, found), at
