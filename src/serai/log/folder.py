"""The folder of a partition: its format file and its three streams of pages.

    format   text: version, identity, jafka-magic, page-bytes; written once, never changed
    marks    up to where everything is on the disk (`log.marks`)
    n.qd     data: records       n.qx   a slot for each message       n.qr   the record index

A folder appears whole: it is made under another name and renamed.  A version this program does not know is refused by
its number before anything is touched.  The words for damage are here, because they name files and bytes.
"""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from serai import config, limits
from serai._core.pages import Page
from serai._core.trail import Trail
from serai.errors import Corrupt, Misuse, NewerFormat
from serai.log import marks
from serai.log.format import DATA, FORMAT_FILE, INDEX, LOG_KIND, LOG_VERSION, RECORDS
from serai.log.store import PageFiles, space_for, sync_directory

_FORMAT_BYTES_MAX = 4096


@dataclass(frozen=True)
class Format:
    """What a partition is, for good."""

    identity: int  # 64 bits, begins every checksum: the record of one log is none of another's
    jafka_magic: int
    page_bytes: int


def read_words(path: Path, *, kind: str, version: int) -> dict[str, str]:
    """The lines of a format file; refuses a kind or a version that is not ours."""
    try:
        with open(path, encoding="ascii") as file:
            first, *lines = file.read(_FORMAT_BYTES_MAX).splitlines() or [""]
    except UnicodeDecodeError:
        first, lines = "", []
    name, _, number = first.rpartition(" ")
    if name != kind or not number.isdecimal():
        raise Corrupt(
            f"{path} does not begin with '{kind} <version>', so it cannot be said how to read {path.parent}; put the file back "
            "from a copy", file=str(path), position=0, expected=f"{kind} {version}", found=first[:40],
        )  # fmt: skip
    if int(number) != version:
        raise NewerFormat(
            f"{path.parent} is a {kind} of version {number}; this serai reads version {version} and changes nothing of it. Use "
            "the version of serai that wrote it, or a later one"
        )
    return dict(line.split(" ", 1) for line in lines if " " in line)


def write_words(path: Path, *, kind: str, version: int, words: dict[str, object]) -> None:
    """Writes a format file, whole or not at all; its name is not on the disk before its folder is synced."""
    text = f"{kind} {version}\n" + "".join(f"{name} {value}\n" for name, value in words.items())
    made = path.with_name(f".{path.name}.new")
    with space_for(path), open(made, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)


def read_format(directory: Path) -> Format:
    path = directory / FORMAT_FILE
    words = read_words(path, kind=LOG_KIND, version=LOG_VERSION)
    try:
        found = Format(int(words["identity"], 16), int(words["jafka-magic"]), int(words["page-bytes"]))
        if config.check_page_bytes(found.page_bytes, what="page-bytes") < limits.LOG_PAGE_BYTES_MIN:
            raise ValueError(f"page-bytes is below {limits.LOG_PAGE_BYTES_MIN}")
        if found.jafka_magic not in (0, 1) or not 0 < found.identity < 1 << 64:
            raise ValueError("identity or jafka-magic cannot be right")
    except (KeyError, ValueError) as error:
        raise Corrupt(
            f"{path} is damaged ({error}); put it back from a copy", file=str(path), expected="identity, jafka-magic, page-bytes",
            found=str(words),
        ) from None  # fmt: skip
    return found


def is_partition(directory: Path) -> bool:
    return (directory / FORMAT_FILE).exists()


def create(directory: Path, *, jafka_magic: int, page_bytes: int) -> None:
    """Makes the folder of an empty partition, whole or not at all."""
    if config.check_page_bytes(page_bytes, what="page_bytes") < limits.LOG_PAGE_BYTES_MIN:
        raise Misuse(f"page_bytes of a log is at least {limits.LOG_PAGE_BYTES_MIN}, not {page_bytes}")
    if jafka_magic not in (0, 1):
        raise Misuse(f"jafka_magic is 0 or 1, not {jafka_magic!r}")
    made = directory.with_name(f".{directory.name}.{os.urandom(6).hex()}.new")
    identity = int.from_bytes(os.urandom(8), "little") | 1
    try:
        with space_for(directory):
            made.mkdir(parents=True)
        marks.create(made)
        words = {"identity": f"{identity:016x}", "jafka-magic": jafka_magic, "page-bytes": page_bytes}
        write_words(made / FORMAT_FILE, kind=LOG_KIND, version=LOG_VERSION, words=words)
        sync_directory(made)
        _name(made, directory)
        sync_directory(directory.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _name(made: Path, directory: Path) -> None:
    try:
        os.rename(made, directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise Corrupt(
            f"{directory} holds files but no {FORMAT_FILE} file, so it cannot be said how to read them; put that back from a copy, "
            "or move the folder away", file=str(directory / FORMAT_FILE), expected="a format file", found="none",
        ) from None  # fmt: skip


class Folder:
    """The files of one partition, as readers and writers see them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.format = read_format(directory)
        page_bytes = self.format.page_bytes
        self.data_files = PageFiles(directory, DATA, page_bytes, held=True)
        self.slot_files = PageFiles(directory, INDEX, page_bytes)
        self.record_files = PageFiles(directory, RECORDS, page_bytes)
        self.damaged: set[tuple[int, int]] = set()  # what was found damaged: file offset or begin, and ordinal

    @property
    def page_bytes(self) -> int:
        return self.format.page_bytes

    @property
    def identity(self) -> int:
        """What checksums begin with."""
        return self.format.identity & 0xFFFFFFFF

    def data(self, offset: int, _need: int) -> tuple[Page, int] | None:
        return self._page(self.data_files, offset)

    def slots(self, offset: int, _need: int) -> tuple[Page, int] | None:
        return self._page(self.slot_files, offset)

    def records(self, offset: int, _need: int) -> tuple[Page, int] | None:
        return self._page(self.record_files, offset)

    def _page(self, files: PageFiles, offset: int) -> tuple[Page, int] | None:
        number = offset // self.page_bytes
        page = files.reading(number)
        return None if page is None else (page, number * self.page_bytes)

    def trail(self) -> Trail:
        """A reading end; which of its records need no check, the caller says."""
        return Trail(
            self, page_bytes=self.page_bytes, identity=self.identity, sure_from=1 << 62,
            inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
        )  # fmt: skip

    def forget(self) -> None:
        for files in (self.data_files, self.slot_files, self.record_files):
            files.forget_all()

    def sweep(self) -> None:
        """Removes pages that a writer which was killed left half made."""
        for files in (self.data_files, self.slot_files, self.record_files):
            files.sweep()

    def where(self, begin: int) -> tuple[Path, int]:
        """File and byte of a data offset."""
        number, position = divmod(begin, self.page_bytes)
        return self.data_files.path(number), position

    def damage(self, record: int, begin: int, ordinal: int, text: str) -> Corrupt:
        """The error for bytes that cannot be right; what is not known is negative."""
        if begin >= 0:
            path, position = self.where(begin)
        elif record >= 0:
            path, position = self.record_files.path(record // self.page_bytes), record % self.page_bytes
        else:
            path, position = self.slot_files.path(ordinal * 16 // self.page_bytes), ordinal * 16 % self.page_bytes
        of = f" (ordinal {ordinal})" if ordinal >= 0 else ""
        if len(self.damaged) < limits.DAMAGED_KEPT_MAX:
            self.damaged.add((-1, ordinal) if ordinal >= 0 else (max(begin, record), -1))
        error = Corrupt(
            f"{path} byte {position}{of} of log {self.path.name}: {text}. Nothing of it is given out; what lies before and behind "
            f"can be read. `serai verify {self.path}` lists all damage", file=str(path), position=position,
            expected="a record as it was written", found=text,
        )  # fmt: skip
        error.ordinal = ordinal if ordinal >= 0 else None
        return error
