"""From the moment a message was due to be sent until another process holds it, through a broker.

    sender     at 1,000 or 10,000 messages a second, each stamped with the moment it was DUE: a sender that is held up
               counts against the broker, not for it
    receiver   another process, which waits at the broker (long poll, blocking read, push) and reads the clock

- Both speak bare bytes over a socket, so that no client library is measured; ZeroMQ, which has no broker, uses its own.
- Brokers store each message and answer each request; serai's receiver acknowledges what it got as it asks for more.
- The sender sleeps with a timer slack of a microsecond (Linux's default is fifty).
- Each quantile is that of its quietest round.

The step: one producer sends 128 KiB, waits for the answer, and sends again, over ten rolls of a page of the default size.
What a request at a roll takes beyond the median is the step; of all rolls in a round the largest counts.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from benchmarks.broker_idle import read_exactly
from benchmarks.broker_load import Figure
from benchmarks.broker_own import APP, MARKED, Serai, Speech
from benchmarks.broker_peers import MARK, NATS_HELLO, Nats, Peer, Redis, body_of, resp
from benchmarks.broker_rounds import Bench
from benchmarks.broker_servers import connected, free_port
from serai.doors.jmq.schema.commands import (
    Acknowledged,
    CommitAck,
    FetchTopicMessage,
    PartitionAcks,
    TopicAcks,
    TopicWish,
)
from serai.doors.jmq.schema.frame import HOUSE
from serai.limits import LOG_PAGE_BYTES_DEFAULT

__all__ = ["RATES", "STEP", "latency", "measure_of"]

RATES = (1000, 10_000)
SECONDS = 2.0
SIZE = 100
STEP = "step at a page roll"
STEP_BYTES = 128 << 10
ROLLS = 10
PR_SET_TIMERSLACK = 29
clock_ns = time.monotonic_ns

Send = Callable[[list[bytes]], None]
Receive = Callable[[Pipe, int], list[float]]


def measure_of(rate: int, quantile: str) -> str:
    return f"latency {quantile}, {rate:,} msg/s"


def latency(bench: Bench) -> None:
    """All contestants in every round, then the step."""
    for _ in bench.turns():
        bench.with_peer(Serai, lambda peer: at_rates(bench, peer, serai_ways))
        bench.with_peer(Redis, lambda peer: at_rates(bench, peer, redis_ways))
        bench.with_peer(Nats, lambda peer: at_rates(bench, peer, nats_ways))
        for rate in RATES:
            note(bench, rate, "ZeroMQ", zeromq_ways)
        bench.with_peer(Serai, lambda peer: step(bench, peer))


def at_rates(bench: Bench, peer: Peer, ways: Callable[[Any], tuple[Receive, Callable[[], Send]]]) -> None:
    for rate in RATES:
        note(bench, rate, peer.name, lambda: ways(peer))


def note(bench: Bench, rate: int, name: str, ways: Callable[[], tuple[Receive, Callable[[], Send]]]) -> None:
    """One run as three figures; what fails is noted and missing."""
    try:
        receive, sender = ways()
        taken = sorted(run(receive, sender, rate, int(rate * max(0.2, SECONDS * min(1.0, bench.scale)))))
    except (RuntimeError, OSError, ImportError) as error:
        bench.sheet.note(f"latency, {name}: FAILED: {error}")
        return
    for word, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        bench.sheet.add(measure_of(rate, word), name, Figure(taken[int(part * (len(taken) - 1))] * 1e6, "us"))


# ---------------------------------------------------------------------------------------------- sender and receiver


def run(receive: Receive, sender: Callable[[], Send], rate: int, count: int) -> list[float]:
    """Send from this process, receive in a forked one; seconds of every message."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=receiving, args=(receive, theirs, count))
    process.start()
    theirs.close()
    try:
        told(ours, 20)
        open_loop(sender(), rate, count)
        found: list[float] = told(ours, 30)
        return found
    finally:
        process.join(2)
        if process.is_alive():
            process.kill()
        process.join()


def told(pipe: Pipe, seconds: float) -> Any:
    """What the receiver says: "ready", then its times."""
    if not pipe.poll(seconds):
        raise RuntimeError("the receiver did not answer in time")
    try:
        word = pipe.recv()
    except EOFError:
        raise RuntimeError("the receiver failed") from None
    if isinstance(word, str) and word != "ready":
        raise RuntimeError(word)
    return word


def receiving(receive: Receive, pipe: Pipe, count: int) -> None:
    """The other process."""
    try:
        pipe.send(receive(pipe, count))
    except (OSError, RuntimeError, ImportError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
    os._exit(0)


def open_loop(send: Send, rate: int, count: int) -> None:
    """Send at the rate, whatever comes back."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
    step, start, sent = 1_000_000_000 // rate, clock_ns() + 50_000_000, 0
    while sent < count:
        now = clock_ns()
        due = start + sent * step
        if due > now:
            time.sleep((due - now) / 1e9)
            now = clock_ns()
        many = min(count, (now - start) // step + 1) - sent
        if many > 0:
            send([MARK + b"%016d" % (start + each * step) for each in range(sent, sent + many)])
            sent += many


def stamps_in(data: bytes, found: list[float]) -> bytes:
    """Note every stamp in the data; what is left without its end."""
    now, at = clock_ns(), 0
    while True:
        mark = data.find(MARK, at)
        if mark < 0:
            return data[max(at, len(data) - 3) :]
        if len(data) < mark + 20:
            return data[mark:]
        found.append((now - int(data[mark + 4 : mark + 20])) / 1e9)
        at = mark + 20


def drop(sock: Any) -> None:
    """Take answers that are there, and forget them."""
    with contextlib.suppress(BlockingIOError):
        sock.recv(1 << 16, 0x40)  # MSG_DONTWAIT


# ---------------------------------------------------------------------------------------------- the contestants


def serai_ways(peer: Serai) -> tuple[Receive, Callable[[], Send]]:
    """A consumer in a long poll, which acknowledges and asks again in one go."""
    topic, port, speech = peer.topic(), peer.server.port, Speech(HOUSE)
    wish = FetchTopicMessage(
        topics=[TopicWish(topic=topic, count=1000)], app=APP, ack_timeout=30_000, long_poll_timeout=20_000
    )
    taken = Acknowledged(partition=0, index=MARKED, type=0, count=1)
    acks = TopicAcks(topic=topic, partitions=[PartitionAcks(partition=0, data=[taken])])
    ask, ack = speech.say(wish, 2), bytearray(speech.say(CommitAck(topics=[acks], app=APP), 3))
    place = ack.index(MARKED.to_bytes(8, "big"))
    where = 26 + 2 + 2 + len(topic.encode()) + 2  # of the answer: behind head, count of topics, topic, partition

    def receive(pipe: Pipe, count: int) -> list[float]:
        sock = connected(port, 25)
        sock.sendall(speech.setup(topic) + ask)
        for _ in range(3):
            read_exactly(sock, int.from_bytes(read_exactly(sock, 4), "big") - 4)
        time.sleep(0.1)
        pipe.send("ready")
        found: list[float] = []
        data = b""
        while len(found) < count:
            data += sock.recv(1 << 20)
            while len(data) >= 4 and len(data) >= (length := int.from_bytes(data[:4], "big")):
                frame, data = data[:length], data[length:]
                if frame[14] != 256 - 30:
                    continue
                stamps_in(frame, found)
                index, _, delivered = struct.unpack_from(">qii", frame, where)
                struct.pack_into(">qbi", ack, place, index, 0, delivered)
                sock.sendall(bytes(ack) + ask)
        return found

    def sender() -> Send:
        sock, body = connected(port), body_of(SIZE)
        sock.sendall(speech.setup(topic))
        before, _, behind = speech.produce(topic, speech.messages(body, 1), level="receive").partition(body[:20])

        def send(stamps: list[bytes]) -> None:
            sock.sendall(b"".join(before + stamp + behind for stamp in stamps))
            drop(sock)

        return send

    return receive, sender


def redis_ways(peer: Redis) -> tuple[Receive, Callable[[], Send]]:
    """A group that is never acknowledged, in a blocking read."""
    stream, port = peer.stream(), peer.server.port
    with connected(port) as sock:
        sock.sendall(resp("XGROUP", "CREATE", stream, "g", "$", "MKSTREAM"))
        sock.recv(64)
    ask = resp("XREADGROUP", "GROUP", "g", "c", "COUNT", 1000, "BLOCK", 0, "NOACK", "STREAMS", stream, ">")

    def receive(pipe: Pipe, count: int) -> list[float]:
        sock = connected(port, 25)
        sock.sendall(ask)
        time.sleep(0.1)
        pipe.send("ready")
        found: list[float] = []
        tail = b""
        while len(found) < count:
            data = sock.recv(1 << 20)
            tail = stamps_in(tail + data, found)
            if data.endswith(b"\r\n"):
                sock.sendall(ask)
        return found

    def sender() -> Send:
        sock, rest = connected(port), body_of(SIZE)[20:] + b"\r\n"
        head = resp("XADD", stream, "*", "d", b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n" % SIZE

        def send(stamps: list[bytes]) -> None:
            sock.sendall(b"".join(head + stamp + rest for stamp in stamps))
            drop(sock)

        return send

    return receive, sender


def nats_ways(peer: Nats) -> tuple[Receive, Callable[[], Send]]:
    """A push consumer without acknowledgement."""
    name, port = peer.stream(), peer.server.port
    subject = name.lower().encode()
    settings = {"durable_name": "c", "deliver_subject": f"d{peer.made}", "ack_policy": "none", "deliver_policy": "all"}
    peer.ask(f"CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": settings})
    hello = NATS_HELLO + b"SUB d%d 1\r\nPING\r\n" % peer.made

    def receive(pipe: Pipe, count: int) -> list[float]:
        sock = connected(port, 25)
        sock.sendall(hello)
        time.sleep(0.3)
        pipe.send("ready")
        found: list[float] = []
        tail = b""
        while len(found) < count:
            tail = stamps_in(tail + sock.recv(1 << 16), found)
        return found

    def sender() -> Send:
        sock, rest = connected(port), body_of(SIZE)[20:] + b"\r\n"
        sock.sendall(NATS_HELLO + b"SUB _I.l 1\r\n")
        head = b"PUB %s _I.l %d\r\n" % (subject, SIZE)

        def send(stamps: list[bytes]) -> None:
            sock.sendall(b"".join(head + stamp + rest for stamp in stamps))
            drop(sock)

        return send

    return receive, sender


def zeromq_ways() -> tuple[Receive, Callable[[], Send]]:
    """PUSH to PULL: no broker, nothing stored."""
    zmq: Any = importlib.import_module("zmq")
    address = f"tcp://127.0.0.1:{free_port()}"

    def receive(pipe: Pipe, count: int) -> list[float]:
        sock = zmq.Context().socket(zmq.PULL)
        sock.setsockopt(zmq.RCVTIMEO, 25_000)
        sock.bind(address)
        pipe.send("ready")
        found: list[float] = []
        while len(found) < count:
            stamps_in(sock.recv(), found)
        return found

    def sender() -> Send:
        sock, rest = zmq.Context().socket(zmq.PUSH), body_of(SIZE)[20:]
        sock.connect(address)

        def send(stamps: list[bytes]) -> None:
            for stamp in stamps:
                sock.send(stamp + rest)

        return send

    return receive, sender


# ---------------------------------------------------------------------------------------------- the step


def step(bench: Bench, peer: Peer) -> None:
    """What a roll of a page costs the one request that meets it."""
    assert isinstance(peer, Serai)
    per_request = STEP_BYTES // (16 + 1024)
    stored = per_request * (16 + 1024)
    rolls = max(2, int(ROLLS * min(1.0, bench.scale)))
    requests = int((rolls + 0.5) * LOG_PAGE_BYTES_DEFAULT / stored)
    path = bench.directory / "times"
    script = peer.produce(body_of(1024), per_request)
    try:
        bench.loader.load(peer.server.port, script, total=requests * per_request, window=1, times=path)
    except RuntimeError as error:
        bench.sheet.note(f"{STEP}: FAILED: {error}")
        return
    taken = array.array("d")
    taken.frombytes(path.read_bytes())
    usual = sorted(taken)[len(taken) // 2]
    steps = []
    for roll in range(1, rolls + 1):
        at = roll * LOG_PAGE_BYTES_DEFAULT // stored
        steps.append(
            max(taken[max(0, at - 4 - roll) : at + 4]) - usual
        )  # heads of records make a page a little shorter
    more = {"usual_us": usual * 1e6, "median_step_us": sorted(steps)[len(steps) // 2] * 1e6}
    bench.sheet.add(STEP, "serai", Figure(max(steps) * 1e6, "us", more=more))
