"""kill -9 of a server under load, again and again: what clients were promised holds, says the history checker.

A producer at level `receive`, one at `commit` and a consumer that acknowledges run through all the kills; they come back
by themselves.  What they saw is a history, and `serai.client.history` is the judge, whose own tests show that it can convict.
"""

from __future__ import annotations

import io
import threading
import time
import zlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from serai.client.history import Recorder, check
from serai.client.sync import Client, Consumer, Producer, Sent
from serai.errors import OutcomeUnknown, SeraiError
from tests.gate.kit import Running, free_port

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "judge"
WINDOW = 64  # messages of a producer on their way
STEP = 10  # messages of each producer that are stored between two kills, at least
PAUSE_S = 0.002  # between messages, so that a history stays small


class Load:
    """Two producers and a consumer, and what they saw."""

    def __init__(self, port: int) -> None:
        self.file = io.StringIO()
        self.recorder = Recorder(self.file)
        self.stop = threading.Event()
        self.drained = threading.Event()
        self.stored = dict.fromkeys(("receive", "commit"), 0)
        self.faults: list[BaseException] = []
        self.client = Client(f"127.0.0.1:{port}", app=GROUP)
        self.producers = {
            level: self.client.producer("t", level=level, linger_s=0.001) for level in ("receive", "commit")
        }
        self.consumer = self.client.consumer("t", group=GROUP)
        self.threads = [
            *(threading.Thread(target=self.guarded, args=(self.produce, level, each)) for level, each in self.producers.items()),
            threading.Thread(target=self.guarded, args=(self.consume, self.consumer)),
        ]  # fmt: skip
        for thread in self.threads:
            thread.start()

    def guarded(self, work: object, *words: object) -> None:
        try:
            work(*words)  # type: ignore[operator]  # one of the two methods below
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
            self.faults.append(error)
            self.stop.set()

    def produce(self, who: str, producer: Producer) -> None:
        """Numbered messages until the end, a window of them on their way."""
        waiting: list[tuple[int, Sent]] = []
        number = 0
        random = Random(who)
        while not self.stop.is_set() or waiting:
            if not self.stop.is_set():
                body = b"%s %d " % (who.encode(), number) + random.randbytes(random.randrange(200))
                self.recorder.note("send", who=who, number=number, sum=zlib.crc32(body))
                waiting.append((number, producer.send(body)))
                number += 1
                time.sleep(PAUSE_S)
            while waiting and (waiting[0][1].done() or len(waiting) >= WINDOW or self.stop.is_set()):
                self.outcome(who, *waiting.pop(0))

    def outcome(self, who: str, number: int, sent: Sent) -> None:
        try:
            position = sent.result(timeout=60)
        except OutcomeUnknown:
            self.recorder.note("unknown", who=who, number=number)
        except SeraiError:
            self.recorder.note("failed", who=who, number=number)
        else:
            self.recorder.note("stored", who=who, number=number, partition=position.partition, index=position.index)
            self.stored[who] += 1

    def consume(self, consumer: Consumer) -> None:
        """Everything, acknowledged delivery by delivery, until nothing comes any more."""
        while True:
            over = self.drained.is_set()
            delivery = consumer.fetch_many(50, timeout=0.5)
            if delivery is None:
                if over:
                    self.recorder.note("end", group=GROUP)
                    return
                continue
            for message in delivery:
                who, number, _ = message.value.split(b" ", 2)
                self.recorder.note(
                    "received", group=GROUP, who=who.decode(), number=int(number), sum=zlib.crc32(message.value),
                    partition=message.partition, index=message.index,
                )  # fmt: skip
            delivery.ack()
            consumer.flush()
            self.recorder.note(
                "done", group=GROUP, partition=delivery.partition, index=delivery.index, count=delivery.count
            )

    def go_on(self) -> None:
        """Wait until both producers have come back and stored something."""
        before, until_s = dict(self.stored), time.monotonic() + 30
        while any(self.stored[who] < before[who] + STEP for who in before) and not self.faults:
            assert time.monotonic() < until_s, f"nothing was stored in 30 s: {before}, {self.stored}"
            time.sleep(0.005)

    def finish(self) -> None:
        self.stop.set()
        for thread in self.threads[:2]:
            thread.join(90)
        self.drained.set()
        self.threads[2].join(90)
        self.client.close()
        if self.faults:
            raise self.faults[0]
        assert not any(thread.is_alive() for thread in self.threads)


def killed(data: Path, *, times: int) -> None:
    """Load through so many kills; the history must be without fault, and not empty."""
    random = Random(times)
    with Running(data, flags=("--port", str(free_port()))) as server:
        load = Load(server.port)
        try:
            for _ in range(times):
                load.go_on()
                time.sleep(random.uniform(0.0, 0.2))
                server.kill()
                server.start()
            load.go_on()
        finally:
            load.finish()
    seen = check(io.StringIO(load.file.getvalue()))
    assert seen.findings == []
    stored, received = len(seen.stored), len(seen.received[GROUP])
    print(f"{times} kills: {len(seen.sums)} sent, {stored} stored, {seen.unknown} unknown, {received} received")
    assert stored >= 2 * STEP * times
    assert {name.who for name in seen.stored} == {"receive", "commit"}
    assert set(seen.stored) <= set(seen.received[GROUP])


def test_nothing_acknowledged_is_lost_doubled_moved_or_altered_by_ten_kills(tmp_path: Path) -> None:
    killed(tmp_path / "data", times=10)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_doubled_moved_or_altered_by_sixty_kills(tmp_path: Path) -> None:
    killed(tmp_path / "data", times=60)
