"""What a consumer holds: deliveries, each with its partition's lock, and acknowledgements on their way.

    fetch ──► Delivery ──► messages acknowledged ──► told to the server ──► confirmed
                  │                                       ▲    │ the connection broke
                  └── given back: comes again             └────┘

The server locks a partition for the group while one of its deliveries is unfinished; so a consumer that does not finish gets
nothing more of that partition until the time for it is over, and then the same again.

Invariants
- a finished delivery is told at once, an unfinished one at the latest `TELL_S` after an acknowledgement, when the consumer is used
- an acknowledgement that was not confirmed is told again on the next connection: twice does no harm
- nothing is fetched before everything acknowledged so far is on its way

Left to others: what messages and deliveries are (_core.parcels), waiting (sync, aio).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from serai import limits
from serai._core.parcels import Delivery
from serai.client.line import CALL_S, NAP_FIRST_S, Nap
from serai.client.refusals import NOT_STORED, failure
from serai.doors.jmq.schema.commands import (
    Acknowledged,
    CommitAck,
    CommitAckAck,
    CommitAckIndex,
    CommitAckIndexAck,
    FetchIndex,
    FetchIndexAck,
    FetchIndexByTime,
    FetchIndexByTimeAck,
    FetchTopicMessage,
    FetchTopicMessageAck,
    PartitionAcks,
    PartitionDelay,
    PartitionIndex,
    PartitionTerm,
    PartitionTime,
    Release,
    Renew,
    TopicAcks,
    TopicDelays,
    TopicIndexes,
    TopicMessages,
    TopicPartitions,
    TopicTerms,
    TopicTimes,
    TopicWish,
)  # fmt: skip
from serai.errors import Misuse, PeerError, SeraiError
from serai.wire.buffer import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai.client.line import Line, Step
    from serai.client.link import Link, Pending
    from serai.wire.sets import Messages

LOG = logging.getLogger("serai.client")
TELL_S = 0.1
COUNT_MAX = 0x7FFF
POLL_MS_MAX = 20_000  # of one long poll; a longer wait is several
GRACE_S = 10.0  # for an answer, beyond the time the server may take
OLDEST, NEWEST = -2, -1
DONE = 0
Place: TypeAlias = int | str | datetime  # an index, "start", "end", or a moment


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands in a partition: the index it will be given next, the oldest stored, the one behind the newest."""

    partition: int
    index: int
    first: int
    end: int


class Incoming:
    """The deliveries of one consumer that are not finished, and what the server has to be told."""

    def __init__(self, line: Line, topic: str, group: str, *, ack_timeout_s: float) -> None:
        self.line = line
        self.topic = topic
        self.group = group
        self.urge: Callable[[], None] = lambda: None  # there is something to be told
        self._ack_timeout_ms = int(ack_timeout_s * 1000)
        self._held: list[Delivery] = []
        self._untold: list[tuple[int, int, int]] = []  # partition, index, count
        self._asked: list[Pending] = []  # acknowledgements without an answer
        self._told_s = 0.0
        self._astray: Pending | None = None  # a fetch that was given up before its answer came
        self._stray: list[Delivery] = []
        self.refusal: SeraiError | None = None

    # ---- messages in

    def fetch(self, count: int, wait_s: float) -> Step[Delivery | None]:
        """The next delivery; None when nothing came in that time."""
        until_s = time.monotonic() + wait_s
        while True:
            if self._astray is not None and not self._astray.done:
                yield self._astray
            if self._stray:
                return self._stray.pop(0)
            link = yield from self.line.up(max(until_s, time.monotonic() + CALL_S))
            self.tell()
            left_ms = int(max(until_s - time.monotonic(), 0.0) * 1000)
            wait_ms = min(left_ms, POLL_MS_MAX)
            wish = FetchTopicMessage(
                topics=[TopicWish(topic=self.topic, count=min(count, COUNT_MAX))], app=self.group,
                ack_timeout=self._ack_timeout_ms, long_poll_timeout=wait_ms,
            )  # fmt: skip
            pending = self.line.ask(link, wish, time.monotonic() + wait_ms / 1000 + GRACE_S)
            try:
                yield pending
            except GeneratorExit:  # nobody waits any more, but what comes is ours: it is kept for the next fetch
                pending.then = self._strayed
                self._astray = pending
                raise
            if pending.error is not None and link.fault is not None:
                continue
            if pending.reply is not None and pending.reply.status in NOT_STORED:
                self.line.forget(link)
                continue
            body = pending.body()
            assert isinstance(body, FetchTopicMessageAck)
            row = body.data[0]
            if row.code in NOT_STORED and left_ms:
                self.line.stale = True
                yield Nap(NAP_FIRST_S)
                continue
            if row.code:
                raise failure(row.code, f"fetch from {self.topic!r} for {self.group!r}")
            if row.count:
                return self._delivered(row)
            if time.monotonic() >= until_s:
                return None

    def _delivered(self, row: TopicMessages) -> Delivery:
        delivery = unpacked(row.messages, self.topic, row.partition, row.index, row.lead, row.count)
        delivery.keeper = self
        self._held = [each for each in self._held if each.partition != row.partition]  # its time was over
        self._held.append(delivery)
        return delivery

    def _strayed(self, pending: Pending) -> None:
        """The answer to a fetch that was given up."""
        body = pending.reply.body if pending.reply is not None else None
        if isinstance(body, FetchTopicMessageAck) and body.data[0].count:
            self._stray.append(self._delivered(body.data[0]))

    # ---- what became of them

    def complete(self, delivery: Delivery) -> None:
        """All of a delivery is acknowledged."""
        self._gather(delivery)
        if delivery in self._held:
            self._held.remove(delivery)
        self.urge()

    def give_back(self, delivery: Delivery, delay_s: float) -> None:
        """The rest of a delivery is wanted again later."""
        if delivery not in self._held:
            return
        self._held.remove(delivery)
        self._gather(delivery)
        link = self.line.link
        if link is not None and self.line.is_up:
            self.tell()
            command = self._release([delivery], delay_s)
            self._asked.append(self.line.ask(link, command, time.monotonic() + CALL_S, self._answered))
            self.urge()

    def _gather(self, delivery: Delivery) -> None:
        self._untold += [(delivery.partition, index, count) for index, count in delivery.settled()]

    def is_due(self, now_s: float) -> bool:
        """It is time to tell what was acknowledged in unfinished deliveries."""
        return now_s - self._told_s >= TELL_S

    def tell(self) -> None:
        """Tell the server what is acknowledged, without waiting for its answer."""
        link = self.line.link
        self._told_s = time.monotonic()
        for delivery in self._held:
            self._gather(delivery)
        if not self._untold or link is None or not self.line.is_up:
            return
        ranges, self._untold = self._untold, []
        pending = self.line.ask(link, self._acks(ranges), self._told_s + CALL_S, lambda done: self._told(done, ranges))
        self._asked.append(pending)

    def _acks(self, ranges: list[tuple[int, int, int]]) -> CommitAck:
        by_partition: dict[int, list[Acknowledged]] = {}
        for partition, index, count in ranges:
            by_partition.setdefault(partition, []).append(
                Acknowledged(partition=partition, index=index, type=DONE, count=count)
            )
        acks = [PartitionAcks(partition=partition, data=rows) for partition, rows in by_partition.items()]
        return CommitAck(topics=[TopicAcks(topic=self.topic, partitions=acks)], app=self.group)

    def _release(self, deliveries: list[Delivery], delay_s: float) -> Release:
        delays = [PartitionDelay(partition=each.partition, delay=int(delay_s * 1000)) for each in deliveries]
        return Release(topics=[TopicDelays(topic=self.topic, partitions=delays)], app=self.group)

    def _told(self, pending: Pending, ranges: list[tuple[int, int, int]]) -> None:
        if pending.error is not None:
            self._untold = ranges + self._untold
        self._answered(pending)

    def _answered(self, pending: Pending) -> None:
        """An acknowledgement or a release was answered; what was refused is said once."""
        if pending in self._asked:
            self._asked.remove(pending)
        if pending.error is not None:
            return
        try:
            body = pending.body()
            assert isinstance(body, CommitAckAck)
            check_codes(body, f"acknowledge messages of {self.topic!r} for {self.group!r}")
        except SeraiError as error:
            self.refusal = error
            LOG.warning("%s", error)

    def flush(self) -> Step[None]:
        """Everything acknowledged so far is confirmed, or an error says what is not."""
        deadline_s = time.monotonic() + CALL_S
        while True:
            self.tell()
            if not self._asked and not self._untold:
                break
            if self._asked:
                yield self._asked[-1]
            if self._untold:
                yield from self.line.up(deadline_s)
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal

    def renew(self, seconds: float) -> Step[None]:
        """Hold what is held for so long from now on."""
        terms = [PartitionTerm(partition=each.partition, ack_timeout=int(seconds * 1000)) for each in self._held]
        if terms:
            command = Renew(topics=[TopicTerms(topic=self.topic, partitions=terms)], app=self.group)
            body = yield from self.line.call(command, time.monotonic() + CALL_S)
            assert isinstance(body, CommitAckAck)
            check_codes(body, f"renew deliveries of {self.topic!r}")

    # ---- where the group stands

    def seek(self, to: Place, partition: int | None) -> Step[None]:
        """Set the group's position in one partition or in all; what is held is given back first."""
        deadline_s = time.monotonic() + CALL_S
        yield from self.line.up(deadline_s)
        chosen = self.line.ownership[self.topic].partitions if partition is None else [partition]
        for delivery in [each for each in self._held if each.partition in chosen]:
            self.give_back(delivery, 0.0)
        yield from self.flush()
        places = yield from resolved(self.line, self.topic, self.group, chosen, to)
        indexes = [PartitionIndex(partition=number, index=index) for number, index in places]
        command = CommitAckIndex(topics=[TopicIndexes(topic=self.topic, partitions=indexes)], app=self.group)
        body = yield from self.line.call(command, deadline_s)
        assert isinstance(body, CommitAckIndexAck)
        check_codes(body, f"move {self.group!r} in {self.topic!r} to {to}")

    def standing(self) -> Step[list[Standing]]:
        """Where the group stands in each partition, and what is stored there."""
        deadline_s = time.monotonic() + CALL_S
        yield from self.line.up(deadline_s)
        numbers = self.line.ownership[self.topic].partitions
        command = FetchIndex(topics=[TopicPartitions(topic=self.topic, partitions=numbers)], app=self.group)
        body = yield from self.line.call(command, deadline_s)
        assert isinstance(body, FetchIndexAck)
        rows = body.topics[0].partitions
        for row in rows:
            if row.code:
                raise failure(row.code, f"look up partition {row.partition} of {self.topic!r}")
        return [Standing(row.partition, row.index, row.left_index, row.right_index) for row in rows]

    def let_go(self, link: Link) -> None:
        """The end of a consumer: what is held comes again at once."""
        self._stray.clear()
        self.tell()
        if self._held:
            self.line.ask(link, self._release(self._held, 0.0), time.monotonic() + CALL_S)
            self._held.clear()


def unpacked(messages: Messages, topic: str, partition: int, index: int, lead: int, count: int) -> Delivery:
    """The messages of an answer."""
    assert isinstance(messages.pieces[0], Span)
    try:
        return Delivery(
            messages.pieces[0].view, topic=topic, partition=partition, index=index + lead, lead=lead, count=count,
            inflated_max=max(limits.INFLATED_MAX, 2 * limits.FETCH_BYTES_MAX),
        )  # fmt: skip
    except ValueError as error:
        raise PeerError(f"messages {index} to {index + count - 1} of {topic!r} cannot be read: {error}") from error


def check_codes(body: CommitAckAck | CommitAckIndexAck, what: str) -> None:
    """An error for the first partition that was refused."""
    for topic in body.data:
        for row in topic.partition_data:
            if row.code:
                raise failure(row.code, f"{what}, partition {row.partition}")


def resolved(line: Line, topic: str, app: str, partitions: list[int], to: Place) -> Step[list[tuple[int, int]]]:
    """Partitions with the index that a place means there; "start" and "end" as the protocol writes them."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise Misuse(f"{to} says no time zone; write datetime.now(timezone.utc), or to.astimezone()")
        ms = int(to.timestamp() * 1000)
        times = [PartitionTime(partition=number, time=ms) for number in partitions]
        command = FetchIndexByTime(topics=[TopicTimes(topic=topic, partitions=times)], app=app)
        body = yield from line.call(command, time.monotonic() + CALL_S)
        assert isinstance(body, FetchIndexByTimeAck)
        rows = body.topics[0].partitions
        for row in rows:
            if row.code:
                raise failure(row.code, f"look up {to} in {topic!r}, partition {row.partition}")
        return [(row.partition, row.index) for row in rows]
    if isinstance(to, str) and to not in {"start", "end"}:
        raise Misuse(f"{to!r} is no place; it is 'start', 'end', an index or a datetime")
    index = OLDEST if to == "start" else NEWEST if to == "end" else int(to)
    if isinstance(to, int) and to < 0:
        raise Misuse(f"index {to} is negative; it is a number from 0 on, 'start' or 'end'")
    return [(number, index) for number in partitions]
