"""The C loader and what it found: `blast.c` compiled once, a script for it, a figure from it.

    Script    what a connection says: setup, then one request again and again, and how its answers are told apart
    blast     sends a script at a server and answers a `Figure`: messages a second, the server's CPU for each

Rounds, best figures and everything that was noted are a `Sheet`: measure -> contestant -> figures.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.broker_servers import NotThere, Process

__all__ = ["Figure", "Loader", "Script", "Sheet", "measured"]

Unit = Literal["msg/s", "B/s", "us", "ms", "s", "MiB", "KiB"]
RATES = ("msg/s", "B/s")
LOAD_S_MAX = 120


@dataclass(frozen=True)
class Script:
    """What one connection says; `messages` and `frames` are those of the request, `answers` as in blast.c."""

    request: bytes
    messages: int
    answers: str
    setup: bytes = b""
    setup_answers: int = 0
    frames: int = 1
    patch: int = 0


@dataclass(frozen=True)
class Figure:
    """One round's finding: a value, the server's CPU microseconds for each message, and what else is worth keeping."""

    value: float
    unit: Unit
    cpu_us: float | None = None
    more: dict[str, float] = field(default_factory=dict)


@dataclass
class Sheet:
    """measure -> contestant -> a figure of each round; and what was said."""

    figures: dict[str, dict[str, list[Figure]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, measure: str, name: str, figure: Figure) -> None:
        self.figures.setdefault(measure, {}).setdefault(name, []).append(figure)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def rounds(self, measure: str, name: str) -> list[Figure]:
        return self.figures.get(measure, {}).get(name, [])

    def best(self, measure: str, name: str) -> float | None:
        """The best round: noise only takes away."""
        found = self.rounds(measure, name)
        if not found:
            return None
        values = [figure.value for figure in found]
        return max(values) if found[0].unit in RATES else min(values)

    def cpu_us(self, measure: str, name: str) -> float | None:
        """The server's CPU for each message, in the round where it was least."""
        found = [figure.cpu_us for figure in self.rounds(measure, name) if figure.cpu_us is not None]
        return min(found) if found else None


class Loader:
    """The compiled loader."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise NotThere("the loader is C, and there is no C compiler: apt-get install gcc libc6-dev")
        self.directory = directory
        self.path = directory / "blast"
        source = Path(__file__).with_name("blast.c")
        subprocess.run([compiler, "-O2", "-Wall", "-o", str(self.path), str(source)], check=True)

    def load(
        self, port: int, script: Script, *, total: int, window: int, connections: int = 1, times: Path | None = None
    ) -> dict[str, float]:
        """Run it; what it printed."""
        (self.directory / "request").write_bytes(script.request)
        words = [
            f"port={port}", f"request={self.directory / 'request'}", f"messages={script.messages}",
            f"frames={script.frames}", f"answers={script.answers}", f"total={total}",
            f"window={max(window, script.messages)}", f"connections={connections}", f"patch={script.patch}",
            f"setup_answers={script.setup_answers}",
        ]  # fmt: skip
        if script.setup:
            (self.directory / "setup").write_bytes(script.setup)
            words.append(f"setup={self.directory / 'setup'}")
        if times is not None:
            words.append(f"times={times}")
        return self._run("load", *words)

    def sync(self, path: Path, *, count: int, size: int) -> dict[str, float]:
        """Write and wait for the disk."""
        return self._run("sync", str(path), str(count), str(size))

    def server(self, kind: Literal["sink", "echo"], log: Path) -> Process:
        """Its other half: a server that drops everything, or sends it back."""
        return Process([str(self.path), kind], log=log, says=r"^(\d+)\n")

    def _run(self, *words: str) -> dict[str, float]:
        done = subprocess.run([str(self.path), *words], check=False, capture_output=True, text=True, timeout=LOAD_S_MAX)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"the loader ended with {done.returncode}")
        found: dict[str, float] = json.loads(done.stdout)
        return found


def measured(
    loader: Loader, server: Process, script: Script, *, total: int, window: int, connections: int = 1
) -> Figure:
    """A load as messages a second; `more` has the time from request to answer."""
    before = server.cpu_ns()
    found = loader.load(server.port, script, total=total, window=window, connections=connections)
    cpu_us = (server.cpu_ns() - before) / found["messages"] / 1e3
    more = {key: found[key] for key in ("p50_us", "p99_us", "max_us")}
    return Figure(found["messages"] / found["seconds"], "msg/s", cpu_us, more)


def entries(sheet: Sheet) -> Iterator[tuple[str, str, list[Figure]]]:
    """Everything in it, in the order it was first seen."""
    for measure, contestants in sheet.figures.items():
        for name, figures in contestants.items():
            yield measure, name, figures
