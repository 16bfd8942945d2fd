"""Quick-Queue in plain Python and plain file I/O: the format once more, as slowly and obviously as possible.

A queue is two endless byte streams, index and data, each cut into page files of P bytes: `<n>.qx` and `<n>.qd`.

    index entry   0        8     12   15 16        stamp, little endian: the name's characters stand
                  | begin  | size |name|flag|      in reverse, so that the flag has the highest address

    single   <dir>/<n>.qx       <dir>/<n>.qd
    multi    <dir>/<n>.qx       <dir>/<NAME>/<n>.qd      <dir>/<NAME>.qm = endA endB lastIndex unused, int64 each
             (java: `.qmx`)

- A page file has its full length from the first byte that is put into it; a missing page reads as zeros.
- flag 0x7F publishes an entry; an all-zero entry is free.
- Values have no tags and no alignment and may run on in the next page.
- endA and endB take turns, endB first, so min and max are begin and end of the producer's newest message.

What it leaves out: locks (a producer with an unfinished entry is taken for dead), concurrency, errors of the disk.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracle.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENTRY = 16
PUBLISHED = 0x7F
LITTLE = sys.byteorder == "little"
ORDER = "<" if LITTLE else ">"
PAGES = {".qx", ".qmx", ".qd"}
UTF16 = "utf-16-le" if LITTLE else "utf-16-be"
NUMBERS = {"byte": "b", "short": "h", "int": "i", "long": "q", "float": "f", "double": "d"}
DECIMAL_TAG = {"seed": 0, "java": 1}  # of the short form; the long form has the next one

# ------------------------------------------------------------------------------------------------ values


def number(kind: str, value: float) -> bytes:
    return struct.pack(ORDER + NUMBERS[kind], value)


def twos_complement(value: int) -> bytes:
    """Fewest big-endian bytes, at least one: the form of Java's BigInteger."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def encode(kind: str, value: Any, dialect: str = "seed") -> bytes:
    """The bytes of one value; a char is its code unit, a decimal the pair (unscaled, scale)."""
    match kind:
        case "boolean":
            return bytes([bool(value)])
        case "char":
            return struct.pack(ORDER + "H", value)
        case "string":
            return bytes(value.encode("ascii")) + b"\0"
        case "unicode":
            return bytes(value.encode(UTF16, "surrogatepass")) + b"\0\0"
        case "bytes":
            return bytes(value)
        case "sized_bytes":
            return number("int", len(value)) + bytes(value)
        case "big_integer":
            return encode("sized_bytes", twos_complement(value))
        case "decimal":
            unscaled, scale = value
            return encode_decimal(unscaled, scale, dialect)
        case _:
            return number(kind, value)


def encode_decimal(unscaled: int, scale: int, dialect: str) -> bytes:
    """Short form if scale and length fit one byte each; the long form of `java` has no length."""
    tag, digits = DECIMAL_TAG[dialect], twos_complement(unscaled)
    if -128 <= scale <= 127 and len(digits) <= 127:
        return bytes([tag]) + number("byte", scale) + number("byte", len(digits)) + digits
    length = number("int", len(digits)) if dialect == "seed" else b""
    return bytes([tag + 1]) + number("int", scale) + length + digits


@dataclass
class Cursor:
    """Takes values off the front of one payload."""

    payload: bytes
    dialect: str = "seed"
    position: int = 0

    def take(self, count: int) -> bytes:
        piece = self.payload[self.position : self.position + count]
        if len(piece) < count:
            raise EOFError
        self.position += count
        return piece

    def until(self, zero: bytes) -> bytes:
        """The whole units of len(zero) before the first zero one."""
        out = b""
        while (unit := self.take(len(zero))) != zero:
            out += unit
        return out

    def number(self, kind: str) -> Any:
        code = ORDER + NUMBERS[kind]
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def integer(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big", signed=True)

    def decode(self, kind: str) -> Any:
        """One value, as `encode` takes it; bytes are all that is left."""
        match kind:
            case "boolean":
                return self.take(1) == b"\1"
            case "char":
                return struct.unpack(ORDER + "H", self.take(2))[0]
            case "string":
                return self.until(b"\0").decode("ascii")
            case "unicode":
                return self.until(b"\0\0").decode(UTF16, "surrogatepass")
            case "bytes":
                return self.take(len(self.payload) - self.position)
            case "sized_bytes":
                return self.take(self.number("int"))
            case "big_integer":
                return self.integer(self.number("int"))
            case "decimal":
                return self.decimal()
            case _:
                return self.number(kind)

    def decimal(self) -> tuple[int, int]:
        form = self.take(1)[0] - DECIMAL_TAG[self.dialect]
        assert form in {0, 1}, f"no decimal tag of {self.dialect}"
        scale = self.number("int" if form else "byte")
        if form and self.dialect == "java":
            return self.integer(len(self.payload) - self.position), scale
        return self.integer(self.number("int" if form else "byte")), scale


def encode_all(fields: Sequence[tuple[str, Any]], dialect: str = "seed") -> bytes:
    return b"".join(encode(kind, value, dialect) for kind, value in fields)


def decode_all(payload: bytes, kinds: Sequence[str], dialect: str = "seed") -> list[Any]:
    cursor = Cursor(payload, dialect)
    return [cursor.decode(kind) for kind in kinds]


def index24(offset: int, begin: int, payload: bytes) -> bytes:
    """The three bytes that stand where a producer's name would: of crc32c over payload and place."""
    crc = crc32c(payload + struct.pack("<qqi", offset, begin, len(payload)))
    return (crc & 0xFFFFFF).to_bytes(3, "little")


# ------------------------------------------------------------------------------------------------ streams


@dataclass
class Stream:
    """Endless bytes over page files of one size."""

    folder: Path
    suffix: str
    page_size: int

    def page(self, number: int) -> Path:
        return self.folder / f"{number}{self.suffix}"

    def pages(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob(f"*{self.suffix}"))

    def pieces(self, offset: int, count: int) -> Iterator[tuple[Path, int, int]]:
        """The page, the position and the length of each part of a range."""
        while count:
            page, position = divmod(offset, self.page_size)
            length = min(count, self.page_size - position)
            yield self.page(page), position, length
            offset, count = offset + length, count - length

    def put(self, offset: int, data: bytes) -> None:
        for path, position, length in self.pieces(offset, len(data)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.truncate(self.page_size)
                file.seek(position)
                file.write(data[:length])
            data = data[length:]

    def get(self, offset: int, count: int) -> bytes:
        out = b""
        for path, position, length in self.pieces(offset, count):
            piece = path.read_bytes()[position : position + length] if path.exists() else b""
            out += piece.ljust(length, b"\0")
        return out


@dataclass
class Entry:
    """One index entry that is not free."""

    offset: int
    begin: int
    size: int
    name: str
    flag: int
    payload: bytes = b""

    @property
    def published(self) -> bool:
        return self.flag == PUBLISHED

    def stamp(self, tail: bytes | None = None) -> bytes:
        """Bytes 8 to 15; `tail` stands in for the name."""
        name = self.name.encode().rjust(3, b"\0")
        tail = (name[::-1] if LITTLE else name) if tail is None else tail
        return number("int", self.size) + tail + bytes([self.flag])


def is_multi(path: Path) -> bool:
    return any(path.glob("*.qm"))


def index_stream(path: Path, page_size: int, *, multi: bool, dialect: str) -> Stream:
    java = any(path.glob("*.qmx")) or (dialect == "java" and not any(path.glob("*.qx")))
    return Stream(path, ".qmx" if multi and java else ".qx", page_size)


# ------------------------------------------------------------------------------------------------ reading


class OracleReader:
    """Reads either kind of directory; the page size is the length of any page file."""

    def __init__(self, path: Path, dialect: str = "seed") -> None:
        self.path, self.dialect, self.multi = path, dialect, is_multi(path)
        sizes = {file.stat().st_size for file in path.rglob("*.q*") if file.suffix in PAGES}
        assert len(sizes) <= 1, f"unequal pages: {sizes}"
        self.page_size = sizes.pop() if sizes else ENTRY
        self.index = index_stream(path, self.page_size, multi=self.multi, dialect=dialect)
        self.offset = min(self.index.pages(), default=0) * self.page_size

    def entry(self, offset: int) -> Entry | None:
        raw = self.index.get(offset, ENTRY)
        if raw == bytes(ENTRY):
            return None
        begin, size = struct.unpack(ORDER + "qi", raw[:12])
        name = (raw[12:15][::-1] if LITTLE else raw[12:15]).decode("latin-1") if self.multi else ""
        entry = Entry(offset, begin, size, name, raw[15])
        entry.payload = Stream(self.path / name, ".qd", self.page_size).get(begin, size)
        return entry

    def next(self) -> Entry | None:
        entry = self.entry(self.offset)
        if entry is None or not entry.published:
            return None
        self.offset += ENTRY
        return entry

    def set_offset(self, offset: int) -> Entry | None:
        self.offset = offset
        return self.next()

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self.next()) is not None:
            yield entry

    def last(self) -> Entry | None:
        """The newest used entry: the highest page has it, or is empty and the page before has it."""
        for page in reversed(self.index.pages()):
            for position in reversed(range(0, self.page_size, ENTRY)):
                entry = self.entry(page * self.page_size + position)
                if entry is not None and (entry.published or self.multi):
                    return entry
        return None


# ------------------------------------------------------------------------------------------------ writing


class Sender(ABC):
    """What both writers share: a data cursor that goes back to `begin` on discard."""

    index: Stream
    data: Stream
    dialect: str
    begin: int  # of the message being packed
    cursor: int

    def put(self, payload: bytes) -> None:
        self.data.put(self.cursor, payload)
        self.cursor += len(payload)

    def pack(self, kind: str, value: Any) -> None:
        self.put(encode(kind, value, self.dialect))

    def discard(self) -> None:
        self.cursor = self.begin

    @abstractmethod
    def write_message(self) -> int:
        """Publish what was packed; its offset."""

    def append(self, payload: bytes) -> int:
        self.put(payload)
        return self.write_message()

    def message(self, fields: Sequence[tuple[str, Any]]) -> int:
        return self.append(encode_all(fields, self.dialect))


class OracleWriter(Sender):
    """The writer of a single queue; opening continues behind the last published message."""

    def __init__(self, path: Path, page_size: int, dialect: str = "seed", checksum: str | None = None) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.dialect, self.checksum = dialect, checksum
        self.index, self.data = Stream(path, ".qx", page_size), Stream(path, ".qd", page_size)
        last = OracleReader(path, dialect).last()
        self.offset = last.offset + ENTRY if last else 0
        self.begin = self.cursor = last.begin + last.size if last else 0

    def write_message(self) -> int:
        entry = Entry(self.offset, self.begin, self.cursor - self.begin, "", PUBLISHED)
        payload = self.data.get(entry.begin, entry.size)
        tail = index24(entry.offset, entry.begin, payload) if self.checksum else None
        self.index.put(entry.offset, number("long", entry.begin) + entry.stamp(tail))
        self.offset, self.begin = self.offset + ENTRY, self.cursor
        return entry.offset


class OracleProducer(Sender):
    """One of several writers; opening finishes the entry it left behind, if there is one."""

    def __init__(self, path: Path, name: str, page_size: int, dialect: str = "seed") -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.name, self.dialect = path, name, dialect
        self.index = index_stream(path, page_size, multi=True, dialect=dialect)
        self.data = Stream(path / name, ".qd", page_size)
        self.state = path / f"{name}.qm"
        state = self.state.read_bytes() if self.state.exists() else bytes(32)
        end_a, end_b, self.last_index, _ = struct.unpack(ORDER + "4q", state)
        self.ends = [end_a, end_b]
        self.older = 0 if end_a < end_b else 1
        self.begin = self.cursor = max(self.ends)
        self.save()
        self.finish(self.last_index)

    def save(self) -> None:
        self.state.write_bytes(struct.pack(ORDER + "4q", *self.ends, self.last_index, 0))

    def used(self, offset: int) -> bool:
        return self.index.get(offset + 8, 8) != bytes(8)

    def finish(self, offset: int) -> None:
        """Full repair: the one entry of ours without a flag ends where the data ends."""
        reader = OracleReader(self.path, self.dialect)
        while self.used(offset):
            entry = reader.entry(offset)
            if entry and entry.name == self.name and not entry.flag:
                self.publish(Entry(offset, self.cursor - entry.size, entry.size, self.name, PUBLISHED))
            offset += ENTRY

    def publish(self, entry: Entry) -> None:
        self.index.put(entry.offset, number("long", entry.begin) + entry.stamp())

    def write_message(self) -> int:
        offset: int = self.last_index
        self.ends[self.older] = self.cursor
        self.older = 1 - self.older
        while self.used(offset):
            offset += ENTRY
        self.last_index = offset
        self.save()
        self.publish(Entry(offset, self.begin, self.cursor - self.begin, self.name, PUBLISHED))
        self.begin = self.cursor
        return offset
