"""The instants no kill is likely to hit: between claim and flag, and between the calls that make a page.

The first kind is written by hand: the files before and after one message, with only the first few of its stores.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from serai.log.verify import verify
from tests.faults.kit import ROOT, body
from tests.helpers import files_of, patch, write_files

if TYPE_CHECKING:
    from pathlib import Path

STEPS = ("payload", "state", "claim", "last index", "begin", "flag")  # the stores of one message, in order
PAGE = 256


def producer(folder: Path, name: str) -> serai.MultiQueue:
    return serai.MultiQueue(folder, name=name, page_size=PAGE)


def write(folder: Path, name: str, payload: bytes) -> int:
    with producer(folder, name) as queue:
        return queue.writer().append(payload)


def crash(folder: Path, name: str, payload: bytes, *, after: str) -> int:
    """A producer writes one message and dies right after one of its stores; gives the entry's offset."""
    with producer(folder, name) as queue:
        writer = queue.writer()  # an unfinished entry of an earlier crash is completed here
        before = (folder / f"{name}.qm").read_bytes()
        offset = writer.append(payload)
    step = STEPS.index(after)
    state, page, position = (folder / f"{name}.qm").read_bytes(), folder / f"{offset // PAGE}.qx", offset % PAGE
    entry = page.read_bytes()[position : position + 16]
    patch(folder / f"{name}.qm", 0, (state if step >= 1 else before)[:16] + (state if step >= 3 else before)[16:])
    begin = entry[:8] if step >= 4 else bytes(8)
    stamp = entry[8:15] if step >= 2 else bytes(7)
    patch(page, position, begin + stamp + (entry[15:] if step >= 5 else b"\0"))
    return offset


def read_all(folder: Path) -> tuple[dict[int, tuple[str, bytes]], list[tuple[int, str]]]:
    """Every message by its offset, and every entry that was told as unfinished."""
    messages, dead = {}, []
    with serai.MultiQueue(folder) as queue:
        reader = queue.reader(0)
        while reader.offset < queue.stat().end_offset:
            try:
                for m in reader:
                    messages[m.offset] = (m.producer, m.payload)
            except serai.DeadProducer as error:
                dead.append((error.offset, error.producer))
    return messages, dead


PAYLOADS = {"short": b"ghost", "empty": b"", "over three pages": body(1, 5)[:12] * 50, "one byte": b"g"}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("before", [0, 3, 16], ids=["first entry", "some entries before", "first entry of a page"])
@pytest.mark.parametrize("step", STEPS)
def test_message_whose_producer_died_between_two_stores(step: str, before: int, payload: bytes, tmp_path: Path) -> None:
    expected: dict[int, tuple[str, bytes]] = {}
    for number in range(before):
        name = ("AA0", "BB1")[number % 2]
        expected[write(tmp_path, name, b"%d" % number)] = (name, b"%d" % number)
    offset = crash(tmp_path, "BB1", payload, after=step)
    assert offset == 16 * before
    claimed = STEPS.index(step) >= 2
    for text in (b"behind", b"it"):
        expected[write(tmp_path, "AA0", text)] = ("AA0", text)
    assert (offset in expected) is not claimed  # an entry that was not claimed is taken by the next one

    messages, dead = read_all(tmp_path)
    if step == "flag":
        expected[offset] = ("BB1", payload)
    assert messages == expected
    assert dead == ([(offset, "BB1")] if claimed and step != "flag" else [])

    with producer(tmp_path, "BB1") as back:
        back.writer()
        if claimed:
            expected[offset] = ("BB1", payload)
        assert read_all(tmp_path) == (expected, [])
        expected[back.writer().append(b"alive")] = ("BB1", b"alive")
    assert read_all(tmp_path) == (expected, [])
    assert verify(tmp_path).problems == []


@pytest.mark.parametrize("seed", range(4))
def test_producers_that_die_again_and_again_lose_nothing(seed: int, tmp_path: Path) -> None:
    """What a crash left is what the next crash starts from; the model is a dictionary."""
    dice = Random(seed)
    messages: dict[int, tuple[str, bytes]] = {}
    unfinished: dict[str, tuple[int, bytes]] = {}
    for number in range(120):
        name, payload = dice.choice(("AA0", "BB1", "CC2")), body(seed, number)[: dice.choice((0, 1, 20, 300, 700))]
        if name in unfinished:
            offset, old = unfinished.pop(name)
            messages[offset] = (name, old)
        if dice.random() < 0.5:
            messages[write(tmp_path, name, payload)] = (name, payload)
            continue
        step = dice.choice(STEPS)
        offset = crash(tmp_path, name, payload, after=step)
        if step == "flag":
            messages[offset] = (name, payload)
        elif STEPS.index(step) >= 2:
            unfinished[name] = (offset, payload)
        if number % 10 == 0:
            found, dead = read_all(tmp_path)
            assert found == messages
            assert sorted(dead) == sorted((offset, name) for name, (offset, _payload) in unfinished.items())
    for name, (offset, payload) in unfinished.items():
        with producer(tmp_path, name) as queue:
            queue.writer()
        messages[offset] = (name, payload)
    assert read_all(tmp_path) == (messages, [])
    assert sorted(messages) == list(range(0, 16 * len(messages), 16))


def test_reader_that_stands_at_the_entry_gets_it_when_its_producer_comes_back_in_time(tmp_path: Path) -> None:
    """Not a millisecond has passed since the first look, so the producer is not looked for yet."""
    write(tmp_path, "AA0", b"a")
    crash(tmp_path, "BB1", b"ghost", after="claim")
    with serai.MultiQueue(tmp_path) as queue:
        reader = queue.reader(16)
        assert reader.next() is None
        with producer(tmp_path, "BB1") as back:
            back.writer()
        message = reader.next()
        assert message is not None
        assert (message.producer, message.payload) == ("BB1", b"ghost")


# ------------------------------------------------------------------------------------------------ making pages


@pytest.mark.parametrize("scene", ["single", "several", "compress", "expand"])
def test_process_may_die_at_any_call_of_the_system(scene: str, in_memory: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.stepping", scene, str(in_memory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    deaths = int(done.stdout)
    print(f"\n{scene}: died at {deaths} instants")
    assert deaths > {"single": 60, "several": 60, "compress": 20, "expand": 20}[scene]


def ten(folder: Path) -> Path:
    with serai.Queue(folder, page_size=64) as queue:
        queue.writer().append_many([b"%010d" % number for number in range(10)])
    return folder


@pytest.mark.parametrize("name", ["3.qx.0a1b2c3d4e5f.new", "0.qx.ffffffffffff.new", "2.qd.000000000001.new"])
def test_page_that_was_half_made_is_removed_by_the_next_writer_and_nobody_else(name: str, tmp_path: Path) -> None:
    (ten(tmp_path) / name).write_bytes(bytes(17))
    with serai.Queue(tmp_path, "r") as queue:
        assert len(list(queue.reader().payloads())) == 10
    assert verify(tmp_path).problems == []
    assert (tmp_path / name).exists()
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"next") == 160
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["2.qx", "3.qx", "1.qd", "2.qd"])
def test_page_of_length_zero_is_sized_when_the_writer_comes_to_it(name: str, tmp_path: Path) -> None:
    """What another program leaves when it dies between making a page and sizing it."""
    folder = ten(tmp_path)  # ends in 2.qx at 32 and 1.qd at 36
    if name in ("2.qx", "1.qd"):
        (folder / "2.qx").unlink()
        (folder / "1.qd").unlink()
        patch(folder / "1.qx", 32, bytes(32))  # as if it had written six
    (folder / name).write_bytes(b"")
    count = 6 if name in ("2.qx", "1.qd") else 10
    with serai.Queue(folder, "r") as queue:
        assert [int(payload) for payload in queue.reader().payloads()] == list(range(count))
    with serai.Queue(folder) as queue:
        queue.writer().append_many([b"%010d" % number for number in range(count, 30)])
        assert [int(payload) for payload in queue.reader().payloads()] == list(range(30))
    assert {len(content) for content in files_of(folder).values()} == {64}


@pytest.mark.parametrize("length", [1, 16, 48, 63])
@pytest.mark.parametrize("name", ["2.qx", "1.qd", "3.qx"])
def test_page_shorter_than_the_others_is_named_and_left_alone(name: str, length: int, tmp_path: Path) -> None:
    write_files(ten(tmp_path), {name: bytes(length)})
    before = files_of(tmp_path)
    for mode in ("r", "rw"):
        with pytest.raises(serai.Corrupt) as raised:
            serai.Queue(tmp_path, mode)
        assert raised.value.file == str(tmp_path / name)
        assert str(length) in str(raised.value)
    assert files_of(tmp_path) == before
    assert [problem.file for problem in verify(tmp_path).problems if problem.kind == "length"] == [str(tmp_path / name)]


def test_page_that_shrinks_under_an_open_queue_is_no_page(tmp_path: Path) -> None:
    """A queue that is open already looks at the length of each page before it maps it."""
    with serai.Queue(ten(tmp_path)) as queue:
        (tmp_path / "1.qd").write_bytes(bytes(40))
        reader, found, errors = queue.reader(), 0, 0
        for _ in range(10):
            try:
                found += reader.next() is not None
            except serai.Corrupt:
                errors += 1
        assert found == 6
        assert errors == 4


def test_state_file_of_length_zero_is_that_of_a_new_producer(tmp_path: Path) -> None:
    write(tmp_path, "AA0", b"a")
    (tmp_path / "BB1.qm").write_bytes(b"")
    assert read_all(tmp_path) == ({0: ("AA0", b"a")}, [])
    assert write(tmp_path, "BB1", b"b") == 16
    assert read_all(tmp_path) == ({0: ("AA0", b"a"), 16: ("BB1", b"b")}, [])
    assert (tmp_path / "BB1.qm").stat().st_size == 32
