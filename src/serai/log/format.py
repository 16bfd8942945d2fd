"""The names and numbers of a queue directory.

    single producer   <n>.qx index pages    <n>.qd data pages
    several           <n>.qx (java: <n>.qmx)    <NAME>/<n>.qd    <NAME>.qm, 32 bytes
    compressed        <n>.qd.zst in place of a sealed <n>.qd

Pages are numbered from 0 without padding and have one length, a power of two, from the moment they are
created; the length is recorded nowhere else.  The byte layout of an entry stands in `_core/pages.pyx`.

    .qm   0..7 end A   8..15 end B   16..23 offset of the last entry   24..31 unused

End A and end B take turns: the smaller is the begin of the newest message, the larger its end.
"""

import re
import struct

from serai._core.pages import MESSAGE_BYTES_MAX, PUBLISHED, SLOT_BYTES

INDEX = ".qx"
INDEX_JAVA = ".qmx"
DATA = ".qd"
STATE = ".qm"
COMPRESSED = ".qd.zst"
RECORDS = ".qr"

SLOT = struct.Struct("<qi3sB")  # begin, size, name (reversed) or checksum, flag
STATE_LAYOUT = struct.Struct("<qqqq")  # end A, end B, offset of the last entry, unused
STATE_BYTES = STATE_LAYOUT.size

OFFSET_MAX = (1 << 62) - SLOT_BYTES  # far above the last page of the longest queue
DIALECTS = ("seed", "java")
MODES = ("r", "rw")
CHECKSUMS = ("index24",)
PRODUCER_NAME = re.compile(r"[A-Za-z0-9]{3}")
STORED_NAME = re.compile(r"[0-9A-z]{3}")  # the Java library also lets the six characters between Z and a through
WRITER_LOCK_BYTE = 1 << 62  # of the newest index page: no program ever has bytes there
READER_LOCK_BYTE = WRITER_LOCK_BYTE + 1  # of a log's data pages, held as long as one is mapped for reading

RECORD = struct.Struct("<qqqq")  # an entry of the record index: ordinal, place, begin of the head, time
HEAD = struct.Struct("<IIBBHIqqIIqQIIQ")  # of a record, as `_core.records` has it
HEAD_FIELDS = (
    "length", "sum", "version", "dress", "flags", "messages", "ordinal", "place", "place_length", "epoch", "time", "producer",
    "sequence", "part", "transaction",
)  # fmt: skip

FORMAT_FILE = "format"
DATA_KIND = "serai-data"  # how the format file of a data directory begins
LOG_KIND = "serai-log"  # and that of a partition
MARKS_FILE = "marks"
LOG_VERSION = 1  # of a partition directory
STORE_VERSION = 1  # of a data directory

MARKS_BYTES = 4096
MARK_AT = (0, 1024)  # the two marks, on sectors of their own
LIVE_AT = 2048  # numbers that a running writer keeps for other readers; worth nothing after a power cut
MARK = struct.Struct("<4sIQIIqqqqqqqq")
MARK_MAGIC = b"SRMK"
# Numbers of the live area, in steps of 8 bytes; the first five are written by `_core.records`.
(LIVE_END, LIVE_RECORD_END, LIVE_DATA_END, LIVE_PLACE, LIVE_TIME, LIVE_COMMITTED, LIVE_COMMITTED_PLACE, LIVE_FIRST,
 LIVE_FIRST_RECORD, LIVE_FIRST_PLACE, LIVE_EPOCH, LIVE_BOOT) = range(LIVE_AT, LIVE_AT + 96, 8)  # fmt: skip

__all__ = [
    "CHECKSUMS",
    "COMPRESSED",
    "DATA",
    "DATA_KIND",
    "DIALECTS",
    "FORMAT_FILE",
    "HEAD",
    "HEAD_FIELDS",
    "INDEX",
    "INDEX_JAVA",
    "LIVE_AT",
    "LIVE_BOOT",
    "LIVE_COMMITTED",
    "LIVE_COMMITTED_PLACE",
    "LIVE_DATA_END",
    "LIVE_END",
    "LIVE_EPOCH",
    "LIVE_FIRST",
    "LIVE_FIRST_PLACE",
    "LIVE_FIRST_RECORD",
    "LIVE_PLACE",
    "LIVE_RECORD_END",
    "LIVE_TIME",
    "LOG_KIND",
    "LOG_VERSION",
    "MARK",
    "MARKS_BYTES",
    "MARKS_FILE",
    "MARK_AT",
    "MARK_MAGIC",
    "MESSAGE_BYTES_MAX",
    "MODES",
    "OFFSET_MAX",
    "PRODUCER_NAME",
    "PUBLISHED",
    "READER_LOCK_BYTE",
    "RECORD",
    "RECORDS",
    "SLOT",
    "SLOT_BYTES",
    "STATE",
    "STATE_BYTES",
    "STATE_LAYOUT",
    "STORED_NAME",
    "STORE_VERSION",
    "WRITER_LOCK_BYTE",
    "name_number",
    "name_text",
]  # fmt: skip


def name_number(name: str) -> int:
    """A producer name as the number that stands in a stamp: the first character is the highest byte."""
    return int.from_bytes(name.encode("ascii"), "big")


def name_text(number: int) -> str:
    """The reverse of `name_number`; bytes of a damaged name are shown, not refused."""
    return number.to_bytes(3, "big").decode("latin-1")
