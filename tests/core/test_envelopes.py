"""Sets made of columns against the oracle."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai._core.crc import crc32c
from serai._core.envelopes import envelopes, spread
from tests.core.dressing import HEADERS, encoded
from tests.oracle.messages import HOUSE, Entry, sized

ROWS = st.lists(
    st.tuples(
        st.binary(max_size=50), st.none() | st.binary(max_size=20), HEADERS, st.integers(-(2**63), 2**63 - 1)
    ),
    max_size=20,
)  # fmt: skip


def column(texts: list[bytes]) -> tuple[bytes, bytes]:
    edges = [0, *accumulate(map(len, texts))]
    return b"".join(texts), struct.pack(f"<{len(edges)}i", *edges)


def bits(present: list[bool], shift: int) -> bytes:
    number = sum(1 << (at + shift) for at, there in enumerate(present) if there)
    return number.to_bytes((len(present) + shift) // 8 + 1, "little")


def block(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    pairs = b"".join(sized("<H", name) + sized("<I", value) for name, value in headers)
    return struct.pack("<H", len(headers)) + pairs if headers else b""


@given(rows=ROWS, shift=st.integers(0, 20), order=st.randoms(use_true_random=False), part=st.floats(0, 1))
def test_sets_are_those_of_the_oracle(
    rows: list[tuple[bytes, bytes | None, tuple[tuple[bytes, bytes], ...], int]], shift: int, order: object, part: float
) -> None:
    picked = list(range(len(rows)))
    order.shuffle(picked)  # type: ignore[attr-defined]  # a random.Random
    picked = picked[: round(part * len(picked))]
    values, ends = column([row[0] for row in rows])
    keys, key_ends = column([row[1] or b"" for row in rows])
    notes, note_ends = column([block(row[2]) for row in rows])
    found = envelopes(
        values, ends, rows=struct.pack(f"<{len(picked)}i", *picked), keys=keys, key_ends=key_ends,
        key_bits=bits([row[1] is not None for row in rows], shift), key_shift=shift, notes=notes, note_ends=note_ends,
        times=struct.pack(f"<{len(rows)}q", *[row[3] for row in rows]),
    )  # fmt: skip
    entries = [Entry(HOUSE, body, key or b"", headers=headers, send_time=time) for body, key, headers, time in rows]
    assert found == encoded([entries[at] for at in picked])


def test_bodies_alone_are_enough() -> None:
    values, ends = column([b"a", b"", b"ccc"])
    assert envelopes(values, ends) == encoded([Entry(HOUSE, b"a"), Entry(HOUSE), Entry(HOUSE, b"ccc")])


@given(keys=st.lists(st.none() | st.binary(max_size=9), max_size=30), partitions=st.integers(1, 9))
def test_equal_keys_go_to_the_same_partition(keys: list[bytes | None], partitions: int) -> None:
    data, ends = column([key or b"" for key in keys])
    there = bits([key is not None for key in keys], 0)
    found = [
        at for (at,) in struct.iter_unpack("<i", spread(data, ends, key_bits=there, partitions=partitions, keyless=7))
    ]
    assert found == [crc32c(key) % partitions if key else 7 for key in keys]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0, 9), "within its bytes"),
        ((0, 2, 1), "row 1 ends before it begins"),
        ((-1, 1), "within its bytes"),
        ((), "within its bytes"),
    ],
)
def test_ends_that_cannot_be_are_refused(ends: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        envelopes(b"abc", struct.pack(f"<{len(ends)}i", *ends))


def test_rows_that_are_not_there_and_keys_too_long_are_refused() -> None:
    values, ends = column([b"a"])
    with pytest.raises(IndexError, match="row 1 of 1"):
        envelopes(values, ends, rows=struct.pack("<i", 1))
    keys, key_ends = column([bytes(65536)])
    with pytest.raises(ValueError, match="the key of row 0 has 65536 bytes; a key has at most 65535"):
        envelopes(values, ends, keys=keys, key_ends=key_ends)
    with pytest.raises(ValueError, match="same number of rows"):
        envelopes(values, ends, keys=b"", key_ends=struct.pack("<i", 0))
    with pytest.raises(ValueError, match="1 rows have 1 times, not 0"):
        envelopes(values, ends, times=b"")
