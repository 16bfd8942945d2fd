"""Millions of messages a CPU second, walked and dressed: `python -m benchmarks.messages [BODY_BYTES]`.

Two tables for each of two sets, one of 200 messages (a usual record) and one of 1 MiB (a part of a large one):

    walks   census (validated to the depth, checksums too), layout, cut, and patch where the server sets fields
    cells   every dress into every other; the same dress on the diagonal

Bodies of 100 bytes unless told, no attributes, no compression.  Each number is the best of several rounds.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

from serai._core.dress import patch, redress
from serai._core.messages import census, cut, layout

HOUSE, SEED, REAL, JAFKA = DRESSES = (1, 2, 3, 4)
NAMES = {HOUSE: "house", SEED: "seed", REAL: "real", JAFKA: "jafka"}
INFLATED_MAX, DEPTH_MAX, BYTES_MAX = 1 << 26, 8, 1 << 30
ROUND_SECONDS = 0.05
ROUNDS = 7
NOW = 1_700_000_000_000


def dressed(data: bytes, source: int, target: int) -> bytes:
    return redress(
        data, source, target, inflated_max=INFLATED_MAX, depth_max=DEPTH_MAX, bytes_max=BYTES_MAX, partition=3,
        index=1_000_000, term=7, store_time=NOW, app=b"shop",
    )  # fmt: skip


def plain_set(dress: int, count: int, body_bytes: int) -> bytes:
    """So many messages, made of house ones."""
    head = (16 + body_bytes).to_bytes(4, "little") + bytes(4) + NOW.to_bytes(8, "little")
    house = b"".join(head + bytes((at + place) & 0xFF for place in range(body_bytes)) for at in range(count))
    return house if dress == HOUSE else dressed(house, HOUSE, dress)


def rate(work: Callable[[], object], count: int) -> float:
    """Millions of messages a CPU second."""
    times, best = 1, 1e9
    while True:
        started = time.process_time()
        for _ in range(times):
            work()
        took = time.process_time() - started
        if took > ROUND_SECONDS / 4:
            break
        times *= 2
    times = max(1, int(times * ROUND_SECONDS / took))
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - started) / times)
    return count / best / 1e6


def walks(data: bytes, dress: int, count: int) -> list[float]:
    limits = {"inflated_max": INFLATED_MAX, "depth_max": DEPTH_MAX}
    far = {"skip": 0, "bytes_max": BYTES_MAX, "messages_max": BYTES_MAX}
    said = {"partition": 3, "index": 1_000_000, "term": 7, "store_time": NOW}
    found = [
        rate(lambda: census(data, dress, **limits), count),
        rate(lambda: layout(data, dress, **limits), count),
        rate(lambda: cut(data, dress, **far, **limits), count),
    ]
    if dress in (SEED, REAL):
        place = bytearray(data)
        found.append(rate(lambda: patch(place, dress, client=b"", **said), count))
    return found


def row(data: bytes, source: int, count: int) -> list[float]:
    """A source dress into all of them."""
    return [rate(partial(dressed, data, source, target), count) for target in DRESSES]


def table(title: str, heads: list[str], rows: dict[str, list[float]]) -> None:
    print(f"{title:8}" + "".join(f"{head:>9}" for head in heads))
    for name, numbers in rows.items():
        print(f"{name:8}" + "".join(f"{number:9.1f}" for number in numbers))
    print()


def main() -> None:
    body_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for count in (200, max(1, (1 << 20) // (body_bytes + 20))):
        print(f"{count} messages of {body_bytes} bytes; millions of messages a CPU second\n")
        sets = {dress: plain_set(dress, count, body_bytes) for dress in DRESSES}
        table("walk", ["census", "layout", "cut", "patch"], {NAMES[d]: walks(sets[d], d, count) for d in DRESSES})
        cells = {NAMES[source]: row(sets[source], source, count) for source in DRESSES}
        table("from/to", list(NAMES.values()), cells)


if __name__ == "__main__":
    main()
