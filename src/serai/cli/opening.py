"""Opening the queue a command names: of one producer or several, as the directory says.

A command that reads makes no directory; a reader that meets damage says so once and goes on behind it,
which the exit code remembers.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from serai import Corrupt, DeadProducer, Message, MultiQueue, Queue, Reader
from serai.cli.terminal import FAILED, USAGE, Failure, Talk
from serai.log.place import kind_of


def open_queue(args: Namespace, mode: str) -> Queue | MultiQueue:
    """The queue in args.dir; --producer or what lies there decides which kind it is."""
    path = Path(args.dir)
    if mode == "r":
        need_directory(args)
    kind = kind_of(path) if path.is_dir() else ""
    producer, page_size, checksum = (getattr(args, name, None) for name in ("producer", "page_size", "checksum"))
    dialect = getattr(args, "dialect", "seed")
    _refuse(args, path, kind)
    if producer or kind == "multi":
        return MultiQueue(path, mode, producer, page_size, dialect)
    return Queue(path, mode, page_size, dialect, checksum)


def need_directory(args: Namespace) -> None:
    """A command that reads makes none."""
    path = Path(args.dir)
    if not path.is_dir():
        file, none = (
            ("it is a file", f"ls -l {path}"),
            ("there is no such directory", f"serai queue put {path} hello"),
        )
        why, hint = file if path.exists() else none
        raise Failure(f"cannot {args.aim.format(dir=path)}", why, hint)


def say_empty(args: Namespace) -> None:
    """An empty answer is no answer where nobody has written: another directory may have been meant."""
    if not kind_of(args.dir):
        args.talk.say(f"there is no page of a queue in {args.dir}: nothing was written there yet")


def _refuse(args: Namespace, path: Path, kind: str) -> None:
    """What the directory does not go with, in the words of the command line."""
    producer, checksum = getattr(args, "producer", None), getattr(args, "checksum", None)
    if checksum and (producer or kind == "multi"):
        raise Failure(
            f"cannot use --checksum on {path}", "it keeps checksums where a queue of several producers keeps their names",
            "leave --checksum out", code=USAGE,
        )  # fmt: skip
    if kind == "multi" and "producer" in args and not producer:
        raise Failure(
            f"cannot {args.aim.format(dir=path)}", "several producers write into it, each under a producer name of its own",
            f"{args.parser.prog} {path} --producer AA0 ...", code=USAGE,
        )  # fmt: skip
    if kind == "single" and producer:
        raise Failure(
            f"cannot {args.aim.format(dir=path)} as {producer}", "it is a queue of one producer, which has no name",
            "leave --producer out", code=USAGE,
        )  # fmt: skip


class Reading:
    """Messages one by one; damage is said, counted and passed."""

    def __init__(self, reader: Reader, talk: Talk) -> None:
        self.reader = reader
        self.talk = talk
        self.count = 0
        self.damaged = 0
        self.bytes = 0

    def messages(self, source: Iterator[Message] | None = None) -> Iterator[Message]:
        """Everything up to the tail, or up to the end of `source`."""
        for message in self.reader if source is None else source:
            self.count += 1
            self.bytes += message.size
            yield message

    def all(self, count: int | None) -> Iterator[Message]:
        """Up to `count` messages from here to the tail, over damaged ones."""
        while count is None or self.count < count:
            before = self.reader.offset
            try:
                for message in self.messages():
                    yield message
                    if self.count == count:
                        return
                return
            except (Corrupt, DeadProducer) as error:
                self.pass_by(error, before)

    def pass_by(self, error: Exception, before: int) -> None:
        """Says what is wrong; raises it when the reader did not get past."""
        if self.reader.offset <= before:
            raise error
        self.damaged += 1
        self.talk.warn(str(error))

    @property
    def code(self) -> int:
        return FAILED if self.damaged else 0


def start_of(queue: Queue | MultiQueue, args: Namespace, *, back: int) -> int | None:
    """The offset --offset or --from names; from the end it is `back` messages before it."""
    if args.offset is not None or args.start == "start":
        offset: int | None = args.offset
        return offset
    reader = queue.reader()
    first, last = reader.offset, queue.last()
    return first if last is None else max(first, last.offset + 16 - 16 * back)
