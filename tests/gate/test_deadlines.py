"""Who is shown out when: a server whose deadlines are a second long, and guests who reach them or do not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import REAL
from tests.doors.jmq.caller import Caller
from tests.gate.kit import Running, until_closed

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

SHORT = {"FIRST_WORD_S": 1.0, "IDLE_S": 1.0, "KEEP_ALIVE_S": 1.0, "STUCK_S": 1.0, "SWEEP_S": 0.1}
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
SOON_S, LATE_S = 0.8, 6.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("deadlines") / "data", bounds=SHORT) as running:
        yield running


def closed_after_s(sock: socket.socket) -> float:
    sock.settimeout(LATE_S)
    return until_closed(sock)[1]


def test_guest_that_says_nothing_is_shown_out(server: Running) -> None:
    with server.knock() as sock:
        assert SOON_S < closed_after_s(sock) < LATE_S


@pytest.mark.parametrize("start", [b"GET /healthz HT", b"\0\0\1\0\xca\xfe\xbe\xbe\4\2\0\0\0\1\1"], ids=["http", "jmq"])
def test_request_that_does_not_come_to_its_end_is_given_up(server: Running, start: bytes) -> None:
    with server.knock() as sock:
        sock.sendall(start)
        assert SOON_S < closed_after_s(sock) < LATE_S


def test_quiet_guests_of_both_doors_are_shown_out(server: Running) -> None:
    with server.knock() as sock, Caller(server, REAL) as caller:
        sock.sendall(HEALTH)
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        assert SOON_S < closed_after_s(sock) < LATE_S
        assert closed_after_s(caller.sock) < LATE_S


def test_heartbeats_and_waiting_keep_a_guest(server: Running) -> None:
    with Caller(server, REAL) as caller, Caller(server, REAL) as waiting:
        waiting.registers("t")
        waiting.tell(waiting.fetch_command("t", poll_ms=2500))
        until = time.monotonic() + 2.2
        while time.monotonic() < until:
            assert caller.ask(commands.Heartbeat()).status == 0
            time.sleep(0.2)
        waiting.waits_s()
        assert waiting.row(waiting.heard()[0]).messages.count == 0
        assert waiting.ask(commands.Heartbeat()).status == 0


def test_guest_that_takes_nothing_of_what_it_asked_for_is_shown_out(server: Running) -> None:
    with Caller(server, REAL) as stuck:
        stuck.looks_up("large")
        for _ in range(20):
            stuck.produce("large", *[bytes(50_000)] * 20)
        wish = commands.PartitionWishes(
            topic="large", partitions=[commands.PartitionWish(partition=0, count=400, index=0)]
        )
        for _ in range(30):
            stuck.tell(commands.FetchPartitionMessage(topics=[wish], app="shop"))
        until = time.monotonic() + LATE_S
        while 'serai_connections{door="jmq"}' in server.ask("GET", "/metrics")[1]:
            assert time.monotonic() < until
            time.sleep(0.1)
