"""HTTP/1.1 on the port: requests parsed by httptools, answered by the console through a small ASGI bridge.

    bytes -> parser -> Request, one after the other -> task: app(scope, receive, send) -> head and body -> outbox

Invariants
- requests of one connection are answered in their order; while one is, nothing more is read
- a head, the number of its headers, a body and the requests that wait are bounded before they are kept
- a request that cannot be understood is answered in JSON, like every refusal, and the connection closed

Left to others: what the API says (console), WebSocket and the doors that speak HTTP (doors).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools

from serai import limits
from serai.console.problem import Problem, problem_body

if TYPE_CHECKING:
    from serai.broker import Wait
    from serai.console.house import Message
    from serai.gate.server import Server
    from serai.gate.session import Session
    from serai.wire.buffer import Piece

log = logging.getLogger("serai.gate")
BODILESS = (204, 304)
JSON_HEAD = [(b"content-type", b"application/json")]


@dataclass(slots=True)
class Request:
    """One request, whole."""

    method: str
    target: bytes
    version: str
    keeps_alive: bool
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: list[bytes] = field(default_factory=list)

    def scope(self, session: Session, server: tuple[str, int]) -> dict[str, Any]:
        """The request as ASGI describes it."""
        path, _, query = self.target.partition(b"?")
        host, _, port = session.address.rpartition(":")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.version,
            "method": self.method,
            "scheme": "http",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "root_path": "",
            "query_string": query,
            "headers": self.headers,
            "client": (host, int(port)),
            "server": server,
            "state": {},
        }


class HttpGuest:
    """One HTTP connection."""

    def __init__(self, house: Server, session: Session) -> None:
        self.backlog = False  # a request is being answered
        self.closing = self.waits_for_room = False
        self.drained = asyncio.Event()
        self._house = house
        self._session = session
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._fault: Problem | None = None
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = 0
        self._in_head = True
        self._any = self._begun = False  # something of this request came; it began in this read

    # ---- what the session asks ----------------------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """Whether the end of a request is missing."""
        return self._any

    def space(self, count: int) -> None:
        """Nowhere else: requests are small."""

    def receive(self, data: memoryview, now_ms: int) -> list[Piece]:  # noqa: ARG002 - requests carry no time
        """Parse; start answering when a request is whole."""
        self._any = True
        self._begun = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._waiting.pop()  # the request itself was whole
            self._fault = Problem(
                501, "the connection cannot be upgraded", "nothing here speaks WebSocket", "ask over plain HTTP"
            )
        except httptools.HttpParserError as error:
            self._fault = self._fault or Problem(
                400, "this is no HTTP request", str(error) or "it cannot be parsed", "send HTTP/1.1, or 1.0"
            )
        if self._fault is None and self._any and self._in_head:
            self._count_head(data)
        if self._waiting and self._task is None:
            self._next()
        elif self._fault is not None and self._task is None:
            return self._last_words()
        return []

    def _count_head(self, data: memoryview) -> None:
        """A head whose end is missing: its bytes, as far as this read shows where it began."""
        self._head_bytes += len(data) - (bytes(data).rfind(b"\r\n\r\n") + 4 if self._begun else 0)
        if self._head_bytes > limits.HTTP_HEAD_BYTES_MAX:
            self._fault = too_large("head", limits.HTTP_HEAD_BYTES_MAX, 431)

    def resume(self, wait: Wait[Any], now_ms: int) -> list[Piece]:
        """No wait is parked in this guest's name: requests await futures."""
        raise AssertionError(f"{wait} was resumed at {now_ms} for an HTTP connection")

    def proceed(self, now_ms: int) -> list[Piece]:  # noqa: ARG002 - the same for every door
        """The peer takes answers again."""
        self.drained.set()
        return []

    def leave(self, now_ms: int) -> None:  # noqa: ARG002 - the same for every door
        """The peer is gone; whoever answers it may stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    # ---- what the parser finds ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._begin()
        self._any = self._begun = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if len(self._headers) >= limits.HTTP_HEADERS_MAX:
            self._stop(
                Problem(
                    431,
                    "the request is not read",
                    f"it has more than {limits.HTTP_HEADERS_MAX} headers",
                    "send fewer headers",
                )
            )
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        if (
            sum([len(name) + len(value) for name, value in self._headers]) + len(self._target)
            > limits.HTTP_HEAD_BYTES_MAX
        ):
            self._stop(too_large("head", limits.HTTP_HEAD_BYTES_MAX, 431))
        for name, value in self._headers:
            if name == b"content-length" and int(value) > limits.HTTP_BODY_BYTES_MAX:
                self._stop(too_large("body", limits.HTTP_BODY_BYTES_MAX, 413))
            if name == b"expect" and value.lower() == b"100-continue":
                self._session.answer([b"HTTP/1.1 100 Continue\r\n\r\n"])

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > limits.HTTP_BODY_BYTES_MAX:
            self._stop(too_large("body", limits.HTTP_BODY_BYTES_MAX, 413))
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if len(self._waiting) >= limits.HTTP_PIPELINE_MAX:
            self._stop(
                Problem(
                    429, "the request is not read", "too many requests wait on this connection", "take answers first"
                )
            )
        parser = self._parser
        self._waiting.append(
            Request(
                parser.get_method().decode("ascii"), self._target, parser.get_http_version(), parser.should_keep_alive(),
                self._headers, self._body,
            )
        )  # fmt: skip
        self._begin()

    def _stop(self, fault: Problem) -> None:
        self._fault = fault
        raise fault

    # ---- answering ----------------------------------------------------------------------------------

    def _next(self) -> None:
        self.backlog = True
        request = self._waiting.popleft()
        self._task = self._house.loop.create_task(self._serve(request))

    async def _serve(self, request: Request) -> None:
        exchange = Exchange(self, request)
        try:
            await self.room()
            await exchange.run(self._house, self._session)
        except Exception:
            log.exception("a fault of serai while answering %s %s", request.method, request.target.decode("latin-1"))
            exchange.fail()
        if self._task is None:  # the peer is gone
            return
        self._task = None
        if exchange.ends_connection:
            self.closing = True
        elif self._waiting:
            self._next()
            return
        elif self._fault is not None:
            self._session.answer(self._last_words())
        self.backlog = False
        self._session.flush()

    def _last_words(self) -> list[Piece]:
        assert self._fault is not None
        self.closing = True
        body = problem_body(self._fault)
        return [head(self._fault.status, [*JSON_HEAD, length_of(body)], keeps_alive=False) + body]

    def say(self, piece: bytes) -> None:
        """Send a piece of an answer."""
        self._session.answer([piece])
        self._session.flush()

    async def room(self) -> None:
        """Wait until the peer took most of what it was told."""
        while self._session.untaken_bytes >= limits.ANSWER_BYTES:
            self.drained.clear()
            await self.drained.wait()


class Exchange:
    """One request and its answer, as an ASGI application sees them."""

    def __init__(self, guest: HttpGuest, request: Request) -> None:
        self._guest = guest
        self._request = request
        self._asked = False
        self._started = False
        self._chunked = False
        self._silent = request.method == "HEAD"
        self._head = b""
        self.ends_connection = not request.keeps_alive

    async def run(self, house: Server, session: Session) -> None:
        """Let the application answer."""
        scope = self._request.scope(session, (house.settings.host, house.port))
        await house.app(scope, self.receive, self.send)

    async def receive(self) -> Message:
        """The body, once; then nothing until the peer is gone."""
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": b"".join(self._request.body), "more_body": False}

    async def send(self, message: Message) -> None:
        """A head or a piece of a body."""
        if message["type"] == "http.response.start":
            self._begin(message["status"], list(message.get("headers", [])))
            return
        if message["type"] != "http.response.body":
            return
        body = message.get("body", b"")
        more = message.get("more_body", False)
        piece, self._head = self._head, b""
        if not self._silent:
            piece += self._framed(body, last=not more)
        if piece:
            self._guest.say(piece)
        if more:
            await self._guest.room()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        self._silent = self._silent or status in BODILESS
        if not self._silent and not any(name.lower() == b"content-length" for name, _ in headers):
            if self._request.version == "1.1":
                self._chunked = True
                headers.append((b"transfer-encoding", b"chunked"))
            else:
                self.ends_connection = True
        self._head = head(status, headers, keeps_alive=not self.ends_connection)

    def _framed(self, body: bytes, *, last: bool) -> bytes:
        if not self._chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + b"0\r\n\r\n" if last else chunk

    def fail(self) -> None:
        """The application failed: say so if nothing was said, else close."""
        self.ends_connection = True
        if not self._started:
            body = json.dumps({"error": {"what": "the request failed", "why": "a fault of the server; its log has the details",
                                         "hint": "report it"}}).encode()  # fmt: skip
            self._guest.say(head(500, [*JSON_HEAD, length_of(body)], keeps_alive=False) + body)


def head(status: int, headers: list[tuple[bytes, bytes]], *, keeps_alive: bool) -> bytes:
    """A response's head."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    lines = [b"HTTP/1.1 %d %b" % (status, phrase.encode())]
    lines += [b"%b: %b" % pair for pair in headers]
    lines.append(b"connection: keep-alive" if keeps_alive else b"connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def length_of(body: bytes) -> tuple[bytes, bytes]:
    """The header that says how long a body is."""
    return b"content-length", str(len(body)).encode()


def too_large(what: str, bytes_max: int, status: int) -> Problem:
    """A request that is not read on."""
    return Problem(
        status, "the request is not read", f"its {what} is larger than {bytes_max} bytes", f"send a smaller {what}"
    )
