"""Frames of the original clients, byte for byte, to a server process: every request they make has its answer.

The conversation of JoyQueue's client for Python stands here as it happens: one id for all requests, answers taken as they come,
no answer of more than 4 KiB understood.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.broker.names import app_of
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import HOUSE, NO_BODY, REAL, Head, Status
from serai.doors.jmq.schema.numbers import ONE_WAY, Number
from serai.wire.layout import Form, decode
from tests.core.dressing import encoded
from tests.doors.jmq.caller import Caller
from tests.doors.jmq.kit import messages_of, vectors
from tests.doors.jmq.voice import rows_of
from tests.gate.kit import Running
from tests.oracle.messages import Entry

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from serai.wire.layout import Layout
    from tests.doors.jmq.kit import Vector

PYTHON = Form("real", 2)
REQUESTS = [
    one for one in vectors() if one.header["direction"] == "request" and one.form != HOUSE and one.header["type"] > 2
]
ONE_ID = 78237
READS_AT_MOST = 4100  # bytes of an answer that the Python client takes
AGAIN = {Number.CONNECTION_UNKNOWN, Number.COMMAND_NOT_SUPPORTED, Number.DECODE_ERROR}  # what no original may be told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("originals") / "data") as running:
        yield running


def frame_of(sock: socket.socket) -> bytes:
    """The next frame, whole."""
    data = b""
    while len(data) < 4 or len(data) < int.from_bytes(data[:4], "big"):
        more = sock.recv(int.from_bytes(data[:4], "big") - len(data) if len(data) >= 4 else 4 - len(data))
        assert more, "the server closed the connection"
        data += more
    return data


def taken_apart(raw: bytes, layout: type[Layout], form: Form) -> tuple[Head, int, Layout | None]:
    head, at = decode(Head, raw, form)
    said, at = decode(Status, raw, form, at)
    body = decode(layout, raw, form, at)[0] if head.type != NO_BODY and not said.status else None
    return head, said.status, body


def answered(server: Running, vector: Vector) -> None:
    """One request of an original on a connection of its own, and that the connection goes on."""
    with Caller(server, vector.form, app=app_of(str((vector.payload or {}).get("app") or "shop"))) as caller:
        caller.sock.sendall(vector.raw)
        if vector.header["qosLevel"] != ONE_WAY[vector.form.dialect]:
            kind = commands.COMMANDS[vector.header["type"]]
            head, status, body = taken_apart(frame_of(caller.sock), kind.reply or commands.Heartbeat, vector.form)
            asked = vector.header["requestId"], vector.header["sendTime"], vector.header["version"]
            assert (head.request_id, head.send_time, head.version) == asked
            assert head.type in (-vector.header["type"], NO_BODY)
            assert status not in AGAIN
            assert (body is None) == (head.type == NO_BODY or status > 0)
        assert caller.ask(commands.Heartbeat()).status == 0


def test_every_request_of_the_originals_is_answered_in_its_own_form(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as server:
        for vector in REQUESTS:
            answered(server, vector)
    print(f"{len(REQUESTS)} requests of the originals were answered")
    assert len(REQUESTS) == 70


# ---- the client for Python ---------------------------------------------------------------------------------------------


class PythonClient:
    """Its frames, in its order."""

    def __init__(self, server: Running) -> None:
        self.frames = {one.name: one for one in vectors() if one.source == "python-codec"}
        self.sock = server.knock()

    def ask(self, name: str, raw: bytes | None = None) -> tuple[int, Layout | None, int]:
        """Send one of its frames, or one that it could have sent; status, payload and length of the answer."""
        vector = self.frames[name]
        self.sock.sendall(raw or vector.raw)
        return self.take(commands.COMMANDS[vector.header["type"]].reply or commands.Heartbeat)

    def take(self, layout: type[Layout]) -> tuple[int, Layout | None, int]:
        found = frame_of(self.sock)
        head, status, body = taken_apart(found, layout, PYTHON)
        assert (head.request_id, head.version) == (ONE_ID, 2)
        return status, body, len(found)


def test_python_client_produces_consumes_and_acknowledges(server: Running) -> None:
    client = PythonClient(server)
    with client.sock:
        assert client.ask("py_add_connection/a")[0] == 0
        _, cluster, _ = client.ask("py_metadata/a")
        assert isinstance(cluster, commands.FetchClusterAck)
        assert [group.partitions for group in cluster.topics[0].partition_groups] == [[0]]
        assert [(one.port, one.permission) for one in cluster.brokers] == [(server.port, 3)]
        assert client.ask("py_add_producer/a")[0] == 0
        for at, name in enumerate(("py_produce/a", "py_produce/b")):
            _, placed, _ = client.ask(name)
            assert isinstance(placed, commands.ProduceMessageAck)
            assert [(row.code, one.partition, one.index) for row in placed.data for one in rows_of(row)] == [(0, 0, at)]
        assert client.ask("py_add_consumer/a")[0] == 0
        _, fetched, size = client.ask("py_fetch_topic_message/a")
        assert isinstance(fetched, commands.FetchTopicMessageAck)
        got = messages_of(fetched.data[0].messages)
        assert [(one.index, one.body, one.business_id) for one in got] == [
            (0, b"7 msg", "deault_bussiness_id"), (1, "库存 ✓".encode(), "deault_bussiness_id"),
        ]  # fmt: skip
        assert size <= READS_AT_MOST
        asked = client.frames["py_commit_ack/a"].raw  # it acknowledges indexes 5 and 6 of partition 1
        moved = asked.replace(struct.pack(">hq", 1, 5), struct.pack(">hq", 0, 0)).replace(
            struct.pack(">hq", 1, 6), struct.pack(">hq", 0, 1)
        )
        for raw, code in ((asked, Number.FETCH_NOT_LEADER), (moved.replace(b"\0\1\0\1\0\2", b"\0\1\0\0\0\2"), 0)):
            _, acked, _ = client.ask("py_commit_ack/a", raw)
            assert isinstance(acked, commands.CommitAckAck)
            assert [one.code for one in acked.data[0].partition_data] == [code]


def test_python_client_gets_small_answers_but_always_a_message(server: Running) -> None:
    with Caller(server, REAL, app="test") as caller:
        caller.ask(commands.FetchCluster(topics=["test_topic"], app="test"))
        bodies = [b"a" * 1000] * 10 + [b"b" * 20_000]
        raw = encoded([Entry(3, body, app=b"test", partition=-1) for body in bodies])
        one = commands.Produced(topic="test_topic", tx_id="", timeout=0, qos_level=1, messages=caller.set_of(b"x"))
        one.messages = type(one.messages)(
            [type(one.messages.pieces[0])(memoryview(raw))], len(bodies), one.messages.dress
        )
        assert caller.ask(commands.ProduceMessage(topics=[one], app="test")).status == 0
        caller.ask(commands.AddConsumer(topics=["test_topic"], app="test.abc", sequence=1))
        end = caller.stands("test_topic", app="test.abc").right_index
        assert caller.moves("test_topic", end - len(bodies), app="test.abc") == 0
    client = PythonClient(server)
    with client.sock:
        for name in ("py_add_connection/a", "py_add_consumer/a"):
            assert client.ask(name)[0] == 0
        counts: list[int] = []
        large: list[int] = []
        while sum(counts) < len(bodies):
            _, fetched, size = client.ask("py_fetch_topic_message/a")
            assert isinstance(fetched, commands.FetchTopicMessageAck)
            found = messages_of(fetched.data[0].messages)
            assert found, "an answer without a message"
            counts.append(len(found))
            large += [size] if size > READS_AT_MOST else []
            with Caller(server, REAL, app="test") as other:
                assert other.ack("test_topic", [one.index for one in found], app="test.abc") == 0
    assert len(large) == 1, "only the message that is larger by itself"
    assert max(counts) <= limits.SMALL_ANSWER_BYTES // 1000


def test_python_client_gets_answers_in_the_order_of_its_requests(server: Running) -> None:
    """It has one id for all of them, so a long poll holds up what was asked behind it."""
    client = PythonClient(server)
    with client.sock, Caller(server, REAL, app="test") as sender:
        for name in ("py_add_connection/a", "py_metadata/a", "py_add_consumer/a"):
            client.ask(name)
        sender.ask(commands.FetchCluster(topics=["test_topic"], app="test"))
        assert sender.moves("test_topic", -1, app="test.abc") == 0
        client.sock.sendall(client.frames["py_fetch_topic_message/a"].raw + client.frames["py_metadata/a"].raw)
        client.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.sock.recv(1)
        client.sock.settimeout(10)
        sender.ask(commands.ProduceMessage(topics=[sender.produced("test_topic", b"now")], app="test"))
        _, fetched, _ = client.take(commands.FetchTopicMessageAck)
        assert isinstance(fetched, commands.FetchTopicMessageAck)
        assert [one.body for one in messages_of(fetched.data[0].messages)] == [b"now"]
        assert isinstance(client.take(commands.FetchClusterAck)[1], commands.FetchClusterAck)
