"""A group and its shares: one position and at most one lease for each partition.

    Group "billing.night" of topic "orders"
      Share 0   progress (survives)   lease: holder, start..stop, deadline (memory)
      Share 1   ...
      pollers   fetches that wait for something to come

    free --take--> leased --acknowledged, released, holder gone, deadline seen by the next who comes--> free

A lease without a holder keeps everybody away until its deadline: that is a delayed redelivery.

Invariants
- what is delivered is leased to one consumer, and to nobody else before the lease ends
- a step of the progress is written down, with the epoch, before anybody is told; what cannot be written is undone
- a position that was written in a newer epoch is not taken over: somebody else owns the partition
- a position is never in front of the log's first or behind its end

Left to others: what to deliver (`delivery`), who may (`desk`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.broker.names import app_of
from serai.broker.policy import ConsumerPolicy
from serai.broker.progress import Progress, decode
from serai.broker.waits import NEVER_MS, Wait
from serai.errors import Corrupt, Refused
from serai.log.engine import Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai.broker.delivery import Delivery, Fetch
    from serai.broker.progress import Kept
    from serai.broker.sessions import Consumer
    from serai.broker.topics import Partition, Topic
    from serai.log.engine import StateLog

OLDEST = -2
NEWEST = -1  # where a position is set
POSITION = -1  # where messages are read from: where the group stands


class Share:
    """A group's position and lease in one partition."""

    __slots__ = ("attempt", "begins", "deadline_ms", "group", "holder", "key", "partition", "progress", "start", "stop")

    def __init__(self, group: Group, partition: Partition) -> None:
        self.group = group
        self.partition = partition
        self.key = position_key(group.topic.id, partition.number, group.name)
        self.holder: Consumer | None = None
        self.start = 0  # of the lease: where the first delivered entry begins
        self.stop = 0
        self.attempt = 0
        self.deadline_ms = 0  # 0: free
        self.begins = False  # nothing was written down yet
        self.progress = self._load()

    def _load(self) -> Progress:
        log = self.partition.log
        data = self.group.positions.get(self.key)
        if data is None:
            self.begins = True
            newest = self.group.policy is not None and self.group.policy.start == "newest"
            return Progress(log.end if newest else log.first)
        try:
            progress, epoch = decode(data)
        except ValueError as error:
            raise Corrupt(
                f"the position of group {self.group.name!r} in partition {self.partition.number} of topic"
                f" {self.group.topic.name!r} cannot be read: {error}; set it anew",
                file="positions", found=data[:64],
            ) from error  # fmt: skip
        if epoch > self.group.epoch:
            raise Refused(
                f"the position of group {self.group.name!r} was written in epoch {epoch}, this is epoch {self.group.epoch}",
                code="not-owner",
            )
        progress.clip(log.end)
        return progress

    def lease(self, holder: Consumer | None, *, start: int, stop: int, attempt: int, deadline_ms: int) -> None:
        """Lock the partition for a holder, or for nobody."""
        self.holder = holder
        self.start = start
        self.stop = stop
        self.attempt = attempt
        self.deadline_ms = deadline_ms
        if holder is not None:
            holder.held[self] = None

    def free(self) -> None:
        """End the lease."""
        if self.holder is not None:
            self.holder.held.pop(self, None)
            self.holder = None
        self.deadline_ms = 0

    def begin(self) -> None:
        """Write down where a group begins that takes its first look: it stays there."""
        self.begins = False
        self.write(self.progress.kept())

    def write(self, kept: Kept) -> None:
        """Write the progress down; if that fails it is as it was."""
        group = self.group
        try:
            group.positions.put(self.key, self.progress.encode(group.epoch), level=Level.RECEIVE)
        except Exception:
            self.progress.put_back(kept)
            raise

    def advance(self, to: int) -> None:
        """Everything below `to` is acknowledged."""
        progress = self.progress
        kept = progress.kept()
        progress.advance(to)
        self.write(kept)
        self.group.acked += progress.position - kept[0]

    def settle(self, ranges: list[tuple[int, int]]) -> None:
        """These are acknowledged, wherever they are."""
        progress = self.progress
        kept = progress.kept()
        try:
            for start, stop in ranges:
                progress.settle(start, stop)
        except Refused:
            progress.put_back(kept)
            raise
        self.write(kept)
        self.group.acked += progress.position - kept[0]

    def move(self, to: int) -> None:
        """Begin anew somewhere."""
        kept = self.progress.kept()
        self.progress.move(to)
        self.write(kept)
        self.free()


class Group:
    """Consumers of a topic that share one position for each partition."""

    __slots__ = (
        "acked", "active_ms", "app", "delivered", "delivered_bytes", "due_ms", "epoch", "name", "policy", "pollers", "positions",
        "redelivered", "shares", "stamp", "topic", "turn", "wake_ms",
    )  # fmt: skip

    def __init__(self, topic: Topic, name: str, positions: StateLog, epoch: int) -> None:
        self.topic = topic
        self.name = name
        self.app = app_of(name)
        self.positions = positions
        self.epoch = epoch
        self.policy: ConsumerPolicy | None = None  # None: not subscribed
        self.stamp = -1
        self.shares: dict[int, Share] = {}
        self.pollers: dict[Wait[Delivery], Fetch] = {}
        self.turn = 0  # of the round robin over partitions
        self.due_ms = NEVER_MS  # when something may be had that could not be had just now
        self.wake_ms = NEVER_MS  # when somebody will look again
        self.delivered = 0
        self.delivered_bytes = 0
        self.acked = 0
        self.active_ms = 0  # when somebody last did something for the group
        self.redelivered = 0

    def share(self, number: int) -> Share:
        """The group's place in a partition that is owned here."""
        share = self.shares.get(number)
        if share is None or self.topic.strangers:
            partition = self.topic.partition(number)
            if share is None:
                share = self.shares[number] = Share(self, partition)
        return share


def bounds(ordinals: Sequence[int], share: Share) -> tuple[int, int]:
    """First and behind the last of ordinals without gaps or repeats, all of them stored."""
    if not isinstance(ordinals, range):
        ordered = sorted(ordinals)
        start = ordered[0] if ordered else 0
        ordinals = range(start, start + len(ordered))
        if ordered != list(ordinals):
            raise bad_ack(
                share, f"ordinals {ordered[0]} to {ordered[-1]}, {len(ordered)} of them, have gaps or repeats"
            )
    if not ordinals or ordinals.step != 1:
        raise bad_ack(share, "nothing, or every so many")
    if ordinals.start < 0 or ordinals.stop > share.partition.log.end:
        raise bad_ack(share, f"ordinals {ordinals.start} to {ordinals.stop - 1}; the end is {share.partition.log.end}")
    return ordinals.start, ordinals.stop


def bad_ack(share: Share, what: str) -> Refused:
    """An acknowledgement that cannot be meant."""
    return Refused(
        f"group {share.group.name!r} cannot acknowledge {what} in partition {share.partition.number} of topic"
        f" {share.group.topic.name!r}",
        code="bad-ack",
    )


def position_key(topic: int, partition: int, group: str) -> bytes:
    """The key of a position."""
    return f"{topic}/{partition}/{group}".encode()


def named_in(key: bytes) -> tuple[int, int, str]:
    """Topic's id, partition and group of a position's key."""
    topic, partition, group = key.decode().split("/")
    return int(topic), int(partition), group
