"""What the gate lends to the console: the broker, the clock, a way to await, and the port in numbers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from serai.broker import Broker, Session, Wait
    from serai.config import Settings
    from serai.log.times import Times

T = TypeVar("T")
Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
APP = "http"  # the application in whose name the API produces when the request names none


class GateState(NamedTuple):
    """The port, in numbers."""

    connections: dict[str, int]  # by door
    shown_out: dict[tuple[str, str], int]  # by door and reason, since the start
    untaken_bytes: int
    disk_free_bytes: int
    is_ending: bool
    produce_times: Times  # of requests that waited for the disk


class Finish(Protocol):
    """How a wait of the broker is awaited."""

    async def __call__(self, wait: Wait[T]) -> T: ...


@dataclass
class House:
    """Everything a request may need."""

    broker: Broker
    settings: Settings
    started_ms: int
    now_ms: Callable[[], int]
    finish: Finish
    state: Callable[[], GateState]
    _session: Session | None = None

    def session(self) -> Session:
        """The API's own session: its requests carry no connection of the broker's kind."""
        if self._session is None:
            self._session = self.broker.enter(APP, now_ms=self.now_ms())
        return self._session

    async def done(self, outcome: T | Wait[T]) -> T:
        """What a call of the broker gave, now or later."""
        from serai.broker import Wait as Parked

        return await self.finish(outcome) if isinstance(outcome, Parked) else outcome
