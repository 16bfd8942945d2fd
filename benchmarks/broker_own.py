"""serai as a contestant: its server as a user starts it, spoken to in JMQ frames that its own door encoded.

- Three dialects of one protocol: house (serai's own client), seed and real (JMQ's).  The C loader checks every answer.
- The server runs with its defaults, but for its port and its directory; each request names the level it waits for.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.broker_load import Loader, Script
from benchmarks.broker_peers import Peer
from benchmarks.broker_servers import Process
from serai._core.dress import redress
from serai.doors.jmq.connection import Call, Connection, Role
from serai.doors.jmq.schema.commands import (
    AddConnection,
    AddConsumer,
    AddProducer,
    Command,
    CommitAck,
    FetchPartitionMessage,
    FetchTopicMessage,
    PartitionWish,
    PartitionWishes,
    Produced,
    ProduceMessage,
)
from serai.doors.jmq.schema.frame import DRESSES, HOUSE, REAL, SEED
from serai.doors.jmq.schema.numbers import COMMIT, LEVELS, RECEIVE
from serai.wire.buffer import Span, flat
from serai.wire.layout import Form
from serai.wire.sets import Messages

__all__ = ["APP", "FORMS", "Serai", "Speech", "fetch_count"]

APP = "bench"
FORMS = {"serai": HOUSE, "serai, seed layout": SEED, "serai, real layout": REAL}
LEVEL = {"receive": RECEIVE, "commit": COMMIT}
NOW_MS = 1_700_000_000_000
ANSWER_BYTES = 1 << 20
MARKED = 0x1122334455667788  # stands in a request where the loader puts the index
ROW_BYTES = {"house": 22, "seed": 18, "real": 18}
PER_MESSAGE = {"house": 16, "seed": 57, "real": 73}


def fetch_count(dialect: str, body_bytes: int) -> int:
    """Messages of an answer of one MiB."""
    return ANSWER_BYTES // (PER_MESSAGE[dialect] + body_bytes)


class Speech:
    """One client's frames, made by the door's own client side."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._connection = Connection(Role.CLIENT, form=form)
        hello = AddConnection(
            username="", password="", app=APP, token="", region="", namespace="", version="1", ip="", time=0, sequence=1
        )
        self.hello = self.say(hello)

    def say(self, command: Command, request_id: int = 1) -> bytes:
        """A frame."""
        return flat(self._connection.send(Call(command, request_id, NOW_MS)))

    def setup(self, topic: str) -> bytes:
        """Three frames: who we are, that we produce, that we consume."""
        produces = self.say(AddProducer(topics=[topic], app=APP, sequence=1))
        return self.hello + produces + self.say(AddConsumer(topics=[topic], app=APP, sequence=2))

    def messages(self, body: bytes, count: int) -> Messages:
        """So many of the same, in the dress of the dialect."""
        raw = ((16 + len(body)).to_bytes(4, "little") + bytes(4) + NOW_MS.to_bytes(8, "little") + body) * count
        dress = DRESSES[self.form.dialect]
        if dress != DRESSES["house"]:
            raw = redress(raw, DRESSES["house"], dress, inflated_max=1 << 26, depth_max=8, bytes_max=1 << 30)
        return Messages([Span(memoryview(raw))], count, dress)

    def produce(self, topic: str, messages: Messages, *, level: str, request_id: int = 1) -> bytes:
        """A produce request for partition 0."""
        wanted = LEVEL[level]
        quality = next(number for number, stands in LEVELS[self.form.dialect].items() if stands == wanted)
        topics = [Produced(topic=topic, tx_id="", timeout=5000, qos_level=quality, partition=0, messages=messages)]
        return self.say(ProduceMessage(topics=topics, app=APP), request_id)

    def fetch(self, topic: str, *, count: int, index: int) -> bytes:
        """Messages from an index on."""
        wish = PartitionWishes(topic=topic, partitions=[PartitionWish(partition=0, count=count, index=index)])
        return self.say(FetchPartitionMessage(topics=[wish], app=APP))

    def poll(self, command: FetchTopicMessage | CommitAck, request_id: int) -> bytes:
        """A consumer's frames."""
        return self.say(command, request_id)


class Serai(Peer):
    """The server, with a fresh topic for each measure."""

    name = "serai"
    options: tuple[str, ...] = ()

    def start(self) -> Process:
        program = str(Path(sys.executable).with_name("serai"))
        command = [program, "server", "--data", str(self.directory / "data"), "--port", "0", *self.options]
        return Process(command, log=self.directory / "log", says=r"ready on \S+:(\d+)")

    def topic(self) -> str:
        self.made += 1
        return f"t{self.made}"

    def produce(
        self, body: bytes, per_request: int, *, level: str = "receive", form: Form = HOUSE, frames: int = 1
    ) -> Script:
        """A request of `frames` frames of `per_request` messages each."""
        speech, topic = Speech(form), self.topic()
        messages = speech.messages(body, per_request)
        request = b"".join(speech.produce(topic, messages, level=level, request_id=at + 1) for at in range(frames))
        return Script(
            request, per_request * frames, f"jmq:{ROW_BYTES[form.dialect]}",
            setup=speech.setup(topic), setup_answers=3, frames=frames,
        )  # fmt: skip

    def fill(self, loader: Loader, body: bytes, count: int, form: Form) -> None:
        """The newest topic, with so many messages in the dress of the dialect."""
        loader.load(self.server.port, self.produce(body, 200, form=form), total=count, window=4000)

    def fetch(self, count: int, form: Form) -> Script:
        """Messages of the newest topic, from its beginning on."""
        speech, topic = Speech(form), f"t{self.made}"
        request = speech.fetch(topic, count=count, index=MARKED)
        patch = request.index(MARKED.to_bytes(8, "big"))
        kind = "house" if form.dialect == "house" else "counted"
        return Script(request, count, f"fetch:{kind}", setup=speech.setup(topic), setup_answers=3, patch=patch)
