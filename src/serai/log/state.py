"""State as a log: keys and values, the last value wins, rebuilt by reading.

    house messages: key = the key, body = the value; flag 1 = the key is gone

When a page of the log is full, everything that is alive is written once more, as one set, and the pages before it are
given up: so the log stays as long as its content, and a start reads little.

Invariants
- what `get` gives is what a start after a crash at this instant would give, or newer
- a snapshot is on the disk before what it replaces goes
- `put_many` is all or nothing
"""

import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from serai._core.entries import HOUSE
from serai.errors import DiskFull, Misuse
from serai.log.engine import Level, Ticket
from serai.log.partition import Partition
from serai.log.retention import Retention
from serai.log.view import Reading

_HEAD = struct.Struct("<IBbHq")  # length, attributes, priority, flag, send time: a house message
_HAS_KEY = 8
_GONE = 1
_READ_BYTES = 1 << 20
_NOTHING_OLD = Retention(bytes_max=0, keep_unconsumed=True)


def message(key: bytes, value: bytes | None) -> bytes:
    """A key and its value as a house message; None says that the key is gone."""
    if not 0 < len(key) <= 0xFFFF:
        raise Misuse(f"a state key has 1 to 65535 bytes, not {len(key)}")
    body = value or b""
    size = _HEAD.size + 2 + len(key) + len(body)
    head = _HEAD.pack(size, _HAS_KEY, 0, _GONE if value is None else 0, 0)
    return b"".join((head, len(key).to_bytes(2, "little"), key, body))


def contents(log: Reading) -> dict[bytes, bytes]:
    """Every key and its last value, as far as the log goes now."""
    values: dict[bytes, bytes] = {}
    ordinal = log.first
    while spans := log.spans(ordinal, bytes_max=_READ_BYTES):
        for span in spans:
            for key, value in pairs(bytes(span.data)):
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
            ordinal = span.ordinal + span.count
    return values


def pairs(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of a set of messages, in order; None says that the key is gone."""
    at = 0
    while at < len(data):
        size, _attributes, _priority, flag, _time = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + 2 + int.from_bytes(data[at + _HEAD.size : at + _HEAD.size + 2], "little")
        yield data[at + _HEAD.size + 2 : body], None if flag & _GONE else data[body : at + size]
        at += size


class State:
    """A keyed state log; one thread uses it."""

    def __init__(self, log: Partition) -> None:
        self.log = log
        self._values = contents(log)
        self._page = self._page_now()

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self._values.items()))

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: bytes, value: bytes | None, *, level: Level) -> Ticket:
        """Sets a key, or removes it with None."""
        return self._store(message(key, value), ((key, value),), level)

    def put_many(self, pairs: Iterable[tuple[bytes, bytes | None]], *, level: Level) -> Ticket:
        """Sets many keys: after a crash all of them, or none."""
        pairs = list(pairs)
        return self._store(b"".join([message(key, value) for key, value in pairs]), pairs, level)

    def _store(self, data: bytes, pairs: Iterable[tuple[bytes, bytes | None]], level: Level) -> Ticket:
        ticket = self.log.append(data, HOUSE, level=level, now_ms=int(time.time() * 1000))
        for key, value in pairs:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        if self._page_now() != self._page:
            with suppress(DiskFull):  # what was put is stored; the next put tries it again
                self._snapshot()
        return ticket

    def _page_now(self) -> int:
        return self.log.data_end // self.log.folder.page_bytes

    def _snapshot(self) -> None:
        """Writes everything that is alive once more and gives up what came before."""
        start = self.log.end
        data = b"".join([message(key, value) for key, value in self._values.items()])
        if data:
            self.log.append(data, HOUSE, level=Level.RECEIVE, now_ms=int(time.time() * 1000))
        self.log.commit()
        self.log.retain(_NOTHING_OLD, now_ms=0, unconsumed_from=start)
        self._page = self._page_now()
