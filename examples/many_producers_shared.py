"""Many producers, one order: several processes write into one index without a lock.

    python examples/many_producers_shared.py [DIR]

Each process has a name of three letters or digits and a data stream of its own; an entry of the common
index is claimed with one compare-and-swap.  Readers see one queue, in the order of the claims.
"""

import multiprocessing
import sys
import tempfile
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path

import serai

PRODUCERS = ("AA0", "AA1", "BB7")
MESSAGES = 50_000


def produce(path: Path, name: str, start: Barrier) -> None:
    """Write numbered messages under one name, from the moment all are ready."""
    with serai.MultiQueue(path, "rw", name) as queue:
        queue.writer()
        start.wait(20)
        for number in range(MESSAGES):
            queue.new_message().pack_int(number).write_message()


def main(path: Path) -> int:
    """Start the producers, then check what one reader sees."""
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(len(PRODUCERS))
    producers = [spawn.Process(target=produce, args=(path, name, start)) for name in PRODUCERS]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(20)
    seen: Counter[str] = Counter()
    changes, before = 0, ""
    with serai.MultiQueue(path) as queue:
        for message in queue.reader():
            if message.unpack_int() != seen[message.producer]:
                print(f"out of order at offset {message.offset}")
                return 1
            seen[message.producer] += 1
            changes += message.producer != before
            before = message.producer
    print(f"{seen.total()} messages in one order: {dict(sorted(seen.items()))}")
    print(f"the producer changes {changes} times on the way; of each one the order is kept")
    return 0 if seen == dict.fromkeys(PRODUCERS, MESSAGES) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
