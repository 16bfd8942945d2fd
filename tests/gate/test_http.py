"""HTTP on the port, by raw bytes: framing, bounds, and what stays open."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import TYPE_CHECKING

import pytest

from serai import limits
from tests.gate.kit import Running, until_closed

if TYPE_CHECKING:
    from collections.abc import Iterator

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("http") / "data") as running:
        yield running


def exchange(server: Running, *pieces: bytes) -> bytes:
    """Send pieces, then read until the other end closes."""
    with server.knock() as sock:
        for piece in pieces:
            sock.sendall(piece)
        return until_closed(sock)[0]


def answers(said: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each answer with a length."""
    found = []
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        size = int(length[1]) if length else 0
        found.append((int(head.split()[1]), rest[:size]))
        said = rest[size:]
    return found


def test_pipelined_requests_are_answered_in_order_in_spite_of_cuts(server: Running) -> None:
    paths = ["/healthz", "/nowhere", "/readyz", "/api/v1/topics", "/healthz"] * 5
    text = b"".join(b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode() for path in paths)
    text = text[: -len(HEALTH)] + HEALTH.replace(b"host", b"connection: close\r\nhost", 1)
    for step in (len(text), 7):
        said = exchange(server, *(text[at : at + step] for at in range(0, len(text), step)))
        expected = [404 if path == "/nowhere" else 200 for path in paths]
        assert [status for status, _ in answers(said)] == expected


def test_connection_stays_open_unless_it_is_said_or_the_version_is_old(server: Running) -> None:
    with server.knock() as sock:
        for _ in range(3):
            sock.sendall(HEALTH)
            assert b"connection: keep-alive" in sock.recv(1000)
    assert b"connection: close" in exchange(server, b"GET /healthz HTTP/1.0\r\n\r\n")


def test_head_has_the_length_and_no_body(server: Running) -> None:
    said = exchange(server, b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert b"content-length: " in said
    assert said.endswith(b"\r\n\r\n")


def test_chunked_and_expected_bodies_arrive_whole(server: Running) -> None:
    body = json.dumps({"name": "chunked"}).encode()
    start = b"POST /api/v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert answers(exchange(server, start + b"transfer-encoding: chunked\r\n\r\n", chunks))[0][0] == 201
    with server.knock() as sock:
        body = json.dumps({"name": "expected"}).encode()
        sock.sendall(start + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body))
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert until_closed(sock)[0].startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nhost localhost\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST /x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (limits.HTTP_BODY_BYTES_MAX + 1), 413),
        (b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (limits.HTTP_HEADERS_MAX + 1) + b"\r\n", 431),
        (b"GET /" + b"a" * limits.HTTP_HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * (limits.HTTP_HEAD_BYTES_MAX + 1), 431),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", 501),
    ],
)
def test_what_cannot_be_served_is_said_in_json_and_closed(server: Running, text: bytes, status: int) -> None:
    with server.knock() as sock:
        sock.sendall(text)
        said, seconds = until_closed(sock)
    found = answers(said)
    assert [found[0][0], len(found)] == [status, 1]
    assert set(json.loads(found[0][1])["error"]) == {"code", "what", "why", "hint"}
    assert seconds < 1


def test_as_many_headers_as_allowed_are_served(server: Running) -> None:
    text = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    text += b"x: y\r\n" * (limits.HTTP_HEADERS_MAX - 2)
    assert exchange(server, text + b"\r\n").startswith(b"HTTP/1.1 200")


def test_answers_before_a_fault_are_given(server: Running) -> None:
    said = exchange(server, HEALTH + b"NONSENSE\r\n\r\n")
    assert [status for status, _ in answers(said)] == [200, 400]


def test_a_body_is_not_kept_beyond_its_bound(server: Running) -> None:
    before = server.anonymous_kib()
    with server.knock() as sock:
        sock.sendall(b"POST /x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        try:
            for _ in range(40 * 16):
                sock.sendall(chunk)
        except OSError:
            pass
        else:
            assert sock.recv(1000).startswith(b"HTTP/1.1 413")
    assert server.anonymous_kib() - before < 3 * limits.HTTP_BODY_BYTES_MAX / 1024
    assert server.ask("GET", "/healthz")[0] == 200


def test_a_guest_that_takes_nothing_costs_at_most_its_cap(server: Running) -> None:
    values = [{"value": "x" * 20_000} for _ in range(100)]
    server.ask("POST", "/api/v1/topics/large/records", {"records": values, "level": "receive"})
    server.ask("GET", "/api/v1/topics/large/records?count=100")
    before = server.anonymous_kib()
    with server.knock() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /api/v1/topics/large/records?count=100 HTTP/1.1\r\nhost: localhost\r\n\r\n"
        sock.setblocking(False)
        sent = 0
        until = time.monotonic() + 3
        while time.monotonic() < until:
            try:
                sent += sock.send(request)
            except BlockingIOError:
                time.sleep(0.05)
        assert sent
        assert (server.anonymous_kib() - before) * 1024 < 2 * limits.OUTBOX_BYTES_MAX
        assert server.ask("GET", "/healthz")[0] == 200
    time.sleep(0.2)
    assert server.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]:80", "10.0.0.7"])
def test_addresses_and_localhost_are_hosts_of_this_server(server: Running, host: str) -> None:
    assert server.ask("GET", "/healthz", Host=host)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "127.0.0.1.evil.example:80"},
    ],
)
def test_pages_of_other_sites_are_refused(server: Running, headers: dict[str, str]) -> None:
    status, said = server.ask("POST", "/api/v1/topics", {"name": "stolen"}, **headers)
    assert (status, said["error"]["code"]) == (403, "forbidden")
    assert server.ask("GET", "/api/v1/topics/stolen")[0] == 404


def test_own_pages_are_served(server: Running) -> None:
    host = f"127.0.0.1:{server.port}"
    assert server.ask("GET", "/healthz", Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")[0] == 200
