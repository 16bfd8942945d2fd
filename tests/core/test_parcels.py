"""Parcels and deliveries: what goes in comes out, whatever was wrapped around it; damage is said; acknowledgements are counted."""

from __future__ import annotations

import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai._core.entries import HOUSE
from serai._core.messages import census
from serai._core.parcels import Delivery, Parcel
from serai.client.outgoing import pack_headers, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 1 << 26
BODIES = st.lists(st.binary(max_size=50), min_size=1, max_size=30)
HEADERS = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=3)


def packed(bodies: Iterable[bytes]) -> Parcel:
    parcel = Parcel()
    parcel.add_many(list(bodies), 17)
    return parcel


def delivered(data: Any, count: int, *, lead: int = 0, index: int = 100) -> Delivery:
    return Delivery(data, topic="t", partition=3, index=index, lead=lead, count=count, inflated_max=LIMIT)


class Keeper:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.finished: list[Delivery] = []
        self.returned: list[tuple[Delivery, float]] = []

    def complete(self, delivery: Delivery) -> None:
        self.finished.append(delivery)

    def give_back(self, delivery: Delivery, delay_s: float) -> None:
        self.returned.append((delivery, delay_s))


# ---- going out -----------------------------------------------------------------------------------------------


@given(BODIES)
def test_list_is_the_same_messages_as_one_by_one(bodies: list[bytes]) -> None:
    one_by_one = Parcel()
    for body in bodies:
        one_by_one.add(body, 17)
    assert bytes(packed(bodies)) == bytes(one_by_one)
    assert len(one_by_one) == one_by_one.size == sum(16 + len(body) for body in bodies)
    found = census(bytes(one_by_one), HOUSE, inflated_max=0, depth_max=1)
    assert (found.messages, one_by_one.count) == (len(bodies), len(bodies))


@given(
    st.binary(max_size=99), st.none() | st.binary(max_size=99), HEADERS, st.integers(-128, 127), st.integers(0, 65535)
)
def test_everything_said_of_a_message_comes_back(
    value: bytes, key: bytes | None, headers: list[tuple[bytes, bytes]], priority: int, flag: int
) -> None:
    parcel = Parcel()
    parcel.add(value, 1 << 40, key=key, notes=pack_headers(headers) if headers else None, priority=priority, flag=flag)
    census(bytes(parcel), HOUSE, inflated_max=0, depth_max=1)
    (message,) = delivered(parcel, 1)
    assert (message.value, message.key, message.headers) == (value, key, headers)
    assert (message.time_ms, message.priority, message.flag) == (1 << 40, priority, flag)
    assert (message.topic, message.partition, message.index) == ("t", 3, 100)


def test_any_bytes_like_object_can_be_sent() -> None:
    parcel = Parcel()
    parcel.add_many([b"a", bytearray(b"b"), memoryview(b"cd")[1:]], 0)
    parcel.add(bytearray(b"e"), 0)
    assert delivered(parcel, 4).values == [b"a", b"b", b"d", b"e"]


@pytest.mark.parametrize("wrong", ["text", 5, None])
def test_list_with_something_else_in_it_is_refused_whole(wrong: object) -> None:
    parcel = packed([b"before"])
    with pytest.raises(TypeError):
        parcel.add_many([b"a", wrong], 0)  # type: ignore[list-item]  # that is what is tried
    assert (parcel.count, parcel.size) == (1, 22)


def test_key_that_is_too_long_is_refused() -> None:
    parcel = Parcel()
    parcel.add(b"", 0, key=bytes(65535))
    with pytest.raises(ValueError, match="65536"):
        parcel.add(b"", 0, key=bytes(65536))
    assert parcel.count == 1


def test_parcel_on_its_way_takes_nothing_more() -> None:
    parcel = packed([b"a"])
    view = memoryview(parcel)
    with pytest.raises(BufferError, match="on its way"):
        parcel.add(b"b", 0)
    assert view.readonly
    view.release()
    parcel.add(b"b", 0)
    assert parcel.count == 2


# ---- coming in -----------------------------------------------------------------------------------------------


@given(st.lists(BODIES, min_size=1, max_size=4), st.data())
def test_messages_are_found_behind_any_lead_in_plain_sets_and_in_batches(
    sets: list[list[bytes]], data: st.DataObject
) -> None:
    whole = b"".join(wrapped(packed(bodies)) if data.draw(st.booleans()) else bytes(packed(bodies)) for bodies in sets)
    bodies = [body for each in sets for body in each]
    lead = data.draw(st.integers(0, len(bodies)))
    count = data.draw(st.integers(0, len(bodies) - lead))
    found = delivered(whole, count, lead=lead)
    wanted = bodies[lead : lead + count]
    assert found.values == wanted
    assert [message.value for message in found] == wanted
    assert [found[at].index for at in range(count)] == list(range(100, 100 + count))
    assert (len(found), found.nbytes, found.next_index) == (count, sum(map(len, wanted)), 100 + count)
    values, ends = found.packed()
    stops = struct.unpack(f"={count + 1}i", ends)
    assert [values[stops[at] : stops[at + 1]] for at in range(count)] == wanted


def test_single_compressed_message_is_inflated() -> None:
    body = zlib.compress(b"long " * 100)
    entry = struct.pack("<IBbHqH1s", 19 + len(body), 0x0A, 0, 0, 5, 1, b"k") + body
    (message,) = delivered(entry, 1)
    assert (message.value, message.key, message.time_ms) == (b"long " * 100, b"k", 5)


@given(BODIES, st.data())
def test_cut_sets_are_refused(bodies: list[bytes], data: st.DataObject) -> None:
    whole = bytes(packed(bodies))
    stop = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError, match=r"truncated|announced|less than a head"):
        delivered(whole[:stop], len(bodies))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    try:
        found = delivered(data, 1)
    except ValueError:
        return
    (message,) = found
    assert (type(message.value), type(message.headers)) == (bytes, list)


def test_bomb_is_refused_before_it_is_held() -> None:
    bomb = wrapped(packed([bytes(1 << 20)]))
    with pytest.raises(ValueError, match="limit"):
        Delivery(bomb, topic="t", partition=0, index=0, lead=0, count=1, inflated_max=1 << 10)


def test_message_outlives_the_bytes_it_came_in() -> None:
    data = bytearray(bytes(packed([b"kept"])))
    message = delivered(data, 1)[-1]
    del data
    assert (message.value, message.key, message.time_ms) == (b"kept", None, 17)


def test_delivery_lets_go_of_what_it_held() -> None:
    data = bytes(packed([b"x"] * 100))
    before = sys.getrefcount(data)
    found = delivered(data, 100)
    messages = list(found)
    assert sys.getrefcount(data) == before + 1
    del found, messages
    assert sys.getrefcount(data) == before


@pytest.mark.parametrize("at", [2, -3])
def test_message_that_is_not_there_is_an_error(at: int) -> None:
    with pytest.raises(IndexError, match="of 2"):
        delivered(packed([b"a", b"b"]), 2)[at]


# ---- acknowledgements ----------------------------------------------------------------------------------------


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_every_acknowledged_message_is_told_and_no_other(order: list[int], looks: set[int]) -> None:
    found, keeper = delivered(packed([b""] * 12), 12), Keeper()
    found.keeper = keeper
    told: list[int] = []
    done: set[int] = set()
    for step, at in enumerate(order):
        found[at].ack()
        found[at].ack()
        done.add(at)
        if step in looks:
            for index, count in found.settled():
                told += range(index - 100, index - 100 + count)
            assert set(told) == done
        assert keeper.finished == ([found] if step == 11 else [])
    for index, count in found.settled():
        told += range(index - 100, index - 100 + count)
    assert set(told) == set(range(12))
    assert found.done == 12
    assert found.settled() == []


def test_what_came_in_order_is_one_range() -> None:
    found = delivered(packed([b""] * 5), 5)
    for at in (0, 1, 3, 4):
        found[at].ack()
    assert found.settled() == [(100, 2), (103, 2)]
    found.ack()
    assert found.done == 5
    assert [index for index, _ in found.settled()] == [102]


def test_nack_gives_the_rest_back() -> None:
    found, keeper = delivered(packed([b""] * 2), 2), Keeper()
    found.keeper = keeper
    found[0].ack()
    found[1].nack(1.5)
    assert keeper.returned == [(found, 1.5)]
    delivered(packed([b""]), 1).nack()  # nobody keeps it
