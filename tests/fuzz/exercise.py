"""Any bytes as a queue directory, and everything that can be asked of one.

A directory is drawn from a `Source`, a stream of choices that hypothesis, libFuzzer or a seed can feed.  Half of what
it draws is nearly right, because plain noise is refused at the door and reaches nothing.  `exercise` then asks every
question; the answers are an error of serai or a clean end, and each of them comes after a bounded number of steps.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

import serai
from serai.log.verify import entries, repair, verify

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
TAGS = (b"0AA", b"0AA", b"1BB", bytes(3), b"/..", b"A\0A", b"\xff\xfe\xfd")
STEPS = 600  # more entries than any directory here has, and some errors for each
KINDS = ("byte", "boolean", "short", "char", "int", "long", "float", "double", "string", "unicode", "decimal", "big_integer",
         "sized_bytes", "bytes")  # fmt: skip
VALUE_ERRORS = (ValueError, EOFError, OverflowError)  # what a value that is no value raises
ODD_NUMBERS = (0, 1, 15, 16, 17, 64, 255, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 62) - 1, (1 << 62) + 1, (1 << 63) - 1, -1,
               -16, -(1 << 31), -(1 << 63))  # fmt: skip


class Source(Protocol):
    """Where choices come from."""

    def integer(self, low: int, high: int) -> int: ...
    def raw(self, length: int) -> bytes: ...


class Dice:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def raw(self, length: int) -> bytes:
        return self._random.randbytes(length)


class Bytes:
    """Choices from bytes, which libFuzzer changes; at their end every choice is the lowest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integer(self, low: int, high: int) -> int:
        width = max(1, ((high - low).bit_length() + 7) // 8)
        return low + int.from_bytes(self.raw(width), "little") % (high - low + 1)

    def raw(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length]
        self._at += length
        return found.ljust(length, b"\0")


def one_of(source: Source, choices: Sequence[T]) -> T:
    return choices[source.integer(0, len(choices) - 1)]


# ------------------------------------------------------------------------------------------------ drawing a directory

INDEX_NAMES = (
    "0.qx",
    "0.qx",
    "1.qx",
    "2.qx",
    "4.qx",
    "0.qmx",
    "1.qmx",
    "00.qx",
    "x.qx",
    "2147483647.qx",
    "9999999999.qx",
)
DATA_NAMES = ("0.qd", "0.qd", "1.qd", "2.qd", "7.qd", "2147483647.qd")
STATE_NAMES = ("AA0.qm", "AA0.qm", "BB1.qm", "A.qm", "....qm", "AA\n.qm")
FOLDERS = ("AA0", "BB1", "..0", "CC2")


def draw(source: Source) -> dict[str, bytes]:
    """Names and contents of some files."""
    page = 1 << source.integer(4, 9)
    several = source.integer(0, 2) == 0
    files: dict[str, bytes] = {}
    for _ in range(source.integer(0, 7)):
        what = source.integer(0, 9)
        if what <= 3:
            files[one_of(source, INDEX_NAMES)] = sized(source, index_page(source, page, several=several), page)
        elif what <= 6:
            folder = one_of(source, FOLDERS) + "/" if several else ""
            files[folder + one_of(source, DATA_NAMES)] = sized(source, source.raw(page), page)
        elif what == 7:
            files[one_of(source, STATE_NAMES)] = state(source)
        elif what == 8:
            files[one_of(source, DATA_NAMES) + ".zst"] = sealed(source, page)
        else:
            files[one_of(source, ("0.qx.1f.new", "0.qd.zst.2.new", "note", "1.qd.new"))] = source.raw(
                source.integer(0, 40)
            )
    return files


def sized(source: Source, content: bytes, page: int) -> bytes:
    """Mostly a whole page, now and then not."""
    how = source.integer(0, 15)
    if how == 0:
        return content[: source.integer(0, page)]
    return content * 2 if how == 1 else content + source.raw(1) if how == 2 else b"" if how == 3 else content


def number(source: Source, page: int) -> int:
    return one_of(source, ODD_NUMBERS) if source.integer(0, 5) == 0 else source.integer(0, 3 * page)


def index_page(source: Source, page: int, *, several: bool) -> bytes:
    if source.integer(0, 7) == 0:
        return source.raw(page)
    parts, end = [], 0
    for _ in range(source.integer(0, page // 16)):
        size = source.integer(0, 40)
        begin, end = end, end + size
        tag = one_of(source, TAGS) if several else bytes(3)
        flag = one_of(source, (0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0, 1, 0xFF))
        if source.integer(0, 7) == 0:
            begin, size, tag = number(source, page), number(source, page), source.raw(3)
        parts.append(struct.pack("<QI3sB", begin & (1 << 64) - 1, size & (1 << 32) - 1, tag, flag))
    return b"".join(parts).ljust(page, b"\0")


def state(source: Source) -> bytes:
    if source.integer(0, 3) == 0:
        return source.raw(source.integer(0, 40))
    return struct.pack("<4Q", *(number(source, 256) & (1 << 64) - 1 for _ in range(4)))


def sealed(source: Source, page: int) -> bytes:
    """A compressed page as serai writes it, with a few bytes changed, or not."""
    frame = zstd.compress(source.raw(page), options={zstd.CompressionParameter.checksum_flag: source.integer(0, 1)})
    table = struct.pack("<II", len(frame), page) + struct.pack("<IBI", 1, 0, 0x8F92EAB1)
    raw = bytearray(frame + struct.pack("<II", 0x184D2A5E, len(table)) + table)
    for _ in range(source.integer(0, 2)):
        raw[source.integer(0, len(raw) - 1)] = source.raw(1)[0]
    return bytes(raw[: source.integer(0, len(raw))] if source.integer(0, 9) == 0 else raw)


def lay(files: dict[str, bytes], folder: Path) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


# ------------------------------------------------------------------------------------------------ asking everything


def opened(folder: Path, mode: str) -> list[serai.Queue | serai.MultiQueue]:
    """Every kind of queue that takes the directory."""
    makers: list[Callable[[], serai.Queue | serai.MultiQueue]] = [
        lambda: serai.Queue(folder, mode),
        lambda: serai.Queue(folder, mode, checksum="index24", dialect="java"),
        lambda: serai.MultiQueue(folder, mode, "AA0" if mode == "rw" else None),
    ]
    queues = []
    for make in makers:
        try:
            queues.append(make())
        except serai.SeraiError:
            continue
    return queues


def unpack_all(message: serai.Message) -> None:
    """Each kind in turn, each from every position a value of it may leave."""
    for kind in KINDS:
        message.position = 0
        try:
            while message.remaining:
                before = message.position
                message.unpack(kind)
                assert before < message.position <= len(message)
        except VALUE_ERRORS:
            assert 0 <= message.position <= len(message)


def look_at(message: serai.Message) -> None:
    payload = message.payload
    assert len(payload) == message.size == len(message) == len(message.view())
    assert bytes(message.view()) == payload
    assert isinstance(message.producer, str)
    assert message.offset % 16 == 0
    unpack_all(message)


def walk(reader: serai.Reader, step: Callable[[serai.Reader], bool]) -> None:
    """Steps until one says it is at the tail; errors are passed, and the walk ends."""
    for _ in range(STEPS):
        before = reader.offset
        try:
            if not step(reader):
                break
            assert reader.offset > before
        except serai.SeraiError:
            if reader.offset == before:  # an index page is missing, which is said as often as it is asked
                return
        except VALUE_ERRORS:
            assert reader.offset > before
    else:
        raise AssertionError("the reader does not come to an end")
    assert not reader.wait(2)


def step_message(reader: serai.Reader) -> bool:
    message = reader.next()
    if message is not None:
        look_at(message)
    return message is not None


def step_payload(reader: serai.Reader) -> bool:
    return next(reader.payloads(), None) is not None


def step_batch(reader: serai.Reader) -> bool:
    batch = reader.read_batch(100)
    bodies = batch.to_list()
    assert [bytes(view) for view in batch] == bodies
    assert b"".join(bodies) == bytes(batch.data)
    assert len(batch.offsets) == len(bodies)
    return bool(bodies)


def step_row(reader: serai.Reader) -> bool:
    return next(reader.rows("byte", "string", "decimal", "bytes"), None) is not None


def step_skip(reader: serai.Reader) -> bool:
    return reader.skip(3) > 0


def read(queue: serai.Queue | serai.MultiQueue) -> None:
    for step in (step_message, step_payload, step_batch, step_row, step_skip):
        for start in (None, 0, 16, 1 << 20):
            walk(queue.reader(start), step)
    walk(queue.reader(checked=False), step_payload)
    reader = queue.reader(0)
    for offset in (0, 16, 240, 256, 4096, 16 * 255, 1 << 31, (1 << 62) - 16, (1 << 63) - 16, -16):
        with suppress(serai.SeraiError):
            message = reader.set_offset(offset)
            if message is not None:
                look_at(message)
    for question in (queue.last, queue.stat, reader.last):
        with suppress(serai.SeraiError):
            question()


def write(folder: Path) -> None:
    """What a writer may do to the directory: it goes on, or it refuses; then a reader still comes to an end."""
    for queue in opened(folder, "rw"):
        with queue:
            try:
                writer = queue.writer()
                offset = writer.append(b"after all")
                message = queue.reader().set_offset(offset)
                assert message is not None
                assert message.payload == b"after all"
                writer.append_many([bytes(50)] * 20)
                queue.compress()
                queue.expand()
            except serai.SeraiError:
                pass
            walk(queue.reader(), step_message)


def check(folder: Path) -> None:
    for checksum in (None, "index24"):
        try:
            report = verify(folder, checksum=checksum)
            assert all(problem.file for problem in report.problems)
        except serai.SeraiError:
            pass
    try:
        for _ in islice(entries(folder), STEPS):
            pass
    except serai.SeraiError:
        pass


def exercise(files: dict[str, bytes]) -> None:
    """Everything, on a directory with these files."""
    with tempfile.TemporaryDirectory(prefix="serai-fuzz-", dir=MEMORY) as name:
        folder = lay(files, Path(name) / "queue")
        folder.mkdir(exist_ok=True)
        for queue in opened(folder, "r"):
            with queue:
                read(queue)
        check(folder)
        shutil.copytree(folder, Path(name) / "repaired")
        with suppress(serai.SeraiError):
            repair(Path(name) / "repaired")
        check(Path(name) / "repaired")
        write(folder)
        check(folder)


MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # thousands of small files need no disk
