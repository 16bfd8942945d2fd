"""A real server process on a free port of this machine, and raw sockets to knock at it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-W", "error", "-c", "import sys; from serai.cli import main; sys.exit(main())", "server"]
READY = re.compile(r"serai: ready on \S*?:(\d+), data in")
START_S = 20.0
SERVER_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("SERAI_")}


@dataclass
class Running:
    """One server process; leaving the block ends it."""

    data: Path
    flags: tuple[str, ...] = ()
    before: tuple[str, ...] = ()  # a command that starts the server, as `prlimit --nofile=64`
    bounds: dict[str, float] = field(default_factory=dict)  # of `serai.limits`, for this server only
    process: subprocess.Popen[str] = field(init=False)
    port: int = field(init=False)
    said: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        words = list(COMMAND)
        words[-2] = (
            "".join(f"import serai.limits; serai.limits.{name} = {value}; " for name, value in self.bounds.items())
            + words[-2]
        )
        command = [*self.before, *words, "--data", str(self.data), "--port", "0", *self.flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=SERVER_ENVIRONMENT)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = READY.search(line)
            if found:
                self.port = int(found[1])
                return
        raise AssertionError(f"the server did not start: {''.join(self.said)}")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code and the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        self._rest()
        return self.process.wait(30), time.monotonic() - started

    def kill(self) -> None:
        """kill -9, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self._rest()
        self.process.wait(30)

    def _rest(self) -> None:
        if self.process.stderr is not None and not self.process.stderr.closed:
            self.said += self.process.stderr.readlines()
            self.process.stderr.close()

    # ---- talking to it

    def knock(self, *, timeout_s: float = 5.0) -> socket.socket:
        """A plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """One HTTP request; status and JSON."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()
        finally:
            connection.close()

    # ---- looking at it

    def anonymous_kib(self) -> int:
        """Memory of its own, without mapped files."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))

    def cpu_s(self) -> float:
        """Processor time spent so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            words = file.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that nobody listens on, for a server that has to come back where it was."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def until_closed(sock: socket.socket) -> tuple[bytes, float]:
    """What still comes, and the seconds until the other end closes."""
    started = time.monotonic()
    said = b""
    try:
        while chunk := sock.recv(65536):
            said += chunk
    except ConnectionResetError:
        pass
    return said, time.monotonic() - started
