"""Workers that acknowledge at once."""

from __future__ import annotations

import socket

import pytest

from serai.spark import daemon


def test_worker_asks_the_kernel_to_be_prompt_before_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def task(sock: socket.socket, authenticated: bool) -> int:
        told.append((sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), authenticated))
        return 7

    monkeypatch.setattr(daemon, "spark_worker", task)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        assert [daemon.worker(sock, False), daemon.worker(sock, True)] == [7, 7]
    assert told == [(1, False), (1, True)]


def test_worker_behind_a_socket_file_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "spark_worker", lambda _sock, _authenticated: 0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert daemon.worker(ours, True) == 0
