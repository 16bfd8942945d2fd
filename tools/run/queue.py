"""The first act: a queue in a directory, no server.

Messages are written, read back and compared, typed ones too, and a second process tails a queue while this one
writes to it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING

import serai
from tools.run.words import PLACE, arrived, batches, meter, progress, rate, say

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES = 2_000_000
ROWS = 300_000
TAILED = 100_000
BATCH = 1_000
FILLER = b"." * 92
FIELDS = ("long", "decimal", "string", "boolean")


def act() -> bool:
    """The three demonstrations; whether everything arrived."""
    say(f"THE QUEUE: no server, files in {PLACE}, written and read through mapped pages\n")
    return all([lines(), typed(), tail()])


# ------------------------------------------------------------------------------------------------ lines


def lines() -> bool:
    """Plain messages of 100 bytes: written in batches, read in batches, every one compared."""
    say(f"1. {MESSAGES:,} messages of 100 bytes, a thousand at a time")
    numbered = (b"%08d" % number + FILLER for number in range(MESSAGES))
    with serai.Queue(PLACE / "lines") as queue:
        writer = queue.writer()
        spent = 0.0
        for batch in progress(batches(numbered, BATCH), MESSAGES // BATCH):
            started = time.perf_counter()
            writer.append_many(batch)
            spent += time.perf_counter() - started
    rate("written", MESSAGES, spent, 100 * MESSAGES)
    with serai.Queue(PLACE / "lines", "r") as queue:
        return read_lines(queue)


def read_lines(queue: serai.Queue) -> bool:
    """Read what `lines` wrote; true if it is exactly that."""
    reader = queue.reader()
    seen, right, spent = 0, True, 0.0
    while True:
        started = time.perf_counter()
        batch = reader.read_batch().to_list()
        spent += time.perf_counter() - started
        if not batch:
            break
        right = right and batch == [b"%08d" % number + FILLER for number in range(seen, seen + len(batch))]
        seen += len(batch)
        meter(seen / MESSAGES)
    meter(None)
    rate("read", seen, spent, 100 * seen)
    return arrived(seen == MESSAGES and right, f"{seen:,} of {MESSAGES:,}, each compared with what was written")


# ------------------------------------------------------------------------------------------------ typed


def rows() -> Iterator[tuple[int, Decimal, str, bool]]:
    """Rows as an application would have them."""
    prices = [Decimal(cents).scaleb(-2) for cents in range(1_000)]
    return ((number, prices[number % 1_000], f"order {number}", number % 3 == 0) for number in range(ROWS))


def typed() -> bool:
    """Messages with fields: a template packs rows, `rows` unpacks them."""
    say(f"\n2. {ROWS:,} typed messages: {', '.join(FIELDS)}")
    with serai.Queue(PLACE / "typed") as queue:
        template = queue.writer().template(*FIELDS)
        spent = 0.0
        for batch in progress(batches(rows(), BATCH), ROWS // BATCH):
            started = time.perf_counter()
            template.append_many(batch)
            spent += time.perf_counter() - started
        rate("written", ROWS, spent)
        started = time.perf_counter()
        read = list(queue.reader().rows(*FIELDS))
        rate("read", len(read), time.perf_counter() - started)
    return arrived(read == list(rows()), f"{len(read):,} of {ROWS:,}, each field compared")


# ------------------------------------------------------------------------------------------------ tail


def tail() -> bool:
    """This process writes one message after the other, another one follows."""
    say(f"\n3. {TAILED:,} messages, one at a time, tailed by a second process")
    with serai.Queue(PLACE / "tailed") as queue:
        command = [sys.executable, "-m", "tools.run", "--tail", str(queue.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            try:
                assert second.stdout is not None
                second.stdout.readline()  # it says when it is there
                write_paced(queue.writer())
                answer = json.loads(second.stdout.readline() or "{}")
            finally:
                second.kill()
    count, delays = answer.get("count", 0), answer.get("delays_us", {})
    said = ", ".join(f"{name} {value:,.1f} us" for name, value in delays.items())
    print(f"   {'from write to read':<20} {said}")
    return arrived(count == TAILED and answer.get("in_order", False), f"{count:,} of {TAILED:,}, in order")


def write_paced(writer: serai.Writer) -> None:
    """A hundred messages each millisecond, each with its number and the time it was written."""
    started = time.perf_counter()
    for number in progress(range(TAILED), TAILED):
        writer.append(number.to_bytes(8, "little") + time.monotonic_ns().to_bytes(8, "little"))
        if number % 100 == 99:
            time.sleep(max(0.0, started + number / TAILED - time.perf_counter()))


def second_process(path: str) -> int:
    """Tail a queue that another process writes, then say in one line what came and how late."""
    with serai.Queue(path, "r") as queue:
        print("ready", flush=True)
        following = islice(serai.tail(queue.reader(), timeout=10), TAILED)
        came = [(message.payload, time.monotonic_ns()) for message in following]
    numbers = [int.from_bytes(payload[:8], "little") for payload, _ in came]
    late = sorted(now - int.from_bytes(payload[8:], "little") for payload, now in came) or [0]
    delays = {name: late[int(len(late) * share)] / 1000 for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    print(json.dumps({"count": len(came), "in_order": numbers == list(range(TAILED)), "delays_us": delays}), flush=True)
    return 0
