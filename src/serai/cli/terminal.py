"""Talking on stderr: sentences, failures, bars and questions; and tables for stdout.

A bar is drawn only on a terminal; elsewhere work that takes longer than a second says one line for each
tenth it has done.  `--quiet` leaves only failures and warnings about data.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

FAILED, USAGE, UNREACHABLE, NOT_ALLOWED, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 5, 130
BAR_SECONDS = 0.1  # between two drawings
PATIENCE_SECONDS = 1.0  # before a pipe hears of progress
STYLES = {"bold": "1", "red": "31", "yellow": "33", "green": "32", "dim": "2"}


class Failure(Exception):
    """What could not be done, why, and a command that helps."""

    def __init__(self, what: str, why: str, hint: str, *, code: int = FAILED) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what
        self.why = why
        self.hint = hint
        self.code = code


@contextmanager
def data() -> Iterator[IO[bytes]]:
    """Stdout as bytes, buffered whatever Python was told: a raw stream may write less than it is given."""
    out: IO[bytes] = sys.stdout.buffer
    if isinstance(out, io.RawIOBase):
        out = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115 - flushed below; closing it is not ours
    try:
        yield out
    finally:
        out.flush()


def has_colour(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") != "0":
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: IO[str]) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if has_colour(stream) else text


class Talk:
    """What a command says beside its data."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        self.quiet = quiet
        self.verbose = verbose
        self.summary: Callable[[], str] = lambda: "stopped"

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def detail(self, text: str) -> None:
        if self.verbose:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Something about the data that nobody may miss, quiet or not."""
        print(f"{paint('warning:', 'yellow', sys.stderr)} {text}", file=sys.stderr, flush=True)

    def fail(self, failure: Failure) -> None:
        if sys.stdout is not None:
            sys.stdout.flush()
        lines = [f"{paint('error:', 'red', sys.stderr)} {failure.what}", f"  why: {failure.why}"]
        print("\n".join(lines), f"  try: {failure.hint}", sep="\n", file=sys.stderr, flush=True)

    def interrupted(self) -> None:
        """The summary after Ctrl-C; what was read or written until then stays so."""
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        self.say(f"\n{self.summary()}")

    @contextmanager
    def progress(self, label: str) -> Iterator[Callable[..., None]]:
        """A function that takes (done, total, words) and shows it the way this stream wants it."""
        bar = Bar(label, quiet=self.quiet)
        try:
            yield bar.show
        finally:
            bar.clear()


class Bar:
    """How far one piece of work is."""

    def __init__(self, label: str, *, quiet: bool) -> None:
        self.label = label
        self.drawing = sys.stderr.isatty()
        self.quiet = quiet
        self._started = self._drawn = time.monotonic()
        self._tenth = 0
        self._dirty = False

    def show(self, done: int, total: int, words: str = "") -> None:
        now = time.monotonic()
        if self.quiet or total <= 0:
            return
        if not self.drawing:
            self._say(done, total, words, now)
        elif now - self._drawn >= BAR_SECONDS:
            self._drawn = now
            self._dirty = True
            left = (now - self._started) * (total - done) / done if done else 0
            filled = "#" * (30 * done // total)
            text = f"\r{self.label} [{filled:<30}] {100 * done // total:3d} %, {words or f'{left:,.0f} s left'} "
            print(text, end="\x1b[K" if words else "", file=sys.stderr, flush=True)

    def _say(self, done: int, total: int, words: str, now: float) -> None:
        tenth = 10 * done // total
        if tenth > self._tenth and now - self._started >= PATIENCE_SECONDS:
            self._tenth = tenth
            print(f"{self.label}: {10 * tenth} %{words and ', '}{words}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._dirty:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def ask(question: str) -> bool:
    """A yes on the terminal; no when there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A small table whose columns are as wide as they need to be; numbers stand on the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    numbers = [all(line[i][:1].isdigit() for line in cells) for i in range(len(heads))]
    lines = [paint(_line(heads, widths, numbers), "bold", sys.stdout)]
    return "\n".join([*lines, *(_line(line, widths, numbers) for line in cells)])


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    columns = zip(cells, widths, numbers, strict=True)
    return "  ".join(f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in columns).rstrip()


def sized(count: int) -> str:
    """Bytes as a person reads them."""
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count:,} bytes" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def counted(count: int, word: str = "message") -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
