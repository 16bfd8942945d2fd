"""serai queue: write, read, follow, measure and pack a queue."""

import os
import stat as modes
import sys
import time
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from serai.cli import bench
from serai.cli.parser import (
    Parser,
    add_checksum,
    add_dialect,
    add_output,
    add_reading,
    kinds,
    seconds,
    size,
    verb,
)  # fmt: skip
from serai.cli.terminal import TIMED_OUT, Failure, counted, data, sized, table

if TYPE_CHECKING:
    from serai import MultiQueue, Queue, Writer
    from serai.cli.opening import Reading
    from serai.cli.shapes import Shape

CHUNK_BYTES = 1 << 20


def add(nouns: "_SubParsersAction[Parser]") -> None:
    """Adds the noun and its verbs."""
    noun = nouns.add_parser("queue", help="write, read and follow a queue", description="A queue in a directory.")
    verbs = noun.nouns("verb")
    _add_put(verbs)
    _add_get(verbs)
    _add_tail(verbs)
    parser = verb(verbs, "stat", stat, text="say what a queue holds, in numbers", aim="look at {dir}",
                  example="serai queue stat orders")  # fmt: skip
    add_output(parser, ("table", "json", "jsonl"))
    bench.add(verbs)
    verb(verbs, "compress", compress, text="compress every data page that is full", aim="compress {dir}",
         example="serai queue compress orders")  # fmt: skip
    verb(verbs, "expand", expand, text="make compressed pages plain again, as the Java library needs them",
         aim="expand {dir}", example="serai queue expand orders")  # fmt: skip


def _add_put(verbs: "_SubParsersAction[Parser]") -> None:
    parser = verb(verbs, "put", put, text="write messages: each TEXT, or each line of stdin", aim="write to {dir}",
                  example="serai queue put greetings hello world")  # fmt: skip
    parser.add_argument(
        "text", metavar="TEXT", nargs="*", default=[], help="one message each; without any, stdin is read"
    )
    parser.add_argument("--input", choices=("text", "base64", "hex", "raw"), default="text",
                        help="what a TEXT or line is; raw takes all of stdin as one message (default: text)")  # fmt: skip
    parser.add_argument(
        "--fields", type=kinds, metavar="KINDS", help="each line is a JSON array of values of these kinds"
    )
    parser.add_argument("--producer", metavar="NAME", help="be one of several producers; three letters or digits")
    parser.add_argument(
        "--page-size", type=size, metavar="SIZE", help="length of page files in a new queue (default: 1G)"
    )
    add_dialect(parser)
    add_checksum(parser, "keep 24 bits of checksum with each message")
    parser.add_argument("--offsets", action="store_true", help="print the offset of each message")
    parser.add_argument("--sync", action="store_true", help="bring everything to the disk before the end")


def _add_get(verbs: "_SubParsersAction[Parser]") -> None:
    parser = verb(verbs, "get", get, text="read messages; --from end reads the newest", aim="read {dir}",
                  example="serai queue get orders --from end --count 5 --output jsonl")  # fmt: skip
    add_reading(parser, start="start")
    add_output(parser, ("text", "table", "json", "jsonl", "raw", "hex", "base64"))


def _add_tail(verbs: "_SubParsersAction[Parser]") -> None:
    parser = verb(verbs, "tail", tail, text="follow a queue: what is written from now on", aim="follow {dir}",
                  example="serai queue tail orders --from start --timeout 0.5")  # fmt: skip
    add_reading(parser, start="end")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="end when nothing came for so many seconds")
    add_output(parser, ("text", "table", "jsonl", "raw", "hex", "base64"))


# ---- put -------------------------------------------------------------------------------------------


def put(args: Namespace) -> int:
    """Writes messages; each one is published as soon as it was read."""
    from serai.cli.opening import open_queue

    with open_queue(args, "rw") as queue:
        counter = _Counter()
        args.talk.summary = lambda: f"stopped; {counter.summary(args.dir)}"
        write = _writing(queue.writer(), args, counter)
        try:
            for bodies in _bodies(args):
                write(bodies)
        except Failure:  # one line is wrong; those before it are written
            args.talk.say(counter.summary(args.dir))
            raise
        if args.sync:
            queue.force()
        args.talk.say(counter.summary(args.dir))
    return 0


class _Counter:
    def __init__(self) -> None:
        self.count = 0
        self.last = -1

    def summary(self, path: str) -> str:
        where = f", the last at offset {self.last}" if self.count else ""
        return f"{counted(self.count)} written to {path}{where}"


def _writing(writer: "Writer", args: Namespace, counter: _Counter) -> Callable[[list[bytes]], None]:
    """What is done with some lines that came together."""
    from serai.cli import shapes

    decode = shapes.decoder(args.input)
    template = writer.template(*args.fields) if args.fields else None

    def one(line: bytes) -> int:
        if template is None:
            return writer.append(decode(line))
        try:
            return template.append(shapes.row(line, args.fields))
        except (ValueError, TypeError, OverflowError) as error:
            raise Failure(
                f"cannot pack {line.decode(errors='replace')!r}", str(error), f"{args.parser.prog} --help"
            ) from error

    def write(lines: list[bytes]) -> None:
        if template is None and args.input in ("text", "raw") and not args.offsets:
            counter.last = writer.append_many(lines)
            counter.count += len(lines)
            return
        for line in lines:
            counter.last = one(line)
            counter.count += 1
            if args.offsets:
                print(counter.last)

    return write


def _bodies(args: Namespace) -> Iterator[list[bytes]]:
    """Lists of lines, each as soon as it is there."""
    if args.text:
        yield [os.fsencode(text) for text in args.text]
    elif args.input == "raw":
        yield [sys.stdin.buffer.read()]
    else:
        if sys.stdin.isatty():
            args.talk.say("each line is a message; Ctrl-D ends")
        yield from _lines(args)


def _lines(args: Namespace) -> Iterator[list[bytes]]:
    rest, done = b"", 0
    about = os.fstat(sys.stdin.fileno())
    total = about.st_size if modes.S_ISREG(about.st_mode) else 0
    with args.talk.progress(f"writing to {args.dir}") as show:
        while chunk := os.read(sys.stdin.fileno(), CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            done += len(chunk)
            show(done, total)
            if lines:
                yield lines
    if rest:
        yield [rest]


# ---- get and tail ----------------------------------------------------------------------------------


def get(args: Namespace) -> int:
    """Reads what is there and ends."""
    from serai.cli.opening import Reading, open_queue, say_empty, start_of
    from serai.cli.shapes import Shape, known

    with open_queue(args, "r") as queue:
        say_empty(args)
        back = 1 if args.count is None else args.count
        reading = Reading(queue.reader(start_of(queue, args, back=back)), args.talk)
        count = back if args.start == "end" and args.offset is None else args.count
        shape = Shape(args.output, known(args.fields))
        args.talk.summary = lambda: _read_summary(reading, "stopped after", args)
        with data() as out:
            out.write(shape.head())
            for message in reading.all(count):
                out.write(shape.show(message))
            out.write(shape.foot())
        if reading.count == 0 and args.offset is not None:
            args.talk.say(
                f"there is no message at offset {args.offset} yet: {args.dir} ends at {queue.stat().end_offset}"
            )
        args.talk.detail(_read_summary(reading, "read", args))
    return reading.code


def _read_summary(reading: "Reading", word: str, args: Namespace) -> str:
    on = f"; go on with --offset {reading.reader.offset}"
    return f"{word} {counted(reading.count)}, {sized(reading.bytes)} of {args.dir}{on}"


def tail(args: Namespace) -> int:
    """Follows a queue until Ctrl-C, --count or --timeout."""
    from serai.cli.opening import Reading, open_queue, start_of
    from serai.cli.shapes import Shape, known

    shape = Shape(args.output, known(args.fields))
    with open_queue(args, "r") as queue:
        if not _pages_came(queue, args):
            return 0 if args.count is None else TIMED_OUT
    with open_queue(args, "r") as queue:
        reading = Reading(queue.reader(start_of(queue, args, back=0)), args.talk)
        args.talk.summary = lambda: _read_summary(reading, "stopped after", args)
        args.talk.detail(f"following {args.dir} from offset {reading.reader.offset}")
        _follow(reading, shape, args)
        args.talk.detail(_read_summary(reading, "read", args))
    if args.count is not None and reading.count < args.count:
        args.talk.say(f"only {counted(reading.count)} of {args.count:,} came; nothing for {args.timeout:g} s")
        return TIMED_OUT
    return reading.code


def _pages_came(queue: "Queue | MultiQueue", args: Namespace) -> bool:
    """Waits until somebody has written: only then the files say which kind of queue it is."""
    from serai.log.place import kind_of

    if kind_of(queue.path):
        return True
    args.talk.say(f"nothing was written to {args.dir} yet; waiting")
    args.start = "start"  # whatever comes first is new
    started = time.monotonic()
    while not kind_of(queue.path):
        if args.timeout is not None and time.monotonic() - started >= args.timeout:
            return False
        time.sleep(0.02)
    return True


def _follow(reading: "Reading", shape: "Shape", args: Namespace) -> None:
    from serai import Corrupt, DeadProducer
    from serai import tail as follow

    with data() as out:
        out.write(shape.head())
        out.flush()
        while args.count is None or reading.count < args.count:
            before = reading.reader.offset
            try:
                for message in reading.messages(follow(reading.reader, timeout=args.timeout)):
                    out.write(shape.show(message))
                    if reading.count == args.count:
                        return
                    if not reading.reader.wait(1):  # nothing more at once: show what there is
                        out.flush()
                return
            except (Corrupt, DeadProducer) as error:
                reading.pass_by(error, before)


# ---- the directory ---------------------------------------------------------------------------------


def stat(args: Namespace) -> int:
    """Shows the numbers of a queue."""
    import json
    from dataclasses import asdict

    from serai.cli.opening import open_queue, say_empty

    with open_queue(args, "r") as queue:
        say_empty(args)
        facts = asdict(queue.stat())
    if args.output == "table":
        rows = [(name.replace("_", " "), _fact(name, value)) for name, value in facts.items()]
        print(table(("what", "value"), rows))
    else:
        print(json.dumps(facts, indent=2 if args.output == "json" else None))
    return 0


def _fact(name: str, value: Any) -> str:
    if name in ("page_size", "disk_bytes"):
        return sized(value)
    if name == "producers":
        return ", ".join(value) or "-"
    return f"{value:,}" if name in ("messages", "index_pages", "data_pages", "compressed_pages") else str(value)


def compress(args: Namespace) -> int:
    """Compresses full pages; what they take before and after is said."""
    return _repack(args, "compressed")


def expand(args: Namespace) -> int:
    """The reverse."""
    return _repack(args, "expanded")


def _repack(args: Namespace, word: str) -> int:
    from serai.cli.opening import open_queue

    if not os.path.isdir(args.dir):
        open_queue(args, "r")  # says that there is none, and makes none
    with open_queue(args, "rw") as queue:
        before = queue.stat().disk_bytes
        args.talk.detail(f"{args.dir} takes {sized(before)}")
        count = queue.compress() if word == "compressed" else queue.expand()
        after = queue.stat().disk_bytes
    args.talk.say(f"{counted(count, 'page')} {word}; {args.dir} took {sized(before)}, now {sized(after)}")
    return 0
