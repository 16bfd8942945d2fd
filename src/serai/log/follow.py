"""Following a queue while it grows, and reading several in one order.

A mapped page rings no bell, so a follower looks.  How it spends the time between two looks is the
caller's choice:

    "backoff"  looks 2,000 times, then yields the processor, then sleeps up to 1 ms (the default)
    "spin"     looks all the time: the shortest hop, a whole processor
    "yield"    gives the processor away between looks
    seconds    sleeps that long;  callable: is called
"""

import heapq
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from serai import limits
from serai._core.pack import Message
from serai._core.reader import Reader
from serai.errors import Misuse

Idle = str | float | Callable[[], object]


def _backoff() -> Callable[[int], object]:
    def rest(misses: int) -> None:
        if misses < 8:
            os.sched_yield()
        else:
            time.sleep(min(limits.IDLE_SLEEP_MAX_S, 2e-6 * 2 ** min(misses - 8, 10)))

    return rest


def _rest_between_looks(idle: Idle) -> Callable[[int], object]:
    if callable(idle):
        return lambda misses: idle()
    if isinstance(idle, (int, float)):
        if idle < 0:
            raise Misuse(f"idle is {idle}; a pause between two looks has no negative length")
        return lambda misses: time.sleep(idle)
    rests: dict[str, Callable[[], Callable[[int], object]]] = {
        "backoff": _backoff,
        "spin": lambda: lambda misses: None,
        "yield": lambda: lambda misses: os.sched_yield(),
    }
    if idle not in rests:
        raise Misuse(f"idle is {idle!r}; it is 'backoff', 'spin', 'yield', a number of seconds or something to call")
    return rests[idle]()


def tail(reader: Reader, idle: Idle = "backoff", *, timeout: float | None = None) -> Iterator[Message]:
    """Messages as they come, for ever, or until none came for `timeout` seconds."""
    rest = _rest_between_looks(idle)
    spins = limits.SPIN_LOOKS if idle in ("backoff", "spin") else 1

    def follow() -> Iterator[Message]:
        misses = 0
        quiet_since = 0.0
        while True:
            message = reader.next()
            if message is not None:
                yield message
                misses = 0
                continue
            if timeout is not None:
                now = time.monotonic()
                if misses == 0:
                    quiet_since = now
                elif now - quiet_since >= timeout:
                    return
            misses += 1
            if not reader.wait(spins):
                rest(misses)

    return follow()


def tail_async(reader: Reader, idle: float = 0.001, *, timeout: float | None = None) -> AsyncIterator[Message]:
    """As `tail`, for `async for`: the event loop runs on while there is nothing to read."""
    if idle < 0:
        raise Misuse(f"idle is {idle}; a pause between two looks has no negative length")

    async def follow() -> AsyncIterator[Message]:
        import asyncio

        taken = 0
        quiet_since: float | None = None
        while True:
            message = reader.next()
            if message is not None:
                yield message
                quiet_since = None
                taken += 1
                if taken % 256 == 0:  # a full queue must not starve the loop
                    await asyncio.sleep(0)
                continue
            now = time.monotonic()
            quiet_since = now if quiet_since is None else quiet_since
            if timeout is not None and now - quiet_since >= timeout:
                return
            await asyncio.sleep(idle if now - quiet_since > idle else 0)

    return follow()


def merge(readers: Iterable[Iterator[Message]], *, key: Callable[[Message], Any]) -> Iterator[Message]:
    """Messages of several readers in the order of `key`, each reader being in that order itself.

    Equal keys keep the order of the readers.  A message is valid until the next one is asked for.
    """

    def entries(number: int, reader: Iterator[Message]) -> Iterator[tuple[Any, int, Message]]:
        for message in reader:
            yield key(message), number, message

    streams = [entries(number, reader) for number, reader in enumerate(readers)]
    return (message for _key, _number, message in heapq.merge(*streams, key=lambda entry: entry[:2]))
