"""First bytes: who is recognised, who is not, and that cuts do not matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai import limits
from serai.errors import PeerError
from serai.gate.sniff import FIRST_BYTES_MAX, Door, sniff

JMQ = bytes.fromhex("0000003acafebebe0202000000010100000000000000")
KNOWN = [
    (b"GET / HTTP/1.1\r\n", Door.HTTP),
    (b"post /api", Door.HTTP),
    (JMQ, Door.JMQ),
    (b"\x16\x03\x01\x02\x00\x01", Door.TLS),
    (b"\x8b\x05hello", Door.Z),
    (b"\x82\x05hello", Door.Z),
    (bytes.fromhex("00000020 0000 0005"), Door.JAFKA),
    (bytes.fromhex("00000020 0006 0005"), Door.JAFKA),
]
STRANGE = [
    b"\0\0\0\0\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff\xca\xfe",
    b"\0\0\0\x20\0\x07",
    b"\r\n\r\n",
    b" GET /",
    b"\x83\x00",
]


@pytest.mark.parametrize(("first", "door"), KNOWN)
def test_first_bytes_choose_the_door(first: bytes, door: Door) -> None:
    assert sniff(first) is door


@pytest.mark.parametrize(("first", "door"), KNOWN)
def test_fewer_bytes_never_choose_another_door(first: bytes, door: Door) -> None:
    assert {sniff(first[:cut]) for cut in range(len(first))} <= {None, door}


@pytest.mark.parametrize("first", STRANGE)
def test_what_no_door_speaks_is_refused_with_its_bytes(first: bytes) -> None:
    with pytest.raises(PeerError, match=first[:4].hex(" ")):
        sniff(first)


def test_a_jafka_size_may_reach_the_limit_and_not_beyond() -> None:
    assert sniff(limits.FRAME_BYTES_MAX.to_bytes(4, "big") + b"\0\1") is Door.JAFKA
    with pytest.raises(PeerError):
        sniff((limits.FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\1")


@given(st.binary(max_size=64))
def test_any_bytes_give_a_door_or_a_fault_or_ask_for_few_more(data: bytes) -> None:
    try:
        door = sniff(data)
    except PeerError:
        return
    assert door is not None or len(data) < FIRST_BYTES_MAX


@given(st.binary(min_size=FIRST_BYTES_MAX, max_size=64))
def test_a_verdict_never_changes_with_more_bytes(data: bytes) -> None:
    verdicts: list[object] = []
    for cut in range(len(data) + 1):
        try:
            verdicts.append(sniff(data[:cut]))
        except PeerError:
            verdicts.append("refused")
    decided = [verdict for verdict in verdicts if verdict is not None]
    assert len(set(decided)) <= 1
