"""Following a queue while it grows, and reading several in one order.

A mapped page rings no bell, so a follower looks.  How it spends the time between two looks is the
caller's choice:

    "backoff"  looks 2,000 times, then yields the processor, then sleeps up to 1 ms (the default)
    "spin"     looks all the time: the shortest hop, a whole processor
    "yield"    gives the processor away between looks
    seconds    sleeps that long;  callable: is called

Invariant: an error of a reader (a damaged entry, a dead producer) comes out once; asking again goes on
behind it, and no message that was already taken from another reader is lost.
"""

import heapq
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Self

from serai import limits
from serai._core.pack import Message
from serai._core.reader import Reader
from serai.errors import Misuse

Idle = str | float | Callable[[], object]


def _back_off(misses: int) -> None:
    if misses < 8:
        os.sched_yield()
    else:
        time.sleep(min(limits.IDLE_SLEEP_MAX_S, 2e-6 * 2 ** min(misses - 8, 10)))


def _rest_between_looks(idle: Idle) -> Callable[[int], object]:
    """What to do after so many looks in vain."""
    if callable(idle):
        return lambda misses: idle()
    if isinstance(idle, (int, float)):
        pause = _pause(idle)
        return lambda misses: time.sleep(pause)
    rests: dict[str, Callable[[int], object]] = {
        "backoff": _back_off,
        "spin": lambda misses: None,
        "yield": lambda misses: os.sched_yield(),
    }
    if idle not in rests:
        raise Misuse(f"idle is {idle!r}; it is 'backoff', 'spin', 'yield', a number of seconds or something to call")
    return rests[idle]


def _pause(idle: float) -> float:
    if not idle >= 0:
        raise Misuse(f"idle is {idle}; a pause between two looks is a number of seconds from 0 on")
    return idle


class _Quiet:
    """How long nothing came."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._since: float | None = None

    def ends(self) -> bool:
        """Called at each look in vain: whether it was the last."""
        if self._timeout is None:
            return False
        now = time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since >= self._timeout

    def broken(self) -> None:
        self._since = None


class Tail:
    """Messages of one reader as they come."""

    def __init__(self, reader: Reader, idle: Idle, timeout: float | None) -> None:
        self._reader = reader
        self._rest = _rest_between_looks(idle)
        self._spins = limits.SPIN_LOOKS if idle in ("backoff", "spin") else 1
        self._quiet = _Quiet(timeout)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        misses = 0
        while True:
            message = self._reader.next()
            if message is not None:
                self._quiet.broken()
                return message
            if self._quiet.ends():
                raise StopIteration
            misses += 1
            if not self._reader.wait(self._spins):
                self._rest(misses)


def tail(reader: Reader, idle: Idle = "backoff", *, timeout: float | None = None) -> Iterator[Message]:
    """Messages as they come, for ever, or until none came for `timeout` seconds."""
    return Tail(reader, idle, timeout)


class AsyncTail:
    """Messages of one reader for `async for`: the event loop runs on while there is nothing to read."""

    def __init__(self, reader: Reader, idle: float, timeout: float | None) -> None:
        self._reader = reader
        self._pause = _pause(idle)
        self._quiet = _Quiet(timeout)
        self._taken = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        from asyncio import sleep

        first_look = True
        while True:
            message = self._reader.next()
            if message is not None:
                self._quiet.broken()
                self._taken += 1
                if self._taken % 256 == 0:  # a full queue must not starve the loop
                    await sleep(0)
                return message
            if self._quiet.ends():
                raise StopAsyncIteration
            await sleep(0 if first_look else self._pause)
            first_look = False


def tail_async(reader: Reader, idle: float = 0.001, *, timeout: float | None = None) -> AsyncIterator[Message]:
    """As `tail`, for `async for`; `idle` is the longest time a message waits to be seen."""
    return AsyncTail(reader, idle, timeout)


class Merge:
    """Several streams as one, by key: a heap of the first message of each."""

    def __init__(self, readers: Iterable[Iterator[Message]], key: Callable[[Message], Any]) -> None:
        self._readers = [iter(reader) for reader in readers]
        self._key = key
        self._heads: list[tuple[Any, int, Message]] = []
        self._empty = list(range(len(self._readers)))  # readers without a head

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        while self._empty:  # an error leaves the reader in the list, to be asked again
            number = self._empty[-1]
            message = next(self._readers[number], None)
            if message is not None:
                heapq.heappush(self._heads, (self._key(message), number, message))
            self._empty.pop()
        if not self._heads:
            raise StopIteration
        _key, number, message = heapq.heappop(self._heads)
        self._empty.append(number)
        return message


def merge(readers: Iterable[Iterator[Message]], *, key: Callable[[Message], Any]) -> Iterator[Message]:
    """Messages of several readers in the order of `key`, each reader being in that order itself.

    Equal keys keep the order of the readers.  A message is valid until the next one is asked for.
    """
    return Merge(readers, key)
