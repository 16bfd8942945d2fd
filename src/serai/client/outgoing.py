"""What a producer has on its way: messages gathered into requests, requests sent in order, their outcomes.

    add ──► open parcel ──► ready ──► on its way ──► stored: partition and index
             │ full, or     ▲             ├──────► surely not stored: ready again, in its old place
             │ lingered     └─────────────┤
             └ somebody waits for it      └──────► OutcomeUnknown, or refused for good

A list given at once is one request: stored together or not at all.  Messages with a key go to the partition that the key's
CRC-32C names, as the Spark sink sends them; others to a partition that the server chooses, request by request.

Invariants
- requests are sent in the order in which their first message was added; one that is tried again goes alone, so only what was
  on its way together with it can be stored before it
- bytes of messages that have no outcome are counted; `has_room` is false above the window
- a request that may have been stored is never sent again

Left to others: waiting for room and for outcomes (sync, aio).
"""

from __future__ import annotations

import struct
import time
import zlib
from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serai import limits
from serai._core.crc import crc32c
from serai._core.parcels import Parcel
from serai.client.line import Nap
from serai.client.link import ANSWERED, UNANSWERED, Link, Pending
from serai.client.refusals import NOT_STORED, failure
from serai.doors.jmq.schema.commands import ANY_PARTITION, Placed, Produced, ProduceMessage, ProduceMessageAck
from serai.doors.jmq.schema.frame import DRESSES
from serai.errors import Misuse, Refused, SeraiError, TooLarge, Unreachable
from serai.wire.buffer import Span
from serai.wire.sets import Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Buffer

    from serai.client.line import Line, Step

    Headers = Mapping[str, str | bytes] | Sequence[tuple[str | bytes, str | bytes]]

LEVELS = {"commit": 0, "receive": 1, "none": 2}  # qos_level of the house dialect
NAP_FIRST_S, NAP_MAX_S = 0.02, 1.0
WRAPPER = struct.Struct("<IBbHqI")  # a batch: length, attributes, priority, flag, send time, count
ZLIB_BATCH = 0x22
COMPRESS_FROM = 256  # bytes below which nothing is gained
REQUESTS_MAX = 1024  # on their way at once; the server parks 8192 of a connection
FRAME_ROOM = 1024  # of a frame, for what is not messages
NOTHING = Parcel()  # what a request holds once it has its outcome


@dataclass(frozen=True, slots=True)
class Position:
    """Where messages are stored: `count` of them, the first one at `index`; -1 if nobody asked for an answer."""

    partition: int
    index: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a producer sends."""

    level: str
    batch_count: int
    batch_bytes: int
    linger_s: float
    window_bytes: int
    compression: str | None
    timeout_s: float


class Request:
    """Messages for one partition that share their outcome."""

    __slots__ = (
        "count", "data", "deadline_s", "due_s", "error", "number", "parcel", "partition", "placed", "sent", "tries", "watchers"
    )  # fmt: skip

    def __init__(self, number: int, partition: int, *, due_s: float, deadline_s: float) -> None:
        self.number = number
        self.partition = partition
        self.parcel = Parcel()
        self.data: Buffer = self.parcel
        self.due_s = due_s
        self.deadline_s = deadline_s
        self.count = 0
        self.tries = 0
        self.sent = False
        self.placed: Position | None = None
        self.error: SeraiError | None = None
        self.watchers: list[Callable[[], None]] | None = None

    @property
    def done(self) -> bool:
        """There is an outcome."""
        return self.placed is not None or self.error is not None

    def __lt__(self, other: Request) -> bool:
        return self.number < other.number


class Receipt:
    """Stands for messages that were sent: their outcome, once there is one."""

    __slots__ = ("_at", "_count", "request")

    def __init__(self, request: Request, at: int, count: int) -> None:
        self.request = request
        self._at = at
        self._count = count

    @property
    def done(self) -> bool:
        """There is an outcome."""
        return self.request.done

    def position(self) -> Position:
        """Where the messages are; an error if they are nowhere, or nobody knows."""
        if self.request.error is not None:
            raise self.request.error
        if self.request.placed is None:
            raise Misuse("there is no outcome yet; wait for it")
        first = self.request.placed
        return Position(first.partition, first.index + self._at if first.index >= 0 else -1, self._count)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call this when there is an outcome; at once if there is."""
        if self.done:
            call()
        elif self.request.watchers is None:
            self.request.watchers = [call]
        else:
            self.request.watchers.append(call)


class Outgoing:
    """The messages of one producer that have no outcome."""

    def __init__(self, line: Line, topic: str, app: str, manner: Manner) -> None:
        if manner.level not in LEVELS:
            raise Misuse(f"the level is {manner.level!r}; it is one of {', '.join(LEVELS)}")
        if manner.compression not in (None, "zlib"):
            raise Misuse(f"the compression is {manner.compression!r}; it is None or 'zlib'")
        self.line = line
        self.topic = topic
        self.app = app
        self.manner = manner
        self.on_room: Callable[[], None] = lambda: None
        self._quality = UNANSWERED if manner.level == "none" else ANSWERED
        self._qos = LEVELS[manner.level]
        self._timeout_ms = int(
            manner.timeout_s * 1000
        )  # the same in all requests, so that the server can handle many as one
        self._open: dict[int, Request] = {}
        self._ready: deque[Request] = deque()
        self._held_until_s = 0.0
        self._alone = False  # what is on its way is tried again, and nothing may overtake it
        self._number = 0
        self._alive: dict[int, Request] = {}
        self._bytes = 0
        self.on_way = 0

    # ---- what is added

    @property
    def has_room(self) -> bool:
        """More may be added."""
        return self._bytes < self.manner.window_bytes

    @property
    def is_empty(self) -> bool:
        """Everything has an outcome."""
        return not self._alive

    @property
    def oldest(self) -> Receipt | None:
        """Stands for the first request that has no outcome."""
        return next((Receipt(request, 0, 0) for request in self._alive.values()), None)

    @property
    def has_ready(self) -> bool:
        """There are requests to be sent."""
        return bool(self._ready)

    @property
    def due_s(self) -> float:
        """When a request has lingered long enough."""
        return min((request.due_s for request in self._open.values()), default=float("inf"))

    def add(
        self, value: Buffer, *, key: str | bytes | None, headers: Headers | None, partition: int | None, priority: int, flag: int
    ) -> Receipt:  # fmt: skip
        """One message."""
        name = key.encode() if isinstance(key, str) else key
        request = self._room(self._partition(name, partition), len(memoryview(value)))
        before = request.parcel.size
        notes = pack_headers(headers) if headers else None
        try:
            request.parcel.add(value, _now_ms(), key=name, notes=notes, priority=priority, flag=flag)
        except BaseException:
            self._drop_empty(request)
            raise
        return self._added(request, 1, before)

    def add_many(self, values: Sequence[Buffer], *, partition: int | None) -> Receipt:
        """Messages that are bodies alone, as one request or as a part of one."""
        if not values:
            raise Misuse("there is nothing to send: the list is empty")
        chosen = ANY_PARTITION if partition is None else partition
        request = self._open.get(chosen)
        if request is not None and request.count + len(values) > self.manner.batch_count:
            self._close(chosen)
        request = self._room(chosen, 0)
        before = request.parcel.size
        try:
            count = request.parcel.add_many(values, _now_ms())
        except BaseException:
            self._drop_empty(request)
            raise
        return self._added(request, count, before)

    def _drop_empty(self, request: Request) -> None:
        if not request.count:
            del self._open[request.partition], self._alive[request.number]

    def _partition(self, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            return partition
        owned = self.line.ownership.get(self.topic)
        if not key or owned is None or len(owned.partitions) < 2:
            return ANY_PARTITION
        return owned.partitions[crc32c(key) % len(owned.partitions)]

    def _room(self, partition: int, size: int) -> Request:
        """The open request of a partition, with room for so many bytes."""
        if size > limits.FRAME_BYTES_MAX - FRAME_ROOM:
            raise TooLarge(f"a message of {size} bytes; a request has at most {limits.FRAME_BYTES_MAX}")
        request = self._open.get(partition)
        if request is not None and request.parcel.size + size > self.manner.batch_bytes:
            self._close(partition)
            request = None
        if request is None:
            self._number += 1
            now_s = time.monotonic()
            request = self._open[partition] = self._alive[self._number] = Request(
                self._number, partition, due_s=now_s + self.manner.linger_s, deadline_s=now_s + self.manner.timeout_s
            )
        return request

    def _added(self, request: Request, count: int, before: int) -> Receipt:
        at = request.count
        request.count += count
        self._bytes += request.parcel.size - before
        if request.parcel.size > limits.FRAME_BYTES_MAX - FRAME_ROOM:
            del self._open[request.partition]
            size = request.parcel.size
            self._over(request, error=TooLarge(f"{count} messages of {size} bytes; a request has at most 100 MiB"))
            assert request.error is not None
            raise request.error
        if (
            request.count >= self.manner.batch_count or request.parcel.size >= self.manner.batch_bytes
            or not self.manner.linger_s
        ):  # fmt: skip
            self._close(request.partition)
        return Receipt(request, at, count)

    def close_due(self, now_s: float) -> None:
        """Requests that have lingered long enough are ready."""
        for partition, request in list(self._open.items()):
            if request.due_s <= now_s:
                self._close(partition)

    def close_all(self) -> None:
        """What is gathered is ready, full or not."""
        for partition in list(self._open):
            self._close(partition)

    def close_for(self, receipt: Receipt) -> None:
        """Somebody waits for this one."""
        if self._open.get(receipt.request.partition) is receipt.request:
            self._close(receipt.request.partition)

    def _close(self, partition: int) -> None:
        request = self._open.pop(partition)
        if self.manner.compression is not None and request.parcel.size >= COMPRESS_FROM:
            request.data = wrapped(request.parcel)
        self._ready.append(request)

    # ---- what is sent

    def transmit(self) -> None:
        """Put requests on their way, as many as may be."""
        link = self.line.link
        if not self._ready or link is None or not self.line.is_up:
            return
        now_s = time.monotonic()
        if now_s < self._held_until_s or self._alone:
            return
        while self._ready and self.on_way < (1 if self._ready[0].tries else REQUESTS_MAX):
            request = self._ready.popleft()
            if request.deadline_s <= now_s:
                self._over(request, error=Unreachable("the messages could not be sent in time; they are not stored"))
                continue
            if request.tries and not self._exists(
                request.partition
            ):  # the server declined it, and said by now what there is
                self._over(request, error=self._no_partition(request.partition))
                continue
            self._send(request, link)
            self._alone = request.tries > 0
            if self._alone:
                return

    def _exists(self, partition: int) -> bool:
        owned = self.line.ownership.get(self.topic)
        return partition == ANY_PARTITION or owned is None or partition in owned.partitions

    def _no_partition(self, partition: int) -> Refused:
        last = max(self.line.ownership[self.topic].partitions, default=-1)
        return Refused(
            f"topic {self.topic!r} has no partition {partition}, only 0 to {last}; nothing of this was stored",
            code="partition-unknown",
        )

    def push(self) -> Step[None]:
        """Put everything that is ready on its way; connect, and wait for better times, if need be."""
        while self._ready:
            deadline_s = self._ready[0].deadline_s
            try:
                yield from self.line.up(deadline_s)
            except SeraiError as error:
                self._fail_ready(error, all_of_them=not isinstance(error, Unreachable))
                continue
            self.transmit()
            if self._ready:
                yield Nap(max(self._held_until_s - time.monotonic(), 0.001))

    def _fail_ready(self, error: SeraiError, *, all_of_them: bool) -> None:
        """The time of the oldest is over; a refusal for good is everybody's."""
        while self._ready:
            self._over(self._ready.popleft(), error=error)
            if not all_of_them and self._ready and self._ready[0].deadline_s > time.monotonic():
                return

    def _send(self, request: Request, link: Link) -> None:
        produced = Produced(
            topic=self.topic, tx_id="", timeout=self._timeout_ms, qos_level=self._qos,
            partition=request.partition,
            messages=Messages([Span(memoryview(request.data))], request.count, DRESSES["house"]),
        )  # fmt: skip
        request.sent = True
        self.on_way += 1
        link.ask(
            ProduceMessage(topics=[produced], app=self.app), now_ms=_now_ms(), deadline_s=request.deadline_s + 1.0,
            quality=self._quality, then=lambda pending: self._answered(request, pending),
        )  # fmt: skip
        if self._quality == UNANSWERED:
            self.on_way -= 1
            self._over(request, placed=Position(-1, -1, request.count))

    # ---- what became of it

    def _answered(self, request: Request, pending: Pending) -> None:
        if self._quality == UNANSWERED:
            return
        self.on_way -= 1
        self._alone = False
        if pending.error is not None:
            self._over(request, error=pending.error)
            return
        reply = pending.reply
        assert reply is not None
        if reply.status:
            self._declined(request, reply.status, reply.error)
            return
        said = reply.body
        assert isinstance(said, ProduceMessageAck)
        placed = said.data[0]
        if placed.code:
            self._declined(request, placed.code, "")
            return
        row = placed.result[0]
        assert isinstance(row, Placed)
        self._over(request, placed=Position(row.partition, row.index, request.count))

    def _declined(self, request: Request, number: int, text: str) -> None:
        now_s = time.monotonic()
        if number not in NOT_STORED or now_s >= request.deadline_s:
            self._over(request, error=failure(number, f"store messages in {self.topic!r}", text))
            return
        request.tries += 1
        nap_s = min(NAP_FIRST_S * 2 ** min(request.tries, 10), NAP_MAX_S)
        self._held_until_s = max(self._held_until_s, now_s + nap_s)
        rest = list(self._ready)
        insort(rest, request)
        self._ready = deque(rest)
        self.line.stale = True

    def _over(self, request: Request, *, placed: Position | None = None, error: SeraiError | None = None) -> None:
        """A request has its outcome."""
        full = not self.has_room
        del self._alive[request.number]
        self._bytes -= request.parcel.size
        request.placed, request.error = placed, error
        request.data = request.parcel = NOTHING
        watchers, request.watchers = request.watchers, None
        for call in watchers or ():
            call()
        if full and self.has_room:
            self.on_room()


def wrapped(parcel: Parcel) -> bytes:
    """A batch: the same messages, compressed together."""
    body = zlib.compress(parcel, 1)
    return WRAPPER.pack(WRAPPER.size + len(body), ZLIB_BATCH, 0, 0, _now_ms(), parcel.count) + body


def pack_headers(headers: Headers) -> bytes:
    """Headers as they stand in a message."""
    pairs: Iterable[tuple[str | bytes, str | bytes]] = headers.items() if hasattr(headers, "items") else headers
    parts = [b""]
    for name, value in pairs:
        first = name.encode() if isinstance(name, str) else name
        second = value.encode() if isinstance(value, str) else value
        parts.append(struct.pack("<H", len(first)) + first + struct.pack("<I", len(second)) + second)
    parts[0] = struct.pack("<H", len(parts) - 1)
    return b"".join(parts)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
