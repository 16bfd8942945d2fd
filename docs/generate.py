# ruff: noqa: INP001, T201 - a program, not a package
"""Writes the generated parts of the format pages from the code; with --check it says whether they have drifted.

    <!-- NAME: made by docs/generate.py -->  ...  <!-- NAME: end -->

The bytes of each kind are not described but packed, the numbers are read from where the code has them, and the tables of a
protocol are made of its layouts, so a page cannot say what the code does not do.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import serai
from serai import errors, limits
from serai._core.values import KINDS
from serai.broker.policy import ConsumerPolicy, ProducerPolicy, TopicPolicy
from serai.doors.jmq.schema import commands, frame
from serai.doors.jmq.schema import numbers as jmq_numbers
from serai.log import format as names
from serai.wire.describe import bit_table, table
from serai.wire.layout import all_parts

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = sorted(page for folder in ("formats", "guide") for page in (Path(__file__).parent / folder).glob("*.md"))
PART = re.compile(r"(<!-- (?P<name>\w+): made by docs/generate.py -->\n).*?(<!-- (?P=name): end -->)", re.DOTALL)
SAMPLES: dict[str, list[Any]] = {
    "byte": [-2], "boolean": [True], "short": [258], "char": ["A"], "int": [66051], "long": [1], "float": [1.0],
    "double": [1.0], "string": ["AB"], "unicode": ["A€"], "decimal": [Decimal("-1.28"), Decimal("1E-200")],
    "big_integer": [128], "bytes": [b"AB"], "sized_bytes": [b"AB"],
}  # fmt: skip


def packed(kind: str, value: Any, dialect: str) -> str:
    """One value as the bytes of a message."""
    with tempfile.TemporaryDirectory() as folder, serai.Queue(folder, page_size=4096, dialect=dialect) as queue:
        getattr(queue.new_message(), f"pack_{kind}")(value).write_message()
        return " ".join(f"{byte:02x}" for byte in next(queue.reader().payloads()))


def values() -> str:
    """A row for every kind."""
    rows = ["| kind | value | `seed` | `java` |", "|---|---|---|---|"]
    for kind in KINDS:
        for value in SAMPLES[kind]:
            seed, java = (packed(kind, value, dialect) for dialect in names.DIALECTS)
            shown = str(value) if isinstance(value, Decimal) else repr(value)
            rows.append(f"| `{kind}` | `{shown}` | `{seed}` | {'the same' if java == seed else f'`{java}`'} |")
    return "\n".join(rows) + "\n"


def numbers() -> str:
    """A row for every constant that another program needs."""
    rows = [
        ("bytes of an index entry", names.SLOT_BYTES),
        ("end flag of a published entry", f"{names.PUBLISHED:#04x}"),
        ("bytes of a producer's state", names.STATE_BYTES),
        ("page length", f"{limits.PAGE_BYTES_MIN} to {limits.PAGE_BYTES_MAX}, by default {limits.PAGE_BYTES_DEFAULT}"),
        ("highest page number", limits.PAGE_NUMBER_MAX),
        ("most bytes of a message", names.MESSAGE_BYTES_MAX),
        ("plain bytes in a frame of a compressed page", limits.FRAME_BYTES),
        ("byte of the newest index page that a single producer locks (serai only)", f"{names.WRITER_LOCK_BYTE:#x}"),
    ]
    return "| | |\n|---|---|\n" + "".join(f"| {what} | {value} |\n" for what, value in rows)


def jmq_heads() -> str:
    """What stands around a payload."""
    return f"{table(frame.Head)}\nIn an answer then:\n\n{table(frame.Status)}\n{bit_table(frame.Identity)}"


def jmq_messages() -> str:
    """A message, its bits, and the members of a batch."""
    parts = [table(frame.Message), bit_table(frame.SystemCode), table(frame.BatchHead), table(frame.Member)]
    return "\n".join(parts)


def jmq_commands() -> str:
    """A section for each command and its answer."""
    found = []
    for code, command in sorted(commands.COMMANDS.items()):
        found.append(f"### {code} {command.__name__}\n\n{(command.__doc__ or '').strip()}\n")
        found.append(table(command) if all_parts(command) else "No payload.\n")
        if command.reply is None:
            found.append("The answer has no payload.\n")
        else:
            found.append(f"Answer {-code}:\n\n{table(command.reply)}")
    return "\n".join(found)


def jmq_numbers_table() -> str:
    """Every number in words, and which house words it stands for."""
    said: dict[int, list[str]] = {}
    for code, meaning in jmq_numbers.MEANINGS.items():
        said.setdefault(meaning.number, []).append(code)
        if meaning.fetching is not None:
            said.setdefault(meaning.fetching, []).append(f"{code} (fetching)")
        if meaning.seed is not None:
            said.setdefault(meaning.seed, []).append(f"{code} (seed)")
    rows = ["| number | meaning | of the house |\n|---|---|---|\n"]
    for one in jmq_numbers.Number:
        words = one.name.lower().replace("_", " ")
        rows.append(f"| {one.value} | {words} | {', '.join(f'`{code}`' for code in said.get(one, []))} |\n")
    return "".join(rows)


def jmq_levels() -> str:
    """What a producer's quality byte waits for."""
    words = {jmq_numbers.NONE: "nothing", jmq_numbers.RECEIVE: "stored, flushed later", jmq_numbers.COMMIT: "flushed"}
    rows = ["| value | seed, house | real |\n|---|---|---|\n"]
    for value in range(5):
        waits = [words.get(jmq_numbers.LEVELS[dialect].get(value, -1), "code 6") for dialect in ("seed", "real")]
        rows.append(f"| {value} | {waits[0]} | {waits[1]} |\n")
    return "".join(rows)


def policy(kind: type) -> str:
    """A row for every setting, from the lines of the class."""
    rows = ["| word | default | |\n|---|---|---|\n"]
    for line in inspect.getsource(kind).splitlines():
        found = re.match(r" {4}(\w+): .* = (.*?)  #: (.*)", line)
        if found:
            rows.append(f"| `{found[1]}` | `{json.dumps(getattr(kind(), found[1]))}` | {found[3]} |\n")
    return "".join(rows)


def refusals() -> str:
    """The table of `errors.py`."""
    rows = [f"| `{code}` | {meaning} |\n" for code, meaning in sorted(errors.REFUSALS.items())]
    return "| code | meaning |\n|---|---|\n" + "".join(rows)


PARTS: dict[str, Callable[[], str]] = {
    "values": values,
    "numbers": numbers,
    "jmq_heads": jmq_heads,
    "jmq_messages": jmq_messages,
    "jmq_commands": jmq_commands,
    "jmq_numbers": jmq_numbers_table,
    "jmq_levels": jmq_levels,
    "topic_policy": lambda: policy(TopicPolicy),
    "producer_policy": lambda: policy(ProducerPolicy),
    "consumer_policy": lambda: policy(ConsumerPolicy),
    "refusals": refusals,
}


def renew(page: Path, *, checking: bool) -> bool:
    """Writes a page's generated parts; True if it differed from what is there and may not be written."""
    text = page.read_text(encoding="utf-8")
    fresh = PART.sub(lambda part: part[1] + PARTS[part["name"]]() + part[3], text)
    if fresh == text:
        return False
    if checking:
        print(f"{page.name}: a generated part has drifted; `python docs/generate.py` writes it again")
        return True
    page.write_text(fresh, encoding="utf-8")
    print(f"wrote {page}")
    return False


def main() -> int:
    """Write, or with --check compare."""
    drifted = [renew(page, checking="--check" in sys.argv[1:]) for page in PAGES]
    return int(any(drifted))


if __name__ == "__main__":
    sys.exit(main())
