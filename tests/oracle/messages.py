"""The four dresses of messages in plain Python: each read and written the slow and obvious way.

    1 house   little endian: u32 length, u8 attributes, i8 priority, u16 flag, i64 send time
              [u32 count] [u16 key] [u32 headers: u16 count, (u16 name, u32 value)...] body
    2 seed    JMQ, big endian: length, partition, index, term, code, priority, sendTime, storeTime, bodyCRC, flag,
              body INT, businessId SHORT, attributes SHORT, extension INT, app SHORT
    3 real    the same with magic 0x1234 behind term, a client address behind priority, businessId and app BYTE
    4 jafka   length, magic 0 (crc, payload) or magic 1 (attributes, crc, payload)

`decode` gives entries, `encode` makes their bytes again, `redress` says what the fast one must give.
A wrapper is an entry with members.  What it leaves out: limits, positions in errors, snappy (vectors have it).
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, field, replace

HOUSE, SEED, REAL, JAFKA = 1, 2, 3, 4
NONE, ZIP, ZLIB, SNAPPY, GZIP = range(5)
SEED_CODECS = {0: SNAPPY, 1: ZIP, 2: ZLIB, 3: SNAPPY}
LINE = rb"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)"
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Entry:
    """A message, or a wrapper of `members`; `body` is as it stands, so compressed where there is a codec."""

    dress: int
    body: bytes = b""
    key: bytes = b""
    attributes: bytes = b""  # JMQ: properties text
    headers: Headers = ()  # house
    priority: int = 0
    flag: int = 0
    send_time: int = 0
    ordered: bool = False
    codec: int = NONE
    batch: bool = False
    magic: int = 1  # jafka
    bits: int = 0  # jafka: attributes above the codec
    partition: int = 0
    index: int = 0
    term: int = 0
    source: int = 3
    version: int = 1
    ipv6: bool = False
    client: bytes = bytes(16)
    store_time: int = 0
    extension: bytes = b""
    app: bytes = b""
    sum: int | None = None  # None: as it should be
    members: tuple[Entry, ...] = field(default=(), compare=False)


@dataclass
class Reader:
    """Takes numbers and fields off the front of some bytes."""

    data: bytes
    at: int = 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack(kind, self.take(struct.calcsize(kind)))[0]
        return value

    def take(self, count: int) -> bytes:
        piece = self.data[self.at : self.at + count]
        if len(piece) < count:
            raise EOFError
        self.at += count
        return piece

    def sized(self, kind: str) -> bytes:
        return self.take(max(0, self.number(kind)))

    @property
    def rest(self) -> bytes:
        return self.data[self.at :]


def sized(kind: str, data: bytes) -> bytes:
    return struct.pack(kind, len(data)) + data


# ------------------------------------------------------------------------------------------------ codecs


def deflate(data: bytes, codec: int) -> bytes:
    match codec:
        case 1:
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
                writer.writestr(zipfile.ZipInfo("0"), data)
            return archive.getvalue()
        case 2:
            return zlib.compress(data)
        case 4:
            return gzip.compress(data, mtime=0)
        case _:
            return data


def inflate(data: bytes, codec: int) -> bytes:
    match codec:
        case 1:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return archive.read("0")
        case 2:
            return zlib.decompress(data)
        case 4:
            return gzip.decompress(data)
        case 0:
            return data
        case _:
            raise ValueError(codec)


# ------------------------------------------------------------------------------------------------ attributes


def text_of(headers: Headers) -> bytes:
    """Java properties text, as Java writes it."""
    return b"\n".join(escaped(name, spaces=True) + b"=" + escaped(value, spaces=False) for name, value in headers)


def escaped(data: bytes, *, spaces: bool) -> bytes:
    out = ""
    for at, char in enumerate(data.decode("utf-8", "surrogateescape")):
        if char in "\t\n\r\f":
            out += {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}[char]
        elif not 0x20 <= ord(char) <= 0x7E:
            units = char.encode("utf-16-be", "surrogatepass").hex().upper()
            out += "".join(rf"\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        elif char in "\\=:#!" or (char == " " and (spaces or at == 0)):
            out += "\\" + char
        else:
            out += char
    return out.encode("ascii")


def headers_of(text: bytes) -> Headers:
    """Names and values of properties text, in order."""
    logical: list[bytes] = []
    going_on = False
    for line in re.split(rb"\r\n|\r|\n", text):
        part = line.lstrip(b" \t\f")
        if not going_on and (not part or part[:1] in b"#!"):
            continue
        ends = len(part) - len(part.rstrip(b"\\"))
        piece = part[:-1] if ends % 2 else part
        if going_on:
            logical[-1] += piece
        else:
            logical.append(piece)
        going_on = ends % 2 == 1
    found = (re.fullmatch(LINE, line, re.DOTALL) for line in logical if line)
    return tuple((unescaped(match[1]), unescaped(match[2])) for match in found if match)


def unescaped(data: bytes) -> bytes:
    """Raw bytes as they are; escaped UTF-16 units as UTF-8, lone U+DC80..DCFF as the bytes they stand for."""
    out, units = b"", ""
    for token in re.findall(rb"\\u[0-9a-fA-F]{4}|\\.|.", data, re.DOTALL):
        if len(token) == 6:
            units += chr(int(token[-4:], 16))
            continue
        out, units = out + from_units(units), ""
        out += {b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r", b"\\f": b"\f"}.get(token, token[-1:])
    return out + from_units(units)


def from_units(units: str) -> bytes:
    text = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return b"".join(
        bytes([ord(char) - 0xDC00]) if 0xDC80 <= ord(char) <= 0xDCFF else char.encode("utf-8", "surrogatepass")
        for char in text
    )


# ------------------------------------------------------------------------------------------------ house


def encode_house(entry: Entry) -> bytes:
    options = b""
    if entry.batch:
        options += struct.pack("<I", len(entry.members))
    if entry.key:
        options += sized("<H", entry.key)
    if entry.headers:
        pairs = b"".join(sized("<H", name) + sized("<I", value) for name, value in entry.headers)
        options += sized("<I", struct.pack("<H", len(entry.headers)) + pairs)
    bits = entry.codec | bool(entry.key) << 3 | bool(entry.headers) << 4 | entry.batch << 5 | entry.ordered << 6
    head = struct.pack("<BbHq", bits, entry.priority, entry.flag, entry.send_time)
    return struct.pack("<I", 16 + len(options) + len(entry.body)) + head + options + entry.body


def decode_house(data: bytes) -> tuple[Entry, int]:
    size = Reader(data).number("<I")
    reader = Reader(Reader(data).take(size), 4)
    bits, priority, flag, send_time = (reader.number(f"<{kind}") for kind in "BbHq")
    assert not bits & 0x80
    assert bits & 7 in (0, 2, 4)
    count = reader.number("<I") if bits & 0x20 else 0
    key = reader.sized("<H") if bits & 8 else b""
    headers: list[tuple[bytes, bytes]] = []
    if bits & 0x10:
        block = Reader(reader.sized("<I"))
        headers = [(block.sized("<H"), block.sized("<I")) for _ in range(block.number("<H"))]
        assert not block.rest
    entry = Entry(
        HOUSE, reader.rest, key, headers=tuple(headers), priority=priority, flag=flag, send_time=send_time,
        ordered=bool(bits & 0x40), codec=bits & 7, batch=bool(bits & 0x20),
    )  # fmt: skip
    if entry.batch:
        entry = replace(entry, members=tuple(decode(inflate(entry.body, entry.codec), HOUSE)))
        assert len(entry.members) == count > 0
    return entry, size


# ------------------------------------------------------------------------------------------------ jafka


def encode_jafka(entry: Entry) -> bytes:
    total = zlib.crc32(entry.body) if entry.sum is None else entry.sum
    bits = struct.pack(">B", bool(entry.codec) | entry.bits) if entry.magic else b""
    return sized(">i", bytes([entry.magic]) + bits + struct.pack(">I", total) + entry.body)


def decode_jafka(data: bytes) -> tuple[Entry, int]:
    reader = Reader(Reader(data).sized(">i"))
    magic = reader.number("B")
    assert magic in (0, 1)
    bits = reader.number("B") if magic else 0
    assert bits & 3 < 2
    total = reader.number(">I")
    assert total == zlib.crc32(reader.rest)
    entry = Entry(JAFKA, reader.rest, magic=magic, codec=GZIP * (bits & 1), batch=bool(bits & 1), bits=bits & ~3)
    if entry.batch:
        entry = replace(entry, members=tuple(decode(inflate(entry.body, GZIP), JAFKA)))
    return entry, len(reader.data) + 4


# ------------------------------------------------------------------------------------------------ jmq


def code_of(entry: Entry) -> int:
    code = bool(entry.codec) | entry.ordered << 1 | entry.source << 2 | entry.version << 8 | entry.batch << 12
    if entry.version:  # version 0 has no address bit
        code |= (entry.ipv6 if entry.dress == SEED else not entry.ipv6) << 7
    if entry.codec:
        code |= (0 if entry.codec == SNAPPY and entry.dress == SEED else entry.codec) << 4
    return code


def encode_jmq(entry: Entry) -> bytes:
    short = ">b" if entry.dress == REAL else ">h"
    total = zlib.crc32(entry.body) if entry.sum is None else entry.sum
    parts = [
        struct.pack(">hqi", entry.partition, entry.index, entry.term),
        b"\x12\x34" if entry.dress == REAL else b"",
        struct.pack(">Hb", code_of(entry), entry.priority),
        entry.client if entry.dress == REAL else b"",
        struct.pack(">qiqH", entry.send_time, entry.store_time, total, entry.flag),
        sized(">i", entry.body),
        sized(short, entry.key),
        sized(">h", entry.attributes),
        sized(">i", entry.extension),
        sized(short, entry.app),
    ]
    message = b"".join(parts)
    return struct.pack(">i", len(message) + 4) + message


def decode_jmq(data: bytes, dress: int) -> tuple[Entry, int]:
    short = ">b" if dress == REAL else ">h"
    reader = Reader(data, 4)
    partition, index, term = reader.number(">h"), reader.number(">q"), reader.number(">i")
    if dress == REAL:
        assert reader.take(2) == b"\x12\x34"
    code, priority = reader.number(">H"), reader.number(">b")
    client = reader.take(16) if dress == REAL else bytes(16)
    send_time, store_time, total = reader.number(">q"), reader.number(">i"), reader.number(">q")
    flag, body, key = reader.number(">H"), reader.sized(">i"), reader.sized(short)
    attributes, extension, app = reader.sized(">h"), reader.sized(">i"), reader.sized(short)
    version = code >> 8 & 15
    assert version == 1 or dress == REAL
    assert total in (-1, 0, zlib.crc32(body))
    kind = code >> 4 & (3 if version == 0 else 7)
    ipv6 = bool(code & 0x80) if dress == SEED else version > 0 and not code & 0x80
    entry = Entry(
        dress, body, key, attributes, priority=priority, flag=flag, send_time=send_time, ordered=bool(code & 2),
        codec=SEED_CODECS[kind] if code & 1 else NONE, batch=code >> 12 == 1, partition=partition, index=index,
        term=term, source=code >> 2 & 3, version=version, ipv6=ipv6, client=client, store_time=store_time,
        extension=extension, app=app, sum=total if total > 0 else None,
    )  # fmt: skip
    if entry.batch:
        entry = replace(entry, members=decode_batch(entry))
    return entry, reader.at


def encode_batch(members: tuple[Entry, ...], dress: int) -> bytes:
    parts = [
        struct.pack(">bH", one.priority, one.flag)
        + sized(">i", one.body)
        + sized(">b" if dress == REAL else ">i", one.key)
        + sized(">h", one.attributes)
        for one in members
    ]
    body = b"".join(struct.pack(">i", len(part) + 4) + part for part in parts)
    return body if dress == REAL else struct.pack(">ih", len(body) + 6, len(members)) + body


def decode_batch(outer: Entry) -> tuple[Entry, ...]:
    reader = Reader(inflate(outer.body, outer.codec))
    if outer.dress == SEED:
        assert reader.number(">i") == len(reader.data)
        assert reader.number(">h") == outer.flag
    members = []
    while reader.rest:
        start, size = reader.at, reader.number(">i")
        priority, flag = reader.number(">b"), reader.number(">H")
        body, key = reader.sized(">i"), reader.sized(">b" if outer.dress == REAL else ">i")
        attributes = reader.sized(">h")
        assert reader.at == start + size
        plain = replace(outer, batch=False, codec=NONE, sum=None, members=())
        members.append(replace(plain, priority=priority, flag=flag, body=body, key=key, attributes=attributes))
    assert 0 < len(members) == outer.flag
    return tuple(members)


# ------------------------------------------------------------------------------------------------ all of them


def wrap(dress: int, members: tuple[Entry, ...], codec: int, **fields: int) -> Entry:
    """A batch of these members as each dress has it; Jafka's is always a gzip."""
    match dress:
        case 2 | 3:
            plain, flag = encode_batch(members, dress), len(members)
        case 4:
            plain, flag, codec = b"".join(map(encode, members)), 0, GZIP
        case _:
            plain, flag = b"".join(map(encode, members)), 0
    made = Entry(dress, deflate(plain, codec), flag=flag, codec=codec, batch=True, members=members)
    return replace(made, **fields)  # type: ignore[arg-type]  # numbers only


def encode(entry: Entry) -> bytes:
    match entry.dress:
        case 1:
            return encode_house(entry)
        case 4:
            return encode_jafka(entry)
        case _:
            return encode_jmq(entry)


def decode_one(data: bytes, dress: int) -> tuple[Entry, int]:
    match dress:
        case 1:
            return decode_house(data)
        case 4:
            return decode_jafka(data)
        case _:
            return decode_jmq(data, dress)


def decode(data: bytes, dress: int) -> list[Entry]:
    """All entries; EOFError or AssertionError when they are wrong.  A Jafka set may end inside a later entry."""
    entries: list[Entry] = []
    at = 0
    while at < len(data):
        rest = data[at:]
        if dress == JAFKA and (len(rest) < 4 or (entries and len(rest) - 4 < Reader(rest).number(">i"))):
            break
        entry, size = decode_one(rest, dress)
        entries.append(entry)
        at += size
    return entries


def flat(entry: Entry) -> list[Entry]:
    """The messages of an entry, made plain."""
    if entry.batch:
        return [message for member in entry.members for message in flat(member)]
    return [replace(entry, body=inflate(entry.body, entry.codec), codec=NONE, sum=None)] if entry.codec else [entry]


def jafka_bytes(entry: Entry, magic: int) -> int:
    if entry.dress == JAFKA:
        return len(encode(entry))
    return sum(len(message.body) + 9 + magic for message in flat(entry))


@dataclass(frozen=True)
class Server:
    """What the server says in JMQ messages, and for messages of other dresses."""

    partition: int
    index: int
    term: int
    store_time: int
    client: bytes
    app: bytes
    jafka_magic: int


def redress(data: bytes, source: int, target: int, server: Server) -> bytes:
    entries, out, index = decode(data, source), b"", server.index
    if source == target and source in (HOUSE, JAFKA):
        return b"".join(map(encode, entries))
    for entry in entries:
        kept = source == target or (source in (SEED, REAL) and target in (SEED, REAL) and not entry.batch)
        for message in [entry] if kept else flat(entry):
            out += encode(dressed(message, target, replace(server, index=index)))
            index += max(1, len(message.members))
    return out


def dressed(message: Entry, target: int, server: Server) -> Entry:
    """One plain message, or a JMQ one for JMQ, as the target says it."""
    send_time = server.store_time if message.dress == JAFKA else message.send_time
    if target == JAFKA:
        return Entry(JAFKA, message.body, magic=server.jafka_magic)
    if target == HOUSE:
        return Entry(
            HOUSE, message.body, message.key if len(message.key) <= 65535 else b"",
            headers=headers_of(message.attributes), priority=message.priority, flag=message.flag,
            send_time=send_time, ordered=message.ordered,
        )  # fmt: skip
    longest = 127 if target == REAL else 32767
    text = message.attributes if message.dress in (SEED, REAL) else text_of(message.headers)
    app = message.app if message.dress in (SEED, REAL) else server.app
    after = message.store_time
    if server.store_time:
        after = max(-(2**31) + 1, min(2**31 - 1, server.store_time - send_time))
    return replace(
        message, dress=target, key=message.key if len(message.key) <= longest else b"",
        attributes=text if len(text) <= 32767 else b"", headers=(), send_time=send_time, partition=server.partition,
        index=server.index, term=server.term, store_time=after, app=app if len(app) <= longest else b"",
        version=message.version if target == message.dress else 1, bits=0, magic=1,
        client=server.client[:16].ljust(16, b"\0") if server.client else message.client,
        ipv6=(len(server.client) != 6 and message.version > 0)
        if server.client and target == REAL
        else message.ipv6,
    )  # fmt: skip
