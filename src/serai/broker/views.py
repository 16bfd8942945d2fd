"""The broker as people and discovery see it: values only, made when asked for.

    Index         where a group stands in a partition, and the partition's ends
    Description   a topic for an application: policies in force, who owns which partition
    GroupView     a group in all its partitions, with lag and leases
    Counts        what was done since the start

Invariant: looking opens only what has a position or a message, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from serai.broker.catalogue import Catalogue
from serai.broker.groups import Group, named_in
from serai.broker.policy import ConsumerPolicy, ProducerPolicy, in_force
from serai.broker.topics import Node, Owner, Topic
from serai.errors import Refused

if TYPE_CHECKING:
    from serai.broker.sessions import Session
    from serai.log.engine import StateLog


class Index(NamedTuple):
    """Where a group stands in a partition, and where the partition begins and ends."""

    position: int  # -1 without a group
    first: int
    end: int
    committed: int


class Description(NamedTuple):
    """A topic as an application sees it."""

    topic: Topic
    producer: ProducerPolicy | None
    consumer: ConsumerPolicy | None
    owners: list[Owner]


class PartitionView(NamedTuple):
    """A group's place in one partition."""

    partition: int
    position: int
    first: int
    end: int
    lag: int
    holder: str  # the consumer's id, empty when nobody has a lease
    lease_deadline_ms: int
    attempt: int


class GroupView(NamedTuple):
    """A group as people see it."""

    topic: str
    group: str
    partitions: list[PartitionView]
    delivered: int
    acked: int
    redelivered: int
    active_ms: int  # when somebody last did something for it, 0: not since the start


class Counts(NamedTuple):
    """What was done since the start."""

    produced_sets: int
    produced_messages: int
    produced_bytes: int
    delivered: int
    acked: int
    redelivered: int
    waits: int
    sessions: int
    topics: int


def described(catalogue: Catalogue, name: str, app: str, node: int) -> Description:
    """A topic for an application that is subscribed to it in any role."""
    topic = catalogue.find(name)
    producer = catalogue.subscriptions.get((topic.id, "producer", app))
    consumer = catalogue.subscriptions.get((topic.id, "consumer", app))
    if producer is None and consumer is None:
        raise Refused(f"{app!r} is not subscribed to topic {name!r}; subscribe it first", code="subscription-unknown")
    return Description(
        topic,
        None if producer is None else in_force(ProducerPolicy, topic.table, producer),
        None if consumer is None else in_force(ConsumerPolicy, topic.table, consumer),
        topic.owners(node, catalogue.engine.epoch),
    )


def is_near(node: Node, session: Session) -> bool:
    """Whether a node is in a client's region, as far as both say where they are."""
    return not node.region or not session.region or node.region.casefold() == session.region.casefold()


def named_groups(catalogue: Catalogue, positions: StateLog, name: str | None) -> list[tuple[Topic, str]]:
    """Every group that has a position or is here, of one topic or of all."""
    found: dict[tuple[int, str], None] = {}
    for key, _position in list(positions.items()):
        identity, _, group = named_in(key)
        found[identity, group] = None
    for topic in catalogue.topics.values():
        found.update({(topic.id, group): None for group in topic.groups})
    named = [(catalogue.by_id[identity], group) for identity, group in found if identity in catalogue.by_id]
    return sorted(
        ((topic, group) for topic, group in named if name is None or topic.name == name),
        key=lambda each: (each[0].name, each[1]),
    )


def viewed(group: Group, now_ms: int) -> GroupView:
    """A group in all partitions that are owned here."""
    rows = []
    for number in sorted(group.topic.order):
        share = group.share(number)
        log = share.partition.log
        position = max(share.progress.position, log.first)
        leased = share.deadline_ms > now_ms
        rows.append(
            PartitionView(
                partition=number,
                position=position,
                first=log.first,
                end=log.end,
                lag=log.end - position,
                holder=share.holder.id if leased and share.holder is not None else "",
                lease_deadline_ms=share.deadline_ms if leased else 0,
                attempt=share.attempt if leased else 0,
            )
        )
    return GroupView(
        group.topic.name, group.name, rows, group.delivered, group.acked, group.redelivered, group.active_ms
    )
