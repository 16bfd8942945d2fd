"""What the server takes while nothing happens: to start, in memory, with many topics, with many guests.

- The start is from the call that makes the process to the word "ready", less what the interpreter itself takes.
- Memory is anonymous memory (`Process.anonymous_bytes`), read when the server has been quiet for a while.
- Ten thousand topics are made through the port, each with a producer and a subscription; then the server is ended with
  SIGTERM and started over the same directory.
- A thousand guests have said who they are, and say nothing more.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import socket
import time

from benchmarks.broker_load import Figure
from benchmarks.broker_own import APP, Serai, Speech
from benchmarks.broker_rounds import Bench
from benchmarks.broker_servers import connected, interpreter_seconds
from serai.doors.jmq.schema.commands import AddConsumer, AddProducer
from serai.doors.jmq.schema.frame import HOUSE

__all__ = ["GUESTS", "IDLE", "START", "TOPICS", "idle"]

START = "start, beyond the interpreter's own"
IDLE = "idle, anonymous memory"
TOPICS = "10,000 idle topics"
GUESTS = "1,000 idle connections, memory of each"
QUIET_S = 1.5
AT_ONCE = 500  # topics of one request


def idle(bench: Bench) -> None:
    """Each of them in every round."""
    topics = max(1000, int(10_000 * min(1.0, bench.scale)))
    try:
        for _ in bench.turns():
            bench.with_peer(Serai, lambda peer: quiet(bench, peer))
        for _ in bench.turns(2):
            many_topics(bench, topics)
    except (RuntimeError, OSError) as error:
        bench.sheet.note(f"idle: FAILED: {error}")


def quiet(bench: Bench, peer: object) -> None:
    """Start, memory, guests."""
    assert isinstance(peer, Serai)
    own = min(interpreter_seconds() for _ in range(3))
    bench.sheet.add(START, "serai", Figure(peer.server.seconds_to_ready - own, "s", more={"interpreter_s": own}))
    time.sleep(QUIET_S)
    before = peer.server.anonymous_bytes()
    bench.sheet.add(IDLE, "serai", Figure(before / 2**20, "MiB"))
    hello = Speech(HOUSE).hello
    with contextlib.ExitStack() as stack:
        count = raise_limit(1000)
        for _ in range(count):
            sock = stack.enter_context(connected(peer.server.port))
            sock.sendall(hello)
            read_frames(sock, 1)
        time.sleep(QUIET_S)
        each = (peer.server.anonymous_bytes() - before) / count / 1024
    bench.sheet.add(GUESTS, "serai", Figure(each, "KiB", more={"connections": count}))


def many_topics(bench: Bench, count: int) -> None:
    """Make them, end, start again."""
    place = bench.directory / "Topics"
    first = Serai(place)
    try:
        speech = Speech(HOUSE)
        with connected(first.server.port, 60) as sock:
            sock.sendall(speech.hello)
            read_frames(sock, 1)
            for at in range(0, count, AT_ONCE):
                names = [f"topic-{each}" for each in range(at, min(count, at + AT_ONCE))]
                sock.sendall(speech.say(AddProducer(topics=names, app=APP, sequence=1)))
                sock.sendall(speech.say(AddConsumer(topics=names, app=APP, sequence=2)))
                read_frames(sock, 2)
        first.server.stop()
        again = first.server = first.start()
        time.sleep(QUIET_S)
        more = {"topics": float(count)}
        bench.sheet.add(f"{TOPICS}, start", "serai", Figure(again.seconds_to_ready, "s", more=more))
        bench.sheet.add(
            f"{TOPICS}, anonymous memory", "serai", Figure(again.anonymous_bytes() / 2**20, "MiB", more=more)
        )
    finally:
        first.stop()
        shutil.rmtree(place, ignore_errors=True)


def read_frames(sock: socket.socket, count: int) -> None:
    """So many answers of JMQ, each of which must have status 0."""
    for _ in range(count):
        head = read_exactly(sock, 4)
        frame = head + read_exactly(sock, int.from_bytes(head, "big") - 4)
        if frame[23]:
            words = frame[26 : 26 + int.from_bytes(frame[24:26], "big")]
            raise RuntimeError(f"status {frame[23]}: {words.decode()}")


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    found = bytearray()
    while len(found) < size:
        more = sock.recv(size - len(found))
        if not more:
            raise RuntimeError(f"the server closed the connection where {size - len(found)} bytes were missing")
        found += more
    return bytes(found)


def raise_limit(wanted: int) -> int:
    """How many connections this process may open, `wanted` at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, wanted + 100)), hard))
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100)
