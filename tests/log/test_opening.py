"""Opening a queue, standing at an offset, and what is said when either is impossible.

Modes, page sizes, dialects and locks; offsets in front of, inside and behind the queue; directories that a crash, a
clean-up or another program left in a strange state; the limits of the format.
"""

from __future__ import annotations

import mmap
import os
import struct
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

import serai
from tests.helpers import files_of, finish_python, patch, start_python, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE_NUMBER_MAX = 2**31 - 1
MESSAGE_BYTES_MAX = 2**31 - 1


def fill(folder: Path, count: int = 10, page_size: int | None = 64) -> Path:
    """A queue of the numbers 0, 1, 2... as ints, at offsets 0, 16, 32..."""
    with serai.Queue(folder, page_size=page_size) as queue:
        for number in range(count):
            queue.new_message().pack_int(number).write_message()
    return folder


def numbers(source: serai.Queue | serai.Reader) -> list[int]:
    reader = source if isinstance(source, serai.Reader) else source.reader()
    return [message.unpack_int() for message in reader]


def entry(*, begin: int, size: int, flag: int = 0x7F) -> bytes:
    return struct.pack("<qi3xB", begin, size, flag)


# ------------------------------------------------------------------------------------------------ modes and names


@pytest.mark.parametrize("mode", ["rw", "RW", "rW", "Rw"])
def test_writing_mode_in_any_letter_case(mode: str, tmp_path: Path) -> None:
    with serai.Queue(tmp_path, mode, page_size=64) as queue:
        assert queue.mode == "rw"
        assert queue.writer().append(b"x") == 0


@pytest.mark.parametrize("mode", ["r", "R"])
def test_reading_mode_in_any_letter_case(mode: str, tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), mode) as queue:
        assert queue.mode == "r"
        assert numbers(queue) == list(range(10))


@pytest.mark.parametrize("mode", ["", "w", "wr", "rwx", "a", "r+"])
def test_other_modes_are_refused(mode: str, tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="mode") as raised:
        serai.Queue(tmp_path, mode)
    assert repr(mode) in str(raised.value)


def test_missing_directory_is_made_and_stays_empty_until_the_first_byte(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with serai.Queue(folder, page_size=64) as queue:
        assert folder.is_dir()
        assert files_of(folder) == {}
        queue.new_message().write_message()
        assert {name: len(content) for name, content in files_of(folder).items()} == {"0.qx": 64}
        queue.new_message().pack_byte(1).write_message()
        assert {name: len(content) for name, content in files_of(folder).items()} == {"0.qd": 64, "0.qx": 64}


def test_path_may_be_text_or_a_path(tmp_path: Path) -> None:
    with serai.Queue(str(fill(tmp_path)), "r") as text, serai.Queue(tmp_path, "r") as path:
        assert numbers(text) == numbers(path)
        assert str(text.path) == str(path.path) == str(tmp_path)


def test_missing_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse) as raised:
        serai.Queue(tmp_path / "nowhere", "r")
    assert str(tmp_path / "nowhere") in str(raised.value)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_file_is_no_queue(mode: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    with pytest.raises(serai.Misuse) as raised:
        serai.Queue(tmp_path / "file", mode)
    assert str(tmp_path / "file") in str(raised.value)


@pytest.mark.parametrize("dialect", ["", "Java", "c"])
def test_unknown_dialect_is_refused_with_the_two_names(dialect: str, tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match=r"(?s)seed.*java"):
        serai.Queue(tmp_path, dialect=dialect)


def test_none_means_what_is_usual(tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "single", "rw", None, None, None) as queue:
        assert (queue.page_size, queue.dialect) == (1 << 30, "seed")
    with serai.MultiQueue(tmp_path / "multi", None, "AA0", None, None) as queue:
        assert (queue.page_size, queue.dialect) == (1 << 30, "seed")


def test_unknown_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="index24"):
        serai.Queue(tmp_path, checksum="crc32")


def test_single_queue_does_not_open_a_directory_of_several_producers(tmp_path: Path) -> None:
    with serai.MultiQueue(tmp_path, name="AA0", page_size=64) as queue:
        queue.writer().append(b"x")
    for mode in ("r", "rw"):
        with pytest.raises(serai.Misuse, match="MultiQueue"):
            serai.Queue(tmp_path, mode)


def test_multi_queue_does_not_open_a_single_directory(tmp_path: Path) -> None:
    before = files_of(fill(tmp_path))
    with pytest.raises(serai.Misuse):
        serai.MultiQueue(tmp_path, name="AA0").writer()
    assert files_of(tmp_path) == before


# ------------------------------------------------------------------------------------------------ page sizes


@pytest.mark.parametrize("page_size", [3000, 0, 8, 15, 17, -16, -64, 1 << 31, 1 << 40])
def test_page_size_that_is_no_power_of_two_between_16_and_a_gibibyte_is_refused(page_size: int, tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="power of two") as raised:
        serai.Queue(tmp_path, page_size=page_size)
    assert str(page_size) in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_page_size_is_a_gibibyte_by_default_and_takes_little_disk(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path, page_size=None), "r") as queue:
        assert queue.page_size == 1 << 30
        assert (tmp_path / "0.qd").stat().st_size == 1 << 30
        assert (tmp_path / "0.qd").stat().st_blocks * 512 < 256 << 20
        assert numbers(queue) == list(range(10))


def test_page_size_comes_from_argument_then_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKQPsz", "128")
    assert serai.Queue(tmp_path / "a").page_size == 128
    monkeypatch.setenv("SERAI_PAGE_SIZE", "256")
    assert serai.Queue(tmp_path / "b").page_size == 256
    assert serai.Queue(tmp_path / "c", page_size=512).page_size == 512


@pytest.mark.parametrize("variable", ["QKQPsz", "SERAI_PAGE_SIZE"])
@pytest.mark.parametrize("value", ["3000", "", "64k", "-64"])
def test_bad_page_size_in_the_environment_names_the_variable(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    if value:
        with pytest.raises(serai.Misuse, match=variable):
            serai.Queue(tmp_path)
    else:  # an empty variable is as good as none
        assert serai.Queue(tmp_path).page_size == 1 << 30


def test_directory_decides_the_page_size_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERAI_PAGE_SIZE", "3000")
    with serai.Queue(fill(tmp_path)) as queue:
        assert queue.page_size == 64


def test_page_size_other_than_the_directorys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match=r"(?s)128.*64|64.*128") as raised:
        serai.Queue(fill(tmp_path), page_size=128)
    assert str(tmp_path) in str(raised.value)


def test_page_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with (fill(tmp_path) / "0.qd").open("r+b") as file:
        file.truncate(128)
    with pytest.raises(serai.Corrupt, match="64") as raised:
        serai.Queue(tmp_path, "r")
    assert str(tmp_path) in str(raised.value)


def test_data_page_of_another_length_between_others_is_refused_where_it_is_read(tmp_path: Path) -> None:
    """Opening looks at the oldest and newest only; what is around it is read."""
    page = "2.qd"
    with serai.Queue(tmp_path, page_size=64) as queue:
        queue.writer().append_many([bytes([number]) * 16 for number in range(20)])
    os.truncate(tmp_path / page, 128)
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        assert [next(reader).payload[0] for _ in range(8)] == list(range(8))
        for _ in range(4):
            with pytest.raises(serai.Corrupt, match=rf"{page} has 128 bytes.*64") as raised:
                next(reader)
        assert raised.value.file == str(tmp_path / page)
        assert [message.payload[0] for message in reader] == list(range(12, 20))


def test_page_file_whose_length_is_no_power_of_two_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"0.qx": bytes(300), "0.qd": bytes(300)})
    with pytest.raises(serai.Corrupt, match="300") as raised:
        serai.Queue(tmp_path, "r")
    assert str(raised.value.file).endswith(("0.qx", "0.qd"))


def test_page_file_that_never_grew_counts_as_missing(tmp_path: Path) -> None:
    """A writer died between making the file and giving it its length."""
    fill(tmp_path, count=8)
    write_files(tmp_path, {"2.qx": b"", "1.qd": b""})
    with serai.Queue(tmp_path, "r") as queue:
        assert numbers(queue) == list(range(8))
    with serai.Queue(tmp_path) as queue:
        assert queue.new_message().pack_int(8).write_message() == 128
        assert numbers(queue) == list(range(9))


# ------------------------------------------------------------------------------------------------ locks


def test_second_writer_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as first:
        writer = first.writer()
        assert first.writer() is writer
        with serai.Queue(tmp_path) as second:
            with pytest.raises(serai.Locked) as raised:
                second.writer()
            assert str(tmp_path) in str(raised.value)
            with pytest.raises(serai.Locked):
                second.new_message()
            writer.append(b"x")  # the refused one has not harmed the lock
            assert [message.payload for message in second.reader()] == [b"x"]
            first.close()
            assert second.writer().append(b"y") == 16


WRITE_ONE = """
    import sys, serai
    try:
        print(serai.Queue(sys.argv[1]).writer().append(b"other"))
    except serai.SeraiError as error:
        print(type(error).__name__)
"""


def test_second_writer_in_another_process_is_refused(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as queue:
        queue.writer().append(b"x")
        assert finish_python(start_python(WRITE_ONE, tmp_path)) == "Locked\n"
        assert finish_python(start_python(WRITE_ONE, tmp_path)) == "Locked\n"
    assert finish_python(start_python(WRITE_ONE, tmp_path)) == "16\n"


HOLD = """
    import sys, serai
    writer = serai.Queue(sys.argv[1], page_size=64).writer()
    print(writer.append(b"x"), flush=True)
    sys.stdin.read()
"""


def test_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    process = start_python(HOLD, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with serai.Queue(tmp_path) as queue:
        with pytest.raises(serai.Locked):
            queue.writer()
        process.kill()
        process.communicate()
        assert queue.writer().append(b"y") == 16


def test_closing_one_queue_object_keeps_the_lock_of_another(tmp_path: Path) -> None:
    """Classic record locks belong to the process, and closing any descriptor of the file drops them; ours do not."""
    with serai.Queue(tmp_path, page_size=64) as writing:
        writing.writer().append(b"x")
        for _ in range(3):
            with serai.Queue(tmp_path) as reading:
                assert len(list(reading.reader())) == 1
        assert finish_python(start_python(WRITE_ONE, tmp_path)) == "Locked\n"


# ------------------------------------------------------------------------------------------------ the seed's example


def test_example_of_the_seed(tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "queue") as queue:
        writer = queue.writer()
        for i in range(10):
            message = writer.new_message().pack_int(i).pack_decimal(Decimal(i) / 100)
            assert message.pack_string(str(i)).pack_boolean(i % 2 == 0).write_message() == 16 * i
        reader = queue.reader()
        rows = [(m.unpack_int(), m.unpack_decimal(), m.unpack_string(), m.unpack_boolean()) for m in reader]
        assert rows == [(i, Decimal(i) / 100, str(i), i % 2 == 0) for i in range(10)]
        found = reader.set_offset(80)
        assert found is not None
        assert found.unpack_int() == 5
        assert numbers(reader) == [6, 7, 8, 9]


# ------------------------------------------------------------------------------------------------ offsets


@pytest.mark.parametrize("offset", [1, 10, 15, 17, 161])
def test_offset_between_two_entries_is_refused_with_the_reason(offset: int, tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        with pytest.raises(serai.Misuse, match=rf"^{offset} .*multiples of 16"):
            queue.reader(offset)
        reader = queue.reader()
        reader.next()
        with pytest.raises(ValueError, match=rf"^{offset} .*multiples of 16"):
            reader.set_offset(offset)
        assert numbers(reader) == list(range(1, 10))  # it stands where it stood


def test_negative_offset_gives_nothing(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        reader = queue.reader(32)
        assert reader.set_offset(-16) is None
        assert reader.offset == 32
        assert numbers(reader) == list(range(2, 10))


def test_set_offset_consumes_the_message_it_returns(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        reader = queue.reader()
        for number in (7, 0, 3, 9, 9):
            message = reader.set_offset(16 * number)
            assert message is not None
            assert (message.offset, message.unpack_int()) == (16 * number, number)
            assert reader.offset == 16 * number + 16


def test_set_offset_works_after_an_empty_next(tmp_path: Path) -> None:
    """The original remembers the flag it looked at and returns nothing."""
    with serai.Queue(fill(tmp_path, count=5), "r") as queue:
        reader = queue.reader()
        assert numbers(reader) == [0, 1, 2, 3, 4]
        assert reader.next() is None
        message = reader.set_offset(0)
        assert message is not None
        assert message.unpack_int() == 0
        assert numbers(reader) == [1, 2, 3, 4]


def test_reader_begins_at_its_offset(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        assert queue.reader(offset=64).offset == 64
        assert numbers(queue.reader(64)) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("ahead", [0, 1, 3, 40])
def test_offset_behind_the_end_waits_there(ahead: int, tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path)) as queue:
        first = 10 + ahead
        reader, placed = queue.reader(), queue.reader(16 * first)
        assert reader.set_offset(16 * first) is None
        for number in range(10, first + 3):
            assert reader.offset == placed.offset == 16 * first
            if number < first:
                assert reader.next() is placed.next() is None
            queue.new_message().pack_int(number).write_message()
        assert numbers(reader) == numbers(placed) == [first, first + 1, first + 2]


def test_reader_goes_on_when_messages_follow(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as queue:
        reader, seen = queue.reader(), []
        for number in range(20):
            assert reader.next() is None
            assert reader.wait(10) is False
            queue.new_message().pack_int(number).write_message()
            assert reader.wait(10) is True
            seen += numbers(reader)
        assert seen == list(range(20))


def test_reader_sees_files_that_appear_later(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, "r") as reading, reading.reader() as reader:
        assert reader.next() is None
        assert reading.last() is None
        assert numbers(reader) == []
        fill(tmp_path, page_size=256)
        assert numbers(reader) == list(range(10))
        assert reading.page_size == 256


def test_last_is_the_newest_message_or_nothing(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as queue:
        assert queue.last() is None
        assert queue.reader().last() is None
        for number in range(9):
            queue.new_message().pack_int(number).write_message()
            for last in (queue.last(), queue.reader().last()):
                assert last is not None
                assert (last.offset, last.unpack_int()) == (16 * number, number)


def test_stat_tells_the_size_of_everything(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        stat = queue.stat()
    assert (stat.kind, stat.dialect, stat.page_size, stat.messages) == ("single", "seed", 64, 10)
    assert (stat.first_offset, stat.end_offset, stat.data_begin, stat.data_end) == (0, 160, 0, 40)
    assert (stat.index_pages, stat.data_pages, stat.compressed_pages, stat.producers) == (3, 1, 0, [])
    assert str(stat.path) == str(tmp_path)
    assert stat.disk_bytes > 0


# ------------------------------------------------------------------------------------------------ strange directories


def test_writer_goes_on_behind_an_empty_last_index_page(tmp_path: Path) -> None:
    """A writer died right after making the page; the original starts again at 0 and overwrites the queue."""
    fill(tmp_path, count=8)
    write_files(tmp_path, {"2.qx": bytes(64), "1.qd": bytes(64)})
    with serai.Queue(tmp_path) as queue:
        last = queue.last()
        assert last is not None
        assert (last.offset, last.unpack_int()) == (112, 7)
        assert queue.new_message().pack_int(8).write_message() == 128
        assert numbers(queue) == list(range(9))
    assert sorted(files_of(tmp_path)) == ["0.qd", "0.qx", "1.qd", "1.qx", "2.qx"]


def test_only_index_page_may_be_empty(tmp_path: Path) -> None:
    write_files(tmp_path, {"0.qx": bytes(64)})
    with serai.Queue(tmp_path) as queue:
        assert queue.last() is None
        assert queue.reader().next() is None
        assert queue.writer().append(b"x") == 0


def test_reader_starts_at_the_lowest_page(tmp_path: Path) -> None:
    """Whoever cleans up deletes the oldest pages; the original waits at page 0 for ever."""
    fill(tmp_path, count=40)  # 16 data bytes per index page, so index pages 0..3 are data page 0
    for name in ("0.qx", "1.qx", "2.qx", "3.qx", "0.qd"):
        (tmp_path / name).unlink()
    with serai.Queue(tmp_path) as queue:
        assert queue.stat().first_offset == 256
        assert numbers(queue) == list(range(16, 40))
        assert queue.new_message().pack_int(40).write_message() == 640
        message = queue.reader().set_offset(320)
        assert message is not None
        assert message.unpack_int() == 20


def test_entry_whose_data_page_is_gone_is_damaged_once(tmp_path: Path) -> None:
    fill(tmp_path, count=20)
    (tmp_path / "0.qd").unlink()
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        for number in range(16):
            with pytest.raises(serai.Corrupt) as raised:
                reader.next()
            assert str(raised.value.file).startswith(str(tmp_path))
            assert reader.offset == 16 * number + 16
        assert numbers(reader) == [16, 17, 18, 19]


@pytest.mark.parametrize(
    "damage",
    [
        entry(begin=-1, size=4),
        entry(begin=-(2**63), size=4),
        entry(begin=2**62 + 4, size=4),
        entry(begin=2**63 - 1, size=4),
        entry(begin=64 * 1000, size=4),
        entry(begin=4, size=-1),
        entry(begin=4, size=2**31 - 1),
    ],
)
def test_damaged_entry_is_told_once_and_skipped(damage: bytes, tmp_path: Path) -> None:
    patch(fill(tmp_path) / "0.qx", 16, damage)
    with serai.Queue(tmp_path, "r") as queue:
        reader = queue.reader()
        first = reader.next()
        assert first is not None
        with pytest.raises(serai.Corrupt) as raised:
            reader.next()
        assert "0.qx" in str(raised.value)
        assert (str(raised.value.file).endswith("0.qx"), raised.value.position) == (True, 16)
        assert numbers(reader) == list(range(2, 10))
        with pytest.raises(serai.Corrupt):
            reader.set_offset(16)
        assert numbers(reader) == list(range(2, 10))


def test_checksum_finds_a_changed_byte(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64, checksum="index24") as queue:
        queue.writer().append_many([bytes([number]) * 50 for number in range(6)])
        assert len(list(queue.reader())) == 6
    patch(tmp_path / "1.qd", 10, b"!")  # byte 74 of the stream: message 1
    with serai.Queue(tmp_path, "r") as trusting:
        assert len(list(trusting.reader())) == 6
    with serai.Queue(tmp_path, "r", checksum="index24") as queue:
        reader = queue.reader()
        assert reader.next() is not None
        with pytest.raises(serai.Corrupt, match="checksum"):
            reader.next()
        assert list(reader.payloads()) == [bytes([number]) * 50 for number in (2, 3, 4, 5)]


def test_checksum_knows_its_place(tmp_path: Path) -> None:
    """The offset is part of the sum, so an old page in a new place does not pass."""
    with serai.Queue(tmp_path, page_size=64, checksum="index24") as queue:
        queue.writer().append_many([b"same"] * 8)
    (tmp_path / "1.qx").write_bytes((tmp_path / "0.qx").read_bytes())
    with serai.Queue(tmp_path, "r", checksum="index24") as queue:
        reader = queue.reader(64)
        for _ in range(4):
            with pytest.raises(serai.Corrupt, match="checksum"):
                reader.next()
        assert reader.next() is None


def test_entries_without_a_checksum_are_believed(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), checksum="index24") as queue:
        queue.new_message().pack_int(10).write_message()
        assert numbers(queue) == list(range(11))
    assert files_of(tmp_path)["0.qx"][12:15] == bytes(3)
    assert files_of(tmp_path)["2.qx"][44:47] != bytes(3)


# ------------------------------------------------------------------------------------------------ the limits


def test_index_ends_with_the_last_page_number(tmp_path: Path) -> None:
    last = PAGE_NUMBER_MAX - 1
    write_files(tmp_path, {f"{last}.qx": entry(begin=0, size=4), "0.qd": b"data".ljust(16, b"\0")})
    with serai.Queue(tmp_path) as queue:
        writer = queue.writer()
        assert writer.append(b"more") == PAGE_NUMBER_MAX * 16
        for _ in range(2):
            with pytest.raises(serai.QueueFull, match=str(PAGE_NUMBER_MAX)):
                writer.append(b"much")
        assert [m.payload for m in queue.reader()] == [b"data", b"more"]
    assert sorted(files_of(tmp_path)) == ["0.qd", f"{last}.qx", f"{PAGE_NUMBER_MAX}.qx"]


def test_data_ends_with_the_last_page_number(tmp_path: Path) -> None:
    last = PAGE_NUMBER_MAX - 1
    write_files(tmp_path, {"0.qx": entry(begin=last * 16, size=16), f"{last}.qd": b"0123456789abcdef"})
    with serai.Queue(tmp_path) as queue:
        writer = queue.writer()
        with pytest.raises(serai.QueueFull, match=str(PAGE_NUMBER_MAX)):
            writer.append(bytes(17))
        assert writer.append(b"fedcba9876543210") == 16
        with pytest.raises(serai.QueueFull, match=str(PAGE_NUMBER_MAX)):
            writer.new_message().pack_byte(1)
        writer.discard()
        assert writer.append(b"") == 32  # an empty message needs no data page
        payloads = [m.payload for m in queue.reader()]
        assert payloads == [b"0123456789abcdef", b"fedcba9876543210", b""]
    assert f"{PAGE_NUMBER_MAX + 1}.qd" not in files_of(tmp_path)


@pytest.mark.parametrize(
    "write",
    [
        lambda writer, data: writer.append(data),
        lambda writer, data: writer.append_many([data]),
        lambda writer, data: writer.new_message().pack_bytes(data),
        lambda writer, data: writer.new_message().pack_int(1).pack_sized_bytes(data),
        lambda writer, data: writer.template("bytes").append((data,)),
    ],
)
def test_message_over_the_limit_is_refused_before_it_is_copied(
    write: Callable[[serai.Writer, mmap.mmap], object], tmp_path: Path
) -> None:
    """The zeros are never touched, so they cost no memory; the files would show what was copied."""
    with mmap.mmap(-1, MESSAGE_BYTES_MAX + 1) as zeros, serai.Queue(tmp_path, page_size=1 << 30) as queue:
        writer = queue.writer()
        with pytest.raises(OverflowError, match=str(MESSAGE_BYTES_MAX)):
            write(writer, zeros)
        writer.discard()
        assert writer.append(b"small") == 0
        assert [m.payload for m in queue.reader()] == [b"small"]
        assert sum(path.stat().st_blocks for path in tmp_path.glob("*.qd")) * 512 < 256 << 20


@pytest.mark.slow
def test_message_that_grows_over_the_limit_is_refused(tmp_path: Path) -> None:
    with mmap.mmap(-1, 1 << 30) as zeros, serai.Queue(tmp_path, page_size=1 << 30) as queue:
        writer = queue.writer()
        writer.new_message().pack_bytes(zeros)
        with pytest.raises(OverflowError, match=str(MESSAGE_BYTES_MAX)):
            writer.pack_bytes(zeros)
        writer.discard()
        assert writer.append(b"small") == 0
        assert [(m.begin, m.payload) for m in queue.reader()] == [(0, b"small")]


# ------------------------------------------------------------------------------------------------ refusals in use


def test_read_past_the_message_end_raises(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        message = queue.reader().set_offset(32)
        assert message is not None
        with pytest.raises(EOFError, match=r"(?s)long.*32|32.*long"):
            message.unpack_long()
        assert message.unpack_int() == 2  # the failed call took nothing
        for read in (message.unpack_byte, message.unpack_string, message.unpack_unicode, message.unpack_decimal):
            with pytest.raises(EOFError):
                read()


def test_unchecked_reader_runs_on_into_the_next_message(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        message = queue.reader(checked=False).next()
        assert message is not None
        assert (message.unpack_int(), message.unpack_int(), message.unpack_long()) == (0, 1, 2 | 3 << 32)
        assert message.size == 4


def test_reading_mode_writes_nothing(tmp_path: Path) -> None:
    before = sorted(path.name for path in fill(tmp_path).iterdir())
    with serai.Queue(tmp_path, "r") as queue:
        for call in (queue.writer, queue.new_message):
            with pytest.raises(serai.ReadOnly) as raised:
                call()
            assert str(tmp_path) in str(raised.value)
        assert numbers(queue) == list(range(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_closed_queue_says_so(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path)) as queue:
        writer = queue.writer()
    for call in (queue.reader, queue.writer, queue.new_message, queue.last, queue.stat, queue.force):
        with pytest.raises(serai.Closed):
            call()
    with pytest.raises(serai.Closed):
        writer.append(b"x")
    with pytest.raises(serai.Closed):
        writer.new_message().pack_int(1)
    queue.close()  # a second time is no error


def test_reader_outlives_its_queue(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path)) as queue:
        reader = queue.reader()
        assert reader.next() is not None
    assert numbers(reader) == list(range(1, 10))


def test_closed_reader_says_so_and_the_queue_stays_open(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        with queue.reader() as reader:
            assert reader.next() is not None
        with pytest.raises(serai.Closed):
            reader.next()
        assert numbers(queue) == list(range(10))


def test_closed_writer_lets_another_one_in_and_the_queue_makes_a_new_one(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=64) as queue:
        with queue.writer() as writer:
            writer.append(b"x")
        with serai.Queue(tmp_path) as other:
            assert other.writer().append(b"y") == 16
            with pytest.raises(serai.Locked):
                queue.writer()
        with pytest.raises(serai.Closed) as raised:
            writer.append(b"z")
        assert str(tmp_path) in str(raised.value)
        assert queue.writer().append(b"z") == 32
        assert list(queue.reader().payloads()) == [b"x", b"y", b"z"]


def test_force_covers_pages_left_behind(tmp_path: Path) -> None:
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.force()
        queue.writer().append_many([bytes(1000)] * 100)
        queue.force()
        queue.writer().force()
        queue.force()
        assert len(list(queue.reader())) == 100


def test_pages_may_be_read_through_a_view_after_everything_is_closed(tmp_path: Path) -> None:
    with serai.Queue(fill(tmp_path), "r") as queue:
        message = queue.reader().set_offset(48)
        assert message is not None
        view = message.view()
    assert view.readonly
    assert bytes(view) == struct.pack("<i", 3)
