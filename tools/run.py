"""`make run`: serai's main job on this machine, in a few seconds, with nothing to set up.

For now that is the embedded queue: messages are written, read back and checked, typed ones too, and a second
process tails a queue while this one writes to it.  It says what it does, ends by itself, and leaves the
queues in `.serai-run` so that the commands it shows at the end have something to look at.  The exit code is 1
if anything that was written did not arrive, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import serai

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Thing = TypeVar("Thing")
PLACE = Path(".serai-run")
DISK_BYTES = 1 << 30
MESSAGES = 2_000_000
ROWS = 300_000
TAILED = 100_000
BATCH = 1_000
FILLER = b"." * 92
FIELDS = ("long", "decimal", "string", "boolean")

NEXT = f"""
Try next
  python (say: .venv/bin/python)
      import serai
      q = serai.Queue("hello"); q.new_message().pack_string("hello").pack_int(1).write_message()
      [(m.offset, m.unpack_string(), m.unpack_int()) for m in q.reader()]
  shell (with .venv/bin in PATH)
      serai queue stat {PLACE}/lines            what is in a queue
      serai dump {PLACE}/typed | head           its entries, one on a line
      serai verify {PLACE}/lines                every entry checked
      echo hello | serai queue put talk            one message for each line
      serai queue tail talk                        what is written from now on
  make bench-queue                                 the queue beside its peers
  ls examples                                      each scenario as a short program
"""


def main() -> int:
    """Show all of it, or be the second process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tail", metavar="DIR", help="be the second process: tail this queue and say what came")
    tailed = parser.parse_args().tail
    try:
        return second_process(tailed) if tailed else show()
    except KeyboardInterrupt:
        if tailed:
            return 130  # the first process tells
        print(f"\nstopped; what was written until now is whole and lies in {PLACE}", file=sys.stderr)
        return 130
    except serai.SeraiError as error:
        print(f"\nserai: {error}", file=sys.stderr)
        return 1


def show() -> int:
    """The three demonstrations, then what to try."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    free = shutil.disk_usage(PLACE).free
    if free < DISK_BYTES:
        print(f"serai: {PLACE.resolve()} has {free >> 20} MiB free and this needs {DISK_BYTES >> 20}", file=sys.stderr)
        return 1
    print(f"serai's embedded queue: no server, files in {PLACE}, written and read through mapped pages.\n")
    results = [lines(), typed(), tail()]
    print("\neverything that was written arrived" if all(results) else "\nNOT everything that was written arrived")
    print(NEXT)
    return 0 if all(results) else 1


# ------------------------------------------------------------------------------------------------ lines


def lines() -> bool:
    """Plain messages of 100 bytes: written in batches, read in batches, every one compared."""
    print(f"1. {MESSAGES:,} messages of 100 bytes, a thousand at a time")
    numbered = (b"%08d" % number + FILLER for number in range(MESSAGES))
    with serai.Queue(PLACE / "lines") as queue:
        writer = queue.writer()
        spent = 0.0
        for batch in progress(batches(numbered), MESSAGES // BATCH):
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
    print(f"\n2. {ROWS:,} typed messages: {', '.join(FIELDS)}")
    with serai.Queue(PLACE / "typed") as queue:
        template = queue.writer().template(*FIELDS)
        spent = 0.0
        for batch in progress(batches(rows()), ROWS // BATCH):
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
    print(f"\n3. {TAILED:,} messages, one at a time, tailed by a second process")
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


# ------------------------------------------------------------------------------------------------ words


def arrived(right: bool, text: str) -> bool:  # noqa: FBT001 - a verdict and the words for it
    """Say if a demonstration held."""
    print(f"   {'arrived' if right else 'NOT ARRIVED':<20} {text}", flush=True)
    return right


def rate(verb: str, count: int, seconds: float, size: int = 0) -> None:
    """Say how fast that was."""
    speed = f", {size / seconds / 1e9:.1f} GB/s" if size else ""
    print(f"   {verb:<20} {seconds:.2f} s, {count / seconds / 1e6:.1f} million a second{speed}", flush=True)


def batches(things: Iterable[Thing]) -> Iterator[list[Thing]]:
    """Lists of BATCH things each."""
    waiting = iter(things)
    while batch := list(islice(waiting, BATCH)):
        yield batch


def progress(things: Iterable[Thing], count: int) -> Iterator[Thing]:
    """Pass things on, with a bar on a terminal."""
    step = max(1, count // 100)
    for at, thing in enumerate(things):
        if at % step == 0:
            meter(at / count)
        yield thing
    meter(None)


def meter(share: float | None) -> None:
    """Draw the bar, or take it away; nothing where nobody watches."""
    if sys.stderr.isatty():
        bar = "\r\x1b[K" if share is None else f"\r   [{'#' * int(share * 30):<30}] {share:4.0%}"
        print(bar, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
