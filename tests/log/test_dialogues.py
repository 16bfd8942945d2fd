"""What the running Jafka broker was told and answered, played over partitions: the same sets taken, the same bytes given.

Produce requests go in as they are, and a fetch at any place and length must give what the broker gave.  What belongs to a door is
left to it: topics that do not exist, framing, silence and closing, and that a set is stored up to a torn tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from serai._core.messages import census
from serai.errors import BadMessages, OutOfRange
from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.core.dressing import LIMITS, vectors
from tests.oracle import messages as oracle
from tests.oracle.messages import JAFKA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from serai.log.partition import Partition

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE = range(4)
CASES = ["produce-fetch-offsets", "reject", "accept-odd", "unicode-topic", "multi"]


class Ask(NamedTuple):
    """One part of a request: a set for a partition, or a place and a length of it."""

    topic: bytes
    partition: int
    data: bytes = b""
    place: int = 0
    bytes_max: int = 0


def asked(frame: bytes) -> tuple[int, list[Ask]]:
    """Its kind and its parts; none where the frame is no request for messages."""
    reader = oracle.Reader(frame, 4)
    kind = reader.number(">h")
    if kind > MULTI_PRODUCE:
        return kind, []
    parts = 1 if kind in (PRODUCE, FETCH) else reader.number(">h")
    found = []
    for _ in range(parts):
        topic, partition = reader.sized(">h"), reader.number(">i")
        if kind in (PRODUCE, MULTI_PRODUCE):
            found.append(Ask(topic, partition, data=reader.sized(">i")))
        else:
            found.append(Ask(topic, partition, place=reader.number(">q"), bytes_max=reader.number(">i")))
    return kind, found


def answers(frame: bytes, *, multi: bool) -> Iterator[tuple[int, bytes]]:
    """Error and bytes of each part of an answer."""
    reader = oracle.Reader(frame, 6 if multi else 0)
    while reader.rest:
        size = reader.number(">i")
        yield reader.number(">h"), reader.take(size - 2)


class Broker:
    """Partitions by topic and number, made by the first set that is taken."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.logs: dict[tuple[bytes, int], Partition] = {}
        self.stored = self.fetched = self.refused = 0

    def produce(self, ask: Ask, *, taken: bool) -> None:
        try:
            whole = ask.data[: census(ask.data, JAFKA, **LIMITS).size]
        except ValueError:
            whole = ask.data
        if not whole:  # an empty set, or one that is a torn tail alone
            return
        name = (ask.topic, ask.partition)
        log = self.logs.get(name) or self.engine.open(f"{ask.topic.hex()}-{ask.partition}")
        if taken:
            log.append(whole, JAFKA, level=Level.RECEIVE, now_ms=1)
            self.logs[name] = log
            self.stored += 1
        else:
            with pytest.raises(BadMessages, match="nothing of these messages was stored"):
                log.append(whole, JAFKA, level=Level.RECEIVE, now_ms=1)
            self.refused += 1

    def fetch(self, ask: Ask, error: int, data: bytes) -> None:
        log = self.logs.get((ask.topic, ask.partition))
        if log is None:
            assert not data
            return
        log.commit()
        if error == 1:
            with pytest.raises(OutOfRange):
                log.spans_at_place(ask.place, bytes_max=ask.bytes_max)
        elif error == 0:
            assert b"".join(log.spans_at_place(ask.place, bytes_max=ask.bytes_max)) == data
        self.fetched += 1


def play(broker: Broker, step: dict[str, Any]) -> None:
    kind, asks = asked(bytes.fromhex(step["send_hex"]))
    if kind in (PRODUCE, MULTI_PRODUCE):
        for number, ask in enumerate(asks):  # a wrong part ends its request; those before it are kept
            broken = step["expect"] == "closed" and number == len(asks) // 2  # the second of three, or the only one
            broker.produce(ask, taken=not broken)
            if broken:
                return
    elif asks and step["expect"] == "response":
        parts = answers(bytes.fromhex(step["response_hex"]), multi=kind == MULTI_FETCH)
        for ask, (error, data) in zip(asks, parts, strict=True):
            broker.fetch(ask, error, data)


def test_partitions_answer_as_the_running_broker_did(tmp_path: Path) -> None:
    played = [case for case in vectors("jafka/dialogues.json") if case["name"] in CASES]
    assert [case["name"] for case in played] == CASES
    with LocalEngine(tmp_path / "data", page_bytes=4096) as engine:
        broker = Broker(engine)
        for case in played:
            for step in case["steps"]:
                if step.get("send_hex"):
                    play(broker, step)
        assert (broker.stored, broker.refused, broker.fetched) == (13, 9, 20)
        print(f"\n{broker.stored} sets stored, {broker.refused} refused, {broker.fetched} fetches compared")
