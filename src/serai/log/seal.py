"""Compressed pages: a full data page `n.qd` becomes `n.qd.zst`, and is read as if it were still there.

    [frame 0][frame 1] ... [seek table: compressed and plain size of each frame, count, magic]

The public seekable form of Zstandard: every frame holds 128 KiB of the page and a checksum, the table
is a skippable frame, so any zstd tool restores the page (`zstd -d n.qd.zst`), after which the Java
library reads it again.  A random read inflates one frame; a reader that goes on inflates eight.

Invariants
- only pages that no writer can touch again are compressed: they lie below the end of what is published
- the compressed page is complete and on disk before the plain one is removed
- a mapped plain page stays readable for those who hold it
"""

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serai import limits
from serai._core.pages import Page
from serai.errors import Corrupt
from serai.log.format import COMPRESSED
from serai.log.lock import alone
from serai.log.store import PageFiles, new_name, space_for, sync_directory

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TABLE_HEAD = struct.Struct("<II")  # magic of a skippable frame, its length
TABLE_ENTRY = struct.Struct("<II")  # compressed size, plain size
TABLE_FOOT = struct.Struct("<IBI")  # number of frames, descriptor, magic
SKIPPABLE = 0x184D2A5E
SEEKABLE = 0x8F92EAB1
FRAMES_AHEAD = 8
LEVEL = 3


@dataclass(frozen=True)
class SealedPage:
    """A compressed page: where each frame lies in its file."""

    path: Path
    starts: list[int]  # of each frame, and the end of the last
    frame_bytes: int  # plain bytes in each of them

    def frames(self, first: int, stop: int) -> bytes:
        """The plain bytes of some frames."""
        with open(self.path, "rb") as file:
            return b"".join(self._frame(file.fileno(), number) for number in range(first, stop))

    def _frame(self, fd: int, number: int) -> bytes:
        start, stop = self.starts[number], self.starts[number + 1]
        raw = os.pread(fd, stop - start, start)
        inflate = zstd.ZstdDecompressor()
        try:
            plain = inflate.decompress(raw, self.frame_bytes + 1)
        except zstd.ZstdError as error:
            raise self._damage(start, f"frame {number} does not inflate ({error})") from error
        if len(plain) != self.frame_bytes or not inflate.eof:
            raise self._damage(start, f"frame {number} has {len(plain)} bytes, not {self.frame_bytes}")
        return plain

    def _damage(self, position: int, text: str) -> Corrupt:
        return damage(self.path, position, text)


def damage(path: Path, position: int, text: str) -> Corrupt:
    return Corrupt(
        f"{path} byte {position}: {text}. Restore the file from a copy, or seek behind its messages",
        file=str(path), position=position, expected="a compressed page", found=text,
    )  # fmt: skip


class DataFiles:
    """One data stream for readers: plain pages where they are, compressed ones where they are not."""

    def __init__(self, files: PageFiles) -> None:
        self.files = files
        self.sealed = PageFiles(files.directory, COMPRESSED, files.page_bytes)
        self._open: dict[int, SealedPage] = {}
        self._next = -1  # where a sequential reader of compressed pages goes on

    def fetch(self, offset: int, need: int) -> tuple[Page, int] | None:
        """A window that holds `need` bytes from `offset` on; None while there is no such page."""
        number, position = divmod(offset, self.files.page_bytes)
        page = self.files.reading(number)
        sealed = self.sealed_page(number) if page is None else None
        if page is None and sealed is None:
            page = self.files.reading(number)  # it was expanded between the two looks
        if page is not None:
            return page, number * self.files.page_bytes
        if sealed is None:
            return None
        frame = limits.FRAME_BYTES
        first, last = position // frame, (position + max(need, 1) - 1) // frame
        if first * frame + number * self.files.page_bytes == self._next or first == 0:
            last = max(last, min(first + FRAMES_AHEAD - 1, len(sealed.starts) - 2))
        try:
            plain = sealed.frames(first, last + 1)
        except FileNotFoundError:  # expanded since we looked
            self.forget(number)
            return self.fetch(offset, need)
        window = Page(-1, len(plain), True)
        window.write(0, plain)
        start = number * self.files.page_bytes + first * frame
        self._next = start + len(plain)
        return window, start

    def has(self, begin: int, size: int) -> bool:
        """Whether every page of these bytes is there."""
        first = begin // self.files.page_bytes
        last = max(begin + size - 1, begin) // self.files.page_bytes
        return size == 0 or all(self._has_page(number) for number in range(first, last + 1))

    def _has_page(self, number: int) -> bool:
        here = self.files.present
        return here(number) or self.sealed.path(number).exists() or here(number)  # expanded between two looks

    def make_plain(self, number: int) -> None:
        """Expands the page if only the compressed one is there: a writer is about to go on in it."""
        if not self.files.present(number) and self.sealed.path(number).exists():
            expand_page(self, number)

    def read(self, begin: int, size: int) -> bytes:
        """The bytes begin..begin+size, copied; shorter when pages are missing."""
        parts = []
        while size > 0:
            here = min(size, self.files.page_bytes - begin % self.files.page_bytes)
            found = self.fetch(begin, here)
            if found is None:
                break
            page, start = found
            parts.append(bytes(memoryview(page)[begin - start : begin - start + here]))
            begin += here
            size -= here
        return b"".join(parts)

    def sealed_page(self, number: int) -> SealedPage | None:
        """The compressed page; None when there is none."""
        sealed = self._open.get(number)
        if sealed is None:
            path = self.sealed.path(number)
            try:
                with open(path, "rb") as file:
                    starts = read_table(path, file.fileno(), self.files.page_bytes)
                    sealed = SealedPage(path, starts, min(limits.FRAME_BYTES, self.files.page_bytes))
            except FileNotFoundError:
                return None
            self._open[number] = sealed
        return sealed

    def forget(self, number: int) -> None:
        """Lets one compressed page go: its file is no longer there."""
        self._open.pop(number, None)


def read_table(path: Path, fd: int, page_bytes: int) -> list[int]:
    """Where each frame of a compressed page lies, checked against the page length before it is believed."""
    length = os.fstat(fd).st_size
    foot = os.pread(fd, TABLE_FOOT.size, max(0, length - TABLE_FOOT.size))
    count, descriptor, magic = TABLE_FOOT.unpack(foot) if len(foot) == TABLE_FOOT.size else (0, 0, 0)
    if magic != SEEKABLE or descriptor & 0x80:
        raise damage(path, max(0, length - TABLE_FOOT.size), "it does not end in a seek table")
    expected = -(-page_bytes // limits.FRAME_BYTES)
    table_bytes = count * TABLE_ENTRY.size
    if count != expected or table_bytes + TABLE_HEAD.size + TABLE_FOOT.size > length:
        raise damage(path, length - TABLE_FOOT.size, f"its seek table has {count} frames, a page has {expected}")
    at = length - TABLE_FOOT.size - table_bytes
    starts, plain = [0], 0
    for compressed, size in TABLE_ENTRY.iter_unpack(os.pread(fd, table_bytes, at)):
        starts.append(starts[-1] + compressed)
        plain += size
    if starts[-1] != at - TABLE_HEAD.size or plain != page_bytes:
        raise damage(path, at, f"its seek table adds up to {plain} plain bytes, a page has {page_bytes}")
    return starts


def compress(data: DataFiles, end: int) -> Iterator[int]:
    """Compresses every page that lies wholly below `end`; gives the number of each as it is done."""
    if not data.files.directory.is_dir():  # a producer that died before it made its folder
        return
    with alone(data.files.directory, "compress or expand"):
        data.sealed.sweep()
        for number in data.files.numbers():
            if (number + 1) * data.files.page_bytes <= end and data.files.present(number):
                _compress_page(data.files.path(number), data.sealed.path(number))
                data.files.path(number).unlink()
                data.files.forget(number)
                yield number


def _compress_page(source: Path, target: Path) -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    made = new_name(target)
    try:
        with space_for(target):
            _write_frames(source, made, options)
            os.replace(made, target)
        sync_directory(target.parent)
    finally:
        made.unlink(missing_ok=True)


def _write_frames(source: Path, made: Path, options: dict[int, int]) -> None:
    sizes = []
    with open(source, "rb") as plain, open(made, "xb") as out:
        while block := plain.read(limits.FRAME_BYTES):
            frame = zstd.compress(block, options=options)
            sizes.append(TABLE_ENTRY.pack(len(frame), len(block)))
            out.write(frame)
        table = b"".join(sizes) + TABLE_FOOT.pack(len(sizes), 0, SEEKABLE)
        out.write(TABLE_HEAD.pack(SKIPPABLE, len(table)) + table)
        out.flush()
        os.fsync(out.fileno())


def expand(data: DataFiles) -> Iterator[int]:
    """Makes every compressed page a plain one again; gives the number of each as it is done."""
    if not data.files.directory.is_dir():
        return
    with alone(data.files.directory, "compress or expand"):
        for number in data.sealed.numbers():
            if not data.files.present(number):
                expand_page(data, number)
            data.sealed.path(number).unlink()
            data.forget(number)
            yield number


def expand_page(data: DataFiles, number: int) -> None:
    """Writes the plain page beside the compressed one, which from then on is not looked at."""
    target = data.files.path(number)
    made = new_name(data.sealed.path(number))  # a starting writer sweeps half-made pages, and this is not its own
    sealed = data.sealed_page(number)
    if sealed is None:
        return
    try:
        with space_for(target), open(made, "xb") as out:
            out.writelines(sealed.frames(frame, frame + 1) for frame in range(len(sealed.starts) - 1))
            out.flush()
            os.fsync(out.fileno())
            os.replace(made, target)
        sync_directory(target.parent)
    finally:
        made.unlink(missing_ok=True)
