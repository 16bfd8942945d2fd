"""A broker over a real engine, and JMQ guests in front of it without sockets: bytes go in, the gate's turn is played here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serai.doors.jmq.service import Service
from serai.wire.buffer import flat
from tests.broker.kit import House
from tests.doors.jmq.kit import hello
from tests.doors.jmq.voice import Voice

if TYPE_CHECKING:
    from pathlib import Path

    from serai.doors.jmq.connection import Reply
    from serai.doors.jmq.schema.commands import Command
    from serai.wire.layout import Form

IPV4 = (4000).to_bytes(2, "little") + bytes((127, 0, 0, 1))


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
                guest.hear(flat(guest.service.resume(wait, self.now_ms)))
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


class Guest(Voice):
    """A client and the service behind its connection."""

    def __init__(self, parlour: Parlour, form: Form, *, address: str = "127.0.0.1:4000") -> None:
        super().__init__(form)
        self.parlour = parlour
        self.service = Service(parlour.broker, address=address, client=IPV4)
        parlour.guests[self.service] = self

    def say(self, *said: bytes | Command) -> list[Reply]:
        """Bytes that arrive in one read; what is answered to them in the same turn."""
        data = memoryview(self.joined(said))
        self.hear(flat(self.service.receive(data, self.parlour.now_ms)))
        self.parlour.round()
        return self.heard()
