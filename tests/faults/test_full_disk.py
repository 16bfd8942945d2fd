"""A full disk: a clear error, no signal, reading goes on, and writing again as soon as there is space.

Everything happens in other processes on a small file system of its own, because what must not happen is a SIGBUS.  The
file system is filled to the last block, so that every touch of a page nobody reserved would show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.disks import mount_image, mount_tmpfs, unmount
from tests.faults.kit import run_python, said

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    if request.param == "tmpfs":
        mount_tmpfs(disk, "size=8m", "nr_inodes=200")
    else:
        mount_image("ext4", disk, mib=16)
    yield disk
    unmount(disk)


TOOLS = """
import faulthandler, itertools, os, random, sys
from pathlib import Path
import serai
from tests.faults.kit import body, proof
DISK = Path(sys.argv[1])
faulthandler.enable()
for number in range(4):
    (DISK / f"ballast{number}").write_bytes(bytes(400_000))

def stuff():
    "Takes every block that is left."
    left = []
    for length in (1 << 20, 4096, 1024):
        try:
            with open(DISK / f"stuff{length}", "ab", buffering=0) as file:
                while True:
                    file.write(bytes([7]) * length)
                    os.fsync(file.fileno())
        except OSError:
            pass
    free = os.statvfs(DISK)
    assert free.f_bavail * free.f_frsize < 16384, free.f_bavail

def let_go(length=None):
    "Frees some bytes of a ballast, or one of them and all that was stuffed."
    ballast = sorted(DISK.glob("ballast*"))[0]
    if length is not None:
        os.truncate(ballast, ballast.stat().st_size - length)
        return
    for path in (ballast, *DISK.glob("stuff*")):
        path.unlink()

def small(number, epoch=5):
    return next(b for e in itertools.count(epoch) if len(b := body(e, number)) < 1000)

def clear(error, name):
    text = str(error)
    assert type(error) is serai.DiskFull and error.code == "disk-full", type(error)
    assert str(DISK) in text and name in text and "space" in text, text

def fill(writer, first=0, epoch=1):
    "Appends until the disk is full; how many there are then."
    number = first
    try:
        while number < 200_000:
            writer.append(body(epoch, number))
            number += 1
    except serai.DiskFull as error:
        clear(error, ".q")
        return number
    raise AssertionError("the disk is never full")

def look(queue, count):
    "Everything a reader can do, several times: all that is there, the tail, far beyond it, at random."
    dice = random.Random(count)
    for _ in range(2):
        assert [proof(p)[1] for p in queue.reader().payloads()] == list(range(count))
    reader, seen = queue.reader(0), 0
    while len(batch := reader.read_batch(100_000)):
        seen += len(batch)
    assert seen == count
    for _ in range(300):
        assert reader.next() is None and not reader.wait(10) and len(reader.read_batch()) == 0 and reader.skip(5) == 0
    for _ in range(100):
        at = dice.randrange(count)
        assert proof(reader.set_offset(16 * at).payload)[1] == at
    for far in (16, 4096, 65536, 1 << 20, 1 << 22, 1 << 40):
        assert reader.set_offset(16 * count + far) is None and reader.next() is None and not reader.wait(3)
        beyond = queue.reader(16 * count + far)
        assert beyond.next() is None and not beyond.wait(3) and len(beyond.read_batch()) == 0 and beyond.last() is not None
    assert proof(queue.last().payload)[1] == count - 1
    assert queue.stat().messages == count
"""


def scene(disk: Path, source: str, *arguments: object) -> str:
    text = said(run_python(TOOLS + source, disk, *arguments))
    print(f"\n{text.strip()}")
    return text


@pytest.mark.parametrize("page_size", [pytest.param(1 << 16, marks=pytest.mark.slow), 1 << 20, 1 << 30])
def test_single_writer_and_its_readers_live_through_a_full_disk(page_size: int, disk: Path) -> None:
    scene(disk, """
with serai.Queue(DISK / "q", page_size=int(sys.argv[2])) as queue:
    writer = queue.writer()
    count = fill(writer)
    stuff()
    count = fill(writer, count)
    for _ in range(5):
        assert fill(writer, count) == count
    look(queue, count)
    with serai.Queue(DISK / "q", "r") as other:
        look(other, count)
    queue.force()
    let_go()
    assert writer.append(small(count)) == 16 * count
    more = fill(writer, count + 1)
    look(queue, more)
stuff()
with serai.Queue(DISK / "q") as queue:      # opened, and written to, on the full disk
    more = fill(queue.writer(), more)
    look(queue, more)
let_go()
with serai.Queue(DISK / "q") as queue:
    assert queue.writer().append(small(more)) == 16 * more
    look(queue, more + 1)
print(count, "and", more + 1 - count, "messages, full 9 times")
""", page_size)  # fmt: skip


@pytest.mark.parametrize("page_size", [pytest.param(1 << 16, marks=pytest.mark.slow), 1 << 20])
def test_little_space_is_enough_for_a_little_message(page_size: int, disk: Path) -> None:
    """A busy writer asks for much at once; on a disk that is nearly full it takes what it needs."""
    scene(disk, """
with serai.Queue(DISK / "q", page_size=int(sys.argv[2])) as queue:
    writer = queue.writer()
    count = fill(writer)
    stuff()
    count = fill(writer, count)
    let_go(64 * 1024)
    for _ in range(10):
        assert writer.append(small(count)) == 16 * count
        count += 1
    look(queue, count)
print(count, "messages")
""", page_size)  # fmt: skip


def test_reader_in_another_process_follows_until_the_disk_is_full_and_on(disk: Path) -> None:
    said_ = scene(
        disk,
        """
import subprocess
follow = '''
import sys, serai
from tests.faults.kit import proof
queue = serai.Queue(sys.argv[1], "r")
seen = 0
for m in serai.tail(queue.reader(0), idle="yield", timeout=30):
    if m.size == 0:
        break
    assert m.offset == 16 * seen and proof(m.payload)[1] == seen
    seen += 1
    if seen % 97 == 0:
        assert queue.last().offset >= m.offset and queue.reader(m.offset + (1 << 20)).next() is None
print(seen)
'''
with serai.Queue(DISK / "q", page_size=1 << 20) as queue:
    writer = queue.writer()
    writer.append(body(1, 0))
    reader = subprocess.Popen([sys.executable, "-c", follow, str(DISK / "q")], stdout=subprocess.PIPE, text=True)
    count = fill(writer, 1)
    stuff()
    for _ in range(200):
        count = fill(writer, count)
    let_go()
    for _ in range(50):
        writer.append(small(count))
        count += 1
    writer.append(b"")
assert reader.communicate()[0] == f"{count}\\n" and reader.returncode == 0, reader.returncode
print(count, "messages, each followed")
""",
    )
    assert said_


def test_several_producers_live_through_a_full_disk(disk: Path) -> None:
    """Also when the next index page cannot be made while the others have taken the entries this one had in view."""
    scene(
        disk,
        """
from itertools import cycle
with serai.MultiQueue(DISK / "q", name="AA0", page_size=4096) as a, serai.MultiQueue(DISK / "q", name="BB1", page_size=4096) as b:
    first, second = a.writer(), b.writer()
    sent = {"AA0": 0, "BB1": 0}
    def write(name, writer, size=None):
        writer.append(body(1, sent[name])[:size])
        sent[name] += 1
    write("AA0", first)
    write("BB1", second)
    stuff()
    full = {"AA0": False, "BB1": False}
    for name, writer in (("BB1", second), ("AA0", first)):      # empty ones need no data, only entries
        for _ in range(400):
            try:
                write(name, writer, 0)
            except serai.DiskFull as error:
                clear(error, ".qx")
                full[name] = True
    assert all(full.values()), (full, sent)
    for _ in range(3):                                           # these die inside their claim
        for writer in (first, second):
            for size in (100, 3000, 9000):
                try:
                    writer.append(bytes(size))
                    raise AssertionError("there was space")
                except serai.DiskFull as error:
                    clear(error, ".q")
    with serai.MultiQueue(DISK / "q") as reading:
        reader = reading.reader()
        assert sum(1 for m in reader) == sum(sent.values())
        assert reader.next() is None and reading.last() is not None
        assert reading.reader(16 * 100_000).next() is None
    let_go()
    before = sum(sent.values())
    for name, writer in (("AA0", first), ("BB1", second)) * 20:
        write(name, writer)
with serai.MultiQueue(DISK / "q", name="AA0") as a, serai.MultiQueue(DISK / "q", name="BB1") as b:
    for name, queue in (("AA0", a), ("BB1", b)) * 20:
        write(name, queue.writer())
    with serai.MultiQueue(DISK / "q") as reading:
        found = [(m.producer, m.payload) for m in reading.reader()]
assert len(found) == sum(sent.values())
for name in sent:
    whole = [proof(payload)[1] for producer, payload in found if producer == name and payload]
    assert whole == sorted(set(whole)) and whole[-40:] == list(range(sent[name] - 40, sent[name])), (name, whole)
print(before, "and", len(found) - before, "messages of two producers")
""",
    )


@pytest.mark.parametrize("shape", ["append_many", "column", "rows"])
def test_batch_that_meets_the_full_disk_says_how_far_it_came(shape: str, disk: Path) -> None:
    scene(disk, """
from tests.faults.kit import HEAD
shape = sys.argv[2]
bodies = [body(1, number) for number in range(60_000)]
with serai.Queue(DISK / "q", page_size=1 << 18) as queue:
    writer = queue.writer()
    try:
        if shape == "append_many":
            writer.append_many(bodies)
        elif shape == "rows":
            writer.template("int", "long", "bytes").append_many((1, n, bodies[n][HEAD.size:]) for n in range(len(bodies)))
        else:
            with serai.Queue(sys.argv[3], page_size=1 << 30) as shelf:
                shelf.writer().append_many(bodies)
                batch = shelf.reader().read_batch(1 << 30)
                assert len(batch) == len(bodies)
                writer.extend_arrow(batch.values)
        raise AssertionError("the disk is never full")
    except serai.DiskFull as error:
        clear(error, ".q")
        note = " ".join(error.__notes__)
    count = queue.stat().messages
    assert 0 < count < len(bodies)
    assert str(count) in note.split(), (count, note)
    look(queue, count)
    stuff()
    try:
        writer.append_many([bytes(100_000)] * 20)
        raise AssertionError("there was space")
    except serai.DiskFull:
        pass
    count += queue.stat().messages - count
    let_go()
    assert writer.append(b"goes on") == 16 * count
print(shape, note)
""", shape, disk.parent / "shelf")  # fmt: skip


def test_message_built_by_a_chain_is_given_up_when_the_disk_is_full(disk: Path) -> None:
    """Half a message over several pages: nothing of it is ever published, whatever is called next."""
    scene(
        disk,
        """
with serai.Queue(DISK / "q", page_size=1 << 16) as queue:
    writer = queue.writer()
    count = fill(writer)
    stuff()
    count = fill(writer, count)
    for again in ("discard", "new_message", "append", "write_message"):
        writer.new_message().pack_int(1)
        try:
            for _ in range(100):
                writer.pack_sized_bytes(bytes([count % 256]) * 60_000)
            raise AssertionError("there was space")
        except serai.DiskFull as error:
            clear(error, ".q")
        assert queue.stat().messages == count
        if again == "write_message":       # the value that failed is not in it, so it must not be published
            try:
                writer.write_message()
                raise AssertionError("a torn message was published")
            except RuntimeError:
                pass
        if again == "discard":
            writer.discard()
        let_go()
        if again == "new_message":
            writer.new_message().pack_bytes(small(count)).write_message()
        else:
            writer.append(small(count))
        count += 1
        stuff()
        count = fill(writer, count)
    look(queue, count)
print(count, "messages, four given up")
""",
    )


def test_compressing_on_a_full_disk_changes_nothing(disk: Path) -> None:
    scene(
        disk,
        """
bodies = [random.Random(number).randbytes(8000) for number in range(500)]

def whole():
    with serai.Queue(DISK / "q", "r") as queue:
        assert list(queue.reader().payloads()) == bodies
    assert not list((DISK / "q").glob("*.new"))

def refused(work, name):
    with serai.Queue(DISK / "q") as queue:
        try:
            getattr(queue, work)()
            raise AssertionError("there was space")
        except serai.DiskFull as error:
            clear(error, name)
    whole()

with serai.Queue(DISK / "q", page_size=1 << 20) as queue:
    queue.writer().append_many(bodies)
stuff()
refused("compress", ".zst")
refused("compress", ".zst")
for _ in range(4):
    let_go()
with serai.Queue(DISK / "q") as queue:
    assert queue.compress() == 3
whole()
stuff()
refused("expand", ".qd")
for path in DISK.glob("stuff*"):
    path.unlink()
with serai.Queue(DISK / "q") as queue:
    assert queue.expand() == 3 and queue.stat().compressed_pages == 0
whole()
print("3 pages there and back")
""",
    )


def test_queue_cannot_be_made_on_a_full_disk_and_can_later(disk: Path) -> None:
    scene(
        disk,
        """
(DISK / "q").mkdir()
(DISK / "m").mkdir()
stuff()
single = lambda: serai.Queue(DISK / "q")
several = lambda: serai.MultiQueue(DISK / "m", name="AA0")
for make in (single, several) * 2:
    try:
        with make() as queue:
            queue.writer().append(b"x")
        raise AssertionError("there was space")
    except serai.DiskFull as error:
        clear(error, ".q")
for folder, make in ((DISK / "q", single), (DISK / "m", several)):
    assert not [path for path in folder.rglob("*") if path.name.endswith((".qx", ".qd", ".new"))]
    with make() as queue:
        assert queue.last() is None and list(queue.reader()) == [] and queue.stat().messages == 0
let_go()
for make in (single, several):
    with make() as queue:
        assert queue.writer().append(b"x") == 0
print("made when there was space")
""",
    )


def test_file_system_without_a_free_file_is_full_too(disk: Path) -> None:
    """No inode is left: there are blocks, but no page can be made."""
    scene(
        disk,
        """
with serai.Queue(DISK / "q", page_size=4096) as queue:
    writer, count = queue.writer(), 0
    def stuff_files():
        (DISK / "files").mkdir(exist_ok=True)
        for number in range(100_000):
            try:
                os.close(os.open(DISK / "files" / str(number), os.O_CREAT | os.O_WRONLY))
            except OSError:
                return
    writer.append(body(1, 0))
    count = 1
    stuff_files()
    stopped = fill(writer, count)
    look(queue, stopped)
    for path in sorted((DISK / "files").iterdir())[:50]:
        path.unlink()
    for number in range(stopped, stopped + 20):
        assert writer.append(body(1, number)) == 16 * number
    look(queue, stopped + 20)
print(stopped, "messages without a free file")
""",
    )
