"""Connections in pairs, without I/O: who may say what when, what is answered and how, what ends a connection."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai import limits
from serai._core.frames import Run
from serai.doors.jmq.connection import (
    RULES,
    Act,
    Answer,
    Call,
    Connection,
    Declined,
    Request,
    Role,
    RunAnswer,
    State,
    recognise,
)  # fmt: skip
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.commands import (
    COMMANDS,
    HOUSE_COMMANDS,
    Heartbeat,
    Produced,
    ProduceMessage,
    RemoveConnection,
)  # fmt: skip
from serai.doors.jmq.schema.frame import DRESSES, HOUSE, REAL, SEED, Identity
from serai.doors.jmq.schema.numbers import Number
from serai.errors import Misuse, PeerError
from serai.wire.buffer import Span, flat
from serai.wire.layout import Form
from serai.wire.sets import Messages
from tests.core.dressing import encoded
from tests.doors.jmq.kit import Pair, Vector, agrees, expected, heard, hello, plain, values, vectors
from tests.oracle.messages import Entry

FORMS = [SEED, REAL, HOUSE]
EACH = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)
STEPS = pytest.mark.parametrize("step", [1 << 30, 1, 7], ids=["whole", "bytewise", "by 7"])
VECTORS = vectors()


def opened(form: Form, step: int = 1 << 30) -> Pair:
    pair = Pair(form, step=step)
    seen = pair.ask(hello())
    assert isinstance(seen, Request)
    reply = pair.tell(Answer(seen.head, commands.AddConnectionAck(connection_id="c-1", notification="")))
    assert isinstance(reply.body, commands.AddConnectionAck)
    return pair


def produce(
    form: Form, bodies: list[bytes], *, topic: str = "orders", tx: str = "", partition: int = 0
) -> ProduceMessage:
    found = [
        Entry(DRESSES[form.dialect], body, b"k", partition=partition, send_time=5 + at)
        for at, body in enumerate(bodies)
    ]
    raw = encoded(found)
    messages = Messages([Span(memoryview(raw))], len(found), DRESSES[form.dialect])
    one = Produced(topic=topic, tx_id=tx, timeout=9, qos_level=1, messages=messages)
    if form == HOUSE:
        one.partition = partition
    return ProduceMessage(topics=[one], app="shop")


# ---- state and dialect -----------------------------------------------------------------------------------------------


def test_every_state_says_what_it_does_with_every_act() -> None:
    legal = {State.NEW: {Act.COME}, State.OPEN: set(Act), State.DEAD: set()}
    assert {state: {act for (one, act) in RULES if one is state} for state in State} == legal


@EACH
@STEPS
def test_the_first_command_chooses_the_dialect(form: Form, step: int) -> None:
    pair = opened(form, step)
    assert pair.server.form.dialect == form.dialect
    assert pair.server.hello is not None
    assert pair.server.hello.app == "shop"


@given(data=st.data(), name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), version=st.integers(1, 2))
def test_versions_1_and_2_are_told_apart_by_their_bytes(data: st.DataObject, name: str, version: int) -> None:
    form = data.draw(st.sampled_from([Form("seed", version), Form("real", version)]))
    said = data.draw(values(commands.AddConnection, form))
    said.app = name
    server = Connection(Role.SERVER)
    (seen,) = server.receive(flat(Connection(Role.CLIENT, form=form).send(Call(said, 1, 1))))
    assert isinstance(seen, Request)
    assert server.form.dialect == form.dialect
    assert seen.command == said


@EACH
def test_a_command_before_add_connection_is_declined_with_132(form: Form) -> None:
    pair = Pair(form)
    pair.client.state = State.OPEN
    seen = pair.ask(Heartbeat())
    assert isinstance(seen, Declined)
    reply = pair.tell(seen)
    assert (reply.status, reply.error, reply.head.type) == (132, "connection does not exist", -128)


@EACH
def test_a_refused_client_may_try_again(form: Form) -> None:
    pair = Pair(form)
    seen = pair.ask(hello())
    reply = pair.tell(Answer(seen.head, None, 2, "authentication failed"))
    assert reply.status == 2
    assert (pair.server.state, pair.client.state) == (State.NEW, State.NEW)
    assert isinstance(pair.ask(hello(token="right")), Request)
    assert pair.server.state is State.OPEN


@EACH
def test_after_remove_connection_only_add_connection_is_heard(form: Form) -> None:
    pair = opened(form)
    seen = pair.ask(RemoveConnection())
    assert pair.tell(Answer(seen.head)).head.type == -128
    with pytest.raises(Misuse, match="Heartbeat"):
        pair.call(Heartbeat())
    assert isinstance(pair.ask(hello()), Request)


def test_an_add_connection_that_fits_neither_layout_is_a_parameter_error() -> None:
    raw = bytearray(flat(Connection(Role.CLIENT, form=SEED).send(Call(hello(), 1, 1))))
    raw[23] = 0x7F
    (seen,) = Connection(Role.SERVER).receive(bytes(raw))
    assert isinstance(seen, Declined)
    assert seen.status == 6


def test_a_client_needs_a_form_and_a_server_none() -> None:
    with pytest.raises(Misuse):
        Connection(Role.CLIENT)
    with pytest.raises(Misuse):
        Connection(Role.SERVER, form=REAL)
    with pytest.raises(Misuse):
        _ = Connection(Role.SERVER).form


# ---- commands and answers --------------------------------------------------------------------------------------------


@EACH
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("command", [one for one in COMMANDS.values() if one.code > 2], ids=lambda one: one.__name__)
@given(data=st.data())
def test_commands_and_answers_cross_the_wire(form: Form, command: type[Any], data: st.DataObject) -> None:
    pair = opened(form, data.draw(st.sampled_from([1 << 30, 1, 5])))
    asked = data.draw(values(command, form))
    (seen,) = pair.call(asked)
    if command.code >= HOUSE_COMMANDS and form != HOUSE:
        assert isinstance(seen, Declined)
        assert pair.tell(seen).status == Number.COMMAND_NOT_SUPPORTED
        return
    if isinstance(seen, Run):
        reply = pair.tell(RunAnswer(seen, 0, 7, 0))
        assert reply.status == 0
        return
    assert isinstance(seen, Request)
    assert seen.command == asked
    body = data.draw(values(command.reply, form)) if command.reply is not None else None
    reply = pair.tell(Answer(seen.head, body))
    assert reply.body == body
    assert (reply.head.request_id, reply.head.send_time) == (pair.number, 1000 + pair.number)


@pytest.mark.parametrize("version", range(1, 5))
def test_an_answer_has_the_version_the_quality_and_the_id_of_its_request(version: int) -> None:
    form = Form("real", version)
    pair = opened(form)
    for quality in (1, 2, 3):
        (seen,) = pair.call(commands.FetchCluster(topics=["a"], app="shop"), quality=quality)
        broker = commands.Broker(id=1, host="h", port=2, data_center="", nearby=True, weight=0)
        reply = pair.tell(Answer(seen.head, commands.FetchClusterAck(topics=[], brokers=[broker])))
        assert reply.head.version == version
        assert reply.head.identity == Identity.of(quality=quality, response=1)
        assert reply.body == commands.FetchClusterAck(topics=[], brokers=[broker])


@pytest.mark.parametrize(("form", "quality"), [(SEED, 2), (REAL, 0), (HOUSE, 2)], ids=["seed", "real", "house"])
def test_a_one_way_request_is_never_answered(form: Form, quality: int) -> None:
    pair = opened(form)
    (seen,) = pair.call(Heartbeat(), quality=quality)
    assert pair.server.send(Answer(seen.head)) == []
    assert pair.server.send(Answer(seen.head, None, 4, "an error")) == []
    (run,) = pair.call(produce(form, [b"x"]), quality=quality)
    assert pair.server.send(RunAnswer(run, 0, 0)) == []


@EACH
def test_a_failed_command_is_answered_without_a_body(form: Form) -> None:
    pair = opened(form)
    seen = pair.ask(commands.FetchHealth())
    reply = pair.tell(Answer(seen.head, commands.FetchHealthAck(point=100.0), 3, "é" * 5000))
    assert (reply.head.type, reply.status, reply.body) == (-128, 3, None)
    assert reply.error == "é" * limits.ERROR_CHARACTERS_MAX


def test_spans_are_sent_from_where_they_lie() -> None:
    pair = opened(REAL)
    seen = pair.ask(commands.FetchTopicMessage(topics=[], app="", ack_timeout=0, long_poll_timeout=0))
    raw = encoded([Entry(DRESSES["real"], b"body")] * 3)
    page = memoryview(raw)
    rows = [commands.TopicMessages(topic="a", messages=Messages([Span(page)], 3, 3), code=0)]
    front, span, back = pair.server.send(Answer(seen.head, commands.FetchTopicMessageAck(data=rows)))
    assert isinstance(span, Span)
    assert span.view is page
    (reply,) = heard(pair.client, flat([front, span, back]))
    assert reply.body == commands.FetchTopicMessageAck(data=rows)


# ---- faults ----------------------------------------------------------------------------------------------------------


@EACH
def test_an_unknown_command_is_declined_and_the_connection_lives(form: Form) -> None:
    pair = opened(form)
    raw = bytearray(flat(pair.client.send(Call(Heartbeat(), 77, 1))))
    raw[14] = 99
    (seen,) = heard(pair.server, bytes(raw))
    assert isinstance(seen, Declined)
    assert (pair.tell(seen).status, pair.server.state) == (27, State.OPEN)


@EACH
def test_a_cut_payload_is_declined_and_the_connection_lives(form: Form) -> None:
    pair = opened(form)
    whole = flat(pair.client.send(Call(produce(form, [b"body"]), 77, 1)))
    for size in range(23, len(whole)):
        raw = size.to_bytes(4, "big") + whole[4:size]
        (seen,) = heard(pair.server, raw)
        assert isinstance(seen, Declined)
        assert seen.status == 28
    assert isinstance(heard(pair.server, whole)[0], Run)


@pytest.mark.parametrize(
    "start",
    [
        b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\xca\xfe\xbe\xbe", b"\0\0\0\x16",
        b"\0\0\0\x17\xca\xfe\xba\xbe", b"\0\0\0\x17\xca\xff", b"\x06\x40\0\x01\xca\xfe\xbe\xbe",
        b"\x00\x40\0\x01\xca\xfe\xbe\xbe\x04\x02\0\0\0\x01\x1e",
    ],
    ids=["0", "1", "-1", "2^31-1", "22", "magic", "half a magic", "100 MiB and 1", "a fetch of 4 MiB and 1"],
)  # fmt: skip
def test_what_is_no_frame_ends_the_connection_at_once(start: bytes) -> None:
    pair = opened(REAL)
    tracemalloc.start()
    with pytest.raises(PeerError, match="no JMQ frame"):
        heard(pair.server, start)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert pair.server.state is State.DEAD
    with pytest.raises(PeerError):
        heard(pair.server, b"")


def test_wrong_head_ends_the_connection_at_its_first_wrong_byte_however_it_comes() -> None:
    for start in (b"\0\4\x73\x68\x6f", b"\0\4\x73\x68\xca\xfe\xbe\xbf"):
        pair = opened(REAL)
        for byte in start[:-1]:
            assert heard(pair.server, bytes([byte])) == []
        with pytest.raises(PeerError, match="no JMQ frame"):
            heard(pair.server, start[-1:])


def test_commands_before_a_fault_are_given_out_first() -> None:
    pair = opened(REAL)
    beat = flat(pair.client.send(Call(Heartbeat(), 5, 1)))
    (seen,) = heard(pair.server, beat + b"GET / HTTP/1.1\r\n")
    assert isinstance(seen, Request)
    assert pair.server.fault is not None
    assert pair.tell(Answer(seen.head)).status == 0


def test_a_frame_of_the_largest_size_is_taken_when_it_came() -> None:
    pair = opened(HOUSE)
    size = limits.FRAME_BYTES_MAX
    head = size.to_bytes(4, "big") + b"\xca\xfe\xbe\xbe\x10\x02\0\0\0\x09\x32" + bytes(8)
    for at in range(0, size, 1 << 20):
        tail = bytes(min(1 << 20, size - at))
        data = head + tail[len(head) :] if at == 0 else tail
        seen = heard(pair.server, data)
        assert (len(seen) == 1) == (at + (1 << 20) >= size)
    assert isinstance(seen[0], Request)  # no topics: nothing to store, but a frame


def test_huge_counts_allocate_nothing() -> None:
    pair = opened(SEED)
    for code in COMMANDS:
        for filler in (b"\x7f\xff" * 40, b"\0\1\x7f\xff" * 20, b"\0\1a" + b"\x7f\xff" * 30):
            raw = (
                (23 + len(filler)).to_bytes(4, "big") + b"\xca\xfe\xbe\xbe\x02\x02\0\0\0\x09" + bytes([code]) + bytes(8)
            )
            tracemalloc.start()
            (seen,) = heard(pair.server, raw + filler)
            assert tracemalloc.get_traced_memory()[1] < 1 << 18
            tracemalloc.stop()
            pair.server.state = State.OPEN
            assert isinstance(seen, Declined | Request)


def test_an_answer_nobody_asked_for_ends_a_client() -> None:
    pair = opened(REAL)
    seen = pair.ask(Heartbeat())
    answer = flat(pair.server.send(Answer(seen.head)))
    assert len(heard(pair.client, answer)) == 1
    with pytest.raises(PeerError, match="nobody asked"):
        heard(pair.client, answer)


def test_answers_with_one_id_come_in_the_order_of_their_requests() -> None:
    """The Python client gives all its requests the same id."""
    pair = opened(REAL)
    asked = [Heartbeat(), commands.FetchHealth()]
    seen = list(
        itertools.chain(*(pair.carry(flat(pair.client.send(Call(one, 78237, 1))), pair.server) for one in asked))
    )
    assert pair.tell(Answer(seen[0].head)).head.type == -128
    assert pair.tell(Answer(seen[1].head, commands.FetchHealthAck(point=1.0))).head.type == -8


@given(raw=st.binary(max_size=300), start=st.sampled_from([0, 4, 8, 15, 23]), step=st.integers(1, 40))
def test_any_bytes_are_commands_or_a_peer_error(raw: bytes, start: int, step: int) -> None:
    heads = b"\0\0\0\x40\xca\xfe\xbe\xbe\x04\x02\0\0\0\x09\x32" + bytes(8)
    pair = opened(REAL)
    data = heads[:start] + raw
    try:
        for at in range(0, len(data), step):
            for seen in heard(pair.server, data[at : at + step]):
                assert isinstance(seen, Request | Run | Declined)
    except PeerError:
        assert pair.server.state is State.DEAD


@given(case=st.sampled_from(vectors()), place=st.integers(0, 400), byte=st.integers(0, 255), step=st.integers(1, 60))
def test_a_changed_byte_gives_commands_or_a_peer_error(case: Any, place: int, byte: int, step: int) -> None:
    raw = bytearray(case.raw)
    raw[place % len(raw)] = byte
    server = Connection(Role.SERVER)
    try:
        for at in range(0, len(raw), step):
            for seen in server.receive(bytes(raw[at : at + step])):
                if isinstance(seen, Declined):
                    server.send(seen)
    except PeerError:
        assert server.state is State.DEAD


# ---- runs ------------------------------------------------------------------------------------------------------------


@EACH
def test_plain_produce_requests_are_one_run_and_answered_in_their_order(form: Form) -> None:
    pair = opened(form)
    asked = [produce(form, [b"%d" % at] * (1 + at % 3), partition=2) for at in range(9)]
    raw = b"".join(flat(pair.client.send(Call(one, 100 + at, 50 + at))) for at, one in enumerate(asked))
    (run,) = heard(pair.server, raw)
    assert isinstance(run, Run)
    assert (run.frames, run.topic, run.app, run.partition, run.level, run.timeout) == (9, "orders", "shop", 2, 1, 9)
    assert run.request_ids == list(range(100, 109))
    assert run.set.data == b"".join(flat(one.topics[0].messages.pieces) for one in asked)
    index = 1000
    replies = heard(pair.client, flat(pair.server.send(RunAnswer(run, 2, index))))
    for at, (reply, one) in enumerate(zip(replies, asked, strict=True)):
        assert (reply.head.request_id, reply.head.send_time) == (100 + at, 50 + at)
        ((row),) = reply.body.data
        count = one.topics[0].messages.count
        assert (row.topic, row.code) == ("orders", 0)
        if form == HOUSE:
            assert row.result == [commands.Placed(partition=2, index=index, start_time=5, count=count)]
        else:
            places = [commands.Placed(partition=2, index=index + i, start_time=5 + i) for i in range(count)]
            assert row.result == places
        index += count


@EACH
def test_a_refused_run_says_so_for_every_message(form: Form) -> None:
    pair = opened(form)
    (run,) = pair.call(produce(form, [b"a", b"b"]))
    reply = pair.tell(RunAnswer(run, -1, -1, 188))
    assert isinstance(reply.body, commands.ProduceMessageAck)
    (row,) = reply.body.data
    count = 2 if form == HOUSE else 1
    assert row.code == 188
    assert row.result == [commands.Placed(partition=-1, index=-1, start_time=-1, count=count)] * (
        1 if form == HOUSE else 2
    )


@EACH
def test_what_is_no_plain_request_is_no_run(form: Form) -> None:
    pair = opened(form)
    for command in (produce(form, [b"a"], tx="t-1"), ProduceMessage(topics=[], app="shop"), produce(form, [])):
        (seen,) = pair.call(command)
        assert isinstance(seen, Request)
        assert seen.command == command


@EACH
def test_a_run_ends_where_requests_differ(form: Form) -> None:
    pair = opened(form)
    asked = [
        *(produce(form, [b"a"]) for _ in range(3)), *(produce(form, [b"b"], topic="clicks") for _ in range(2)),
        produce(form, [b"c"], partition=1), produce(form, [b"c"], tx="t-9"), produce(form, [b"d"]),
        Heartbeat(), produce(form, [b"e"]),
    ]  # fmt: skip
    raw = b"".join(flat(pair.client.send(Call(one, at, 0))) for at, one in enumerate(asked))
    seen = heard(pair.server, raw)
    assert [one.frames if isinstance(one, Run) else type(one.command).__name__ for one in seen] == [
        3, 2, 1, "ProduceMessage", 1, "Heartbeat", 1,
    ]  # fmt: skip
    again = Connection(Role.SERVER)
    again.receive(flat(Connection(Role.CLIENT, form=form).send(Call(hello(), 1, 1))))
    assert sum(one.frames if isinstance(one, Run) else 1 for at in raw for one in heard(again, bytes([at]))) == len(
        asked
    )


@EACH
def test_a_run_is_bounded(form: Form) -> None:
    pair = opened(form)
    asked = [produce(form, [bytes(limits.RUN_BYTES_MAX // 3)]) for _ in range(5)]
    raw = b"".join(flat(pair.client.send(Call(one, at, 0))) for at, one in enumerate(asked))
    assert [one.frames for one in heard(pair.server, raw)] == [2, 2, 1]
    (large,) = pair.call(produce(form, [bytes(3 * limits.RUN_BYTES_MAX)]))
    assert large.frames == 1


def test_messages_of_the_other_layout_are_read_as_what_they_are() -> None:
    """The second line of defence: a message says itself which layout it has."""
    for mine, other in ((SEED, REAL), (REAL, SEED)):
        pair = opened(mine)
        raw = encoded([Entry(DRESSES[other.dialect], b"body", b"k")])
        messages = Messages([Span(memoryview(raw))], 1, DRESSES[other.dialect])
        one = Produced(topic="a", tx_id="", timeout=1, qos_level=1, messages=messages)
        (seen,) = pair.call(ProduceMessage(topics=[one], app="shop"))
        assert isinstance(seen, Request)
        assert isinstance(seen.command, ProduceMessage)
        assert seen.command.topics[0].messages.dress == DRESSES[other.dialect]


def test_ordered_messages_without_a_partition_are_no_run() -> None:
    pair = opened(REAL)
    raw = encoded([Entry(3, b"body", b"k", ordered=True, partition=-1)])
    one = Produced(topic="a", tx_id="", timeout=1, qos_level=1, messages=Messages([Span(memoryview(raw))], 1, 3))
    (seen,) = pair.call(ProduceMessage(topics=[one], app="shop"))
    assert isinstance(seen, Request)


# ---- the originals' frames --------------------------------------------------------------------------------------------


@STEPS
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_frame_of_the_originals_is_received(vector: Vector, step: int) -> None:
    """Whole, byte by byte, by sevens; with a heartbeat behind it."""
    pair = opened(vector.form, step)
    if vector.header["direction"] == "request":
        beat = flat(pair.client.send(Call(Heartbeat(), 5, 1)))
        seen, last = pair.carry(vector.raw + beat, pair.server)
        assert isinstance(last, Declined if vector.layout is RemoveConnection else Request)
        if isinstance(seen, Run):
            assert (seen.request_ids, seen.frames) == ([vector.header["requestId"]], 1)
            return
        assert isinstance(seen, Request)
        assert agrees(plain(seen.command, vector.form), expected(vector.payload))
        return
    asked = abs(vector.header["type"]) if vector.layout is not None else Heartbeat.code
    pair.client._awaited[vector.header["requestId"]] = [asked]
    (reply,) = pair.carry(vector.raw, pair.client)
    assert (reply.status, reply.error or None) == (vector.header["status"], vector.header["error"])
    assert reply.body is None or agrees(plain(reply.body, vector.form), expected(vector.payload))


# ---- the sniffer -----------------------------------------------------------------------------------------------------


def test_every_first_command_is_recognised_by_15_bytes() -> None:
    for case in vectors():
        if case.header["direction"] == "request":
            assert recognise(case.raw[:15]) is True
            assert all(recognise(case.raw[:size]) is None for size in range(15))


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"\0\0\0\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\0\0\0\x1f\xca\xfe\xba",
              b"\0\0\0\x17\xca\xfe\xbe\xbe\x80", b"\0\0\0\x17\xca\xfe\xbe\xbe\x04\x02\0\0\0\0\x09", b"\xff"],
)  # fmt: skip
def test_others_are_not_recognised(start: bytes) -> None:
    assert any(recognise(start[:size]) is False for size in range(len(start) + 1)) == (start != b"\xff")
    if start != b"\xff":
        assert recognise(start) is False
