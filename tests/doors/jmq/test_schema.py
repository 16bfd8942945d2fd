"""Every frame of the originals read and written; every value of every layout, in every form; every cut of every value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai import errors
from serai._core import entries
from serai.doors.jmq.connection import framed
from serai.doors.jmq.schema import commands, frame, numbers
from serai.doors.jmq.schema.commands import COMMANDS
from serai.doors.jmq.schema.frame import REAL, SEED, Head, Message, Status
from serai.errors import Misuse
from serai.wire.buffer import flat
from serai.wire.layout import Form, Layout, Malformed, Truncated, decode, encode
from tests.doors.jmq.kit import FORMS, IDS, Vector, agrees, expected, opened, plain, values, vectors

VECTORS = vectors()
EACH = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
IN_FORM = pytest.mark.parametrize("form", FORMS, ids=IDS)
ORIGINALS = 128  # frames of the originals: none may be lost from the files
PYTHON_NULLS = {"py_add_connection/a", "py_produce/a", "py_produce/b"}  # they write null as -1: our own writing is 0
LAYOUTS = sorted(
    set(COMMANDS.values()) | {one.reply for one in COMMANDS.values() if one.reply},
    key=lambda layout: layout.__name__,
)


# ---- the originals -----------------------------------------------------------------------------------------------


def test_all_frames_of_the_originals_are_here() -> None:
    assert sum(vector.source != "serai" for vector in VECTORS) == ORIGINALS


@EACH
def test_a_frame_decodes_to_what_its_vector_says(vector: Vector) -> None:
    head, status, body, end = opened(vector)
    assert end == len(vector.raw)
    assert (head.length, head.version, int(head.identity)) == (
        vector.header["length"], vector.header["version"], vector.header["identity"],
    )  # fmt: skip
    assert (head.request_id, head.type, head.send_time) == (
        vector.header["requestId"], vector.header["type"], vector.header["sendTime"],
    )  # fmt: skip
    if status is not None:
        assert (status.status, status.error or None) == (vector.header["status"], vector.header["error"])
    if body is not None:
        ours, theirs = plain(body, vector.form), expected(vector.payload)
        assert agrees(ours, theirs), f"{ours}\nis not\n{theirs}"


@EACH
def test_a_frame_encodes_back_to_its_bytes(vector: Vector) -> None:
    head, status, body, _ = opened(vector)
    pieces = encode(status, SEED) if status is not None else []
    pieces += encode(body, vector.form) if body is not None else []
    if vector.name in PYTHON_NULLS:
        assert len(flat(framed(head, pieces))) == len(vector.raw)
    else:
        assert flat(framed(head, pieces)) == vector.raw


@EACH
def test_bytes_behind_a_payload_change_nothing(vector: Vector) -> None:
    _, _, body, end = opened(vector)
    more = Vector(**(vars(vector) | {"raw": vector.raw + b"\x7f" * 9}))
    assert opened(more)[2:] == (body, end)


@EACH
def test_every_cut_of_a_frame_says_truncated(vector: Vector) -> None:
    for size in range(len(vector.raw)):
        cut = Vector(**(vars(vector) | {"raw": vector.raw[:size]}))
        with pytest.raises(Truncated):
            opened(cut)


def test_every_layout_has_a_frame() -> None:
    seen: set[type[Layout]] = {vector.layout for vector in VECTORS if vector.layout is not None}
    assert {layout.__name__ for layout in LAYOUTS if layout not in seen} == set()


# ---- values --------------------------------------------------------------------------------------------------------

OF_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
SOME = settings(max_examples=25, deadline=None)


@OF_LAYOUT
@SOME
@given(data=st.data(), form=st.sampled_from(FORMS))
def test_what_is_written_is_read_again(layout: type[Layout], form: Form, data: st.DataObject) -> None:
    value = data.draw(values(layout, form))
    raw = flat(encode(value, form))
    assert decode(layout, raw, form) == (value, len(raw))
    assert decode(layout, b"\xee" * 5 + raw + b"\x01", form, 5) == (value, 5 + len(raw))
    for size in range(0, len(raw), max(1, len(raw) // 30)):
        with pytest.raises(Truncated):
            decode(layout, raw[:size], form)


@OF_LAYOUT
@SOME
@given(raw=st.binary(max_size=200), form=st.sampled_from(FORMS))
def test_random_bytes_are_a_value_or_malformed(layout: type[Layout], form: Form, raw: bytes) -> None:
    try:
        value, end = decode(layout, raw, form)
    except Malformed:
        return
    assert type(value) is layout
    assert end <= len(raw)


@IN_FORM
@OF_LAYOUT
def test_counts_without_elements_are_refused(layout: type[Layout], form: Form) -> None:
    """32,767 of everything, and no bytes behind it."""
    for filler in (b"\x7f\xff" * 30, b"\x7f\xff\xff\xff" * 15, b"\xff" * 60):
        try:
            decode(layout, filler, form)
        except Malformed:
            continue


def test_a_value_that_does_not_fit_is_misuse() -> None:
    with pytest.raises(Misuse, match="PartitionCode"):
        encode(commands.PartitionCode(partition=1 << 15, code=0), SEED)
    with pytest.raises(Misuse, match="at most 32767"):
        encode(commands.AddConsumer(topics=[""] * (1 << 15), app="", sequence=0), SEED)


# ---- the numbers that stand twice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "dress"), [(SEED, entries.SEED), (REAL, entries.REAL)], ids=["seed", "real"])
def test_the_core_knows_messages_as_the_layout_says(form: Form, dress: int) -> None:
    from serai._core.frames import entries_of

    code = frame.SystemCode.of(version=1, ordered=1, source=3, address=int(form == REAL))
    message = Message(
        length=0, partition=7, index=1, term=2, system_code=code, send_time=9_000_000_001, body=b"body",
        business_id="key", attributes="a=b", extension=b"x", app="shop",
    )  # fmt: skip
    raw = flat(encode(message, form))
    message.length = len(raw)
    found, end = entries_of(flat(encode(message, form)), dress)
    assert end == len(raw)
    assert (found.entries, found.partition, found.sent) == (1, 7, [9_000_000_001])
    assert found.exact
    assert found.ordered


def test_every_house_code_has_a_number() -> None:
    def families(family: type[Any]) -> set[type[Any]]:
        return {family}.union(*(families(one) for one in family.__subclasses__()))

    codes = {one.code for one in families(errors.SeraiError) if "code" in vars(one)}
    codes |= set(getattr(errors, "REFUSALS", ()))
    assert codes
    assert codes <= set(numbers.MEANINGS), f"no JMQ number for {codes - set(numbers.MEANINGS)}"
    for code in numbers.MEANINGS:
        for form in FORMS:
            for producing in (True, False):
                assert 0 < numbers.number(code, form, producing=producing) < 256


def test_a_client_is_told_what_its_dialect_knows() -> None:
    assert numbers.number("disk-full", SEED, producing=True) == 109
    assert numbers.number("disk-full", REAL, producing=True) == 94
    assert numbers.number("not-owner", REAL, producing=True) == 188
    assert numbers.number("not-owner", REAL, producing=False) == 187
    assert numbers.number("black-listed", REAL, producing=True) == 144
    assert numbers.number("black-listed", Form("real", 1), producing=True) == 1


def test_levels_are_the_logs() -> None:
    assert (numbers.NONE, numbers.RECEIVE, numbers.COMMIT) == (0, 1, 2)
    assert {name: numbers.ONE_WAY[name] for name in ("seed", "real", "house")} == {"seed": 2, "real": 0, "house": 2}
    assert len(flat(encode(heads(), SEED))) == frame.REQUEST_HEAD_BYTES


def heads() -> Head:
    return Head(length=23, magic=frame.MAGIC, version=2, identity=frame.Identity(2), request_id=1, type=7, send_time=0)


def test_a_status_is_an_unsigned_byte() -> None:
    assert flat(encode(Status(status=189, error=""), SEED)) == b"\xbd\0\0"
