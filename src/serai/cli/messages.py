"""How a message that a server delivered looks on stdout.

text     the value, then a line end (on a terminal: control characters escaped)
raw      the value and nothing else      hex, base64   one line each
jsonl    one object a line, with topic, partition, index, key, headers, time
table    for people
"""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING

from serai.cli.shapes import escaped, json_line, preview, screen_width
from serai.cli.terminal import paint

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai._core.parcels import Message


def member(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a member of a JSON object: text where they are text."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def record(message: Message) -> dict[str, object]:
    """A message as a JSON object."""
    found: dict[str, object] = {
        "topic": message.topic, "partition": message.partition, "index": message.index, "time_ms": message.time_ms
    }  # fmt: skip
    if message.key is not None:
        found |= member("key", message.key)
    if message.headers:
        found["headers"] = [member("name", name) | member("value", value) for name, value in message.headers]
    return found | member("value", message.value)


def show(output: str, *, named: bool) -> Callable[[Message], bytes]:
    """A function that shows a message; `named`: with its topic in front."""
    room = max(20, screen_width() - 40)

    def screen(message: Message) -> bytes:
        return escaped(message.value.decode(errors="backslashreplace")).encode(errors="backslashreplace") + b"\n"

    def row(message: Message) -> bytes:
        key = preview(message.key or b"", 12)
        line = f"{message.partition:>9}  {message.index:>12}  {key:<12}  {preview(message.value, room)}\n"
        return line.encode(errors="backslashreplace")

    shows: dict[str, Callable[[Message], bytes]] = {
        "text": screen if sys.stdout.isatty() else lambda message: message.value + b"\n",
        "raw": lambda message: message.value,
        "hex": lambda message: message.value.hex().encode() + b"\n",
        "base64": lambda message: base64.b64encode(message.value) + b"\n",
        "jsonl": lambda message: json_line(record(message)) + b"\n",
        "table": row,
    }
    chosen = shows[output]
    if named and output in ("text", "table", "hex", "base64"):
        return lambda message: escaped(message.topic).encode() + b"  " + chosen(message)
    return chosen


def heads(output: str, *, named: bool) -> bytes:
    """What stands above the messages."""
    if output != "table":
        return b""
    text = f"{'partition':>9}  {'index':>12}  {'key':<12}  value"
    return paint(f"topic  {text}" if named else text, "bold", sys.stdout).encode() + b"\n"
