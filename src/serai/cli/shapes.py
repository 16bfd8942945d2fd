"""How a message looks on stdout, and how a line on stdin becomes one.

    text     the bytes, then a line end (on a terminal: control characters escaped)
    raw      the bytes and nothing else      hex, base64   one line each
    json     one array      jsonl   one object a line      table   for people

With field kinds the values take the place of the bytes: tab-separated in text, a list in JSON.  Values
that JSON has no form for are strings: decimals exactly, bytes in base64, infinities by name.  The same
forms are read back by `put --fields`.
"""

import base64
import binascii
import json
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from serai import Message
from serai._core.values import KINDS
from serai.cli.parser import nearest
from serai.cli.terminal import USAGE, Failure, paint

Show = Callable[[Message], bytes]


def json_line(value: object) -> bytes:
    """JSON in UTF-8; a lone surrogate, which UTF-8 has no form for, makes the line ASCII."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def plain(value: Any) -> Any:
    """An unpacked value as JSON can say it."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def written(value: Any) -> str:
    """An unpacked value in one column."""
    value = plain(value)
    return escaped(value) if isinstance(value, str) else json.dumps(value)


def escaped(text: str) -> str:
    """Text that cannot move a cursor, ring a bell or break a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def known(fields: list[str] | None) -> list[str] | None:
    """Field kinds, if all of them exist."""
    for name in fields or []:
        if name not in KINDS:
            why = f"the kinds are {', '.join(KINDS)}"
            what = f"{name!r} is no kind of field{nearest(name, KINDS)}"
            raise Failure(what, why, "--fields int,decimal,string", code=USAGE)
    return fields


def values(message: Message, kinds: Sequence[str]) -> tuple[Any, ...]:
    """The message read as these kinds."""
    try:
        return message.unpack(*kinds)
    except (EOFError, ValueError) as error:
        what = f"the message at offset {message.offset} does not read as {','.join(kinds)}"
        raise Failure(what, str(error), "see its bytes with --output hex and without --fields") from error


def payload(body: bytes) -> dict[str, str]:
    """Message bytes as a JSON member: text where they are text."""
    try:
        return {"payload": body.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(body).decode()}


def record(message: Message, kinds: Sequence[str] | None) -> dict[str, object]:
    """A message as a JSON object."""
    head: dict[str, object] = {"offset": message.offset, "size": message.size}
    if message.producer:
        head["producer"] = message.producer
    if kinds is None:
        return head | payload(message.payload)
    return head | {"values": [plain(value) for value in values(message, kinds)]}


def _text(message: Message) -> bytes:
    return message.payload + b"\n"


def _screen(message: Message) -> bytes:
    return escaped(message.payload.decode(errors="backslashreplace")).encode(errors="backslashreplace") + b"\n"


def _columns(kinds: Sequence[str]) -> Show:
    return lambda message: "\t".join(map(written, values(message, kinds))).encode(errors="backslashreplace") + b"\n"


def preview(body: bytes, width: int) -> str:
    """The start of a message, as far as it fits."""
    text = escaped(body[: 4 * width].decode(errors="backslashreplace"))
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def screen_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _row(kinds: Sequence[str] | None) -> Show:
    room = max(20, screen_width() - 31)

    def row(message: Message) -> bytes:
        shown = preview(message.payload, room) if kinds is None else "  ".join(map(written, values(message, kinds)))
        return f"{message.offset:>14}  {message.producer:<3}  {message.size:>8}  {shown}\n".encode(
            errors="backslashreplace"
        )

    return row


class Shape:
    """Bytes before, for each message, and after."""

    def __init__(self, output: str, kinds: Sequence[str] | None) -> None:
        if output in ("raw", "hex", "base64") and kinds is not None:
            raise Failure(
                f"--output {output} does not go with --fields", "it shows bytes, not values", "use --output jsonl"
            )
        text = _columns(kinds) if kinds is not None else _screen if sys.stdout.isatty() else _text
        shows: dict[str, Show] = {
            "text": text,
            "raw": lambda message: message.payload,
            "hex": lambda message: message.payload.hex().encode() + b"\n",
            "base64": lambda message: base64.b64encode(message.payload) + b"\n",
            "jsonl": lambda message: json_line(record(message, kinds)) + b"\n",
            "table": _row(kinds) if output == "table" else text,
        }
        self._array = output == "json"
        self._table = output == "table"
        self._kinds = kinds
        self._count = 0
        self.show = self._element if self._array else shows[output]

    def head(self) -> bytes:
        if self._table:
            shown = "payload" if self._kinds is None else "  ".join(self._kinds)
            return paint(f"{'offset':>14}  {'by':<3}  {'size':>8}  {shown}", "bold", sys.stdout).encode() + b"\n"
        return b"[" if self._array else b""

    def _element(self, message: Message) -> bytes:
        self._count += 1
        return (b"\n" if self._count == 1 else b",\n") + json_line(record(message, self._kinds))

    def foot(self) -> bytes:
        return b"\n]\n" if self._array and self._count else b"]\n" if self._array else b""


# ---- lines into messages ---------------------------------------------------------------------------


def decoder(form: str) -> Callable[[bytes], bytes]:
    """From one line to the bytes of one message."""

    def from_base64(line: bytes) -> bytes:
        try:
            return base64.b64decode(line, validate=True)
        except binascii.Error as error:
            raise Failure(
                f"{_shown(line)} is not base64", str(error), "use --input text to write it as it is"
            ) from error

    def from_hex(line: bytes) -> bytes:
        try:
            return bytes.fromhex(line.decode("ascii"))
        except ValueError as error:
            raise Failure(
                f"{_shown(line)} is not hexadecimal", str(error), "use --input text to write it as it is"
            ) from error

    return {"base64": from_base64, "hex": from_hex}.get(form, lambda line: line)


def row(line: bytes, kinds: Sequence[str]) -> tuple[Any, ...]:
    """A line of JSON as the values of one message."""
    wanted = f"a line for --fields is a JSON array of {len(kinds)} values: {', '.join(kinds)}"
    try:
        found = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise Failure(f"{_shown(line)} is not JSON", f"{wanted} ({error})", _array(kinds)) from error
    if not isinstance(found, list) or len(found) != len(kinds):
        raise Failure(f"{_shown(line)} does not fit the fields", wanted, _array(kinds))
    try:
        return tuple(_value(kind, value) for kind, value in zip(kinds, found, strict=True))
    except (ValueError, TypeError, InvalidOperation) as error:
        raise Failure(f"{_shown(line)} does not fit the fields", f"{error}; {wanted}", _array(kinds)) from error


def _value(kind: str, value: Any) -> Any:
    if kind == "decimal":
        if isinstance(value, bool):
            raise ValueError("true and false are no decimals")
        return Decimal(value)
    if kind in ("float", "double"):
        return float(value)
    if kind in ("bytes", "sized_bytes"):
        return base64.b64decode(value, validate=True)
    if kind == "boolean" and not isinstance(value, bool):
        raise ValueError(f"{value!r} is not true or false")
    return value


def _array(kinds: Sequence[str]) -> str:
    samples = {
        "boolean": True,
        "string": "x",
        "unicode": "x",
        "char": "x",
        "decimal": "0.10",
        "float": 0.5,
        "double": 0.5,
    }
    samples |= {"bytes": "AAEC", "sized_bytes": "AAEC"}
    return f"echo '{json.dumps([samples.get(kind, 1) for kind in kinds])}' | serai queue put DIR --fields {','.join(kinds)}"


def _shown(line: bytes) -> str:
    return repr(preview(line, 40))
