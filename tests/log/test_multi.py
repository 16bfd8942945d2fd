"""Several producers on one index, several readers of one queue: other processes, dead producers, and recovery.

States that only a crash can leave are written by hand into the files: an entry that was claimed and not finished has
its size and name but no flag, and no begin.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import serai
from tests.helpers import files_of, finish_python, patch, start_python, write_files
from tests.oracle.quickqueue import OracleProducer, OracleReader

if TYPE_CHECKING:
    from pathlib import Path


def state(folder: Path, name: str) -> tuple[int, int, int, int]:
    """endA, endB, lastIndex and the unused number of a `.qm` file."""
    end_a, end_b, last_index, unused = struct.unpack("=4q", (folder / f"{name}.qm").read_bytes())
    return end_a, end_b, last_index, unused


def claim(folder: Path, offset: int, *, name: str, size: int, page_size: int = 256) -> None:
    """Step 3 of a write: the entry is taken, its begin and its flag are missing."""
    stamp = struct.pack("<i", size) + name.encode()[::-1] + b"\0"
    patch(folder / f"{offset // page_size}.qx", offset % page_size, bytes(8) + stamp)


def payloads(folder: Path) -> list[bytes]:
    with serai.MultiQueue(folder) as queue:
        return list(queue.reader().payloads())


def producer(folder: Path, name: str) -> serai.MultiQueue:
    return serai.MultiQueue(folder, name=name, page_size=256)


def next_for(reader: serai.Reader, *, seconds: float) -> None:
    """Look for the next message all the time, and find none."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert reader.next() is None


def empty_for(reader: serai.Reader, *, seconds: float) -> None:
    """The same, a batch at a time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert len(reader.read_batch()) == 0


# ------------------------------------------------------------------------------------------------ opening


@pytest.mark.parametrize("name", ["", "A", "AB", "ABCD", "A B", "A_B", "A-1", "é12", "A\n1", "../", "A[1", "A^`"])
def test_name_that_is_not_three_letters_or_digits_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match=r"3|three"):
        serai.MultiQueue(tmp_path, "rw", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["AA0", "abc", "999", "zZ9"])
def test_name_of_three_letters_or_digits_makes_its_folder_and_state(name: str, tmp_path: Path) -> None:
    with serai.MultiQueue(tmp_path, "rw", name, page_size=256) as queue:
        assert queue.mode == "rw"
        assert queue.writer().append(b"x") == 0
        message = queue.last()
        assert message is not None
        assert message.producer == name
    assert sorted(files_of(tmp_path)) == sorted(["0.qx", f"{name}.qm", f"{name}/0.qd"])


def test_writing_needs_a_name(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse, match="name"):
        serai.MultiQueue(tmp_path, "rw").writer()


def test_queue_without_a_name_is_for_reading(tmp_path: Path) -> None:
    with producer(tmp_path, "AA0") as queue:
        queue.writer().append(b"x")
    with serai.MultiQueue(tmp_path) as reading:
        assert reading.mode == "r"
        assert [m.payload for m in reading.reader()] == [b"x"]
        for call in (reading.writer, reading.new_message):
            with pytest.raises(serai.ReadOnly):
                call()


def test_missing_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(serai.Misuse) as raised:
        serai.MultiQueue(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(raised.value)


def test_second_producer_of_the_same_name_is_refused(tmp_path: Path) -> None:
    other = """
        import sys, serai
        try:
            print(serai.MultiQueue(sys.argv[1], name=sys.argv[2]).writer().append(b"other"))
        except serai.Locked as error:
            print("Locked", sys.argv[2] in str(error))
    """
    with producer(tmp_path, "AA0") as first:
        first.writer().append(b"x")
        with producer(tmp_path, "AA0") as second, pytest.raises(serai.Locked, match="AA0"):
            second.writer()
        assert finish_python(start_python(other, tmp_path, "AA0")) == "Locked True\n"
        assert finish_python(start_python(other, tmp_path, "BB1")) == "16\n"
    assert finish_python(start_python(other, tmp_path, "AA0")) == "32\n"


@pytest.mark.parametrize(("dialect", "index"), [("seed", "0.qx"), ("java", "0.qmx")])
def test_dialect_names_the_index_of_a_new_directory_and_finds_that_of_an_old_one(
    dialect: str, index: str, tmp_path: Path
) -> None:
    with serai.MultiQueue(tmp_path, name="AA0", page_size=256, dialect=dialect) as queue:
        queue.writer().append(b"x")
    assert index in files_of(tmp_path)
    for again in ("seed", "java"):
        with serai.MultiQueue(tmp_path, name="AA0", dialect=again) as queue:
            queue.writer().append(b"y")
    assert [name for name in files_of(tmp_path) if name.endswith(("x",))] == [index]
    assert payloads(tmp_path) == [b"x", b"y", b"y"]


def test_stat_names_the_producers(tmp_path: Path) -> None:
    for name in ("zZ9", "AA0"):
        with producer(tmp_path, name) as queue:
            queue.writer().append_many([b"12345"] * 20)
    with serai.MultiQueue(tmp_path) as queue:
        stat = queue.stat()
    assert (stat.kind, stat.producers, stat.messages) == ("multi", ["AA0", "zZ9"], 40)
    assert (stat.page_size, stat.first_offset, stat.end_offset) == (256, 0, 640)


# ------------------------------------------------------------------------------------------------ writing


def test_producers_of_one_process_take_turns(tmp_path: Path) -> None:
    with producer(tmp_path, "AA0") as first, producer(tmp_path, "BB1") as second:
        expected = []
        for number in range(100):
            queue = second if number % 3 == 0 else first
            assert queue.new_message().pack_int(number).write_message() == 16 * number
            expected.append((16 * number, "BB1" if number % 3 == 0 else "AA0", number))
        for queue in (first, second):
            assert [(m.offset, m.producer, m.unpack_int()) for m in queue.reader()] == expected
        reader, batched = first.reader(800), []
        while len(batch := reader.read_batch(50)):
            batched += list(zip(batch.offsets, batch.to_list(), strict=True))
        assert batched == [(offset, struct.pack("<i", number)) for offset, _, number in expected[50:]]


def test_threads_share_one_producer_under_its_lock(tmp_path: Path) -> None:
    with producer(tmp_path, "AA0") as queue:
        writer = queue.writer()

        def write(thread: int) -> None:
            for number in range(500):
                with writer.lock:
                    writer.new_message().pack_int(thread).pack_int(number).write_message()

        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = list(queue.reader().rows("int", "int"))
    assert len(rows) == 2000
    for number in range(4):
        assert [count for thread, count in rows if thread == number] == list(range(500))


def test_producers_in_threads_make_index_pages_together(tmp_path: Path) -> None:
    """With 16-byte pages every message needs a new index page, and all producers are after the same one."""
    names = ["AA0", "BB1", "CC2", "DD3"]
    errors: list[BaseException] = []
    begin = threading.Barrier(len(names))

    def write(name: str) -> None:
        try:
            with serai.MultiQueue(tmp_path, name=name, page_size=16) as queue:
                writer = queue.writer()
                begin.wait()
                for number in range(250):
                    writer.append(number.to_bytes(4, "little"))
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with serai.MultiQueue(tmp_path) as queue:
        seen = [(m.producer, int.from_bytes(m.payload, "little")) for m in queue.reader()]
    for name in names:
        assert [number for of, number in seen if of == name] == list(range(250))


def test_ends_take_turns_even_when_messages_are_empty(tmp_path: Path) -> None:
    """Golden multi_seed_three64 has such a pair: an empty message makes both ends equal, and the turn still changes."""
    states = []
    with producer(tmp_path, "AA0") as queue:
        for payload in (b"1234", b"", b"56", b"", b"", b"7"):
            offset = queue.writer().append(payload)
            states.append(state(tmp_path, "AA0"))
            assert states[-1][2] == offset
    assert [ends[:2] for ends in states] == [(0, 4), (4, 4), (4, 6), (6, 6), (6, 6), (7, 6)]


def test_reopened_producer_overwrites_the_older_end(tmp_path: Path) -> None:
    states = []
    for number in range(5):
        with producer(tmp_path, "AA0") as queue:
            assert queue.writer().append(b"1234") == 16 * number
        states.append(state(tmp_path, "AA0"))
    assert [ends[:2] for ends in states] == [(0, 4), (8, 4), (8, 12), (16, 12), (16, 20)]
    with serai.MultiQueue(tmp_path) as queue:
        assert [m.begin for m in queue.reader()] == [0, 4, 8, 12, 16]


def test_payloads_straddle_pages_of_each_producer(tmp_path: Path) -> None:
    names = ["AA0", "BB1", "CC2"]
    queues = [serai.MultiQueue(tmp_path / "ours", name=name, page_size=32) for name in names]
    oracles = [OracleProducer(tmp_path / "theirs", name, 32) for name in names]
    for number in range(60):
        payload = bytes([number]) * (number * 7 % 50)
        assert queues[number % 3].writer().append(payload) == oracles[number % 3].append(payload)
    for queue in queues:
        queue.close()
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "theirs")
    entries = list(OracleReader(tmp_path / "ours"))
    with serai.MultiQueue(tmp_path / "theirs") as queue:
        ours = [(m.offset, m.begin, m.size, m.producer, m.payload) for m in queue.reader()]
    assert ours == [(e.offset, e.begin, e.size, e.name, e.payload) for e in entries]
    assert len(ours) == 60


# ------------------------------------------------------------------------------------------------ dead producers


def unfinished(folder: Path, *, size: int = 5) -> None:
    """AA0 writes 3 messages; BB1 claims a fourth entry and dies; AA0 writes 2 more."""
    with producer(folder, "AA0") as queue:
        queue.writer().append_many([b"a", b"b", b"c"])
    write_files(folder, {"BB1/0.qd": b"ghost"[:size].ljust(256, b"\0"), "BB1.qm": struct.pack("=4q", 0, size, 0, 0)})
    claim(folder, 48, name="BB1", size=size)
    with producer(folder, "AA0") as queue:
        assert queue.writer().append_many([b"d", b"e"]) == 80


def test_entry_of_a_dead_producer_is_raised_once_with_its_place(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with serai.MultiQueue(tmp_path) as queue:
        reader = queue.reader()
        assert [reader.next() is not None for _ in range(3)] == [True] * 3
        with pytest.raises(serai.DeadProducer) as raised:
            next_for(reader, seconds=10)
        assert (raised.value.offset, raised.value.producer) == (48, "BB1")
        assert "BB1" in str(raised.value)
        assert "48" in str(raised.value)
        assert list(reader.payloads()) == [b"d", b"e"]
        assert reader.set_offset(48) is None
        with pytest.raises(serai.DeadProducer):
            next_for(reader, seconds=10)
        assert reader.offset == 64


def test_batches_stop_before_a_dead_producers_entry_and_go_on_behind_it(tmp_path: Path) -> None:
    unfinished(tmp_path)
    with serai.MultiQueue(tmp_path) as queue:
        reader = queue.reader()
        assert reader.read_batch().to_list() == [b"a", b"b", b"c"]
        with pytest.raises(serai.DeadProducer):
            empty_for(reader, seconds=10)
        batch = reader.read_batch()
        assert (batch.to_list(), batch.offsets) == ([b"d", b"e"], [64, 80])
        assert len(reader.read_batch()) == 0


def test_entry_of_a_living_producer_is_waited_for_in_its_own_process(tmp_path: Path) -> None:
    """The lock is held by this very process: a reader here must not take its owner for dead, nor drop the lock."""
    with producer(tmp_path, "BB1") as living, serai.MultiQueue(tmp_path, page_size=256) as queue:
        living.writer().append(b"first")
        claim(tmp_path, 16, name="BB1", size=5)
        patch(tmp_path / "BB1" / "0.qd", 5, b"later")
        reader = queue.reader()
        assert [m.payload for m in reader] == [b"first"]
        next_for(reader, seconds=0.03)
        assert reader.offset == 16
        with producer(tmp_path, "BB1") as second, pytest.raises(serai.Locked):
            second.writer()
        patch(tmp_path / "0.qx", 16, struct.pack("<q", 5))
        patch(tmp_path / "0.qx", 31, b"\x7f")
        message = reader.next()
        assert message is not None
        assert (message.begin, message.payload) == (5, b"later")


LIVE = """
    import sys, serai
    writer = serai.MultiQueue(sys.argv[1], name="BB1", page_size=256).writer()
    print(writer.append(b"first"), flush=True)
    sys.stdin.read()
"""


def test_entry_of_a_producer_in_another_process_is_waited_for_until_it_is_killed(tmp_path: Path) -> None:
    process = start_python(LIVE, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    claim(tmp_path, 16, name="BB1", size=5)
    with serai.MultiQueue(tmp_path) as queue:
        reader = queue.reader()
        assert reader.next() is not None
        next_for(reader, seconds=0.03)
        process.kill()
        process.communicate()
        with pytest.raises(serai.DeadProducer):
            next_for(reader, seconds=10)
        assert reader.next() is None


def test_producer_without_a_state_file_is_dead(tmp_path: Path) -> None:
    unfinished(tmp_path)
    (tmp_path / "BB1.qm").unlink()
    with serai.MultiQueue(tmp_path) as queue, queue.reader(48) as reader, pytest.raises(serai.DeadProducer):
        next_for(reader, seconds=10)


def test_queue_grows_over_a_dead_producers_entry(tmp_path: Path) -> None:
    """Entries behind the unfinished one are found at opening: the used ones are a prefix, finished or not."""
    unfinished(tmp_path)
    with producer(tmp_path, "AA0") as queue:
        last = queue.last()
        assert last is not None
        assert last.payload == b"e"
        assert queue.writer().append(b"f") == 96


# ------------------------------------------------------------------------------------------------ coming back


@pytest.mark.parametrize("last_index", [48, 0, 32])
def test_unfinished_entry_is_completed_wherever_the_state_points(last_index: int, tmp_path: Path) -> None:
    """A crash between the claim and the state leaves lastIndex behind; the producer looks from there to the end."""
    unfinished(tmp_path)
    patch(tmp_path / "BB1.qm", 16, struct.pack("=q", last_index))
    with producer(tmp_path, "BB1") as queue:
        writer = queue.writer()
        entries = [(m.offset, m.begin, m.size, m.producer, m.payload) for m in queue.reader()]
        assert entries[3] == (48, 0, 5, "BB1", b"ghost")
        assert [payload for *_, payload in entries] == [b"a", b"b", b"c", b"ghost", b"d", b"e"]
        assert writer.append(b"alive") == 96
        message = queue.last()
        assert message is not None
        assert (message.begin, message.payload) == (5, b"alive")
    assert state(tmp_path, "BB1") == (10, 5, 96, 0)


def test_unfinished_entry_over_an_index_page_end_is_completed(tmp_path: Path) -> None:
    with producer(tmp_path, "AA0") as queue:
        queue.writer().append_many([b"x"] * 16)
    write_files(tmp_path, {"1.qx": bytes(256), "BB1/0.qd": b"ghost".ljust(256, b"\0")})
    write_files(tmp_path, {"BB1.qm": struct.pack("=4q", 0, 5, 0, 0)})
    claim(tmp_path, 256, name="BB1", size=5)
    with producer(tmp_path, "BB1") as queue:
        assert queue.writer().append(b"alive") == 272
    assert payloads(tmp_path) == [b"x"] * 16 + [b"ghost", b"alive"]


def test_empty_unfinished_entry_is_completed(tmp_path: Path) -> None:
    unfinished(tmp_path, size=0)
    with producer(tmp_path, "BB1") as queue:
        assert queue.writer().append(b"alive") == 96
    assert payloads(tmp_path) == [b"a", b"b", b"c", b"", b"d", b"e", b"alive"]


def test_entry_with_a_begin_but_no_flag_is_completed(tmp_path: Path) -> None:
    """A crash between the last two steps of a later message: begin is there, only the flag is missing."""
    with producer(tmp_path, "BB1") as queue:
        queue.writer().append_many([b"one", b"three", b"seventeen"])
    patch(tmp_path / "0.qx", 47, b"\0")
    with producer(tmp_path, "BB1") as queue:
        assert queue.writer().append(b"next") == 48
        assert [(m.begin, m.payload) for m in queue.reader()] == [
            (0, b"one"), (3, b"three"), (8, b"seventeen"), (17, b"next"),
        ]  # fmt: skip


def test_crash_before_the_claim_only_leaves_a_gap(tmp_path: Path) -> None:
    """The new end is in the state, no entry was claimed: those bytes belong to nobody."""
    with producer(tmp_path, "BB1") as queue:
        queue.writer().append(b"1234")
    patch(tmp_path / "BB1.qm", 0, struct.pack("=q", 14))
    with producer(tmp_path, "BB1") as queue:
        assert queue.writer().append(b"5678") == 16
        assert [(m.begin, m.payload) for m in queue.reader()] == [(0, b"1234"), (14, b"5678")]
    assert state(tmp_path, "BB1")[:3] == (14, 18, 16)


def test_others_unfinished_entry_is_left_alone(tmp_path: Path) -> None:
    unfinished(tmp_path)
    before = files_of(tmp_path)["0.qx"]
    for name in ("AA0", "CC2"):
        with producer(tmp_path, name) as queue:
            queue.writer()
    assert files_of(tmp_path)["0.qx"] == before


def test_oracle_and_serai_recover_to_the_same_bytes(tmp_path: Path) -> None:
    for number, last_index in enumerate([0, 48, 80]):
        ours, theirs = tmp_path / f"{number}o", tmp_path / f"{number}t"
        unfinished(ours)
        patch(ours / "BB1.qm", 16, struct.pack("=q", min(last_index, 48)))
        write_files(theirs, files_of(ours))
        with producer(ours, "BB1") as queue:
            queue.writer().append(b"alive")
        OracleProducer(theirs, "BB1", 256).append(b"alive")
        assert files_of(ours) == files_of(theirs)


# ------------------------------------------------------------------------------------------------ other processes


WRITE_MANY = """
    import sys, serai
    queue = serai.Queue(sys.argv[1], page_size=1 << 16)
    writer, count = queue.writer(), int(sys.argv[2])
    for first in range(0, count, 1000):
        if first % 2000:
            writer.append_many([i.to_bytes(4, "little") * (1 + i % 7) for i in range(first, first + 1000)])
        else:
            for i in range(first, first + 1000):
                writer.append(i.to_bytes(4, "little") * (1 + i % 7))
"""
READ_MANY = """
    import sys, time, serai
    queue, count, way = serai.Queue(sys.argv[1], "r", page_size=1 << 16), int(sys.argv[2]), sys.argv[3]
    reader, seen, until = queue.reader(), 0, time.monotonic() + 50
    def check(payload):
        global seen
        assert payload == seen.to_bytes(4, "little") * (1 + seen % 7), (seen, payload)
        seen += 1
    while seen < count and time.monotonic() < until:
        if way == "batch":
            for payload in reader.read_batch(5000).to_list():
                check(payload)
        elif way == "payloads":
            for payload in reader.payloads():
                check(payload)
        else:
            for message in reader:
                assert message.offset == 16 * seen
                check(message.payload)
        reader.wait(1000)
    assert reader.next() is None
    print(seen)
"""


def test_three_reading_processes_see_all_messages_of_a_writing_one_in_order(tmp_path: Path) -> None:
    count = 40_000
    readers = [start_python(READ_MANY, tmp_path, count, way) for way in ("messages", "batch", "payloads")]
    finish_python(start_python(WRITE_MANY, tmp_path, count))
    assert [finish_python(reader) for reader in readers] == [f"{count}\n"] * 3


PRODUCE = """
    import sys, serai
    folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    writer = serai.MultiQueue(folder, name=name, page_size=1 << 16).writer()
    sys.stdin.readline()
    for first in range(0, count, 1000):
        if first % 4000:
            writer.append_many([b"%s%07d" % (name.encode(), i) for i in range(first, first + 1000)])
        else:
            for i in range(first, first + 1000):
                writer.append(b"%s%07d" % (name.encode(), i))
    print(writer.offset)
"""


def test_four_producing_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    count, names = 100_000, ["AA0", "BB1", "CC2", "DD3"]
    processes = [start_python(PRODUCE, tmp_path, name, count) for name in names]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    expected = dict.fromkeys(names, 0)
    changes, before = 0, ""
    until = time.monotonic() + 100
    with serai.MultiQueue(tmp_path, page_size=1 << 16) as queue:  # read while they write
        reader, offset = queue.reader(), 0
        while sum(expected.values()) < count * len(names) and time.monotonic() < until:
            for message in reader:
                name = message.producer
                assert message.offset == offset
                assert message.payload == b"%s%07d" % (name.encode(), expected[name])
                expected[name] += 1
                changes += name != before
                before, offset = name, offset + 16
            reader.wait(1000)
        assert reader.next() is None
    for process in processes:
        finish_python(process)
    assert expected == dict.fromkeys(names, count)
    assert changes > len(names)  # they did write at the same time
    seen = Counter(payload[:3] for payload in payloads(tmp_path))
    assert seen == {name.encode(): count for name in names}
