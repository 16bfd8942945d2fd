"""Several topics, each a queue: read by one thread in turn, or by one thread each.

    python examples/several_topics.py [DIR]

A reader belongs to one thread; a queue has as many readers as are wanted.
"""

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import serai

TOPICS = ("prices", "orders", "alerts")
MESSAGES = 2000


def publish(path: Path) -> None:
    """One writer for each topic; here one thread owns all three."""
    queues = [serai.Queue(path / topic) for topic in TOPICS]
    for number in range(MESSAGES):
        for queue in queues:
            queue.new_message().pack_int(number).write_message()
    for queue in queues:
        queue.close()


def one_thread_for_all(path: Path) -> Counter[str]:
    """Look at each reader in turn; rest only when all of them had nothing."""
    readers = {topic: serai.Queue(path / topic, "r").reader() for topic in TOPICS}
    seen: Counter[str] = Counter()
    while seen.total() < MESSAGES * len(TOPICS):
        came = 0
        for topic, reader in readers.items():
            message = reader.next()
            if message is not None:
                assert message.unpack_int() == seen[topic]
                seen[topic] += 1
                came += 1
        if not came:
            time.sleep(0.0001)
    return seen


def one_thread_for_each(path: Path) -> Counter[str]:
    """A thread follows one topic until it has seen all of it."""
    seen: Counter[str] = Counter()

    def follow(topic: str) -> None:
        with serai.Queue(path / topic, "r") as queue:
            for message in serai.tail(queue.reader(), timeout=5):
                assert message.unpack_int() == seen[topic]
                seen[topic] += 1
                if seen[topic] == MESSAGES:
                    return

    threads = [threading.Thread(target=follow, args=(topic,)) for topic in TOPICS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def main(path: Path) -> int:
    """Run both ways while the publisher writes."""
    for topic in TOPICS:
        (path / topic).mkdir()
    publisher = threading.Thread(target=publish, args=(path,))
    publisher.start()
    together = one_thread_for_all(path)
    publisher.join()
    print("one thread for all topics saw ", dict(together))
    each = one_thread_for_each(path)
    print("one thread for each topic saw ", {topic: each[topic] for topic in TOPICS})
    expected = dict.fromkeys(TOPICS, MESSAGES)
    return 0 if together == expected and each == expected else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
