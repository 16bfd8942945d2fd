"""A client of the door, whatever carries its bytes: commands said, answers heard, and what is asked most."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from serai._core.dress import redress
from serai._core.entries import HOUSE as HOUSE_DRESS
from serai.doors.jmq.connection import Call, Connection, Reply, Role
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import DRESSES, HOUSE
from serai.wire.buffer import Span, flat
from serai.wire.sets import Messages
from tests.broker.kit import entry, opened
from tests.doors.jmq.kit import messages_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai.doors.jmq.schema.commands import Command, TopicMessages, TopicPlaced
    from serai.wire.layout import Form


def messages(form: Form, bodies: Sequence[bytes], *, partition: int = -1) -> Messages:
    """Messages of a dialect."""
    raw, dress = b"".join(map(entry, bodies)), DRESSES[form.dialect]
    if dress != HOUSE_DRESS and raw:
        raw = redress(
            raw, HOUSE_DRESS, dress, inflated_max=1 << 26, depth_max=8, bytes_max=1 << 30, partition=partition
        )
    return Messages([Span(memoryview(raw))] if raw else [], len(bodies), dress)


def rows_of(placed: TopicPlaced) -> list[commands.Placed]:
    """What is said of each entry."""
    assert isinstance(placed.result, list)
    return placed.result


class Voice:
    """A client; who inherits carries what it says, and brings the answers."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.client = Connection(Role.CLIENT, form=form)
        self.replies: deque[Reply] = deque()
        self.number = 0

    def bytes_of(self, command: Command, *, quality: int = 1) -> bytes:
        self.number += 1
        return flat(self.client.send(Call(command, self.number, 1000 + self.number, quality)))

    def joined(self, said: Sequence[bytes | Command]) -> bytes:
        return b"".join(each if isinstance(each, bytes) else self.bytes_of(each) for each in said)

    def say(self, *said: bytes | Command) -> list[Reply]:
        """Send it in one piece; what is answered."""
        raise NotImplementedError

    def hear(self, data: bytes) -> None:
        for reply in self.client.receive(data):
            assert isinstance(reply, Reply)
            self.replies.append(reply)

    def heard(self) -> list[Reply]:
        """What was answered since the last time."""
        found = list(self.replies)
        self.replies.clear()
        return found

    def ask(self, command: Command, *, quality: int = 1) -> Reply:
        """One command and its one answer."""
        (reply,) = self.say(self.bytes_of(command, quality=quality))
        return reply

    # ---- what is asked most

    def set_of(self, *bodies: bytes, partition: int = -1) -> Messages:
        return messages(self.form, bodies, partition=partition)

    def produced(self, topic: str, *bodies: bytes, level: int = 1, partition: int = -1) -> commands.Produced:
        return commands.Produced(
            topic=topic, tx_id="", timeout=0, qos_level=level, partition=partition,
            messages=self.set_of(*bodies, partition=partition),
        )  # fmt: skip

    def produce(self, topic: str, *bodies: bytes, **words: Any) -> TopicPlaced:
        reply = self.ask(commands.ProduceMessage(topics=[self.produced(topic, *bodies, **words)], app="shop"))
        assert isinstance(reply.body, commands.ProduceMessageAck), reply
        (row,) = reply.body.data
        return row

    def indexes(self, placed: TopicPlaced) -> list[int]:
        """Where each message is."""
        return [each.index + at for each in rows_of(placed) for at in range(each.count)]

    def looks_up(self, *topics: str) -> commands.FetchClusterAck:
        """Where topics live; they are made, with their subscriptions, where that is allowed."""
        reply = self.ask(commands.FetchCluster(topics=list(topics), app="shop"))
        assert isinstance(reply.body, commands.FetchClusterAck), reply
        return reply.body

    def registers(self, *topics: str, app: str = "shop") -> list[str]:
        """Say that we will fetch; the consumers' ids."""
        reply = self.ask(commands.AddConsumer(topics=list(topics), app=app, sequence=1))
        assert isinstance(reply.body, commands.AddConsumerAck), reply
        return [each.consumer_id for each in reply.body.consumer_ids]

    def fetch_command(
        self, topic: str, *, count: int = 0, poll_ms: int = 0, app: str = "shop", ack_ms: int = 0
    ) -> Command:
        wish = commands.TopicWish(topic=topic, count=count)
        return commands.FetchTopicMessage(topics=[wish], app=app, ack_timeout=ack_ms, long_poll_timeout=poll_ms)

    def read(self, topic: str, index: int, *, count: int = 100, partition: int = 0) -> commands.PartitionMessages:
        """Messages from an index on, without a lock."""
        wish = commands.PartitionWish(partition=partition, count=count, index=index)
        reply = self.ask(
            commands.FetchPartitionMessage(
                topics=[commands.PartitionWishes(topic=topic, partitions=[wish])], app="shop"
            )
        )
        assert isinstance(reply.body, commands.FetchPartitionMessageAck), reply
        return reply.body.data[0].partitions[0]

    def moves(self, topic: str, index: int, *, partition: int = 0, app: str = "shop") -> int:
        """Set the group's position; the code."""
        row = commands.PartitionIndex(partition=partition, index=index)
        reply = self.ask(
            commands.CommitAckIndex(topics=[commands.TopicIndexes(topic=topic, partitions=[row])], app=app)
        )
        assert isinstance(reply.body, commands.CommitAckIndexAck), reply
        return reply.body.data[0].partition_data[0].code

    def stands(self, topic: str, *, partition: int = 0, app: str = "shop") -> commands.IndexRange:
        """Where the group stands."""
        wish = commands.TopicPartitions(topic=topic, partitions=[partition])
        reply = self.ask(commands.FetchIndex(topics=[wish], app=app))
        assert isinstance(reply.body, commands.FetchIndexAck), reply
        return reply.body.topics[0].partitions[0]

    def fetch(self, topic: str, **words: Any) -> TopicMessages:
        reply = self.ask(self.fetch_command(topic, **words))
        return self.row(reply)

    def row(self, reply: Reply) -> TopicMessages:
        assert isinstance(reply.body, commands.FetchTopicMessageAck), reply
        (row,) = reply.body.data
        return row

    def house_bytes(self, found: Messages) -> bytes:
        """A set as the house writes it."""
        data = flat(found.pieces)
        if found.dress == HOUSE_DRESS or not data:
            return data
        return redress(data, found.dress, HOUSE_DRESS, inflated_max=1 << 26, depth_max=8, bytes_max=1 << 30)

    def bodies(self, row: TopicMessages | commands.PartitionMessages) -> list[bytes]:
        return opened(self.house_bytes(row.messages))

    def fetched(self, row: TopicMessages) -> list[int]:
        """The indexes that were delivered, as the client sees them."""
        if self.form == HOUSE:
            return list(range(row.index + row.lead, row.index + row.lead + row.count))
        return [
            each.index + at
            for each in messages_of(row.messages)
            for at in range(each.flag if each.system_code.batch else 1)
        ]

    def ack(self, topic: str, indexes: Sequence[int], *, partition: int = 0, kind: int = 0, app: str = "shop") -> int:
        data = [commands.Acknowledged(partition=partition, index=index, type=kind) for index in indexes]
        rows = [commands.PartitionAcks(partition=partition, data=data)]
        reply = self.ask(commands.CommitAck(topics=[commands.TopicAcks(topic=topic, partitions=rows)], app=app))
        assert isinstance(reply.body, commands.CommitAckAck), reply
        return reply.body.data[0].partition_data[0].code
