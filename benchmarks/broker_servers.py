"""Server processes under measurement: started here on the loopback address, ended by their own pid, and read in /proc.

    server = Process([...], log=...)     server.cpu_ns()   server.anonymous_bytes()   server.seconds_to_ready

- A server is started in a directory of its own, listens on a port of its own, and is ended with it.
- Its CPU time is the scheduler's own count in nanoseconds (/proc/PID/task/*/schedstat), summed over its threads and its
  children; what `times` and `ps` show moves in steps of 10 ms, a twentieth of a run.
- Anonymous memory is what the process alone holds; mapped pages of a log are the kernel's to take back at any time.
- What a server says goes to a file, of which the end is shown when it does not start.

How each server is told what to do stands with the peers (`broker_peers`) and with serai (`broker_own`).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["NotThere", "Process", "connected", "free_port"]

STOP_S = 12.0


class NotThere(Exception):
    """A peer that is not installed, or that does not start: it is left out, and that is said."""


def free_port() -> int:
    """A port of the kernel's choice that nobody listens on just now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def connected(port: int, timeout_s: float = 10.0) -> socket.socket:
    """A connection that sends at once."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def answers(port: int, greeting: bytes) -> bool:
    """Whether somebody listens there, and says something to a greeting, if that is needed to know."""
    try:
        with connected(port, 1.0) as sock:
            if greeting:
                sock.sendall(greeting)
                return bool(sock.recv(1))
            return True
    except OSError:
        return False


class Process:
    """One server process and its children.

    Ready when its port answers, or, for one that takes a port of its own choice, when it has said it: `says` is a
    pattern whose only group is the port.
    """

    def __init__(
        self,
        command: list[str],
        *,
        log: Path,
        port: int = 0,
        says: str = "",
        greeting: bytes = b"",
        env: dict[str, str] | None = None,
        ready_s: float = 30.0,
    ) -> None:
        self.name = Path(command[0]).name
        self._log = log
        begun = time.perf_counter()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
            )
        try:
            self.port = self._wait(
                lambda: self._said(says) if says else port if answers(port, greeting) else 0, begun + ready_s
            )
        except BaseException:
            self.stop()
            raise
        self.seconds_to_ready = time.perf_counter() - begun

    def _wait(self, found: Callable[[], int], until: float) -> int:
        while True:
            port = found()
            if port:
                return port
            if self._process.poll() is not None:
                raise NotThere(f"{self.name} ended with {self._process.returncode}: {self.words[-400:].strip()}")
            if time.perf_counter() > until:
                raise NotThere(f"{self.name} was not ready in time: {self.words[-400:].strip()}")
            time.sleep(0.001)

    def _said(self, pattern: str) -> int:
        match = re.search(pattern, self.words)
        return int(match[1]) if match else 0

    @property
    def words(self) -> str:
        """What it said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    def family(self) -> list[int]:
        """The process and all below it."""
        found, at = [self.pid], 0
        while at < len(found):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{found[at]}/task").iterdir():
                    found += map(int, (task / "children").read_text(encoding="ascii").split())
            at += 1
        return found

    def cpu_ns(self) -> int:
        """CPU time spent so far."""
        total = 0
        for pid in self.family():
            with contextlib.suppress(OSError):  # a thread that ends just now
                for task in Path(f"/proc/{pid}/task").iterdir():
                    total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        return total

    def anonymous_bytes(self) -> int:
        """Memory that belongs to the process alone."""
        total = 0
        for pid in self.family():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            match = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
            total += int(match[1]) * 1024 if match else 0
        return total

    def stop(self) -> None:
        """End it, and whatever it started, by their pids."""
        family = self.family()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(STOP_S)
        for pid in family[1:] if self._process.returncode is not None else family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def interpreter_seconds() -> float:
    """How long Python itself takes to come and go: what no server written in it can undercut."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begun
