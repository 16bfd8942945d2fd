"""serai queue bench: how fast this machine writes and reads a queue, in a few seconds.

It is a look, not a comparison: one round in a new queue that is removed again.  The benchmark with
peers, warm memory and repeated rounds is `make bench-queue` in the sources.
"""

import sys
import time
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from serai.cli.parser import Parser, add_output, amount, verb
from serai.cli.terminal import Failure, counted, sized, table

if TYPE_CHECKING:
    from serai import Queue

    Step = Callable[[Queue, bytes, int], Iterator[int]]

MANY = 1000


def add(verbs: "_SubParsersAction[Parser]") -> None:
    parser = verb(verbs, "bench", bench, text="measure writing and reading, in a queue that is removed again",
                  aim="measure in {dir}", example="serai queue bench --count 50000",
                  place="where the queue is made (default: the directory of temporary files)")  # fmt: skip
    parser.add_argument("--count", type=amount, default=1_000_000, metavar="N", help="messages (default: 1,000,000)")
    parser.add_argument("--size", type=amount, default=100, metavar="BYTES", help="bytes of each (default: 100)")
    add_output(parser, ("table", "json", "jsonl"))


def bench(args: Namespace) -> int:
    """Runs every step once and shows the rates."""
    import os
    import shutil
    import tempfile

    from serai import Queue

    if args.count < 1:
        raise Failure("cannot measure no messages", "--count is 0", "serai queue bench --count 100000", code=2)
    args.dir = args.dir or tempfile.gettempdir()
    os.makedirs(args.dir, exist_ok=True)
    place = tempfile.mkdtemp(prefix="serai-bench-", dir=args.dir)
    args.talk.summary = lambda: "stopped; the bench queue was removed"
    try:
        args.talk.say(f"{counted(args.count)} of {args.size:,} bytes in {place}")
        with Queue(place) as queue, args.talk.progress("measuring") as show:
            rows = [_measure(step, queue, args, (i, show)) for i, step in enumerate(STEPS.items())]
    finally:
        shutil.rmtree(place)
    if args.output == "table":
        shown = [
            (name, f"{spent:.3f} s", _rate(rate), f"{sized(int(rate * args.size))}/s") for name, spent, rate in rows
        ]
        print(table(("step", "time", "messages a second", "bytes a second"), shown))
    else:
        _print_json(rows, args)
    return 0


def _print_json(rows: list[tuple[str, float, float]], args: Namespace) -> None:
    import json

    records = [{"step": name, "seconds": spent, "messages_per_second": rate, "count": args.count, "size": args.size}
               for name, spent, rate in rows]  # fmt: skip
    if args.output == "json":
        print(json.dumps(records, indent=2))
        return
    for record in records:
        print(json.dumps(record))


def _rate(rate: float) -> str:
    return f"{rate / 1e6:,.2f} million" if rate >= 1e5 else f"{rate:,.0f}"


def _measure(
    step: "tuple[str, Step]", queue: "Queue", args: Namespace, progress: tuple[int, Callable[[int, int], None]]
) -> tuple[str, float, float]:
    name, work = step
    number, show = progress
    body = b"." * args.size
    started = time.perf_counter()
    shown = 0.0
    for done in work(queue, body, args.count):
        before = time.perf_counter()
        show(number * args.count + done, len(STEPS) * args.count)
        shown += time.perf_counter() - before
    spent = max(time.perf_counter() - started - shown, 1e-9)
    sys.stderr.flush()
    return name, spent, args.count / spent


def _append(queue: "Queue", body: bytes, count: int) -> Iterator[int]:
    append = queue.writer().append
    for start in range(0, count, 20_000):
        for _ in range(min(20_000, count - start)):
            append(body)
        yield start


def _append_many(queue: "Queue", body: bytes, count: int) -> Iterator[int]:
    writer, bodies = queue.writer(), [body] * MANY
    for start in range(0, count, MANY):
        writer.append_many(bodies[: count - start])
        yield start


def _read(queue: "Queue", _body: bytes, count: int) -> Iterator[int]:
    """The first half, message by message."""
    for done, _message in zip(range(count), queue.reader(), strict=False):
        if done % 20_000 == 0:
            yield done


def _read_batch(queue: "Queue", _body: bytes, count: int) -> Iterator[int]:
    """The second half, in batches."""
    reader, done = queue.reader(16 * count), 0
    while bodies := reader.read_batch().to_list():
        done += len(bodies)
        yield done


STEPS: "dict[str, Step]" = {
    "append": _append,
    f"append_many, {MANY} each": _append_many,
    "read one by one": _read,
    "read_batch, as lists": _read_batch,
}
