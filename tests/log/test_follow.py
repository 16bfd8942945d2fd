"""tail, tail_async and merge: every way to wait, every way to end, and what an error leaves behind."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import serai
from tests.faults.kit import ROOT
from tests.helpers import finish_python, patch, start_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IDLES: list[Any] = ["backoff", "spin", "yield", 0, 0.0, 0.0005, lambda: time.sleep(0.0001)]
NAMES = ["backoff", "spin", "yield", "0", "0.0", "half a millisecond", "callable"]


def queue_of(folder: Path, numbers: list[int], *, checksum: str | None = None) -> serai.Queue:
    queue = serai.Queue(folder, page_size=4096, checksum=checksum)
    for number in numbers:
        queue.new_message().pack_int(number).write_message()
    return queue


def number_of(message: serai.Message) -> int:
    message.position = 0
    value: int = message.unpack_int()
    return value


# ------------------------------------------------------------------------------------------------ tail


@pytest.mark.parametrize("idle", IDLES, ids=NAMES)
def test_tail_gives_what_is_there_then_what_comes_then_ends(idle: object, tmp_path: Path) -> None:
    with queue_of(tmp_path, [0, 1, 2]) as queue:
        writer = queue.writer()

        def write() -> None:
            for number in range(3, 10):
                time.sleep(0.005)
                writer.new_message().pack_int(number).write_message()

        thread = threading.Thread(target=write)
        thread.start()
        found = [m.unpack_int() for m in serai.tail(queue.reader(), idle, timeout=1.0)]  # type: ignore[arg-type]
        thread.join()
    assert found == list(range(10))


@pytest.mark.parametrize("idle", IDLES, ids=NAMES)
def test_tail_of_nothing_ends_after_its_timeout(idle: object, tmp_path: Path) -> None:
    with serai.Queue(tmp_path) as queue:
        begin = time.monotonic()
        assert list(serai.tail(queue.reader(), idle=idle, timeout=0.05)) == []  # type: ignore[arg-type]
        assert 0.05 <= time.monotonic() - begin < 2


def test_timeout_counts_from_the_last_message(tmp_path: Path) -> None:
    with queue_of(tmp_path, [0]) as queue:
        tail = serai.tail(queue.reader(), timeout=0.5)
        assert next(tail) is not None
        for number in range(1, 4):
            time.sleep(0.2)
            queue.new_message().pack_int(number).write_message()
            assert number_of(next(tail)) == number
        begin = time.monotonic()
        assert next(tail, None) is None
        assert time.monotonic() - begin >= 0.5


def test_timeout_of_zero_takes_what_is_there(tmp_path: Path) -> None:
    with queue_of(tmp_path, [0, 1, 2]) as queue:
        assert [m.unpack_int() for m in serai.tail(queue.reader(), timeout=0)] == [0, 1, 2]


def test_tail_that_ended_goes_on_when_it_is_asked_again(tmp_path: Path) -> None:
    with queue_of(tmp_path, [0]) as queue:
        reader = queue.reader()
        assert len(list(serai.tail(reader, timeout=0))) == 1
        queue.new_message().pack_int(1).write_message()
        assert [m.unpack_int() for m in serai.tail(reader, timeout=0)] == [1]


def test_callable_is_called_between_looks_and_may_end_the_wait(tmp_path: Path) -> None:
    calls: list[int] = []

    class Enough(Exception):
        pass

    def idle() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            queue.new_message().pack_int(7).write_message()
        if len(calls) == 10:
            raise Enough

    with queue_of(tmp_path, []) as queue:
        tail = serai.tail(queue.reader(), idle)
        assert number_of(next(tail)) == 7
        assert len(calls) == 3
        with pytest.raises(Enough):
            next(tail)


@pytest.mark.parametrize("idle", ["", "sleep", "BACKOFF", -1, -0.001, float("nan")])
def test_other_ways_to_wait_are_refused_at_once(idle: object, tmp_path: Path) -> None:
    with serai.Queue(tmp_path) as queue, pytest.raises(serai.Misuse, match="idle"):
        serai.tail(queue.reader(), idle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "idle", ["backoff", "yield", 0.001, lambda: time.sleep(0.001)], ids=["backoff", "yield", "seconds", "call"]
)
def test_waiting_leaves_the_processor_to_others(idle: Any, tmp_path: Path) -> None:
    """Also in front of an entry that a stopped producer has claimed, where something is there and nothing to read."""
    with serai.MultiQueue(tmp_path, name="AA0", page_size=4096) as queue:
        queue.writer().append(b"x")
        patch(tmp_path / "0.qx", 24, b"\x01\0\0\0" + b"AA0"[::-1])
        calls: Counter[str] = Counter()

        def profile(_frame: object, event: str, function: object) -> None:
            if event == "c_call":
                calls[getattr(function, "__name__", "")] += 1

        sys.setprofile(profile)
        try:
            found = list(serai.tail(queue.reader(), idle, timeout=0.1))
        finally:
            sys.setprofile(None)
    assert len(found) == 1
    assert calls["sched_yield" if idle == "yield" else "sleep"] > 5


def test_tail_survives_a_damaged_message(tmp_path: Path) -> None:
    with queue_of(tmp_path, list(range(6)), checksum="index24") as queue:
        patch(tmp_path / "0.qd", 8, b"\xff")
        tail, found, places = serai.tail(queue.reader(), timeout=0), [], []
        while True:
            try:
                found.append(number_of(next(tail)))
            except serai.Corrupt as error:
                found.append(-1)
                places.append(error.position)
            except StopIteration:
                break
    assert places == [32]
    assert found == [0, 1, -1, 3, 4, 5]


TAIL = """
    import sys, serai
    folder, idle, kind = sys.argv[1:]
    queue = serai.MultiQueue(folder) if kind == "several" else serai.Queue(folder, "r")
    print("ready", flush=True)
    seen = 0
    for m in serai.tail(queue.reader(), idle=idle, timeout=20):
        if m.size == 0:
            break
        assert (m.offset, m.unpack_int()) == (16 * seen, seen), (m.offset, seen)
        seen += 1
    print(seen)
"""


@pytest.mark.parametrize("kind", ["single", "several"])
@pytest.mark.parametrize("idle", ["backoff", "spin", "yield"])
def test_tail_in_another_process_follows_the_writer(idle: str, kind: str, tmp_path: Path) -> None:
    count = 5000
    followers = [start_python(TAIL, tmp_path, idle, kind) for _ in range(2)]
    for follower in followers:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "ready\n"
    single = kind == "single"
    with (
        serai.Queue(tmp_path, page_size=4096)
        if single
        else serai.MultiQueue(tmp_path, name="AA0", page_size=4096) as queue
    ):
        writer = queue.writer()
        for number in range(count):
            writer.new_message().pack_int(number).write_message()
            if number % 500 == 0:
                time.sleep(0.005)
        writer.append(b"")
        assert [finish_python(follower) for follower in followers] == [f"{count}\n"] * 2


ECHO = """
    import sys, serai
    sys.path.insert(0, sys.argv[2])  # where the tests are
    from tests.log.test_follow import open_hop
    here, there = open_hop(sys.argv[1])
    print("ready", flush=True)
    for m in serai.tail(here.reader(), idle="spin", timeout=20):
        number = m.unpack_int()
        there.new_message().pack_int(number + 1).write_message()
        if number < 0:
            break
"""


def open_hop(folder: str) -> tuple[serai.Queue, serai.Queue]:
    return serai.Queue(f"{folder}/there", page_size=1 << 16), serai.Queue(f"{folder}/back", page_size=1 << 16)


def test_hop_between_two_processes_and_back(tmp_path: Path) -> None:
    there, back = open_hop(str(tmp_path))
    echo = start_python(ECHO, tmp_path, ROOT)
    assert echo.stdout is not None
    assert echo.stdout.readline() == "ready\n"
    answers, times = serai.tail(back.reader(), idle="spin", timeout=20), []
    for number in [*range(500), -1]:
        begin = time.perf_counter()
        there.new_message().pack_int(number).write_message()
        assert number_of(next(answers)) == number + 1
        times.append(time.perf_counter() - begin)
    finish_python(echo)
    for queue in (there, back):
        queue.close()
    times.sort()
    print(f"\n501 hops there and back: p50 {1e6 * times[250]:.1f} us, p99 {1e6 * times[495]:.1f} us")
    assert len(times) == 501  # that it works is the fact here; how fast is benchmarks/queue.py's


# ------------------------------------------------------------------------------------------------ tail_async


def gather(*tails: Any) -> list[list[int]]:
    async def take(tail: Any) -> list[int]:
        return [message.unpack_int() async for message in tail]

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(take(tail) for tail in tails))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("idle", [0, 0.0005, 0.001, 0.02])
def test_tail_async_gives_what_is_there_then_what_comes_then_ends(idle: float, tmp_path: Path) -> None:
    async def write(queue: serai.Queue) -> None:
        for number in range(3, 8):
            await asyncio.sleep(0.01)
            queue.new_message().pack_int(number).write_message()

    async def both(queue: serai.Queue) -> list[int]:
        writing = asyncio.create_task(write(queue))
        found = [m.unpack_int() async for m in serai.tail_async(queue.reader(), idle, timeout=0.1)]
        await writing
        return found

    with queue_of(tmp_path, [0, 1, 2]) as queue:
        assert asyncio.run(both(queue)) == list(range(8))


def test_async_tails_share_the_loop(tmp_path: Path) -> None:
    """A full queue must not starve the others: all of them see the end of a slow one."""
    full = queue_of(tmp_path / "full", list(range(5000)))
    slow = queue_of(tmp_path / "slow", [1])
    order: list[str] = []

    async def take(name: str, queue: serai.Queue) -> int:
        count = 0
        async for _ in serai.tail_async(queue.reader(), timeout=0.05):
            order.append(name)
            count += 1
        return count

    async def all_of_them() -> tuple[int, int]:
        return await asyncio.gather(take("full", full), take("slow", slow))

    with full, slow:
        assert tuple(asyncio.run(all_of_them())) == (5000, 1)
    assert order.index("slow") < 1000


def test_tail_async_of_nothing_ends_and_leaves_the_loop_free(tmp_path: Path) -> None:
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def wait(queue: serai.Queue) -> list[int]:
        ticking = asyncio.create_task(tick())
        found = [m.unpack_int() async for m in serai.tail_async(queue.reader(), timeout=0.1)]
        ticking.cancel()
        return found

    with serai.Queue(tmp_path) as queue:
        assert asyncio.run(wait(queue)) == []
    assert len(ticks) > 2  # a loop that is held for the whole time lets one pass before, and one behind it


def test_tail_async_survives_a_damaged_message_and_can_be_cancelled(tmp_path: Path) -> None:
    async def read(queue: serai.Queue) -> list[int]:
        tail, found = serai.tail_async(queue.reader(), timeout=5), list[int]()
        while len(found) < 6:
            try:
                found.append(number_of(await anext(tail)))
            except serai.Corrupt:
                found.append(-1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(tail), 0.05)
        queue.new_message().pack_int(6).write_message()
        found.append(number_of(await anext(tail)))
        return found

    with queue_of(tmp_path, list(range(6)), checksum="index24") as queue:
        patch(tmp_path / "0.qd", 8, b"\xff")
        assert asyncio.run(read(queue)) == [0, 1, -1, 3, 4, 5, 6]


@pytest.mark.parametrize("idle", [-1, -0.5, float("nan")])
def test_async_pause_of_negative_length_is_refused_at_once(idle: float, tmp_path: Path) -> None:
    with serai.Queue(tmp_path) as queue, pytest.raises(serai.Misuse, match="idle"):
        serai.tail_async(queue.reader(), idle)


def test_tails_in_one_call_of_gather(tmp_path: Path) -> None:
    queues = [queue_of(tmp_path / str(number), [number] * 3) for number in range(4)]
    assert gather(*(serai.tail_async(queue.reader(), timeout=0) for queue in queues)) == [[n] * 3 for n in range(4)]
    for queue in queues:
        queue.close()


# ------------------------------------------------------------------------------------------------ merge


def merged(
    folder: Path, streams: list[list[int]], key: Callable[[serai.Message], Any] = number_of
) -> list[tuple[int, int]]:
    """(value, number of the stream) in the order of the merge."""
    queues = [serai.Queue(folder / str(number), page_size=64) for number in range(len(streams))]
    for index, (queue, values) in enumerate(zip(queues, streams, strict=True)):
        for value in values:
            queue.new_message().pack_int(value).pack_int(index).write_message()
    found = [
        m.unpack("int", "int")
        for m in serai.merge([queue.reader() for queue in queues], key=lambda m: key(m) and back(m))
    ]
    for queue in queues:
        queue.close()
    return found


def back(message: serai.Message) -> int:
    """The key, with the cursor where it was: a merge hands the message on as the key function left it."""
    message.position = 0
    value: int = message.unpack_int()
    message.position = 0
    return value


def test_merge_orders_by_key(tmp_path: Path) -> None:
    dice = Random(3)
    streams = [sorted(dice.randrange(1, 500) for _ in range(100)) for _ in range(5)]
    found = merged(tmp_path, streams)
    assert [value for value, _ in found] == sorted(value for stream in streams for value in stream)
    for index, stream in enumerate(streams):
        assert [value for value, of in found if of == index] == stream


def test_merge_keeps_the_order_of_readers_for_equal_keys(tmp_path: Path) -> None:
    found = merged(tmp_path, [[1, 2, 2, 3], [1, 2, 3, 3], [2, 2, 3]])
    assert found == [(1, 0), (1, 1), (2, 0), (2, 0), (2, 1), (2, 2), (2, 2), (3, 0), (3, 1), (3, 1), (3, 2)]
    assert found == sorted(found)


@pytest.mark.parametrize("streams", [[], [[]], [[], []], [[1]], [[], [1, 2], []], [[1], [1], [1]]])
def test_merge_of_few_or_no_messages(streams: list[list[int]], tmp_path: Path) -> None:
    assert merged(tmp_path, streams) == sorted((value, i) for i, stream in enumerate(streams) for value in stream)


def test_merge_by_offset_begins_where_each_reader_stands(tmp_path: Path) -> None:
    """The seed's example: ids of several queues in one order, one reader at 0 and one at an offset."""
    with queue_of(tmp_path / "a", list(range(20))) as a, queue_of(tmp_path / "b", list(range(100, 120))) as b:
        found = [(m.offset, number_of(m)) for m in serai.merge([a.reader(0), b.reader(208)], key=lambda m: m.offset)]
    assert [offset for offset, _ in found] == sorted(offset for offset, _ in found)
    assert Counter(value >= 100 for _, value in found) == {False: 20, True: 7}
    assert all(first <= second for first, second in pairwise(found))


def test_merge_takes_tails_and_any_iterator_of_messages(tmp_path: Path) -> None:
    with queue_of(tmp_path / "a", [1, 4]) as a, queue_of(tmp_path / "b", [2, 3]) as b:
        readers = [serai.tail(a.reader(), timeout=0.01), iter(b.reader())]
        assert [number_of(m) for m in serai.merge(readers, key=number_of)] == [1, 2, 3, 4]


def test_merge_over_damage_loses_only_the_damaged(tmp_path: Path) -> None:
    """The error comes out once; what had been taken from the other readers by then is still given."""
    evens = queue_of(tmp_path / "a", list(range(0, 20, 2)), checksum="index24")
    odds = queue_of(tmp_path / "b", list(range(1, 20, 2)), checksum="index24")
    patch(tmp_path / "a" / "0.qd", 4 * 4, b"\xff")  # 8
    patch(tmp_path / "b" / "0.qd", 0, b"\xff")  # 1, the first of its reader
    with evens, odds:
        merging, found, errors = serai.merge([evens.reader(), odds.reader()], key=number_of), [], 0
        while True:
            try:
                found.append(number_of(next(merging)))
            except serai.Corrupt:
                errors += 1
            except StopIteration:
                break
    assert errors == 2
    assert found == [number for number in range(20) if number not in (1, 8)]


def test_merge_over_a_key_that_fails_says_so_and_goes_on(tmp_path: Path) -> None:
    def key(message: serai.Message) -> int:
        value = number_of(message)
        if value == 2:
            raise KeyError(value)
        return value

    with queue_of(tmp_path / "a", [0, 2, 4]) as a, queue_of(tmp_path / "b", [1, 3, 5]) as b:
        merging, found = serai.merge([a.reader(), b.reader()], key=key), []
        while True:
            try:
                found.append(number_of(next(merging)))
            except KeyError:
                found.append(-2)
            except StopIteration:
                break
    assert sorted(found) == [-2, 0, 1, 3, 4, 5]
    assert [value for value in found if value >= 0] == [0, 1, 3, 4, 5]


def test_merge_goes_on_when_messages_follow(tmp_path: Path) -> None:
    with queue_of(tmp_path / "a", [1]) as a, queue_of(tmp_path / "b", [2]) as b:
        readers = [a.reader(), b.reader()]
        assert [number_of(m) for m in serai.merge(readers, key=number_of)] == [1, 2]
        a.new_message().pack_int(3).write_message()
        assert [number_of(m) for m in serai.merge(readers, key=number_of)] == [3]


def test_merge_over_a_dead_producer_goes_on(tmp_path: Path) -> None:
    with serai.MultiQueue(tmp_path / "m", name="AA0", page_size=4096) as queue:
        for number in (1, 3, 5):
            queue.new_message().pack_int(number).write_message()
    patch(tmp_path / "m" / "0.qx", 31, b"\0")
    with serai.MultiQueue(tmp_path / "m") as several, queue_of(tmp_path / "s", [2, 4]) as single:
        readers = [serai.tail(several.reader(), timeout=0.05), single.reader()]
        merging, found = serai.merge(readers, key=number_of), []
        while True:
            try:
                found.append(number_of(next(merging)))
            except serai.DeadProducer as error:
                found.append(-error.offset)
            except StopIteration:
                break
    assert found == [1, -16, 2, 4, 5]
