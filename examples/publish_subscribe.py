"""Publish and subscribe: one process writes, others follow the same files.

    python examples/publish_subscribe.py [DIR]

Subscribers need no registration: each one is a reader of the directory, and each sees every message.
"""

import multiprocessing
import sys
import tempfile
from pathlib import Path

import serai

NEWS = 1000
SUBSCRIBERS = 2


def subscribe(path: Path, name: str) -> None:
    """Follow the queue until the closing message; exit with 1 if anything was missed."""
    with serai.Queue(path, "r") as queue:
        expected = 0
        for message in serai.tail(queue.reader(), timeout=10):
            number, text = message.unpack_int(), message.unpack_string()
            if text == "end":
                print(f"{name} saw {expected} messages, the last at offset {message.offset - 16}", flush=True)
                sys.exit(expected != NEWS)
            if number != expected:
                break
            expected += 1
    print(f"{name} missed something behind message {expected}", flush=True)
    sys.exit(1)


def main(path: Path) -> int:
    """Publish while the subscribers run."""
    spawn = multiprocessing.get_context("spawn")
    names = [f"subscriber {number}" for number in range(1, SUBSCRIBERS + 1)]
    subscribers = [spawn.Process(target=subscribe, args=(path, name)) for name in names]
    for subscriber in subscribers:
        subscriber.start()
    with serai.Queue(path) as queue:
        for number in range(NEWS):
            queue.new_message().pack_int(number).pack_string(f"news {number}").write_message()
        queue.new_message().pack_int(-1).pack_string("end").write_message()
    print(f"published {NEWS} messages and the end")
    for subscriber in subscribers:
        subscriber.join(20)
    return 0 if all(subscriber.exitcode == 0 for subscriber in subscribers) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
