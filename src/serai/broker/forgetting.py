"""What a topic forgets: old or many messages, as its policy says, but nothing that a group has still to get.

A group counts in all partitions as soon as it has a position in one; a subscription that nobody ever used holds
nothing back.

Invariant: a partition without a group forgets by its policy alone, one with groups not beyond the slowest position.

Left to others: pages and marks (`log.retention`), when it is done (the gate calls `Broker.tidy` now and then).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.broker.groups import named_in
from serai.broker.progress import decode
from serai.log.retention import Retention

if TYPE_CHECKING:
    from serai.broker.topics import Topic
    from serai.log.engine import StateLog


def retain(topic: Topic, positions: StateLog, now_ms: int) -> None:
    """Let every partition of a topic that is owned here forget what it may."""
    policy = topic.policy
    kept = Retention(age_ms=policy.retention_ms or None, bytes_max=policy.retention_bytes or None)
    needed = slowest(topic, positions)
    for number in topic.order:
        topic.partition(number).log.retain(kept, now_ms=now_ms, unconsumed_from=needed[number])


def slowest(topic: Topic, positions: StateLog) -> list[int | None]:
    """The smallest position of all groups, for each partition; None without a group."""
    places: dict[str, dict[int, int]] = {}
    for key, data in positions.items():
        identity, number, group = named_in(key)
        if identity == topic.id:
            places.setdefault(group, {})[number] = decode(data)[0].position
    return [min((reached.get(number, 0) for reached in places.values()), default=None) for number in range(topic.count)]
