"""Every golden directory, read and written again: serai's bytes are the original's bytes.

Three vectors show what the original does wrong, and two were edited on disk to imitate a crash; each of the five has
its own test that says what is compared instead.  Counts are asserted, so that no test passes on nothing.
"""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import serai
from tests.helpers import (
    Golden,
    Vector,
    assert_same_files,
    files_of,
    load,
    pack_fields,
    patch,
    unpack_fields,
    unplain,
    vector_names,
    write_files,
)
from tests.oracle.quickqueue import Entry, OracleProducer, OracleReader, OracleWriter, decode_all, encode_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = vector_names()

EDITED = {"single_seed_torn", "multi_seed_dead_producer"}  # on disk, to imitate a crash
# The original truncates a scale below -128 to one byte.  We write its long form, as the protocol page says, so these
# two messages of single_java_decimals_long are written as raw bytes and read as what the bytes say.
TRUNCATED_SCALES = {48: (1, 127), 64: (5, 0)}
# Where the notes of a vector say that its writer left and came back: before the nth message.
REOPENED = {"single_seed_reopen64": {3, 8}, "multi_seed_reopen": {3}}


def open_queue(vector: Vector, folder: Path, mode: str = "r") -> serai.Queue | serai.MultiQueue:
    if vector.multi:
        return serai.MultiQueue(folder, mode, dialect=vector.dialect)
    return serai.Queue(folder, mode, dialect=vector.dialect)


def published(vector: Vector) -> list[Golden]:
    """The messages a reader may see: not those a crash left unfinished."""
    unfinished = {vector.expect.get("claimed_unfinished_offset"), vector.expect.get("reopen_next_offset")}
    return [message for message in vector.messages if message.offset not in unfinished]


def expected_fields(vector: Vector, message: Golden) -> list[tuple[str, object]]:
    if vector.name == "single_java_decimals_long" and message.offset in TRUNCATED_SCALES:
        return [("decimal", TRUNCATED_SCALES[message.offset])]
    return message.fields


def whole(message: Golden | serai.Message) -> tuple[int, int, int, str, bytes]:
    return message.offset, message.begin, message.size, message.producer, message.payload


def drain(reader: serai.Reader, into: list[tuple[int, int, int, str, bytes]]) -> None:
    """Read to the tail; what came before an error stays in `into`."""
    for message in reader:
        into.append(whole(message))  # noqa: PERF401 - a comprehension would lose it


def drain_for_ever(reader: serai.Reader, into: list[tuple[int, int, int, str, bytes]]) -> None:
    """A producer counts as dead when its entry is unfinished for a millisecond; ten seconds are a failure."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        drain(reader, into)


def test_every_vector_is_here() -> None:
    vectors = [load(name) for name in NAMES]
    assert [vector.name for vector in vectors] == NAMES
    assert len(NAMES) == 18
    assert sum(len(vector.messages) for vector in vectors) == 210
    assert {vector.dialect for vector in vectors} == {"seed", "java"}
    assert sum(vector.multi for vector in vectors) == 5
    assert sum(len(vector.files) for vector in vectors) == 107


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("name", sorted(set(NAMES) - EDITED))
def test_reader_returns_every_message_and_every_field(name: str, tmp_path: Path) -> None:
    vector = load(name)
    before = dict(vector.files)
    fields_seen = 0
    with open_queue(vector, vector.expand(tmp_path)) as queue, queue.reader() as reader:
        assert queue.page_size == vector.page_size
        for golden in vector.messages:
            message = reader.next()
            assert message is not None
            assert whole(message) == whole(golden)
            assert bytes(message.view()) == golden.payload
            expected = expected_fields(vector, golden)
            assert unpack_fields(message, expected) == expected
            assert message.remaining == 0
            fields_seen += len(expected)
        assert reader.next() is None
    assert fields_seen == sum(len(message.fields) for message in vector.messages) > 0
    assert files_of(tmp_path) == before  # reading writes nothing


@pytest.mark.parametrize("name", sorted(set(NAMES) - EDITED))
def test_every_way_of_reading_returns_the_same_payloads(name: str, tmp_path: Path) -> None:
    vector = load(name)
    expected = [message.payload for message in vector.messages]
    with open_queue(vector, vector.expand(tmp_path)) as queue:
        assert [message.payload for message in queue.reader()] == expected
        assert list(queue.reader().payloads()) == expected
        assert [row[0] for row in queue.reader().rows("bytes")] == expected
        for batch_bytes in (1, 100, 1 << 20):
            reader, seen = queue.reader(), []
            while len(batch := reader.read_batch(batch_bytes)):
                seen += batch.to_list()
            assert seen == expected
        for golden in vector.messages:
            message = queue.reader().set_offset(golden.offset)
            assert message is not None
            assert message.payload == golden.payload
        last = queue.last()
        assert last is not None
        assert last.offset == vector.messages[-1].offset


@pytest.mark.parametrize("name", NAMES)
def test_oracle_reads_every_message_and_every_field(name: str, tmp_path: Path) -> None:
    vector = load(name)
    reader = OracleReader(vector.expand(tmp_path), vector.dialect)
    for golden in published(vector):
        if (unfinished := reader.entry(reader.offset)) and not unfinished.published:
            reader.offset += 16
        entry = reader.next()
        assert entry == Entry(golden.offset, golden.begin, golden.size, golden.producer, 0x7F, golden.payload)
        fields = expected_fields(vector, golden)
        # Raw bytes carry no length, so the oracle decodes a message with some in the middle by encoding it.
        kinds = [kind for kind, _ in fields]
        if "bytes" not in kinds[:-1]:
            values = [unplain(kind, value) for kind, value in fields]
            decoded = decode_all(entry.payload, kinds, vector.dialect)
            assert [repr(value) for value in decoded] == [repr(value) for value in values]
        if golden.fields == fields:
            assert encode_all([(k, unplain(k, v)) for k, v in fields], vector.dialect) == golden.payload
    assert reader.next() is None


# ------------------------------------------------------------------------------------------------ writing


def with_fields(vector: Vector, writer: serai.Writer, golden: Golden) -> int:
    if expected_fields(vector, golden) != golden.fields:
        return pack_fields(writer, [("bytes", golden.payload)]).write_message()
    return pack_fields(writer, golden.fields).write_message()


def with_append(_vector: Vector, writer: serai.Writer, golden: Golden) -> int:
    return writer.append(golden.payload)


def with_append_many(_vector: Vector, writer: serai.Writer, golden: Golden) -> int:
    return writer.append_many([golden.payload])


def with_template(vector: Vector, writer: serai.Writer, golden: Golden) -> int:
    """A template has a field, and raw bytes as its last one only; the other messages go in as one `bytes` field."""
    kinds = [kind for kind, _ in golden.fields]
    if golden.fields == [] or "bytes" in kinds[:-1] or expected_fields(vector, golden) != golden.fields:
        return writer.template("bytes").append((golden.payload,))
    row = tuple(unplain(kind, value) for kind, value in golden.fields)
    return writer.template(*kinds).append(row)


WAYS = [with_fields, with_append, with_append_many, with_template]


def write_single(vector: Vector, folder: Path, way: Callable[[Vector, serai.Writer, Golden], int]) -> None:
    queue = serai.Queue(folder, "rw", page_size=vector.page_size, dialect=vector.dialect)
    for count, golden in enumerate(vector.messages):
        if count in REOPENED.get(vector.name, ()):
            queue.close()
            queue = serai.Queue(folder, "rw", dialect=vector.dialect)
        assert way(vector, queue.writer(), golden) == golden.offset
    queue.close()


def write_multi(vector: Vector, folder: Path, way: Callable[[Vector, serai.Writer, Golden], int]) -> None:
    def open_producer(name: str) -> serai.MultiQueue:
        return serai.MultiQueue(folder, "rw", name, page_size=vector.page_size, dialect=vector.dialect)

    with ExitStack() as stack:
        queues = {name: stack.enter_context(open_producer(name)) for name in vector.producers}
        for count, golden in enumerate(vector.messages):
            if count in REOPENED.get(vector.name, ()):
                queues[golden.producer].close()
                queues[golden.producer] = stack.enter_context(open_producer(golden.producer))
            assert way(vector, queues[golden.producer].writer(), golden) == golden.offset


def files_after(vector: Vector, folder: Path, way: Callable[[Vector, serai.Writer, Golden], int]) -> dict[str, bytes]:
    (write_multi if vector.multi else write_single)(vector, folder, way)
    return files_of(folder)


BYTE_FOR_BYTE = sorted(set(NAMES) - EDITED - {"multi_seed_reopen", "single_seed_discard"})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BYTE_FOR_BYTE)
def test_writer_makes_the_same_files(name: str, way: Callable[..., int], tmp_path: Path) -> None:
    vector = load(name)
    assert_same_files(files_after(vector, tmp_path / "queue", way), vector.files)


@pytest.mark.parametrize("name", [name for name in BYTE_FOR_BYTE if name.startswith("single")])
def test_one_append_many_makes_the_same_files(name: str, tmp_path: Path) -> None:
    vector = load(name)
    with serai.Queue(tmp_path, "rw", page_size=vector.page_size, dialect=vector.dialect) as queue:
        last = queue.writer().append_many([message.payload for message in vector.messages])
    assert last == vector.messages[-1].offset
    assert_same_files(files_of(tmp_path), vector.files)


@pytest.mark.parametrize("name", BYTE_FOR_BYTE)
def test_oracle_makes_the_same_files(name: str, tmp_path: Path) -> None:
    vector = load(name)
    writers: dict[str, OracleWriter | OracleProducer] = (
        {name: OracleProducer(tmp_path, name, vector.page_size, vector.dialect) for name in vector.producers}
        if vector.multi
        else {"": OracleWriter(tmp_path, vector.page_size, vector.dialect)}
    )
    for golden in vector.messages:
        fields = [(kind, unplain(kind, value)) for kind, value in golden.fields]
        if expected_fields(vector, golden) != golden.fields:
            fields = [("bytes", golden.payload)]
        assert writers[golden.producer].message(fields) == golden.offset
    assert_same_files(files_of(tmp_path), vector.files)


# ------------------------------------------------------------------------------------------------ the special five


def test_original_truncated_scales_are_written_in_the_long_form(tmp_path: Path) -> None:
    """Our own bytes for the two messages that single_java_decimals_long keeps as the original mangled them."""
    vector = load("single_java_decimals_long")
    values = [message.fields[0][1] for message in vector.messages if message.offset in TRUNCATED_SCALES]
    assert values == [(1, -129), (5, -(2**31))]
    with serai.Queue(tmp_path, dialect="java") as queue:
        for value in values:
            pack_fields(queue.writer(), [("decimal", value)]).write_message()
        messages = queue.reader()
        for value in values:
            message = messages.next()
            assert message is not None
            assert message.payload == b"\2" + struct.pack("<i", value[1]) + bytes([value[0]])
            assert unpack_fields(message, [("decimal", value)]) == [("decimal", value)]


def test_discarded_bytes_are_the_only_difference(tmp_path: Path) -> None:
    """single_seed_discard: message 1, then "gone" packed and discarded, then message 2, then "gone" left behind it."""
    vector = load("single_seed_discard")
    assert vector.files["0.qd"][8:12] == b"gone"
    with serai.Queue(tmp_path, page_size=vector.page_size) as queue:
        writer = queue.writer()
        pack_fields(writer, [("string", "discarded before anything is written")]).discard()
        assert with_fields(vector, writer, vector.messages[0]) == 0
        pack_fields(writer, [("long", 7), ("string", "gone")]).discard()
        assert with_fields(vector, writer, vector.messages[1]) == 16
        pack_fields(writer, [("bytes", b"gone")]).discard()
    found = files_of(tmp_path)
    assert sorted(found) == sorted(vector.files)
    assert found["0.qx"] == vector.files["0.qx"]
    assert found["0.qd"][:8] == vector.files["0.qd"][:8]
    assert len(found["0.qd"]) == vector.page_size


@pytest.mark.parametrize("way", WAYS)
def test_reopened_producer_overwrites_the_older_end(way: Callable[..., int], tmp_path: Path) -> None:
    """multi_seed_reopen shows the original overwriting the newer end: (0, 8).  The page's rule gives endA 8, endB 4."""
    vector = load("multi_seed_reopen")
    assert struct.unpack("<4q", vector.files["MP1.qm"]) == (0, 8, 48, 0)
    found = files_after(vector, tmp_path, way)
    ours = found.pop("MP1.qm")
    assert struct.unpack("<4q", ours) == (8, 4, 48, 0)
    assert_same_files(found, {name: content for name, content in vector.files.items() if name != "MP1.qm"})


def test_producer_continues_from_the_ends_the_original_left(tmp_path: Path) -> None:
    """Even its wrong pair has the right maximum, which is where the data goes on."""
    vector = load("multi_seed_reopen")
    with serai.MultiQueue(vector.expand(tmp_path), name="MP1") as queue:
        assert queue.writer().append(b"next") == 64
        message = queue.last()
        assert message is not None
        assert (message.begin, message.size, message.producer, message.payload) == (8, 4, "MP1", b"next")
    assert struct.unpack("<4q", files_of(tmp_path)["MP1.qm"]) == (12, 8, 64, 0)


def test_torn_entry_is_not_read_and_is_written_again(tmp_path: Path) -> None:
    vector = load("single_seed_torn")
    readable, torn = vector.messages[:5], vector.messages[5]
    assert vector.expect["readable"] == len(readable) == len(vector.messages) - 1
    with serai.Queue(vector.expand(tmp_path), "r") as queue:
        reader = queue.reader()
        assert [whole(message) for message in reader] == [whole(message) for message in readable]
        assert reader.next() is None
    with serai.Queue(tmp_path) as queue:
        assert with_fields(vector, queue.writer(), torn) == vector.expect["reopen_next_offset"] == 80
        message = queue.last()
        assert message is not None
        assert message.begin == vector.expect["reopen_next_begin"] == 35
        assert unpack_fields(message, torn.fields) == torn.fields


def test_torn_directory_is_ours_with_the_flag_and_size_cut_off(tmp_path: Path) -> None:
    vector = load("single_seed_torn")
    write_single(vector, tmp_path, with_fields)
    found = files_of(tmp_path)
    assert found["1.qx"][16:32] == struct.pack("<qi", 35, 10) + b"\0\0\0\x7f"
    patch(tmp_path / "1.qx", 24, bytes(8))
    assert_same_files(files_of(tmp_path), vector.files)


def dead_producer(tmp_path: Path) -> tuple[Vector, Golden]:
    vector = load("multi_seed_dead_producer")
    unfinished = next(m for m in vector.messages if m.offset == vector.expect["claimed_unfinished_offset"])
    assert (len(vector.messages), unfinished.offset, unfinished.producer) == (7, 64, "MP2")
    vector.expand(tmp_path)
    return vector, unfinished


def test_dead_producer_is_raised_once_and_its_entry_skipped(tmp_path: Path) -> None:
    vector, unfinished = dead_producer(tmp_path)
    seen: list[tuple[int, int, int, str, bytes]] = []
    with serai.MultiQueue(tmp_path) as queue:
        reader = queue.reader()
        with pytest.raises(serai.DeadProducer) as raised:
            drain_for_ever(reader, seen)
        assert (raised.value.offset, raised.value.producer) == (unfinished.offset, unfinished.producer)
        assert [offset for offset, *_ in seen] == [0, 16, 32, 48]
        drain(reader, seen)
        assert reader.next() is None
    assert seen == [whole(message) for message in published(vector)]
    assert len(seen) == 6


def test_dead_producer_finishes_its_entry_when_it_comes_back(tmp_path: Path) -> None:
    vector, unfinished = dead_producer(tmp_path)
    early: list[tuple[int, int, int, str, bytes]] = []
    late: list[tuple[int, int, int, str, bytes]] = []
    with serai.MultiQueue(tmp_path) as watched, watched.reader() as passed:
        with pytest.raises(serai.DeadProducer):
            drain_for_ever(passed, early)
        drain(passed, early)
        with serai.MultiQueue(tmp_path, name="MP2") as queue:
            writer = queue.writer()
            drain(queue.reader(), late)
            assert late == [whole(message) for message in vector.messages]
            assert writer.append(b"again") == 112
        drain(passed, early)
    assert [offset for offset, *_ in early] == [0, 16, 32, 48, 80, 96, 112]  # who skipped it never sees it
    assert early[-1] == (112, 7, 5, "MP2", b"again")
    finished = vector.expect["after_producer_restart"]
    assert (unfinished.begin, unfinished.size) == (finished["begin"], finished["length"])
    assert unfinished.payload.hex() == finished["payload_hex"]


def test_dead_producer_directory_is_ours_with_begin_and_flag_cut_off(tmp_path: Path) -> None:
    """Whoever edited MP2.qm put the only end into endA; the original and we begin with endB.  The pair is the same."""
    vector = load("multi_seed_dead_producer")
    write_multi(vector, tmp_path, with_fields)
    patch(tmp_path / "0.qx", 64, bytes(8))
    patch(tmp_path / "0.qx", 64 + 15, b"\0")
    found, expected = files_of(tmp_path), dict(vector.files)
    ours, theirs = struct.unpack("<4q", found.pop("MP2.qm")), struct.unpack("<4q", expected.pop("MP2.qm"))
    assert (sorted(ours[:2]), ours[2:]) == (sorted(theirs[:2]), theirs[2:]) == ([0, 7], (64, 0))
    assert_same_files(found, expected)


def test_oracle_finishes_the_dead_producers_entry_as_serai_does(tmp_path: Path) -> None:
    vector, _ = dead_producer(tmp_path / "oracle")
    write_files(tmp_path / "serai", vector.files)
    OracleProducer(tmp_path / "oracle", "MP2", vector.page_size).append(b"again")
    with serai.MultiQueue(tmp_path / "serai", name="MP2") as queue:
        queue.writer().append(b"again")
    assert_same_files(files_of(tmp_path / "serai"), files_of(tmp_path / "oracle"))
