"""Messages out: fetches with and without the partition's lock, acknowledgements, positions.

    stored dress == connection's dress     spans of the mapped pages, untouched
    otherwise                              the same messages in the connection's dress, made in one pass

One answer holds at most `answer_bytes` of messages, shared by its rows in their order; a row whose turn comes when nothing is
left stays empty, and its messages come with the next request.

Left to others: what a consumer may have (broker), when a parked fetch is answered (guest).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serai import limits
from serai._core import frames
from serai._core.dress import redress
from serai.broker import Delivery
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import DRESSES
from serai.doors.jmq.service.visit import FAILURES, Later, Visit, number_of
from serai.errors import Refused, SeraiError
from serai.wire.buffer import Span
from serai.wire.sets import Messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from serai.broker import Wait
    from serai.doors.jmq.schema.commands import TopicMessages
    from serai.doors.jmq.service.visit import Said
    from serai.wire.buffer import Piece

SHORT_MAX = (1 << 15) - 1  # entries that an array can count
DONE = 0  # the type of an acknowledgement that is no failure


# ---- with the lock -----------------------------------------------------------------------------------------------


def fetch_topics(visit: Visit, command: commands.FetchTopicMessage) -> Said:
    """FETCH_TOPIC_MESSAGE."""
    poll_ms = command.long_poll_timeout if len(command.topics) == 1 else 0
    rows, left = [], visit.answer_bytes
    for wish in command.topics:
        try:
            consumer = visit.broker.consumer(visit.session, wish.topic, command.app)
            found: Delivery | Wait[Delivery] | None = None
            if left > 0:
                found = visit.broker.fetch(
                    consumer, count=wish.count, bytes_max=left, now_ms=visit.now_ms,
                    ack_timeout_ms=command.ack_timeout, wait_ms=poll_ms,
                )  # fmt: skip
            if found is not None and not isinstance(found, Delivery):
                return Later(found, polled(visit, wish.topic, found), polls=True)
            rows.append(delivered(visit, wish.topic, found))
        except FAILURES as error:
            rows.append(undelivered(visit, wish.topic, error, alone=len(command.topics) == 1))
        left -= bytes_of(rows[-1].messages)
    return commands.FetchTopicMessageAck(data=rows)


def polled(visit: Visit, topic: str, wait: Wait[Delivery]) -> Callable[[], commands.FetchTopicMessageAck]:
    """What a parked fetch is told in the end."""

    def finish() -> commands.FetchTopicMessageAck:
        try:
            row = delivered(visit, topic, wait.result())
        except FAILURES as error:
            row = undelivered(visit, topic, error, alone=True)
        return commands.FetchTopicMessageAck(data=[row])

    return finish


def delivered(visit: Visit, topic: str, delivery: Delivery | None) -> TopicMessages:
    """A row of messages, or of none."""
    if delivery is None or not delivery.spans:
        return commands.TopicMessages(topic=topic, partition=-1, index=-1, messages=no_messages(visit), code=0)
    lead = delivery.spans[0].lead
    return commands.TopicMessages(
        topic=topic, partition=delivery.partition, index=delivery.ordinal - lead, lead=lead, count=delivery.count,
        messages=dressed(visit, delivery), code=0,
    )  # fmt: skip


def undelivered(visit: Visit, topic: str, error: SeraiError, *, alone: bool) -> TopicMessages:
    """A row that says why it is empty; the seed's rows cannot, so there a topic that was asked for alone fails as a whole."""
    if alone and visit.form.dialect == "seed":
        raise error
    code = number_of(error, visit.form, producing=False)
    return commands.TopicMessages(topic=topic, partition=-1, index=-1, messages=no_messages(visit), code=code)


def no_messages(visit: Visit) -> Messages:
    """An empty set."""
    return Messages([], 0, DRESSES[visit.form.dialect])


def bytes_of(messages: Messages) -> int:
    """How long a set is."""
    return sum(map(len, messages.pieces))


def dressed(visit: Visit, delivery: Delivery) -> Messages:
    """What was delivered in the connection's dress."""
    dress = DRESSES[visit.form.dialect]
    pieces: list[Piece] = []
    entries = 0
    for span in delivery.spans:
        data, plain = span.data, span.dress == dress
        if not plain:
            try:
                data = redress(
                    data, span.dress, dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
                    bytes_max=limits.FRAME_BYTES_MAX, partition=delivery.partition, index=span.ordinal - span.lead,
                    term=visit.broker.engine.epoch, store_time=span.time,
                )  # fmt: skip
            except ValueError as error:
                raise Refused(
                    f"messages from index {span.ordinal} on cannot be shown to a client of this dialect: {error}",
                    code="unsupported",
                ) from None
        pieces.append(Span(memoryview(data)))
        entries += span.count if plain and not span.wrapped else frames.entries_of(data, dress)[0].entries
    return Messages(pieces, entries, dress)


# ---- without the lock --------------------------------------------------------------------------------------------


def fetch_partitions(visit: Visit, command: commands.FetchPartitionMessage) -> Said:
    """FETCH_PARTITION_MESSAGE."""
    left = visit.answer_bytes
    topics = []
    for topic in command.topics:
        rows = []
        for wish in topic.partitions:
            rows.append(_read(visit, topic.topic, command.app, wish, left))
            left -= bytes_of(rows[-1].messages)
        topics.append(commands.TopicPartitionMessages(topic=topic.topic, partitions=rows))
    return commands.FetchPartitionMessageAck(data=topics)


def _read(
    visit: Visit, topic: str, group: str, wish: commands.PartitionWish, bytes_max: int
) -> commands.PartitionMessages:
    """A row for one partition."""
    empty = commands.PartitionMessages(partition=wish.partition, index=wish.index, messages=no_messages(visit), code=0)
    if bytes_max <= 0:
        return empty
    try:
        found = visit.broker.fetch_at(
            visit.session, topic, group, wish.partition, wish.index, count=min(wish.count, SHORT_MAX),
            bytes_max=bytes_max, now_ms=visit.now_ms,
        )  # fmt: skip
        assert isinstance(found, Delivery), "a read without a time to wait is answered at once"
        if not found.spans:
            return empty
        empty.messages = dressed(visit, found)
        empty.lead = found.spans[0].lead
        empty.index, empty.count = found.ordinal - empty.lead, found.count
    except FAILURES as error:
        empty.code = number_of(error, visit.form, producing=False)
    return empty


# ---- acknowledgements and positions ------------------------------------------------------------------------------


def acknowledge(visit: Visit, command: commands.CommitAck) -> Said:
    """COMMIT_ACK."""

    def one(topic: str, row: commands.PartitionAcks) -> None:
        if visit.form.dialect == "house":
            _settle(visit, topic, command.app, row)
        else:
            failed = [each.index for each in row.data if each.type != DONE]
            indexes = [each.index for each in row.data]
            visit.broker.ack(topic, command.app, row.partition, indexes, failed=failed, now_ms=visit.now_ms)

    return commands.CommitAckAck(data=coded(visit, command.topics, one))


def _settle(visit: Visit, topic: str, group: str, row: commands.PartitionAcks) -> None:
    """The house dialect names ranges, wherever they are; what failed it gives back with RELEASE."""
    if any(each.type != DONE for each in row.data):
        raise Refused("messages cannot be acknowledged as failed yet; give them back: RELEASE", code="retry-disabled")
    ranges = [range(each.index, each.index + each.count) for each in row.data]
    visit.broker.settle_some(topic, group, row.partition, ranges, now_ms=visit.now_ms)


def release(visit: Visit, command: commands.Release) -> Said:
    """RELEASE."""

    def one(topic: str, row: commands.PartitionDelay) -> None:
        visit.broker.release(topic, command.app, row.partition, now_ms=visit.now_ms, delay_ms=row.delay)

    return commands.CommitAckAck(data=coded(visit, command.topics, one))


def renew(visit: Visit, command: commands.Renew) -> Said:
    """RENEW."""

    def one(topic: str, row: commands.PartitionTerm) -> None:
        kept = visit.broker.renew(
            topic, command.app, row.partition, ack_timeout_ms=row.ack_timeout, now_ms=visit.now_ms
        )
        if not kept:
            raise Refused(f"nothing of partition {row.partition} of topic {topic!r} is held", code="bad-ack")

    return commands.CommitAckAck(data=coded(visit, command.topics, one))


def seek(visit: Visit, command: commands.CommitAckIndex) -> Said:
    """COMMIT_ACK_INDEX."""

    def one(topic: str, row: commands.PartitionIndex) -> None:
        visit.broker.seek(topic, command.app, row.partition, row.index, now_ms=visit.now_ms)

    return commands.CommitAckIndexAck(data=coded(visit, command.topics, one))


def coded(visit: Visit, topics: Iterable[Any], work: Callable[[str, Any], object]) -> list[commands.TopicCodes]:
    """Do something for each row of each topic, and say of each how it went."""
    return [
        commands.TopicCodes(
            topic=each.topic,
            partition_data=[
                commands.PartitionCode(partition=row.partition, code=code_of(visit, work, each.topic, row))
                for row in each.partitions
            ],
        )
        for each in topics
    ]


def code_of(visit: Visit, work: Callable[..., object], *words: Any) -> int:
    """Do something: 0, or why not."""
    try:
        work(*words)
    except FAILURES as error:
        return number_of(error, visit.form, producing=False)
    return 0


def indexes(visit: Visit, command: commands.FetchIndex) -> Said:
    """FETCH_INDEX."""

    def one(topic: str, partition: int) -> commands.IndexRange:
        try:
            at = visit.broker.index(topic, command.app, partition)
        except FAILURES as error:
            return commands.IndexRange(
                partition=partition, index=-1, code=number_of(error, visit.form, producing=False)
            )
        return commands.IndexRange(
            partition=partition, index=at.position, code=0, left_index=at.first, right_index=at.end
        )

    return commands.FetchIndexAck(
        topics=[
            commands.TopicRanges(topic=each.topic, partitions=[one(each.topic, number) for number in each.partitions])
            for each in command.topics
        ]
    )


def ack_indexes(visit: Visit, command: commands.FetchAckIndex) -> Said:
    """FETCH_ACK_INDEX: where the group stands, and no more."""

    def one(topic: str, partition: int) -> int:
        return visit.broker.index(topic, command.app, partition).position

    return commands.FetchAckIndexAck(
        topics=[
            commands.TopicAckIndexes(
                topic=each.topic,
                partitions=[found(visit, number, one, each.topic, number) for number in each.partitions],
            )
            for each in command.topics
        ]
    )


def indexes_by_time(visit: Visit, command: commands.FetchIndexByTime) -> Said:
    """FETCH_INDEX_BY_TIME."""
    at_time = visit.broker.at_time
    return commands.FetchIndexByTimeAck(
        topics=[
            commands.TopicAckIndexes(
                topic=each.topic,
                partitions=[
                    found(visit, row.partition, at_time, each.topic, row.partition, row.time) for row in each.partitions
                ],
            )
            for each in command.topics
        ]
    )


def found(visit: Visit, partition: int, work: Callable[..., int], *words: Any) -> commands.AckIndex:
    """A row with the index that the work finds."""
    try:
        return commands.AckIndex(partition=partition, index=work(*words), code=0)
    except FAILURES as error:
        return commands.AckIndex(partition=partition, index=-1, code=number_of(error, visit.form, producing=False))
