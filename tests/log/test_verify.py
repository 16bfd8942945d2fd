"""`verify` names what is wrong, where, and goes on; `entries` shows what lies there; `repair` cuts what blocks readers."""

from __future__ import annotations

import random
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import serai
from serai.log.verify import PROBLEMS_MAX, Problem, Report, cut, entries, repair, verify
from tests.helpers import files_of, load, patch, vector_names

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 256  # 16 entries, 256 bytes of data


def single(folder: Path, count: int, *, checksum: str | None = None, size: int = 10, page_size: int = PAGE) -> Path:
    with serai.Queue(folder, page_size=page_size, checksum=checksum) as queue:
        queue.writer().append_many([bytes([number % 251]) * size for number in range(count)])
    return folder


def multi(folder: Path, count: int) -> Path:
    with (
        serai.MultiQueue(folder, "rw", "AA0", page_size=PAGE) as first,
        serai.MultiQueue(folder, "rw", "BB1", page_size=PAGE) as second,
    ):
        for number in range(count):
            (second if number % 3 == 0 else first).writer().append(bytes([number % 251]) * 10)
    return folder


def kinds(report: Report) -> list[str]:
    return [problem.kind for problem in report.problems]


def only(report: Report) -> Problem:
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


# ------------------------------------------------------------------------------------------------ sound queues


@pytest.mark.parametrize("name", [name for name in vector_names() if name != "multi_seed_dead_producer"])
def test_golden_directories_have_no_problem(name: str, tmp_path: Path) -> None:
    vector = load(name)
    vector.expand(tmp_path)
    before = files_of(tmp_path)
    report = verify(tmp_path)
    readable = vector.expect.get("readable", len(vector.messages))
    assert report.problems == []
    assert report.messages == readable
    assert report.bytes == sum(message.size for message in vector.messages[:readable])
    assert (report.kind, report.page_size) == ("multi" if vector.multi else "single", vector.page_size)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("checksum", [None, "index24"])
@pytest.mark.parametrize("page_size", [16, 64, 4096, 1 << 20])
def test_what_a_writer_writes_has_no_problem(checksum: str | None, page_size: int, tmp_path: Path) -> None:
    rng = random.Random(page_size)
    with serai.Queue(tmp_path, page_size=page_size, checksum=checksum) as queue:
        for _ in range(300):
            queue.writer().append(bytes(rng.randrange(0, 100)))
            if rng.random() < 0.1:
                queue.new_message().pack_bytes(b"x" * 100).discard()
    report = verify(tmp_path, checksum=checksum)
    assert (report.problems, report.notes, report.messages) == ([], [], 300)
    assert report.checksums == (300 if checksum else 0)


def test_queue_of_several_producers_has_no_problem(tmp_path: Path) -> None:
    report = verify(multi(tmp_path, 100))
    assert (report.problems, report.messages, report.bytes, report.kind) == ([], 100, 1000, "multi")


def test_compressed_pages_have_no_problem(tmp_path: Path) -> None:
    with serai.Queue(single(tmp_path, 100)) as queue:
        assert queue.compress() == 3
    report = verify(tmp_path)
    assert (report.problems, report.messages) == ([], 100)


def test_empty_directory_is_a_note(tmp_path: Path) -> None:
    report = verify(tmp_path)
    assert (report.problems, report.messages, report.page_size) == ([], 0, 0)
    assert "nothing was written" in report.notes[0]


def test_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="not a directory"):
        verify(tmp_path / "nowhere")


def test_unknown_checksum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="index24"):
        verify(tmp_path, checksum="crc32")


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    verify(single(tmp_path, 100), progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (100, 100)
    assert heard == sorted(heard)


@pytest.mark.parametrize(
    "others", [["notes.txt"], ["epoch", "lock", "p", "s"]], ids=["mine", "data without its format"]
)
def test_directory_of_other_things_is_refused(others: list[str], tmp_path: Path) -> None:
    for name in others:
        (tmp_path / name).mkdir()
    with pytest.raises(serai.Misuse, match=rf"neither a queue nor a data directory of serai: {others[0]} is there"):
        verify(tmp_path)


def test_verifying_beside_a_writer_finds_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    with (
        serai.Queue(tmp_path / "one", page_size=1 << 16, checksum="index24") as one,
        serai.MultiQueue(tmp_path / "two", "rw", "AA0", page_size=1 << 16) as two,
    ):
        writers = [one.writer(), two.writer()]

        def write() -> None:
            while not stop.is_set():
                for writer in writers:
                    writer.append_many([b"x" * 30] * 50)
                time.sleep(0.0005)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            time.sleep(0.01)
            for _ in range(20):
                assert verify(tmp_path / "one").problems == []
                assert verify(tmp_path / "two").problems == []
        finally:
            stop.set()
            thread.join()


# ------------------------------------------------------------------------------------------------ damage to the index


def test_hole_is_named_with_its_place(tmp_path: Path) -> None:
    single(tmp_path, 40)
    patch(tmp_path / "1.qx", 32, bytes(32))
    problem = only(report := verify(tmp_path))
    assert (problem.kind, problem.file, problem.position, problem.offset) == ("hole", str(tmp_path / "1.qx"), 32, 288)
    assert problem.text.startswith("2 entries")
    assert report.messages == 38


def test_hole_over_a_page_end_is_one_problem(tmp_path: Path) -> None:
    single(tmp_path, 60)
    patch(tmp_path / "1.qx", 240, bytes(16))
    patch(tmp_path / "2.qx", 0, bytes(16))
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.offset, problem.text[:9]) == ("hole", 496, "2 entries")


@pytest.mark.parametrize("offset", [0, 160, 624])
def test_strange_end_flag_is_named(offset: int, tmp_path: Path) -> None:
    single(tmp_path, 40)
    patch(tmp_path / f"{offset // PAGE}.qx", offset % PAGE + 15, b"\x7e")
    problem = only(report := verify(tmp_path))
    assert (problem.kind, problem.position, problem.offset) == ("flag", offset % PAGE + 15, offset)
    assert "0x7e" in problem.text
    assert report.messages == 39


@pytest.mark.parametrize("page_size", [PAGE, 1 << 16])
def test_changed_begin_is_one_problem(page_size: int, tmp_path: Path) -> None:
    single(tmp_path, 40, page_size=page_size)
    patch(tmp_path / "0.qx", 80, struct.pack("<q", 51))
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.offset) == ("begin", 80)
    assert "begins at 51" in problem.text
    assert "ends at 50" in problem.text


def test_changed_size_is_named_at_the_entry_behind(tmp_path: Path) -> None:
    single(tmp_path, 40)
    patch(tmp_path / "0.qx", 88, struct.pack("<i", 11))
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.offset) == ("begin", 96)


@pytest.mark.parametrize(("position", "value"), [(88, struct.pack("<i", -1)), (80, struct.pack("<q", -16))])
def test_negative_size_or_begin_is_named(position: int, value: bytes, tmp_path: Path) -> None:
    single(tmp_path, 40)
    patch(tmp_path / "0.qx", position, value)
    problem = verify(tmp_path).problems[0]
    assert (problem.kind, problem.offset) == ("size", 80)


def test_torn_tail_is_a_note(tmp_path: Path) -> None:
    single(tmp_path, 3)
    patch(tmp_path / "0.qx", 48, struct.pack("<q", 30))
    report = verify(tmp_path)
    assert report.problems == []
    assert "byte 48" in report.notes[0]
    assert "torn tail" in report.notes[0]


def test_missing_index_page_is_named_and_the_rest_is_verified(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "2.qx").unlink()
    (tmp_path / "3.qx").unlink()
    problem = only(report := verify(tmp_path))
    assert (problem.kind, problem.offset) == ("missing", 512)
    assert "2.qx to 3.qx are not there" in problem.text
    assert report.messages == 100 - 32


def test_missing_head_page_is_a_note(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "0.qx").unlink()
    report = verify(tmp_path)
    assert (report.problems, report.messages) == ([], 84)
    assert "below offset 256 are gone" in report.notes[0]
    (tmp_path / "0.qd").unlink()
    assert [(p.kind, p.offset) for p in verify(tmp_path).problems] == [("data", 256)]


def test_no_index_page_at_all_is_a_problem(tmp_path: Path) -> None:
    single(tmp_path, 5)
    (tmp_path / "0.qx").unlink()
    assert only(verify(tmp_path)).kind == "missing"


def test_pages_with_far_numbers_take_no_time(tmp_path: Path) -> None:
    single(tmp_path, 5)
    (tmp_path / "2147483647.qx").write_bytes(b"\x01" * 15 + b"\x7f" + bytes(PAGE - 16))
    started = time.monotonic()
    assert "missing" in kinds(verify(tmp_path))
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("name", ["0.qx", "1.qx", "1.qd"])
def test_page_of_another_length_is_named(name: str, tmp_path: Path) -> None:
    single(tmp_path, 100)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:128])
    problem = verify(tmp_path).problems[0]
    assert (problem.kind, problem.file, problem.position) == ("length", str(tmp_path / name), 128)
    (tmp_path / name).write_bytes(content + content)
    problem = verify(tmp_path).problems[0]
    assert (problem.kind, problem.position) == ("length", PAGE)


def test_more_problems_than_are_named_are_counted(tmp_path: Path) -> None:
    single(tmp_path, 3000, page_size=1 << 16)
    patch(tmp_path / "0.qx", 0, (b"\x05" * 16) * 2000)
    report = verify(tmp_path)
    assert len(report.problems) == PROBLEMS_MAX
    assert report.unnamed >= 1000


# ------------------------------------------------------------------------------------------------ damage to the bytes


def test_missing_data_page_is_named_with_its_first_message(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "1.qd").unlink()
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.file) == ("data", str(tmp_path / "1.qd"))
    assert problem.offset == 16 * 25  # bytes 250 to 260
    assert "message at offset 400" in problem.text


def test_missing_newest_data_page_is_named(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "3.qd").unlink()
    assert only(verify(tmp_path)).offset == 16 * 76


@pytest.mark.parametrize("place", ["data", "sum"])
@pytest.mark.parametrize("number", [0, 17, 99])
def test_flipped_bit_is_found_by_the_checksum(place: str, number: int, tmp_path: Path) -> None:
    single(tmp_path, 100, checksum="index24")
    file, position = ("qd", number * 10 + 3) if place == "data" else ("qx", number * 16 + 13)
    path = tmp_path / f"{position // PAGE}.{file}"
    patch(path, position % PAGE, bytes([path.read_bytes()[position % PAGE] ^ 4]))
    problem = only(report := verify(tmp_path))
    assert (problem.kind, problem.offset) == ("checksum", 16 * number)
    assert problem.position == 16 * number % PAGE
    assert report.checksums == 100
    with serai.Queue(tmp_path, "r", checksum="index24") as queue, pytest.raises(serai.Corrupt):
        queue.reader(16 * number).next()


def test_every_flipped_bit_of_a_summed_entry_is_found(tmp_path: Path) -> None:
    single(tmp_path, 9, checksum="index24")
    right = (tmp_path / "0.qx").read_bytes()
    for bit in range(128):
        wrong = bytearray(right)
        wrong[64 + bit // 8] ^= 1 << bit % 8
        (tmp_path / "0.qx").write_bytes(wrong)
        assert verify(tmp_path).problems, f"bit {bit} of the entry at 64"


def test_messages_without_checksum_are_counted(tmp_path: Path) -> None:
    single(tmp_path, 10)
    single(tmp_path, 5, checksum="index24")
    report = verify(tmp_path)
    assert (report.problems, report.checksums) == ([], 5)
    assert report.notes == ["10 messages have no checksum"]
    assert verify(single(tmp_path / "plain", 3), checksum="index24").notes == ["3 messages have no checksum"]


def test_checksums_behind_a_hole_are_compared(tmp_path: Path) -> None:
    single(tmp_path, 40, checksum="index24")
    patch(tmp_path / "0.qx", 32, bytes(16))
    patch(tmp_path / "1.qd", 94, b"\xff")  # in message 35
    assert [(p.kind, p.offset) for p in verify(tmp_path).problems] == [("hole", 32), ("checksum", 560)]


def test_compressed_page_that_does_not_inflate_is_named(tmp_path: Path) -> None:
    with serai.Queue(single(tmp_path, 100, checksum="index24")) as queue:
        assert queue.compress() == 3
    path = tmp_path / "1.qd.zst"
    right = path.read_bytes()
    patch(path, 12, bytes([right[12] ^ 0xFF]))
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.file, problem.offset) == ("compressed", str(path), None)
    path.write_bytes(right[:-3])
    assert only(verify(tmp_path)).kind == "compressed"


# ------------------------------------------------------------------------------------------------ several producers


def test_unfinished_entry_of_a_dead_producer_is_a_problem(tmp_path: Path) -> None:
    load("multi_seed_dead_producer").expand(tmp_path)
    problem = only(report := verify(tmp_path))
    assert (problem.kind, problem.offset, problem.position) == ("unfinished", 64, 64)
    assert "MP2" in problem.text
    assert report.messages == 6


def test_unfinished_entry_of_a_producer_at_work_is_a_note(tmp_path: Path) -> None:
    multi(tmp_path, 9)
    with serai.MultiQueue(tmp_path, "rw", "AA0") as queue:
        queue.writer()
        patch(tmp_path / "0.qx", 144, bytes(8) + struct.pack("<i", 10) + b"0AA\0")
        report = verify(tmp_path)
    assert report.problems == []
    assert report.notes == ["producer AA0 is at work on the entry at offset 144"]
    assert kinds(verify(tmp_path)) == ["unfinished"]


def test_hole_among_several_producers_is_named(tmp_path: Path) -> None:
    multi(tmp_path, 40)
    patch(tmp_path / "0.qx", 160, bytes(16))
    assert [(p.kind, p.offset) for p in verify(tmp_path).problems] == [("hole", 160)]


def test_messages_that_overlap_are_named(tmp_path: Path) -> None:
    multi(tmp_path, 40)
    patch(tmp_path / "0.qx", 16 * 8, struct.pack("<q", 5))  # of AA0, in the middle of earlier ones
    assert [(p.kind, p.offset) for p in verify(tmp_path).problems] == [("begin", 128)]


def test_name_that_no_producer_can_have_is_named(tmp_path: Path) -> None:
    multi(tmp_path, 40)
    patch(tmp_path / "0.qx", 76, b"/")
    found = {problem.kind: problem for problem in verify(tmp_path).problems}
    assert found["name"].offset == 64
    assert "'" in found["name"].text


@pytest.mark.parametrize("content", [b"", bytes(31), bytes(33)])
def test_state_of_another_length_is_named(content: bytes, tmp_path: Path) -> None:
    multi(tmp_path, 9)
    (tmp_path / "AA0.qm").write_bytes(content)
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.file) == ("state", str(tmp_path / "AA0.qm"))
    assert f"{len(content)} bytes" in problem.text


@pytest.mark.parametrize("numbers", [(-1, 0, 0, 0), (60, 50, 7, 0), (10, 20, 0, 0)])
def test_state_that_cannot_be_right_is_named(numbers: tuple[int, ...], tmp_path: Path) -> None:
    multi(tmp_path, 9)  # AA0 has 60 bytes
    (tmp_path / "AA0.qm").write_bytes(struct.pack("<4q", *numbers))
    assert only(verify(tmp_path)).kind == "state"


def test_missing_state_is_named(tmp_path: Path) -> None:
    multi(tmp_path, 9)
    (tmp_path / "AA0.qm").unlink()
    problem = only(verify(tmp_path))
    assert (problem.kind, problem.file, problem.offset) == ("state", str(tmp_path / "AA0.qm"), 16)


def test_state_in_a_queue_of_one_is_named(tmp_path: Path) -> None:
    single(tmp_path, 3)
    (tmp_path / "AA0.qm").write_bytes(bytes(32))
    assert only(verify(tmp_path)).kind == "state"


# ------------------------------------------------------------------------------------------------ entries


def test_entries_are_those_of_the_vectors(tmp_path: Path) -> None:
    for name in vector_names():
        vector = load(name)
        found = list(entries(vector.expand(tmp_path / name)))
        told = [(m.offset, m.begin, m.size, m.producer) for m in vector.messages]
        skipped = vector.expect.get("claimed_unfinished_offset", -1)
        assert [
            (e.offset, e.begin if e.offset != skipped else 0, e.size, e.producer) for e in found if e.published
        ] == [entry for entry in told[: vector.expect.get("readable", len(told))] if entry[0] != skipped]


def test_entries_begin_where_they_are_asked_to(tmp_path: Path) -> None:
    single(tmp_path, 40)
    assert [entry.offset for entry in entries(tmp_path, offset=608)] == [608, 624]
    assert [entry.offset for entry in entries(tmp_path, offset=5000)] == []


def test_unpublished_entry_is_shown(tmp_path: Path) -> None:
    load("multi_seed_dead_producer").expand(tmp_path)
    assert [(e.offset, e.producer, e.size) for e in entries(tmp_path) if not e.published] == [(64, "MP2", 7)]


# ------------------------------------------------------------------------------------------------ repair


def payloads(folder: Path) -> list[bytes]:
    with serai.Queue(folder, "r") as queue:
        return list(queue.reader().payloads())


@pytest.mark.parametrize(("offset", "lost"), [(16, 3998), (16 * 100, 3899), (16 * 4000 - 16, 0)])
def test_repair_cuts_behind_the_first_hole(offset: int, lost: int, tmp_path: Path) -> None:
    single(tmp_path, 4000)
    before = payloads(tmp_path)
    patch(tmp_path / f"{offset // PAGE}.qx", offset % PAGE, b"\x05" * 16)
    plan = cut(tmp_path)
    assert (plan.offset, plan.messages, plan.needed) == (offset, lost, True)
    assert repair(tmp_path) == lost
    assert verify(tmp_path).problems == []
    assert payloads(tmp_path) == before[: offset // 16]
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"again") == offset
    assert payloads(tmp_path) == [*before[: offset // 16], b"again"]
    assert verify(tmp_path).problems == []


def test_repair_cuts_what_a_writer_refuses_to(tmp_path: Path) -> None:
    single(tmp_path, 4000)
    patch(tmp_path / "1.qx", 0, bytes(16))
    with serai.Queue(tmp_path) as queue, pytest.raises(serai.Corrupt, match="--repair"):
        queue.writer()
    assert repair(tmp_path) == 4000 - 17
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"x") == 256


def test_repair_cuts_entries_that_lost_their_data(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "3.qd").unlink()
    assert repair(tmp_path) == 100 - 76
    assert verify(tmp_path).problems == []
    assert len(payloads(tmp_path)) == 76


def test_repair_cuts_a_newest_entry_that_lies_over_the_one_before(tmp_path: Path) -> None:
    single(tmp_path, 10)
    patch(tmp_path / "0.qx", 144, struct.pack("<q", 85))
    with serai.Queue(tmp_path) as queue, pytest.raises(serai.Corrupt):
        queue.writer()
    assert repair(tmp_path) == 1
    assert verify(tmp_path).problems == []


def test_repair_cuts_behind_a_missing_index_page(tmp_path: Path) -> None:
    single(tmp_path, 100)
    (tmp_path / "2.qx").unlink()
    assert repair(tmp_path) == 100 - 48
    assert verify(tmp_path).problems == []
    assert len(payloads(tmp_path)) == 32


def test_repair_leaves_damage_that_readers_pass(tmp_path: Path) -> None:
    single(tmp_path, 100, checksum="index24")
    patch(tmp_path / "0.qd", 5, b"\xff")
    before = files_of(tmp_path)
    assert not cut(tmp_path).needed
    assert repair(tmp_path) == 0
    assert files_of(tmp_path) == before
    assert kinds(verify(tmp_path)) == ["checksum"]


def test_repair_of_a_sound_queue_changes_nothing(tmp_path: Path) -> None:
    before = files_of(single(tmp_path, 100))
    assert repair(tmp_path) == 0
    assert files_of(tmp_path) == before


def test_repair_beside_a_writer_is_refused(tmp_path: Path) -> None:
    queue = serai.Queue(single(tmp_path, 100))
    queue.writer()
    patch(tmp_path / "0.qx", 32, bytes(16))
    before = files_of(tmp_path)
    with pytest.raises(serai.Locked, match="writer"):
        repair(tmp_path)
    assert files_of(tmp_path) == before
    queue.close()
    assert repair(tmp_path) == 97


def test_repair_of_several_producers_is_refused(tmp_path: Path) -> None:
    multi(tmp_path, 9)
    with pytest.raises(serai.Misuse, match="several producers"):
        repair(tmp_path)


# ------------------------------------------------------------------------------------------------ any bytes at all


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.lists(st.tuples(st.sampled_from(["0.qx", "1.qx", "0.qd", "2.qd"]), st.integers(0, 255), st.integers(1, 255)),
                       min_size=1, max_size=6))  # fmt: skip
def test_any_damage_ends_in_a_report_and_repair_makes_a_queue_writable(
    damage: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = single(tmp_path_factory.mktemp("q"), 100, checksum="index24")
    for name, position, change in damage:
        patch(folder / name, position, bytes([(folder / name).read_bytes()[position] ^ change]))
    verify(folder)
    repair(folder)
    assert {"hole", "flag", "missing"}.isdisjoint(kinds(verify(folder)))
    with serai.Queue(folder, checksum="index24") as queue:
        queue.writer().append(b"x")
        last = queue.last()
        assert last is not None
        assert last.payload == b"x"


@settings(max_examples=60, deadline=None)
@given(files=st.dictionaries(st.sampled_from(["0.qx", "1.qx", "0.qd", "0.qd.zst", "AA0.qm", "7.qmx"]),
                             st.binary(max_size=300), max_size=4))  # fmt: skip
def test_any_bytes_end_in_a_report(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("q")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert isinstance(verify(folder), Report)
    assert len(list(entries(folder))) <= 60
