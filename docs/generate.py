# ruff: noqa: INP001, T201 - a program, not a package
"""Writes the generated parts of the format page from the code; with --check it says whether they have drifted.

    <!-- NAME: made by docs/generate.py -->  ...  <!-- NAME: end -->

The bytes of each kind are not described but packed, and the numbers are read from `serai.log.format` and
`serai.limits`, so the page cannot say what the code does not do.
"""

from __future__ import annotations

import re
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import serai
from serai import limits
from serai._core.values import KINDS
from serai.log import format as names

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parent / "formats" / "quick-queue.md"
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


PARTS: dict[str, Callable[[], str]] = {"values": values, "numbers": numbers}


def main() -> int:
    """Write, or with --check compare."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = PART.sub(lambda part: part[1] + PARTS[part["name"]]() + part[3], text)
    if fresh == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.name}: a generated part has drifted; `python docs/generate.py` writes it again")
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
