"""serai dump over a data directory, or one log of it: what lies there, record by record or message by message."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from serai.cli.shapes import escaped, json_line, payload, preview, screen_width
from serai.cli.terminal import FAILED, USAGE, Failure, counted, data, paint, table
from serai.log import listing
from serai.log.audit import kind_of, logs_of
from serai.log.format import DATA_KIND
from serai.log.view import View

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from serai.log.listing import Row, Summary

COLUMNS = ("log", "first", "end", "committed", "place", "records", "epoch", "pages", "disk", "written by")
WIDTHS = {"ordinal": 12, "begin": 12, "size": 8, "length": 8, "messages": 8, "place": 12, "time_ms": 14, "epoch": 6}
RECORD_COLUMNS = ("messages", "dress", "begin", "length", "place", "time_ms", "epoch", "part", "last")


def dump_logs(args: Namespace) -> int:
    """A data directory as its logs, a partition as its messages or records, a state log as its changes."""
    from serai.cli.shapes import known

    known(args.fields)
    if args.fields is not None:
        raise Failure(
            f"cannot {args.aim.format(dir=args.dir)} as fields", "its messages have a dress, not the fields of a queue",
            f"serai dump {args.dir}", code=USAGE,
        )  # fmt: skip
    path = Path(args.dir)
    if kind_of(path) == DATA_KIND:
        return _summaries(path, args)
    args.talk.summary = lambda: "stopped"
    with View(path) as view:
        first = max(view.first, view.first if args.offset is None else args.offset)
        is_state = path.parent.name == "s"
        rows = (listing.records if args.records else listing.changes if is_state else listing.messages)(view, first)
        return _show(islice((row for row in rows if row.ordinal >= first or args.records), args.count), args)


def _summaries(path: Path, args: Namespace) -> int:
    found, broken = [], 0
    for name, one in logs_of(path).items():
        try:
            found.append(listing.summary(name, one))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one log, the others are shown
            args.talk.warn(f"{name}: {error}; serai verify {args.dir} says more")
            broken += 1
    if args.output == "table":
        print(table(COLUMNS, [_cells(one) for one in found]))
    elif args.output == "jsonl":
        print("".join(json.dumps(asdict(one)) + "\n" for one in found), end="")
    else:
        print(json.dumps([asdict(one) for one in found], indent=2))
    return FAILED if broken else 0


def _cells(one: Summary) -> list[object]:
    return [
        one.log, one.first, one.end, one.committed, one.end_place, one.records, one.epoch, one.pages, one.disk_bytes,
        one.written_by,
    ]  # fmt: skip


def _show(rows: Iterator[Row], args: Namespace) -> int:
    broken = shown = 0
    with data() as out:
        if args.output == "json":
            out.write(b"[")
        for row in rows:
            broken += bool(row.problem)
            if args.output == "table":
                if shown == 0:
                    out.write(_head(row).encode() + b"\n")
                out.write(_line(row).encode(errors="replace") + b"\n")
            else:
                comma = b"" if args.output == "jsonl" else b",\n" if shown else b"\n"
                out.write(comma + json_line(_object(row)) + (b"\n" if args.output == "jsonl" else b""))
            shown += 1
        if args.output == "json":
            out.write(b"\n]\n" if shown else b"]\n")
    if broken:
        args.talk.warn(f"{counted(broken, 'place')} could not be read; serai verify {args.dir} says more")
    return FAILED if broken else 0


def _object(row: Row) -> dict[str, object]:
    if row.problem:
        return {"ordinal": row.ordinal, "problem": row.problem}
    found: dict[str, object] = {"ordinal": row.ordinal, **row.said}
    if row.key is not None:
        try:
            found["key"] = row.key.decode()
        except UnicodeDecodeError:
            found["key_base64"] = base64.b64encode(row.key).decode()
    return found if row.body is None else found | payload(row.body)


def _columns(row: Row) -> list[str]:
    return [name for name in row.said if "messages" not in row.said or name in RECORD_COLUMNS]


def _head(row: Row) -> str:
    names = "".join(f"  {name:<{WIDTHS.get(name, 5)}}" for name in _columns(row))
    rest = "" if "messages" in row.said else "  key and payload"
    return paint(f"{'ordinal':>12}{names}{rest}", "bold", sys.stdout)


def _line(row: Row) -> str:
    if row.problem:
        return f"{row.ordinal:>12}  damaged: {row.problem}"
    cells = "".join(f"  {_cell(row.said[name]):<{WIDTHS.get(name, 5)}}" for name in _columns(row))
    key = "" if row.key is None else escaped(row.key.decode(errors="backslashreplace")) + " "
    room = max(20, screen_width() - 16 - len(cells) - len(key))
    return f"{row.ordinal:>12}{cells}  {key}{preview(row.body or b'', room)}".rstrip()


def _cell(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
