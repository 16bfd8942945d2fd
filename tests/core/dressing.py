"""What the message tests share: random entries of every dress, vectors, and limits that nobody reaches."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from hypothesis import strategies as st

from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry


class Limits(TypedDict):
    """What every call takes."""

    inflated_max: int
    depth_max: int


DRESSES = [HOUSE, SEED, REAL, JAFKA]
NAMES = {HOUSE: "house", SEED: "seed", REAL: "real", JAFKA: "jafka"}
LIMITS: Limits = {"inflated_max": 1 << 24, "depth_max": 8}
VECTORS = Path(__file__).parents[1] / "vectors"

BODIES = st.binary(max_size=120)
HEADERS = st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=20)), max_size=4).map(tuple)
TEXT_PIECES = st.sampled_from(
    [
        "a",
        "key",
        "=",
        ":",
        " ",
        "\t",
        "\f",
        "\n",
        "\r",
        "\r\n",
        "\\",
        "\\\n  ",
        "\\u00e9",
        "\\uD83D",
        "\\uDE00",
        "\\uDC80",
        *("#", "!", "\\=", "\\:", "\\ ", "\\t", "\\u12", "é", "日", "v", "\\é"),
    ]
)
TEXTS = st.one_of(
    HEADERS.map(oracle.text_of),
    st.lists(TEXT_PIECES, max_size=12).map(lambda pieces: "".join(pieces).encode()),
    st.binary(max_size=30),
)
CLIENTS = st.binary(min_size=16, max_size=16)


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


@st.composite
def messages(draw: st.DrawFn, dress: int) -> Entry:
    """A plain message."""
    if dress == JAFKA:
        return Entry(JAFKA, draw(BODIES), magic=draw(st.integers(0, 1)))
    head = Entry(
        dress, draw(BODIES), draw(st.binary(max_size=127 if dress == REAL else 140)), priority=draw(integers(8)),
        flag=draw(integers(16, signed=False)), send_time=draw(integers(64)), ordered=draw(st.booleans()),
    )  # fmt: skip
    if dress == HOUSE:
        return replace(head, headers=draw(HEADERS))
    version = draw(st.integers(0, 1)) if dress == REAL else 1
    return replace(
        head, attributes=draw(TEXTS), partition=draw(integers(16)), index=draw(integers(64)), term=draw(integers(32)),
        source=draw(st.integers(0, 3)), version=version, ipv6=draw(st.booleans()) and version == 1,
        client=draw(CLIENTS) if dress == REAL else bytes(16), store_time=draw(integers(32)),
        extension=draw(st.binary(max_size=8)), app=draw(st.binary(max_size=127 if dress == REAL else 140)),
        sum=draw(st.sampled_from([None, -1, 0])),
    )  # fmt: skip


def as_members(entries: list[Entry], outer: Entry) -> tuple[Entry, ...]:
    """What a JMQ batch says of its members; all else is the batch's own."""
    return tuple(
        replace(
            outer, body=one.body, key=one.key, attributes=one.attributes, priority=one.priority, flag=one.flag, sum=None
        )
        for one in entries
    )


@st.composite
def wrappers(draw: st.DrawFn, dress: int, depth: int = 1) -> Entry:
    """A batch; in Jafka also one inside another."""
    if dress == JAFKA:
        inner = messages(JAFKA) if depth == 0 else st.one_of(messages(JAFKA), wrappers(JAFKA, depth - 1))
        return oracle.wrap(JAFKA, tuple(draw(st.lists(inner, max_size=3))), oracle.GZIP)
    members = draw(st.lists(messages(dress), min_size=1, max_size=3))
    codec = draw(st.sampled_from([0, 2, 4] if dress == HOUSE else [0, 1, 2]))
    if dress == HOUSE:
        return oracle.wrap(HOUSE, tuple(members), codec)
    outer = draw(messages(dress))
    made = oracle.wrap(dress, as_members(members, outer), codec if outer.version else 2 * (codec > 0))
    return replace(outer, body=made.body, flag=made.flag, codec=made.codec, batch=True, members=made.members)


@st.composite
def compressed(draw: st.DrawFn, dress: int) -> Entry:
    """A single message whose body is compressed."""
    codec = draw(st.sampled_from([2, 4] if dress == HOUSE else [1, 2]))
    message = draw(messages(dress))
    return replace(message, codec=codec, body=oracle.deflate(message.body, codec))


def entries(dress: int) -> st.SearchStrategy[Entry]:
    if dress == JAFKA:
        return st.one_of(messages(dress), messages(dress), wrappers(dress))
    return st.one_of(messages(dress), messages(dress), wrappers(dress), compressed(dress))


def sets(dress: int, size: int = 5) -> st.SearchStrategy[list[Entry]]:
    return st.lists(entries(dress), max_size=size)


def encoded(found: list[Entry]) -> bytes:
    return b"".join(map(oracle.encode, found))


def vectors(path: str) -> list[dict[str, Any]]:
    """The cases of a vector file."""
    raw = json.loads((VECTORS / path).read_text(encoding="utf-8"))
    cases: list[dict[str, Any]] = raw if isinstance(raw, list) else raw["cases"]
    return cases
