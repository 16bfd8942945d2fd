"""A server process from its start to its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.gate.kit import COMMAND, SERVER_ENVIRONMENT, Running, until_closed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB_KIB = 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with Running(tmp_path / "data") as running:
        yield running


def attempt(*flags: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=30, env=SERVER_ENVIRONMENT)


def produce(server: Running, topic: str, *values: str, level: str = "commit") -> None:
    records = [{"value": value} for value in values]
    status, said = server.ask("POST", f"/api/v1/topics/{topic}/records", {"records": records, "level": level})
    assert status == 201, said


def values(server: Running, topic: str) -> list[str]:
    _, said = server.ask("GET", f"/api/v1/topics/{topic}/records?count=1000")
    return [record["value"] for record in said["records"]]


# ---- start and end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_zero_and_keeps_what_was_answered(server: Running, number: int) -> None:
    for level in ("receive", "commit"):
        produce(server, "t", level, level=level)
    code, seconds = server.end(number)
    assert (code, seconds < 10) == (0, True)
    with Running(server.data) as again:
        assert values(again, "t") == ["receive", "commit"]


def test_kill_loses_nothing_that_was_answered(server: Running) -> None:
    for at in range(20):
        produce(server, "t", f"message {at}", level="receive" if at % 2 else "commit")
    server.kill()
    with Running(server.data) as again:
        assert values(again, "t") == [f"message {at}" for at in range(20)]


def test_topic_forgets_by_itself_what_its_policy_says(tmp_path: Path) -> None:
    with Running(tmp_path / "d", flags=("--page-size", "64K")) as server:
        server.ask("POST", "/api/v1/topics", {"name": "t", "policy": {"retention_bytes": 1 << 17}})
        for _ in range(20):
            produce(server, "t", *["x" * 5000] * 10, level="receive")
        until = time.monotonic() + 20
        while not (first := server.ask("GET", "/api/v1/topics/t")[1]["partitions"][0]["first"]):
            assert time.monotonic() < until, "nothing was forgotten in 20 s"
            time.sleep(0.1)
        assert first < 200


def test_second_server_on_the_same_data_is_refused_in_words(server: Running) -> None:
    done = attempt("--data", str(server.data), "--port", "0")
    assert done.returncode == 1
    assert "is served by another process already" in done.stderr
    assert "try: serai server --data" in done.stderr
    assert "Traceback" not in done.stderr


def test_taken_port_is_refused_in_words_and_nothing_is_made(server: Running, tmp_path: Path) -> None:
    done = attempt("--data", str(tmp_path / "other"), "--port", str(server.port))
    assert done.returncode == 1
    assert f"port {server.port} of 127.0.0.1 is taken" in done.stderr
    assert not (tmp_path / "other").exists()


def test_address_of_another_machine_is_refused_with_one_that_is_here(tmp_path: Path) -> None:
    done = attempt("--data", str(tmp_path / "d"), "--port", "0", "--host", "203.0.113.1", "--insecure")
    assert done.returncode == 1
    assert "203.0.113.1 is no address of this machine" in done.stderr
    assert "try: serai server --host 127.0.0.1" in done.stderr


def test_open_address_is_refused_unless_insecure_is_said(tmp_path: Path) -> None:
    done = attempt("--data", str(tmp_path / "d"), "--port", "0", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--insecure" in done.stderr
    with Running(tmp_path / "d", flags=("--host", "0.0.0.0", "--insecure")) as running:
        assert running.ask("GET", "/healthz")[0] == 200
        said = running.ask("POST", "/api/v1/topics/t/records", {"records": [{"value": "x"}]})[1]
        assert said["error"]["code"] == "topic-unknown"  # strangers make no topics
    flags = ("--host", "0.0.0.0", "--insecure", "--set", "auto_create=on")
    with Running(tmp_path / "d", flags=flags) as running:
        assert running.ask("POST", "/api/v1/topics/t/records", {"records": [{"value": "x"}]})[0] == 201


def test_settings_come_from_file_environment_flags_and_set(tmp_path: Path) -> None:
    (tmp_path / "serai.toml").write_text('auto_create = false\nack = "receive"\n')
    flags = ("--config", str(tmp_path / "serai.toml"), "--set", "region=north")
    with Running(tmp_path / "d", flags=flags) as running:
        status, said = running.ask("POST", "/api/v1/topics/absent/records", {"records": [{"value": "x"}]})
    assert (status, said["error"]["code"]) == (404, "topic-unknown")


def test_unknown_setting_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    done = attempt("--data", str(tmp_path / "d"), "--set", "auto_craete=false")
    assert done.returncode == 2
    assert "did you mean 'auto_create'?" in done.stderr


# ---- who knocks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 16, b"\xff" * 64, bytes.fromhex("7fffffffcafebebe0202000000010100"), b"\x83\0\0\0", b"\r\n\r\n\r\n"],
)
def test_garbage_is_closed_at_once_and_neighbours_do_not_notice(server: Running, garbage: bytes) -> None:
    with server.knock() as neighbour, server.knock() as stranger:
        neighbour.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        stranger.sendall(garbage)
        said, seconds = until_closed(stranger)
        assert said == b""
        assert seconds < 0.5  # a loaded machine may be slow to run the server at all
        neighbour.sendall(b"\r\n")
        assert neighbour.recv(1000).startswith(b"HTTP/1.1 200")


def test_one_byte_at_a_time_is_served_like_one_write(server: Running) -> None:
    with server.knock() as sock:
        for byte in b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n":
            sock.sendall(bytes([byte]))
        said, _ = until_closed(sock)
    assert said.startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_silent_and_dribbling_guests_are_shown_out_after_ten_seconds(server: Running) -> None:
    with server.knock(timeout_s=30) as silent, server.knock(timeout_s=30) as dribbling:
        started = time.monotonic()
        dribbling.sendall(b"GET /healthz HTTP/1.1\r\n")
        gone = None
        dribbling.settimeout(0.5)
        while gone is None and time.monotonic() - started < 25:
            try:
                dribbling.sendall(b"x: y\r\n")
                if dribbling.recv(10) == b"":
                    gone = time.monotonic() - started
            except TimeoutError:
                continue
            except OSError:
                gone = time.monotonic() - started
        assert gone is not None
        assert 8 < gone < 20
        _, seconds = until_closed(silent)
        assert seconds < 10
    assert server.ask("GET", "/healthz")[0] == 200


def test_without_descriptors_new_guests_wait_and_old_ones_are_served(tmp_path: Path) -> None:
    with Running(tmp_path / "d", before=("prlimit", "--nofile=64:64")) as server, ExitStack() as held:
        first = held.enter_context(server.knock())
        for _ in range(80):  # the kernel's queue takes those that are not let in
            held.enter_context(server.knock())
        before = server.cpu_s()
        time.sleep(1.0)
        assert server.cpu_s() - before < 0.2
        first.sendall(
            b"POST /api/v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12\r\n\r\n" + b'{"name":"t"}'
        )
        assert first.recv(1000).startswith(b"HTTP/1.1 201")
        held.close()
        assert server.ask("GET", "/healthz")[0] == 200


# ---- what it costs ------------------------------------------------------------------------------------------


def test_idle_server_and_idle_guests_cost_little_memory(server: Running) -> None:
    server.ask("GET", "/healthz")
    idle = server.anonymous_kib()
    assert idle < 40 * MIB_KIB
    with ExitStack() as held:
        for _ in range(500):
            sock = held.enter_context(server.knock())
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        assert (server.anonymous_kib() - idle) / 500 < 64


def test_start_takes_a_third_of_a_second_beside_the_interpreter(tmp_path: Path) -> None:
    spent, waited = zip(*(start_s(tmp_path / str(at)) for at in range(4)), strict=True)
    bare = min(interpreter_s() for _ in range(4))
    assert min(spent) - bare < 0.6, f"{spent} s, a bare interpreter {bare:.2f} s"  # 0.3 on an idle machine
    assert min(waited) < 3.0  # it waits for nothing; others may have the processor first


def start_s(data: Path) -> tuple[float, float]:
    """Until it says that it is ready: seconds of the processor, and of the clock."""
    started = time.monotonic()
    with Running(data) as server:
        return server.cpu_s(), time.monotonic() - started


def interpreter_s() -> float:
    before = os.times()
    subprocess.run([COMMAND[0], "-c", "pass"], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_the_ready_line_names_the_address(server: Running) -> None:
    assert re.fullmatch(rf"serai: ready on 127\.0\.0\.1:{server.port}, data in .*data\n", server.said[0])
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", server.port), timeout=1):
        pass
