"""serai against the slow oracle and against plain lists, on random work.

- The same operations give the same bytes on disk, whatever the page size, dialect and way of writing.
- Each reads what the other wrote, field by field.
- A reader behaves like a list with a cursor, however its calls are mixed.
- Producers that come and go leave what the oracle's producers leave.
"""

from __future__ import annotations

import struct
import tempfile
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import serai
from tests.helpers import assert_same_files, files_of, pack_fields, plain, unpack_fields, unplain
from tests.oracle.quickqueue import (
    OracleProducer,
    OracleReader,
    OracleWriter,
    Stream,
    decode_all,
    encode,
    encode_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_SIZES = st.sampled_from([16, 32, 64, 256, 4096])
DIALECTS = st.sampled_from(["seed", "java"])
CHECKSUMS = st.sampled_from([None, "index24"])

# ------------------------------------------------------------------------------------------------ what is drawn


def signed(bits: int) -> st.SearchStrategy[int]:
    edge = 1 << (bits - 1)
    return st.sampled_from([-edge, 1 - edge, -1, 0, 1, edge - 1]) | st.integers(-edge, edge - 1)


def quiet(bits: bytes) -> bytes:
    """A signalling NaN becomes quiet on its way through a wider float, in C as in Python; every other value stays."""
    nan = bits[0] & 0x7F == 0x7F and bits[1] & 0x80 and any(bits[2:] + bytes([bits[1] & 0x7F]))
    return bits[:1] + bytes([bits[1] | 0x40]) + bits[2:] if nan else bits


EDGES = st.integers(0, 2100).flatmap(
    lambda bits: st.sampled_from([1 << bits, (1 << bits) - 1, -1 << bits, ~(1 << bits)])
)
INTEGERS = st.integers() | EDGES
SCALES = st.sampled_from([-(2**31), -129, -128, -1, 0, 1, 127, 128, 2**31 - 1]) | st.integers(-200, 200) | signed(32)
FLOATS = st.sampled_from(["7fc00001", "ffffffff", "7f800000", "80000000", "00000001", "7f7fffff"]).map(bytes.fromhex)
DOUBLES = st.sampled_from(["7ff8000000000001", "7ff0000000000001", "fff0000000000000", "8000000000000000"])
ANY_CHARACTER = st.characters(exclude_categories=(), exclude_characters="\0")  # lone surrogates too
WHOLE_CHARACTER = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": signed(8),
    "boolean": st.booleans(),
    "short": signed(16),
    "char": st.sampled_from([0, 1, 0xD800, 0xDFFF, 0xFFFF]) | st.integers(0, 0xFFFF),
    "int": signed(32),
    "long": signed(64),
    "float": FLOATS | st.binary(min_size=4, max_size=4).map(quiet),
    "double": DOUBLES.map(bytes.fromhex) | st.binary(min_size=8, max_size=8),
    "string": st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=40),
    "unicode": st.text(ANY_CHARACTER, max_size=20).map(lambda text: plain("unicode", text)),
    "decimal": st.tuples(INTEGERS, SCALES),
    "big_integer": INTEGERS,
    "sized_bytes": st.binary(max_size=40),
    "bytes": st.binary(max_size=70),
}
KINDS = sorted(VALUES)
MIDDLE = [kind for kind in KINDS if kind != "bytes"]  # a template takes raw bytes only at the end

FIELDS = st.lists(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])), max_size=6)
PAYLOADS = st.lists(st.binary(max_size=70), max_size=9)
TEMPLATE_KINDS = st.builds(
    lambda kinds, last: (*kinds, *last),
    st.lists(st.sampled_from(MIDDLE), min_size=1, max_size=4),
    st.sampled_from([(), ("bytes",)]),
)
ROWS = TEMPLATE_KINDS.flatmap(
    lambda kinds: st.tuples(st.just(kinds), st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=4))
)

# What a column can hold of each kind: Arrow text is UTF-8, so no lone surrogates; a column has one scale.
SCALE = 5
ARROW_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), VALUES["byte"]),
    "boolean": (pa.bool_(), VALUES["boolean"]),
    "short": (pa.int16(), VALUES["short"]),
    "char": (pa.uint16(), VALUES["char"]),
    "int": (pa.int32(), VALUES["int"]),
    "long": (pa.int64(), VALUES["long"]),
    "float": (pa.float32(), VALUES["float"]),
    "double": (pa.float64(), VALUES["double"]),
    "string": (pa.string(), VALUES["string"]),
    "unicode": (pa.large_string(), st.text(WHOLE_CHARACTER, max_size=20)),
    "decimal": (pa.decimal128(38, SCALE), st.integers(1 - 10**38, 10**38 - 1).map(lambda number: (number, SCALE))),
    "big_integer": (pa.int64(), VALUES["long"]),
    "sized_bytes": (pa.large_binary(), VALUES["sized_bytes"]),
    "bytes": (pa.binary(), VALUES["bytes"]),
}
COLUMNS = TEMPLATE_KINDS.flatmap(
    lambda kinds: st.tuples(
        st.just(kinds), st.lists(st.tuples(*(ARROW_KINDS[kind][1] for kind in kinds)), min_size=1, max_size=5)
    )
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), FIELDS),
        st.tuples(st.just("discard"), FIELDS),
        st.tuples(st.just("append"), st.binary(max_size=70)),
        st.tuples(st.just("append_many"), PAYLOADS),
        st.tuples(st.just("extend_arrow"), PAYLOADS),
        st.tuples(st.just("template"), ROWS),
        st.tuples(st.just("template_many"), ROWS),
        st.tuples(st.just("template_arrow"), COLUMNS),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=12,
)


@contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """Two empty directories; tmp_path would be shared by all examples."""
    with tempfile.TemporaryDirectory(prefix="serai-") as name:
        yield Path(name, "serai"), Path(name, "oracle")


# ------------------------------------------------------------------------------------------------ writing


class Pair:
    """Does every operation twice and remembers what a reader must see."""

    def __init__(self, ours: Path, theirs: Path, page_size: int, dialect: str, checksum: str | None) -> None:
        self.ours, self.theirs, self.page_size, self.dialect, self.checksum = ours, theirs, page_size, dialect, checksum
        self.written: list[tuple[int, bytes, list[tuple[str, Any]]]] = []  # offset, payload, fields
        self.exact = True  # until something is discarded, whose bytes may differ
        self.open()

    def open(self) -> None:
        self.queue = serai.Queue(self.ours, page_size=self.page_size, dialect=self.dialect, checksum=self.checksum)
        self.writer = self.queue.writer()
        self.oracle = OracleWriter(self.theirs, self.page_size, self.dialect, self.checksum)

    def do(self, name: str, argument: Any) -> None:
        assert self.writer.offset == self.oracle.offset
        getattr(self, f"do_{name}")(argument)

    def expect(self, offset: int, fields: list[tuple[str, Any]]) -> None:
        """Write to the oracle what serai wrote at `offset`."""
        payload = encode_all([(kind, unplain(kind, value)) for kind, value in fields], self.dialect)
        assert self.oracle.append(payload) == offset
        self.written.append((offset, payload, fields))

    def do_message(self, fields: list[tuple[str, Any]]) -> None:
        self.expect(pack_fields(self.writer, fields).write_message(), fields)

    def do_discard(self, fields: list[tuple[str, Any]]) -> None:
        pack_fields(self.writer, fields).discard()
        self.exact = self.exact and not fields

    def do_append(self, payload: bytes) -> None:
        self.expect(self.writer.append(payload), [("bytes", payload)])

    def run(self, last: int, messages: list[list[tuple[str, Any]]]) -> None:
        """A whole run was written, ending at `last`."""
        first = self.oracle.offset
        assert last == (first + 16 * (len(messages) - 1) if messages else -1)
        for number, fields in enumerate(messages):
            self.expect(first + 16 * number, fields)

    def do_append_many(self, payloads: list[bytes]) -> None:
        self.run(self.writer.append_many(payloads), [[("bytes", payload)] for payload in payloads])

    def do_extend_arrow(self, payloads: list[bytes]) -> None:
        column = pa.array([b"before", *payloads], pa.binary())[1:]  # a slice, so its offsets do not begin at zero
        self.run(self.writer.extend_arrow(column), [[("bytes", payload)] for payload in payloads])

    def do_template(self, drawn: tuple[tuple[str, ...], list[tuple[Any, ...]]]) -> None:
        kinds, rows = drawn
        template = self.writer.template(*kinds)
        for row in rows:
            fields = list(zip(kinds, row, strict=True))
            self.expect(template.append(tuple(unplain(kind, value) for kind, value in fields)), fields)

    def do_template_many(self, drawn: tuple[tuple[str, ...], list[tuple[Any, ...]]]) -> None:
        kinds, rows = drawn
        fields = [list(zip(kinds, row, strict=True)) for row in rows]
        last = self.writer.template(*kinds).append_many([tuple(unplain(*pair) for pair in row) for row in fields])
        self.run(last, fields)

    def do_template_arrow(self, drawn: tuple[tuple[str, ...], list[tuple[Any, ...]]]) -> None:
        """The first row is sliced away again, so that no column begins at its buffer's begin."""
        kinds, rows = drawn
        columns = [
            pa.array([arrow_value(kind, row[i]) for row in (rows[0], *rows)], ARROW_KINDS[kind][0])
            for i, kind in enumerate(kinds)
        ]
        table = pa.record_batch(columns, [str(i) for i in range(len(kinds))]).slice(1)
        fields = [list(zip(kinds, row, strict=True)) for row in rows]
        self.run(self.writer.template(*kinds).extend_arrow(table), fields)

    def do_reopen(self, _: None) -> None:
        self.queue.close()
        self.open()


def arrow_value(kind: str, value: Any) -> Any:
    return Decimal(f"{value[0]}E-{value[1]}") if kind == "decimal" else unplain(kind, value)


def readable(fields: list[tuple[str, Any]], dialect: str) -> bool:
    """Raw bytes in the middle need their length; a long decimal of `java` can be read at the end only."""
    return dialect == "seed" or not any(
        kind == "decimal" and encode(kind, value, "java")[0] == 2 for kind, value in fields[:-1]
    )


@settings(max_examples=150, deadline=None)
@given(page_size=PAGE_SIZES, dialect=DIALECTS, checksum=CHECKSUMS, operations=OPERATIONS)
def test_same_operations_give_the_same_files(
    page_size: int, dialect: str, checksum: str | None, operations: list[tuple[str, Any]]
) -> None:
    with folders() as (ours, theirs):
        pair = Pair(ours, theirs, page_size, dialect, checksum)
        for name, argument in operations:
            pair.do(name, argument)
        pair.queue.close()
        found, expected = files_of(ours), files_of(theirs)
        if not pair.written:  # serai's lock needs an index page to stand on, so a writer that wrote nothing made one
            expected["0.qx"] = bytes(page_size)
        if not pair.exact:  # compare the index and what it points to
            end = pair.oracle.cursor
            assert Stream(ours, ".qd", page_size).get(0, end) == Stream(theirs, ".qd", page_size).get(0, end)
            found, expected = index_files(found), index_files(expected)
        assert_same_files(found, expected)
        check_reading(pair)


def index_files(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(".qx")}


def check_reading(pair: Pair) -> None:
    """Each side reads what the other wrote."""
    with serai.Queue(pair.theirs, "r", dialect=pair.dialect, checksum=pair.checksum) as queue:
        reader = queue.reader()
        for offset, payload, fields in pair.written:
            message = reader.next()
            assert message is not None
            assert (message.offset, message.payload) == (offset, payload)
            if readable(fields, pair.dialect):
                assert unpack_fields(message, fields) == fields
        assert reader.next() is None
    if pair.written:
        entries = list(OracleReader(pair.ours, pair.dialect))
        assert [(entry.offset, entry.payload) for entry in entries] == [(o, p) for o, p, _ in pair.written]


@settings(max_examples=60, deadline=None)
@given(page_size=PAGE_SIZES, dialect=DIALECTS, drawn=ROWS)
def test_rows_and_unpack_return_what_the_template_took(
    page_size: int, dialect: str, drawn: tuple[tuple[str, ...], list[tuple[Any, ...]]]
) -> None:
    kinds, rows = drawn
    rows = [row for row in rows if readable(list(zip(kinds, row, strict=True)), dialect)]
    with folders() as (ours, _), serai.Queue(ours, page_size=page_size, dialect=dialect) as queue:
        queue.writer().template(*kinds).append_many(
            [tuple(unplain(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]
        )
        payloads = list(queue.reader().payloads())
        decoded = [[plain(*pair) for pair in zip(kinds, decode_all(p, kinds, dialect), strict=True)] for p in payloads]
        assert decoded == [list(row) for row in rows]
        found = [[plain(*pair) for pair in zip(kinds, row, strict=True)] for row in queue.reader().rows(*kinds)]
        assert found == decoded
        unpacked = [
            [plain(*pair) for pair in zip(kinds, message.unpack(*kinds), strict=True)] for message in queue.reader()
        ]
        assert unpacked == decoded


# ------------------------------------------------------------------------------------------------ reading

READS = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.none()),
        st.tuples(st.just("set_offset"), st.integers(-2, 45)),
        st.tuples(st.just("read_batch"), st.sampled_from([1, 20, 100, 1000, 1 << 20])),
        st.tuples(st.just("skip"), st.integers(0, 12)),
        st.tuples(st.just("iterate"), st.integers(1, 5)),
        st.tuples(st.just("payloads"), st.integers(1, 5)),
        st.tuples(st.just("rows"), st.integers(1, 5)),
        st.tuples(st.just("append"), PAYLOADS),
    ),
    max_size=25,
)


def payload_of(message: serai.Message | None) -> list[bytes]:
    return [] if message is None else [message.payload]


class ListReader:
    """A reader as a list and a cursor, doing each call on both."""

    def __init__(self, queue: serai.Queue | serai.MultiQueue) -> None:
        self.queue, self.reader = queue, queue.reader()
        self.messages: list[bytes] = []
        self.at = 0

    def do(self, name: str, argument: Any) -> None:
        getattr(self, f"do_{name}")(argument)
        assert self.reader.offset == 16 * self.at

    def take(self, count: int) -> list[bytes]:
        taken = self.messages[self.at : self.at + count]
        self.at += len(taken)
        return taken

    def check(self, message: serai.Message | None) -> None:
        number, taken = self.at, self.take(1)
        assert payload_of(message) == taken
        assert message is None or message.offset == 16 * number

    def do_append(self, payloads: list[bytes]) -> None:
        self.queue.writer().append_many(payloads)
        self.messages += payloads

    def do_next(self, _: None) -> None:
        self.check(self.reader.next())

    def do_set_offset(self, number: int) -> None:
        message = self.reader.set_offset(16 * number)
        if number < 0:
            assert message is None  # and the reader stays where it was
        elif number > len(self.messages):
            assert message is None  # it would wait there; go back to where the model can follow
            self.reader.set_offset(16 * self.at)
            self.at += self.at < len(self.messages)
        else:
            self.at = number
            self.check(message)

    def do_read_batch(self, max_bytes: int) -> None:
        first, batch = self.at, self.reader.read_batch(max_bytes)
        expected = self.take(len(batch))
        assert bool(expected) == (first < len(self.messages))
        assert batch.to_list() == [bytes(view) for view in batch] == expected
        assert [bytes(batch[i]) for i in range(len(batch))] == expected
        assert batch.nbytes == len(b"".join(expected))
        assert batch.nbytes <= max_bytes or len(batch) == 1
        if expected:
            assert bytes(batch.data) == b"".join(expected)
            assert batch.first_offset == 16 * first
        assert list(batch.offsets) == [16 * (first + i) for i in range(len(expected))]
        columns = pa.record_batch(batch)
        assert columns.to_pydict() == {"offset": list(batch.offsets), "value": expected}

    def do_skip(self, count: int) -> None:
        assert self.reader.skip(count) == len(self.take(count))

    def do_iterate(self, count: int) -> None:
        self.compare(count, (message.payload for message in self.reader))

    def do_payloads(self, count: int) -> None:
        self.compare(count, iter(self.reader.payloads()))

    def do_rows(self, count: int) -> None:
        self.compare(count, (row[0] for row in self.reader.rows("bytes")))

    def compare(self, count: int, found: Iterator[bytes]) -> None:
        """Take `count` of an iterator and leave it; None stands for its end."""
        taken = [next(found, None) for _ in range(count)]
        expected: list[bytes | None] = [*self.take(count)]
        assert taken == expected + [None] * (count - len(expected))


def open_kind(kind: str, folder: Path, page_size: int) -> serai.Queue | serai.MultiQueue:
    """Plain queues, checked ones and those of several producers take different ways through a batch."""
    if kind == "multi":
        return serai.MultiQueue(folder, name="AA0", page_size=page_size)
    return serai.Queue(folder, page_size=page_size, checksum="index24" if kind == "summed" else None)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["plain", "summed", "multi"]),
    page_size=PAGE_SIZES,
    payloads=st.lists(st.binary(max_size=70), max_size=40),
    operations=READS,
)
def test_reader_is_a_list_with_a_cursor(
    kind: str, page_size: int, payloads: list[bytes], operations: list[tuple[str, Any]]
) -> None:
    with folders() as (ours, _), open_kind(kind, ours, page_size) as queue:
        model = ListReader(queue)
        model.do_append(payloads)
        for name, argument in operations:
            model.do(name, argument)
        last = queue.last()
        assert payload_of(last) == model.messages[-1:]


# ------------------------------------------------------------------------------------------------ producers

MULTI = st.lists(
    st.tuples(st.sampled_from(["AA0", "b1c", "zZ9"]), PAYLOADS, st.sampled_from(["one", "many", "reopen"])),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(page_size=PAGE_SIZES, dialect=DIALECTS, operations=MULTI)
def test_producers_leave_what_the_oracles_producers_leave(
    page_size: int, dialect: str, operations: list[tuple[str, list[bytes], str]]
) -> None:
    with folders() as (ours, theirs):
        queues: dict[str, serai.MultiQueue] = {}
        oracles: dict[str, OracleProducer] = {}
        expected: list[tuple[str, bytes]] = []
        for name, payloads, way in operations:
            if way == "reopen" or name not in queues:
                if name in queues:
                    queues[name].close()
                queues[name] = serai.MultiQueue(ours, name=name, page_size=page_size, dialect=dialect)
                oracles[name] = OracleProducer(theirs, name, page_size, dialect)
            writer = queues[name].writer()
            if way == "many":
                last = writer.append_many(payloads)
                assert last == ([oracles[name].append(payload) for payload in payloads] or [-1])[-1]
            else:
                assert [writer.append(p) for p in payloads] == [oracles[name].append(p) for p in payloads]
            expected += [(name, payload) for payload in payloads]
        for queue in queues.values():
            queue.close()
        compare_multi(ours, theirs)
        if expected:
            with serai.MultiQueue(theirs, dialect=dialect) as queue:
                assert [(m.producer, m.payload) for m in queue.reader()] == expected


def compare_multi(ours: Path, theirs: Path) -> None:
    """All files; which of the two ends is the older one is open after a reopening with equal ends."""
    found, expected = files_of(ours), files_of(theirs)
    for files in (found, expected):
        for name in [name for name in files if name.endswith(".qm")]:
            end_a, end_b, *rest = struct.unpack("=4q", files[name])
            files[name] = struct.pack("=4q", min(end_a, end_b), max(end_a, end_b), *rest)
    assert_same_files(found, expected)
