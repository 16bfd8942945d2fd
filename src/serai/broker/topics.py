"""A topic and its partitions: where their logs are and who owns them.

    Topic "orders", id 7 -> Partition 0 "7-0" -> Log (opened when somebody comes for it)
                            Partition 1 "7-1"
                         -> groups, by name

Invariants
- a partition's id is made of the topic's id and its number: no name ever reaches a file system, no id is used twice
- ten thousand idle topics cost ten thousand small objects: a log is opened at its first use
- a partition owned elsewhere is never appended to or read here

Left to others: which topics there are (`catalogue`), positions (`groups`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from serai.broker.policy import Table, TopicPolicy, in_force
from serai.errors import OutOfRange, Refused

if TYPE_CHECKING:
    from serai.broker.delivery import Delivery, Reading
    from serai.broker.groups import Group
    from serai.broker.waits import Wait
    from serai.log.engine import Engine, Log

PRODUCE = "produced to"
CONSUME = "consumed from"


@lru_cache(maxsize=1 << 16)  # asked for every answer to a producer
def number_in(log_name: str) -> int:
    """The number of the partition whose log has that name."""
    return int(log_name.rpartition("-")[2])


class Node(NamedTuple):
    """A server that clients can reach."""

    id: int
    host: str
    port: int
    region: str = ""


class Owner(NamedTuple):
    """A row of the discovery table: who owns a partition, -1 for nobody."""

    partition: int
    node: int
    epoch: int


class Partition:
    """One ordered log of a topic."""

    __slots__ = ("id", "log", "number", "readers", "topic")

    def __init__(self, topic: Topic, number: int, log: Log) -> None:
        self.topic = topic
        self.number = number
        self.id = log.name
        self.log = log
        self.readers: dict[Wait[Delivery], Reading] = {}  # parked reads without a lock

    def top(self) -> int:
        """Behind the last message that readers of this topic may see."""
        return self.log.committed if self.topic.committed_only else self.log.end

    def check(self, ordinal: int) -> None:
        """Refuse an ordinal that is not held here; the end is."""
        first, end = self.log.first, self.log.end
        if not first <= ordinal <= end:
            raise OutOfRange(
                f"partition {self.number} of topic {self.topic.name!r} holds ordinals {first} to {end - 1}, not {ordinal}",
                first=first,
                end=end,
            )


class Topic:
    """A named set of partitions."""

    __slots__ = (
        "ahead", "committed_only", "count", "engine", "groups", "id", "leaving", "name", "opened", "order", "policy", "polled",
        "strangers", "table", "turn",
    )  # fmt: skip

    def __init__(self, engine: Engine, identity: int, name: str) -> None:
        self.engine = engine
        self.id = identity
        self.name = name
        self.count = 0  # of partitions
        self.table: Table = {}
        self.policy = TopicPolicy()
        self.committed_only = False
        self.opened: dict[int, Partition] = {}
        self.order: tuple[int, ...] = ()  # the partitions owned here, those with priority first
        self.ahead = 0  # how many of them have priority
        self.strangers: dict[int, Owner] = {}  # partitions owned elsewhere
        self.groups: dict[str, Group] = {}
        self.polled: dict[Group, None] = {}  # groups somebody polls
        self.turn = 0  # of the round robin of produced sets
        self.leaving = False  # being deleted

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return self.count

    def learn(self, *, count: int, table: Table) -> None:
        """What the catalogue says now."""
        self.count = count
        self.table = table
        self.policy = in_force(TopicPolicy, table)
        self.committed_only = self.policy.visible == "committed"
        self.settle_order()

    @property
    def forgets(self) -> bool:
        """Whether messages of the topic may go after a time, or when there are too many."""
        return bool(self.policy.retention_ms or self.policy.retention_bytes)

    def settle_order(self) -> None:
        """Which partitions are owned here, in the order in which they are looked at."""
        own = [number for number in range(self.count) if number not in self.strangers]
        first = (
            [number for number in dict.fromkeys(self.policy.priority) if number in own] if self.policy.priority else []
        )
        self.order = (*first, *(number for number in own if number not in first))
        self.ahead = len(first)

    def no_owner(self) -> Refused:
        """Why nothing can be done with a topic of which no partition is here."""
        return Refused(
            f"no partition of topic {self.name!r} has its owner here; ask for the topic's owners", code="no-owner"
        )

    def partition_id(self, number: int) -> str:
        """The engine's name of a partition."""
        return f"{self.id}-{number}"

    def partition(self, number: int, act: str = CONSUME) -> Partition:
        """A partition that is owned here, its log open."""
        partition = self.opened.get(number)
        if partition is not None and not self.strangers:
            return partition
        if not 0 <= number < self.count or self.leaving:
            raise Refused(
                f"topic {self.name!r} has no partition {number}, only 0 to {self.count - 1}", code="partition-unknown"
            )
        if number in self.strangers:
            owner = self.strangers[number]
            raise Refused(
                f"partition {number} of topic {self.name!r} cannot be {act} here:"
                + (
                    f" node {owner.node} owns it; ask that one" if owner.node >= 0 else " nobody owns it now; try again"
                ),
                code="not-owner",
            )
        if partition is None:
            log = self.engine.open(self.partition_id(number), jafka_magic=self.policy.jafka_magic)
            partition = self.opened[number] = Partition(self, number, log)
        return partition

    def first(self, number: int) -> int:
        """The oldest ordinal of a partition."""
        return self.partition(number).log.first

    def end(self, number: int) -> int:
        """Behind the newest ordinal of a partition."""
        return self.partition(number).log.end

    def committed(self, number: int) -> int:
        """Behind the newest durable ordinal of a partition."""
        return self.partition(number).log.committed

    def owners(self, node: int, epoch: int) -> list[Owner]:
        """The discovery table of this topic, seen from a node."""
        return [self.strangers.get(number) or Owner(number, node, epoch) for number in range(self.count)]
