"""What the acts of `make run` say, and how: results on stdout, a bar on a terminal's stderr."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Thing = TypeVar("Thing")
PLACE = Path(".serai-run")


def say(text: str = "") -> None:
    """A line, seen at once also in a pipe."""
    print(text, flush=True)


def arrived(right: bool, text: str) -> bool:  # noqa: FBT001 - a verdict and the words for it
    """Say if an act held."""
    say(f"   {'arrived' if right else 'NOT ARRIVED':<20} {text}")
    return right


def rate(verb: str, count: int, seconds: float, size: int = 0) -> None:
    """Say how fast that was."""
    speed = f", {size / seconds / 1e9:.2f} GB/s" if size else ""
    say(f"   {verb:<20} {seconds:.2f} s, {count / seconds / 1e6:.2f} million a second{speed}")


def batches(things: Iterable[Thing], count: int) -> Iterator[list[Thing]]:
    """Lists of `count` things each."""
    waiting = iter(things)
    while batch := list(islice(waiting, count)):
        yield batch


def progress(things: Iterable[Thing], count: int) -> Iterator[Thing]:
    """Pass things on, with a bar on a terminal."""
    step = max(1, count // 100)
    for at, thing in enumerate(things):
        if at % step == 0:
            meter(at / count)
        yield thing
    meter(None)


def meter(share: float | None) -> None:
    """Draw the bar, or take it away; nothing where nobody watches."""
    if sys.stderr.isatty():
        bar = "\r\x1b[K" if share is None else f"\r   [{'#' * int(share * 30):<30}] {share:4.0%}"
        print(bar, end="", file=sys.stderr, flush=True)
