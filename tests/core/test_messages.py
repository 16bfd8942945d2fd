"""Sets of messages walked, counted, validated and cut: against the oracle and against the bytes of the originals."""

from __future__ import annotations

import array
import gzip
import struct
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai._core.crc import crc32c
from serai._core.dress import redress
from serai._core.inflate import inflate
from serai._core.messages import census, cut, layout
from tests.core.dressing import DRESSES, LIMITS, NAMES, encoded, sets, vectors
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry

EACH = pytest.mark.parametrize("dress", DRESSES, ids=NAMES.get)


def int32s(data: bytes) -> list[int]:
    return array.array("i", data).tolist()


def bounds(found: list[Entry]) -> list[int]:
    """Where each entry starts, and where the last one ends."""
    places = [0]
    for entry in found:
        places.append(places[-1] + len(oracle.encode(entry)))
    return places


# ---- against the oracle --------------------------------------------------------------------------------------


@EACH
@given(data=st.data(), magic=st.integers(0, 1))
def test_census_counts_what_the_oracle_counts(dress: int, data: st.DataObject, magic: int) -> None:
    found = data.draw(sets(dress))
    raw = encoded(found)
    counted = census(raw, dress, jafka_magic=magic, **LIMITS)
    counts = [len(oracle.flat(entry)) for entry in found]
    assert (counted.entries, counted.messages, counted.size) == (len(found), sum(counts), len(raw))
    assert counted.jafka_bytes == sum(oracle.jafka_bytes(entry, magic) for entry in found)
    assert counted.largest == max((len(entry.body) for entry in found), default=0)
    assert counted.wrapped == any(entry.codec or entry.batch for entry in found)
    assert counted.exact
    assert int32s(counted.starts) == bounds(found)[:-1]
    assert int32s(counted.counts) == counts
    assert layout(raw, dress, **LIMITS) == (counted.starts, counted.counts)


@EACH
@given(data=st.data())
def test_census_goes_on_where_it_is_told(dress: int, data: st.DataObject) -> None:
    found = data.draw(sets(dress))
    places = bounds(found)
    first = data.draw(st.integers(0, len(found)))
    count = data.draw(st.integers(0, len(found) - first))
    raw = encoded(found) + b"what follows the messages of a request"
    counted = census(raw, dress, start=places[first], entries_max=count, **LIMITS)
    assert (counted.entries, counted.size) == (count, places[first + count] - places[first])


@EACH
@given(data=st.data())
def test_every_cut_of_a_set_is_truncated(dress: int, data: st.DataObject) -> None:
    found = data.draw(sets(dress, size=3))
    raw, places = encoded(found), bounds(found)
    for size in range(len(raw)):
        piece = raw[:size]
        whole = max(place for place in places if place <= size)
        if whole == size or (dress == JAFKA and (whole or size < 4)):
            assert census(piece, dress, **LIMITS).size == whole
            assert sum(int32s(layout(piece, dress, **LIMITS)[1])) == census(piece, dress, **LIMITS).messages
        else:
            for walk in (census, layout):
                with pytest.raises(ValueError, match=f"^byte {whole}: truncated"):
                    walk(piece, dress, **LIMITS)


@EACH
@given(data=st.data())
def test_cut_is_the_longest_run_within_both_limits(dress: int, data: st.DataObject) -> None:
    found = data.draw(sets(dress, size=6))
    raw, places = encoded(found), bounds(found)
    counts = [len(oracle.flat(entry)) for entry in found]
    skip = data.draw(st.integers(0, sum(counts) + 2))
    bytes_max = data.draw(st.integers(0, len(raw) + 1))
    messages_max = data.draw(st.integers(0, sum(counts) + 1))
    first, lead = 0, skip
    while lead and first < len(found) and counts[first] <= lead:
        lead -= counts[first]
        first += 1
    lead = lead if first < len(found) else 0
    stop = first
    while (
        stop < len(found)
        and places[stop + 1] - places[first] <= bytes_max
        and sum(counts[first : stop + 1]) - lead <= messages_max
    ):
        stop += 1
    messages = sum(counts[first:stop]) - (lead if stop > first else 0)
    piece = cut(raw, dress, skip=skip, bytes_max=bytes_max, messages_max=messages_max, **LIMITS)
    assert piece == (places[first], places[stop], stop - first, messages, lead)
    assert raw[piece.start : piece.stop] == encoded(found[first:stop])


@EACH
@given(raw=st.binary(max_size=300))
def test_any_bytes_are_a_set_or_refused(dress: int, raw: bytes) -> None:
    for walk in (census, layout):
        with suppress(ValueError):
            walk(raw, dress, **LIMITS)


@EACH
@given(data=st.data(), noise=st.integers(1, 255))
def test_a_changed_byte_is_judged_as_the_oracle_judges_it(dress: int, data: st.DataObject, noise: int) -> None:
    raw = bytearray(encoded(data.draw(sets(dress, size=3))))
    if not raw:
        return
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= noise
    try:
        expected = [len(oracle.flat(entry)) for entry in oracle.decode(bytes(raw), dress)]
    except Exception:  # noqa: BLE001  # the oracle fails as Python does: any way is a refusal
        expected = None
    try:
        counts = int32s(census(raw, dress, **LIMITS).counts)
    except ValueError:
        counts = None
    if counts != expected:  # a gzip or zip that only one of two readers minds; snappy, which the oracle cannot read
        assert counts is None or census(raw, dress, **LIMITS).wrapped


# ---- limits --------------------------------------------------------------------------------------------------


def bomb(dress: int, size: int) -> bytes:
    if dress == JAFKA:
        inner = oracle.encode(Entry(JAFKA, bytes(size)))
        return oracle.encode(Entry(JAFKA, gzip.compress(inner), codec=oracle.GZIP))
    return oracle.encode(Entry(dress, zlib.compress(bytes(size), 9), codec=oracle.ZLIB))


@EACH
def test_bombs_are_stopped_before_they_are_held(dress: int) -> None:
    raw = bomb(dress, 50_000_000)
    assert len(raw) < 100_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^byte 0: the compressed bytes hold more than the limit of 1048576 bytes"):
        census(raw, dress, inflated_max=1 << 20, depth_max=8)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@EACH
def test_the_limit_is_for_all_wrappers_together(dress: int) -> None:
    raw = bomb(dress, 1000) * 3
    size = 1010 if dress == JAFKA else 1000
    assert census(raw, dress, inflated_max=3 * size, depth_max=8).messages == 3
    with pytest.raises(ValueError, match=f"limit of {size - 1} bytes"):
        census(raw, dress, inflated_max=3 * size - 1, depth_max=8)


def test_nesting_has_a_depth() -> None:
    entry = Entry(JAFKA, b"deep")
    for _ in range(8):
        entry = oracle.wrap(JAFKA, (entry,), oracle.GZIP)
    raw = oracle.encode(entry)
    assert census(raw, JAFKA, inflated_max=1 << 20, depth_max=8).messages == 1
    with pytest.raises(ValueError, match="nested too deep"):
        census(raw, JAFKA, inflated_max=1 << 20, depth_max=7)
    with pytest.raises(ValueError, match="nested too deep"):
        redress(raw, JAFKA, HOUSE, inflated_max=1 << 20, depth_max=7, bytes_max=1000)


@EACH
def test_absurd_lengths_are_compared_and_not_allocated(dress: int) -> None:
    tracemalloc.start()
    for length in (0x7FFFFFFF, 0x7FFFFFFE, 0x10000000):
        head = struct.pack("<I" if dress == HOUSE else ">I", length) + b"\1" * 80
        with pytest.raises(ValueError, match=r"byte 0: (truncated|this is not a JMQ|the codec)"):
            census(head, dress, **LIMITS)
    if dress in (SEED, REAL):
        raw = bytearray(oracle.encode(Entry(dress, b"body")))
        at = 43 if dress == SEED else 61
        raw[at : at + 4] = b"\x7f\xff\xff\xff"
        with pytest.raises(ValueError, match="byte 0: truncated"):
            census(raw, dress, **LIMITS)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_inflated_or_refused(codec: int, raw: bytes) -> None:
    heads = {1: b"PK\3\4", 2: b"\x78\x9c", 3: b"\xff\6\0\0sNaPpY", 4: b"\x1f\x8b\x08\0\0\0\0\0\0\xff"}
    for data in (raw, heads[codec] + raw):
        with suppress(ValueError):
            assert len(inflate(data, codec, 1000)) <= 1000


@pytest.mark.parametrize("codec", [1, 2, 4])
@given(raw=st.binary(max_size=500))
def test_inflate_undoes_what_the_standard_library_does(codec: int, raw: bytes) -> None:
    packed = oracle.deflate(raw, codec)
    assert inflate(packed, codec, len(raw)) == raw
    for size in range(0, len(packed), 7):
        with pytest.raises(ValueError, match=r"broken|too early|directory|limit"):
            inflate(packed[:size], codec, 500)
    if raw:
        with pytest.raises(ValueError, match="limit"):
            inflate(packed, codec, len(raw) - 1)


def framed(blocks: list[tuple[bytes, bytes]]) -> bytes:
    """Snappy chunks of (plain, packed) pairs; packed as it is where both are the same."""
    out = b"\xff\6\0\0sNaPpY"
    for plain, packed in blocks:
        total = crc32c(plain)
        masked = ((total >> 15 | total << 17) + 0xA282EAD8) & 0xFFFFFFFF
        out += bytes([plain is packed]) + (len(packed) + 4).to_bytes(3, "little") + struct.pack("<I", masked) + packed
    return out


@given(
    blocks=st.lists(
        st.tuples(
            st.lists(st.sampled_from([b"a", b"serai", bytes(range(256)), b"\0" * 70]), max_size=200), st.booleans()
        ),
        max_size=4,
    ),
    data=st.data(),
)
def test_snappy_is_what_another_library_packs(blocks: list[tuple[list[bytes], bool]], data: st.DataObject) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is missing | pip install pyarrow")
    plains = [(b"".join(pieces), packed) for pieces, packed in blocks]
    pairs = [
        (plain, arrow.compress(plain, codec="snappy", asbytes=True) if packed else plain) for plain, packed in plains
    ]
    raw, expected = framed(pairs), b"".join(plain for plain, _ in plains)
    assert inflate(raw, 3, len(expected)) == expected
    assert inflate(raw + b"\xfe\3\0\0pad", 3, len(expected)) == expected
    if expected:
        with pytest.raises(ValueError, match="limit"):
            inflate(raw, 3, len(expected) - 1)
    spoiled = bytearray(raw)
    spoiled[data.draw(st.integers(0, len(raw) - 1))] ^= 0x55
    with suppress(ValueError):
        found = inflate(spoiled, 3, 1 << 20)
        assert found == expected or len(found) < len(expected)  # a chunk that became one to be skipped


def test_gzip_members_are_joined_up_to_a_number() -> None:
    one = gzip.compress(b"ab")
    assert inflate(one * 16 + b"rest", 4, 100) == b"ab" * 16
    with pytest.raises(ValueError, match="more than 16 members"):
        inflate(one * 17, 4, 100)


# ---- faults by name ------------------------------------------------------------------------------------------


def house(bits: int, rest: bytes) -> bytes:
    return struct.pack("<IBbHq", 16 + len(rest), bits, 0, 0, 0) + rest


def seed_batch(body: bytes, flag: int) -> bytes:
    return oracle.encode(Entry(SEED, body, batch=True, flag=flag))


MEMBER = struct.pack(">ibHiih", 17, 0, 0, 0, 0, 0)
FAULTS = [
    (HOUSE, struct.pack("<I", 15) + bytes(20), "the length is less than a head"),
    (HOUSE, house(0x80, b""), "a reserved bit is set"),
    (HOUSE, house(0x28, bytes(9)), "a batch has key or headers"),
    (HOUSE, house(1, b""), "the codec is unknown"),
    (HOUSE, house(8, b"\5\0four"), "the key does not fit"),
    (HOUSE, house(8, b"\5"), "the key does not fit"),
    (HOUSE, house(0x10, b"\7\0\0\0\0\0"), "the headers do not fit"),
    (HOUSE, house(0x10, b"\1\0\0\0\0\0"), "the headers do not fit"),
    (HOUSE, house(0x10, b"\2\0\0\0\1\0body"), "the headers do not fit"),
    (HOUSE, house(0x10, b"\3\0\0\0\0\0\0"), "the headers do not fit"),
    (HOUSE, house(0x20, b"\0\0\0\0"), "does not hold the messages it says"),
    (HOUSE, house(0x20, b"\1\0\0\0"), "does not hold the messages it says"),
    (HOUSE, house(0x20, b"\1\0\0\0" + house(0, b"") * 2), "does not hold the messages it says"),
    (HOUSE, house(0x20, b"\1\0\0\0" + house(2, zlib.compress(b""))), "a member of a batch is a wrapper"),
    (HOUSE, house(2, b"no zlib"), "the compressed bytes are broken"),
    (SEED, seed_batch(struct.pack(">ih", 23, 2) + MEMBER, 2), "does not hold the messages it says"),
    (SEED, seed_batch(struct.pack(">ih", 23, 2) + MEMBER, 1), "does not hold the messages it says"),
    (SEED, seed_batch(struct.pack(">ih", 24, 1) + MEMBER, 1), "does not hold the messages it says"),
    (SEED, seed_batch(struct.pack(">ih", 23, 1) + b"\0\0\0\x12" + MEMBER[4:], 1), "a member's lengths are wrong"),
    (SEED, seed_batch(b"", 0), "does not hold the messages it says"),
    (SEED, oracle.encode(Entry(SEED, version=2)), "not a JMQ message of this layout"),
    (SEED, oracle.encode(Entry(REAL, b"the other layout")), "not a JMQ message of this layout"),
    (REAL, oracle.encode(Entry(SEED, b"the other layout")), "not a JMQ message of this layout"),
    (REAL, oracle.encode(Entry(REAL, codec=4)), "the codec is unknown"),
    (REAL, oracle.encode(Entry(REAL, b"body", sum=5)), "the checksum does not fit the body"),
    (JAFKA, oracle.encode(Entry(JAFKA, b"body", bits=0, sum=5)), "the checksum does not fit the body"),
    (JAFKA, b"\0\0\0\4\0\0\0\0", "the length is less than a head"),
    (JAFKA, b"\0\0\0\5\1\0\0\0\0", "the length is less than a head"),
    (JAFKA, b"\xff\xff\xff\xfe", "the length is negative"),
]


@pytest.mark.parametrize(("dress", "raw", "reason"), FAULTS)
def test_faults_are_named_with_their_byte(dress: int, raw: bytes, reason: str) -> None:
    good = oracle.encode(Entry(dress, b"good"))
    with pytest.raises(ValueError, match=rf"^byte {len(good)}: .*{reason}"):
        census(good + raw, dress, **LIMITS)
    with pytest.raises(ValueError, match=rf"^byte {len(good)}: .*{reason}"):
        census(good + raw, dress, start=len(good), **LIMITS)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="dress must be 1 to 4, not 0"):
        census(b"", 0, **LIMITS)
    with pytest.raises(ValueError, match="dress must be 1 to 4, not 5"):
        layout(b"", 5, **LIMITS)
    with pytest.raises(ValueError, match="depth_max must be 0 to 64, not 65"):
        census(b"", 1, inflated_max=1, depth_max=65)
    with pytest.raises(ValueError, match="start must be within the data"):
        census(b"", 1, start=1, **LIMITS)
    with pytest.raises(ValueError, match="jafka_magic 0 or 1"):
        census(b"", 1, jafka_magic=2, **LIMITS)
    assert repr(census(b"", 1, **LIMITS)) == "Census(messages=0, entries=0, size=0)"


# ---- the bytes of the originals ------------------------------------------------------------------------------


def bodies(raw: bytes, dress: int) -> list[bytes]:
    """Of all messages, wrappers opened, by the compiled way."""
    plain = redress(raw, dress, HOUSE, bytes_max=1 << 20, **LIMITS)
    return [entry.body for entry in oracle.decode(plain, HOUSE)]


# The original refuses magic 0, and reads these sizes as a fault of its own when it comes to the message.
MESSAGE_SETS = vectors("jafka/message_sets.json")


@pytest.mark.parametrize("case", MESSAGE_SETS, ids=lambda case: case["name"])
def test_jafka_sets_are_read_as_the_original_reads_them(case: dict[str, Any]) -> None:
    raw, decoded = bytes.fromhex(case["bytes_hex"]), case["decoded"]
    if case["name"] == "magic-0":
        assert bodies(raw, JAFKA) == [b"hello"]
    elif "construct_error" in decoded or "iteration_error" in decoded:
        with pytest.raises(ValueError, match=r"^byte \d+: "):
            census(raw, JAFKA, **LIMITS)
    else:
        counted = census(raw, JAFKA, **LIMITS)
        assert counted.size == decoded["valid_bytes"]
        assert counted.messages == len(decoded["messages"])
        ends = [at - case["initial_offset"] for at in decoded["shallow_next_offsets"]]
        assert [*int32s(counted.starts)[1:], counted.size][: len(ends)] == ends
        payloads = [bytes.fromhex(message["payload_hex"]) for message in decoded["messages"]]
        assert bodies(raw, JAFKA) == payloads
        kept = redress(raw, JAFKA, JAFKA, bytes_max=1 << 20, **LIMITS)
        assert kept == raw[: counted.size]
        if not counted.wrapped and not any(message["attributes"] for message in decoded["messages"]):
            again = b"".join(oracle.encode(Entry(HOUSE, payload)) for payload in payloads)
            assert redress(again, HOUSE, JAFKA, bytes_max=1 << 20, **LIMITS) == kept


def test_all_jafka_sets_were_there() -> None:
    counts = [len(case["decoded"]["messages"]) for case in MESSAGE_SETS]
    assert (len(counts), sum(counts)) == (34, 85)


def produced(frame: bytes) -> list[bytes]:
    """The message sets of a PRODUCE or MULTIPRODUCE frame, none of another."""
    reader = oracle.Reader(frame, 4)
    key = reader.number(">h")
    parts = {0: 1, 3: -1}.get(key, 0)
    if parts < 0:
        parts = reader.number(">h")
    found = []
    for _ in range(parts):
        reader.sized(">h")
        reader.number(">i")
        found.append(reader.sized(">i"))
    return found


def jafka_frames() -> list[tuple[str, bytes]]:
    found = []
    for name in ("requests", "client_frames", "producer_behaviour", "magic0", "segments"):
        for case in vectors(f"jafka/{name}.json"):
            frames = [case["frame_hex"]] if "frame_hex" in case else list(case.get("frames_hex", []))
            frames += [step["send_hex"] for step in case.get("steps", []) if step.get("expect") == "silent"]
            found += [(f"{name}-{case['name']}-{at}", bytes.fromhex(frame)) for at, frame in enumerate(frames)]
    return [(name, frame) for name, frame in found if name != WRONG_SUM]


# This client sends Latin-1 and the checksum of UTF-8: what it means to say is not what is there, so it is refused.
WRONG_SUM = "client_frames-nodekafka-0-0"
JAFKA_FRAMES = jafka_frames()


def test_a_client_with_wrong_checksums_is_refused() -> None:
    case = next(case for case in vectors("jafka/client_frames.json") if case["name"] == "nodekafka-0")
    (raw,) = produced(bytes.fromhex(case["frame_hex"]))
    with pytest.raises(ValueError, match="byte 14: the checksum does not fit the body"):
        census(raw, JAFKA, **LIMITS)


@pytest.mark.parametrize("case", vectors("jafka/responses.json"), ids=lambda case: case["name"])
def test_answers_of_the_real_jafka_broker_are_cut_sets(case: dict[str, Any]) -> None:
    if not case["name"].startswith("fetch-") or case.get("max_size") == 9:  # 9: not even the first message
        return
    raw = bytes.fromhex(case["frame_hex"])[6:]
    counted = census(raw, JAFKA, **LIMITS)
    assert counted.size <= len(raw)
    if "payloads_hex" in case:
        house = encoded([Entry(HOUSE, bytes.fromhex(payload)) for payload in case["payloads_hex"]])
        assert redress(house, HOUSE, JAFKA, bytes_max=1 << 20, **LIMITS) == raw


@pytest.mark.parametrize(("name", "frame"), JAFKA_FRAMES, ids=[row[0] for row in JAFKA_FRAMES])
def test_sets_of_real_jafka_clients(name: str, frame: bytes) -> None:
    for raw in produced(frame):
        expected = oracle.decode(raw, JAFKA)
        counted = census(raw, JAFKA, **LIMITS)
        flat = [message for entry in expected for message in oracle.flat(entry)]
        assert (counted.entries, counted.messages, counted.size) == (len(expected), len(flat), len(raw)), name
        assert bodies(raw, JAFKA) == [message.body for message in flat]
        assert redress(raw, JAFKA, JAFKA, bytes_max=1 << 20, **LIMITS) == raw
        magics = {entry.magic for entry in expected}
        if not counted.wrapped and len(magics) == 1:
            again = encoded([Entry(HOUSE, message.body) for message in flat])
            assert redress(again, HOUSE, JAFKA, jafka_magic=magics.pop(), bytes_max=1 << 20, **LIMITS) == raw


def test_all_jafka_frames_were_there() -> None:
    sets_of = [raw for _, frame in JAFKA_FRAMES for raw in produced(frame)]
    assert (len(sets_of), sum(census(raw, JAFKA, **LIMITS).messages for raw in sets_of)) == (38, 63)


def jmq_messages() -> list[tuple[str, bytes, int, dict[str, Any]]]:
    """Every message of the JMQ vectors: its frame's name, its bytes, its dress, its values."""
    found = []
    for name in ("produce", "consume", "python_client", "seed_layout"):
        for case in vectors(f"jmq/{name}.json"):
            dress = SEED if case["dialect"] == "seed" else REAL
            kind = case["header"]["type"]
            if kind in (50, -30, -31):
                found += list(walk_frame(case, kind, dress))
    return found


def walk_frame(case: dict[str, Any], kind: int, dress: int) -> list[tuple[str, bytes, int, dict[str, Any]]]:
    reader = oracle.Reader(bytes.fromhex(case["hex"]), 23 if kind > 0 else 26)
    if kind < 0:
        assert reader.data[24:26] == b"\0\0"
    found = []
    topics = {topic["topic"]: topic for topic in case["payload"]["topics" if kind > 0 else "data"]}
    for _ in range(reader.number(">h")):  # in any order: Java writes that of its hashes
        topic = topics.pop(reader.sized(">h").decode())
        if kind == 50:
            reader.sized(">h")
            reader.take(5)
        rows = {row["partition"]: row for row in topic["partitions"]} if kind == -31 else {0: topic}
        for _ in range(reader.number(">h") if kind == -31 else 1):
            row = rows[reader.number(">h") if kind == -31 else 0]
            count = reader.number(">h")
            assert count == len(row["messages"])
            counted = census(reader.data, dress, start=reader.at, entries_max=count, **LIMITS)
            places = [*int32s(counted.starts), counted.size]
            raw = reader.take(counted.size)
            pieces = [raw[places[at] : places[at + 1]] for at in range(count)]
            found += [(case["name"], piece, dress, row["messages"][at]) for at, piece in enumerate(pieces)]
            reader.take(4 if kind == -31 or (kind == -30 and dress == REAL) else 0)
    if kind == 50:
        reader.sized(">h")
    assert not reader.rest
    assert not topics
    return found


JMQ_MESSAGES = jmq_messages()


@pytest.mark.parametrize(("name", "raw", "dress", "value"), JMQ_MESSAGES, ids=[row[0] for row in JMQ_MESSAGES])
def test_messages_of_real_jmq_clients(name: str, raw: bytes, dress: int, value: dict[str, Any]) -> None:
    (entry,) = oracle.decode(raw, dress)
    for field in ("partition", "index", "term", "priority", "ordered", "source", "batch", "flag"):
        assert getattr(entry, field) == value[field], field
    assert (entry.send_time, entry.store_time) == (value["sendTime"], value["storeTime"])
    assert (entry.body.hex(), entry.extension.hex()) == (value["body"], value["extension"])
    assert (entry.key.decode() or None, entry.app.decode() or None) == (value["businessId"], value["app"])
    attributes = {key.decode(): text.decode() for key, text in oracle.headers_of(entry.attributes)}
    assert attributes == (value["attributes"] or {})
    counted = census(raw, dress, **LIMITS)
    assert counted.exact == ("py_" not in name)
    assert counted.messages == (value["flag"] if value["batch"] else 1)
    assert bodies(raw, dress) == expanded(value)
    stored = value["sendTime"] + value["storeTime"]
    again = redress(
        raw,
        dress,
        dress,
        partition=value["partition"],
        index=value["index"],
        term=value["term"],
        store_time=stored,
        bytes_max=1 << 20,
        **LIMITS,
    )
    assert again == oracle.encode(entry)
    assert (again == raw) == counted.exact  # the Python client's lengths and checksum are put right


def expanded(value: dict[str, Any]) -> list[bytes]:
    found = value.get("expanded", value["body"])
    if isinstance(found, str):
        return [bytes.fromhex(found)]
    return [bytes.fromhex(member["body"]) for member in found]


def test_all_jmq_messages_were_there() -> None:
    counts = [census(raw, dress, **LIMITS).messages for _, raw, dress, _ in JMQ_MESSAGES]
    assert (len(counts), sum(counts)) == (31, 75)
    codecs = {oracle.decode(raw, dress)[0].codec for _, raw, dress, _ in JMQ_MESSAGES}
    assert codecs == {0, 1, 2, 3}


def test_members_keep_what_their_batch_says() -> None:
    name, raw, dress, value = next(row for row in JMQ_MESSAGES if "batch_zlib" in row[0])
    plain = oracle.decode(redress(raw, dress, HOUSE, bytes_max=1 << 20, **LIMITS), HOUSE)
    assert len(plain) == len(value["expanded"]) == value["flag"]
    for entry, member in zip(plain, value["expanded"], strict=True):
        assert (entry.key.decode() or None, entry.flag, entry.priority) == (
            member["businessId"],
            member["flag"],
            member["priority"],
        )
        assert {key.decode(): text.decode() for key, text in entry.headers} == (member["attributes"] or {})
        assert entry.send_time == value["sendTime"], name
