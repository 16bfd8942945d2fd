"""What a call of the broker costs: `python -m benchmarks.broker_calls [--topics 10000] [--dir DIR]`.

Microseconds of the process's CPU for each call, threads of the log included, best of several rounds, and the same
for a message:

    append      the log alone, the bound for produce
    produce     sets of 200, 10 and 1 messages of 100 bytes, level receive, and the same with a parked ticket at commit
    fetch, ack  a consumer with the lock, 1000 messages and 1; both write the position down
    poll        a fetch that finds nothing, is parked, woken by an append and handed over by `turn`
    read        without the lock, 1 MiB answers

Then the scale: so many idle topics with a subscription each, the memory they take and the time a start takes, in a
fresh process.  All of it in a temporary directory (`--dir /dev/shm` takes the disk out).
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from serai._core.entries import HOUSE
from serai.broker import Broker, Delivery, Node, Wait
from serai.log.engine import Level
from serai.log.local import LocalEngine

NOW = 1_700_000_000_000
ROUNDS = 5
MESSAGES = 400_000  # of one round
NODE = Node(1, "127.0.0.1", 15555)


def message_set(count: int, body_bytes: int = 100) -> bytes:
    """House messages end to end."""
    head = (16 + body_bytes).to_bytes(4, "little") + bytes(4) + NOW.to_bytes(8, "little")
    return (head + b"x" * body_bytes) * count


class Bench:
    """A broker with one topic, and a line for each measurement."""

    def __init__(self, path: Path) -> None:
        self.engine = LocalEngine(path)
        self.broker = Broker(self.engine, node=NODE, auto_create=True, level=Level.RECEIVE)
        self.guest = self.broker.enter("app", now_ms=NOW)
        self.made = 0

    def topic(self) -> str:
        """A fresh topic that the application uses."""
        self.made += 1
        name = f"topic-{self.made}"
        self.broker.ensure(self.guest, [name], app="app", produces=True, consumes=True, now_ms=NOW)
        self.broker.settle()
        self.broker.turn(NOW)
        return name

    def line(self, words: str, make: Callable[[], Callable[[], object]], *, calls: int, messages: int = 1) -> None:
        """The best CPU time of a call."""
        best = 1e9
        for _ in range(ROUNDS):
            work = make()
            started = time.process_time()
            for _ in range(calls):
                work()
            best = min(best, (time.process_time() - started) / calls)
        print(f"{words:<44} {best * 1e6:9.2f} us a call {best / messages * 1e9:9.1f} ns a message")

    def produce(self) -> None:
        """The log alone, then with the broker before it."""
        for count in (200, 10, 1):
            data = message_set(count)
            calls = min(20_000, MESSAGES // count)

            def append(data: bytes = data) -> Callable[[], object]:
                log = self.engine.open(f"bare-{self.topic()}")
                return lambda: log.append(data, HOUSE, level=Level.RECEIVE, now_ms=NOW)

            def produce(data: bytes = data) -> Callable[[], object]:
                name, call, guest = self.topic(), self.broker.produce, self.guest
                return lambda: call(guest, name, data, HOUSE, app="app", partition=0, level=Level.RECEIVE, now_ms=NOW)

            self.line(f"append to the log, {count}", append, calls=calls, messages=count)
            self.line(f"produce, {count}", produce, calls=calls, messages=count)

    def commit(self) -> None:
        """A ticket that is parked and comes back from the disk."""

        def work() -> Callable[[], object]:
            name, broker, guest, data = self.topic(), self.broker, self.guest, message_set(1)

            def one() -> None:
                ticket = broker.produce(
                    guest, name, data, HOUSE, app="app", partition=0, level=Level.COMMIT, now_ms=NOW
                )
                broker.park(guest, [ticket], deadline_ms=NOW + 5000)
                broker.moved()
                broker.turn(NOW)

            return one

        self.line("produce, 1, parked until the disk has it", work, calls=5000)

    def fetch(self) -> None:
        """With the lock, and an acknowledgement for each answer."""
        for count, calls in ((1000, 200), (10, 5000), (1, 10_000)):

            def work(count: int = count, calls: int = calls) -> Callable[[], object]:
                name = self.topic()
                for _ in range(count * calls // 1000 + 1):
                    self.broker.produce(self.guest, name, message_set(1000), HOUSE, app="app", now_ms=NOW)
                consumer = self.broker.add_consumer(self.guest, name, "app", NOW)
                fetch, ack = self.broker.fetch, self.broker.ack

                def one() -> None:
                    delivery = fetch(consumer, count=count, bytes_max=1 << 20, now_ms=NOW)
                    assert isinstance(delivery, Delivery)
                    ack(name, "app", 0, range(delivery.ordinal, delivery.stop), now_ms=NOW)

                return one

            self.line(f"fetch and ack, {count}", work, calls=calls, messages=count)

    def poll(self) -> None:
        """A message through a parked fetch."""

        def work() -> Callable[[], object]:
            name, broker, guest, data = self.topic(), self.broker, self.guest, message_set(1)
            consumer = broker.add_consumer(guest, name, "app", NOW)

            def one() -> None:
                wait = broker.fetch(consumer, count=10, bytes_max=1 << 20, wait_ms=5000, now_ms=NOW)
                assert isinstance(wait, Wait)
                broker.produce(guest, name, data, HOUSE, app="app", now_ms=NOW)
                (woken,) = broker.turn(NOW)
                delivery = woken.result()
                broker.ack(name, "app", 0, range(delivery.ordinal, delivery.stop), now_ms=NOW)

            return one

        self.line("parked fetch, produce, turn, ack", work, calls=10_000)

    def read(self) -> None:
        """Without the lock, large answers."""

        def work() -> Callable[[], object]:
            name, broker = self.topic(), self.broker
            for _ in range(400):
                broker.produce(self.guest, name, message_set(1000), HOUSE, app="app", now_ms=NOW)
            state = [0]

            def one() -> None:
                answer = broker.fetch_at(
                    self.guest, name, "app", 0, state[0], count=1 << 20, bytes_max=1 << 20, now_ms=NOW
                )
                assert isinstance(answer, Delivery)
                state[0] = answer.stop % 400_000

            return one

        self.line("read without lock, 1 MiB", work, calls=2000, messages=9000)


def start(path: Path) -> None:
    """In a fresh process: open the broker, say what it took."""
    started = time.perf_counter()
    engine = LocalEngine(path)
    broker = Broker(engine, node=NODE, auto_create=True, level=Level.RECEIVE)
    seconds = time.perf_counter() - started
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    print(
        f"{len(broker.topics)} topics: started in {seconds:.2f} s, {resident / (1 << 20):.0f} MiB resident", flush=True
    )
    engine.close()


def scale(path: Path, topics: int) -> None:
    """Make idle topics, then start over them."""
    engine = LocalEngine(path)
    broker = Broker(engine, node=NODE, auto_create=True, level=Level.RECEIVE)
    guest = broker.enter("app", now_ms=NOW)
    started = time.perf_counter()
    names = [f"topic-{each}" for each in range(topics)]
    for at in range(0, topics, 1000):
        broker.ensure(guest, names[at : at + 1000], app="app", produces=True, consumes=True, now_ms=NOW)
        broker.settle()
        broker.turn(NOW)
    print(f"{topics} topics made in {time.perf_counter() - started:.2f} s")
    engine.close()
    for count in (path, path):
        subprocess.run([sys.executable, "-m", "benchmarks.broker_calls", "--start", str(count)], check=True)


def main() -> None:
    """Measure calls, then the scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--start", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start is not None:
        start(options.start)
        return
    folder = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        bench = Bench(folder / "calls")
        for measure in (bench.produce, bench.commit, bench.fetch, bench.poll, bench.read):
            measure()
        bench.engine.close()
        shutil.rmtree(folder / "calls")
        scale(folder / "scale", options.topics)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
