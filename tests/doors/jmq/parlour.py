"""A broker over a real engine, and JMQ guests in front of it without sockets: bytes go in, the gate's turn is played here."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from serai._core.dress import redress
from serai._core.entries import HOUSE as HOUSE_DRESS
from serai.doors.jmq.connection import Call, Connection, Reply, Role
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import DRESSES, HOUSE
from serai.doors.jmq.service import Service
from serai.wire.buffer import Span, flat
from serai.wire.sets import Messages
from tests.broker.kit import House, entry, opened
from tests.doors.jmq.kit import hello

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from serai.doors.jmq.schema.commands import Command, TopicMessages, TopicPlaced
    from serai.wire.buffer import Piece
    from serai.wire.layout import Form

IPV4 = (4000).to_bytes(2, "little") + bytes((127, 0, 0, 1))


def messages(form: Form, bodies: Sequence[bytes], *, partition: int = -1) -> Messages:
    """Messages of a dialect."""
    raw, dress = b"".join(map(entry, bodies)), DRESSES[form.dialect]
    if dress != HOUSE_DRESS and raw:
        raw = redress(
            raw, HOUSE_DRESS, dress, inflated_max=1 << 26, depth_max=8, bytes_max=1 << 30, partition=partition
        )
    return Messages([Span(memoryview(raw))] if raw else [], len(bodies), dress)


class Parlour(House):
    """A broker, and whoever sits before it."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path / "data", **settings)
        self.guests: dict[Service, Guest] = {}

    def visitor(self, form: Form, *, connects: bool = True, **words: Any) -> Guest:
        """Somebody who speaks a dialect."""
        guest = Guest(self, form)
        if connects:
            assert guest.ask(hello(**words)).status == 0
        return guest

    def round(self) -> None:
        """A turn of the gate."""
        while True:
            self.broker.settle()
            waits = self.broker.turn(self.now_ms)
            for wait in waits:
                guest = self.guests[wait.token[0]]
                guest.hear(guest.service.resume(wait, self.now_ms))
            if not waits:
                return

    def pass_ms(self, ms: int) -> None:
        """Time goes by."""
        self.now_ms += ms
        self.round()

    def flushed(self) -> None:
        """Everything reaches the disk."""
        for partition in self.engine.partitions():
            self.engine.open(partition).commit()
        for topic in self.broker.topics.values():
            for place in topic.opened.values():
                self.broker._lot.flushed(place.log)
        self.round()


class Guest:
    """A client and the service behind its connection."""

    def __init__(self, parlour: Parlour, form: Form, *, address: str = "127.0.0.1:4000") -> None:
        self.parlour, self.form = parlour, form
        self.service = Service(parlour.broker, address=address, client=IPV4)
        self.client = Connection(Role.CLIENT, form=form)
        self.replies: deque[Reply] = deque()
        self.number = 0
        parlour.guests[self.service] = self

    # ---- the wire

    def bytes_of(self, command: Command, *, quality: int = 1) -> bytes:
        self.number += 1
        return flat(self.client.send(Call(command, self.number, 1000 + self.number, quality)))

    def say(self, *said: bytes | Command) -> list[Reply]:
        """Bytes that arrive in one read; what is answered to them in the same turn."""
        data = b"".join(each if isinstance(each, bytes) else self.bytes_of(each) for each in said)
        self.hear(self.service.receive(memoryview(data), self.parlour.now_ms))
        self.parlour.round()
        return self.heard()

    def hear(self, pieces: list[Piece]) -> None:
        for reply in self.client.receive(flat(pieces)):
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
        assert isinstance(placed.result, list)
        return [each.index + at for each in placed.result for at in range(each.count)]

    def fetch_command(self, topic: str, *, count: int = 0, poll_ms: int = 0, app: str = "shop") -> Command:
        wish = commands.TopicWish(topic=topic, count=count)
        return commands.FetchTopicMessage(topics=[wish], app=app, ack_timeout=0, long_poll_timeout=poll_ms)

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
        from tests.doors.jmq.kit import messages_of

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
