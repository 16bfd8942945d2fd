"""A queue directory as far as it can be made out, a damaged one too.

`serai.Queue` refuses what it cannot trust; looking at damage needs somebody who takes the directory as
it is: the kind by its files, the page size by what most page files agree on, the entries as they lie.
A `Place` changes nothing, and is what `log.verify` walks over.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from serai.errors import Misuse
from serai.log import recovery
from serai.log.format import (
    COMPRESSED,
    DATA,
    INDEX,
    INDEX_JAVA,
    PUBLISHED,
    SLOT,
    SLOT_BYTES,
    STATE,
    STORED_NAME,
    name_text,
)  # fmt: skip
from serai.log.lock import is_held
from serai.log.seal import DataFiles
from serai.log.store import PageFiles


@dataclass(frozen=True)
class Entry:
    """One index entry that is in use."""

    offset: int
    begin: int
    size: int
    producer: str
    published: bool
    checksum: int  # 0 where there is none


def kind_of(path: str | os.PathLike[str]) -> str:
    """What a directory holds: "single", "multi", or "" while nothing was written."""
    names = os.listdir(path)
    if any(name.endswith((DATA, COMPRESSED)) for name in names):
        return "single"
    if any(name.endswith((STATE, INDEX_JAVA)) for name in names) or folders(Path(path)):
        return "multi"
    return "single" if any(name.endswith(INDEX) for name in names) else ""


def folders(directory: Path) -> list[str]:
    """The producers that have data pages."""
    return sorted(
        folder.name
        for folder in directory.iterdir()
        if STORED_NAME.fullmatch(folder.name)
        and folder.is_dir()
        and any(name.endswith((DATA, COMPRESSED)) for name in os.listdir(folder))
    )


class Place:
    """The files of a queue directory; to readers it is the queue they belong to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise Misuse(f"{self.path} is not a directory, so there is no queue in it")
        self.shared = kind_of(self.path) == "multi"
        self.lengths = recovery.page_sizes(self.path, (INDEX, INDEX_JAVA, DATA))
        self.page_bytes = _likely_page_bytes(list(self.lengths.values()))
        java = self.shared and any(self.path.glob("*" + INDEX_JAVA))
        self.index = PageFiles(self.path, INDEX_JAVA if java else INDEX, self.page_bytes)
        self._streams: dict[str, DataFiles] = {}

    def measure(self) -> int:
        return self.page_bytes

    def stream(self, producer: str) -> DataFiles:
        if producer not in self._streams:
            self._streams[producer] = DataFiles(PageFiles(self.path / producer, DATA, self.page_bytes))
        return self._streams[producer]

    def where(self, offset: int) -> tuple[Path, int]:
        """File and byte of an entry."""
        number, position = divmod(offset, self.page_bytes)
        return self.index.path(number), position

    def at_work(self, producer: str) -> bool:
        """Whether a producer lives: it holds the lock of its state file."""
        try:
            return is_held(self.path / (producer + STATE))
        except (OSError, ValueError):  # a damaged name, or a file nobody may open: not at work as far as can be seen
            return False


def _likely_page_bytes(lengths: list[int]) -> int:
    """The page size most files agree on; one entry when none can be one, so that arithmetic goes on."""
    possible = [length for length in lengths if length >= SLOT_BYTES and length & (length - 1) == 0]
    return max(possible, key=lambda length: (possible.count(length), length), default=SLOT_BYTES)


def entries(path: str | os.PathLike[str], *, offset: int | None = None) -> Iterator[Entry]:
    """Every entry that is in use, in order, from `offset` on; nothing of it is checked."""
    place = Place(path)
    first = recovery.first_offset(place.index)
    for at, raw in recovery.blocks(place.index, first if offset is None else max(offset, first)):
        if not any(raw):
            continue
        for i, (begin, size, tag, flag) in enumerate(SLOT.iter_unpack(raw[: len(raw) & -SLOT_BYTES])):
            if flag or size or begin or any(tag):
                number = int.from_bytes(tag, "little")
                yield Entry(
                    at + SLOT_BYTES * i, begin, size, producer=name_text(number) if place.shared and number else "",
                    published=flag == PUBLISHED, checksum=0 if place.shared else number,
                )  # fmt: skip


def gaps(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last number of each stretch that is missing between others."""
    for before, after in pairwise(numbers):
        if after > before + 1:
            yield before + 1, after - 1


def stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last number of each stretch without a gap."""
    between = list(gaps(numbers))
    starts = [*numbers[:1], *(high + 1 for _low, high in between)]
    return list(zip(starts, [*(low - 1 for low, _high in between), *numbers[-1:]], strict=True))


def page_names(low: int, high: int, suffix: str) -> str:
    """A stretch of page files with its verb, as a sentence begins."""
    return f"{low}{suffix} is" if low == high else f"{low}{suffix} to {high}{suffix} are"
