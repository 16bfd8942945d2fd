"""Many producers, a queue each, brought into one order when they are read.

    python examples/many_producers_merged.py [DIR]

No producer waits for another or knows it.  The order is a number in each message, as an id or a time;
`serai.merge` takes the smallest next one.  A reader may start anywhere, at a message's offset.
"""

import multiprocessing
import sys
import tempfile
from pathlib import Path

import serai

PRODUCERS = 3
MESSAGES = 3000


def produce(path: Path, number: int) -> None:
    """Write every third id, each into this producer's own queue."""
    with serai.Queue(path / str(number)) as queue:
        for message_id in range(number, PRODUCERS * MESSAGES, PRODUCERS):
            queue.new_message().pack_long(message_id).pack_string(f"from {number}").write_message()


def message_id(message: serai.Message) -> int:
    """The key of the order; it is read where it lies, and the message stays at its first value."""
    key = message.unpack_long()
    message.position = 0
    return key


def main(path: Path) -> int:
    """Start the producers, then read all queues as one."""
    spawn = multiprocessing.get_context("spawn")
    producers = [spawn.Process(target=produce, args=(path, number)) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(20)
    readers = [serai.Queue(path / str(number), "r").reader() for number in range(PRODUCERS)]
    merged = [(message.unpack_long(), message.unpack_string()) for message in serai.merge(readers, key=message_id)]
    print(f"{len(merged)} messages, the first are {merged[:4]}")
    right = merged == [(number, f"from {number % PRODUCERS}") for number in range(PRODUCERS * MESSAGES)]

    later = [serai.Queue(path / str(number), "r").reader(offset=16 * 1000) for number in range(PRODUCERS)]
    first = next(serai.merge(later, key=message_id)).unpack_long()
    print(f"from offset {16 * 1000} of each queue on, the first id is {first}")
    return 0 if right and first == 3000 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
