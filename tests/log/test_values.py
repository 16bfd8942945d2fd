"""Every kind of value: its limits, what lies one beyond, how it reads back, and what a refusal leaves behind.

The bytes are compared with the oracle's at pages of 16 bytes, where every value straddles pages, and at roomy ones.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc
from array import array
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pytest

import serai
from tests.helpers import BAD_VALUE, pack, pack_fields, plain, unpack_fields, unplain, unscaled
from tests.oracle.quickqueue import decode_all, encode, encode_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def bit_patterns(width: int, text: str) -> list[bytes]:
    raw = bytes.fromhex(text)
    return [raw[i : i + width] for i in range(0, len(raw), width)]


DIGITS = 10**6000 - 1  # more than Python converts between int and str
LIMITS: dict[str, list[Any]] = {
    "byte": [-128, -1, 0, 1, 127],
    "boolean": [True, False],
    "short": [-(2**15), -1, 0, 2**15 - 1],
    "char": [0, 1, 65, 0x80, 0x7FFF, 0x8000, 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xFFFE, 0xFFFF],
    "int": [-(2**31), -1, 0, 2**31 - 1],
    "long": [-(2**63), -1, 0, 2**63 - 1],
    "float": bit_patterns(4, "00000000 80000000 00000001 7f7fffff 7f800000 ff800000 7fc00123 ffc00000"),
    "double": bit_patterns(8, "0000000000000000 8000000000000000 0000000000000001 7fefffffffffffff")
    + bit_patterns(8, "7ff0000000000000 fff0000000000000 7ff8000000000123 7ff0000000000001 ffffffffffffffff"),
    "string": ["", "a", "\x01\x7f", "".join(map(chr, range(1, 128))), "x" * 1000],
    "unicode": [
        "", "a", "é", "ÿ", "Ā", "日本語", "🚀", "a🚀é", "\ud800", "\udfff", "\udfff\ud800", "\ud83d", "x\udc00日",
        "\U0010ffff", "\uffff", "日" * 1000,
    ],
    "decimal": [
        (0, 0), (0, 127), (0, 128), (0, -128), (0, -129), (0, 2**31 - 1), (0, -(2**31)), (1, 2**31 - 1), (-1, -(2**31)),
        (127, 2), (128, 2), (-128, 2), (-129, 2), (255, 0), (256, 0), (2**63 - 1, 1), (-(2**63), 1), (2**63, 1),
        (2**1015 - 1, 127), (2**1015, 127), (-(2**1015), 127), (-(2**1015) - 1, 127), (10**28, -5), (DIGITS, 3),
        (-DIGITS, 2**31 - 1),
    ],
    "big_integer": [
        0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), -(2**63) - 1, 2**2000, -(2**2000), DIGITS,
    ],
    "sized_bytes": [b"", b"\0", bytes(range(256)), bytes(1000)],
    "bytes": [b"", b"\0", bytes(range(256)), bytes(1000)],
}  # fmt: skip
BEYOND: dict[str, list[Any]] = {
    "byte": [128, -129, 2**64, "1", None, 1.5],
    "boolean": [],
    "short": [2**15, -(2**15) - 1, 2**64, "1", None, 1.5],
    "char": [-1, 0x10000, 2**64, "", "ab", "🚀", None, 1.5, b"a"],
    "int": [2**31, -(2**31) - 1, 2**64, "1", None, 1.5],
    "long": [2**63, -(2**63) - 1, 2**200, "1", None, 1.5],
    "float": ["1", None, 10**400, 1e39, -1e39],
    "double": ["1", None, 10**400],
    "string": ["é", "a\x80", "日本", "a🚀", b"bytes", None, 5],
    "unicode": [b"bytes", None, 5],
    "decimal": [
        Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("-Infinity"), Decimal("1E+2147483649"),
        Decimal("1E-2147483648"), 1.5, "1", None, (1, 2**31), (1, -(2**31) - 1), (1.5, 1), (1, None), (1, 2, 3),
    ],
    "big_integer": [1.5, "1", None, Decimal(1)],
    "bytes": ["text", None, 5, [1, 2]],
    "sized_bytes": ["text", None, 5, [1, 2]],
}  # fmt: skip
KINDS = sorted(LIMITS)


@pytest.fixture(params=[16, 4096], ids=lambda size: f"pages of {size}")
def page_size(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


@pytest.fixture(params=["seed", "java"])
def queue(request: pytest.FixtureRequest, page_size: int, tmp_path: Path) -> Iterator[serai.Queue]:
    with serai.Queue(tmp_path, page_size=page_size, dialect=request.param) as queue:
        yield queue


@pytest.fixture
def simple(tmp_path: Path) -> Iterator[serai.Queue]:
    """Where neither pages nor dialect matter."""
    with serai.Queue(tmp_path, page_size=1 << 16) as queue:
        yield queue


def only(queue: serai.Queue) -> serai.Message:
    """The newest message, which must be readable."""
    message = queue.last()
    assert message is not None
    return message


# ------------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize("kind", KINDS)
def test_limits_are_packed_as_the_format_says_and_come_back(kind: str, queue: serai.Queue) -> None:
    writer = queue.writer()
    for number, value in enumerate(LIMITS[kind]):
        value = plain(kind, value)
        assert pack_fields(writer, [(kind, value)]).write_message() == 16 * number
        message = only(queue)
        assert message.payload == encode(kind, unplain(kind, value), queue.dialect)
        assert unpack_fields(message, [(kind, value)]) == [(kind, value)]
        assert message.remaining == 0
        message.position = 0
        assert plain(kind, message.unpack(kind)[0]) == value
    assert only(queue).offset == 16 * (len(LIMITS[kind]) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_template_packs_and_reads_the_limits_alike(kind: str, queue: serai.Queue) -> None:
    values = [plain(kind, value) for value in LIMITS[kind]]
    template = queue.writer().template(kind)
    assert template.kinds == (kind,)
    assert template.append((unplain(kind, values[0]),)) == 0
    assert template.append_many([[unplain(kind, value)] for value in values[1:]]) == 16 * (len(values) - 1)
    assert list(queue.reader().payloads()) == [encode(kind, unplain(kind, v), queue.dialect) for v in values]
    assert [plain(kind, row[0]) for row in queue.reader().rows(kind)] == values


def test_all_kinds_of_one_message_come_back(queue: serai.Queue) -> None:
    fields = [(kind, plain(kind, value)) for kind in KINDS for value in LIMITS[kind]]
    if queue.dialect == "java":  # its long decimals are readable at the end only
        fields = [(kind, value) for kind, value in fields if kind != "decimal" or encode(kind, value, "java")[0] == 1]
    pack_fields(queue.writer(), fields).write_message()
    message = only(queue)
    assert message.payload == encode_all([(kind, unplain(kind, value)) for kind, value in fields], queue.dialect)
    assert unpack_fields(message, fields) == fields
    assert message.remaining == 0


CASES = [(kind, value) for kind in KINDS for value in BEYOND[kind]]


@pytest.mark.parametrize(("kind", "value"), CASES, ids=lambda case: str(case)[:20])
def test_value_beyond_the_limits_is_refused_and_the_queue_goes_on(kind: str, value: Any, queue: serai.Queue) -> None:
    writer = queue.writer()
    call: Callable[[Any], object] = getattr(writer, f"pack_{kind}")
    writer.append(b"before")
    writer.new_message().pack_string("earlier value")
    with pytest.raises(BAD_VALUE):
        call(value)
    writer.discard()
    with pytest.raises(BAD_VALUE):
        writer.template("int", kind).append((1, value))
    with pytest.raises(BAD_VALUE) as raised:
        writer.template("int", kind).append_many([(1, value)])
    assert "0 " in raised.value.__notes__[0]
    assert writer.new_message().pack_int(7).write_message() == 16
    assert list(queue.reader().payloads()) == [b"before", struct.pack("<i", 7)]


def test_refused_number_leaves_the_open_message_as_it_was(queue: serai.Queue) -> None:
    writer = queue.writer().new_message().pack_int(1)
    for kind in ("byte", "short", "char", "int", "long", "decimal", "string"):
        with pytest.raises(BAD_VALUE):
            getattr(writer, f"pack_{kind}")(BEYOND[kind][0])
    writer.pack_int(2).write_message()
    assert only(queue).unpack("int", "int") == (1, 2)
    assert only(queue).size == 8


def test_refusal_says_the_kind_the_limits_and_the_value(simple: serai.Queue) -> None:
    writer = simple.writer().new_message()
    with pytest.raises(BAD_VALUE, match=r"(?s)byte.*-128.*127.*300"):
        writer.pack_byte(300)
    with pytest.raises(BAD_VALUE, match=r"(?s)ASCII.*unicode"):
        writer.pack_string("naïve")
    with pytest.raises(BAD_VALUE, match="float"):
        writer.pack_decimal(1.5)  # type: ignore[arg-type]  # the refusal is the point


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"boolean"}))  # anything is true or not
def test_value_of_no_fitting_type_is_refused_with_the_kind_and_its_type(kind: str, simple: serai.Queue) -> None:
    for call in (
        getattr(simple.writer().new_message(), f"pack_{kind}"),
        lambda v: simple.writer().template(kind).append((v,)),
    ):
        with pytest.raises(TypeError, match=rf"pack_{kind} takes .*, not NoneType"):
            call(None)


# ------------------------------------------------------------------------------------------------ kind by kind


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0", (0, 0)), ("-0", (0, 0)), ("0.00", (0, 2)), ("-0.00", (0, 2)), ("0E+3", (0, -3)), ("0E-200", (0, 200)),
        ("1E+5", (1, -5)), ("1.500", (1500, 3)), ("-12.34", (-1234, 2)), ("0.000000123", (123, 9)),
        ("123456789012345678", (123456789012345678, 0)), ("999999999999999999", (10**18 - 1, 0)),
        ("9223372036854775807", (2**63 - 1, 0)), ("9223372036854775808", (2**63, 0)),
        ("-9223372036854775808", (-(2**63), 0)), ("-9223372036854775809", (-(2**63) - 1, 0)),
        ("1234567890123456789012345678901234567890.12", (123456789012345678901234567890123456789012, 2)),
        ("1E-2147483647", (1, 2**31 - 1)), ("1E+2147483648", (1, -(2**31))),
    ],
)  # fmt: skip
def test_decimal_is_its_digits_and_its_scale(text: str, parts: tuple[int, int], queue: serai.Queue) -> None:
    writer = queue.writer()
    calls: list[Callable[[], serai.Writer]] = [
        lambda: writer.pack_decimal(Decimal(text)),
        lambda: writer.pack_decimal(*parts),
        lambda: writer.pack_decimal(parts),
        lambda: writer.pack_decimal(Decimal(text), None),
    ]
    for number, call in enumerate(calls):
        writer.new_message()
        call().write_message()
        message = only(queue)
        assert message.offset == 16 * number
        assert message.payload == encode("decimal", parts, queue.dialect)
        found = message.unpack_decimal()
        assert isinstance(found, Decimal)
        assert unscaled(found) == parts


def test_decimal_does_not_care_for_the_context(simple: serai.Queue) -> None:
    value = Decimal("1234567890123456789012345678901234567890.123456")
    with localcontext(prec=3):
        simple.writer().new_message().pack_decimal(value).write_message()
        assert only(simple).unpack_decimal() == value


def test_decimal_of_an_integer_has_scale_zero(simple: serai.Queue) -> None:
    simple.writer().new_message().pack_decimal(-129).pack_decimal(2**70).write_message()
    message = only(simple)
    assert [unscaled(message.unpack_decimal()) for _ in range(2)] == [(-129, 0), (2**70, 0)]


def test_decimal_with_thousands_of_digits(queue: serai.Queue) -> None:
    value = Decimal((1, (7,) * 6000, -17))
    queue.writer().new_message().pack_decimal(value).write_message()
    assert only(queue).unpack_decimal() == value


@pytest.mark.parametrize("payload", [b"\x03\0\0", b"\xff\x01\x01\x05", b"\x7f"])
def test_unknown_decimal_tag_is_refused(payload: bytes, queue: serai.Queue) -> None:
    queue.writer().append(payload)
    with pytest.raises(ValueError, match="tag"):
        only(queue).unpack_decimal()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("decimal", b"\0\0\x7f\1"),  # fewer bytes than the length says
        ("decimal", b"\1\0\0\0\0\xff\xff\xff\x7f\1"),
        ("decimal", b"\0\0"),
        ("big_integer", b"\5\0\0\0\1\2\3\4"),
        ("sized_bytes", b"\2\0\0\0\1"),
        ("string", b"no end"),
        ("unicode", b"a\0b\0"),
        ("unicode", b"a\0\0"),
        ("long", b"1234567"),
        ("char", b"1"),
    ],
)
def test_value_cut_short_is_an_end_of_file(kind: str, payload: bytes, simple: serai.Queue) -> None:
    simple.writer().append(payload)
    message = only(simple)
    with pytest.raises(EOFError, match=f"{message.offset}"):
        message.unpack(kind)


@pytest.mark.parametrize("kind", ["big_integer", "sized_bytes", "decimal"])
def test_negative_length_is_refused(kind: str, simple: serai.Queue) -> None:
    simple.writer().append((b"\1\0\0\0\0" if kind == "decimal" else b"") + b"\xff\xff\xff\xff" + bytes(20))
    with pytest.raises((ValueError, EOFError)):
        only(simple).unpack(kind)


def test_boolean_is_true_only_for_exactly_one(simple: serai.Queue) -> None:
    simple.writer().append(bytes([0, 1, 2, 127, 128, 255]))
    message = only(simple)
    assert [message.unpack_boolean() for _ in range(6)] == [False, True, False, False, False, False]


def test_char_is_given_as_text_or_as_a_code_unit(queue: serai.Queue) -> None:
    writer = queue.writer().new_message()
    for value in ("A", "中", "\ud800", "\0", "\uffff"):
        writer.pack_char(value).pack_char(ord(value))
    writer.write_message()
    message = only(queue)
    for value in ("A", "中", "\ud800", "\0", "\uffff"):
        assert message.unpack("char", "char") == (value, value)


def test_nul_cuts_a_string_when_it_is_read(queue: serai.Queue) -> None:
    queue.writer().new_message().pack_string("ab\0cd").pack_unicode("日\0本").pack_int(5).write_message()
    message = only(queue)
    assert message.payload == encode_all([("string", "ab\0cd"), ("unicode", "日\0本"), ("int", 5)])
    assert [message.unpack_string(), message.unpack_string()] == ["ab", "cd"]
    assert [message.unpack_unicode(), message.unpack_unicode(), message.unpack_int()] == ["日", "本", 5]


def test_string_that_is_not_ascii_on_disk_is_refused(simple: serai.Queue) -> None:
    simple.writer().append(b"caf\xe9\0next\0")
    message = only(simple)
    with pytest.raises(ValueError, match="0xe9"):
        message.unpack_string()


def test_surrogate_pair_in_two_halves_is_one_character(simple: serai.Queue) -> None:
    simple.writer().new_message().pack_unicode("\ud83d" + "\ude80").write_message()
    assert only(simple).unpack_unicode() == "🚀"


def test_bytes_come_from_any_buffer(queue: serai.Queue) -> None:
    data = bytes(range(100))
    buffers: list[Any] = [data, bytearray(data), memoryview(data), array("B", data), memoryview(data + data)[:100]]
    for number, value in enumerate(buffers):
        writer = queue.writer()
        assert writer.new_message().pack_bytes(value).pack_sized_bytes(value).write_message() == 48 * number
        message = only(queue)
        assert message.unpack_bytes(100) == message.unpack_sized_bytes() == data
        assert writer.append(value) == 48 * number + 16
        assert only(queue).payload == data
        assert writer.append_many([value]) == 48 * number + 32
        assert only(queue).payload == data


def test_buffer_with_gaps_is_refused(simple: serai.Queue) -> None:
    gaps = memoryview(b"abcdef")[::2]
    for call in (simple.writer().append, simple.new_message().pack_bytes):
        with pytest.raises((BufferError, *BAD_VALUE)):
            call(gaps)
    assert simple.writer().append(b"x") == 0


def test_doubles_given_as_integers_are_doubles(simple: serai.Queue) -> None:
    simple.writer().new_message().pack_double(3).pack_float(-1).pack_double(True).write_message()
    assert only(simple).unpack("double", "float", "double") == (3.0, -1.0, 1.0)


# ------------------------------------------------------------------------------------------------ the open message


def test_empty_message_is_a_message(simple: serai.Queue) -> None:
    """`while message := reader.next()` must not stop there."""
    simple.writer().append(b"")
    message = simple.reader().next()
    assert message
    assert (message.size, message.payload, bytes(message.view())) == (0, b"", b"")


def test_chain_returns_the_writer_and_a_template_the_offset(simple: serai.Queue) -> None:
    writer = simple.writer()
    assert simple.new_message() is writer
    assert writer.pack_int(1) is writer
    assert writer.write_message() == 0
    assert writer.offset == 16
    assert writer.dialect == "seed"


def test_pack_without_a_message_is_a_mistake(simple: serai.Queue) -> None:
    writer = simple.writer()
    for kind in KINDS:
        with pytest.raises(RuntimeError, match="new_message"):
            pack(writer, kind, plain(kind, LIMITS[kind][0]))
    with pytest.raises(RuntimeError, match="new_message"):
        writer.write_message()
    writer.discard()  # nothing to give up
    writer.new_message().pack_int(1).write_message()
    with pytest.raises(RuntimeError, match="new_message"):
        writer.pack_int(2)
    with pytest.raises(RuntimeError, match="new_message"):
        writer.write_message()


@pytest.mark.parametrize("start", ["new_message", "append", "append_many", "template"])
def test_open_message_is_given_up_by_the_next(start: str, queue: serai.Queue) -> None:
    writer = queue.writer()
    writer.append(b"first")
    writer.new_message().pack_bytes(bytes(100))
    match start:
        case "new_message":
            writer.new_message().pack_bytes(b"second").write_message()
        case "append":
            writer.append(b"second")
        case "append_many":
            writer.append_many([b"second"])
        case _:
            writer.template("bytes").append((b"second",))
    assert [(m.begin, m.payload) for m in queue.reader()] == [(0, b"first"), (5, b"second")]


def test_open_message_is_not_seen(queue: serai.Queue) -> None:
    reader = queue.reader()
    writer = queue.writer().new_message().pack_bytes(bytes(100))
    assert reader.next() is None
    writer.write_message()
    assert reader.next() is not None


def test_failed_item_leaves_those_before_it(queue: serai.Queue) -> None:
    writer = queue.writer()
    with pytest.raises(TypeError) as raised:
        writer.append_many([b"a", b"b", "no bytes", b"c"])  # type: ignore[list-item]  # the refusal is the point
    assert "2 of the 4" in raised.value.__notes__[0]
    with pytest.raises(OverflowError) as overflow:
        writer.template("int").append_many([(1,), (2,), (2**31,), (3,)])
    assert "2 " in overflow.value.__notes__[0]
    writer.append(b"d")
    assert list(queue.reader().payloads()) == [b"a", b"b", b"\1\0\0\0", b"\2\0\0\0", b"d"]


def test_failing_iterable_leaves_those_before_it(simple: serai.Queue) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise LookupError("no more rows")

    with pytest.raises(LookupError):
        simple.writer().template("int").append_many(rows())
    simple.writer().append(b"after")
    assert len(list(simple.reader())) == 2


def test_template_says_what_is_wrong_with_it(simple: serai.Queue) -> None:
    writer = simple.writer()
    with pytest.raises(ValueError, match=r"(?s)text.*string"):
        writer.template("int", "text")
    with pytest.raises(ValueError, match="last"):
        writer.template("bytes", "int")
    with pytest.raises(ValueError, match=r"(?s)field"):
        writer.template()
    template = writer.template("int", "string")
    for row in ((1,), (1, "a", 2), ()):
        with pytest.raises(ValueError, match=r"(?s)2 fields.*"):
            template.append(row)
    assert template.append((1, "a")) == 0


def test_reader_rows_say_which_kind_is_unknown(simple: serai.Queue) -> None:
    simple.writer().append(b"x")
    with pytest.raises(ValueError, match=r"(?s)text.*string"):
        simple.reader().rows("text")
    with pytest.raises(ValueError, match="text"):
        only(simple).unpack("text")


def test_position_moves_inside_the_message_only(queue: serai.Queue) -> None:
    queue.writer().new_message().pack_int(1).pack_int(2).pack_int(3).write_message()
    queue.writer().append(b"behind it")
    message = queue.reader().next()
    assert message is not None
    assert (message.position, message.remaining, message.size) == (0, 12, 12)
    message.skip(4)
    assert (message.position, message.remaining, message.unpack_int()) == (4, 8, 2)
    message.skip(-8)
    assert (message.position, message.unpack_int()) == (0, 1)
    message.position = 8
    assert message.unpack_int() == 3
    assert (message.position, message.remaining) == (12, 0)
    message.position = 12
    for position in (-1, 13):
        with pytest.raises(ValueError, match=str(position)):
            message.position = position
    for count in (1, -13):
        with pytest.raises(ValueError, match="12 bytes"):
            message.skip(count)
    assert message.position == 12


def test_unpack_bytes_counts_from_the_position(simple: serai.Queue) -> None:
    simple.writer().append(b"abcdef")
    message = only(simple)
    assert (message.unpack_bytes(2), message.unpack_bytes(0), message.unpack_bytes(4)) == (b"ab", b"", b"cdef")
    with pytest.raises(EOFError):
        message.unpack_bytes(1)
    with pytest.raises(ValueError, match="-1"):
        message.unpack_bytes(-1)


def test_bytes_as_a_kind_are_the_rest(simple: serai.Queue) -> None:
    simple.writer().append(b"\1\0\0\0rest")
    assert only(simple).unpack("int", "bytes") == (1, b"rest")
    assert list(simple.reader().rows("int", "bytes")) == [(1, b"rest")]
    assert decode_all(b"\1\0\0\0rest", ["int", "bytes"]) == [1, b"rest"]


def test_packing_and_reading_a_million_messages_keeps_nothing(tmp_path: Path) -> None:
    """No object stays behind, and none but integers and the returned offset is made on the way."""
    with serai.Queue(tmp_path, page_size=1 << 22) as queue:
        writer = queue.writer()

        def write(count: int) -> None:
            new, pack_long, finish = writer.new_message, writer.pack_long, writer.write_message
            for _ in range(count):
                new()
                pack_long(7)
                finish()

        def read(reader: serai.Reader, count: int) -> None:
            for _ in range(count):
                message = reader.next()
                assert message is not None
                message.unpack_long()

        reader = queue.reader()
        write(10_000)
        read(reader, 10_000)
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            write(1_000_000)
            read(reader, 1_000_000)
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert reader.next() is None
        assert after - before < 20_000  # a page object now and then, nothing for each message
        assert peak - before < 100_000
