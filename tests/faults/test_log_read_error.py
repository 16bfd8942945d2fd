"""A page that cannot be read: said with its file, byte and ordinal by whoever reads, and no signal ends the process.

Once by files cut short under a reader that maps them, and once by a real disk: an image whose backing file ends early, so that the
kernel answers reads behind that with EIO.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from serai._core.pages import sync_file_system
from serai.errors import Failed
from serai.log.engine import Level
from serai.log.partition import open_partition
from tests.faults.disks import mount_image, run, unmount
from tests.faults.kit import run_python, said
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from pathlib import Path

    from serai.log.partition import Partition

PAGE_BYTES = 1 << 16
MESSAGES = 1500
KEPT = 20_480  # bytes of a file that a broken disk still gives
FIBMAP = 1  # which block of the disk holds a block of a file

# Reads all there is, over what the disk does not give, and then looks at everything.
READING = """
import os, sys
folder, name, one_by_one = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
lost = range(int(sys.argv[4]), int(sys.argv[5]))
from serai.errors import Corrupt
from serai.log.audit import audit
from serai.log.listing import messages
from serai.log.view import View
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE

def read(view, one_by_one):
    "Ordinals that came, and the words for the others."
    came, words, ordinal = [], [], view.first
    while ordinal < view.end:
        try:
            spans = view.spans(ordinal, bytes_max=1 if one_by_one else 20_000, messages_max=1 if one_by_one else 1000)
        except Corrupt as error:
            words.append(str(error))
            assert error.next_ordinal > ordinal
            ordinal = error.next_ordinal
            continue
        for span in spans:
            for entry in oracle.decode(bytes(span.data), HOUSE):
                assert entry.body == b"%d " % ordinal * 40, ordinal
                came.append(ordinal)
                ordinal += 1
    return came, words

def tell(folder, name, one_by_one, view):
    with view:
        came, words = read(view, one_by_one)
        rows = list(messages(view, view.first))
    assert came == [ordinal for ordinal in range(view.end) if ordinal not in lost], (lost, len(came))
    for text in words:
        assert f"{folder}/{name}" in text, text
    assert all(row.problem for row in rows if row.ordinal not in came and row.ordinal < view.end)
    problems = audit(folder).problems
    assert problems and all(problem.file == f"{folder}/{name}" for problem in problems), problems[:3]
    print(f"{name}: {len(came)} messages came, {len(words)} errors, {len(problems)} problems, {words[:1]}")

view = View(folder)
"""


def fill(path: Path) -> None:
    with open_partition(path, page_bytes=PAGE_BYTES) as log:
        append_all(log)


def append_all(log: Partition) -> None:
    for at in range(MESSAGES):
        log.append(oracle.encode(Entry(HOUSE, b"%d " % at * 40)), HOUSE, level=Level.RECEIVE, now_ms=at)


def lost_of(folder: Path, name: str, kept: int, *, one_by_one: bool) -> range:
    """The messages that cannot come when a page has only its first `kept` bytes: one is one record here."""
    match name:
        case "0.qx":  # slots are needed by who asks for a part of a record
            return range(kept // 16, MESSAGES) if one_by_one else range(0)
        case "0.qr":
            return range(kept // 32, MESSAGES)
        case _:
            hit = range(PAGE_BYTES + kept, 2 * PAGE_BYTES)
            found = [
                one.ordinal
                for one in byhand.read(folder)
                if one.begin + one.length > hit.start and one.begin < hit.stop
            ]
            return range(found[0], found[-1] + 1)


def read_over_damage(folder: Path, name: str, lost: range, before: str = "", *, one_by_one: bool) -> None:
    done = run_python(
        READING + before + "tell(folder, name, one_by_one, view)", folder, name, one_by_one, lost.start, lost.stop
    )
    print(f"\n{said(done).strip()}")


@pytest.mark.parametrize("one_by_one", [False, True], ids=["in spans", "one by one"])
@pytest.mark.parametrize("name", ["1.qd", "0.qx"])
def test_file_cut_short_under_a_reader_is_damage_and_no_signal(name: str, one_by_one: bool, tmp_path: Path) -> None:
    fill(tmp_path / "one")
    lost = lost_of(tmp_path / "one", name, 12_288, one_by_one=one_by_one)
    read_over_damage(tmp_path / "one", name, lost, """
first = next(at for at in range(view.end) if view.trail.record(32 * at)[2] >= 65536)
for ordinal in (0, first):                              # of each file the first memory page is mapped and read, no other
    assert view.spans(ordinal, bytes_max=1)
os.truncate(f"{folder}/{name}", 12288)
""", one_by_one=one_by_one)  # fmt: skip


@pytest.mark.parametrize("name", ["1.qd", "0.qx", "0.qr"])
def test_disk_that_does_not_give_a_page_is_damage_and_no_signal(name: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    image = mount_image("ext4", disk)
    try:
        fill(disk / "one")
        lost = [lost_of(disk / "one", name, KEPT, one_by_one=one_by_one) for one_by_one in (False, True)]
        end = move_behind_all(disk, disk / "one" / name, KEPT)
        unmount(disk)
        assert run("mount", "-o", "loop,ro,noload", image, disk)
        os.truncate(image, end)
        with pytest.raises(OSError, match="Input/output error"):
            (disk / "one" / name).read_bytes()
        for one_by_one in (False, True):
            read_over_damage(disk / "one", name, lost[one_by_one], one_by_one=one_by_one)
    finally:
        unmount(disk)


def test_what_the_disk_does_not_give_is_not_cut_when_a_log_is_opened(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    image = mount_image("ext4", disk)
    try:
        log = open_partition(disk / "one", page_bytes=PAGE_BYTES)
        append_all(log)
        log.commit()
        log.abandon()
        end = move_behind_all(disk, disk / "one" / "1.qd", KEPT)
        unmount(disk)
        with open(image, "rb") as file:
            gone = os.pread(file.fileno(), image.stat().st_size - end, end)
        size = image.stat().st_size
        assert run("mount", "-o", "loop", image, disk)
        os.truncate(image, end)
        before = [path.read_bytes() for path in sorted((disk / "one").glob("*.q[xr]"))]
        with pytest.raises(Failed, match=r"did not give .* open the log again"):
            open_partition(disk / "one")
        assert [path.read_bytes() for path in sorted((disk / "one").glob("*.q[xr]"))] == before
        os.truncate(image, size)
        with open(image, "r+b") as file:  # the disk is well again
            os.pwrite(file.fileno(), gone, end)
        with open_partition(disk / "one") as log:
            assert log.end == MESSAGES
    finally:
        unmount(disk)


def move_behind_all(disk: Path, file: Path, kept: int) -> int:
    """Puts a file behind everything else on a disk; the byte of the disk where what is behind `kept` bytes of it begins."""
    with open(disk / "filler", "wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, 40 << 20)
    shutil.copyfile(file, made := file.with_name("made"))
    os.replace(made, file)
    with open(file, "rb") as moved:  # a block is chosen when it is written; `os.sync` would wait for every other disk
        sync_file_system(moved.fileno())
    others = [path for path in disk.rglob("*") if path.is_file() and path.name not in (file.name, "filler")]
    behind = max(block for path in others for block in blocks_of(path))
    found = [block for block in blocks_of(file)[kept // 1024 :] if block]
    assert found == list(range(found[0], found[0] + len(found)))
    assert found[0] > behind
    return found[0] * 1024


def blocks_of(path: Path) -> list[int]:
    """Which blocks of the disk a file has."""
    with open(path, "rb") as file:
        numbers = range((os.fstat(file.fileno()).st_size + 1023) // 1024)
        return [struct.unpack("i", fcntl.ioctl(file, FIBMAP, struct.pack("i", number)))[0] for number in numbers]
