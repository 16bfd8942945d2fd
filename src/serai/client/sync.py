"""The client for plain programs: calls that block, one connection for each producer, consumer and reader.

    with serai.Client("127.0.0.1:15555") as client:
        with client.producer("orders") as producer:
            print(producer.send(b"hello").result())
        with client.consumer("orders", group="billing") as consumer:
            for message in consumer:
                message.ack()

Whoever has to wait works for everybody meanwhile: it polls the socket, takes in answers, and wakes those whose answer came.  A
producer has a thread besides, made when the first message lingers, which sends what nobody waits for; it is asleep otherwise.

Invariants
- a producer may be used by several threads; a consumer and a reader belong to one at a time
- the lock is not held while the socket is polled
- Ctrl-C ends a wait; what was sent stays sent

Left to others: what is sent and what it means (line, outgoing, incoming, reading).
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from serai.client.incoming import Incoming
from serai.client.line import CALL_S, Dial, Line, Nap, Who
from serai.client.outgoing import Manner, Outgoing, Position, Receipt
from serai.client.reading import Reading
from serai.client.settings import MANNER, address_of, registered_consumer, registered_producer
from serai.doors.jmq.schema.commands import RemoveConnection
from serai.errors import Backpressure, Closed, SeraiError, Unreachable
from serai.wire.buffer import Span

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from serai._core.parcels import Delivery, Message
    from serai.client.incoming import Place, Standing
    from serai.client.line import Step, Wish
    from serai.client.link import Link
    from serai.client.outgoing import Headers
    from serai.client.settings import Sending

T = TypeVar("T")
READ_BYTES = 1 << 20
PIECES_MAX = 64  # of one sendmsg
SLICE_S = 0.05  # longest poll: another thread may have something to write by then
POLL_S = 0.05  # between two looks of a reader that has seen everything


class Wire:
    """The socket of a line, and the lock of everything that belongs to it."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self._socket: socket.socket | None = None
        self._link: Link | None = None
        self._polling = False

    def run(self, step: Step[T]) -> T:
        """Do a step, and wait for what it waits for; whoever calls holds `turn`."""
        try:
            wish = next(step)
            while True:
                try:
                    self._fulfil(wish)
                except SeraiError as error:
                    wish = step.throw(error)
                else:
                    wish = next(step)
        except StopIteration as end:
            found: T = end.value
            return found
        finally:
            step.close()

    def _fulfil(self, wish: Wish) -> None:
        if isinstance(wish, Dial):
            self._dial(wish)
        elif isinstance(wish, Nap):
            self.nap(wish.seconds)
        else:
            self.until(lambda: wish.done, wish.deadline_s + SLICE_S)

    def _dial(self, wish: Dial) -> None:
        self.close()
        try:
            sock = socket.create_connection(wish.address, timeout=min(wish.timeout_s, CALL_S))
        except OSError as error:
            raise Unreachable(f"no server answers at {wish.address}: {error.strerror or error}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._socket, self._link = sock, wish.link

    def nap(self, seconds: float) -> None:
        """Let time go by, and take in what comes meanwhile."""
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_s, end_s)

    def until(self, over: Callable[[], bool], deadline_s: float) -> bool:
        """Send and receive until something is over, or the time is; whether it is over."""
        while not over():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            self.write()
            if self._polling or self._socket is None:
                self.turn.wait(min(left_s, SLICE_S))
            else:
                self._poll(min(left_s, SLICE_S))
        return True

    def _poll(self, seconds: float) -> None:
        link, sock = self._link, self._socket
        assert link is not None
        assert sock is not None
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if link.out else 0))
        self._polling = True
        self.turn.release()
        try:
            found = poll.poll(seconds * 1000)
        finally:
            self.turn.acquire()
            self._polling = False
        if found and link.fault is None:
            self._read(link, sock)
        link.expire(time.monotonic())
        self.turn.notify_all()

    def look(self) -> None:
        """Take in what is there, without waiting."""
        if self._link is not None and self._socket is not None and self._link.fault is None:
            self._read(self._link, self._socket)

    def _read(self, link: Link, sock: socket.socket) -> None:
        try:
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            link.lose(Unreachable(f"the connection broke: {error.strerror or error}"))
            return
        if data:
            link.receive(data)
        else:
            link.lose(Unreachable("the server closed the connection"))

    def write(self) -> None:
        """Give the socket what it takes at once."""
        link, sock = self._link, self._socket
        if link is None or sock is None or link.fault is not None:
            return
        out = link.out
        try:
            while out:
                views = [piece.view if isinstance(piece, Span) else piece for piece in out[:PIECES_MAX]]
                _drop(out, sock.sendmsg(views))
        except BlockingIOError:
            return
        except OSError as error:
            link.lose(Unreachable(f"the connection broke: {error.strerror or error}"))

    def close(self) -> None:
        """Give the socket up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _drop(out: list[bytes | Span], count: int) -> None:
    """Take so many bytes, which are sent, from the front."""
    at = 0
    while at < len(out) and count >= len(out[at]):
        count -= len(out[at])
        at += 1
    del out[:at]
    if count:
        piece = out[0]
        view = piece.view if isinstance(piece, Span) else memoryview(piece)
        out[0] = Span(view[count:])


class Room:
    """What producers, consumers and readers have in common: a line, its wire, an end."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._wire = Wire()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye and give the connection back; twice does no harm."""
        with self._wire.turn:
            if not self._closed:
                self._closed = True
                with suppress(SeraiError):
                    self._goodbye()
                self._line.close()
                self._wire.close()

    def _goodbye(self) -> None:
        link = self._line.link
        if link is not None and self._line.is_up:
            bye = self._line.ask(link, RemoveConnection(), time.monotonic() + 1.0)
            self._wire.until(lambda: bye.done, bye.deadline_s)

    def _run(self, step: Step[T]) -> T:
        with self._wire.turn:
            self._check_open()
            return self._wire.run(step)

    def _begin(self, step: Step[T]) -> None:
        """The first step; without it there is nothing to close later."""
        try:
            self._run(step)
        except BaseException:
            self._closed = True
            self._wire.close()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"this {type(self).__name__.lower()} is closed")


class Sent:
    """What a producer gives for messages it was given: their outcome, once there is one."""

    __slots__ = ("_producer", "_receipt")

    def __init__(self, producer: Producer, receipt: Receipt) -> None:
        self._producer = producer
        self._receipt = receipt

    def done(self) -> bool:
        """There is an outcome; what came meanwhile is looked at."""
        if not self._receipt.done:
            with self._producer._wire.turn:
                self._producer._wire.look()
        return self._receipt.done

    def when_done(self, call: Callable[[], None]) -> None:
        """Call this, in whichever thread learns of it, when there is an outcome; at once if there is."""
        with self._producer._wire.turn:
            self._receipt.when_done(call)
            if not self._receipt.done:
                self._producer._see_to_the_rest()

    def result(self, timeout: float | None = None) -> Position:
        """Wait for the outcome: where the messages are, or why they are not; TimeoutError when there is none yet."""
        if not self._receipt.done:
            self._producer._await(self._receipt, timeout)
        return self._receipt.position()


class Producer(Room):
    """Sends messages to one topic."""

    def __init__(self, line: Line, outgoing: Outgoing) -> None:
        super().__init__(line)
        self._out = outgoing
        self._ticker: threading.Thread | None = None
        self._begin(line.up(time.monotonic() + outgoing.manner.timeout_s))

    def send(
        self, value: Buffer, *, key: str | bytes | None = None, headers: Headers | None = None, partition: int | None = None,
        priority: int = 0, flag: int = 0,
    ) -> Sent:  # fmt: skip
        """Send one message; blocks only while too much is on its way."""
        with self._wire.turn:
            self._make_room()
            receipt = self._out.add(value, key=key, headers=headers, partition=partition, priority=priority, flag=flag)
            self._advance()
        return Sent(self, receipt)

    def send_many(self, values: Sequence[Buffer], *, partition: int | None = None) -> Sent:
        """Send a list of bodies: they are stored together or not at all, and have one outcome."""
        with self._wire.turn:
            self._make_room()
            receipt = self._out.add_many(values, partition=partition)
            self._advance()
        return Sent(self, receipt)

    def flush(self, timeout: float | None = None) -> None:
        """Send what is gathered, and wait until everything sent so far has an outcome."""
        with self._wire.turn:
            self._check_open()
            deadline_s = _deadline(timeout)
            while not self._out.is_empty:
                self._out.close_all()
                self._push()
                if not self._wire.until(lambda: not self._out.on_way or self._out.has_ready, deadline_s):
                    raise TimeoutError(f"there are messages without an outcome after {timeout} s")

    def close(self) -> None:
        """Flush, then close."""
        with self._wire.turn:
            if not self._closed:
                with suppress(SeraiError):
                    self.flush()
            super().close()
            self._wire.turn.notify_all()

    def _make_room(self) -> None:
        self._check_open()
        if self._out.has_room:
            return
        deadline_s = time.monotonic() + self._out.manner.timeout_s
        while not self._out.has_room:
            self._out.close_all()
            self._push()
            if not self._wire.until(lambda: self._out.has_room or self._out.has_ready, deadline_s):
                raise Backpressure(
                    f"{self._out.manner.window_bytes} bytes have no outcome after {self._out.manner.timeout_s:g} s;"
                    " nothing of this was sent"
                )

    def _advance(self) -> None:
        """Send what is ready; let the thread see to the rest."""
        if self._out.has_ready:
            self._push()
            self._wire.look()
        else:
            self._see_to_the_rest()

    def _see_to_the_rest(self) -> None:
        """Let the thread send what lingers, and take in answers nobody waits for."""
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._tick, name="serai-producer", daemon=True)
            self._ticker.start()
        elif self._idle:
            self._wire.turn.notify_all()

    def _push(self) -> None:
        if self._line.is_up and not self._line.is_old:
            self._out.transmit()
        if self._out.has_ready:
            self._wire.run(self._out.push())
        self._wire.write()

    def _await(self, receipt: Receipt, timeout: float | None) -> None:
        deadline_s = _deadline(timeout)
        with self._wire.turn:
            self._out.close_for(receipt)
            while not receipt.done:
                self._push()
                if not self._wire.until(lambda: receipt.done or self._out.has_ready, deadline_s):
                    raise TimeoutError(f"no outcome after {timeout} s; it may still come")

    _idle = False  # the thread sleeps until there is something to see to

    def _tick(self) -> None:
        """Send what lingered long enough, and take in answers nobody waits for."""
        turn = self._wire.turn
        with turn:
            while not self._closed:
                due_s = self._out.due_s
                if self._out.is_empty:
                    self._idle = True
                    turn.wait()
                    self._idle = False
                elif due_s > time.monotonic():
                    self._wire.until(lambda: self._closed, min(due_s, time.monotonic() + SLICE_S))
                else:
                    self._out.close_due(time.monotonic())
                    with suppress(SeraiError):  # the outcome is that of the messages
                        self._push()


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
        self._begin(line.up(time.monotonic() + CALL_S))

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Messages as they come; ends when nothing came for so many seconds, else never."""
        while True:
            for message in self._rest:
                yield message
                if self._auto_ack:
                    message.ack()
                if self._in.is_due(time.monotonic()):
                    self.tell()
            delivery = self._fetch(self._count, timeout)
            if delivery is None:
                return
            self._rest = iter(delivery)

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came in that time."""
        return next(self.messages(timeout), None)

    def fetch_many(self, count: int = 10_000, timeout: float | None = None) -> Delivery | None:
        """Up to so many messages of one partition at once; None when none came in that time."""
        if self._auto_ack and self._last is not None:
            self._last.ack()
        self._last = self._fetch(count, timeout)
        return self._last

    def _fetch(self, count: int, timeout: float | None) -> Delivery | None:
        deadline_s = _deadline(timeout)
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            found = self._run(self._in.fetch(count, min(left_s, CALL_S)))
            if found is not None or left_s <= CALL_S:
                return found

    def tell(self) -> None:
        """Send acknowledgements without waiting for their answer."""
        with self._wire.turn:
            self._in.tell()
            self._wire.write()
            self._wire.look()

    def flush(self) -> None:
        """Wait until everything acknowledged so far is confirmed."""
        self._run(self._in.flush())

    def renew(self, seconds: float) -> None:
        """Hold what is held for so long from now on."""
        self._run(self._in.renew(seconds))

    def standing(self) -> list[Standing]:
        """Where the group stands in each partition, and what is stored there."""
        return self._run(self._in.standing())

    def seek(self, to: Place, partition: int | None = None) -> None:
        """Move the group: an index, "start", "end", or a datetime; in one partition or in all."""
        self._rest = iter(())
        self._run(self._in.seek(to, partition))

    def _goodbye(self) -> None:
        self._in.urge = lambda: None
        if self._auto_ack and self._last is not None:
            self._last.ack()
        if self._line.is_up:
            assert self._line.link is not None
            self._in.let_go(self._line.link)
            self._wire.run(self._in.flush())
        super()._goodbye()


class Reader(Room):
    """Reads a topic without a group: nothing is acknowledged, nobody is kept away."""

    def __init__(self, line: Line, reading: Reading, *, count: int) -> None:
        super().__init__(line)
        self._reading = reading
        self._count = count
        self._rest: list[Delivery] = []
        self._begin(reading.open())

    @property
    def positions(self) -> dict[int, int]:
        """For each partition the index of the next message to be fetched."""
        return dict(self._reading.positions)

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[Message]:
        """Messages as they come; ends when nothing came for so many seconds, else never."""
        while (delivery := self.fetch_many(self._count, timeout)) is not None:
            yield from delivery

    def fetch_many(self, count: int = 10_000, timeout: float | None = None) -> Delivery | None:
        """Up to so many messages of one partition at once; None when there were none in that time."""
        deadline_s = _deadline(timeout)
        while not self._rest:
            self._rest = self._run(self._reading.fetch(count))
            if not self._rest:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                with self._wire.turn:
                    self._wire.nap(min(POLL_S, left_s))
        return self._rest.pop(0)

    def seek(self, to: Place, partition: int | None = None) -> None:
        """Go on elsewhere: an index, "start", "end", or a datetime; in one partition or in all."""
        self._rest.clear()
        self._run(self._reading.seek(to, partition))


class Client:
    """A way to a server; producers, consumers and readers come from here, and end with it."""

    def __init__(self, server: str | None = None, *, app: str = "serai", token: str = "", region: str = "") -> None:
        self._address = address_of(server)
        self._who = Who(app, token, region)
        self._rooms: list[Room] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything that came from here."""
        while self._rooms:
            self._rooms.pop().close()

    def producer(self, topic: str, **manner: Unpack[Sending]) -> Producer:
        """A producer for a topic, connected."""
        line = registered_producer(self._address, self._who, topic)
        return self._kept(Producer(line, Outgoing(line, topic, self._who.app, Manner(**{**MANNER, **manner}))))

    def consumer(
        self, topic: str, *, group: str, auto_ack: bool = False, count: int = 1000, ack_timeout: float = 0.0
    ) -> Consumer:
        """A consumer of a topic for a group, connected; `count` messages are asked for at once."""
        line = registered_consumer(self._address, self._who, topic, group)
        incoming = Incoming(line, topic, group, ack_timeout_s=ack_timeout)
        return self._kept(Consumer(line, incoming, auto_ack=auto_ack, count=count))

    def reader(self, topic: str, *, start: Place = "end", count: int = 1000) -> Reader:
        """A reader of a topic, connected, that begins at a place."""
        line = registered_consumer(self._address, self._who, topic, self._who.app)
        return self._kept(Reader(line, Reading(line, topic, self._who.app, start), count=count))

    def _kept(self, room: R) -> R:
        self._rooms = [each for each in self._rooms if not each._closed]
        self._rooms.append(room)
        return room


R = TypeVar("R", bound=Room)


def _deadline(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
