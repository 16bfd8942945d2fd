"""Where a queue ends when a crash left its files in a strange state: holes, torn tails, missing pages, empty pages.

A reader never changes a file and stops where it cannot go on; a writer cuts what is damaged at the newest end, says so,
and refuses, touching nothing, when that would be much.
"""

from __future__ import annotations

import logging
import struct
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from serai import limits
from serai.log.verify import repair, verify
from tests.faults.kit import body
from tests.helpers import files_of, patch, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST = limits.TAIL_CUT_MAX


def fill(folder: Path, count: int, *, page_size: int = 1 << 16, size: int = 20, checksum: str | None = None) -> Path:
    with serai.Queue(folder, page_size=page_size, checksum=checksum) as queue:
        queue.writer().append_many([number.to_bytes(4, "little") * (size // 4) for number in range(count)])
    return folder


def numbers(folder: Path, offset: int | None = None) -> list[int]:
    with serai.Queue(folder, "r") as queue:
        return [int.from_bytes(payload[:4], "little") for payload in queue.reader(offset).payloads()]


def clear_entries(folder: Path, first: int, last: int, *, page_size: int = 1 << 16) -> None:
    for number in range(first, last):
        patch(folder / f"{16 * number // page_size}.qx", 16 * number % page_size, bytes(16))


def cuts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "serai.log"]


def assert_refused(folder: Path, *, position: int, name: str = "0.qx") -> None:
    """Opening for writing is refused with the place, and changes nothing."""
    before = files_of(folder)
    with serai.Queue(folder) as queue:
        for _ in range(2):
            with pytest.raises(serai.Corrupt) as raised:
                queue.writer()
            assert raised.value.file == str(folder / name)
            assert raised.value.position == position
            assert "verify" in str(raised.value)
    assert files_of(folder) == before


# ------------------------------------------------------------------------------------------------ holes


@pytest.mark.parametrize("behind", [1, 5, MOST])
def test_few_messages_behind_a_hole_are_cut_and_it_is_said(
    behind: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 3000)
    hole = 3000 - behind - 1
    clear_entries(tmp_path, hole, hole + 1)
    assert numbers(tmp_path) == list(range(hole))
    with caplog.at_level(logging.WARNING), serai.Queue(tmp_path) as queue:
        assert queue.writer().append(hole.to_bytes(4, "little")) == 16 * hole
    assert numbers(tmp_path) == list(range(hole + 1))
    (text,) = cuts(caplog)
    assert f"cut {behind} messages" in text
    assert str(tmp_path) in text
    assert verify(tmp_path).problems == []


def test_one_message_more_is_not_cut_but_refused(tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    hole = 3000 - MOST - 2
    clear_entries(tmp_path, hole, hole + 1)
    assert_refused(tmp_path, position=16 * hole)
    assert repair(tmp_path) == MOST + 1
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"next") == 16 * hole


@pytest.mark.parametrize(("first", "last"), [(0, 256), (0, 1), (256, 512), (100, 200), (511, 512)])
def test_hole_anywhere_in_the_newest_entries_is_seen(first: int, last: int, tmp_path: Path) -> None:
    """Also one that begins where a block begins, also one that is a hole of the file itself."""
    fill(tmp_path, 600)
    clear_entries(tmp_path, first, last)
    raw = (tmp_path / "0.qx").read_bytes()
    with (tmp_path / "0.qx").open("wb") as file:  # written again, so that whole blocks of zeros are not there
        for at in range(0, len(raw), 4096):
            if any(raw[at : at + 4096]):
                file.seek(at)
                file.write(raw[at : at + 4096])
        file.truncate(len(raw))
    assert (tmp_path / "0.qx").read_bytes() == raw
    assert numbers(tmp_path) == list(range(first))
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(first.to_bytes(4, "little")) == 16 * first
    assert numbers(tmp_path) == list(range(first + 1))


def test_hole_over_the_end_of_an_index_page(tmp_path: Path) -> None:
    fill(tmp_path, 100, page_size=256)
    clear_entries(tmp_path, 60, 70, page_size=256)
    assert numbers(tmp_path) == list(range(60))
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append((60).to_bytes(4, "little")) == 960
    assert numbers(tmp_path) == list(range(61))
    with serai.Queue(tmp_path) as queue:
        queue.writer().append_many([number.to_bytes(4, "little") for number in range(61, 200)])
    assert numbers(tmp_path) == list(range(200))


def test_hole_far_from_the_end_stops_readers_and_verify_names_it(tmp_path: Path) -> None:
    """A writer looks at the newest entries only; what lies further back was on disk long before a crash."""
    count = (1 << 20) // 16 + 5000
    fill(tmp_path, count, size=4)
    clear_entries(tmp_path, 100, 101)
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(count.to_bytes(4, "little")) == 16 * count
    assert numbers(tmp_path) == list(range(100))
    assert numbers(tmp_path, 16 * 101) == list(range(101, count + 1))
    (problem,) = verify(tmp_path).problems
    assert (problem.kind, problem.file, problem.position, problem.offset) == (
        "hole",
        str(tmp_path / "0.qx"),
        1600,
        1600,
    )


# ------------------------------------------------------------------------------------------------ torn tails


def tear(folder: Path, offset: int, raw: bytes) -> Path:
    page = folder / f"{offset // 256}.qx"
    if not page.exists():
        page.write_bytes(bytes(256))
    patch(page, offset % 256, raw)
    return folder


TORN = {
    "begin without a stamp": struct.pack("<q", 400) + bytes(8),
    "stamp without its flag": struct.pack("<qi4x", 400, 20),
    "size alone": struct.pack("<8xi4x", 20),
    "noise without a flag": bytes(range(1, 16)) + b"\0",
}


@pytest.mark.parametrize("raw", TORN.values(), ids=TORN)
@pytest.mark.parametrize("count", [20, 16], ids=["inside a page", "at a page end"])
def test_torn_entry_at_the_end_is_overwritten(count: int, raw: bytes, tmp_path: Path) -> None:
    tear(fill(tmp_path, count, page_size=256), 16 * count, raw)
    assert numbers(tmp_path) == list(range(count))
    with serai.Queue(tmp_path) as queue:
        last = queue.last()
        assert last is not None
        assert last.offset == 16 * count - 16
        assert queue.writer().append(count.to_bytes(4, "little")) == 16 * count
    assert numbers(tmp_path) == list(range(count + 1))
    assert verify(tmp_path).problems == []


def test_garbage_far_behind_the_end_never_comes_to_light(tmp_path: Path) -> None:
    """What a power cut left some entries behind the end is zeroed, or it would be published when the end gets there."""
    fill(tmp_path, 20, page_size=256)
    tear(tmp_path, 16 * 25, struct.pack("<qi3xB", 0, 20, 0x7F))
    tear(tmp_path, 16 * 40, struct.pack("<qi3xB", 20, 20, 0x7F))
    with serai.Queue(tmp_path) as queue:
        writer = queue.writer()
        for number in range(20, 60):
            assert writer.append(number.to_bytes(4, "little")) == 16 * number
            assert numbers(tmp_path) == list(range(number + 1))


def test_garbage_behind_the_data_end_is_overwritten(tmp_path: Path) -> None:
    fill(tmp_path, 10, page_size=256)
    patch(tmp_path / "0.qd", 200, b"\xff" * 56)
    write_files(tmp_path, {"1.qd": b"\xee" * 256})
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"a" * 100) == 160
        assert queue.writer().append(b"b" * 100) == 176
        assert list(queue.reader(160).payloads()) == [b"a" * 100, b"b" * 100]


DAMAGED = {
    "negative size": struct.pack("<qi3xB", 380, -1, 0x7F),
    "negative begin": struct.pack("<qi3xB", -20, 20, 0x7F),
    "data far away": struct.pack("<qi3xB", 1 << 40, 20, 0x7F),
    "size over all pages": struct.pack("<qi3xB", 380, 1 << 30, 0x7F),
    "largest numbers": struct.pack("<qi3xB", (1 << 63) - 1, (1 << 31) - 1, 0x7F),
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_newest_entries_without_their_data_are_cut(
    raw: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 20, page_size=256)
    for number in (18, 19):
        tear(tmp_path, 16 * number, raw)
    with caplog.at_level(logging.WARNING), serai.Queue(tmp_path) as queue:
        assert queue.writer().append((18).to_bytes(4, "little") * 5) == 16 * 18
    assert numbers(tmp_path) == list(range(19))
    assert "cut 2 messages" in cuts(caplog)[0]
    assert verify(tmp_path).problems == []


@pytest.mark.parametrize("missing", [MOST, MOST + 1])
def test_messages_whose_data_page_is_gone_are_cut_up_to_the_limit(missing: int, tmp_path: Path) -> None:
    """4096 bytes of data hold 1024 messages of 4 bytes: the limit; one page more is over it."""
    kept, page = 4096, 4096
    count = kept + missing
    with serai.Queue(tmp_path, page_size=page) as queue:
        queue.writer().append_many([number.to_bytes(4, "little") for number in range(count)])
    for number in range(kept * 4 // page, -(-count * 4 // page)):
        (tmp_path / f"{number}.qd").unlink()
    if missing > MOST:
        assert_refused(tmp_path, position=(16 * kept) % page, name=f"{16 * kept // page}.qx")
        return
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(kept.to_bytes(4, "little")) == 16 * kept
    assert numbers(tmp_path) == list(range(kept + 1))


def test_refusal_comes_quickly_however_much_is_missing(tmp_path: Path) -> None:
    fill(tmp_path, 200_000, size=4)
    for path in tmp_path.glob("*.qd"):
        path.unlink()
    begin = time.perf_counter()
    with serai.Queue(tmp_path) as queue, pytest.raises(serai.Corrupt):
        queue.writer()
    assert time.perf_counter() - begin < 2


@pytest.mark.parametrize("bit", [2, 9, 13])
def test_newest_entry_that_begins_inside_older_messages_is_not_gone_on_from(bit: int, tmp_path: Path) -> None:
    """Its begin is damaged; a writer behind it would write over messages that are sound."""
    fill(tmp_path, 100, size=100)
    begin = 9900 & ~(1 << bit)
    assert begin != 9900
    patch(tmp_path / "0.qx", 16 * 99, struct.pack("<q", begin))
    assert_refused(tmp_path, position=16 * 99)
    assert numbers(tmp_path)[:99] == list(range(99))


# ------------------------------------------------------------------------------------------------ pages


@pytest.mark.parametrize("empty", [1, 2, 3])
def test_empty_newest_index_pages_are_passed_over(empty: int, tmp_path: Path) -> None:
    fill(tmp_path, 48, page_size=256)
    write_files(tmp_path, {f"{3 + number}.qx": bytes(256) for number in range(empty)})
    assert numbers(tmp_path) == list(range(48))
    with serai.Queue(tmp_path) as queue:
        last = queue.last()
        assert last is not None
        assert last.offset == 47 * 16
        queue.writer().append_many([number.to_bytes(4, "little") for number in range(48, 120)])
    assert numbers(tmp_path) == list(range(120))


def test_pages_given_up_at_the_head_leave_the_rest_readable(tmp_path: Path) -> None:
    fill(tmp_path, 100, page_size=256)
    for name in ("0.qx", "1.qx", "0.qd", "1.qd"):
        (tmp_path / name).unlink()
    assert numbers(tmp_path) == list(range(32, 100))
    with serai.Queue(tmp_path) as queue:
        assert queue.stat().first_offset == 512
        reader = queue.reader(0)
        with pytest.raises(serai.Misuse, match="512"):
            reader.next()
        message = reader.set_offset(512)
        assert message is not None
        assert queue.writer().append((100).to_bytes(4, "little")) == 1600
    assert numbers(tmp_path) == list(range(32, 101))
    assert verify(tmp_path).problems == []


def test_index_page_missing_in_the_middle_is_said_once_and_passed(tmp_path: Path) -> None:
    fill(tmp_path, 100, page_size=256)
    (tmp_path / "2.qx").unlink()
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        assert [int.from_bytes(reader.next().payload[:4], "little") for _ in range(32)] == list(range(32))  # type: ignore[union-attr]
        with pytest.raises(serai.Corrupt) as raised:
            reader.next()
        assert raised.value.file == str(tmp_path / "2.qx")
        assert reader.offset == 48 * 16
        assert sum(1 for _ in reader) == 52
        with pytest.raises(serai.Corrupt):
            reader.set_offset(40 * 16)
        assert sum(1 for _ in reader) == 52
    assert "2.qx" in {problem.file.rpartition("/")[2] for problem in verify(tmp_path).problems}
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append((100).to_bytes(4, "little")) == 1600
    assert numbers(tmp_path, 48 * 16) == list(range(48, 101))


@pytest.mark.parametrize("name", ["0.qx", "3.qx", "6.qx", "0.qd", "7.qd"])
def test_page_of_another_length_is_refused_and_named(name: str, tmp_path: Path) -> None:
    fill(tmp_path, 100, page_size=256)
    content = (tmp_path / name).read_bytes()
    for changed in (content + content, content[:128], content[:100], content + b"x"):
        (tmp_path / name).write_bytes(changed)
        before = files_of(tmp_path)
        for mode in ("r", "rw"):
            with pytest.raises(serai.Corrupt) as raised:
                serai.Queue(tmp_path, mode)
            assert raised.value.file == str(tmp_path / name)
        assert str(tmp_path / name) in {
            problem.file for problem in verify(tmp_path).problems if problem.kind == "length"
        }
        assert files_of(tmp_path) == before
    (tmp_path / name).write_bytes(content)
    assert numbers(tmp_path) == list(range(100))


# ------------------------------------------------------------------------------------------------ compressed pages


@pytest.mark.parametrize("kept", [60, 45, 41, 82])
def test_end_that_falls_back_into_a_compressed_page_loses_nothing(kept: int, tmp_path: Path) -> None:
    """After a power cut the newest entries are not there, but the compressed page, which was synced, is."""
    fill(tmp_path, 100, page_size=4096, size=100)
    with serai.Queue(tmp_path) as queue:
        assert queue.compress() == 2
    clear_entries(tmp_path, kept, 100, page_size=4096)

    def more(queue: serai.Queue, first: int, last: int) -> None:
        queue.writer().append_many([number.to_bytes(4, "little") * 25 for number in range(first, last)])

    with serai.Queue(tmp_path) as queue:
        more(queue, kept, kept + 5)
        assert numbers(tmp_path) == list(range(kept + 5))
        queue.expand()
        assert numbers(tmp_path) == list(range(kept + 5))
        more(queue, kept + 5, 200)
        queue.compress()
        assert numbers(tmp_path) == list(range(200))
        queue.expand()
    assert numbers(tmp_path) == list(range(200))
    assert verify(tmp_path).problems == []


# ------------------------------------------------------------------------------------------------ every prefix of a power cut


def lose_blocks(folder: Path, chosen: Callable[[int], bool], block: int) -> None:
    """Zeroes the blocks of index and data that never reached the disk."""
    number = 0
    for path in sorted(folder.glob("*.q[xd]")):
        raw = bytearray(path.read_bytes())
        for at in range(0, len(raw), block):
            if any(raw[at : at + block]):
                if chosen(number):
                    raw[at : at + block] = bytes(len(raw[at : at + block]))
                number += 1
        path.write_bytes(raw)


@pytest.mark.parametrize("seed", range(30))
def test_any_blocks_may_be_lost_when_checksums_are_kept(seed: int, tmp_path: Path) -> None:
    """A power cut loses any 512-byte blocks: nothing wrong is ever delivered, and a writer goes on or refuses."""
    dice = Random(seed)
    with serai.Queue(tmp_path, page_size=4096, checksum="index24") as queue:
        queue.writer().append_many([body(1, number)[:400] for number in range(150)])
    share = dice.choice((0.02, 0.1, 0.5))
    lose_blocks(tmp_path, lambda _number: dice.random() < share, 512)

    def read(queue: serai.Queue, offset: int | None) -> int:
        reader, seen = queue.reader(offset), 0
        for _ in range(1000):
            try:
                for m in reader:
                    assert m.payload == body(1, m.offset // 16)[:400]
                    seen += 1
                break
            except serai.Corrupt:
                continue
        return seen

    with serai.Queue(tmp_path, checksum="index24") as queue:
        before = read(queue, None)
        for number in range(0, 150, 7):
            read(queue, 16 * number)
        try:
            writer = queue.writer()
        except serai.Corrupt:
            return
        first = writer.offset // 16
        for number in range(first, first + 30):
            assert writer.append(body(1, number)[:400]) == 16 * number
        assert read(queue, None) >= min(before, first)
        assert [m.payload for m in queue.reader(16 * first)] == [body(1, n)[:400] for n in range(first, first + 30)]
