"""serai consume: the messages of a topic for a group; each is acknowledged once it was written out."""

from __future__ import annotations

import time
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any

from serai.cli.parser import OF_MESSAGES, Parser, add_output, add_server, amount, moment, same_server, seconds
from serai.cli.terminal import TIMED_OUT, counted, data

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from serai.client.sync import Consumer

GROUP = "serai"
COUNT = 1000  # messages asked for at once
FOREVER_S = 1e9


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the verb."""
    parser = nouns.add_parser(
        "consume", help="receive the messages of a topic",
        description="Receive the messages of a topic for a group, and acknowledge them. Ctrl-C ends it.",
        example="serai consume greetings --group readers --count 2",
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--group", metavar="G", default=GROUP, help=f"whose position it is (default: {GROUP})")
    parser.add_argument("--count", type=amount, metavar="N", help="end after so many messages")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="end when nothing came for so many seconds")
    parser.add_argument(
        "--from", dest="start", type=moment, metavar="WHERE",
        help="move the group first: start | end | an index | how long ago, as 10m or 2h",
    )  # fmt: skip
    add_output(parser, OF_MESSAGES)
    add_server(parser)
    parser.set_defaults(run=consume, aim="consume {topic} for {group}", dir="")


def consume(args: Namespace) -> int:
    """Receive until the count, the time or Ctrl-C."""
    from serai.client.sync import Client

    args.received = 0
    with Client(args.server) as client:
        consumer = client.consumer(args.topic, group=args.group)
        if args.start is not None:
            consumer.seek(args.start)
        args.talk.say(_where(args, consumer))
        args.talk.summary = lambda: f"stopped after {_summary(args)}"
        _receive(args, consumer)
    args.talk.detail(_summary(args))
    if args.count is not None and args.received < args.count:
        args.talk.say(f"only {counted(args.received)} of {args.count:,} came; nothing for {args.timeout:g} s")
        return TIMED_OUT
    return 0


def _where(args: Namespace, consumer: Consumer) -> str:
    """Where it waits, and how to begin anew."""
    standing = consumer.standing()
    places = ", ".join(f"partition {each.partition} at {each.index:,} of {each.end:,}" for each in standing)
    waits = "; nothing is new, it waits until Ctrl-C" if all(each.index == each.end for each in standing) else ""
    again = f"serai consume {quote(args.topic)} --group {quote(args.group)} --from start{same_server(args)}"
    return (
        f"group {args.group} of {args.topic}: {places}{waits if args.timeout is None else ''}; all over again: {again}"
    )


def _summary(args: Namespace) -> str:
    return f"{counted(args.received)} of {args.topic} for {args.group}"


def _receive(args: Namespace, consumer: Consumer) -> None:
    from serai.cli.messages import heads, show

    shown = show(args.output, named=False)
    with data() as out:
        out.write(heads(args.output, named=False))
        out.flush()
        until_s: Any = time.monotonic() + (FOREVER_S if args.timeout is None else args.timeout)
        while args.count is None or args.received < args.count:
            left = COUNT if args.count is None else min(COUNT, args.count - args.received)
            delivery = consumer.fetch_many(left, timeout=max(until_s - time.monotonic(), 0.0))
            if delivery is None:
                break
            # A batch comes whole: what is more than was asked for is not acknowledged, and comes again.
            messages = list(islice(delivery, left))
            out.write(b"".join(map(shown, messages)))
            out.flush()
            for message in messages:
                message.ack()
            args.received += len(messages)
            until_s = time.monotonic() + (FOREVER_S if args.timeout is None else args.timeout)
        consumer.flush()
