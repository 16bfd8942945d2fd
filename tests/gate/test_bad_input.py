"""Bad input on the port: the right error or the end of the connection, at once, in little memory, and nobody beside it notices."""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import REAL, SEED
from serai.wire.buffer import Span
from serai.wire.sets import Messages
from tests.core.dressing import encoded
from tests.doors.jmq.caller import Caller
from tests.doors.jmq.kit import hello
from tests.gate.kit import Running, until_closed
from tests.oracle import messages as oracle
from tests.oracle.messages import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC = b"\xca\xfe\xbe\xbe"
TRIES = 5  # a loaded machine may be slow to run the server at all: the best of them counts
AT_ONCE_S = 0.1
LITTLE_KIB = 4096


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("bad") / "data") as running:
        with Caller(running, REAL) as caller:  # whatever is loaded by the first guest is
            caller.looks_up("t")
            caller.produce("t", b"x")
            caller.bodies(caller.read("t", 0))
        yield running


def best_s(attempt: Callable[[], None]) -> float:
    """The shortest of some attempts."""
    spent = []
    for _ in range(TRIES):
        started = time.monotonic()
        attempt()
        spent.append(time.monotonic() - started)
    return min(spent)


def frame(body: bytes, code: int, *, length: int | None = None, version: int = 4, magic: bytes = MAGIC) -> bytes:
    """A request, its length as it is or as somebody claims."""
    size = 23 + len(body) if length is None else length
    return (
        (size & 0xFFFFFFFF).to_bytes(4, "big")
        + magic
        + bytes([version, 2])
        + bytes(4)
        + bytes([code])
        + bytes(8)
        + body
    )


NO_FRAMES = {
    "length 0": frame(b"", 7, length=0),
    "length 1": frame(b"", 7, length=1),
    "length -1": frame(b"", 7, length=-1),
    "length 2^31-1": frame(b"", 7, length=(1 << 31) - 1),
    "above the limit": frame(b"", 50, length=limits.FRAME_BYTES_MAX + 1),
    "bad magic": frame(b"", 7, magic=b"\xca\xfe\xba\xbe"),
    "an answer": frame(b"", 7)[:9] + b"\x03" + frame(b"", 7)[10:],
}


@pytest.mark.parametrize("hello", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("raw", NO_FRAMES.values(), ids=NO_FRAMES.keys())
def test_what_is_no_frame_is_closed_at_once(server: Running, raw: bytes, hello: bool) -> None:
    with Caller(server, REAL) as neighbour:
        before = server.anonymous_kib()

        def attempt() -> None:
            with Caller(server, REAL, connects=hello) as stranger:
                stranger.sock.sendall(raw)
                said, _ = until_closed(stranger.sock)
                assert said == b""

        assert best_s(attempt) < AT_ONCE_S
        assert server.anonymous_kib() - before < LITTLE_KIB
        assert neighbour.ask(commands.Heartbeat()).status == 0


def many(code: int) -> bytes:
    """Arrays that say 32,767 elements and have none."""
    return {10: b"\x7f\xff", 30: b"\x7f\xff", 50: b"\x7f\xff", 32: b"\0\1\0\1t\x7f\xff"}[code]


PAYLOADS = {
    "an unknown type": (frame(b"", 99), 27),
    "a type of the house": (frame(b"\0\0\0\0", 110), 27),
    "a cut payload": (frame(b"\0\2\0\1t", 10), 28),
    "an empty payload": (frame(b"", 50), 28),
    **{f"32,767 elements in {code}": (frame(many(code), code), 28) for code in (10, 30, 50, 32)},
    "a text of 32,767 bytes": (frame(b"\0\1\x7f\xffabc", 10), 28),
    "a text that is no UTF-8": (frame(b"\0\1\0\2\xff\xfe\0\4shop", 10), 28),
}


@pytest.mark.parametrize(("raw", "status"), PAYLOADS.values(), ids=PAYLOADS.keys())
def test_wrong_payload_is_said_at_once_and_the_connection_goes_on(server: Running, raw: bytes, status: int) -> None:
    with Caller(server, REAL) as neighbour, Caller(server, REAL) as stranger:
        before = server.anonymous_kib()

        def attempt() -> None:
            stranger.sock.sendall(raw)
            answer = stranger.sock.recv(10_000)
            assert (answer[14], answer[23]) == (0x80, status)

        assert best_s(attempt) < AT_ONCE_S
        assert server.anonymous_kib() - before < LITTLE_KIB
        assert stranger.ask(commands.Heartbeat()).status == 0
        assert neighbour.ask(commands.Heartbeat()).status == 0


def test_frame_that_claims_the_limit_and_stays_away_takes_what_it_sent(server: Running) -> None:
    with Caller(server, REAL) as stranger:
        before = server.anonymous_kib()
        stranger.sock.sendall(frame(bytes(1000), 50, length=limits.FRAME_BYTES_MAX))
        time.sleep(0.3)
        assert server.anonymous_kib() - before < LITTLE_KIB


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", ".", "", "a\0b", "a\nb", "x" * 256, "é" * 128])
def test_names_that_nothing_can_be_called_make_nothing(server: Running, name: str) -> None:
    before = sorted(path.name for path in server.data.parent.rglob("*"))
    with Caller(server, SEED) as caller:

        def attempt() -> None:
            assert [row.code for row in caller.looks_up(name).topics] == [6]
            assert caller.produce(name, b"x").code == 6

        assert best_s(attempt) < AT_ONCE_S
        assert caller.ask(commands.AddConsumer(topics=[name], app="shop", sequence=1)).status == 6
    assert sorted(path.name for path in server.data.parent.rglob("*")) == before


@pytest.mark.parametrize("app", ["../x", "a/b", "x" * 126 + "\x01"])
def test_application_of_a_bad_name_is_not_let_in(server: Running, app: str) -> None:
    with Caller(server, REAL, connects=False) as caller:
        assert caller.ask(hello(app=app)).status == 6
        assert caller.ask(hello()).status == 0


def bomb(plain_bytes: int, *, batch: bool) -> Entry:
    """A body that is small and becomes large."""
    pump = zlib.compressobj(9)
    packed = b"".join(pump.compress(bytes(1 << 20)) for _ in range(plain_bytes >> 20)) + pump.flush()
    return Entry(oracle.REAL, packed, codec=oracle.ZLIB, batch=batch, flag=2)


def inflating_s(packed: bytes) -> float:
    """What this machine needs for as much as may be unpacked at all."""
    started = time.monotonic()
    zlib.decompressobj().decompress(packed, limits.INFLATED_MAX)
    return time.monotonic() - started


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "body"])
@pytest.mark.parametrize("plain_mib", [65, 1024])
def test_body_that_swells_is_refused_at_the_bound(server: Running, plain_mib: int, batch: bool) -> None:
    entry = bomb(plain_mib << 20, batch=batch)
    raw = encoded([entry])
    with Caller(server, REAL) as neighbour, Caller(server, REAL) as stranger:
        before = server.anonymous_kib()

        def attempt() -> None:
            one = stranger.produced("t")
            one.messages = Messages([Span(memoryview(raw))], 1, oracle.REAL)
            reply = stranger.ask(commands.ProduceMessage(topics=[one], app="shop"))
            assert isinstance(reply.body, commands.ProduceMessageAck)
            assert reply.body.data[0].code == 6

        assert best_s(attempt) < AT_ONCE_S + 4 * inflating_s(entry.body)
        assert server.anonymous_kib() - before < limits.INFLATED_MAX >> 10
        assert neighbour.ask(commands.Heartbeat()).status == 0
        assert neighbour.stands("t").right_index == 1


# ---- who takes nothing -------------------------------------------------------------------------------------------------


def inflight(server: Running) -> int:
    line = next(
        line for line in server.ask("GET", "/metrics")[1].splitlines() if line.startswith("serai_inflight_bytes ")
    )
    return int(float(line.split()[1]))


def shown_out(server: Running) -> float:
    lines = server.ask("GET", "/metrics")[1].splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith('serai_frame_errors_total{door="jmq",'))


def test_consumer_that_takes_nothing_costs_at_most_its_cap(server: Running) -> None:
    with Caller(server, REAL) as neighbour, Caller(server, REAL) as stuck:
        neighbour.looks_up("large")
        for _ in range(40):
            assert neighbour.produce("large", *[bytes(50_000)] * 20).code == 0
        before = server.anonymous_kib()
        wishes = [
            commands.PartitionWishes(
                topic="large", partitions=[commands.PartitionWish(partition=0, count=800, index=0)]
            )
        ]
        for _ in range(200):  # 200 MiB, if somebody gathered them
            stuck.tell(commands.FetchPartitionMessage(topics=wishes, app="shop"))
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert inflight(server) <= limits.OUTBOX_BYTES_MAX
            assert neighbour.ask(commands.Heartbeat()).status == 0
        assert inflight(server) > 0
        assert (server.anonymous_kib() - before) * 1024 < 2 * limits.OUTBOX_BYTES_MAX
        while len(stuck.client._awaited) > 190:  # and it goes on once it takes them
            stuck.listen()


def test_waiting_fetches_that_are_all_answered_at_once_are_bounded_too(server: Running) -> None:
    groups = [f"shop.{number}" for number in range(60)]
    with Caller(server, REAL) as sender, Caller(server, REAL) as stuck:
        sender.looks_up("woken")
        for group in groups:
            stuck.registers("woken", app=group)
        before = shown_out(server)
        stuck.tell(*(stuck.fetch_command("woken", poll_ms=60_000, app=group) for group in groups))
        time.sleep(0.2)
        memory = server.anonymous_kib()
        assert sender.produce("woken", bytes(900_000)).code == 0  # 54 MB of answers
        until = time.monotonic() + 10
        while shown_out(server) == before:
            assert inflight(server) <= limits.OUTBOX_BYTES_MAX + limits.ANSWER_BYTES
            assert time.monotonic() < until, "who lets so much come together is shown out"
        assert (server.anonymous_kib() - memory) * 1024 < 2 * limits.OUTBOX_BYTES_MAX
        assert sender.ask(commands.Heartbeat()).status == 0
