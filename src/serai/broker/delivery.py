"""Which messages a consumer gets now.

    deliver   with the lock: the partitions in turn, the first that is free and has something; leased and counted
    read      without the lock: from any ordinal of one partition

What a consumer may see ends at the smallest of: the log's end (or what is committed, if the topic says so), the
first message that is not delayed long enough, the first that was acknowledged out of order.

Invariants
- one answer holds messages of one partition, in order, whole entries: a batch comes whole, even if some of its members
  were acknowledged out of order
- a partition is locked before anybody is told what is in it, and a delivery is counted before it is given
- a delay counts from the store time: no client's clock decides

Left to others: who may fetch (`desk`), bytes of answers (doors).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from serai.broker.waits import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai._core.spans import Span
    from serai.broker.groups import Group, Share
    from serai.broker.sessions import Consumer
    from serai.broker.topics import Partition, Topic


class Delivery:
    """Messages of one partition, or none."""

    __slots__ = ("attempt", "count", "deadline_ms", "ordinal", "partition", "spans", "topic")

    def __init__(
        self,
        topic: Topic,
        partition: int,
        ordinal: int,
        count: int,
        spans: Sequence[Span],
        attempt: int,
        deadline_ms: int,
    ) -> None:
        self.topic = topic
        self.partition = partition  # -1: nothing
        self.ordinal = ordinal
        self.count = count
        self.spans = spans
        self.attempt = attempt  # how often the first message was delivered by now, 0 without a lock
        self.deadline_ms = deadline_ms  # of the lease, 0 without

    @property
    def stop(self) -> int:
        """Behind the last message."""
        return self.ordinal + self.count


class Fetch(NamedTuple):
    """What a consumer asked for."""

    consumer: Consumer
    messages_max: int
    bytes_max: int
    ack_timeout_ms: int


class Reading(NamedTuple):
    """What was asked for without a lock."""

    ordinal: int
    messages_max: int
    bytes_max: int


def nothing(topic: Topic) -> Delivery:
    """An answer without messages."""
    return Delivery(topic, -1, -1, 0, (), 0, 0)


def deliver(fetch: Fetch, now_ms: int) -> Delivery | None:
    """The next messages for a consumer, leased; None and `group.due_ms` when there is nothing to be had."""
    consumer = fetch.consumer
    group = consumer.group
    policy = consumer.policy
    group.due_ms = NEVER_MS
    if policy.max_partitions and len(consumer.held) >= policy.max_partitions:
        held = min(share.deadline_ms for share in consumer.held)
        if held > now_ms:
            group.due_ms = held
            return None
    for number in candidates(group, seq=policy.seq):
        share = group.shares.get(number) or group.share(number)
        if share.deadline_ms:
            if share.deadline_ms > now_ms:
                group.due_ms = min(group.due_ms, share.deadline_ms)
                continue
            share.free()
        if share.begins:
            share.begin()
        delivery = take(share, fetch, now_ms)
        if delivery is not None:
            return delivery
    return None


def candidates(group: Group, *, seq: bool) -> Sequence[int]:
    """The partitions owned here, in the order in which they are looked at this time."""
    topic = group.topic
    order = topic.order
    if seq:
        return (0,) if 0 in order else ()
    if len(order) < 2:
        return order
    ahead = topic.ahead
    rest = len(order) - ahead
    group.turn += 1
    at = ahead + group.turn % rest if rest else ahead
    return (*order[:ahead], *order[at:], *order[ahead:at])


def take(share: Share, fetch: Fetch, now_ms: int) -> Delivery | None:
    """Lease what a free share has for a consumer."""
    partition = share.partition
    log = partition.log
    group = share.group
    progress = share.progress
    position = progress.position
    if position < log.first:
        progress.advance(log.first)
        position = progress.position
    top = partition.top()
    if position >= top:
        return None
    delay_ms = fetch.consumer.policy.delay_ms
    if delay_ms:
        top = min(top, log.ordinal_at_time(now_ms - delay_ms + 1))
        if position >= top:
            group.due_ms = min(group.due_ms, log.head(position).time + delay_ms)
            return None
    if progress.acked:
        top = min(top, progress.barrier)
    spans = log.spans(
        position, bytes_max=fetch.bytes_max, messages_max=min(fetch.messages_max, top - position),
        committed=group.topic.committed_only, oversize=True,
    )  # fmt: skip
    if not spans:
        return None
    if len(spans) > 1:
        count, size = sum([span.count for span in spans]), sum([len(span.data) for span in spans])
    else:
        count, size = spans[0].count, len(spans[0].data)
    stop = position + count
    kept = progress.kept()
    attempt = progress.deliver(position, stop)
    share.write(kept)
    deadline_ms = now_ms + fetch.ack_timeout_ms
    share.lease(fetch.consumer, start=position - spans[0].lead, stop=stop, attempt=attempt, deadline_ms=deadline_ms)
    group.delivered += count
    group.delivered_bytes += size
    if attempt > 1:
        group.redelivered += count
    return Delivery(group.topic, partition.number, position, count, spans, attempt, deadline_ms)


def read(partition: Partition, reading: Reading) -> Delivery | None:
    """Messages from an ordinal on, without a lock; None at the end."""
    topic = partition.topic
    room = partition.top() - reading.ordinal
    if room <= 0:
        return None
    spans = partition.log.spans(
        reading.ordinal, bytes_max=reading.bytes_max, messages_max=min(reading.messages_max, room),
        committed=topic.committed_only, oversize=True,
    )  # fmt: skip
    if not spans:
        return None
    return Delivery(topic, partition.number, reading.ordinal, sum([span.count for span in spans]), spans, 0, 0)
