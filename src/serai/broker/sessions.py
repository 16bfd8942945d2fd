"""Who is connected: a session, and what it registered.

    Session  one connection, its application and address
      consumers  (topic, group) -> Consumer: may hold leases
      producers  (topic, app)   -> Producer
      routes     (topic, app)   -> Route: what a produce needs, looked up once for each state of the catalogue
      waits      what it has parked

Invariants
- an id is never used twice: it is made of the engine's epoch and a counter
- registering twice gives the same consumer or producer
- permissions are looked up again whenever the catalogue changed (`stamp`)

Left to others: tokens and protocol versions (doors), what a lease is (`groups`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serai import limits
from serai.broker.policy import ConsumerPolicy, ProducerPolicy
from serai.errors import Refused

if TYPE_CHECKING:
    from serai.broker.groups import Group, Share
    from serai.broker.topics import Topic
    from serai.broker.waits import Wait
    from serai.log.engine import Level


class Session:
    """One connection."""

    __slots__ = (
        "address", "app", "client", "consumers", "counter", "entered_ms", "gone", "id", "language", "producers", "region", "routes",
        "version", "waits",
    )  # fmt: skip

    def __init__(self, identity: str, app: str, entered_ms: int) -> None:
        self.id = identity
        self.app = app
        self.entered_ms = entered_ms
        self.address = ""
        self.client = b""  # as JMQ writes an address into a message
        self.region = ""
        self.language = ""
        self.version = ""
        self.counter = 0
        self.gone = False
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.producers: dict[tuple[str, str], Producer] = {}
        self.routes: dict[tuple[str, str], Route] = {}
        self.waits: dict[Wait[Any], None] = {}

    def next_id(self) -> str:
        """An id for one more consumer or producer."""
        self.counter += 1
        return f"{self.id}-{self.counter}"

    def check_room(self, count: int) -> None:
        """Refuse one more registration when there are as many as there may be."""
        if count >= limits.REGISTERED_MAX:
            raise Refused(
                f"{self.app!r} registered {count} times on this connection, the most there can be", code="limit-reached"
            )


class Consumer:
    """One who takes messages of a topic for a group."""

    __slots__ = ("group", "held", "id", "policy", "refusal", "session", "stamp")

    def __init__(self, session: Session, group: Group) -> None:
        self.id = session.next_id()
        self.session = session
        self.group = group
        self.held: dict[Share, None] = {}  # leases
        self.policy = ConsumerPolicy()
        self.refusal: tuple[str, str] | None = None  # text and code
        self.stamp = -1

    def check(self) -> None:
        """Raise what keeps this consumer from consuming."""
        if self.refusal is not None:
            raise Refused(self.refusal[0], code=self.refusal[1])


class Producer:
    """One who gives messages to a topic for an application."""

    __slots__ = ("app", "id", "session", "topic")

    def __init__(self, session: Session, topic: Topic, app: str) -> None:
        self.id = session.next_id()
        self.session = session
        self.topic = topic
        self.app = app


class Route:
    """What producing to a topic needs, as long as the catalogue stays as it is."""

    __slots__ = ("app", "level", "policy", "stamp", "topic")

    def __init__(self, topic: Topic, app: bytes, policy: ProducerPolicy, level: Level | None, stamp: int) -> None:
        self.topic = topic
        self.app = app
        self.policy = policy
        self.level = level  # the topic's, stronger than a request's
        self.stamp = stamp
