"""One connection: its socket, the guest behind it, and its deadlines.

    WAITING for first words -> SERVED by a guest -> LEAVING with last words -> LINGERING until they are read
         |                          |                   |                          |
         +----------- broken, silent or stuck ----------+--------------------------+--> GONE

A session owns a socket of its own instead of a transport of the loop: that costs the same (docs/decisions/0007) and lets
it acknowledge at once, gather answers and stop reading by itself.  All sessions read into one buffer; whoever still looks
at bytes of it keeps it, and the next read gets another.

Invariants
- nothing is read while answers of more than `ANSWER_BYTES` lie untaken, or while the guest holds commands back
- a guest that lets more than `OUTBOX_BYTES_MAX` come together is shown out
- `leave` of a guest is called exactly once, whatever ended it
- what a guest was told before a fault reaches it: the socket is shut for writing first, and closed a little later

Left to others: bytes of protocols (the guest), when the broker turns (server).
"""

from __future__ import annotations

import logging
import socket
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from serai import limits
from serai.errors import PeerError, SeraiError
from serai.gate.outbox import Outbox
from serai.gate.sniff import Door, sniff

if TYPE_CHECKING:
    from serai.broker import Wait
    from serai.gate.server import Server
    from serai.wire.buffer import Piece

log = logging.getLogger("serai.gate")
WHY = {  # why guests are shown out, beside those that say what is no request: those break the "rules"
    "silent": "it did not say what it wants",
    "slow": "it does not come to the end of its request",
    "untaken": "it takes nothing of what it asked for",
    "idle": "it said nothing for too long",
}


class Guest(Protocol):
    """A door's service for one connection, as the gate sees it.

    `backlog`: commands are held back, so nothing more is to be read; `waits_for_room`: only until answers are taken, then
    `proceed` is called.  `unfinished`: the end of a frame is missing; `space` is where the next read had best go then.
    `closing`: what was answered is the last.
    """

    backlog: bool
    closing: bool

    @property
    def unfinished(self) -> bool: ...
    @property
    def waits_for_room(self) -> bool: ...
    def space(self, count: int) -> memoryview | None: ...
    def receive(self, data: memoryview, now_ms: int) -> list[Piece]: ...
    def resume(self, wait: Wait[Any], now_ms: int) -> list[Piece]: ...
    def proceed(self, now_ms: int) -> list[Piece]: ...
    def leave(self, now_ms: int) -> None: ...


class State(Enum):
    """How far a session is."""

    WAITING = "waiting"
    SERVED = "served"
    LEAVING = "leaving"
    LINGERING = "lingering"
    GONE = "gone"


class Session:
    """One connection of the port."""

    __slots__ = (
        "_fd", "_first", "_has_sent", "_house", "_outbox", "_reading", "_sock", "_writing", "address", "door", "guest", "heard",
        "heard_s", "state", "taken_s", "unfinished_s",
    )  # fmt: skip

    def __init__(self, house: Server, sock: socket.socket, address: str, now_s: float) -> None:
        self._house = house
        self._sock = sock
        self._fd = sock.fileno()
        self._outbox = Outbox()
        self._first = b""
        self._reading = self._writing = self._has_sent = False
        self.address = address
        self.door: Door | None = None
        self.guest: Guest | None = None
        self.state = State.WAITING
        self.heard = 0  # bytes since `unfinished_s`
        self.heard_s = now_s  # when something was read or sent last
        self.taken_s = now_s  # when the peer took something of its answers last
        self.unfinished_s = now_s  # since when an end is missing; 0: none is
        self._read_on()

    # ---- in -----------------------------------------------------------------------------------------

    def on_readable(self) -> None:
        """The loop says there is something to read."""
        guest = self.guest
        buffer = (guest and self.unfinished_s and guest.space(limits.READ_BYTES)) or self._house.buffer()
        try:
            count = self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.end()
            return
        if self.state is State.LINGERING:
            if not count:
                self.end()
            return
        if not count:
            self._other_end_closed()
            return
        self._has_sent = False
        with memoryview(buffer) as view:
            self._take(view[:count])
        if not self._has_sent and self.state is not State.GONE:  # else the answer says that the bytes came
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _take(self, data: memoryview) -> None:
        house = self._house
        self.heard_s = house.loop.time()
        self.heard += len(data)
        now_ms = house.clock.now_ms()
        try:
            if self.guest is None:
                data = self._recognise(data)
            if self.guest is not None:
                self.answer(self.guest.receive(data, now_ms))
        except PeerError as error:
            self.turn_away("rules", str(error))
        except Exception:
            log.exception("a fault of serai while serving %s by %s; it was shown out", self.address, self.door)
            self.end()
        house.turn(now_ms)

    def _recognise(self, data: memoryview) -> memoryview:
        """Ask the sniffer; the bytes for the guest once it is known."""
        self._first += bytes(data)
        door = sniff(self._first)
        if door is None:
            return data
        self.door = door
        self.guest = self._house.seat(self, door)
        self.state = State.SERVED
        first, self._first = self._first, b""
        return memoryview(first)

    def _other_end_closed(self) -> None:
        self._stop_reading()
        if self._outbox.size:
            self.say_goodbye()
        else:
            self.end()

    # ---- out ----------------------------------------------------------------------------------------

    def answer(self, pieces: list[Piece]) -> None:
        """Put answers in the outbox; they leave when the server's turn is over."""
        if self.state is State.GONE:
            return
        if pieces:
            if not self._outbox.size:
                self.taken_s = self._house.loop.time()
            self._outbox.put(pieces)
        self._house.touched[self] = None

    def resume(self, wait: Wait[Any], now_ms: int) -> None:
        """A wait of this session's guest is over."""
        if self.guest is None or self.state is not State.SERVED:
            return
        if self._outbox.size > limits.OUTBOX_BYTES_MAX:
            self.turn_away("untaken", WHY["untaken"])
            return
        self._ask(lambda guest: guest.resume(wait, now_ms))

    def flush(self) -> None:
        """Send what can be sent, and decide what is read next."""
        if self.state is State.GONE:
            return
        before = self._outbox.size
        try:
            self._outbox.flush(self._sock)
        except OSError:
            self.end()
            return
        if self._outbox.size < before:
            self.taken_s = self.heard_s = self._house.loop.time()
            self._has_sent = True
        if bool(self._outbox.size) != self._writing:
            self._write_on() if self._outbox.size else self._stop_writing()
        self._steer()

    def _steer(self) -> None:
        guest = self.guest
        if guest is not None:
            self._note_end(guest)
            if guest.closing:
                self.say_goodbye()
        if self.state is State.LEAVING and not self._outbox.size:
            self._linger()
        if guest is None or self.state is not State.SERVED:
            return
        if self._outbox.size >= limits.ANSWER_BYTES or guest.backlog:
            self._stop_reading()
            if guest.waits_for_room and not self._outbox.size:
                self._house.loop.call_soon(self.go_on)  # after the others had their turn
        else:
            self._read_on()

    def _note_end(self, guest: Guest) -> None:
        if not guest.unfinished:
            self.unfinished_s = 0.0
        elif not self.unfinished_s:
            self.unfinished_s = self.heard_s
            self.heard = 0

    def on_writable(self) -> None:
        """The loop says that the peer takes something again."""
        self.flush()
        if self.guest is not None and self.guest.backlog:
            self.go_on()

    def go_on(self) -> None:
        """Let the guest handle what it held back, now that there is room."""
        if self.guest is not None and self.state is State.SERVED and self._outbox.size < limits.ANSWER_BYTES:
            now_ms = self._house.clock.now_ms()
            self._ask(lambda guest: guest.proceed(now_ms))
            self._house.turn(now_ms)

    def _ask(self, question: Any) -> None:
        assert self.guest is not None
        try:
            self.answer(question(self.guest))
        except PeerError as error:
            self.turn_away("rules", str(error))
        except Exception:
            log.exception("a fault of serai while serving %s by %s; it was shown out", self.address, self.door)
            self.end()

    # ---- the end ------------------------------------------------------------------------------------

    def turn_away(self, reason: str, why: str) -> None:
        """Show a guest out."""
        self._house.count_shown_out(self.door, reason)
        log.info("%s is shown out: %s", self.address, why)
        self.end()

    def say_goodbye(self) -> None:
        """Close when everything that was said is taken."""
        if self.state in (State.WAITING, State.SERVED):
            self.state = State.LEAVING
            self._stop_reading()
            self._house.touched[self] = None
            self._leave()

    def _linger(self) -> None:
        """Nothing more is said; what still comes is read and dropped, so that the last words are not cut off."""
        self.state = State.LINGERING
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.end()
            return
        self._read_on()
        self._house.loop.call_later(limits.LINGER_S, self.end)

    def end(self) -> None:
        """Close now."""
        if self.state is State.GONE:
            return
        self.state = State.GONE
        self._stop_reading()
        self._stop_writing()
        self._leave()
        self._outbox.clear()
        self._sock.close()
        self._house.forget(self)

    def _leave(self) -> None:
        guest, self.guest = self.guest, None
        if guest is not None:
            self._house.unseat(guest)
            try:
                guest.leave(self._house.clock.now_ms())
            except SeraiError:
                log.exception("%s left, and that failed", self.address)
            self._house.turn(self._house.clock.now_ms())

    def overdue(self, now_s: float) -> str:
        """The reason why this guest has to go by now; empty when it may stay."""
        if self.state is State.WAITING:
            return "silent" if now_s - self.unfinished_s > limits.FIRST_WORD_S else ""
        if self._outbox.size:
            return "untaken" if now_s - self.taken_s > limits.STUCK_S else ""
        if self.unfinished_s and self._reading:
            spent = now_s - self.unfinished_s
            if spent > limits.FIRST_WORD_S and self.heard < spent * limits.FRAME_RATE_MIN:
                return "slow"
        quiet_max = limits.KEEP_ALIVE_S if self.door is Door.HTTP else limits.IDLE_S
        busy = self.guest is None or self.guest.backlog or self._house.awaits(self.guest)
        return "idle" if not busy and now_s - self.heard_s > quiet_max else ""

    @property
    def is_quiet(self) -> bool:
        """Whether everything that was said was taken."""
        return not self._outbox.size

    @property
    def untaken_bytes(self) -> int:
        """Answers in the outbox."""
        return self._outbox.size

    # ---- what the loop watches ----------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._reading and self.state is not State.GONE and not self._house.is_ending:
            self._reading = True
            self._house.loop.add_reader(self._fd, self.on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._house.loop.remove_reader(self._fd)

    def stop_listening(self) -> None:
        """Read nothing more: the server ends."""
        self._stop_reading()

    def _write_on(self) -> None:
        self._writing = True
        self._house.loop.add_writer(self._fd, self.on_writable)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._house.loop.remove_writer(self._fd)
