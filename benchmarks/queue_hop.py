"""The hop: from the moment a process is about to publish until another process holds the value, in nanoseconds.

    python -m benchmarks.queue_hop KIND DIRECTORY COUNT PACE_NS        prints one JSON object

    child    waits for the moment, reads the clock, publishes the clock's value, waits for the next moment
    parent   receives a value, reads the clock, notes the difference

- The clock is CLOCK_MONOTONIC (`perf_counter_ns`), one for all processes of a machine; reading it twice is part of
  the hop, and so is every Python instruction between.
- Child and parent are pinned to two different processors where there are two.  A pace under a millisecond is a burst
  of a quarter of a second at real-time priority, where that is allowed: it is the hop that counts, not the scheduler.
  pyzmq has threads of its own and is left to the scheduler.
- The first fifth is dropped; the quantiles are of the rest.
- Each measurement is a fresh interpreter that forks once, without threads; an alarm ends either side that hangs.

Kinds: `next` polls reader.next(), `wait` spins in the core without the interpreter's lock, `spin` iterates over
serai.tail(idle="spin"), `backoff` over serai.tail(idle="backoff"); `pipe`, `faster-fifo` and `pyzmq` block.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.queue_rounds import Sheet, Took

__all__ = ["HOP", "SLEEPING", "SPINNING", "measure_hops"]

HOP = "hop"
SPINNING = "reader spinning (peers block)"
SLEEPING = "reader asleep"
ALARM_SECONDS = 20
SPIN_PACE_NS = 20_000
PEER_PACE_NS = 60_000  # they do not keep up with one message per 20 us
SLEEP_PACE_NS = 2_000_000
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
THREADED = {"pyzmq"}
clock = time.perf_counter_ns

Publish = Callable[[int], object]
Values = Callable[[int], Iterator[int]]


# ---------------------------------------------------------------------------------------------- ways to hand over


def serai_publish(directory: Path) -> Publish:
    import serai

    write = serai.Queue(directory / "q").writer().template("long").append
    return lambda now: write((now,))


def by_next(directory: Path, count: int) -> Iterator[int]:
    import serai

    reader = serai.Queue(directory / "q", "r").reader()
    take = reader.next
    while count:
        message = take()
        if message is not None:
            yield message.unpack_long()
            count -= 1


def by_wait(directory: Path, count: int) -> Iterator[int]:
    import serai

    reader = serai.Queue(directory / "q", "r").reader()
    while count:
        if reader.wait(1 << 20):
            message = reader.next()
            assert message is not None
            yield message.unpack_long()
            count -= 1


def by_tail(idle: str) -> Callable[[Path, int], Iterator[int]]:
    def values(directory: Path, count: int) -> Iterator[int]:
        import serai

        for message in serai.tail(serai.Queue(directory / "q", "r").reader(), idle=idle):
            yield message.unpack_long()
            count -= 1
            if not count:
                return

    return values


def over_serai(values: Callable[[Path, int], Iterator[int]]) -> Callable[[Path], tuple[Callable[[], Publish], Values]]:
    def way(directory: Path) -> tuple[Callable[[], Publish], Values]:
        import serai

        serai.Queue(directory / "q").close()  # the reader's side may then be opened at once
        return (lambda: serai_publish(directory)), (lambda count: values(directory, count))

    return way


def over_pipe(directory: Path) -> tuple[Callable[[], Publish], Values]:
    del directory
    source, target = os.pipe()

    def values(count: int) -> Iterator[int]:
        for _ in range(count):
            yield int.from_bytes(os.read(source, 8), "little")

    return (lambda: lambda now: os.write(target, now.to_bytes(8, "little"))), values


def over_fifo(directory: Path) -> tuple[Callable[[], Publish], Values]:
    del directory
    queue: Any = importlib.import_module("faster_fifo").Queue(max_size_bytes=1 << 20)

    def values(count: int) -> Iterator[int]:
        for _ in range(count):
            yield queue.get(timeout=ALARM_SECONDS)

    return (lambda: queue.put), values


def over_zmq(directory: Path) -> tuple[Callable[[], Publish], Values]:
    zmq: Any = importlib.import_module("zmq")
    address = f"ipc://{os.path.relpath(directory)}/s"  # a socket's name has about 100 characters at most

    def publish() -> Publish:
        socket = zmq.Context().socket(zmq.PUSH)
        socket.connect(address)
        return lambda now: socket.send(now.to_bytes(8, "little"))

    def values(count: int) -> Iterator[int]:
        with zmq.Context() as context, context.socket(zmq.PULL) as socket:
            socket.bind(address)
            for _ in range(count):
                yield int.from_bytes(socket.recv(), "little")

    return publish, values


WAYS: dict[str, Callable[[Path], tuple[Callable[[], Publish], Values]]] = {
    "next": over_serai(by_next),
    "wait": over_serai(by_wait),
    "spin": over_serai(by_tail("spin")),
    "backoff": over_serai(by_tail("backoff")),
    "pipe": over_pipe,
    "faster-fifo": over_fifo,
    "pyzmq": over_zmq,
}


# ---------------------------------------------------------------------------------------------- one measurement


def settle(turn: int, pace_ns: int) -> None:
    """To the turn-th of the processors this process may use; in a hurry, if allowed, when the pace makes a burst."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) > 1:
        os.sched_setaffinity(0, {allowed[turn]})
    if pace_ns < 1_000_000:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def send(publish: Publish, count: int, pace_ns: int) -> None:
    """One value every `pace_ns`, a moment after the other side has had time to open."""
    due = clock() + 100_000_000
    for _ in range(count):
        while (now := clock()) < due:
            if due - now > 200_000:
                time.sleep((due - now - 150_000) / 1e9)  # a long pace leaves the processor to others
        publish(clock())
        due += pace_ns


def quantiles(hops: list[int]) -> dict[str, int]:
    kept = sorted(hops[len(hops) // 5 :])
    return {name: kept[min(len(kept) - 1, int(part * len(kept)))] for name, part in QUANTILES.items()}


def measure(kind: str, directory: Path, count: int, pace_ns: int) -> dict[str, int]:
    """Fork, let the child send, receive here."""
    opened, values = WAYS[kind](directory)
    child = os.fork()
    signal.alarm(ALARM_SECONDS)
    if child == 0:
        try:
            publish = opened()
            if kind not in THREADED:
                settle(0, pace_ns)
            send(publish, count, pace_ns)
            time.sleep(0.1)  # what still waits in a library's buffer goes out
        finally:
            os._exit(0)
    if kind not in THREADED:
        settle(1, pace_ns)
    hops = [clock() - sent for sent in values(count)]
    os.waitpid(child, 0)
    return quantiles(hops)


# ---------------------------------------------------------------------------------------------- the bench's side

# name, kind, measure, pace, part of the count, module it needs
RUNS = [
    ("serai, reader.next()", "next", SPINNING, SPIN_PACE_NS, "serai"),
    ("serai, reader.wait()", "wait", SPINNING, SPIN_PACE_NS, "serai"),
    ("serai, tail(idle='spin')", "spin", SPINNING, SPIN_PACE_NS, "serai"),
    ("os.pipe, blocking", "pipe", SPINNING, PEER_PACE_NS, "os"),
    ("faster-fifo, blocking", "faster-fifo", SPINNING, PEER_PACE_NS, "faster_fifo"),
    ("pyzmq ipc, blocking", "pyzmq", SPINNING, PEER_PACE_NS, "zmq"),
    ("serai, tail(idle='backoff')", "backoff", SLEEPING, SLEEP_PACE_NS, "serai"),
    ("os.pipe, blocking", "pipe", SLEEPING, SLEEP_PACE_NS, "os"),
]


def measure_hops(directory: Path, rounds: int, scale: float, sheet: Sheet) -> None:
    """All runs in turn, `rounds` times; a quantile's figure is that of its quietest round."""
    for at in range(rounds):
        for name, kind, how, pace_ns, needs in RUNS:
            if importlib.util.find_spec(needs) is None:
                sheet.note(f"{name} left out: not installed: {needs}")
                continue
            place = directory / f"hop-{kind}-{pace_ns}-{at}"
            place.mkdir()
            seconds = (0.25 if how == SPINNING else 0.5) * max(scale, 0.1)
            count = int(seconds * 1e9 / pace_ns)
            found = run_alone(kind, place, count, pace_ns)
            if found is None:
                sheet.note(f"{HOP}, {name}: a round did not end in time")
                continue
            for quantile, hop_ns in found.items():
                sheet.add(f"{HOP}, {how}, {quantile}", name, Took(hop_ns))


def run_alone(kind: str, place: Path, count: int, pace_ns: int) -> dict[str, int] | None:
    """One measurement in an interpreter of its own."""
    command = [sys.executable, "-m", "benchmarks.queue_hop", kind, str(place), str(count), str(pace_ns)]
    root = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=2 * ALARM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode == -signal.SIGALRM:
        return None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
