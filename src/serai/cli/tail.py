"""serai tail: messages of topics as they come; nothing is acknowledged, no group moves."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from serai.cli.parser import OF_MESSAGES, Parser, add_output, add_server, amount, moment, seconds
from serai.cli.terminal import TIMED_OUT, USAGE, Failure, counted, data

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable, Iterator

    from serai._core.parcels import Message
    from serai.client.sync import Reader

LOOK_S = 0.05


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the verb."""
    parser = nouns.add_parser(
        "tail", help="watch topics", description="Show messages of topics as they come, without a group. Ctrl-C ends it.",
        example="serai tail greetings --since start --timeout 0.5",
    )  # fmt: skip
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    parser.add_argument(
        "--since", type=moment, default="end", metavar="WHERE",
        help="start | end | an index | how long ago, as 10m or 2h (default: end)",
    )  # fmt: skip
    parser.add_argument("--match", metavar="REGEX", help="only messages whose value has this in it")
    parser.add_argument("--key", metavar="REGEX", help="only messages whose key has this in it")
    parser.add_argument("--count", type=amount, metavar="N", help="end after so many messages")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="end when nothing came for so many seconds")
    add_output(parser, OF_MESSAGES)
    add_server(parser)
    parser.set_defaults(run=tail, aim="watch {words}", dir="")


def tail(args: Namespace) -> int:
    """Watch until the count, the time or Ctrl-C."""
    from serai.cli.messages import heads, show
    from serai.client.sync import Client

    args.words = ", ".join(args.topics)
    wanted = _filter(args)
    named = len(args.topics) > 1
    shown, count = show(args.output, named=named), 0
    args.talk.summary = lambda: f"stopped after {counted(count)}"
    with Client(args.server) as client, data() as out:
        readers = [client.reader(topic, start=args.since) for topic in args.topics]
        if args.since == "end":
            until = ", until Ctrl-C" if args.count is None and args.timeout is None else ""
            args.talk.say(f"what comes to {args.words} from now on{until}; what was before: --since start")
        out.write(heads(args.output, named=named))
        out.flush()
        for message in _messages(readers, args.timeout):
            if message is None:
                out.flush()
            elif wanted(message):
                out.write(shown(message))
                count += 1
                if count == args.count:
                    return 0
    if args.count is not None:
        args.talk.say(f"only {counted(count)} of {args.count:,} came; nothing for {args.timeout:g} s")
        return TIMED_OUT
    return 0


def _messages(readers: list[Reader], timeout: float | None) -> Iterator[Message | None]:
    """The messages of all readers; None when there is nothing for a moment."""
    since_s = time.monotonic()
    while timeout is None or time.monotonic() - since_s < timeout:
        for reader in readers:
            while (delivery := reader.fetch_many(timeout=0)) is not None:
                yield from delivery
                since_s = time.monotonic()
        yield None
        time.sleep(LOOK_S)


def _filter(args: Namespace) -> Callable[[Message], bool]:
    def compiled(text: str | None) -> re.Pattern[bytes] | None:
        try:
            return None if text is None else re.compile(text.encode())
        except re.error as error:
            raise Failure(
                f"cannot look for {text}",
                f"it is no regular expression: {error}",
                f"{args.parser.prog} --help",
                code=USAGE,
            ) from error

    value, key = compiled(args.match), compiled(args.key)
    return lambda message: (
        (value is None or value.search(message.value) is not None)
        and (key is None or key.search(message.key or b"") is not None)
    )
