"""Messages in: requests that the core could not gather into runs, and transactions, which are not served yet.

Messages of one topic are stored together or not at all, and every topic has its own code; the answer comes when the last of
them is as durable as its level says.

Left to others: runs of plain requests (guest), order of answers (guest).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from serai import limits
from serai._core.entries import HOUSE
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.commands import ANY_PARTITION
from serai.doors.jmq.schema.frame import DRESSES, REAL, SEED, Message
from serai.doors.jmq.schema.numbers import LEVELS, Number
from serai.doors.jmq.service.visit import FAILURES, Later, Visit, number_of
from serai.errors import BadMessages, Refused
from serai.log.engine import Level
from serai.wire.layout import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serai._core.frames import Entries
    from serai.broker import Broker
    from serai.doors.jmq.schema.commands import Produced, TopicPlaced
    from serai.doors.jmq.service.visit import Said
    from serai.log.engine import Ticket

COMMIT = 2


@functools.cache  # a dialect has as many qualities as a byte
def level_of(dialect: str, quality: int) -> Level:
    """What a producer waits for; a quality nobody knows is the safest."""
    return Level(LEVELS[dialect].get(quality, COMMIT))


def wait_ms(timeout_ms: int) -> int:
    """How long a producer waits for the disk before it is told that the outcome is unknown."""
    return min(timeout_ms, limits.LONG_POLL_MS_MAX) if timeout_ms > 0 else limits.PRODUCE_WAIT_MS


def produce(visit: Visit, command: commands.ProduceMessage) -> Said:
    """PRODUCE_MESSAGE."""
    stored = [_store(visit, topic, command.app) for topic in command.topics]
    waiting = [ticket for ticket in stored if not isinstance(ticket, int) and not ticket.done]

    def answer() -> commands.ProduceMessageAck:
        pairs = zip(command.topics, stored, strict=True)
        return commands.ProduceMessageAck(data=[_placed(visit, topic, ticket) for topic, ticket in pairs])

    if not waiting:
        return answer()
    longest_ms = max(wait_ms(topic.timeout) for topic in command.topics)
    return Later(visit.broker.park(visit.session, waiting, deadline_ms=visit.now_ms + longest_ms), answer)


def _store(visit: Visit, topic: Produced, app: str) -> Ticket | int:
    """Where the messages of a topic are, or why nowhere."""
    entries = topic.messages.entries
    assert entries is not None, "messages that were read have been walked"
    try:
        if topic.tx_id:
            raise Refused("transactions are not served yet; produce without one", code="unsupported")
        partition = _partition(visit.broker, topic, entries)
        return visit.broker.produce(
            visit.session, topic.topic, entries.data, entries.dress, app=app, now_ms=visit.now_ms, partition=partition,
            level=level_of(visit.form.dialect, topic.qos_level),
        )  # fmt: skip
    except FAILURES as error:
        return number_of(error, visit.form, producing=True)


def _partition(broker: Broker, topic: Produced, entries: Entries) -> int:
    """Which partition is asked for: by its number, or by the keys of messages that want an order."""
    if not entries.entries:
        raise BadMessages(f"there is no message for topic {topic.topic!r}; send one at least")
    if entries.dress == HOUSE:
        return topic.partition
    wanted = {entries.partition}
    if entries.ordered and entries.partition == ANY_PARTITION:
        wanted = {broker.partition_for(topic.topic, key) for key in _keys(entries)}
    if entries.mixed or len(wanted) > 1:
        raise BadMessages(f"messages for topic {topic.topic!r} ask for several partitions; send a request for each")
    return wanted.pop()


def _keys(entries: Entries) -> Iterator[str]:
    """The business ids of messages that want an order."""
    form = SEED if entries.dress == DRESSES["seed"] else REAL
    at = 0
    while at < len(entries.data):
        message, at = decode(Message, entries.data, form, at)
        if message.system_code.ordered:
            yield message.business_id


def _placed(visit: Visit, topic: Produced, ticket: Ticket | int) -> TopicPlaced:
    entries = topic.messages.entries
    assert entries is not None
    if not isinstance(ticket, int):
        error = visit.broker.verdict(ticket)
        if error is None:
            rows = entries.rows(partition=visit.broker.partition_of(ticket), index=ticket.ordinal, code=0)
            return commands.TopicPlaced(topic=topic.topic, code=0, result=rows)
        ticket = number_of(error, visit.form, producing=True)
    return commands.TopicPlaced(
        topic=topic.topic, code=ticket, result=entries.rows(partition=-1, index=-1, code=ticket)
    )


# ---- transactions: none can be open ------------------------------------------------------------------------------


def prepare(visit: Visit, command: commands.ProduceMessagePrepare) -> Said:
    """PRODUCE_MESSAGE_PREPARE."""
    visit.broker.producer(visit.session, command.topic, command.app)
    raise Refused(
        f"transactions are not served yet; produce to topic {command.topic!r} without one", code="unsupported"
    )


def commit(visit: Visit, command: commands.ProduceMessageCommit) -> Said:  # noqa: ARG001 - the same for everybody
    """PRODUCE_MESSAGE_COMMIT."""
    return commands.ProduceMessageCommitAck(code=unknown_transaction(visit))


def rollback(visit: Visit, command: commands.ProduceMessageRollback) -> Said:  # noqa: ARG001 - the same for everybody
    """PRODUCE_MESSAGE_ROLLBACK."""
    return commands.ProduceMessageRollbackAck(code=unknown_transaction(visit))


def feedback(visit: Visit, command: commands.FetchProduceFeedback) -> Said:  # noqa: ARG001 - the same for everybody
    """FETCH_PRODUCE_FEEDBACK: no transaction waits for its end."""
    return commands.FetchProduceFeedbackAck(data=[], code=0)


def unknown_transaction(visit: Visit) -> int:
    """The number for a transaction that nobody opened."""
    seed = visit.form.dialect == "seed"
    return int(Number.SEED_TRANSACTION_UNKNOWN if seed else Number.TRANSACTION_UNKNOWN)
