"""A connection that comes back: who we are, what we are registered for, who owns what, and when to try again.

    down ── Dial ──► hello ──► cluster ──► register ──► up
     ▲        │ nobody there any more: Nap, twice as long each time, until the caller's time is over
     └────────┴──────────────── the link broke, or the server said that it does not know us

A step that has to wait is a generator; what it yields is a **wish** that sync and aio fulfil, each in its manner:

    Dial      a connection to an address, for this link; Unreachable is thrown in if there is none
    Nap       so many seconds
    Pending   its end

Invariants
- one step at a time brings a line up; others wait for it
- what the server wants its clients to know (its notification) is logged, once for each connection
- who owns the partitions is looked up when a connection is made, when the server says that we are wrong, and when the answer is old

Left to others: sockets (sync, aio), what is asked once the line is up (outgoing, incoming, reading).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from serai.client.link import Link, Pending
from serai.client.refusals import NOT_STORED, failure
from serai.doors.jmq.schema.commands import AddConnection, AddConnectionAck, FetchCluster, FetchClusterAck
from serai.errors import Misuse, SeraiError, Unreachable

if TYPE_CHECKING:
    from serai.doors.jmq.schema.commands import Command
    from serai.wire.layout import Layout

LOG = logging.getLogger("serai.client")
NAP_FIRST_S = 0.05
NAP_MAX_S = 2.0
REFRESH_S = 30.0  # as the clients of JMQ do
CALL_S = 30.0
VERSION = "serai-0.1"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Dial:
    """Wanted: a connection to this address, for this link."""

    address: Address
    link: Link
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Nap:
    """Wanted: that so much time goes by."""

    seconds: float


T = TypeVar("T")
Wish: TypeAlias = Dial | Nap | Pending
Step: TypeAlias = Generator[Wish, None, T]


@dataclass(frozen=True, slots=True)
class Who:
    """What a client says of itself."""

    app: str
    token: str = ""
    region: str = ""


@dataclass(slots=True)
class Ownership:
    """Who owns the partitions of a topic, as the server said it."""

    partitions: list[int]
    owners: dict[int, Address]


class Line:
    """A lasting way to a server."""

    def __init__(self, address: Address, who: Who, *, topics: list[str], app: str, register: Command | None) -> None:
        self.home = address
        self.who = who
        self.link: Link | None = None
        self.stale = False
        self.ownership: dict[str, Ownership] = {}
        self._topics = topics
        self._app = app
        self._register = register
        self._address = address
        self._looked_s = 0.0
        self._sequence = random.getrandbits(48)
        self._busy = False
        self._knew = False  # a server was there before: it is worth waiting for

    @property
    def is_up(self) -> bool:
        """Calls can be sent at once."""
        return self.link is not None and self.link.fault is None and not self._busy

    @property
    def is_old(self) -> bool:
        """Who owns what should be looked up again."""
        return self.stale or time.monotonic() - self._looked_s > REFRESH_S

    def up(self, deadline_s: float) -> Step[Link]:
        """Connect, if need be, until the time is over; look up who owns what, if that is old."""
        nap_s = NAP_FIRST_S
        while True:
            while self._busy:
                yield Nap(NAP_FIRST_S / 10)
            link = self.link
            if link is not None and link.fault is None and not self.is_old:
                return link
            self._busy = True
            try:
                if link is not None and link.fault is None:
                    yield from self._refresh(link)
                else:
                    link = yield from self._connect(deadline_s)
            except SeraiError as error:
                left_s = deadline_s - time.monotonic()
                if not self._knew or not _is_passing(error) or left_s <= nap_s:
                    raise
                LOG.debug("%s; again in %.2f s", error, nap_s)
                self._address = self.home
            else:
                return link
            finally:
                self._busy = False
            yield Nap(nap_s * random.uniform(0.8, 1.2))
            nap_s = min(2 * nap_s, NAP_MAX_S)

    def call(self, command: Command, deadline_s: float) -> Step[Layout | None]:
        """One question that can be asked again if the connection breaks."""
        while True:
            link = yield from self.up(deadline_s)
            pending = self.ask(link, command, deadline_s)
            yield pending
            if pending.error is not None and link.fault is not None and time.monotonic() < deadline_s:
                continue
            if pending.reply is not None and pending.reply.status in NOT_STORED and time.monotonic() < deadline_s:
                self.forget(link)
                yield Nap(NAP_FIRST_S)
                continue
            return pending.body()

    def ask(
        self, link: Link, command: Command, deadline_s: float, then: Callable[[Pending], None] | None = None
    ) -> Pending:
        """One question on this connection."""
        return link.ask(command, now_ms=time.time_ns() // 1_000_000, deadline_s=deadline_s, then=then)

    def forget(self, link: Link) -> None:
        """The server does not know us any more, or somebody else owns what we ask for: begin anew."""
        self.stale = True
        if self.link is link:
            link.lose(Unreachable("the server no longer serves this connection"))

    def _connect(self, deadline_s: float) -> Step[Link]:
        link = Link()
        self.link = None
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Unreachable(f"no connection to {self._address} in time")
        yield Dial(self._address, link, left_s)
        hello = self.ask(link, self._hello(), deadline_s)
        yield hello
        said = _settled(hello)
        assert isinstance(said, AddConnectionAck)
        if said.notification:
            LOG.warning("%s says: %s", self._address, said.notification)
        self.stale = True
        yield from self._refresh(link)
        self.link = link
        self._knew = True
        return link

    def _hello(self) -> AddConnection:
        who = self.who
        self._sequence += 1
        return AddConnection(
            username="", password="", app=who.app, token=who.token, region=who.region, namespace="", language=3,
            version=VERSION, ip="", time=time.time_ns() // 1_000_000, sequence=self._sequence,
        )  # fmt: skip

    def _refresh(self, link: Link) -> Step[None]:
        """Look up who owns the partitions; be registered (again), if there was reason to doubt it."""
        asked = self.ask(link, FetchCluster(topics=self._topics, app=self._app), time.monotonic() + CALL_S)
        yield asked
        said = _settled(asked)
        assert isinstance(said, FetchClusterAck)
        addresses = {broker.id: Address(broker.host, broker.port) for broker in said.brokers}
        for topic in said.topics:
            if topic.code:
                raise failure(topic.code, f"look up topic {topic.topic_code!r}")
            owners = {
                partition: addresses[group.leader]
                for group in topic.partition_groups
                for partition in group.partitions
                if group.leader in addresses
            }
            partitions = [partition for group in topic.partition_groups for partition in group.partitions]
            self.ownership[topic.topic_code] = Ownership(sorted(partitions), owners)
            if self.stale and owners and self._address not in owners.values():
                self._address = next(iter(owners.values()))
        if self.stale and self._register is not None:
            registered = self.ask(link, self._register, time.monotonic() + CALL_S)
            yield registered
            _settled(registered)
        self.stale = False
        self._looked_s = time.monotonic()

    def close(self) -> None:
        """The end: nothing is asked any more."""
        if self.link is not None:
            self.link.lose(Misuse("the client was closed"))


def _settled(pending: Pending) -> Layout | None:
    """The answer to a question of the handshake; that it was not answered is the same as nobody being there."""
    if pending.error is not None:
        raise Unreachable(f"no connection: {pending.error}") from pending.error
    return pending.body()


def _is_passing(error: SeraiError) -> bool:
    """It may be different in a moment."""
    return isinstance(error, Unreachable) or getattr(error, "code", "") in {"moving", "recovering", "no-owner"}
