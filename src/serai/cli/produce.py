"""serai produce: messages to a topic, from the words of the command or from stdin, a line each."""

from __future__ import annotations

import os
import sys
from itertools import cycle, islice
from typing import TYPE_CHECKING

from serai.cli.parser import Parser, add_server, amount
from serai.cli.terminal import USAGE, Failure, counted

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Iterator

    from serai.client.sync import Producer, Sent

CHUNK_BYTES = 1 << 20
MANY = 1000  # messages of one request
OPEN_MAX = 200  # requests whose outcome is not known


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the verb."""
    parser = nouns.add_parser(
        "produce", help="send messages to a topic",
        description="Send messages to a topic: each MESSAGE, or each line of stdin.",
        example="serai produce greetings hello world",
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC", help="made at first use, unless the server does not do that")
    parser.add_argument(
        "text", metavar="MESSAGE", nargs="*", default=[], help="one message each; without any, stdin is read"
    )
    parser.add_argument("--key", metavar="KEY", help="of every message; those of one key share a partition")
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="of every message; may be repeated"
    )
    parser.add_argument(
        "--ack", choices=("commit", "receive", "none"), default="commit",
        help="be told when it is on the disk, when it is in the log, or not at all (default: commit)",
    )  # fmt: skip
    parser.add_argument(
        "--count", type=amount, metavar="N", help="so many messages: MESSAGEs over and over, or the first N lines"
    )
    parser.add_argument(
        "--input", choices=("text", "base64", "hex", "raw"), default="text",
        help="what a MESSAGE or line is; raw takes all of stdin as one message (default: text)",
    )  # fmt: skip
    parser.add_argument("--positions", action="store_true", help="print partition and index of each message")
    add_server(parser)
    parser.set_defaults(run=produce, aim="send to {topic}", dir="")


def produce(args: Namespace) -> int:
    """Send, and wait until the server has everything."""
    from serai.client.sync import Client

    headers = [_header(args, word) for word in args.header]
    with Client(args.server) as client:
        producer = client.producer(args.topic, level=args.ack)
        told = _Told(args)
        args.talk.summary = lambda: f"stopped; {told.summary()}"
        plain = args.key is None and not headers and not args.positions
        for bodies in _bodies(args):
            if plain:
                for start in range(0, len(bodies), MANY):
                    told.add(producer.send_many(bodies[start : start + MANY]))
            else:
                for body in bodies:
                    told.add(producer.send(body, key=args.key, headers=headers))
            told.look(producer, last=False)
        told.look(producer, last=True)
        args.talk.say(told.summary())
    return 0


class _Told:
    """What the server has answered."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._open: list[Sent] = []
        self._count = 0
        self._last = ""

    def add(self, sent: Sent) -> None:
        self._open.append(sent)

    def look(self, producer: Producer, *, last: bool) -> None:
        """Take outcomes, oldest first; all of them in the end."""
        if last:
            producer.flush()
        done = 0
        for sent in self._open:
            if not (last or sent.done() or len(self._open) - done > OPEN_MAX):
                break
            done += 1
            position = sent.result()
            self._count += position.count
            if position.index >= 0:
                self._last = (
                    f", the last at partition {position.partition}, index {position.index + position.count - 1}"
                )
            if self._args.positions:
                print(position.partition, position.index)
        del self._open[:done]

    def summary(self) -> str:
        what = "sent to" if self._args.ack == "none" else "stored in"
        return f"{counted(self._count)} {what} {self._args.topic}{self._last}"


def _header(args: Namespace, word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise Failure(
            f"cannot read --header {word}", "it has no name and value", f"{args.parser.prog} --help", code=USAGE
        )
    return name, value


def _bodies(args: Namespace) -> Iterator[list[bytes]]:
    """Lists of messages, each as soon as it is there."""
    from serai.cli.shapes import decoder
    from serai.limits import FRAME_BYTES_MAX

    decode = decoder(args.input)
    if args.text:
        bodies = [decode(os.fsencode(text)) for text in args.text]
        count = len(bodies) if args.count is None else args.count
        turns = cycle(bodies)
        for start in range(0, count, MANY):
            yield list(islice(turns, min(MANY, count - start)))
    elif args.input == "raw":
        yield [sys.stdin.buffer.read(FRAME_BYTES_MAX + 1)]
    else:
        if sys.stdin.isatty():
            args.talk.say("each line is a message; Ctrl-D ends")
        yield from ([decode(line) for line in lines] for lines in _lines(args.count))


def _lines(count: int | None) -> Iterator[list[bytes]]:
    from serai.limits import FRAME_BYTES_MAX

    rest = b""
    while (count is None or count > 0) and (chunk := os.read(sys.stdin.fileno(), CHUNK_BYTES)):
        *lines, rest = (rest + chunk).split(b"\n")
        lines = lines[:count]
        if count is not None:
            count -= len(lines)
        if lines:
            yield lines
        if len(rest) > FRAME_BYTES_MAX:  # a message that the producer refuses, before all of it is held
            break
    if rest and (count is None or count > 0):
        yield [rest]
