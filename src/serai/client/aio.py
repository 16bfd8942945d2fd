"""The client for asyncio: the same as `serai.Client`, with `await` where that one blocks.

    async with serai.aio.Client("127.0.0.1:15555") as client:
        async with client.producer("orders") as producer:
            sent = await producer.send(b"hello")        # waits for room only
            print(await sent)                            # and this for the outcome
        async with client.consumer("orders", group="billing") as consumer:
            async for message in consumer:
                message.ack()

Invariants
- everything of a client belongs to the loop it was made in
- a fetch that is cancelled loses nothing: what it would have brought comes with the next one

Left to others: what is sent and what it means (line, outgoing, incoming, reading).
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from serai.client.incoming import Incoming
from serai.client.line import CALL_S, Dial, Line, Nap, Who
from serai.client.link import Link, Pending
from serai.client.outgoing import Manner, Outgoing, Position, Receipt
from serai.client.reading import Reading
from serai.client.settings import MANNER, address_of, registered_consumer, registered_producer
from serai.doors.jmq.schema.commands import RemoveConnection
from serai.errors import Backpressure, Closed, SeraiError, Unreachable
from serai.wire.buffer import Span

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence

    from typing_extensions import Buffer, Unpack

    from serai._core.parcels import Delivery, Message
    from serai.client.incoming import Place, Standing
    from serai.client.line import Step, Wish
    from serai.client.outgoing import Headers
    from serai.client.settings import Sending

T = TypeVar("T")
LATE_S = 0.05  # behind a deadline, when it is looked at
LOOK_S = 1.0  # how often calls nobody waits for are looked at
POLL_S = 0.05  # between two looks of a reader that has seen everything


class Socket(asyncio.Protocol):
    """One connection: bytes between the loop and a link."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def data_received(self, data: bytes) -> None:
        self.link.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.lose(Unreachable(f"the connection broke: {exc}" if exc else "the server closed the connection"))


class Wire:
    """The socket of a line."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._transport: asyncio.Transport | None = None

    async def run(self, step: Step[T]) -> T:
        """Do a step, and wait for what it waits for."""
        try:
            wish = next(step)
            while True:
                try:
                    await self._fulfil(wish)
                except SeraiError as error:
                    wish = step.throw(error)
                else:
                    wish = next(step)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            step.close()

    async def _fulfil(self, wish: Wish) -> None:
        if isinstance(wish, Dial):
            await self._dial(wish)
        elif isinstance(wish, Nap):
            await asyncio.sleep(wish.seconds)
        else:
            self.write()
            await self.ended(wish)

    async def _dial(self, wish: Dial) -> None:
        self.close()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(wish.timeout_s, CALL_S)):
                transport, _ = await loop.create_connection(lambda: Socket(wish.link), *wish.address)
        except OSError as error:  # a time-out is one too
            raise Unreachable(f"no server answers at {wish.address}: {error.strerror or error}") from error
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport, self._link = transport, wish.link

    async def ended(self, pending: Pending) -> None:
        """Wait for the end of a call, which comes at the latest when its time is over."""
        if pending.done:
            return
        woken = asyncio.get_running_loop().create_future()
        before = pending.then

        def wake(ended: Pending) -> None:
            if before is not None:
                before(ended)
            if not woken.done():
                woken.set_result(None)

        pending.then = wake
        try:
            async with asyncio.timeout(max(pending.deadline_s + LATE_S - time.monotonic(), 0.0)):
                await woken
        except TimeoutError:
            self.expire()
            pending.end(error=Unreachable("the connection was given up"))
        finally:
            if pending.then is wake:
                pending.then = before

    def expire(self) -> None:
        """End the calls whose time is over."""
        if self._link is not None:
            self._link.expire(time.monotonic())

    def write(self) -> None:
        """Hand what is to be sent to the loop."""
        link, transport = self._link, self._transport
        if link is None or transport is None or not link.out or link.fault is not None:
            return
        pieces, link.out = link.out, []
        transport.writelines([piece.view if isinstance(piece, Span) else piece for piece in pieces])

    def close(self) -> None:
        """Give the socket up."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class Room:
    """What producers, consumers and readers have in common: a line, its wire, an end."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._wire = Wire()
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            self._closed = True
            self._wire.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> None:
        await self._run(self._line.up(time.monotonic() + CALL_S))

    async def close(self) -> None:
        """Say goodbye and give the connection back; twice does no harm."""
        if not self._closed:
            self._closed = True
            with suppress(SeraiError):
                await self._goodbye()
            self._line.close()
            self._wire.close()

    async def _goodbye(self) -> None:
        link = self._line.link
        if link is not None and self._line.is_up:
            bye = self._line.ask(link, RemoveConnection(), time.monotonic() + 1.0)
            self._wire.write()
            await self._wire.ended(bye)

    async def _run(self, step: Step[T]) -> T:
        self._check_open()
        return await self._wire.run(step)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this {type(self).__name__.lower()} is closed")


class Sent:
    """What a producer gives for messages it was given: awaited, it is their outcome."""

    __slots__ = ("_producer", "_receipt")

    def __init__(self, producer: Producer, receipt: Receipt) -> None:
        self._producer = producer
        self._receipt = receipt

    def done(self) -> bool:
        """There is an outcome."""
        return self._receipt.done

    def __await__(self) -> Generator[object, None, Position]:
        if not self._receipt.done:
            yield from self._producer._settled(self._receipt).__await__()
        return self._receipt.position()


class Producer(Room):
    """Sends messages to one topic."""

    def __init__(self, line: Line, outgoing: Outgoing) -> None:
        super().__init__(line)
        self._out = outgoing
        self._news = asyncio.Event()  # there is room again, or an outcome
        outgoing.on_room = self._news.set
        self._pushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def send(
        self, value: Buffer, *, key: str | bytes | None = None, headers: Headers | None = None, partition: int | None = None,
        priority: int = 0, flag: int = 0,
    ) -> Sent:  # fmt: skip
        """Send one message; waits only while too much is on its way."""
        await self._make_room()
        receipt = self._out.add(value, key=key, headers=headers, partition=partition, priority=priority, flag=flag)
        self._advance()
        return Sent(self, receipt)

    async def send_many(self, values: Sequence[Buffer], *, partition: int | None = None) -> Sent:
        """Send a list of bodies: they are stored together or not at all, and have one outcome."""
        await self._make_room()
        receipt = self._out.add_many(values, partition=partition)
        self._advance()
        return Sent(self, receipt)

    async def flush(self) -> None:
        """Send what is gathered, and wait until everything sent so far has an outcome."""
        self._check_open()
        while (receipt := self._out.oldest) is not None:
            self._out.close_all()
            self._advance()
            await self._settled(receipt)

    async def close(self) -> None:
        """Flush, then close."""
        if not self._closed:
            with suppress(SeraiError):
                await self.flush()
            if self._timer is not None:
                self._timer.cancel()
            if self._pushing is not None:
                self._pushing.cancel()
            await super().close()

    async def _make_room(self) -> None:
        self._check_open()
        if self._out.has_room:
            return
        self._out.close_all()
        self._advance()
        try:
            async with asyncio.timeout(self._out.manner.timeout_s):
                while not self._out.has_room:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Backpressure(
                f"{self._out.manner.window_bytes} bytes have no outcome after {self._out.manner.timeout_s:g} s; nothing"
                " of this was sent"
            ) from None

    async def _settled(self, receipt: Receipt) -> None:
        self._out.close_for(receipt)
        self._advance()
        woken = asyncio.get_running_loop().create_future()
        receipt.when_done(lambda: None if woken.done() else woken.set_result(None))
        await woken

    def _advance(self) -> None:
        """Send what is ready; see to the rest later."""
        out = self._out
        if out.has_ready and self._pushing is None:
            if self._line.is_up and not self._line.is_old:
                out.transmit()
                self._wire.write()
            if out.has_ready:
                self._pushing = asyncio.get_running_loop().create_task(self._push())
        if self._timer is None and not out.is_empty:
            wait_s = min(max(out.due_s - time.monotonic(), 0.0), LOOK_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    async def _push(self) -> None:
        try:
            while self._out.has_ready:
                await self._wire.run(self._out.push())
                self._wire.write()
        finally:
            self._pushing = None

    def _look(self) -> None:
        """Something lingered long enough, or calls are to be looked at."""
        self._timer = None
        self._wire.expire()
        self._out.close_due(time.monotonic())
        self._advance()


class Consumer(Room):
    """Receives the messages of one topic for a group."""

    def __init__(self, line: Line, incoming: Incoming, *, auto_ack: bool, count: int) -> None:
        super().__init__(line)
        self._in = incoming
        self._in.urge = self._wire.write
        self._auto_ack = auto_ack
        self._count = count
        self._rest: Iterator[Message] = iter(())
        self._last: Delivery | None = None

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def messages(self, timeout: float | None = None) -> AsyncIterator[Message]:  # noqa: ASYNC109 - an end, no cancelling
        """Messages as they come; ends when nothing came for so many seconds, else never."""
        while True:
            for message in self._rest:
                yield message
                if self._auto_ack:
                    message.ack()
                if self._in.is_due(time.monotonic()):
                    self.tell()
            delivery = await self._fetch(self._count, timeout)
            if delivery is None:
                return
            self._rest = iter(delivery)

    async def receive(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109 - None, no cancelling
        """The next message; None when none came in that time."""
        return await anext(self.messages(timeout), None)

    async def fetch_many(self, count: int = 10_000, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109
        """Up to so many messages of one partition at once; None when none came in that time."""
        if self._auto_ack and self._last is not None:
            self._last.ack()
        self._last = await self._fetch(count, timeout)
        return self._last

    async def _fetch(self, count: int, seconds: float | None) -> Delivery | None:
        deadline_s = _deadline(seconds)
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            found = await self._run(self._in.fetch(count, min(left_s, CALL_S)))
            if found is not None or left_s <= CALL_S:
                return found

    def tell(self) -> None:
        """Send acknowledgements without waiting for their answer."""
        self._in.tell()
        self._wire.write()

    async def flush(self) -> None:
        """Wait until everything acknowledged so far is confirmed."""
        await self._run(self._in.flush())

    async def renew(self, seconds: float) -> None:
        """Hold what is held for so long from now on."""
        await self._run(self._in.renew(seconds))

    async def standing(self) -> list[Standing]:
        """Where the group stands in each partition, and what is stored there."""
        return await self._run(self._in.standing())

    async def seek(self, to: Place, partition: int | None = None) -> None:
        """Move the group: an index, "start", "end", or a datetime; in one partition or in all."""
        self._rest = iter(())
        await self._run(self._in.seek(to, partition))

    async def _goodbye(self) -> None:
        self._in.urge = _nothing
        if self._auto_ack and self._last is not None:
            self._last.ack()
        if self._line.is_up:
            assert self._line.link is not None
            self._in.let_go(self._line.link)
            await self._wire.run(self._in.flush())
        await super()._goodbye()


class Reader(Room):
    """Reads a topic without a group: nothing is acknowledged, nobody is kept away."""

    def __init__(self, line: Line, reading: Reading, *, count: int) -> None:
        super().__init__(line)
        self._reading = reading
        self._count = count
        self._rest: list[Delivery] = []

    async def _open(self) -> None:
        await self._run(self._reading.open())

    @property
    def positions(self) -> dict[int, int]:
        """For each partition the index of the next message to be fetched."""
        return dict(self._reading.positions)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def messages(self, timeout: float | None = None) -> AsyncIterator[Message]:  # noqa: ASYNC109 - an end, no cancelling
        """Messages as they come; ends when nothing came for so many seconds, else never."""
        while (delivery := await self.fetch_many(self._count, timeout)) is not None:
            for message in delivery:
                yield message

    async def fetch_many(self, count: int = 10_000, timeout: float | None = None) -> Delivery | None:  # noqa: ASYNC109
        """Up to so many messages of one partition at once; None when there were none in that time."""
        deadline_s = _deadline(timeout)
        while not self._rest:
            self._rest = await self._run(self._reading.fetch(count))
            if not self._rest:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                await asyncio.sleep(min(POLL_S, left_s))
        return self._rest.pop(0)

    async def seek(self, to: Place, partition: int | None = None) -> None:
        """Go on elsewhere: an index, "start", "end", or a datetime; in one partition or in all."""
        self._rest.clear()
        await self._run(self._reading.seek(to, partition))


class Client:
    """A way to a server; producers, consumers and readers come from here, and end with it."""

    def __init__(self, server: str | None = None, *, app: str = "serai", token: str = "", region: str = "") -> None:
        self._address = address_of(server)
        self._who = Who(app, token, region)
        self._rooms: list[Room] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close everything that came from here."""
        while self._rooms:
            await self._rooms.pop().close()

    def producer(self, topic: str, **manner: Unpack[Sending]) -> Producer:
        """A producer for a topic; `async with` connects it."""
        line = registered_producer(self._address, self._who, topic)
        return self._kept(Producer(line, Outgoing(line, topic, self._who.app, Manner(**{**MANNER, **manner}))))

    def consumer(
        self, topic: str, *, group: str, auto_ack: bool = False, count: int = 1000, ack_timeout: float = 0.0
    ) -> Consumer:
        """A consumer of a topic for a group; `async with` connects it; `count` messages are asked for at once."""
        line = registered_consumer(self._address, self._who, topic, group)
        incoming = Incoming(line, topic, group, ack_timeout_s=ack_timeout)
        return self._kept(Consumer(line, incoming, auto_ack=auto_ack, count=count))

    def reader(self, topic: str, *, start: Place = "end", count: int = 1000) -> Reader:
        """A reader of a topic that begins at a place; `async with` connects it."""
        line = registered_consumer(self._address, self._who, topic, self._who.app)
        return self._kept(Reader(line, Reading(line, topic, self._who.app, start), count=count))

    def _kept(self, room: R) -> R:
        self._rooms = [each for each in self._rooms if not each._closed]
        self._rooms.append(room)
        return room


R = TypeVar("R", bound=Room)
_nothing: Callable[[], None] = lambda: None


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
