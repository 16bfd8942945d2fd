"""The engine seam: where order and durability of partitions come from, whoever provides them.

    Engine --open--> Log --append--> Ticket          one engine a server; `local` is the one there is,
                      |--spans-->    Span            Kafka is to be another (docs/decisions/0008)
    Engine --state--> StateLog                       keyed, last value wins

Six rules for whoever stands above
1. a position is known when the ticket is done, not when append returns
2. only the engine decides ordinals
3. state is a log too: there is no other database
4. ownership has an epoch; every state write carries it and an older one is refused
5. ownership can be lost: a log that failed answers nothing more until it is opened again
6. discovery answers come from one table, above this

Completion never calls upward: positions move, and an eventfd says that some did.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from serai._core.messages import WrongSum
from serai.errors import BadChecksum, BadMessages

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from serai._core.spans import Span
    from serai._core.trail import Head
    from serai.log.retention import Retention
    from serai.log.times import Times


class Level(enum.IntEnum):
    """When an append counts as done."""

    NONE = 0  # nobody waits
    RECEIVE = 1  # in the page: survives the end of the process; on the disk within a second
    COMMIT = 2  # on the disk


class Ticket:
    """What an append gave: where its messages are, and whether that is certain yet."""

    __slots__ = ("count", "level", "log", "ordinal")

    def __init__(self, log: Log, ordinal: int, count: int, level: Level) -> None:
        self.log = log
        self.ordinal = ordinal
        self.count = count
        self.level = level

    @property
    def done(self) -> bool:
        return self.level != 2 or self.log.committed >= self.ordinal + self.count

    @property
    def failed(self) -> Exception | None:
        """Why it will never be done."""
        return None if self.done else self.log.failed

    def __repr__(self) -> str:
        return f"<Ticket {self.ordinal}+{self.count} {'done' if self.done else 'waits'}>"


class Log(Protocol):
    """One partition: ordered, dense ordinals."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def first_place(self) -> int: ...
    @property
    def end_place(self) -> int: ...
    @property
    def committed_place(self) -> int: ...
    @property
    def failed(self) -> Exception | None: ...
    def append(
        self,
        data: Buffer,
        dress: int,
        *,
        level: Level,
        now_ms: int,
        client: bytes = b"",
        app: bytes = b"",
        partition: int = 0,
        producer: int = 0,
        sequence: int = 0,
        transaction: int = 0,
    ) -> Ticket: ...
    def spans(
        self,
        ordinal: int,
        *,
        bytes_max: int,
        messages_max: int = ...,
        committed: bool = False,
        oversize: bool = True,
    ) -> list[Span]: ...
    def spans_at_place(self, place: int, *, bytes_max: int, committed: bool = True) -> list[memoryview | bytes]: ...
    def head(self, ordinal: int) -> Head: ...
    def ordinal_at_time(self, ms: int) -> int: ...
    def ordinal_at_place(self, place: int) -> int: ...
    def place_of(self, ordinal: int) -> int: ...
    def commit(self) -> None: ...
    def truncate(self, ordinal: int) -> None: ...
    def retain(self, policy: Retention, *, now_ms: int, unconsumed_from: int | None = None) -> int: ...
    def disk_bytes(self) -> int: ...
    def close(self) -> None: ...


class Condition(NamedTuple):
    """How the disk served an engine since it was opened."""

    times: Times  # of its syncs
    failures: int  # logs whose promises a sync that failed has ended
    damaged: int  # records and index entries that did not come back as they were written


class StateLog(Protocol):
    """Keys and values; the last value wins, also after a crash."""

    def get(self, key: bytes) -> bytes | None: ...
    def items(self) -> Iterator[tuple[bytes, bytes]]: ...
    def __len__(self) -> int: ...
    def put(self, key: bytes, value: bytes | None, *, level: Level) -> Ticket: ...
    def put_many(self, pairs: Iterable[tuple[bytes, bytes | None]], *, level: Level) -> Ticket: ...


class Engine(Protocol):
    """All partitions and state logs of one owner."""

    @property
    def epoch(self) -> int: ...
    def fileno(self) -> int: ...
    def moved(self) -> list[Log]: ...
    def open(self, partition: str, *, jafka_magic: int = 1) -> Log: ...
    def partitions(self) -> list[str]: ...
    def remove(self, partition: str) -> None: ...
    def state(self, name: str) -> StateLog: ...
    def catalogue(self) -> StateLog: ...
    def condition(self) -> Condition: ...
    def close(self) -> None: ...


def bad_messages(where: str, error: ValueError) -> BadMessages:
    """What an append says of a set that cannot be right."""
    kind = BadChecksum if isinstance(error, WrongSum) else BadMessages
    return kind(f"{where}: {error}; nothing of these messages was stored")
