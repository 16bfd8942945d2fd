"""serai check history: whether a broker may have done what its clients saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai.cli.parser import Parser, add_output
from serai.cli.terminal import FAILED, Failure, counted, table

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from serai.client.history import Seen


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the noun and its verb."""
    verbs = nouns.add_parser(
        "check", help="judge what clients saw", description="Whether a broker kept its promises."
    ).nouns("verb")
    parser = verbs.add_parser(
        "history", help="look for messages that were lost, doubled, moved or altered",
        description="Look for messages that were lost, doubled, moved or altered, in a file of events: a line of JSON each.",
        example="serai check history history.jsonl",
    )  # fmt: skip
    parser.add_argument("file", metavar="FILE", help="what producers and consumers saw")
    add_output(parser, ("table", "json", "jsonl"))
    parser.set_defaults(run=history, aim="check {file}", dir="")


def history(args: Namespace) -> int:
    """Findings on stdout, a verdict on stderr; code 1 when there is any."""
    from serai.client.history import check

    try:
        with open(args.file, encoding="utf-8") as file:
            seen = check(file)
    except FileNotFoundError:
        raise Failure(f"cannot check {args.file}", "there is no such file", f"{args.parser.prog} --help") from None
    _show(args, seen)
    received = sum(len(names) for names in seen.received.values())
    args.talk.say(
        f"{args.file}: {counted(len(seen.sums))} sent, {len(seen.stored):,} stored, {seen.unknown:,} unknown,"
        f" {received:,} received by {counted(len(seen.received), 'group')}: {counted(len(seen.findings), 'finding')}"
    )
    if not seen.ended:
        args.talk.warn("no group came to the end, so nothing can be said about lost messages")
    return FAILED if seen.findings else 0


def _show(args: Namespace, seen: Seen) -> None:
    if args.output == "table":
        if seen.findings:
            print(table(("what", "message", "line", "why"), seen.findings))
        return
    import json

    rows = [finding._asdict() for finding in seen.findings]
    if args.output == "json":
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(json.dumps(row))
