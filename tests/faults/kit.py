"""What the fault tests share: messages that prove themselves, and processes that do not live long.

    epoch 4 | number 8 | filler | crc32 4        of everything before it

The filler's length and bytes follow from epoch and number, so a message that is torn, cut, moved or made of two others
cannot pass `proof`.  The same bytes come out of every shape of writing; see `writing.py`.
"""

from __future__ import annotations

import os
import select
import shutil
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import serai

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
HEAD = struct.Struct("<IQ")
TAIL = struct.Struct("<i")
REPORT = struct.Struct("<Q")
NOISE = Random(5).randbytes(1 << 16)
SIZES = [Random(size).choice((0, 3, 20, 100, 100, 300, 900)) for size in range(1009)]
SIZES[7::101] = [5000, 9000, 4096 - 16, 4096, 12_345, 70_000, 2000, 1, 4095, 4097]  # some go over one page end, or more
READY = b"ready---"


def filler(epoch: int, number: int) -> bytes:
    key = (epoch * 7919 + number) * 2654435761 & 0xFFFFFFFF
    length = SIZES[key % 1009]
    start = key % (len(NOISE) - min(length, 1 << 15))
    return (NOISE[start:] + NOISE)[:length] if length > len(NOISE) - start else NOISE[start : start + length]


def body(epoch: int, number: int) -> bytes:
    """The one message with this number."""
    front = HEAD.pack(epoch, number) + filler(epoch, number)
    return front + TAIL.pack(zlib.crc32(front) - (1 << 31))


def proof(payload: bytes | memoryview) -> tuple[int, int]:
    """Epoch and number of a message; an error when it is not whole."""
    raw = bytes(payload)
    assert len(raw) >= HEAD.size + TAIL.size, f"a message of {len(raw)} bytes: {raw.hex()}"
    epoch, number = HEAD.unpack_from(raw)
    assert zlib.crc32(raw[:-4]) - (1 << 31) == TAIL.unpack(raw[-4:])[0], f"torn: {len(raw)} bytes, {raw[:40].hex()}..."
    assert raw == body(epoch, number), f"message {epoch}/{number} has other bytes than it was written with"
    return epoch, number


# ------------------------------------------------------------------------------------------------ reading


def looks(reader: serai.Reader, shape: str) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each message up to the tail, read in one of the shapes a reader has."""
    if shape == "batch":
        while len(batch := reader.read_batch(20_000)):
            yield from zip(batch.offsets, batch.to_list(), strict=True)
    elif shape == "rows":
        for epoch, number, rest in reader.rows("int", "long", "bytes"):
            yield reader.offset - 16, HEAD.pack(epoch, number) + rest
    elif shape == "payloads":
        for payload in reader.payloads():
            yield reader.offset - 16, payload
    elif shape == "unpack":
        for m in reader:
            raw = m.unpack_bytes(HEAD.size) + m.unpack_bytes(m.remaining)
            yield m.offset, raw
    else:
        for m in reader:
            yield m.offset, bytes(m.view())


SHAPES = ("messages", "batch", "rows", "payloads", "unpack")


# ------------------------------------------------------------------------------------------------ processes


class Victim:
    """A process that says through a pipe what it has published, until it is killed."""

    def __init__(self, *arguments: object, module: str = "tests.faults.writing", errors: int | None = None) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout.fileno()
        self.ended = False
        self.reported = -1
        self.reports: list[int] = []
        self._rest = b""

    def wait_until_ready(self) -> None:
        assert self._read(timeout=30), "the writing process said nothing"

    def hear(self) -> int:
        """The newest message it has said is published; -1 for none."""
        while self._read(timeout=0):
            pass
        return self.reported

    def _read(self, timeout: float) -> bool:
        if self.ended or not select.select([self.pipe], [], [], timeout)[0]:
            return False
        data = os.read(self.pipe, 1 << 16)
        self.ended = not data
        self._rest += data
        whole = len(self._rest) & ~7
        for at in range(0, whole, 8):
            if self._rest[at : at + 8] != READY:
                self.reported = REPORT.unpack_from(self._rest, at)[0]
                self.reports.append(self.reported)
        self._rest = self._rest[whole:]
        return bool(data)

    def kill(self) -> int:
        """Kill -9; gives the newest message it has said is published."""
        early = self.process.poll()
        assert early is None, f"the writing process ended by itself: {early}"
        self.process.kill()
        self.process.wait()
        while self._read(timeout=1):
            pass
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.reported


def run_python(
    source: str, *arguments: object, timeout: float = 60, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Another process that runs `source`; it may end in any way."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        env=os.environ | (environment or {}),
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a process printed that ended well."""
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def until(moment: float) -> bool:
    """True while a moment of time.monotonic has not come."""
    return time.monotonic() < moment


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
