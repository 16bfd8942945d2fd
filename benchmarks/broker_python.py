"""Clients in Python beside each other: lists of 1000 in, lists out with acknowledgement, 100 B.

    serai       `send_many` with a list of 1000 bodies, level receive; `fetch_many`, the list of all bodies, `ack`
                (`serai, packed`: the bodies as one stretch of bytes, which is what goes to Arrow)
    redis-py    a pipeline of 1000 XADD, with hiredis; XREADGROUP of 1000, XACK of them all
    nats-py     `publish_async`, 1000 unanswered at most; a pull of 1000, acknowledged at once

- The clock stops when everything is answered.  Streams are filled by the loader in C before it starts.
- All bodies are one and the same object; what comes out are `bytes`, a fresh one for each message.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.broker_load import Figure
from benchmarks.broker_own import Serai
from benchmarks.broker_peers import Nats, Peer, Redis, body_of
from benchmarks.broker_rounds import Bench
from benchmarks.broker_servers import NotThere
from serai.doors.jmq.schema.frame import HOUSE

__all__ = ["CONSUME", "PACKED", "PRODUCE", "clients"]

PRODUCE = "Python client, lists of 1000, 100 B"
CONSUME = "Python client, consume and ack, 100 B"
PACKED = "serai, packed"
LIST = 1000
BODY = body_of(100)


def clients(bench: Bench) -> None:
    """Everybody in every round."""
    for _ in bench.turns():
        bench.with_peer(Serai, lambda peer: serai_turns(bench, peer))
        bench.with_peer(Redis, lambda peer: redis_turns(bench, peer))
        bench.with_peer(Nats, lambda peer: nats_turns(bench, peer))


def timed(peer: Peer, count: int, work: Callable[[], object]) -> Figure:
    """Messages a second, and the server's CPU for each."""
    gc.collect()
    gc.disable()
    try:
        before, begun = peer.server.cpu_ns(), time.perf_counter()
        work()
        seconds = time.perf_counter() - begun
        return Figure(count / seconds, "msg/s", (peer.server.cpu_ns() - before) / count / 1e3)
    finally:
        gc.enable()


def module(name: str) -> Any:
    """A client's library, or NotThere."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotThere(f"{name} is not installed: make bench-broker does it") from error


# ---------------------------------------------------------------------------------------------- serai


def serai_turns(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Serai)
    import serai

    address = f"127.0.0.1:{peer.server.port}"
    count = bench.count(2_000_000) // LIST * LIST or LIST

    def produce() -> Figure:
        with serai.Client(address) as client, client.producer(peer.topic(), level="receive") as producer:
            values = [BODY] * LIST

            def work() -> None:
                for _ in range(count // LIST):
                    producer.send_many(values)
                producer.flush()

            return timed(peer, count, work)

    def consume(*, packed: bool) -> Figure:
        peer.fill(bench.loader, BODY, count, HOUSE)
        with serai.Client(address) as client, client.consumer(f"t{peer.made}", group="serai") as consumer:
            consumer.seek("start")

            def work() -> None:
                left = count
                while left > 0:
                    delivery = consumer.fetch_many(10_000, timeout=10)
                    if delivery is None:
                        raise RuntimeError(f"{left} of {count} messages did not come")
                    left -= len(delivery.packed()[1]) // 4 - 1 if packed else len(delivery.values)
                    delivery.ack()
                consumer.flush()

            return timed(peer, count, work)

    bench.take_turn(PRODUCE, "serai", produce)
    bench.take_turn(CONSUME, "serai", partial(consume, packed=False))
    bench.take_turn(CONSUME, PACKED, partial(consume, packed=True))


# ---------------------------------------------------------------------------------------------- redis-py


def redis_turns(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Redis)
    connection = module("redis").Redis(port=peer.server.port)
    count = max(LIST, bench.count(100_000) // LIST * LIST)

    def produce() -> Figure:
        stream = peer.stream()

        def work() -> None:
            for _ in range(count // LIST):
                pipeline = connection.pipeline(transaction=False)
                for _ in range(LIST):
                    pipeline.execute_command("XADD", stream, "*", "d", BODY)
                pipeline.execute()

        return timed(peer, count, work)

    def consume() -> Figure:
        stream = peer.fill(bench.loader, BODY, count)

        def work() -> None:
            left = count
            while left > 0:
                found = connection.xreadgroup("g", "c", {stream: ">"}, count=LIST)[0][1]
                left -= len(found)
                connection.xack(stream, "g", *[identity for identity, _ in found])

        return timed(peer, count, work)

    bench.take_turn(PRODUCE, "redis-py", produce)
    bench.take_turn(CONSUME, "redis-py", consume)
    connection.close()


# ---------------------------------------------------------------------------------------------- nats-py


def nats_turns(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Nats)
    bench.take_turn(PRODUCE, "nats-py", lambda: asyncio.run(nats_produce(bench, peer)))
    bench.take_turn(CONSUME, "nats-py", lambda: asyncio.run(nats_consume(bench, peer)))


async def nats_produce(bench: Bench, peer: Nats) -> Figure:
    count, subject = bench.count(40_000), peer.stream().lower()
    connection = await module("nats").connect(f"nats://127.0.0.1:{peer.server.port}")
    stream = connection.jetstream(publish_async_max_pending=LIST)
    before, begun = peer.server.cpu_ns(), time.perf_counter()
    for _ in range(count):
        await stream.publish_async(subject, BODY)
    await stream.publish_async_completed()
    seconds = time.perf_counter() - begun
    cpu_us = (peer.server.cpu_ns() - before) / count / 1e3
    await connection.close()
    return Figure(count / seconds, "msg/s", cpu_us)


async def nats_consume(bench: Bench, peer: Nats) -> Figure:
    count = bench.count(40_000)
    bench.loader.load(peer.server.port, peer.produce(BODY, 200), total=count, window=4000)
    name = f"S{peer.made}"
    api = module("nats.js").api
    connection = await module("nats").connect(f"nats://127.0.0.1:{peer.server.port}")
    settings = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL, max_ack_pending=100_000)
    pull = await connection.jetstream().pull_subscribe(name.lower(), durable="c", stream=name, config=settings)
    before, begun, left = peer.server.cpu_ns(), time.perf_counter(), count
    while left > 0:
        found = await pull.fetch(LIST, timeout=5)
        left -= len(found)
        await found[-1].ack()
    await connection.flush()
    seconds = time.perf_counter() - begun
    cpu_us = (peer.server.cpu_ns() - before) / count / 1e3
    await connection.close()
    return Figure(count / seconds, "msg/s", cpu_us)
