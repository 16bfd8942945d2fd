"""Every dress into every other: the compiled way against the oracle, and what the server sets in place."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai._core.dress import patch, redress
from serai._core.messages import census, layout
from tests.core.dressing import DRESSES, HEADERS, LIMITS, NAMES, TEXTS, encoded, integers, sets
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry, Server

PAIRS = [pytest.param(a, b, id=f"{NAMES[a]}-{NAMES[b]}") for a in DRESSES for b in DRESSES]
JMQ_PAIRS = [pytest.param(a, b, id=f"{NAMES[a]}-{NAMES[b]}") for a in (SEED, REAL) for b in (SEED, REAL)]
SERVERS = st.builds(
    Server,
    partition=integers(16),
    index=st.integers(0, 1 << 40),
    term=st.integers(0, 1 << 30),
    store_time=st.one_of(st.just(0), st.integers(0, 1 << 42), st.just(1_700_000_000_000)),
    client=st.sampled_from([b"", b"\x39\x30\x0a\0\0\x07", bytes(range(18)), bytes(16)]),
    app=st.binary(max_size=20),
    jafka_magic=st.integers(0, 1),
)


def dressed(data: bytes, source: int, target: int, server: Server, bytes_max: int = 1 << 24) -> bytes:
    return redress(
        data, source, target, bytes_max=bytes_max, jafka_magic=server.jafka_magic, partition=server.partition,
        index=server.index, term=server.term, store_time=server.store_time, client=server.client, app=server.app,
        **LIMITS,
    )  # fmt: skip


PLAIN = Server(0, 0, 0, 0, b"", b"", 1)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@given(data=st.data(), server=SERVERS)
def test_redress_gives_what_the_oracle_gives(source: int, target: int, data: st.DataObject, server: Server) -> None:
    raw = encoded(data.draw(sets(source)))
    found = dressed(raw, source, target, server)
    assert found.hex() == oracle.redress(raw, source, target, server).hex()


@pytest.mark.parametrize(("source", "target"), PAIRS)
@settings(max_examples=50)
@given(data=st.data(), server=SERVERS)
def test_the_nth_message_stays_the_nth(source: int, target: int, data: st.DataObject, server: Server) -> None:
    raw = encoded(data.draw(sets(source)))
    before = census(raw, source, **LIMITS)
    after = census(dressed(raw, source, target, server), target, **LIMITS)
    assert after.messages == before.messages
    assert after.exact
    bodies = [message.body for entry in oracle.decode(raw, source) for message in oracle.flat(entry)]
    again = dressed(dressed(raw, source, target, server), target, HOUSE, server)
    assert [message.body for entry in oracle.decode(again, HOUSE) for message in oracle.flat(entry)] == bodies


@pytest.mark.parametrize("source", DRESSES, ids=NAMES.get)
@given(data=st.data(), magic=st.integers(0, 1))
def test_jafka_bytes_are_those_that_the_jafka_door_shows(source: int, data: st.DataObject, magic: int) -> None:
    raw = encoded(data.draw(sets(source)))
    shown = redress(raw, source, JAFKA, bytes_max=1 << 24, jafka_magic=magic, **LIMITS)
    assert census(raw, source, jafka_magic=magic, **LIMITS).jafka_bytes == len(shown)


@pytest.mark.parametrize("target", DRESSES, ids=NAMES.get)
@pytest.mark.parametrize("source", DRESSES, ids=NAMES.get)
@settings(max_examples=50)
@given(data=st.data(), noise=st.integers(1, 255))
def test_damaged_sets_are_dressed_or_refused(source: int, target: int, data: st.DataObject, noise: int) -> None:
    raw = bytearray(encoded(data.draw(sets(source))))
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= noise
    with suppress(ValueError):
        dressed(bytes(raw), source, target, PLAIN)


# ---- attributes and headers ----------------------------------------------------------------------------------


@given(text=TEXTS)
def test_attributes_become_headers(text: bytes) -> None:
    house = dressed(oracle.encode(Entry(SEED, b"b", attributes=text)), SEED, HOUSE, PLAIN)
    (entry,) = oracle.decode(house, HOUSE)
    assert entry.headers == oracle.headers_of(text)


@given(headers=HEADERS)
def test_headers_come_back_from_attributes(headers: oracle.Headers) -> None:
    house = oracle.encode(Entry(HOUSE, b"b", headers=headers))
    for target in (SEED, REAL):
        jmq = dressed(house, HOUSE, target, PLAIN)
        assert oracle.decode(jmq, target)[0].attributes == oracle.text_of(headers)
        assert dressed(jmq, target, HOUSE, PLAIN) == house


def test_worked_example_of_the_real_program() -> None:
    headers = ((b"trace", b"abc123"), (b"k e:y=1", b"v =2 #!"))
    text = rb"trace=abc123" + b"\n" + rb"k\ e\:y\=1=v \=2 \#\!"
    jmq = dressed(oracle.encode(Entry(HOUSE, headers=headers)), HOUSE, REAL, PLAIN)
    assert oracle.decode(jmq, REAL)[0].attributes == text
    astral = dressed(oracle.encode(Entry(HOUSE, headers=((b"\xf0\x9f\x98\x80", b"\xe9\xff"),))), HOUSE, REAL, PLAIN)
    assert oracle.decode(astral, REAL)[0].attributes == rb"\uD83D\uDE00=\uDCE9\uDCFF"


@pytest.mark.parametrize(("size", "kept"), [(32765, True), (32766, False), (200_000, False)])
def test_attributes_that_are_too_long_are_not_written_in_part(size: int, kept: bool) -> None:
    house = oracle.encode(Entry(HOUSE, b"b", headers=((b"k", b"v" * size),)))
    found = oracle.decode(dressed(house, HOUSE, SEED, PLAIN), SEED)[0].attributes
    assert found == (b"k=" + b"v" * size if kept else b"")


@pytest.mark.parametrize(
    ("target", "size", "kept"), [(REAL, 127, 127), (REAL, 128, 0), (SEED, 32767, 32767), (SEED, 32768, 0)]
)
def test_keys_that_are_too_long_are_not_written_in_part(target: int, size: int, kept: int) -> None:
    house = oracle.encode(Entry(HOUSE, b"b", b"k" * size))
    assert len(oracle.decode(dressed(house, HOUSE, target, PLAIN), target)[0].key) == kept


def test_member_keys_beyond_the_house_length_are_dropped() -> None:
    outer = Entry(SEED, version=1)
    members = (replace(outer, body=b"b", key=b"k" * 70_000),)
    raw = oracle.encode(oracle.wrap(SEED, members, 0))
    (entry,) = oracle.decode(dressed(raw, SEED, HOUSE, PLAIN), HOUSE)
    assert (entry.body, entry.key) == (b"b", b"")


# ---- what the server sets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dress", [SEED, REAL], ids=NAMES.get)
@given(data=st.data(), server=SERVERS)
def test_patch_writes_what_redress_writes(dress: int, data: st.DataObject, server: Server) -> None:
    found = data.draw(sets(dress))
    raw = bytearray(encoded(found))
    expected = oracle.redress(bytes(raw), dress, dress, server)
    behind = patch(
        raw, dress, partition=server.partition, index=server.index, term=server.term, store_time=server.store_time,
        client=server.client,
    )  # fmt: skip
    assert raw.hex() == expected.hex()
    assert behind == server.index + sum(max(1, len(entry.members)) for entry in found)
    assert census(raw, dress, **LIMITS).exact


@pytest.mark.parametrize("dress", [SEED, REAL], ids=NAMES.get)
def test_lengths_are_put_right(dress: int) -> None:
    message = Entry(dress, b"body", b"key", sum=-1)
    right = oracle.encode(replace(message, sum=None))
    wrong = b"\xff\xff\xff\xff" + oracle.encode(message)[4:-2] + b"\xff" * 2
    if dress == REAL:
        wrong = b"\xff\xff\xff\xff" + oracle.encode(message)[4:-1] + b"\xff"
    found = census(wrong, dress, **LIMITS)
    assert (found.messages, found.exact) == (1, False)
    assert dressed(wrong, dress, dress, PLAIN) == right
    with pytest.raises(ValueError, match="dressed anew"):
        patch(bytearray(wrong), dress, partition=0, index=0, term=0, store_time=0)


@pytest.mark.parametrize("dress", [SEED, REAL], ids=NAMES.get)
@given(data=st.data(), server=SERVERS)
def test_lengths_in_front_are_put_right_in_any_set(dress: int, data: st.DataObject, server: Server) -> None:
    found = data.draw(sets(dress))
    wrong = b"".join(b"\xff\xff\xff\xff" + oracle.encode(entry)[4:] for entry in found)
    assert census(wrong, dress, **LIMITS).exact == (not found)
    assert dressed(wrong, dress, dress, server).hex() == oracle.redress(encoded(found), dress, dress, server).hex()


def test_patch_leaves_a_set_alone_that_it_cannot_finish() -> None:
    raw = bytearray(oracle.encode(Entry(SEED, b"first")) + b"\0\0\0\x50")
    before = bytes(raw)
    with pytest.raises(ValueError, match="truncated"):
        patch(raw, SEED, partition=5, index=5, term=5, store_time=5)
    assert raw == before


def test_checksums_travel_with_the_body() -> None:
    raw = oracle.encode(Entry(JAFKA, b"body", sum=zlib.crc32(b"bode")))
    jmq = dressed(raw, JAFKA, REAL, PLAIN)
    with pytest.raises(ValueError, match="byte 0: the checksum does not fit the body"):
        census(jmq, REAL, **LIMITS)


@pytest.mark.parametrize(("source", "target"), JMQ_PAIRS)
def test_codes_of_the_two_jmq_layouts(source: int, target: int) -> None:
    worked = {
        SEED: {"plain": 0x010C, "zlib": 0x012D, "snappy": 0x010D},
        REAL: {"plain": 0x018C, "zlib": 0x01AD, "snappy": 0x01BD},
    }
    at = {SEED: 18, REAL: 20}
    for name, codec in (("plain", 0), ("zlib", 2), ("snappy", 3)):
        raw = oracle.encode(Entry(source, b"body", codec=codec))
        assert int.from_bytes(raw[at[source] : at[source] + 2], "big") == worked[source][name]
        found = dressed(raw, source, target, PLAIN)
        assert int.from_bytes(found[at[target] : at[target] + 2], "big") == worked[target][name]


# ---- bounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_output_is_bounded(source: int, target: int) -> None:
    raw = oracle.encode(Entry(source, bytes(100))) * 50
    size = len(dressed(raw, source, target, PLAIN))
    assert len(dressed(raw, source, target, PLAIN, bytes_max=size)) == size
    with pytest.raises(ValueError, match="take more than"):
        dressed(raw, source, target, PLAIN, bytes_max=size - 1)


@pytest.mark.parametrize("target", [HOUSE, SEED, REAL])
def test_many_small_messages_grow_the_output(target: int) -> None:
    raw = oracle.encode(Entry(JAFKA, b"", magic=0)) * 20_000
    found = dressed(raw, JAFKA, target, Server(1, 2, 3, 4, b"", b"shop" * 20, 1))
    assert census(found, target, **LIMITS).messages == 20_000
    assert layout(found, target, **LIMITS)[1] == b"\1\0\0\0" * 20_000


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"source": 0}, "dress must be 1 to 4"),
        ({"target": 5}, "dress must be 1 to 4"),
        ({"client": b"12345"}, "a client is 6 bytes"),
        ({"app": b"x" * 128}, "an app of 128 bytes"),
        ({"partition": 1 << 15}, "partition must be a SHORT"),
        ({"term": 1 << 31}, "term an INT"),
        ({"jafka_magic": 2}, "jafka_magic is 0 or 1"),
        ({"bytes_max": -1}, "bytes_max below 2 GiB"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, int], match: str) -> None:
    call = {"source": HOUSE, "target": REAL, "bytes_max": 1000, **LIMITS, **arguments}
    with pytest.raises(ValueError, match=match):
        redress(b"", **call)  # type: ignore[arg-type]  # the table mixes numbers and bytes
    with pytest.raises(ValueError, match="only JMQ messages"):
        patch(bytearray(), HOUSE, partition=0, index=0, term=0, store_time=0)
