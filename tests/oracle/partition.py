"""A partition directory read the slow and obvious way: every head, every slot, every entry of the record index.

    format   "serai-log 1", identity, jafka-magic, page-bytes
    marks    0 and 1024: magic 4, crc 4, counter 8, epoch 4, clean 4, then end, data end, record end, place, time,
             first, first record, first place, 8 bytes each; from 2048 the numbers of a living writer
    n.qd     records: a head of 72 bytes and its messages; 0xFFFFFFFF in place of a length: go on at the next page
    n.qx     16 bytes a message: begin of its entry 8, size 4, 0 0 0, 0x7F
    n.qr     32 bytes a record: ordinal, place, begin of its head, time

`Model` is what was appended, kept in a list: what reading has to give.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tests.oracle import messages as oracle
from tests.oracle.crc import CASTAGNOLI
from tests.oracle.messages import JAFKA, Entry, Server

if TYPE_CHECKING:
    from pathlib import Path

HEAD = struct.Struct("<IIBBHIqqIIqQIIQ")
SLOT = struct.Struct("<qi3sB")
RECORD = struct.Struct("<qqqq")
MARK = struct.Struct("<4sIQIIqqqqqqqq")
LIVE = struct.Struct("<12q")
PAD = 0xFFFFFFFF
LAST, WRAPPED = 1, 2


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (CASTAGNOLI if byte & 1 else 0)
    return byte


ROWS = [_row(byte) for byte in range(256)]


@lru_cache(maxsize=4096)
def crc32c(data: bytes, value: int) -> int:
    """As `tests.oracle.crc.crc32c`, with a table."""
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state = state >> 8 ^ ROWS[(state ^ byte) & 255]
    return state ^ 0xFFFFFFFF


class Mark(NamedTuple):
    counter: int
    epoch: int
    clean: int
    end: int
    data_end: int
    record_end: int
    place: int
    time: int
    first: int
    first_record: int
    first_place: int


@dataclass(frozen=True)
class Record:
    """A record as it lies in the data."""

    begin: int
    length: int
    dress: int
    flags: int
    count: int
    ordinal: int
    place: int
    place_length: int
    epoch: int
    time: int
    producer: int
    sequence: int
    part: int
    transaction: int
    payload: bytes

    @property
    def entries(self) -> list[Entry]:
        return oracle.decode(self.payload, self.dress)


class Stream:
    """The pages of one suffix as one run of bytes."""

    def __init__(self, folder: Path, suffix: str, page_bytes: int) -> None:
        self.folder, self.suffix, self.page_bytes = folder, suffix, page_bytes
        self.pages: dict[int, bytes] = {}

    def take(self, offset: int, size: int) -> bytes:
        out = b""
        while size:
            number, at = divmod(offset, self.page_bytes)
            if number not in self.pages:
                self.pages[number] = (self.folder / f"{number}{self.suffix}").read_bytes()
                assert len(self.pages[number]) == self.page_bytes
            piece = self.pages[number][at : at + size]
            assert piece
            out += piece
            offset += len(piece)
            size -= len(piece)
        return out


def words_of(folder: Path) -> dict[str, str]:
    first, *lines = (folder / "format").read_text("ascii").splitlines()
    assert first == "serai-log 1"
    return dict(line.split(" ", 1) for line in lines)


def mark_of(folder: Path) -> Mark:
    """The newest mark that is whole."""
    raw = (folder / "marks").read_bytes()
    found = []
    for at in (0, 1024):
        magic, crc, *numbers = MARK.unpack_from(raw, at)
        if magic == b"SRMK" and zlib.crc32(raw[at + 8 : at + MARK.size]) == crc:
            found.append(Mark(*numbers))
    return max(found)


def stand(folder: Path) -> tuple[Mark, int]:
    """The newest mark, and the end: that of a living writer or the mark's."""
    mark = mark_of(folder)
    live = LIVE.unpack_from((folder / "marks").read_bytes(), 2048)
    return mark, live[0] if live[11] else mark.end


def read(folder: Path) -> list[Record]:
    """All records from the first ordinal to the end; an AssertionError where anything does not fit."""
    words = words_of(folder)
    identity, page_bytes = int(words["identity"], 16) & 0xFFFFFFFF, int(words["page-bytes"])
    data, slots, records = (Stream(folder, suffix, page_bytes) for suffix in (".qd", ".qx", ".qr"))
    mark, end = stand(folder)
    ordinal, place, time, at, found = mark.first, mark.first_place, 0, mark.first_record, []
    while ordinal < end:
        index = RECORD.unpack(records.take(at, RECORD.size))
        record = read_record(data, index[2], identity)
        assert index == (record.ordinal, record.place, record.begin, record.time)
        assert (record.ordinal, record.place) == (ordinal, place)
        assert record.time >= time
        check_slots(slots, record)
        found.append(record)
        ordinal, place, time, at = ordinal + record.count, place + record.place_length, record.time, at + RECORD.size
    assert ordinal == end
    return found


def read_record(data: Stream, begin: int, identity: int) -> Record:
    length, total, version, *numbers = HEAD.unpack(data.take(begin, HEAD.size))
    raw = data.take(begin, length)
    assert version == 1
    assert begin // data.page_bytes == (begin + length - 1) // data.page_bytes or begin % data.page_bytes == 0
    assert crc32c(raw[8:], identity) == total
    dress, flags, count, ordinal, place, place_length, epoch, time, producer, sequence, part, transaction = numbers
    return Record(
        begin, length, dress, flags, count, ordinal, place, place_length, epoch, time, producer, sequence, part,
        transaction, raw[HEAD.size :],
    )  # fmt: skip


def check_slots(slots: Stream, record: Record) -> None:
    at, ordinal = record.begin + HEAD.size, record.ordinal
    for entry in record.entries:
        size = entry_bytes(record, at)
        for _ in oracle.flat(entry):
            assert SLOT.unpack(slots.take(16 * ordinal, 16)) == (at, size, bytes(3), 0x7F)
            ordinal += 1
        at += size
    assert ordinal == record.ordinal + record.count
    assert at == record.begin + record.length
    wrapped = any(entry.batch or entry.codec for entry in record.entries)
    assert bool(record.flags & WRAPPED) == wrapped


def entry_bytes(record: Record, at: int) -> int:
    start = at - record.begin - HEAD.size
    return oracle.decode_one(record.payload[start:], record.dress)[1]


# ------------------------------------------------------------------------------------------------ what was appended


@dataclass(frozen=True)
class Stored:
    """One entry of the log as it has to be."""

    raw: bytes
    dress: int
    ordinal: int
    count: int
    place: int
    jafka: bytes  # as the Jafka door shows it
    time: int
    transaction: int
    call: int  # which append it came with
    places: tuple[int, ...]  # of each message


@dataclass
class Model:
    """A partition as a list of entries."""

    magic: int
    entries: list[Stored] = field(default_factory=list)
    first: int = 0
    first_place: int = 0
    end: int = 0
    end_place: int = 0
    time: int = 0
    calls: int = 0

    def append(self, raw: bytes, dress: int, *, server: Server, now_ms: int, transaction: int = 0) -> int:
        """Stores a set; its first ordinal."""
        self.time = max(self.time, now_ms)
        start = self.end
        server = replace(server, index=start, store_time=self.time, jafka_magic=self.magic)
        kept = oracle.redress(raw, dress, dress, server)
        at = 0
        for entry in oracle.decode(kept, dress):
            size = oracle.decode_one(kept[at:], dress)[1]
            self._add(entry, kept[at : at + size], transaction)
            at += size
        self.calls += 1
        return start

    def _add(self, entry: Entry, raw: bytes, transaction: int) -> None:
        flat = oracle.flat(entry)
        if entry.dress == JAFKA:
            jafka, places = raw, (self.end_place,) * len(flat)
        else:
            shown = [oracle.encode(Entry(JAFKA, message.body, magic=self.magic)) for message in flat]
            jafka = b"".join(shown)
            places = tuple(self.end_place + sum(map(len, shown[:at])) for at in range(len(shown)))
        self.entries.append(
            Stored(
                raw, entry.dress, self.end, len(flat), self.end_place, jafka, self.time, transaction, self.calls, places
            )
        )
        self.end += len(flat)
        self.end_place += len(jafka)

    def jafka_bytes(self) -> bytes:
        return b"".join(entry.jafka for entry in self.entries)

    def run(
        self, ordinal: int, *, bytes_max: int, messages_max: int, limit: int, oversize: bool
    ) -> tuple[list[Stored], int]:
        """The longest run of whole entries from a message on, and how many of the first one's come before it."""
        found: list[Stored] = []
        lead = 0
        for entry in self.entries:
            if entry.ordinal + entry.count <= ordinal or entry.ordinal >= limit:
                continue
            skipped = max(0, ordinal - entry.ordinal)
            fits = len(entry.raw) <= bytes_max and entry.count - skipped <= messages_max
            if not fits and not (oversize and not found and messages_max > 0):
                break
            lead = lead if found else skipped
            found.append(entry)
            bytes_max -= len(entry.raw)
            messages_max -= entry.count - skipped
        return found, lead

    def retain(self, first: int) -> None:
        self.entries = [entry for entry in self.entries if entry.ordinal >= first]
        self.first = first
        self.first_place = self.entries[0].place if self.entries else self.end_place

    def truncate(self, ordinal: int) -> None:
        time = next((entry.time for entry in self.entries if entry.ordinal == ordinal), self.time)
        self.entries = [entry for entry in self.entries if entry.ordinal < ordinal]
        self.end = ordinal
        last = self.entries[-1] if self.entries else None
        self.end_place = last.place + len(last.jafka) if last else self.first_place
        self.time = last.time if last else time
