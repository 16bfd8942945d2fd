"""Compressed pages: read as if they were plain, restored byte for byte, damaged ones named.

A page of 1 MiB has eight frames of 128 KiB; a page of 4 KiB is one frame.  Both are here all the time.
"""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from serai import limits
from serai.log import store
from serai.log.verify import verify
from tests.faults.kit import ROOT, SHAPES, body, looks
from tests.helpers import files_of, patch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGES = [4096, 1 << 20]


def payloads(count: int) -> list[bytes]:
    return [body(1, number) for number in range(count)]


def counted(page_size: int) -> int:
    """Enough messages for some pages."""
    return 300 if page_size == 4096 else 7000


def fill(folder: Path, page_size: int, *, checksum: str | None = None) -> int:
    """A queue of several pages; gives how many of them are full."""
    with serai.Queue(folder, page_size=page_size, checksum=checksum) as queue:
        writer = queue.writer()
        writer.append_many(payloads(counted(page_size)))
        return writer.data_end // page_size


def compressed(folder: Path, page_size: int, *, checksum: str | None = None) -> int:
    full = fill(folder, page_size, checksum=checksum)
    with serai.Queue(folder) as queue:
        assert queue.compress() == full
    return full


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(16 * number, payload) for number, payload in enumerate(payloads(count))]


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("page_size", PAGES)
def test_compressed_pages_are_read_as_plain_ones(page_size: int, shape: str, tmp_path: Path) -> None:
    full = compressed(tmp_path, page_size)
    assert not [number for number in range(full) if (tmp_path / f"{number}.qd").exists()]
    for checked in (True, shape in ("rows", "unpack")):  # those two would take what is behind the message too
        with serai.Queue(tmp_path, "r") as queue:
            assert list(looks(queue.reader(checked=checked), shape)) == expected(counted(page_size))


@pytest.mark.parametrize("page_size", PAGES)
def test_random_reads_over_compressed_and_plain_pages(page_size: int, tmp_path: Path) -> None:
    compressed(tmp_path, page_size)
    bodies, dice = payloads(counted(page_size)), Random(page_size)
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        for _ in range(300):
            number = dice.randrange(len(bodies))
            message = reader.set_offset(16 * number)
            assert message is not None
            assert message.payload == bodies[number]
            batch = reader.read_batch(dice.choice((1, 5000, 300_000)))
            assert batch.to_list() == bodies[number + 1 : number + 1 + len(batch)]
        assert reader.last() is not None


def test_checksums_hold_over_compressed_pages(tmp_path: Path) -> None:
    compressed(tmp_path, 4096, checksum="index24")
    with serai.Queue(tmp_path, "r", checksum="index24") as queue:
        assert list(looks(queue.reader(), "batch")) == expected(300)
    report = verify(tmp_path, checksum="index24")
    assert (report.problems, report.messages, report.checksums) == ([], 300, 300)


def test_reader_goes_on_while_its_page_is_compressed_and_expanded(tmp_path: Path) -> None:
    """It stands on a plain page that is removed, then meets compressed ones, then plain ones again."""
    fill(tmp_path, 4096)
    with serai.Queue(tmp_path) as queue, serai.Queue(tmp_path, "r") as reading:
        reader, found = reading.reader(), []
        for turn in range(300):
            message = reader.next()
            assert message is not None
            if turn % 50 == 10:
                queue.compress()
            if turn % 50 == 35:
                queue.expand()
            found.append((message.offset, message.payload))
        assert found == expected(300)


def test_view_of_a_page_outlives_compressing_and_the_queue(tmp_path: Path) -> None:
    fill(tmp_path, 4096)
    with serai.Queue(tmp_path) as queue:
        reader = queue.reader()
        batch = reader.read_batch(3000)
        message = reader.set_offset(16)
        assert message is not None
        view = message.view()
        assert queue.compress() > 3
    assert bytes(view) == body(1, 1)
    assert batch.to_list() == payloads(len(batch))


def test_batch_out_of_a_compressed_page_outlives_everything(tmp_path: Path) -> None:
    compressed(tmp_path, 1 << 20)
    with serai.Queue(tmp_path) as queue:
        batch = queue.reader().read_batch(100_000)
        queue.expand()
    shutil.rmtree(tmp_path)
    assert len(batch) > 10
    assert batch.to_list() == payloads(len(batch))


def test_values_are_unpacked_over_the_edge_of_a_compressed_page(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as queue:
        for number in range(40):
            queue.new_message().pack_long(number).pack_string("text").pack_decimal(number, 2).write_message()
        assert queue.compress() > 5
        rows = list(queue.reader().rows("long", "string", "decimal"))
    assert [(number, text, int(value * 100)) for number, text, value in rows] == [(n, "text", n) for n in range(40)]


# ------------------------------------------------------------------------------------------------ writing on


def test_only_full_and_published_pages_are_compressed(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=4096) as queue:
        writer = queue.writer()
        writer.append(bytes(4095))
        assert queue.compress() == 0
        writer.new_message().pack_bytes(bytes(9000))  # lies over pages 0 to 3 and is published by nobody
        assert queue.compress() == 0
        writer.write_message()
        assert queue.compress() == 3
        assert queue.compress() == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0.qd.zst", "0.qx", "1.qd.zst", "2.qd.zst", "3.qd"]
        assert queue.stat().compressed_pages == 3


def test_empty_queue_and_reading_mode(tmp_path: Path) -> None:
    with serai.Queue(tmp_path) as queue:
        assert queue.compress() == 0
        assert queue.expand() == 0
    with serai.Queue(tmp_path, "r") as queue:
        for work in (queue.compress, queue.expand):
            with pytest.raises(serai.ReadOnly):
                work()


def test_writer_goes_on_and_is_opened_again(tmp_path: Path) -> None:
    """Compressing happens beside the writer, which never notices; the next one starts behind compressed pages."""
    first = 0
    for _ in range(4):
        with serai.Queue(tmp_path, page_size=4096) as queue:
            for _ in range(5):
                queue.writer().append_many(payloads(300)[first : first + 15])
                first += 15
                queue.compress()
            assert list(looks(queue.reader(), "messages")) == expected(first)
    with serai.Queue(tmp_path, "r") as queue:
        assert queue.stat().data_pages == 1
        assert list(looks(queue.reader(), "batch")) == expected(300)
    assert verify(tmp_path).problems == []


def test_last_message_may_end_exactly_where_its_compressed_page_ends(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many([b"a" * 1024] * 8)
        assert queue.compress() == 2
    with serai.Queue(tmp_path) as queue:
        last = queue.last()
        assert last is not None
        assert last.payload == b"a" * 1024
        assert queue.writer().append(b"next") == 128
        assert len(list(queue.reader())) == 9


def test_compressing_gives_the_space_back(tmp_path: Path) -> None:
    """Pages that were read before stay mapped by nobody who only compressed them."""
    with serai.Queue(tmp_path, page_size=1 << 20) as queue:
        queue.writer().append_many([b"text " * 200] * 5000)
        assert sum(1 for _ in queue.reader()) == 5000
        before = queue.stat().disk_bytes
        assert queue.compress() == 4
        assert queue.stat().disk_bytes < before // 2
        until = time.monotonic() + 10  # the thread that makes pages resident may be late on a busy machine
        while (kept := gone_but_mapped(tmp_path) - {"4.qd"}) and time.monotonic() < until:
            time.sleep(0.01)
        assert kept == set()


def gone_but_mapped(path: Path) -> set[str]:
    """Files of a directory that are no longer there and still mapped, by the names of their pages."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        names = [line.split()[-2] for line in maps if str(path) in line and line.rstrip().endswith("(deleted)")]
    return {".".join(os.path.basename(name).split(".")[:2]) for name in names}


def test_producers_compress_their_own_streams(tmp_path: Path) -> None:
    names = ["AA0", "BB1"]
    queues = {name: serai.MultiQueue(tmp_path, name=name, page_size=4096) for name in names}
    for number in range(200):
        queues[names[number % 2]].writer().append(body(1, number))
    full = sum(queue.writer().data_end // 4096 for queue in queues.values())
    assert full - 2 <= queues["AA0"].compress() <= full
    with serai.MultiQueue(tmp_path) as reading:
        assert [(m.offset, m.producer, m.payload) for m in reading.reader()] == [
            (16 * number, names[number % 2], body(1, number)) for number in range(200)
        ]
        batch = reading.reader().read_batch(1 << 30)
        assert batch.to_list() == payloads(200)
        assert reading.stat().compressed_pages >= full - 2
    for number in range(200, 260):
        queues[names[number % 2]].writer().append(body(1, number))
    for queue in queues.values():
        queue.close()
    with serai.MultiQueue(tmp_path, name="BB1") as queue:
        assert queue.expand() >= full - 2
        assert queue.writer().append(body(1, 260)) == 16 * 260
        assert [m.payload for m in queue.reader()] == payloads(261)
    assert verify(tmp_path).problems == []


def test_page_of_a_message_that_was_not_finished_is_left_plain(tmp_path: Path) -> None:
    """Its producer died between claim and flag; it completes the message later, out of its data."""
    with serai.MultiQueue(tmp_path, name="AA0", page_size=4096) as queue:
        queue.writer().append(b"first")
        queue.writer().append(bytes(20_000))
    patch(tmp_path / "0.qx", 16, bytes(8))
    patch(tmp_path / "0.qx", 31, b"\0")
    with serai.MultiQueue(tmp_path, name="BB1") as queue:
        queue.compress()
        assert (tmp_path / "AA0" / "1.qd").exists()
    with serai.MultiQueue(tmp_path, name="AA0") as queue:
        assert queue.writer().append(b"third") == 32
        assert [m.payload for m in queue.reader()] == [b"first", bytes(20_000), b"third"]


def test_producer_that_died_before_it_wrote_has_nothing_to_compress(tmp_path: Path) -> None:
    with serai.MultiQueue(tmp_path, name="AA0", page_size=4096) as queue:
        queue.writer().append_many([bytes(1000)] * 20)
        (tmp_path / "BB1.qm").write_bytes(bytes(32))  # its folder was not made any more
        assert queue.compress() == 4
        assert queue.expand() == 4


# ------------------------------------------------------------------------------------------------ back again


@pytest.mark.parametrize("page_size", PAGES)
def test_expanding_restores_the_same_bytes(page_size: int, tmp_path: Path) -> None:
    full = fill(tmp_path, page_size)
    before = files_of(tmp_path)
    with serai.Queue(tmp_path) as queue:
        assert queue.compress() == full
        assert queue.expand() == full
        assert queue.expand() == 0
        assert files_of(tmp_path) == before
        assert queue.compress() == full
    with serai.Queue(tmp_path) as queue:
        assert queue.expand() == full
    assert files_of(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before)


def streamed(path: Path) -> bytes:
    """As any zstd program reads it: frame after frame, skippable ones left out."""
    with zstd.ZstdFile(io.BytesIO(path.read_bytes())) as file:
        return file.read()


def by_program(path: Path) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("the zstd program is missing | apt install zstd")
    return subprocess.run(["zstd", "-d", "-c", "-q", str(path)], capture_output=True, check=True).stdout


@pytest.mark.parametrize("restore", [streamed, by_program])
@pytest.mark.parametrize("page_size", PAGES)
def test_any_zstd_program_restores_the_page(page_size: int, restore: Callable[[Path], bytes], tmp_path: Path) -> None:
    full = fill(tmp_path, page_size)
    before = files_of(tmp_path)
    with serai.Queue(tmp_path) as queue:
        queue.compress()
    for number in range(full):
        plain = restore(tmp_path / f"{number}.qd.zst")
        assert plain == before[f"{number}.qd"]
        (tmp_path / f"{number}.qd").write_bytes(plain)
        (tmp_path / f"{number}.qd.zst").unlink()
    with serai.Queue(tmp_path, "r") as queue:
        assert list(looks(queue.reader(), "messages")) == expected(counted(page_size))


def test_file_is_the_public_seekable_form(tmp_path: Path) -> None:
    """Seek table in a skippable frame: sizes of each frame, their number, a descriptor of 0, the magic."""
    compressed(tmp_path, 1 << 20)
    raw = (tmp_path / "0.qd.zst").read_bytes()
    frames, descriptor, magic = struct.unpack("<IBI", raw[-9:])
    assert (frames, descriptor, magic) == (8, 0, 0x8F92EAB1)
    start = len(raw) - 9 - 8 * frames - 8
    assert struct.unpack("<II", raw[start : start + 8]) == (0x184D2A5E, 8 * frames + 9)
    at = 0
    for packed, plain in struct.iter_unpack("<II", raw[start + 8 : -9]):
        assert plain == limits.FRAME_BYTES
        assert len(zstd.decompress(raw[at : at + packed])) == plain
        at += packed
    assert at == start


# ------------------------------------------------------------------------------------------------ damage


def read_all(folder: Path) -> tuple[dict[int, bytes], list[serai.Corrupt]]:
    found: dict[int, bytes] = {}
    errors: list[serai.Corrupt] = []
    with serai.Queue(folder, "r") as queue:
        reader = queue.reader()
        for _ in range(1000):
            try:
                message = reader.next()
            except serai.Corrupt as error:
                errors.append(error)
                continue
            if message is None:
                break
            found[message.offset] = message.payload
    return found, errors


def test_every_flipped_bit_of_a_compressed_page_is_found_or_harmless(tmp_path: Path) -> None:
    """What is delivered is what was written; what cannot be is an error that names the file."""
    with serai.Queue(tmp_path, page_size=256) as queue:
        queue.writer().append_many([b"%02d" % number * 10 for number in range(40)])
        queue.compress()
    whole = {16 * number: b"%02d" % number * 10 for number in range(40)}
    path = tmp_path / "1.qd.zst"
    raw, found_out = path.read_bytes(), 0
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit >> 3] ^= 1 << (bit & 7)
        path.write_bytes(changed)
        found, errors = read_all(tmp_path)
        assert found.items() <= whole.items(), f"bit {bit}: a wrong message was delivered"
        assert len(found) + len(errors) == 40
        assert {error.file for error in errors} <= {str(path)}
        found_out += bool(errors)
        problems = verify(tmp_path).problems
        assert not errors or str(path) in {problem.file for problem in problems}, f"bit {bit} is not found by verify"
    path.write_bytes(raw)
    assert read_all(tmp_path) == (whole, [])
    print(f"\n{found_out} of {8 * len(raw)} flips make the page unreadable, none makes it lie")
    assert found_out > 6 * len(raw)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut in the table": lambda raw: raw[:-5],
    "cut in a frame": lambda raw: raw[: len(raw) // 2],
    "something behind it": lambda raw: raw + b"more",
    "another page in front": lambda raw: raw + raw,
    "noise": lambda raw: Random(1).randbytes(len(raw)),
    "another magic": lambda raw: raw[:-1] + b"\0",
    "no frames": lambda raw: raw[-17:-9] + struct.pack("<IBI", 0, 0, 0x8F92EAB1),
    "very many frames": lambda raw: raw[:-9] + struct.pack("<IBI", 0xFFFFFFFF, 0, 0x8F92EAB1),
    "an empty frame": lambda raw: table([(zstd.compress(b""), 4096)]),
    "a short frame": lambda raw: table([(zstd.compress(b"short"), 4096)]),
    "a long frame": lambda raw: table([(zstd.compress(bytes(1 << 26)), 4096)]),
    "a frame that is cut": lambda raw: table([(zstd.compress(Random(2).randbytes(4096))[:-500], 4096)]),
    "two frames": lambda raw: table([(zstd.compress(bytes(2048)), 2048)] * 2),
    "a page of another length": lambda raw: table([(zstd.compress(bytes(8192)), 8192)]),
}


def table(frames: list[tuple[bytes, int]]) -> bytes:
    """Frames with a seek table that says what it is told to say."""
    sizes = b"".join(struct.pack("<II", len(frame), plain) for frame, plain in frames)
    foot = struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    head = struct.pack("<II", 0x184D2A5E, len(sizes) + len(foot))
    return b"".join(frame for frame, _ in frames) + head + sizes + foot


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_page_is_named_and_the_others_are_read(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    full = compressed(tmp_path, 4096)
    path = tmp_path / "2.qd.zst"
    path.write_bytes(damage(path.read_bytes()))
    found, errors = read_all(tmp_path)
    assert errors
    assert {error.file for error in errors} == {str(path)}
    assert all(str(path) in str(error) for error in errors)
    assert len(found) + len(errors) == 300
    assert all(payload == body(1, offset // 16) for offset, payload in found.items())
    assert str(path) in {problem.file for problem in verify(tmp_path).problems}
    with serai.Queue(tmp_path) as queue:
        before = path.read_bytes()
        with pytest.raises(serai.Corrupt) as raised:
            queue.expand()
        assert raised.value.file == str(path)
        assert path.read_bytes() == before
        assert queue.writer().append(body(1, 300)) == 4800
    assert full > 3
    assert not list(tmp_path.glob("*.new"))


def test_message_after_a_damaged_page_shows_nothing(tmp_path: Path) -> None:
    """The reused view must not show old bytes under the new message's length."""
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many([b"tiny", bytes(4092), bytes(4096), b"end"])
        queue.compress()
    (tmp_path / "1.qd.zst").write_bytes(b"")
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        message = reader.next()
        assert message is not None
        assert reader.next() is not None
        with pytest.raises(serai.Corrupt):
            reader.next()
        assert (message.payload, message.remaining, len(message)) == (b"", 0, 0)
        assert reader.next() is not None
        assert message.payload == b"end"


def test_page_that_is_both_plain_and_compressed_is_read_plain(tmp_path: Path) -> None:
    """What a kill between the last two steps leaves; each direction finishes the job."""
    fill(tmp_path, 4096)
    plain = (tmp_path / "1.qd").read_bytes()
    with serai.Queue(tmp_path) as queue:
        queue.compress()
        for work, left in ((queue.compress, 0), (queue.expand, None)):
            (tmp_path / "1.qd").write_bytes(plain)
            assert list(looks(queue.reader(), "messages")) == expected(300)
            work()
            assert (tmp_path / "1.qd").exists() is (left is None)
            assert list(looks(queue.reader(), "messages")) == expected(300)


def test_plain_page_that_is_too_short_is_not_compressed(tmp_path: Path) -> None:
    fill(tmp_path, 4096)
    with serai.Queue(tmp_path) as queue:
        (tmp_path / "1.qd").write_bytes(bytes(100))
        queue.compress()
        assert (tmp_path / "1.qd").read_bytes() == bytes(100)
        assert not (tmp_path / "1.qd.zst").exists()


# ------------------------------------------------------------------------------------------------ kills


@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_kill_while_compressing_and_expanding_leaves_a_readable_queue(kills: int, tmp_path: Path) -> None:
    source = """
import sys, serai
with serai.Queue(sys.argv[1]) as queue:
    print("ready", flush=True)
    while True:
        queue.compress()
        queue.expand()
"""
    fill(tmp_path, 1 << 20)
    before, dice, states = files_of(tmp_path), Random(36), set()
    for _ in range(kills):
        worker = subprocess.Popen([sys.executable, "-c", source, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(0.15 * dice.random())
        worker.kill()
        worker.wait()
        worker.stdout.close()
        states.add(tuple(sorted(path.suffix for path in tmp_path.iterdir())))
        with serai.Queue(tmp_path, "r") as queue:
            assert list(looks(queue.reader(), "batch")) == expected(7000)
    with serai.Queue(tmp_path) as queue:
        queue.compress()
        queue.expand()
        queue.writer()
    assert files_of(tmp_path) == before
    assert not list(tmp_path.glob("*.new"))
    print(f"\n{kills} kills, {len(states)} different states of the directory")


def test_tail_that_falls_back_behind_a_compressed_page_is_told_apart_by_readers_that_stayed(tmp_path: Path) -> None:
    """A reader that knows the compressed page by heart sees the page that was written again."""
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many([b"%04d" % number * 25 for number in range(100)])
        queue.compress()
    with serai.Queue(tmp_path, "r") as staying:
        reader = staying.reader()
        assert sum(1 for _ in reader) == 100
        patch(tmp_path / "0.qx", 16 * 60, bytes(16 * 40))
        with serai.Queue(tmp_path) as queue:
            queue.writer().append_many([b"new!" * 25] * 100)
        with serai.Queue(tmp_path, "r") as fresh:
            assert [m.payload for m in fresh.reader(16 * 60)] == [b"new!" * 25] * 100


def test_pages_are_kept_under_names_that_only_one_maker_uses() -> None:
    from pathlib import Path

    made = {store.new_name(Path("0.qd.zst")) for _ in range(100)}
    assert len(made) == 100
