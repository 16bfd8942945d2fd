"""Arguments: argparse with suggestions for what was mistyped, and the options that several verbs share.

A word that is no verb, option or choice is answered with the nearest one.  The heavy half (difflib) is
loaded only for that answer.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from datetime import datetime

KINDS_HELP = "read each message as these kinds, as in int,decimal,string"
OF_MESSAGES = ("text", "jsonl", "table", "raw", "hex", "base64")  # how `cli.messages` can show them
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Layout(argparse.RawDescriptionHelpFormatter):
    """Help as it is written; the list of nouns or verbs begins with its first, not with the word for them."""

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):
            return "".join(self._format_action(each) for each in action._get_subactions())
        return super()._format_action(action)


class Parser(argparse.ArgumentParser):
    """A parser that knows what was meant."""

    def __init__(self, *, talk: bool = False, example: str = "", **options: Any) -> None:
        if example:
            options["epilog"] = f"example:\n  {example}"
        options.setdefault("formatter_class", Layout)
        super().__init__(allow_abbrev=False, **options)
        default = False if talk else argparse.SUPPRESS  # a verb's absence must not undo what the noun was given
        self.add_argument("-q", "--quiet", action="store_true", default=default, help="say nothing but errors")
        self.add_argument(
            "-v", "--verbose", action="store_true", default=default, help="say more, and where errors come from"
        )
        self.set_defaults(parser=self)

    def nouns(self, metavar: str) -> "argparse._SubParsersAction[Parser]":
        return self.add_subparsers(metavar=metavar, title=f"{metavar}s", parser_class=Parser)

    def parse(self, argv: Sequence[str] | None) -> argparse.Namespace:
        args, unknown = self.parse_known_args(argv)
        if unknown and "text" in args and not any(word.startswith("-") for word in unknown):
            args.text += unknown  # words behind options: argparse was content with none right behind DIR
        elif unknown:
            verb: Parser = args.parser
            options = [name for action in verb._actions for name in action.option_strings]
            strange = unknown[0].split("=")[0]
            verb.error(f"{unknown[0]!r} is not known here{nearest(strange, options)}")
        return args

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            known = ", ".join(names)
            raise argparse.ArgumentError(
                action, f"{value!r} is not known{nearest(str(value), names)} (there is {known})"
            )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n  try: {self.prog} --help\n")


def nearest(word: str, words: Iterable[str]) -> str:
    """A suggestion, as the end of a sentence; empty when nothing is near."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; did you mean {found[0]!r}?" if found else ""


def verb(
    verbs: "argparse._SubParsersAction[Parser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    text: str,
    aim: str,
    example: str,
    place: str = "",
) -> Parser:
    """A verb over one queue directory; `aim` is what it wants, as errors say it; with a `place` DIR may be left out."""
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", example=example)
    parser.add_argument("dir", metavar="DIR", nargs="?" if place else None, help=place or "directory of the queue")
    parser.set_defaults(run=run, aim=aim)
    return parser


def amount(text: str) -> int:
    """A whole number that is not negative; 10_000 is fine."""
    if not re.fullmatch(r"\d[\d_]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def whole(text: str) -> int:
    """A whole number for a setting; its bounds are `config`'s."""
    if not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def size(text: str) -> int:
    """Bytes: 4096, 64K, 1M, 1G."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; it is a number of bytes, or one with K, M or G")
    return int(found[1]) * _FACTORS[found[2]]


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def kinds(text: str) -> list[str]:
    """Field kinds, separated by commas; they are checked where they are used."""
    return [name.strip() for name in text.split(",")]


def add_output(parser: Parser, choices: Sequence[str]) -> None:
    parser.add_argument(
        "--output", choices=choices, default=choices[0], help=f"{' | '.join(choices)} (default: {choices[0]})"
    )


def add_reading(parser: Parser, *, start: str) -> None:
    """Where to start, how many, and how to read a message."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--offset", type=amount, metavar="X", help="start at this message")
    where.add_argument("--from", dest="start", choices=("start", "end"), default=start, help=f"(default: {start})")
    parser.add_argument("--count", type=amount, metavar="N", help="this many messages at most")
    add_meaning(parser)


def add_meaning(parser: Parser) -> None:
    parser.add_argument("--fields", type=kinds, metavar="KINDS", help=KINDS_HELP)
    add_dialect(parser)
    add_checksum(parser, "compare the checksum of each message")


def add_dialect(parser: Parser) -> None:
    parser.add_argument(
        "--dialect", choices=("seed", "java"), default="seed", help="how decimals are packed (default: seed)"
    )


def add_checksum(parser: Parser, text: str) -> None:
    parser.add_argument("--checksum", choices=("index24",), help=text)


def add_server(parser: Parser) -> None:
    """Which server a client verb talks to."""
    parser.add_argument(
        "--server", metavar="HOST:PORT", help="the server (default: SERAI_SERVER, else port 15555 of this machine)"
    )


def same_server(args: argparse.Namespace) -> str:
    """What a command that is shown has to say to reach the same server; nothing, if it would anyway."""
    from serai.config import server_default

    return "" if args.server == server_default() else f" --server {args.server}"


def moment(text: str) -> "int | str | datetime":
    """A place in a topic: start, end, an index, or how long ago: 90s, 10m, 2h, 7d."""
    if text in ("start", "end"):
        return text
    if re.fullmatch(r"\d[\d_]*", text):
        return int(text)
    found = re.fullmatch(r"-?(\d+)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no place; it is start, end, an index, or a time ago as 10m or 2h"
        )
    from datetime import datetime, timedelta

    try:
        return datetime.now(UTC) - timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is before all time; start is the oldest message") from None
