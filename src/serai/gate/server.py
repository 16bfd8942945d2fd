"""The server: one port, one loop, one broker; what it does at the start, in every turn, and at the end.

    start   bind the port -> open the data directory -> listen -> ready
    turn    broker's effects -> broker's waits that are over, resumed -> answers flushed          after every read
    end     stop listening and reading -> answers under way leave -> flush, clean marks -> exit

Invariants
- the port is taken before the data directory is opened: a second server changes nothing
- a guest is accepted only while descriptors are left for the log; the others wait in the kernel's queue
- the timer rings at `broker.next_ms` at the latest
- at the end nothing that was acknowledged is lost, and the directory has clean marks

Left to others: what guests say (session and doors), words for people (cli).
"""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
import time
from collections import Counter
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from serai import limits
from serai.broker import Broker, Node
from serai.console.house import GateState, House
from serai.errors import Misuse, PeerError, Refused, SeraiError
from serai.gate.clock import Clock
from serai.gate.http import HttpGuest
from serai.gate.session import WHY, Guest, Session
from serai.gate.sniff import Door
from serai.gate.vigil import Vigil
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.times import Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai.broker import Wait
    from serai.config import Settings
    from serai.console.house import Application

T = TypeVar("T")
log = logging.getLogger("serai.gate")
STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SERVICES = {Door.JMQ: "serai.doors.jmq.service"}
LEVELS = {"receive": Level.RECEIVE, "commit": Level.COMMIT}


class Taken(Refused):
    """The address is somebody else's."""


class Server:
    """Everything that runs in one server process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.started_ms = self.clock.now_ms()
        self.sessions: dict[Session, None] = {}
        self.touched: dict[Session, None] = {}  # sessions with something to send or to decide, this turn
        self.shown_out: Counter[tuple[str, str]] = Counter()
        self.produce_times = Times()
        self._answered: list[float] = []  # since when requests waited that are answered in this turn
        self.is_ending = False
        self._seats: dict[Guest, Session] = {}
        self._buffer = bytearray(limits.READ_BYTES)
        self._turning = self._again = False
        self._app: Application | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._accepting = False
        self._room = connections_max(settings)
        self._listener = listen_on(settings.host, settings.port)
        try:
            self.port: int = self._listener.getsockname()[1]
            self._engine = LocalEngine(settings.data, page_bytes=settings.page_bytes)
        except BaseException:
            self._listener.close()
            raise
        self.broker = Broker(
            self._engine, node=Node(1, advertised(settings.host), self.port, settings.region),
            auto_create=settings.auto_create, level=LEVELS[settings.ack],
        )  # fmt: skip

    # ---- from start to end --------------------------------------------------------------------------

    async def serve(self, ready: Callable[[Server], None]) -> None:
        """Serve until a signal says otherwise."""
        self.loop = asyncio.get_running_loop()
        self._vigil = Vigil(self.loop)
        self._ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stop)
        self.loop.add_reader(self._engine.fileno(), self._on_moved)
        self._listen()
        self._accept_on()
        self._sweep()
        ready(self)
        self.loop.call_later(limits.WARM_AFTER_S, self._warm)
        try:
            await self._ended.wait()
        finally:
            await self._drain()

    def _warm(self) -> None:
        """Load what the first guests will need; who came earlier has loaded it by himself."""
        for name in SERVICES.values():
            with suppress(ModuleNotFoundError):
                import_module(name)
        assert self.app is not None
        gc.collect()
        gc.freeze()  # what lives as long as the server is not looked at again

    def stop(self) -> None:
        """Begin the end; a second time changes nothing."""
        self.is_ending = True
        self._ended.set()

    async def _drain(self) -> None:
        self.is_ending = True
        self._accept_off()
        self._listener.close()
        for session in list(self.sessions):
            session.stop_listening()
        until = self.loop.time() + limits.DRAIN_S
        quiet = 0
        while self.loop.time() < until and quiet < 4:  # flushes under way are answered within milliseconds
            await asyncio.sleep(0.025)
            quiet = quiet + 1 if all(session.is_quiet for session in self.sessions) else 0
        for session in list(self.sessions):
            session.end()
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self._engine.fileno())
        self._engine.close()
        log.info("ended; everything is on the disk")

    # ---- who comes ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            self._listener.listen(1024)
        except OSError as error:
            raise taken(self.settings.host, self.port, error) from error

    def _accept_on(self) -> None:
        if not self._accepting and not self.is_ending:
            self._accepting = True
            self.loop.add_reader(self._listener.fileno(), self._on_knock)

    def _accept_off(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._listener.fileno())

    def _on_knock(self) -> None:
        for _ in range(limits.ACCEPT_AT_ONCE):
            if len(self.sessions) >= self._room:
                self._accept_off()  # `forget` opens again
                log.warning("%d guests are here, as many as there is room for; others wait", len(self.sessions))
                return
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in STARVED:
                    raise
                self._pause(error)
                return
            self._welcome(sock, address)

    def _pause(self, error: OSError) -> None:
        self._accept_off()
        log.warning("no guest can be let in for now: %s; those that are here are served on", error.strerror)
        self.loop.call_later(limits.ACCEPT_PAUSE_S, self._accept_on)

    def _welcome(self, sock: socket.socket, address: Any) -> None:
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            sock.close()
            return
        session = Session(self, sock, f"{address[0]}:{address[1]}", self.loop.time())
        self.sessions[session] = None

    def forget(self, session: Session) -> None:
        """A session is gone."""
        self.sessions.pop(session, None)
        self.touched.pop(session, None)
        if not self._accepting and len(self.sessions) < self._room and not self.is_ending:
            self._accept_on()

    # ---- who serves whom ----------------------------------------------------------------------------

    def seat(self, session: Session, door: Door) -> Guest:
        """The service of a door for a session."""
        host, _, port = session.address.rpartition(":")
        if door is Door.HTTP:
            guest: Guest = HttpGuest(self, session)
        elif door in SERVICES:
            service = import_module(SERVICES[door]).Service  # loaded when its first guest comes
            guest = service(self.broker, address=session.address, client=client_bytes(host, int(port)))
        else:
            raise PeerError(f"{door.value} is not served here")
        self._seats[guest] = session
        return guest

    def unseat(self, guest: Guest) -> None:
        """A guest goes."""
        self._seats.pop(guest, None)

    def awaits(self, guest: Guest) -> bool:
        """Whether a guest has something parked at the broker."""
        session = getattr(guest, "session", None)
        return session is not None and bool(session.waits)

    def count_shown_out(self, door: Door | None, reason: str) -> None:
        """One more that broke the rules."""
        self.shown_out[door.value if door is not None else "unknown", reason] += 1

    # ---- people -------------------------------------------------------------------------------------

    @property
    def app(self) -> Application:
        """The console, loaded when somebody asks for it first."""
        if self._app is None:
            from serai.console.app import make_app

            self._app = make_app(
                House(
                    self.broker,
                    self.settings,
                    self.started_ms,
                    now_ms=self.clock.now_ms,
                    finish=self.finish,
                    state=self.state,
                )
            )
        return self._app

    async def finish(self, wait: Wait[T]) -> T:
        """The result of a wait of the console."""
        future: asyncio.Future[Wait[T]] = self.loop.create_future()
        wait.token = (future,)
        self.turn(self.clock.now_ms())
        try:
            await future
        except asyncio.CancelledError:
            self.broker.drop(wait)
            raise
        return wait.result()

    def state(self) -> GateState:
        """The port, in numbers."""
        doors = Counter(session.door.value for session in self.sessions if session.door is not None)
        disk = os.statvfs(self.settings.data)
        return GateState(
            dict(doors), dict(self.shown_out), sum(session.untaken_bytes for session in self.sessions),
            disk.f_bavail * disk.f_frsize, self.is_ending, self.produce_times,
        )  # fmt: skip

    # ---- the turn -----------------------------------------------------------------------------------

    def buffer(self) -> bytearray:
        """Where the next read goes; a buffer that somebody still looks at is left to him."""
        try:
            self._buffer.pop()
            self._buffer.append(0)
        except BufferError:
            self._buffer = bytearray(limits.READ_BYTES)
        return self._buffer

    def turn(self, now_ms: int) -> None:
        """Run what is due, resume whose waits are over, and send all answers."""
        self._again = True
        if self._turning:  # a guest that leaves in the middle of a turn
            return
        self._turning = True
        if self.broker.noted:  # the first of each turn is measured
            self.broker.noted.pop().since = time.perf_counter()
        try:
            while self._again:
                self._again = False
                self._resume(now_ms)
                while self.touched:
                    session, _ = self.touched.popitem()
                    session.flush()
        finally:
            self._turning = False
        if self._answered:
            self._measure()
        self._set_timer(now_ms)
        if self.broker.waits_for_disk:
            self._vigil.end()
        else:
            self._vigil.keep()

    def _measure(self) -> None:
        """How long requests waited for the disk whose answers have left now."""
        now_s = time.perf_counter()
        for since in self._answered:
            self.produce_times.add(now_s - since)
        self._answered.clear()

    def _resume(self, now_ms: int) -> None:
        broker = self.broker
        while True:
            broker.settle()
            waits = broker.turn(now_ms)
            if not waits:
                return
            for wait in waits:
                if wait.since:
                    self._answered.append(wait.since)
                asker = wait.token[0]
                session = self._seats.get(asker)
                if session is not None:
                    session.resume(wait, now_ms)
                elif isinstance(asker, asyncio.Future) and not asker.done():
                    asker.set_result(wait)

    def _set_timer(self, now_ms: int) -> None:
        due_ms = self.broker.next_ms
        if self._timer is not None and self._timer_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_ms = due_ms - now_ms
        if delay_ms < limits.LONG_POLL_MS_MAX * 2:
            self._timer_ms = due_ms
            self._timer = self.loop.call_later(max(delay_ms, 0) / 1000 + 0.001, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.turn(self.clock.now_ms())

    def _on_moved(self) -> None:
        self.broker.moved()
        self.turn(self.clock.now_ms())

    def _sweep(self) -> None:
        now_s = self.loop.time()
        for session in list(self.sessions):
            reason = session.overdue(now_s)
            if reason:
                session.turn_away(reason, WHY[reason])
        self._forget()
        self.turn(self.clock.now_ms())
        if not self.is_ending:
            self.loop.call_later(limits.SWEEP_S, self._sweep)

    def _forget(self) -> None:
        """Let one topic forget what its policy says; a topic that cannot is said, and the next one has its turn."""
        try:
            self.broker.tidy(self.clock.now_ms())
        except (SeraiError, OSError) as error:
            log.warning("messages that may go are still there: %s", error)


# ---- addresses -------------------------------------------------------------------------------------------


def listen_on(host: str, port: int) -> socket.socket:
    """The port, taken but not listened on yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise taken(host, port, error) from error
    return sock


def taken(host: str, port: int, error: OSError) -> Refused:
    """Why an address cannot be had, in words."""
    if error.errno == errno.EADDRINUSE:
        return Taken(f"port {port} of {host} is taken: another server, or another program, listens there")
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return Taken(f"{host} is no address of this machine: {error.strerror}")
    return Taken(f"{host}:{port} cannot be listened on: {error.strerror}")


def advertised(host: str) -> str:
    """The address clients are told to come to."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "localhost") else host


def client_bytes(host: str, port: int) -> bytes:
    """A client's address as JMQ writes it: the port, low byte first, and the 4 or 16 bytes of the address."""
    return port.to_bytes(2, "little") + ipaddress.ip_address(host.partition("%")[0]).packed


def connections_max(settings: Settings) -> int:
    """How many guests there is room for; the limit of descriptors is raised as far as it goes first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass
    if soft < limits.FDS_RESERVED // 2:
        raise Misuse(f"a process here may open {soft} files, which is too few for a server; raise it: ulimit -n 1024")
    return min(settings.connections_max, max(soft - limits.FDS_RESERVED, soft // 2))
