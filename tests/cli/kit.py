"""`serai` as a shell sees it: another process, with pipes or with a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-W", "error", "-c", "import sys; from serai.cli import main; sys.exit(main())"]


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED")
    }
    return kept | {"COLUMNS": "100", "TERM": "xterm"} | more


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def serai(*words: object, cwd: Path, stdin: bytes = b"", **env: str) -> Done:
    """One command between pipes."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], cwd=cwd, input=stdin, capture_output=True, env=environment(**env), timeout=60
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def start(*words: object, cwd: Path) -> subprocess.Popen[bytes]:
    """A command that goes on; the caller ends it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, words)], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(),
    )  # fmt: skip


def interrupt(process: subprocess.Popen[bytes]) -> Done:
    """Ctrl-C."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return Done(process.returncode, out, err.decode())


def on_terminal(*words: object, cwd: Path, typed: bytes = b"", **env: str) -> tuple[int, str]:
    """One command on a terminal of its own; code, and everything it showed."""
    try:
        pid, terminal = pty.fork()
    except OSError as error:
        pytest.skip(f"no pseudo-terminal to be had ({error}) | mount -t devpts devpts /dev/pts")
    if pid == 0:
        os.chdir(cwd)
        os.execve(COMMAND[0], [*COMMAND, *map(str, words)], environment(**env))
    os.write(terminal, typed)
    shown, until = b"", time.monotonic() + 60
    while time.monotonic() < until and select.select([terminal], [], [], 30)[0]:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode()
