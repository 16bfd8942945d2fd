"""Who is it?  The first bytes of a connection choose its door, once.

    first byte      and then                                     door
    16              (TLS, then the table again inside)           TLS
    A..Z a..z                                                    HTTP: console, and every door that speaks it
    88 to 8B, 82 84                                              Z link, WebSocket frames without a handshake
    00 to 06        bytes 4 to 7 `cafebebe`                      JMQ        (15 bytes decide)
    00 to 06        a size that holds a key, and bytes 4 and 5   Jafka      (6 bytes decide)
                    a key from 0 to 6

No two rows fit the same bytes: a letter, or any of the other first bytes, in front of a length would be a frame above
the limit of 100 MiB.

Invariants
- the answer does not depend on how the bytes were cut into reads: it is asked for anew with all of them
- at most `FIRST_BYTES_MAX` bytes are ever needed

Left to others: how long a guest may take (session), what is served (server).
"""

from __future__ import annotations

from enum import Enum

from serai import limits
from serai.errors import PeerError

FIRST_BYTES_MAX = 15
Z_OPCODES = frozenset((0x82, 0x84, 0x88, 0x89, 0x8A, 0x8B))
JAFKA_KEYS = range(7)
JAFKA_SIZE_MIN = 2  # a request holds its key at least


class Door(Enum):
    """Who is served how."""

    HTTP = "http"
    JMQ = "jmq"
    JAFKA = "jafka"
    Z = "z"
    TLS = "tls"


def sniff(first: bytes) -> Door | None:
    """The door for these first bytes; None when more are needed; PeerError when no door speaks like that."""
    if not first:
        return None
    front = first[0]
    if front == 0x16:
        return Door.TLS
    if 0x41 <= front <= 0x5A or 0x61 <= front <= 0x7A:
        return Door.HTTP
    if front in Z_OPCODES:
        return Door.Z
    too_long = front > limits.FRAME_BYTES_MAX >> 24  # as the highest byte of a length
    fits = {} if too_long else {Door.JMQ: _is_jmq(first), Door.JAFKA: _is_jafka(first)}
    for door, fit in fits.items():
        if fit:
            return door
    if None in fits.values():
        return None
    raise PeerError(
        f"no door speaks like this: the first bytes are {first[:FIRST_BYTES_MAX].hex(' ')}; HTTP begins with a letter, JMQ has"
        " cafebebe at byte 4"
    )


def _is_jmq(first: bytes) -> bool | None:
    from serai.doors.jmq.connection import recognise  # a third of a server's start, so not before it is needed

    return recognise(first)


def _is_jafka(first: bytes) -> bool | None:
    if len(first) >= 4:
        size = int.from_bytes(first[:4], "big", signed=True)
        if not JAFKA_SIZE_MIN <= size <= limits.FRAME_BYTES_MAX:
            return False
    if len(first) >= 5 and first[4]:
        return False
    if len(first) < 6:
        return None
    return first[5] in JAFKA_KEYS
