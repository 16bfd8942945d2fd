"""Columns of messages against the oracle: any set, any part of it, every column."""

from __future__ import annotations

import struct
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serai
from serai._core.columns import Chunk, Columns, fields
from tests.core.dressing import DRESSES, LIMITS, NAMES, encoded, sets
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.messages import Entry

TIME_MAX = (2**63 - 1) // 1000


def integers(chunk: Chunk, kind: str) -> list[int]:
    return [one for (one,) in struct.iter_unpack(f"<{kind}", memoryview(chunk))]


def texts(values: Chunk, ends: Chunk) -> list[bytes]:
    edges = integers(ends, "i")
    return [bytes(memoryview(values)[low:high]) for low, high in pairwise(edges)]


def bits(chunk: Chunk, count: int) -> list[bool]:
    return [bool(memoryview(chunk)[at >> 3] >> (at & 7) & 1) for at in range(count)]


def headers(columns: Columns) -> list[list[tuple[bytes, bytes]]]:
    pairs = list(
        zip(
            texts(columns.header_names, columns.header_name_ends),
            texts(columns.header_values, columns.header_value_ends),
            strict=True,
        )
    )
    edges = integers(columns.header_ends, "i")
    return [pairs[low:high] for low, high in pairwise(edges)]


def headers_of(message: Entry) -> list[tuple[bytes, bytes]]:
    return list(message.headers or oracle.headers_of(message.attributes))


@pytest.mark.parametrize("dress", DRESSES, ids=NAMES.get)
@given(data=st.data(), lead=st.integers(0, 5), most=st.integers(0, 20), with_headers=st.booleans())
def test_any_part_of_any_set_gives_the_oracles_columns(
    dress: int, data: st.DataObject, lead: int, most: int, with_headers: bool
) -> None:
    raw = encoded(data.draw(sets(dress)))
    plain = [message for entry in oracle.decode(raw, dress) for message in oracle.flat(entry)][lead:][:most]
    columns = Columns(keys=True, headers=with_headers, sends=True, doors=True)
    columns.unfold(b"" if not plain else raw, dress, lead=lead, count=len(plain), ordinal=70, **LIMITS)
    count = len(plain)
    assert columns.rows == count
    assert texts(columns.values, columns.ends) == [message.body for message in plain]
    assert texts(columns.keys, columns.key_ends) == [message.key for message in plain]
    assert bits(columns.key_bits, count) == [message.key != b"" for message in plain]
    assert list(memoryview(columns.doors)) == [dress] * count
    sent = [message.send_time if dress != JAFKA and abs(message.send_time) <= TIME_MAX else None for message in plain]
    assert bits(columns.send_bits, count) == [time is not None for time in sent]
    assert integers(columns.sends, "q") == [(time or 0) * 1000 for time in sent]
    if with_headers:
        assert headers(columns) == [headers_of(message) for message in plain]


@settings(max_examples=50)
@given(data=st.data())
def test_sets_of_different_dresses_follow_each_other(data: st.DataObject) -> None:
    columns = Columns()
    bodies: list[bytes] = []
    for dress in DRESSES:
        raw = encoded(data.draw(sets(dress)))
        plain = [message.body for entry in oracle.decode(raw, dress) for message in oracle.flat(entry)]
        columns.unfold(raw, dress, lead=0, count=len(plain), ordinal=len(bodies), **LIMITS)
        bodies += plain
    assert texts(columns.values, columns.ends) == bodies
    assert columns.rows == len(bodies)


def test_columns_nobody_asked_for_stay_empty() -> None:
    raw = oracle.encode(oracle.Entry(HOUSE, b"body", b"key"))
    columns = Columns(values=False)
    columns.unfold(raw, HOUSE, lead=0, count=1, ordinal=0, **LIMITS)
    assert [len(one) for one in (columns.values, columns.keys, columns.sends, columns.doors)] == [0, 0, 0, 0]
    assert columns.rows == 1


def test_set_with_fewer_messages_than_said_is_refused() -> None:
    raw = oracle.encode(oracle.Entry(HOUSE, b"one"))
    with pytest.raises(ValueError, match="a set of 1 messages was said to have 2, from ordinal 9 on"):
        Columns().unfold(raw, HOUSE, lead=0, count=2, ordinal=9, **LIMITS)


def test_limits_of_rows_and_bytes_hold_but_one_message_always_comes(tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "q", page_size=64) as queue:
        queue.writer().append_many([b"x" * 10] * 20)
        reader = queue.reader()
        columns = Columns()
        assert columns.take_from(reader, stop=1 << 40, rows_max=3, bytes_max=1000) == 3
        assert columns.take_from(reader, stop=1 << 40, rows_max=100, bytes_max=45) == 4
        assert columns.take_from(reader, stop=1 << 40, rows_max=100, bytes_max=1) == 1
        assert columns.take_from(reader, stop=16 * 10, rows_max=100, bytes_max=1000) == 2
        assert columns.take_from(reader, stop=16 * 10, rows_max=100, bytes_max=1000) == 0
        assert integers(columns.offsets, "q") == [16 * at for at in range(10)]
        assert texts(columns.values, columns.ends) == [b"x" * 10] * 10


def test_columns_live_on_without_their_maker() -> None:
    columns = Columns()
    columns.unfold(oracle.encode(oracle.Entry(HOUSE, b"kept")), HOUSE, lead=0, count=1, ordinal=0, **LIMITS)
    view = memoryview(columns.values)
    del columns
    assert bytes(view) == b"kept"
    with pytest.raises(TypeError):
        view[0] = 1


# ---- typed fields ----------------------------------------------------------------------------------------------------


def ends(*bodies: bytes) -> bytes:
    edges = [0]
    for body in bodies:
        edges.append(edges[-1] + len(body))
    return struct.pack(f"<{len(edges)}i", *edges)


def test_fields_are_lists_of_each_kind() -> None:
    bodies = [struct.pack("<i", at) + b"s%d\0" % at + b"\0\2\1" + bytes([at]) for at in range(3)]
    assert fields(b"".join(bodies), ends(*bodies), ["int", "string", "decimal"], java=False) == [
        [0, 1, 2], ["s0", "s1", "s2"], [Decimal("0.00"), Decimal("0.01"), Decimal("0.02")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "at", "words"),
    [
        (b"\1\0\0", 0, "unpack_int needs 4 bytes"),
        (b"\1\0\0\0x", 1, "no closing zero"),
        (b"\1\0\0\0x\0yz", 1, "2 bytes are left"),
    ],
)
def test_error_says_body_and_field(body: bytes, at: int, words: str) -> None:
    good = b"\1\0\0\0x\0"
    with pytest.raises((ValueError, EOFError), match=words) as caught:
        fields(good + body, ends(good, body), ["int", "string"], java=False)
    assert vars(caught.value) == {"row": 1, "field": at}


def test_ends_outside_the_bodies_are_refused() -> None:
    with pytest.raises(IndexError, match="body 0 ends at 9 of 3 bytes"):
        fields(b"abc", struct.pack("<2i", 0, 9), ["bytes"], java=False)
