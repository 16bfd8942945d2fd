"""Both faces of the client, for plain programs and for asyncio, against a server process: the same dialogues for each.

A dialogue is written once, with `await` everywhere; what the plain client gives is not awaited, because it is there already.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import serai
from serai.client import line as lines
from serai.errors import Backpressure, Closed, Misuse, OutcomeUnknown, Refused, SeraiError, TooLarge, Unreachable
from tests.gate.kit import Running, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

FACES = {"plain": serai.Client, "asyncio": serai.aio.Client}
EACH = pytest.mark.parametrize("face", FACES.values(), ids=FACES.keys())
SOON_S = 10.0
GROUP = "shop"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("client") / "data") as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


# ---- one language for both faces -----------------------------------------------------------------------------------


async def there(value: Any) -> Any:
    """What a call gives: awaited, if it has to be."""
    return await value if inspect.isawaitable(value) else value


async def outcome(sent: Any) -> Any:
    """Where a message is, or the error that says why it is not."""
    return sent.result(SOON_S * 3) if hasattr(sent, "result") else await asyncio.wait_for(sent, SOON_S * 3)


@asynccontextmanager
async def opened(room: Any) -> AsyncIterator[Any]:
    if hasattr(room, "__aenter__"):
        async with room:
            yield room
    else:
        with room:
            yield room


async def taken(room: Any, count: int, timeout_s: float = SOON_S) -> list[Any]:
    """So many messages, or as many as come in time; none is acknowledged."""
    found: list[Any] = []
    messages = room.messages(timeout_s)
    if hasattr(messages, "__anext__"):
        async for message in messages:
            found.append(message)
            if len(found) == count:
                break
    else:
        for message in messages:
            found.append(message)
            if len(found) == count:
                break
    return found


def run(dialogue: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(dialogue, 60))


def client_of(face: Callable[..., Any], server: Running, **words: Any) -> Any:
    return face(f"127.0.0.1:{server.port}", app=GROUP, **words)


async def produced(client: Any, topic: str, count: int, **manner: Any) -> None:
    async with opened(client.producer(topic, **manner)) as producer:
        await outcome(await there(producer.send_many([b"%d" % at for at in range(count)])))


def numbers(messages: list[Any]) -> list[int]:
    return [int(message.value) for message in messages]


# ---- messages in ---------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("level", ["commit", "receive"])
def test_messages_are_sent_alone_and_in_lists_and_say_where_they_are(
    face: Any, level: Any, server: Running, topic: str
) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client, opened(client.producer(topic, level=level)) as producer:
            one = await there(producer.send(b"a", key="k", headers={"h": "1"}, priority=3, flag=9))
            many = await there(producer.send_many([b"b", b"c"]))
            first, second = await outcome(one), await outcome(many)
            assert [(each.partition, each.index, each.count) for each in (first, second)] == [(0, 0, 1), (0, 1, 2)]
            async with opened(client.reader(topic, start="start")) as reader:
                got = await taken(reader, 3)
            assert [(each.value, each.index) for each in got] == [(b"a", 0), (b"b", 1), (b"c", 2)]
            assert (got[0].key, got[0].headers, got[0].priority, got[0].flag) == (b"k", [(b"h", b"1")], 3, 9)
            assert abs(got[0].time_ms / 1000 - time.time()) < 60

    run(dialogue())


@EACH
@pytest.mark.parametrize(
    ("manner", "requests"),
    [
        ({"batch_count": 10, "linger_s": 5.0}, 6), ({"batch_bytes": 17 * 100, "linger_s": 5.0}, 4),
        ({"linger_s": 0.0}, 60), ({"linger_s": 0.2}, 1),
    ],
    ids=["by count", "by bytes", "each", "by time"],
)  # fmt: skip
def test_messages_are_gathered_by_count_bytes_and_time(
    face: Any, manner: Any, requests: int, server: Running, topic: str
) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client, opened(client.producer(topic, **manner)) as producer:
            sent = [await there(producer.send(b"%08d" % at + bytes(92))) for at in range(60)]
            if manner["linger_s"] < 1:
                deadline_s = time.monotonic() + SOON_S  # nobody waits for it: it is sent by itself
                while not sent[-1].done():
                    assert time.monotonic() < deadline_s
                    await asyncio.sleep(0.01)
            places = [await outcome(each) for each in sent]
            assert [each.index for each in places] == list(range(60))
            gathered = len({id(each._receipt.request) for each in sent})
            assert gathered >= requests if "batch_bytes" in manner else gathered == requests

    run(dialogue())


@EACH
def test_keys_stay_in_one_partition_and_compressed_batches_come_back(face: Any, server: Running, topic: str) -> None:
    server.ask("POST", "/api/v1/topics", {"name": topic, "partitions": 4})

    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            async with opened(client.producer(topic, compression="zlib")) as producer:
                sent = [await there(producer.send(b"%d " % at * 60, key=f"k{at % 3}")) for at in range(90)]
                places = [await outcome(each) for each in sent]
            assert all(len({each.partition for each in places[at::3]}) == 1 for at in range(3))
            async with opened(client.reader(topic, start="start")) as reader:
                got = await taken(reader, 90)
        for at in range(3):
            mine = [each.value for each in got if each.key == b"k%d" % at]
            assert mine == [b"%d " % number * 60 for number in range(at, 90, 3)]

    run(dialogue())


@EACH
def test_what_cannot_be_stored_is_an_error_of_its_kind(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            async with opened(client.producer(topic)) as producer:
                with pytest.raises(Refused) as caught:
                    await outcome(await there(producer.send(b"x", partition=7)))
                assert not isinstance(caught.value, OutcomeUnknown)
                with pytest.raises(TooLarge):
                    await there(producer.send(bytes(101 << 20)))
                with pytest.raises(Misuse):
                    await there(producer.send_many([]))
                assert (await outcome(await there(producer.send(b"fine")))).index == 0
            with pytest.raises(Closed):
                await there(producer.send(b"late"))
            with pytest.raises(Refused):
                async with opened(client.producer("a/b")):
                    pass

    run(dialogue())


@EACH
def test_nobody_there_is_unreachable_at_once(face: Any) -> None:
    async def dialogue() -> None:
        started = time.monotonic()
        with pytest.raises(Unreachable, match="no server answers"):
            async with opened(face(f"127.0.0.1:{free_port()}").producer("t")):
                pass
        assert time.monotonic() - started < 5

    run(dialogue())


# ---- a server that does not answer -----------------------------------------------------------------------------------


@asynccontextmanager
async def asleep(server: Running) -> AsyncIterator[None]:
    """The server's process is stopped for a while."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@EACH
def test_answer_that_does_not_come_is_unknown_and_not_failed(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            producer = client.producer(topic, timeout_s=0.3, linger_s=0.0)
            async with opened(producer):
                await outcome(await there(producer.send(b"first")))
                async with asleep(server):
                    with pytest.raises(OutcomeUnknown):
                        await outcome(await there(producer.send(b"unknown")))
                place = await outcome(await there(producer.send(b"third")))
                assert place.index in (1, 2)  # the unknown one may be there

    run(dialogue())


@EACH
def test_too_much_on_its_way_waits_and_then_is_backpressure(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            producer = client.producer(topic, timeout_s=1.0, window_bytes=100_000, batch_bytes=20_000)
            async with opened(producer):
                async with asleep(server):
                    held: list[Any] = []
                    with pytest.raises(Backpressure):
                        await filled(producer, held)
                    assert 5 <= len(held) <= 20
                places = [await outcome(each) for each in held if not await failed(each)]
                assert [each.index for each in places] == sorted(each.index for each in places)
                assert (await outcome(await there(producer.send(b"there is room again")))).index >= len(places)

    async def filled(producer: Any, held: list[Any]) -> None:
        for _ in range(100):
            held.append(await there(producer.send(bytes(10_000))))  # noqa: PERF401 - the last one raises

    async def failed(sent: Any) -> bool:
        try:
            await outcome(sent)
        except SeraiError:
            return True
        return False

    run(dialogue())


@EACH
def test_fast_sender_waits_for_room_and_loses_nothing(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            async with opened(client.producer(topic, window_bytes=200_000, level="receive")) as producer:
                sent = [await there(producer.send(b"%d" % at + bytes(5000))) for at in range(2000)]
                await there(producer.flush())
                assert all(each.done() for each in sent)
            assert [(await outcome(each)).index for each in sent] == list(range(2000))

    run(dialogue())


# ---- messages out ----------------------------------------------------------------------------------------------------


@EACH
def test_consumer_goes_on_behind_what_was_acknowledged(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            await produced(client, topic, 10)
            async with opened(client.consumer(topic, group=GROUP, count=4)) as consumer:
                for message in await taken(consumer, 3):
                    message.ack()
            async with opened(client.consumer(topic, group=GROUP)) as consumer:
                got = await taken(consumer, 7)
                assert numbers(got) == [3, 4, 5, 6, 7, 8, 9]
                for message in got[::2]:  # in any order, single ones
                    message.ack()
            async with opened(client.consumer(topic, group=GROUP)) as consumer:
                rest = []
                for _ in range(3):
                    (message,) = await taken(consumer, 1)
                    message.ack()
                    rest.append(message)
                assert numbers(rest) == [4, 6, 8]  # what was acknowledged is stepped over

    run(dialogue())


@EACH
def test_message_given_back_comes_again_after_its_delay(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            await produced(client, topic, 2)
            async with opened(client.consumer(topic, group=GROUP)) as consumer:
                first, _ = await taken(consumer, 2)
                started = time.monotonic()
                first.nack(0.5)
                assert numbers(await taken(consumer, 2)) == [0, 1]
                assert time.monotonic() - started > 0.4

    run(dialogue())


@EACH
def test_lease_that_runs_out_is_delivered_again_unless_it_was_renewed(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            await produced(client, topic, 1)
            slow = client.consumer(topic, group=GROUP, ack_timeout=0.4)
            other = client.consumer(topic, group=GROUP)
            async with opened(slow), opened(other):
                assert len(await taken(slow, 1)) == 1
                await there(slow.renew(1.0))
                started = time.monotonic()
                assert numbers(await taken(other, 1)) == [0]
                assert 0.6 < time.monotonic() - started < SOON_S

    run(dialogue())


@EACH
def test_deliveries_come_as_lists_and_are_acknowledged_at_once(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            await produced(client, topic, 100)
            async with opened(client.consumer(topic, group=GROUP)) as consumer:
                delivery = await there(consumer.fetch_many(60, timeout=SOON_S))
                assert (delivery.count, delivery.values[0], delivery[-1].value) == (60, b"0", b"59")
                delivery.ack()
                await there(consumer.flush())
                (standing,) = await there(consumer.standing())
                assert (standing.index, standing.first, standing.end) == (60, 0, 100)
            async with opened(client.consumer(topic, group=GROUP, auto_ack=True)) as consumer:
                assert (await there(consumer.fetch_many(30, timeout=SOON_S))).count == 30
                assert (await there(consumer.fetch_many(30, timeout=SOON_S))).count == 10
                assert await there(consumer.fetch_many(30, timeout=0.2)) is None
                assert [each.index for each in await there(consumer.standing())] == [100]

    run(dialogue())


@EACH
def test_group_and_reader_are_moved_to_an_index_a_time_the_start_and_the_end(
    face: Any, server: Running, topic: str
) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client:
            await produced(client, topic, 5)
            await asyncio.sleep(0.05)
            moment = datetime.now(UTC)
            await asyncio.sleep(0.05)
            await produced(client, topic, 3)
            rooms = client.consumer(topic, group=GROUP), client.reader(topic, start="end")
            async with opened(rooms[0]), opened(rooms[1]):
                for room in rooms:
                    for to, first in (("start", 0), (2, 2), (moment, 5), (7, 7)):
                        await there(room.seek(to))
                        assert (await taken(room, 1))[0].index == first, to
                    await there(room.seek("end"))
                    assert await taken(room, 1, 0.2) == []
                    with pytest.raises(SeraiError):
                        await beyond(room)
                    for wrong in ("middle", -1, datetime(2026, 1, 1)):  # noqa: DTZ001 - no zone is what is wrong
                        with pytest.raises(Misuse):
                            await there(room.seek(wrong))

    async def beyond(room: Any) -> None:
        await there(room.seek(99))
        await taken(room, 1, 0.2)

    run(dialogue())


@EACH
def test_waiting_consumer_is_given_what_comes(face: Any, server: Running, topic: str) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client, opened(client.consumer(topic, group=GROUP)) as consumer:
            later = threading.Timer(
                0.3, lambda: server.ask("POST", f"/api/v1/topics/{topic_path}/records", {"records": [{"value": "now"}]})
            )
            later.start()
            started = time.monotonic()
            assert [each.value for each in await taken(consumer, 1)] == [b"now"]
            assert 0.2 < time.monotonic() - started < SOON_S
            later.join()

    topic_path = topic.replace("[", "%5B").replace("]", "%5D")
    run(dialogue())


# ---- a server that goes and comes ------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
def test_clients_outlive_a_server_that_is_started_again(face: Any, how: str, tmp_path: Path) -> None:
    async def dialogue(server: Running) -> None:
        async with opened(client_of(face, server)) as client:
            producer = client.producer("t", linger_s=0.0)
            consumer, reader = client.consumer("t", group=GROUP), client.reader("t", start="start")
            async with opened(producer), opened(consumer), opened(reader):
                assert (await outcome(await there(producer.send(b"0")))).index == 0
                (got,) = await taken(consumer, 1)
                got.ack()
                await there(consumer.flush())
                assert numbers(await taken(reader, 1)) == [0]
                server.kill() if how == "kill -9" else server.end()
                sent = await there(producer.send(b"1"))  # nobody is there: it waits
                back = threading.Timer(0.3, server.start)
                back.start()
                place = await late(producer, sent)
                back.join()
                assert place.index == 1
                assert numbers(await taken(consumer, 1, 20)) == [1]  # what was acknowledged does not come again
                assert numbers(await taken(reader, 1, 20)) == [1]

    async def late(producer: Any, sent: Any) -> Any:
        try:
            return await outcome(sent)
        except OutcomeUnknown:  # it was on its way when the connection broke: here surely not stored
            return await outcome(await there(producer.send(b"1")))

    with Running(tmp_path / "data", flags=("--port", str(free_port()))) as server:
        run(dialogue(server))


@EACH
def test_sigterm_under_load_loses_nothing_that_was_told(face: Any, tmp_path: Path) -> None:
    async def dialogue(server: Running) -> list[int]:
        told: list[int] = []
        async with opened(client_of(face, server)) as client, opened(client.producer("t", timeout_s=3.0)) as producer:
            ending = threading.Timer(0.5, server.end)
            ending.start()
            while server.process.poll() is None:
                sent = [await there(producer.send(b"%d" % at)) for at in range(50)]
                try:
                    told += [(await outcome(each)).index for each in sent]
                except SeraiError:
                    break
            ending.join()
        return told

    with Running(tmp_path / "data") as server:
        told = asyncio.run(dialogue(server))
        assert server.process.wait(20) == 0
        assert told == list(range(len(told)))
        assert len(told) > 50
        server.start()
        assert server.ask("GET", "/api/v1/topics/t")[1]["partitions"][0]["end"] >= len(told)


@EACH
def test_partitions_that_were_added_are_found_by_the_timer(
    face: Any, server: Running, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dialogue() -> None:
        async with opened(client_of(face, server)) as client, opened(client.producer(topic, linger_s=0.0)) as producer:
            await outcome(await there(producer.send(b"0")))
            with pytest.raises(Refused):
                await outcome(await there(producer.send(b"x", partition=1)))
            path = topic.replace("[", "%5B").replace("]", "%5D")
            assert server.ask("PATCH", f"/api/v1/topics/{path}", {"partitions": 3})[0] == 200
            monkeypatch.setattr(lines, "REFRESH_S", 0.1)
            await asyncio.sleep(0.2)
            await outcome(await there(producer.send(b"1")))
            assert len(producer._line.ownership[topic].partitions) == 3
            assert (await outcome(await there(producer.send(b"y", partition=2)))).partition == 2

    run(dialogue())


def test_fetch_that_is_cancelled_loses_nothing(server: Running, topic: str) -> None:
    async def dialogue() -> None:
        client = serai.aio.Client(f"127.0.0.1:{server.port}", app=GROUP)
        async with client, client.consumer(topic, group=GROUP) as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.fetch_many(timeout=20), 0.2)
            await produced(client, topic, 3)
            delivery = await consumer.fetch_many(timeout=SOON_S)
            assert delivery is not None
            assert delivery.values == [b"0", b"1", b"2"]

    run(dialogue())


def test_plain_producer_serves_many_threads(server: Running, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serai.Client(f"127.0.0.1:{server.port}", app=GROUP) as client:
        producer = client.producer(topic, level="receive")
        places: list[int] = []

        def work(who: int) -> None:
            sent = [producer.send(b"%d-%d" % (who, at)) for at in range(200)]
            places.extend(each.result(SOON_S).index for each in sent)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(places) == list(range(1600))
    assert caplog.records == []


def test_plain_outcome_is_learned_of_although_nobody_waits(server: Running, topic: str) -> None:
    with serai.Client(f"127.0.0.1:{server.port}", app=GROUP) as client:
        producer = client.producer(topic, linger_s=0.0)
        learned = threading.Event()
        sent = producer.send(b"x")
        sent.when_done(learned.set)
        assert learned.wait(SOON_S)
        assert sent.result(0).index == 0
