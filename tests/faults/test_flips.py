"""A flipped bit in what lives is found, named, never delivered, and stays where it is.

A queue of 1 MB with 24-bit checksums; one random bit of its data or its index is turned around, everything is looked at
in every way, and the bit is turned back.  One bit cannot make a checksum pass, with two exceptions that are none: it
may turn a checksum with a single bit into zero, which says "no checksum", and the body is then the right one.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from serai.log.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGE = 1 << 16
ENTRY = struct.Struct("<qi3sB")
READS = ("next", "batch", "payloads", "rows", "small batches")


@dataclass
class Sample:
    folder: Path
    bodies: list[bytes]
    begins: list[int]
    queue: serai.Queue

    @property
    def end(self) -> int:
        return self.begins[-1] + len(self.bodies[-1])


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    folder, dice = tmp_path_factory.mktemp("flips"), Random(24)
    bodies = [dice.randbytes(dice.choice((1, 40, 100, 100, 500, 500, 1500, 3000))) for _ in range(1450)]
    bodies[700:700] = [dice.randbytes(PAGE + 100), b"", b""]
    with serai.Queue(folder, page_size=PAGE, checksum="index24") as queue:
        writer = queue.writer()
        writer.append_many(bodies[:900])
        for body in bodies[900:]:
            writer.new_message().pack_bytes(body[:7]).pack_bytes(body[7:]).write_message()
    begins = [sum(map(len, bodies[:i])) for i in range(len(bodies))]
    with serai.Queue(folder, "r", checksum="index24") as queue:
        yield Sample(folder, bodies, begins, queue)


def flip(path: Path, position: int, bit: int) -> None:
    fd = os.open(path, os.O_RDWR)
    byte = os.pread(fd, 1, position)[0]
    os.pwrite(fd, bytes([byte ^ 1 << bit]), position)
    os.close(fd)


# ------------------------------------------------------------------------------------------------ reading


def read(queue: serai.Queue, way: str) -> tuple[list[tuple[int, bytes]], list[tuple[int, serai.Corrupt]]]:
    """Everything that is delivered, with its offset, and every error, with the offset of the entry it is about."""
    reader = queue.reader(0)
    found: list[tuple[int, bytes]] = []
    errors: list[tuple[int, serai.Corrupt]] = []
    for _ in range(3000):
        try:
            found += WAYS[way](reader)
            break
        except Said as said:
            found += said.before
            errors.append((reader.offset - 16, said.error))
    assert reader.next() is None
    return found, errors


class Said(Exception):
    def __init__(self, before: list[tuple[int, bytes]], error: serai.Corrupt) -> None:
        super().__init__(str(error))
        self.before = before
        self.error = error


def kept(
    step: Callable[[serai.Reader], Iterator[tuple[int, bytes]]],
) -> Callable[[serai.Reader], list[tuple[int, bytes]]]:
    """What came before an error is kept."""

    def collect(reader: serai.Reader) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        try:
            for pair in step(reader):
                found.append(pair)  # noqa: PERF402 - what came before an error counts
        except serai.Corrupt as error:
            raise Said(found, error) from None
        return found

    return collect


def batches(reader: serai.Reader, most: int) -> Iterator[tuple[int, bytes]]:
    while len(batch := reader.read_batch(most)):
        yield from zip(batch.offsets, batch.to_list(), strict=True)


WAYS: dict[str, Callable[[serai.Reader], list[tuple[int, bytes]]]] = {
    "next": kept(lambda reader: ((m.offset, m.payload) for m in reader)),
    "batch": kept(lambda reader: batches(reader, 1 << 20)),
    "small batches": kept(lambda reader: batches(reader, 700)),
    "payloads": kept(lambda reader: ((reader.offset - 16, payload) for payload in reader.payloads())),
    "rows": kept(lambda reader: ((reader.offset - 16, row[0]) for row in reader.rows("bytes"))),
}


def assert_found(sample: Sample, number: int, place: str, *, ways: tuple[str, ...]) -> None:
    """Message `number` is damaged: it alone is named, and all others are delivered as they were written."""
    whole = [(16 * i, body) for i, body in enumerate(sample.bodies)]
    rest = whole[:number] + whole[number + 1 :]
    for way in ways:
        found, errors = read(sample.queue, way)
        assert [offset for offset, _error in errors] == [16 * number], f"{place} by {way}"
        assert found == rest, f"{place} by {way}: other messages are not as they were"
        error = errors[0][1]
        assert error.file == str(sample.folder / f"{16 * number // PAGE}.qx")
        assert error.position == 16 * number % PAGE
    problems = verify(sample.folder).problems
    assert problems, f"{place} is not found by verify"
    assert 16 * number in {problem.offset for problem in problems}, f"{place}: {problems}"
    for problem in problems:  # a begin may look wrong from the entry behind it, nothing else is in doubt
        assert problem.offset in (16 * number, 16 * number + 16), f"{place}: {problem}"
        assert problem.file == str(sample.folder / f"{problem.offset // PAGE}.qx") or problem.file.endswith(".qd")


def assert_no_checksum(sample: Sample, number: int) -> None:
    """The flip made the checksum zero: that is an entry without one, and its body is the right one."""
    found, errors = read(sample.queue, "next")
    assert errors == []
    assert found == [(16 * i, body) for i, body in enumerate(sample.bodies)]
    report = verify(sample.folder, checksum="index24")
    assert report.checksums == len(sample.bodies) - 1


def assert_sound(sample: Sample) -> None:
    report = verify(sample.folder, checksum="index24")
    assert report.problems == []
    assert (report.messages, report.checksums) == (len(sample.bodies), len(sample.bodies))
    for way in READS:
        assert read(sample.queue, way) == ([(16 * i, body) for i, body in enumerate(sample.bodies)], [])


# ------------------------------------------------------------------------------------------------ flipping


def places(sample: Sample, count: int, seed: int) -> Iterator[tuple[Path, int, int, int, str]]:
    """File, byte, bit, message and a name: half of the flips in data, a quarter in entries, a quarter in flags and sums."""
    dice = Random(seed)
    for turn in range(count):
        bit = dice.randrange(8)
        if turn % 2:
            at = dice.randrange(sample.end)
            number = bisect_right(sample.begins, at) - 1
            yield sample.folder / f"{at // PAGE}.qd", at % PAGE, bit, number, "data"
            continue
        number = dice.randrange(len(sample.bodies))
        byte = dice.randrange(16) if turn % 4 else dice.randrange(12, 16)
        part = "begin" if byte < 8 else "size" if byte < 12 else "checksum" if byte < 15 else "flag"
        yield sample.folder / f"{16 * number // PAGE}.qx", 16 * number % PAGE + byte, bit, number, part


def flips(sample: Sample, count: int, seed: int) -> Counter[str]:
    """Flip, look, flip back; how many of each kind were found."""
    seen: Counter[str] = Counter()
    for turn, (path, position, bit, number, part) in enumerate(places(sample, count, seed)):
        flip(path, position, bit)
        try:
            entry = sample.folder.joinpath(f"{16 * number // PAGE}.qx").read_bytes()[16 * number % PAGE :][:16]
            if part == "checksum" and entry[12:15] == bytes(3):
                assert_no_checksum(sample, number)
                part = "checksum made zero"
            else:
                place = f"flip {turn} (seed {seed}): bit {bit} of byte {position} of {path.name}, {part} of message {number}"
                assert_found(sample, number, place, ways=("next", READS[1 + turn // 4 % 4]))
        finally:
            flip(path, position, bit)
        seen[part] += 1
    return seen


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))])
def test_every_flipped_bit_is_found_and_named(seed: int, sample: Sample) -> None:
    count = 1000
    seen = flips(sample, count, seed)
    assert_sound(sample)
    print(f"\n{sum(seen.values())} flips found: {dict(seen)}")
    assert sum(seen.values()) == count
    assert {"data", "begin", "size", "checksum", "flag"} <= set(seen)


@pytest.mark.parametrize("number", [0, 700, 1000, 1452], ids=["first", "over two pages", "inside", "last"])
def test_every_bit_of_an_entry_is_under_its_checksum(number: int, sample: Sample) -> None:
    for position in range(16):
        for bit in range(8):
            path, at = sample.folder / f"{16 * number // PAGE}.qx", 16 * number % PAGE + position
            flip(path, at, bit)
            try:
                assert_found(sample, number, f"bit {bit} of byte {position} of entry {number}", ways=("next", "batch"))
            finally:
                flip(path, at, bit)
    assert_sound(sample)


def test_two_damaged_messages_are_two_errors(sample: Sample) -> None:
    first, second = (sample.folder / "0.qd", 100, 3), (sample.folder / "0.qd", 5000, 6)
    numbers = [bisect_right(sample.begins, at) - 1 for _path, at, _bit in (first, second)]
    for place in (first, second):
        flip(*place)
    try:
        for way in READS:
            found, errors = read(sample.queue, way)
            assert [offset for offset, _error in errors] == [16 * number for number in numbers]
            assert len(found) == len(sample.bodies) - 2
        assert [p.offset for p in verify(sample.folder).problems] == [16 * number for number in numbers]
    finally:
        for place in (first, second):
            flip(*place)


def test_skip_goes_over_damaged_bytes_and_names_a_damaged_flag(sample: Sample) -> None:
    """Skipping looks at no bodies; an entry without its flag cannot be told from the tail, but it has a checksum."""
    flip(sample.folder / "0.qd", 100, 3)
    flip(sample.folder / "0.qx", 16 * 50 + 15, 3)
    try:
        reader = sample.queue.reader(0)
        assert reader.skip(50) == 50
        with pytest.raises(serai.Corrupt, match="end flag"):
            reader.skip(10)
        assert reader.offset == 16 * 51
        assert reader.skip(10_000) == len(sample.bodies) - 51
        assert reader.next() is None
    finally:
        flip(sample.folder / "0.qd", 100, 3)
        flip(sample.folder / "0.qx", 16 * 50 + 15, 3)


def test_random_read_of_a_damaged_message_raises_each_time_and_spares_its_neighbours(sample: Sample) -> None:
    at = 40_000
    number = bisect_right(sample.begins, at) - 1
    flip(sample.folder / "0.qd", at, 0)
    try:
        reader = sample.queue.reader()
        for _ in range(2):
            with pytest.raises(serai.Corrupt):
                reader.set_offset(16 * number)
            for neighbour in (number + 1, number - 1):
                message = reader.set_offset(16 * neighbour)
                assert message is not None
                assert message.payload == sample.bodies[neighbour]
    finally:
        flip(sample.folder / "0.qd", at, 0)


def test_message_that_was_refused_stands_on_nothing(sample: Sample) -> None:
    """The view is one object that is used again: after an error it must not show bytes of the message before."""
    flip(sample.folder / "0.qd", sample.begins[10], 0)
    try:
        reader = sample.queue.reader(16 * 9)
        message = reader.next()
        assert message is not None
        with pytest.raises(serai.Corrupt):
            reader.next()
        assert (message.payload, bytes(message.view()), message.remaining, len(message)) == (b"", b"", 0, 0)
        with pytest.raises(EOFError):
            message.unpack_byte()
    finally:
        flip(sample.folder / "0.qd", sample.begins[10], 0)


def test_writer_does_not_go_on_behind_a_damaged_newest_message(sample: Sample, tmp_path: Path) -> None:
    """The newest message with a wrong checksum is what a power cut leaves; it is cut, said, and written over."""
    for name in sorted(os.listdir(sample.folder)):
        (tmp_path / name).write_bytes((sample.folder / name).read_bytes())
    at = sample.end - 1
    flip(tmp_path / f"{at // PAGE}.qd", at % PAGE, 0)
    with serai.Queue(tmp_path, checksum="index24") as queue:
        assert queue.writer().append(b"next") == 16 * (len(sample.bodies) - 1)
        assert list(queue.reader().payloads()) == [*sample.bodies[:-1], b"next"]
    assert verify(tmp_path).problems == []
