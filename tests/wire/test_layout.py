"""Layouts that only tests have: what a kind, a condition and a flag do, and what is refused."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import Misuse
from serai.wire.buffer import flat
from serai.wire.describe import bit_table, show, strategy, table
from serai.wire.layout import (
    INT16,
    INT32,
    Array16,
    Bits,
    Bool,
    By,
    Bytes32,
    Flags,
    Float64,
    Form,
    Int8,
    Int16,
    Int32,
    Int64,
    Layout,
    Malformed,
    Maybe,
    Only,
    Text8,
    Text16,
    Truncated,
    Unless,
    decode,
    encode,
)  # fmt: skip

OLD, NEW, OTHER = Form("ours", 1), Form("ours", 3), Form("theirs", 1)
FORMS = pytest.mark.parametrize("form", [OLD, NEW, OTHER], ids=["old", "new", "other"])


class Colour(Flags, bits=8):
    """Eight bits."""

    spare: Annotated[int, Bits(3)]  #: zero
    shade: Annotated[int, Bits(4)]  #: how dark
    bright: Annotated[int, Bits(1)]  #: or not


class Inner(Layout):
    """A pair."""

    data: Int16  #: a field may be called as the decoder calls its own
    at: Text8  #: or so


class Outer(Layout):
    """Everything at once."""

    number: Int64  #: a number
    colour: Colour  #: of it
    size: Annotated[int, By(ours=INT16, theirs=INT32)]  #: by dialect
    since: Annotated[Int32, Only("ours", since=2)] = 5  #: by version
    either: Annotated[Int8, Only("ours", since=3), Only("theirs")] = 6  #: one or the other
    inner: Inner  #: another layout
    many: Array16[Inner]  #: several
    numbers: Array16[Int32]  #: at once
    maybe: Maybe[Inner]  #: or none
    flag: Bool  #: true or false
    point: Float64  #: with a fraction
    id: Int32  #: -1: nobody
    name: Annotated[Text16, Unless("id", -1)] = ""  #: of somebody
    body: Bytes32 = b""  #: bytes
    words: Annotated[Array16[Text16], Only("theirs")] = field(default_factory=list)  #: a list that may be missing


@FORMS
@given(data=st.data())
def test_what_is_written_is_read_and_every_cut_is_truncated(form: Form, data: st.DataObject) -> None:
    value = data.draw(strategy(Outer, form))
    raw = flat(encode(value, form))
    assert decode(Outer, raw, form) == (value, len(raw))
    assert decode(Outer, b"..." + raw + b"...", form, 3) == (value, 3 + len(raw))
    for size in range(len(raw)):
        with pytest.raises(Truncated):
            decode(Outer, raw[:size], form)


@FORMS
@given(raw=st.binary(max_size=120))
def test_any_bytes_are_a_value_or_malformed(form: Form, raw: bytes) -> None:
    try:
        value, end = decode(Outer, raw, form)
    except Malformed:
        return
    assert decode(Outer, flat(encode(value, form)), form)[0] == value or value.point != value.point  # NaN
    assert end <= len(raw)


class Empty(Layout):
    """Nothing."""


def test_a_layout_may_be_empty() -> None:
    assert flat(encode(Empty(), OLD)) == b""
    assert decode(Empty, b"abc", OLD) == (Empty(), 0)


class Counted(Layout):
    """A list of pairs."""

    pairs: Array16[Inner]  #: pairs


def test_lengths_below_zero_are_empty() -> None:
    assert decode(Inner, b"\0\1\xff", OLD)[0] == Inner(data=1, at="")
    assert decode(Counted, b"\xff\xff", OLD)[0] == Counted(pairs=[])


def test_a_count_is_compared_with_the_bytes_that_are_there() -> None:
    with pytest.raises(Truncated, match="32767 elements, 8 bytes"):
        decode(Counted, b"\x7f\xff" + bytes(6), OLD)


def test_text_must_be_utf_8() -> None:
    with pytest.raises(Malformed, match="utf-8"):
        decode(Inner, b"\0\1\1\xff", OLD)


def test_what_cannot_be_written_is_misuse() -> None:
    for value in (
        Inner(data=1 << 15, at=""),
        Inner(data=0, at="x" * 128),
        Counted(pairs=[Inner(data=0, at="")] * 32768),
    ):
        with pytest.raises(Misuse):
            encode(value, OLD)


def test_flags_are_numbers_with_names() -> None:
    made = Colour.of(shade=9, bright=1)
    assert (int(made), made.spare, made.shade, made.bright) == (0b00010011, 0, 9, 1)
    with pytest.raises(Misuse, match="shade has 4 bits"):
        Colour.of(shade=16)
    with pytest.raises(AssertionError, match="take 3 bits, not 8"):

        class Torn(Flags, bits=8):
            spare: Annotated[int, Bits(3)]


def test_a_table_has_a_row_for_each_field_and_its_meaning() -> None:
    lines = table(Outer).splitlines()
    assert lines[0] == "| field | kind | only in | meaning |"
    assert "| `size` | ours: SHORT; theirs: INT |  | by dialect |" in lines
    assert "| `either` | BYTE | ours from version 3, theirs | one or the other |" in lines
    assert "| · `data` | SHORT |  | a field may be called as the decoder calls its own |" in lines
    assert "| `name` | STRING | unless id is -1 | of somebody |" in lines
    assert "only in" not in table(Inner)
    assert "| 4 to 1 | `shade` | how dark |" in bit_table(Colour)


def test_a_view_shows_nested_values_and_cuts_long_bytes() -> None:
    value = Outer(
        number=1, colour=Colour.of(shade=2), size=3, inner=Inner(data=4, at="x"), many=[Inner(data=5, at="y")],
        numbers=[1, 2], maybe=None, flag=True, point=0.5, id=-1, body=bytes(40),
    )  # fmt: skip
    lines = show(value).splitlines()
    assert lines[0] == "Outer"
    assert "  colour: 0x4 (shade 2)" in lines
    assert "      data: 5" in lines
    assert f"  body: {bytes(32).hex()}... (40 bytes)" in lines
