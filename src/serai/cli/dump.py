"""serai dump: the index entries of a queue, with what they point to; data directories and their logs in `cli.logs`."""

import sys
from argparse import Namespace, _SubParsersAction
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from serai.cli.parser import Parser, add_meaning, add_output, amount, verb
from serai.cli.terminal import FAILED, counted, data, paint

if TYPE_CHECKING:
    from serai import MultiQueue, Queue
    from serai.log.place import Entry

HEAD = f"{'offset':>14}  {'begin':>14}  {'size':>9}  {'by':<3}  {'sum':<6}  {'state':<10}  payload"


def add(nouns: "_SubParsersAction[Parser]") -> None:
    parser = verb(nouns, "dump", dump, text="show what lies in a queue, a data directory or one of its logs", aim="dump {dir}",
                  example="serai dump orders --count 3")  # fmt: skip
    parser.add_argument("--offset", type=amount, metavar="X", help="start at this entry; of a log: at this ordinal")
    parser.add_argument("--count", type=amount, metavar="N", help="this many entries at most")
    parser.add_argument("--records", action="store_true", help="of a log: its records instead of its messages")
    add_meaning(parser)
    add_output(parser, ("table", "json", "jsonl"))


def dump(args: Namespace) -> int:
    """Shows entries one by one; one whose bytes cannot be read is shown with the reason."""
    from serai.cli.opening import open_queue, say_empty
    from serai.cli.shapes import known
    from serai.log.audit import kind_of
    from serai.log.place import entries

    if kind_of(args.dir):
        from serai.cli.logs import dump_logs

        return dump_logs(args)
    known(args.fields)
    shown = broken = unfit = 0
    args.talk.summary = lambda: f"stopped after {counted(shown)}"
    with open_queue(args, "r") as queue, data() as out:
        say_empty(args)
        look = _looking(queue, args)
        show, head, foot = _shape(args)
        out.write(head)
        for entry in islice(entries(args.dir, offset=args.offset), args.count):
            found = look(entry)
            out.write(show(entry, found, shown))
            shown += 1
            broken += "problem" in found
            unfit += "unfit" in found
        out.write(foot)
    if broken:
        args.talk.warn(f"{counted(broken)} could not be read; serai verify {args.dir} says more")
    if unfit:
        args.talk.warn(
            f"{counted(unfit)} cannot be read as {','.join(args.fields)}; without --fields the bytes are shown"
        )
    return FAILED if broken or unfit else 0


Found = dict[str, object]


def _looking(queue: "Queue | MultiQueue", args: Namespace) -> "Callable[[Entry], Found]":
    """What an entry points to, as a part of its JSON object."""
    from serai import Corrupt, DeadProducer
    from serai.cli import shapes
    from serai.cli.terminal import Failure

    reader = queue.reader()

    def look(entry: "Entry") -> Found:
        if not entry.published:
            return {}
        try:
            message = reader.set_offset(entry.offset)
            if message is None:
                return {}
            if args.fields is None:
                return {**shapes.payload(message.payload)}
            return {"values": [shapes.plain(value) for value in shapes.values(message, args.fields)]}
        except (Corrupt, DeadProducer) as error:
            return {"problem": str(error)}
        except Failure as failure:  # the message is sound, it is made of something else
            return {"unfit": failure.why}

    return look


def _shape(args: Namespace) -> "tuple[Callable[[Entry, Found, int], bytes], bytes, bytes]":
    """How an entry is shown, and what stands before and behind all of them."""
    from serai.cli.shapes import json_line, screen_width

    if args.output == "table":
        room = max(20, screen_width() - 72)
        head = paint(HEAD, "bold", sys.stdout).encode() + b"\n"
        return (lambda entry, found, _number: _row(entry, found, room)), head, b""
    if args.output == "jsonl":
        return (lambda entry, found, _number: json_line(_record(entry, found)) + b"\n"), b"", b""
    commas = (b"\n", b",\n")
    return (lambda entry, found, number: commas[number > 0] + json_line(_record(entry, found))), b"[", b"\n]\n"


def _record(entry: "Entry", found: Found) -> Found:
    head: Found = {"offset": entry.offset, "begin": entry.begin, "size": entry.size, "published": entry.published}
    if entry.producer:
        head["producer"] = entry.producer
    if entry.checksum:
        head["checksum"] = f"{entry.checksum:06x}"
    return head | found


def _row(entry: "Entry", found: Found, room: int) -> bytes:
    from serai.cli.shapes import preview, written

    state = "damaged" if "problem" in found else "published" if entry.published else "unfinished"
    checksum = f"{entry.checksum:06x}" if entry.checksum else ""
    text = "  ".join(_cells(found, written)) if found else ""
    shown = text if "values" in found else preview(text.encode(errors="replace"), room)
    line = f"{entry.offset:>14}  {entry.begin:>14}  {entry.size:>9}  {entry.producer:<3}  {checksum:<6}  {state:<10}  {shown}"
    return line.rstrip().encode(errors="replace") + b"\n"


def _cells(found: Found, written: Callable[[object], str]) -> Iterator[str]:
    for value in found.values():
        if isinstance(value, list):
            yield from map(written, value)
        else:
            yield str(value)
