"""What the queue tests share: golden vectors as directories, directories as bytes, fields as calls.

A field here is a pair (kind, value) with serai's kind names; values compare by `plain`, which turns floats into bits,
characters into code units and decimals into (unscaled, scale), so that NaN and 1.0 against 1.00 are told apart.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import serai

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VECTORS = Path(__file__).parent / "vectors" / "quick-queue"
KINDS = {"dec": "decimal", "uni": "unicode", "arr": "bytes", "bint": "big_integer", "bool": "boolean", "str": "string"}
FORMAT_SUFFIXES = {".qx", ".qmx", ".qd", ".qm"}
BAD_VALUE = (ValueError, TypeError, OverflowError)  # what the compiled core raises for a value it cannot pack

# ------------------------------------------------------------------------------------------------ vectors


@dataclass
class Golden:
    """One message of a vector."""

    offset: int
    begin: int
    size: int
    producer: str
    payload: bytes
    fields: list[tuple[str, Any]]


@dataclass
class Vector:
    """One golden directory."""

    name: str
    multi: bool
    dialect: str
    page_size: int
    files: dict[str, bytes]
    messages: list[Golden]
    expect: dict[str, Any] = field(default_factory=dict)

    def expand(self, folder: Path) -> Path:
        write_files(folder, self.files)
        return folder

    @property
    def producers(self) -> list[str]:
        return sorted({message.producer for message in self.messages})


def vector_names() -> list[str]:
    return sorted(path.stem for path in VECTORS.glob("*.json"))


def load(name: str) -> Vector:
    raw = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    return Vector(
        name=raw["case"],
        multi=raw["kind"] == "multi",
        dialect=raw["dialect"],
        page_size=raw["page_size"],
        files={path: bytes.fromhex(file["hex"]).ljust(file["size"], b"\0") for path, file in raw["files"].items()},
        messages=[golden(message) for message in raw["messages"]],
        expect=raw.get("expect", {}),
    )


def golden(raw: dict[str, Any]) -> Golden:
    return Golden(
        offset=raw["offset"],
        begin=raw["begin"],
        size=raw["length"],
        producer=raw["producer"] or "",
        payload=bytes.fromhex(raw["payload_hex"]),
        fields=[(KINDS.get(kind, kind), golden_value(kind, value)) for kind, value in raw["fields"]],
    )


def golden_value(kind: str, value: Any) -> Any:
    """The plain form of a value as a vector writes it."""
    match kind:
        case "long" | "bint":
            return int(value)
        case "float" | "double":
            return bytes.fromhex(value["bits"])
        case "dec":
            return int(value["unscaled"]), value["scale"]
        case "uni":
            return bytes.fromhex(value["utf16be_hex"]).decode("utf-16-be", "surrogatepass")
        case "arr":
            return bytes.fromhex(value)
        case _:
            return value


# ------------------------------------------------------------------------------------------------ values


def plain(kind: str, value: Any) -> Any:
    """A value that compares bit for bit: see the top."""
    match kind:
        case "float" | "double":
            return value if isinstance(value, bytes) else struct.pack(">f" if kind == "float" else ">d", value)
        case "char":
            return ord(value) if isinstance(value, str) else value
        case "unicode":
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        case "decimal":
            return unscaled(value) if isinstance(value, Decimal) else value
        case "bytes" | "sized_bytes":
            return bytes(value)
        case _:
            return value


def unscaled(value: Decimal) -> tuple[int, int]:
    """Java's pair of unscaled value and scale."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    magnitude = int(Decimal((0, digits, 0)))  # not through str, which refuses more than 4300 digits
    return -magnitude if sign else magnitude, -exponent


def unplain(kind: str, value: Any) -> Any:
    """What a pack call, a template or the oracle takes, of a plain value."""
    match kind:
        case "float":
            return struct.unpack(">f", value)[0]
        case "double":
            return struct.unpack(">d", value)[0]
        case _:
            return value


def pack(writer: serai.Writer, kind: str, value: Any) -> serai.Writer:
    """One pack call with a plain value."""
    call = getattr(writer, f"pack_{kind}")
    packed: serai.Writer = call(*value) if kind == "decimal" else call(unplain(kind, value))
    return packed


def pack_fields(writer: serai.Writer, fields: Iterable[tuple[str, Any]]) -> serai.Writer:
    """A new message with these fields, not yet written."""
    writer.new_message()
    for kind, value in fields:
        assert pack(writer, kind, value) is writer
    return writer


def unpack_fields(message: serai.Message, fields: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The same kinds read back; of `bytes` as many as the expected value has."""
    found = []
    for kind, expected in fields:
        call = getattr(message, f"unpack_{kind}")
        value = call(len(expected)) if kind == "bytes" else call()
        found.append((kind, plain(kind, value)))
    return found


# ------------------------------------------------------------------------------------------------ directories


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file that belongs to the format; helper files of serai are nobody's business."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in FORMAT_SUFFIXES
    }


def every_file(folder: Path) -> dict[str, bytes]:
    """Every file there is, helper files too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_same_files(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Names first, then sizes, then the first byte that differs: a wall of hex helps nobody."""
    assert sorted(found) == sorted(expected)
    assert {name: len(found[name]) for name in found} == {name: len(expected[name]) for name in expected}
    for name, content in expected.items():
        differs = [i for i in range(len(content)) if content[i] != found[name][i]]
        at = slice(max(0, differs[0] - 8), differs[0] + 24) if differs else slice(0)
        assert not differs, f"{name} at {differs[0]}: {found[name][at].hex(' ')} is not {content[at].hex(' ')}"


def patch(path: Path, position: int, data: bytes) -> None:
    """Overwrite a few bytes of a file, through the file and not through a mapping."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


# ------------------------------------------------------------------------------------------------ processes


def start_python(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs `source`; sys.argv[1:] are the arguments."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def finish_python(process: subprocess.Popen[str], *, timeout: float = 60) -> str:
    """What it printed; fails when it did."""
    try:
        out, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, out
    return out
