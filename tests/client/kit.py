"""A server's end of a connection without a socket, for what a real server seldom says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from serai._core.frames import Run
from serai.client.line import Address, Dial, Line, Nap, Who
from serai.doors.jmq.connection import Answer, Connection, Declined, Request, Role, RunAnswer
from serai.doors.jmq.schema import commands
from serai.errors import SeraiError
from serai.wire.buffer import flat

if TYPE_CHECKING:
    from serai.client.line import Step
    from serai.client.link import Link
    from serai.client.outgoing import Outgoing

T = TypeVar("T")
Said = "Layout | int | None"
Handler = Callable[[Request | Run], "Answer | RunAnswer | Declined | None"]
HERE = Address("here", 1)


class Peer:
    """Answers what a client asks: the handshake by itself, the rest as `handle` says; None is no answer at all."""

    def __init__(self, handle: Handler, *, notification: str = "", partitions: int = 1, leader: Address = HERE) -> None:
        self.handle = handle
        self.notification = notification
        self.partitions = partitions
        self.leader = leader
        self.asked: list[str] = []
        self.dialled: list[Address] = []
        self.naps: list[float] = []
        self.link: Link | None = None
        self.refuses: SeraiError | None = None
        self._end = Connection(Role.SERVER)

    def run(self, step: Step[T]) -> T:
        """Do a step; time does not go by in naps."""
        try:
            wish = next(step)
            while True:
                if isinstance(wish, Nap):
                    self.naps.append(wish.seconds)
                    if self.link is not None:
                        self.turn()
                elif isinstance(wish, Dial):
                    self.dialled.append(wish.address)
                    if self.refuses is not None:
                        wish = step.throw(self.refuses)
                        continue
                    self.link, self._end = wish.link, Connection(Role.SERVER)
                else:
                    self.turn()
                    if not wish.done:
                        assert self.link is not None
                        self.link.expire(float("inf"))
                wish = next(step)
        except StopIteration as end:
            found: T = end.value
            return found

    def turn(self) -> None:
        """What was sent is handled, and answered."""
        link = self.link
        assert link is not None
        out, link.out = link.out, []
        if not out:
            return
        for item in self._end.receive(flat(out)):
            said = self._answer(item) if isinstance(item, Request) else self.handle(item)  # type: ignore[arg-type]  # a run
            if said is not None and link.fault is None:
                link.receive(flat(self._end.send(said)))

    def _answer(self, request: Request) -> Answer | RunAnswer | Declined | None:
        self.asked.append(type(request.command).__name__)
        match request.command:
            case commands.AddConnection():
                return Answer(
                    request.head, commands.AddConnectionAck(connection_id="1", notification=self.notification)
                )
            case commands.FetchCluster(topics=topics):
                return Answer(request.head, self._cluster(topics))
            case commands.AddProducer() | commands.AddConsumer() as command:
                return Answer(request.head, type(command).reply(**_ids(command)))  # type: ignore[misc]  # both have one
            case _:
                return self.handle(request)

    def _cluster(self, topics: list[str]) -> commands.FetchClusterAck:
        groups = [commands.PartitionGroup(id=each, leader=1, partitions=[each]) for each in range(self.partitions)]
        return commands.FetchClusterAck(
            topics=[
                commands.ClusterTopic(
                    topic_code=topic, producer_policy=None, consumer_policy=None, type=0, partition_groups=groups, code=0
                )
                for topic in topics
            ],
            brokers=[
                commands.Broker(
                    id=1, host=self.leader.host, port=self.leader.port, data_center="", nearby=False, weight=1
                )
            ],
        )  # fmt: skip


def _ids(command: commands.AddProducer | commands.AddConsumer) -> dict[str, object]:
    if isinstance(command, commands.AddProducer):
        return {"producer_ids": [commands.ProducerId(topic=each, producer_id="p") for each in command.topics]}
    return {"consumer_ids": [commands.ConsumerId(topic=each, consumer_id="c") for each in command.topics]}


def line_of(register: commands.Command | None = None) -> Line:
    """A line to the peer, for topic `t`."""
    return Line(HERE, Who("app"), topics=["t"], app="app", register=register)


def soon() -> float:
    """A deadline that is far enough."""
    return time.monotonic() + 30.0


def push(peer: Peer, out: Outgoing) -> None:
    """Send what is gathered, and have it answered."""
    out.close_all()
    peer.run(out.push())
    peer.turn()
