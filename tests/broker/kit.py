"""What the broker's tests share: a broker over a real engine, a clock that stands still, sets of messages."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Self

import pytest

from serai._core.entries import HOUSE
from serai.broker import Broker, Delivery, Node, Wait
from serai.errors import Refused
from serai.log.engine import Level
from serai.log.local import LocalEngine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from serai.broker import Consumer, Session
    from serai.log.engine import Ticket

NODE = Node(1, "127.0.0.1", 15555)
ENTRY = struct.Struct("<IBbHq")
START_MS = 1_700_000_000_000
PAGE_BYTES = 1 << 20
BATCH_BIT = 1 << 5


def words(count: int, start: int = 0) -> list[bytes]:
    """Bodies that say which they are."""
    return [b"%d" % each for each in range(start, start + count)]


def refused(code: str) -> AbstractContextManager[object]:
    """The block is refused for that reason."""
    return pytest.RaisesExc(Refused, check=lambda error: error.code == code)


def entry(body: bytes, *, attributes: int = 0) -> bytes:
    """A message in the house dress."""
    return ENTRY.pack(ENTRY.size + len(body), attributes, 0, 0, START_MS) + body


def message_set(bodies: Iterable[bytes]) -> bytes:
    """Messages end to end."""
    return b"".join(entry(body) for body in bodies)


def batch(bodies: list[bytes]) -> bytes:
    """A wrapper that holds messages."""
    return entry(struct.pack("<I", len(bodies)) + message_set(bodies), attributes=BATCH_BIT)


def bodies_of(delivery: Delivery) -> list[bytes]:
    """The bodies that were delivered, from `delivery.ordinal` on; the house dress only."""
    found = []
    for span in delivery.spans:
        assert span.dress == HOUSE
        found += opened(bytes(span.data))[span.lead :]
    return found


def opened(data: bytes) -> list[bytes]:
    """The bodies in a set, those of batches too."""
    found = []
    at = 0
    while at < len(data):
        length, attributes, *_ = ENTRY.unpack_from(data, at)
        body = data[at + ENTRY.size : at + length]
        found += opened(body[4:]) if attributes & BATCH_BIT else [body]
        at += length
    return found


class House:
    """A broker, its engine, and a clock that a test moves."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = {"node": NODE, "auto_create": True, "level": Level.RECEIVE, **settings}
        self.now_ms = START_MS
        self.open()

    def open(self) -> None:
        self.engine = LocalEngine(self.path, page_bytes=PAGE_BYTES)
        self.broker = Broker(self.engine, **self.settings)

    def close(self) -> None:
        self.engine.close()

    def restart(self) -> None:
        """As a clean stop and a start do it."""
        self.close()
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def guest(self, app: str = "app", **words: Any) -> Session:
        return self.broker.enter(app, now_ms=self.now_ms, **words)

    def done(self, wait: Wait[Any] | None) -> Any:
        """Run what a change needs; its result."""
        if wait is None:
            return None
        self.broker.settle()
        assert wait in self.broker.turn(self.now_ms)
        return wait.result()

    def topic(
        self, name: str = "orders", *, partitions: int = 1, app: str = "app", policy: dict[str, Any] | None = None
    ) -> None:
        """A topic with an application that may do both."""
        self.done(self.broker.create_topic(name, partitions=partitions, policy=policy, now_ms=self.now_ms))
        self.subscribe(name, app)

    def subscribe(self, name: str, app: str, **policy: Any) -> None:
        self.done(self.broker.set_subscription(name, app, "producer", now_ms=self.now_ms))
        self.done(self.broker.set_subscription(name, app, "consumer", policy, now_ms=self.now_ms))

    def produce(
        self, session: Session, bodies: Iterable[bytes], *, name: str = "orders", app: str = "app", **words: Any
    ) -> Ticket:
        return self.broker.produce(session, name, message_set(bodies), HOUSE, app=app, now_ms=self.now_ms, **words)

    def consumer(self, session: Session, name: str = "orders", group: str = "app") -> Consumer:
        return self.broker.add_consumer(session, name, group, self.now_ms)

    def fetch(self, consumer: Consumer, **words: Any) -> Delivery:
        answer = self.ask(consumer, **words)
        assert isinstance(answer, Delivery)
        return answer

    def ask(self, consumer: Consumer, **words: Any) -> Delivery | Wait[Delivery]:
        return self.broker.fetch(consumer, **{"count": 10, "bytes_max": 1 << 20, "now_ms": self.now_ms, **words})

    def ack(self, delivery: Delivery, group: str = "app", **words: Any) -> int:
        return self.broker.ack(
            delivery.topic.name, group, delivery.partition, range(delivery.ordinal, delivery.stop), now_ms=self.now_ms, **words
        )  # fmt: skip

    def turn(self, *, after_ms: int = 0) -> list[Wait[Any]]:
        self.now_ms += after_ms
        return self.broker.turn(self.now_ms)
