"""The groups that the C loader drives: who takes a turn, with what, and how often.

    produce   100 B and 1 KiB, level receive: 200 messages a request, one a request pipelined, one at a time
    commit    100 B, answered when the disk has it: window 1000, 32 connections, one at a time
    fetch     answers of 1 MiB against XREADGROUP NOACK, and against what the loopback device carries

    round 1:  serai  Redis  NATS ...
    round 2:  serai  Redis  NATS ...             best of the rounds, for each measure and each contestant

- In every round each server is started afresh in an empty directory; RabbitMQ, which takes seconds to start, once.
- Counts are such that a turn takes a few tenths of a second; they differ from peer to peer, figures are per message.
- Memory is warmed before every turn (`queue_rounds`): or who writes first to fresh pages pays for all.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.broker_load import Figure, Loader, Script, Sheet, measured
from benchmarks.broker_own import FORMS, Serai, fetch_count
from benchmarks.broker_peers import Nats, NatsAlways, Peer, Rabbit, Redis, RedisAlways, Sink, body_of
from benchmarks.broker_servers import NotThere, Process
from benchmarks.queue_rounds import warm_memory
from serai.errors import SeraiError
from serai.wire.layout import Form

__all__ = ["Bench", "commit", "fetch", "produce"]

WINDOW = 1000
SIZES = (100, 1024)
GROUP_S = 130  # a group begins no further round after so many seconds: a busy machine gets fewer
FETCH_COUNTS = (1000, 10_000)  # Redis may choose
SINK_BYTES = 1 << 20
PRODUCED = {100: 2_000_000, 1024: 350_000}  # with all they take up, less than the memory that is warmed before a turn


@dataclass
class Bench:
    """What every group needs."""

    directory: Path
    loader: Loader
    sheet: Sheet
    rounds: int
    scale: float

    def turns(self, most: int | None = None) -> Iterator[int]:
        """The rounds of a group, one at least."""
        begun, rounds = time.monotonic(), min(self.rounds, most or self.rounds)
        for number in range(rounds):
            if number and time.monotonic() - begun > GROUP_S:
                self.sheet.note(f"the machine was busy: a group ended after {number} of {rounds} rounds")
                return
            yield number

    def count(self, full: int) -> int:
        """Messages of a turn."""
        return max(200, int(full * self.scale) // 200 * 200)

    def take_turn(self, measure: str, name: str, turn: Callable[[], Figure]) -> None:
        """One figure; what fails is noted and missing, and does not end the run."""
        warm_memory(min(1.0, self.scale))
        try:
            self.sheet.add(measure, name, turn())
        except (RuntimeError, OSError, NotThere, SeraiError) as error:
            self.sheet.note(f"{measure}, {name}: FAILED: {error}")
            print(f"  {measure}, {name}: {error}", file=sys.stderr)

    def with_peer(self, kind: type[Peer], use: Callable[[Peer], None]) -> bool:
        """Start, use, end; a peer that is not there is left out, and False."""
        place = self.directory / kind.__name__
        try:
            peer = kind(place)
        except NotThere as error:
            self.sheet.note(f"{kind.name} left out: {error}")
            return False
        try:
            use(peer)
        finally:
            peer.stop()
            shutil.rmtree(place, ignore_errors=True)
        return True

    def load(
        self, measure: str, peer: Peer, make: Callable[[], Script], full: int,
        *, name: str = "", window: int = WINDOW, connections: int = 1,
    ) -> None:  # fmt: skip
        """A turn of the loader: `make` gives the script, with a fresh stream or topic."""

        def turn() -> Figure:
            total = self.count(full)
            return measured(self.loader, peer.server, make(), total=total, window=window, connections=connections)

        self.take_turn(measure, name or peer.name, turn)


# ---------------------------------------------------------------------------------------------- produce

PRODUCE = "produce {} B, 200 a request"
PRODUCE_PIPED = "produce 100 B, 1 a request, pipelined"
PRODUCE_ALONE = "produce 100 B, one at a time"


def produce(bench: Bench) -> None:
    """Level receive beside Redis everysec and NATS as it comes; the sink is the bound."""
    for _ in bench.turns():
        bench.with_peer(Serai, lambda peer: produce_own(bench, peer))
        bench.with_peer(Redis, lambda peer: produce_peer(bench, peer, 300_000))
        bench.with_peer(Nats, lambda peer: produce_peer(bench, peer, 100_000))
        sink(bench)


def produce_own(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Serai)
    body = body_of(100)
    for name, form in FORMS.items():
        for size in SIZES:
            make = partial(peer.produce, body_of(size), 200, form=form)
            bench.load(PRODUCE.format(size), peer, make, PRODUCED[size], name=name)
        make = partial(peer.produce, body, 1, form=form, frames=200)
        bench.load(PRODUCE_PIPED, peer, make, 1_000_000, name=name)
        bench.load(PRODUCE_ALONE, peer, partial(peer.produce, body, 1, form=form), 10_000, name=name, window=1)


def produce_peer(bench: Bench, peer: Peer, full: int) -> None:
    """What is 200 messages a request to serai is 200 pipelined requests to them."""
    for size in SIZES:
        make = partial(peer.produce, body_of(size), 200)
        bench.load(PRODUCE.format(size), peer, make, full if size < 500 else full // 3)
    bench.load(PRODUCE_ALONE, peer, partial(peer.produce, body_of(100), 1), 10_000, window=1)


def sink(bench: Bench) -> None:
    """What the loopback device carries to a reader that drops everything, and how long an echo takes."""
    bound = Sink(bench.loader, bench.directory)

    def turn(server: Process, script: Script, full: int) -> Figure:
        return measured(bench.loader, server, script, total=bench.count(full), window=1)

    try:
        for size in SIZES:
            script = Script(body_of(size) * 200, 200, "none")
            full = 8_000_000 if size < 500 else 2_000_000
            bench.take_turn(PRODUCE.format(size), "sink", partial(turn, bound.drops, script, full))
        echo = Script(body_of(100), 1, "bytes:100")
        bench.take_turn(PRODUCE_ALONE, "echo in C", partial(turn, bound.echoes, echo, 20_000))
    finally:
        bound.stop()


# ---------------------------------------------------------------------------------------------- commit

COMMIT_WINDOW = "commit 100 B, window 1000"
COMMIT_MANY = "commit 100 B, 32 connections, {} a request"
COMMIT_ALONE = "commit 100 B, one at a time"


def commit(bench: Bench) -> None:
    """Answered when the disk has it, beside Redis always, RabbitMQ quorum and NATS always."""

    def rounds(rabbit: Peer | None) -> None:
        for _ in bench.turns():
            bench.with_peer(Serai, lambda peer: commit_turn(bench, peer, (400_000, 20_000, 1_000_000, 600)))
            bench.with_peer(RedisAlways, lambda peer: commit_turn(bench, peer, (40_000, 10_000, 100_000, 400)))
            bench.with_peer(NatsAlways, lambda peer: commit_turn(bench, peer, (2000, 800, 6400, 200)))
            if rabbit is not None:
                commit_turn(bench, rabbit, (40_000, 6000, 60_000, 400))
            commit_floor(bench)

    if not bench.with_peer(Rabbit, rounds):
        rounds(None)


def commit_turn(bench: Bench, peer: Peer, counts: tuple[int, int, int, int]) -> None:
    """Four measures of one contestant: window 1000, 32 connections with 1 and with 200, one at a time."""
    body = body_of(100)
    commits = partial(peer.produce, level="commit") if isinstance(peer, Serai) else peer.produce
    plan = [
        (COMMIT_WINDOW, 200, WINDOW, 1), (COMMIT_MANY.format(1), 1, 1, 32), (COMMIT_MANY.format(200), 200, 200, 32),
        (COMMIT_ALONE, 1, 1, 1),
    ]  # fmt: skip
    for (measure, per_request, window, connections), full in zip(plan, counts, strict=True):
        bench.load(measure, peer, partial(commits, body, per_request), full, window=window, connections=connections)


def commit_floor(bench: Bench) -> None:
    """What one message at a time cannot undercut: the disk, and the way there and back."""
    found = bench.loader.sync(bench.directory / "sync", count=bench.count(400), size=100)
    bench.sheet.add(COMMIT_ALONE, "fdatasync", Figure(found["p50_us"], "us", more=found))
    bound = Sink(bench.loader, bench.directory)
    try:
        echo = measured(bench.loader, bound.echoes, Script(body_of(100), 1, "bytes:100"), total=2000, window=1)
        bench.sheet.add(COMMIT_ALONE, "echo in C", replace(echo, value=echo.more["p50_us"], unit="us"))
    finally:
        bound.stop()


# ---------------------------------------------------------------------------------------------- fetch


def fetch(bench: Bench) -> None:
    """Large answers: ours hold one MiB, Redis may choose its count."""
    for _ in bench.turns():
        bench.with_peer(Serai, lambda peer: fetch_own(bench, peer))
        bench.with_peer(Redis, lambda peer: fetch_redis(bench, peer))
        fetch_bound(bench)


def fetch_own(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Serai)
    for size in SIZES:
        for name, form in FORMS.items():
            count = fetch_count(form.dialect, size)
            full = 4_000_000 if size < 500 else 600_000

            def fill(body: bytes, total: int, form: Form = form) -> None:
                peer.fill(bench.loader, body, total, form)

            fetch_turn(bench, peer, name, size, count, full, fill, partial(peer.fetch, count, form))


def fetch_redis(bench: Bench, peer: Peer) -> None:
    assert isinstance(peer, Redis)
    for size in SIZES:
        for count in FETCH_COUNTS:
            full = 400_000 if size < 500 else 100_000
            fill, ask = partial(peer.fill, bench.loader), partial(peer.fetch, count)
            fetch_turn(bench, peer, peer.name, size, count, full, fill, ask)


def fetch_turn(
    bench: Bench, peer: Peer, name: str, size: int, count: int, full: int,
    fill: Callable[[bytes, int], object], ask: Callable[[], Script],
) -> None:  # fmt: skip
    """Whole answers of `count` messages, two asked for at a time; the stream is filled before the clock runs."""
    total = max(4, bench.count(full) // count) * count

    def turn() -> Figure:
        fill(body_of(size), total)
        os.sync()  # nobody's disk is at work for what was filled while fetching is measured
        return measured(bench.loader, peer.server, ask(), total=total, window=2 * count)

    bench.take_turn(f"fetch {size} B", name, turn)


def fetch_bound(bench: Bench) -> None:
    """Bytes a second through the loopback device in writes of one MiB."""
    bound = Sink(bench.loader, bench.directory)
    try:
        script = Script(bytes(SINK_BYTES), SINK_BYTES, "none")
        total = bench.count(2000) * SINK_BYTES

        def turn() -> Figure:
            found = measured(bench.loader, bound.drops, script, total=total, window=SINK_BYTES)
            return replace(found, unit="B/s", cpu_us=None)

        bench.take_turn("loopback, writes of 1 MiB", "sink", turn)
    finally:
        bound.stop()
