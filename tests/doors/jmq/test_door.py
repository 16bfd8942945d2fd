"""Every command of the client protocol, in both layouts, over TCP to a server process; what each answer must be.

The kit's client is serai's own codec, which the originals' frames hold (`test_schema`); the real Python client's frames are
sent as they are (`test_originals`).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.commands import COMMANDS, HOUSE_COMMANDS
from serai.doors.jmq.schema.frame import REAL, SEED
from serai.wire.buffer import Span
from serai.wire.layout import Form
from serai.wire.sets import Messages
from tests.core.dressing import encoded
from tests.doors.jmq.caller import Caller
from tests.doors.jmq.kit import hello, messages_of
from tests.doors.jmq.voice import rows_of
from tests.gate.kit import Running
from tests.oracle import messages as oracle
from tests.oracle.messages import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serai.doors.jmq.connection import Reply

LAYOUTS = [SEED, REAL]
DRESS = {"seed": oracle.SEED, "real": oracle.REAL}
EACH = pytest.mark.parametrize("form", LAYOUTS, ids=["seed", "real"])
VERSIONS = pytest.mark.parametrize(
    "form", [SEED, *(Form("real", each) for each in (1, 2, 3, 4))], ids=["seed", "real-1", "real-2", "real-3", "real-4"]
)
NO_BODY = -128
V1 = "/api/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("door") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that makes nothing by itself; topic `known` has a producer, `shop`, and nobody who consumes."""
    with Running(tmp_path_factory.mktemp("strict") / "data", flags=("--set", "auto_create=false")) as running:
        running.ask("POST", f"{V1}/topics", {"name": "known"})
        running.ask("PUT", f"{V1}/topics/known/subscriptions/producer/shop", {})
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def path_of(topic: str) -> str:
    return f"{V1}/topics/{quote(topic, safe='')}"


def made(server: Running, topic: str, *, partitions: int = 1, **policy: Any) -> None:
    """A topic with both subscriptions of `shop`; the policy is the consumer's."""
    assert server.ask("POST", f"{V1}/topics", {"name": topic, "partitions": partitions})[0] == 201
    for role, table in (("producer", {}), ("consumer", policy)):
        assert server.ask("PUT", f"{path_of(topic)}/subscriptions/{role}/shop", {"policy": table})[0] == 200


def sets(form: Form, *entries: Entry) -> Messages:
    """Messages as somebody wrote them."""
    return Messages([Span(memoryview(encoded(list(entries))))], len(entries), DRESS[form.dialect])


def produce_set(caller: Caller, topic: str, *entries: Entry, level: int = 1) -> commands.TopicPlaced:
    one = commands.Produced(topic=topic, tx_id="", timeout=0, qos_level=level, messages=sets(caller.form, *entries))
    reply = caller.ask(commands.ProduceMessage(topics=[one], app="shop"))
    assert isinstance(reply.body, commands.ProduceMessageAck), reply
    return reply.body.data[0]


def body_of(reply: Reply, kind: type[Any]) -> Any:
    assert (reply.status, type(reply.body)) == (0, kind), reply
    return reply.body


# ---- coming and going: 1, 2, 7, 8 ----------------------------------------------------------------------------------


@EACH
def test_connection_is_made_kept_and_ended(server: Running, form: Form) -> None:
    with Caller(server, form, connects=False) as caller:
        first = body_of(caller.ask(hello()), commands.AddConnectionAck).connection_id
        assert first
        assert body_of(caller.ask(hello()), commands.AddConnectionAck).connection_id == first
        beat = caller.ask(commands.Heartbeat())
        assert (beat.head.type, beat.status, beat.error) == (NO_BODY, 0, "")
        assert body_of(caller.ask(commands.FetchHealth()), commands.FetchHealthAck).point == 100.0
        assert caller.ask(commands.RemoveConnection()).head.type == NO_BODY
        assert body_of(caller.ask(hello()), commands.AddConnectionAck).connection_id != first


@EACH
def test_command_before_add_connection_is_answered_with_132(server: Running, form: Form) -> None:
    with Caller(server, form) as caller:
        caller.ask(commands.RemoveConnection())
        caller.client.state = type(caller.client.state).OPEN  # the client's own rules would not let it ask
        for command in (commands.Heartbeat(), commands.FetchCluster(topics=["t"], app="shop")):
            reply = caller.ask(command)
            assert (reply.head.type, reply.status, reply.error) == (NO_BODY, 132, "connection does not exist")


@EACH
def test_nobody_acts_for_another_application(server: Running, form: Form) -> None:
    with Caller(server, form) as caller:
        for command in (commands.FetchCluster(topics=["t"], app="other"), caller.fetch_command("t", app="shopper")):
            reply = caller.ask(command)
            assert (reply.head.type, reply.status) == (NO_BODY, 132)
            assert "'shop'" in reply.error


@EACH
def test_connection_that_is_lost_frees_what_it_held(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as gone, Caller(server, form) as other:
        gone.produce(topic, b"a")
        gone.registers(topic)
        assert gone.bodies(gone.fetch(topic)) == [b"a"]
        other.registers(topic)
        assert other.bodies(other.fetch(topic)) == []
        other.tell(other.fetch_command(topic, poll_ms=10_000))
        gone.close()
        assert other.waits_s() < 5
        assert other.bodies(other.row(other.heard()[0])) == [b"a"]


# ---- what there is: 10, 20, 21 ---------------------------------------------------------------------------------------


@VERSIONS
def test_cluster_has_policies_owners_and_where_they_live(server: Running, form: Form, topic: str) -> None:
    made(server, topic, partitions=2, batch_size=7, delay_ms=5, black_list=["10.1.1.1"], concurrent=3)
    server.ask("PATCH", path_of(topic), {"policy": {"params": {"a": "1"}}})
    with Caller(server, form) as caller:
        found = body_of(caller.ask(commands.FetchCluster(topics=[topic, "x/y"], app="shop")), commands.FetchClusterAck)
    row, bad = found.topics
    assert (row.topic_code, row.code, row.type) == (topic, 0, 0)
    assert [(group.id, group.leader, group.partitions) for group in row.partition_groups] == [(0, 1, [0]), (1, 1, [1])]
    consumer = row.consumer_policy
    assert (consumer.batch_size, consumer.delay, consumer.black_list) == (7, 5, ["10.1.1.1"])
    assert (consumer.concurrent_consume, consumer.concurrent_prefetch_size) == (form.dialect == "seed", 3)
    assert (row.producer_policy.timeout, row.producer_policy.weight) == (2000, [])
    (broker,) = found.brokers
    assert (broker.id, broker.host, broker.port, broker.nearby) == (1, "127.0.0.1", server.port, True)
    assert (broker.sys_code, broker.permission) == (0, 3)
    assert {one.key: one.value for one in row.params} == ({"a": "1"} if form == REAL else {})
    assert (bad.code, bad.producer_policy, bad.consumer_policy, bad.partition_groups) == (6, None, None, [])


@EACH
def test_cluster_says_what_is_unknown_and_what_is_not_subscribed(strict: Running, form: Form) -> None:
    with Caller(strict, form) as caller:
        found = body_of(
            caller.ask(commands.FetchCluster(topics=["known", "nowhere"], app="shop")), commands.FetchClusterAck
        )
        assert [row.code for row in found.topics] == [0, 189]
        assert (found.topics[0].producer_policy is None, found.topics[0].consumer_policy is None) == (False, True)
    with Caller(strict, form, app="stranger") as caller:
        found = body_of(caller.ask(commands.FetchCluster(topics=["known"], app="stranger")), commands.FetchClusterAck)
        assert ([row.code for row in found.topics], found.brokers) == ([1], [])


@EACH
def test_coordinators_are_said_to_be_missing(server: Running, form: Form) -> None:
    with Caller(server, form) as caller:
        found = body_of(
            caller.ask(commands.FindCoordinator(topics=["a", "b"], app="shop")), commands.FindCoordinatorAck
        )
        assert [(row.topic, row.id, row.code) for row in found.coordinators] == [("a", -1, 181), ("b", -1, 181)]
        wish = commands.AssignmentWish(topic="a", session_timeout=1, is_nearby=False)
        reply = caller.ask(commands.FetchAssignedPartition(topics=[wish], app="shop"))
        assert (reply.head.type, reply.status) == (NO_BODY, 181)


# ---- who produces and consumes: 3 to 6 -------------------------------------------------------------------------------


@EACH
def test_registrations_are_named_repeatable_and_needed(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        fetch = caller.fetch_command(topic)
        refused = caller.ask(fetch)  # the seed's rows have no code, so there the command fails
        assert (refused.status if form == SEED else caller.row(refused).code) == 136
        ids = caller.registers(topic, topic + "2")
        assert len(set(ids)) == 2
        assert caller.registers(topic) == ids[:1]
        added = commands.AddProducer(topics=[topic], app="shop", sequence=3)
        producer = body_of(caller.ask(added), commands.AddProducerAck).producer_ids
        assert [row.topic for row in producer] == [topic]
        assert body_of(caller.ask(added), commands.AddProducerAck).producer_ids == producer
        assert caller.row(caller.ask(fetch)).code == 0
        for command in (
            commands.RemoveConsumer(topics=[topic, "never"], app="shop"), commands.RemoveProducer(topics=[topic], app="shop"),
        ):  # fmt: skip
            assert (caller.ask(command).head.type, caller.ask(command).status) == (NO_BODY, 0)
        refused = caller.ask(fetch)
        assert (refused.status if form == SEED else caller.row(refused).code) == 136


@EACH
def test_registration_without_a_subscription_fails_as_a_whole(strict: Running, form: Form) -> None:
    with Caller(strict, form) as caller:
        reply = caller.ask(commands.AddConsumer(topics=["known"], app="shop", sequence=1))
        assert (reply.head.type, reply.status) == (NO_BODY, 1)
        reply = caller.ask(commands.AddProducer(topics=["known", "nowhere"], app="shop", sequence=1))
        assert (reply.head.type, reply.status) == (NO_BODY, 189)
        assert "nowhere" in reply.error
        assert caller.ask(commands.AddProducer(topics=["known"], app="shop", sequence=1)).status == 0


# ---- messages in: 50 -------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("level", range(5))
def test_every_level_stores_and_says_where(server: Running, form: Form, level: int, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        first = caller.produce(topic, b"a", b"b", level=level)
        assert (first.code, caller.indexes(first)) == (0, [0, 1])
        assert caller.indexes(caller.produce(topic, b"c", level=level)) == [2]
        assert [each.start_time for each in rows_of(first)] == [
            one.send_time for one in messages_of(caller.set_of(b"a", b"b"))
        ]
        assert caller.bodies(caller.read(topic, 0)) == [b"a", b"b", b"c"]


@EACH
@pytest.mark.parametrize("quality", range(4))
def test_header_quality_says_whether_an_answer_comes(server: Running, form: Form, quality: int, topic: str) -> None:
    one_way = {"seed": 2, "real": 0}[form.dialect]
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        asked = commands.ProduceMessage(topics=[caller.produced(topic, b"x")], app="shop")
        replies = caller.say(caller.bytes_of(asked, quality=quality), caller.bytes_of(commands.Heartbeat()))
        assert [reply.head.type for reply in replies] == ([NO_BODY] if quality == one_way else [-50, NO_BODY])
        assert all(reply.head.identity.quality in (1, quality) for reply in replies)
        assert caller.bodies(caller.read(topic, 0)) == [b"x"]


@EACH
def test_several_topics_have_a_code_each(server: Running, form: Form, topic: str) -> None:
    made(server, topic, partitions=2)
    with Caller(server, form) as caller:
        asked = [
            caller.produced(topic, b"a", partition=1),
            caller.produced("x/y", b"b"),
            caller.produced(topic, b"c", partition=9),
        ]
        rows = body_of(caller.ask(commands.ProduceMessage(topics=asked, app="shop")), commands.ProduceMessageAck).data
        assert [(row.topic, row.code) for row in rows] == [(topic, 0), ("x/y", 6), (topic, 188)]
        assert [(one.partition, one.index) for row in rows for one in rows_of(row)] == [(1, 0), (-1, -1), (-1, -1)]


@EACH
def test_entries_that_cannot_be_meant_are_code_6_and_store_nothing(server: Running, form: Form, topic: str) -> None:
    made(server, topic, partitions=2)
    dress = DRESS[form.dialect]
    with Caller(server, form) as caller:
        mixed = produce_set(caller, topic, Entry(dress, b"a", partition=0), Entry(dress, b"b", partition=1))
        assert (mixed.code, [(one.partition, one.index) for one in rows_of(mixed)]) == (6, [(-1, -1)] * 2)
        assert produce_set(caller, topic).code == 6
        wrong = produce_set(caller, topic, Entry(dress, b"a", sum=1))
        assert wrong.code == 8
        for number in (0, 1):
            assert caller.stands(topic, partition=number).index == 0
            assert caller.bodies(caller.read(topic, 0, partition=number)) == []


@EACH
def test_ordered_messages_go_where_their_key_says(server: Running, form: Form, topic: str) -> None:
    made(server, topic, partitions=4)
    with Caller(server, form) as caller:
        for key, partition in ((b"", 0), (b"a", 97 % 4), (b"ab", (31 * 97 + 98) % 4)):
            placed = produce_set(caller, topic, Entry(DRESS[form.dialect], b"x", key, ordered=True, partition=-1))
            assert [one.partition for one in rows_of(placed)] == [partition]


@EACH
def test_batches_and_compressed_bodies_come_back_as_they_were_sent(server: Running, form: Form, topic: str) -> None:
    dress = DRESS[form.dialect]
    members = tuple(Entry(dress, b"m%d" % at * 40, b"k%d" % at) for at in range(3))
    entries = [oracle.wrap(dress, members, codec) for codec in (oracle.NONE, oracle.ZIP, oracle.ZLIB)]
    entries += [Entry(dress, oracle.deflate(b"z" * 500, codec), codec=codec) for codec in (oracle.ZIP, oracle.ZLIB)]
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        placed = produce_set(caller, topic, *entries)
        assert [one.index for one in rows_of(placed)] == [0, 3, 6, 9, 10]
        assert caller.stands(topic).code == 0
        row = caller.read(topic, 4)  # inside the second batch: it comes whole
        got = messages_of(row.messages)
        assert [one.index for one in got] == [3, 6, 9, 10]
        assert [one.body for one in got] == [each.body for each in entries[1:]]
        assert [one.body_crc for one in got] == [zlib.crc32(each.body) for each in entries[1:]]
        assert [one.length for one in got] == [len(oracle.encode(each)) for each in entries[1:]]
        assert [caller.stands(topic).right_index, got[0].flag] == [-1 if form == SEED else 11, 3]


@EACH
def test_snappy_of_the_originals_is_kept(server: Running, form: Form, topic: str) -> None:
    """The framed format, made by the real converter; the real layout writes type 3, the seed 0."""
    from tests.doors.jmq.kit import vectors

    found = [
        one
        for vector in vectors()
        if vector.header["direction"] == "request" and vector.form.dialect == "real" and "snappy" in vector.name
        for one in vector.payload["topics"]
    ]
    assert found, "there is a vector with snappy"
    body = bytes.fromhex(found[0]["messages"][0]["body"])
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        placed = produce_set(caller, topic, Entry(DRESS[form.dialect], body, codec=oracle.SNAPPY))
        assert placed.code == 0
        (one,) = messages_of(caller.read(topic, 0).messages)
        assert (one.body, one.system_code.compressed) == (body, 1)
        assert one.system_code.compression == (3 if form == REAL else 0)


@EACH
def test_pipelined_requests_are_stored_and_answered_in_their_order(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        caller.produce(topic, b"first")
        asked = [commands.ProduceMessage(topics=[caller.produced(topic, b"%d" % at, level=at // 50 % 2 + 2)], app="shop")
                 for at in range(400)]  # fmt: skip
        replies = caller.say(*asked)
        assert [reply.head.request_id for reply in replies] == list(range(4, 404))
        assert [
            one.index for reply in replies for one in rows_of(body_of(reply, commands.ProduceMessageAck).data[0])
        ] == list(range(1, 401))
        assert caller.bodies(caller.read(topic, 1, count=400)) == [b"%d" % at for at in range(400)]


# ---- messages out: 30, 31 --------------------------------------------------------------------------------------------


@EACH
def test_fetch_locks_the_partition_until_it_is_acknowledged(server: Running, form: Form, topic: str) -> None:
    made(server, topic, batch_size=2)
    with Caller(server, form) as one, Caller(server, form) as two:
        one.produce(topic, *(b"%d" % at for at in range(6)))
        for caller in (one, two):
            caller.registers(topic)
        row = one.fetch(topic)
        assert (one.bodies(row), one.fetched(row)) == ([b"0", b"1"], [0, 1])
        assert two.bodies(two.fetch(topic)) == []
        assert one.ack(topic, [0, 1]) == 0
        row = two.fetch(topic, count=3)
        assert two.fetched(row) == [2, 3, 4]
        assert [(each.partition, each.index) for each in messages_of(row.messages)] == [(0, 2), (0, 3), (0, 4)]


@EACH
def test_groups_of_an_application_have_their_own_positions(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.produce(topic, b"a", b"b")
        for app in ("shop", "shop.night"):
            caller.registers(topic, app=app)
            assert caller.bodies(caller.fetch(topic, app=app)) == [b"a", b"b"]
        assert caller.ack(topic, [0, 1], app="shop.night") == 0
        assert (caller.stands(topic).index, caller.stands(topic, app="shop.night").index) == (0, 2)


@EACH
def test_lease_that_runs_out_delivers_again_to_whoever_asks(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as slow, Caller(server, form) as next_one:
        slow.produce(topic, b"a")
        slow.registers(topic)
        next_one.registers(topic)
        assert slow.bodies(slow.fetch(topic, ack_ms=300)) == [b"a"]
        next_one.tell(next_one.fetch_command(topic, poll_ms=10_000))
        assert 0.1 < next_one.waits_s() < 5
        assert next_one.bodies(next_one.row(next_one.heard()[0])) == [b"a"]
        assert slow.ack(topic, [0]) == 0  # late, and it counts: it begins at the position
        assert slow.stands(topic).index == 1


@EACH
def test_long_poll_is_woken_by_a_message_and_holds_nothing_up(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as waiting, Caller(server, form) as sender:
        waiting.registers(topic)
        waiting.tell(waiting.fetch_command(topic, poll_ms=15_000), commands.Heartbeat())
        waiting.waits_s()
        assert [reply.head.type for reply in waiting.heard()] == [NO_BODY]
        sender.produce(topic, b"news")
        assert waiting.waits_s() < 5
        assert waiting.bodies(waiting.row(waiting.heard()[0])) == [b"news"]


@EACH
def test_long_poll_without_a_message_ends_empty_in_time(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.registers(topic, topic + "2")
        caller.tell(caller.fetch_command(topic, poll_ms=200))
        assert 0.15 < caller.waits_s() < 5
        row = caller.row(caller.heard()[0])
        assert (row.code, row.messages.count) == (0, 0)
        both = [commands.TopicWish(topic=each, count=1) for each in (topic, topic + "2")]  # two topics: nobody waits
        caller.tell(commands.FetchTopicMessage(topics=both, app="shop", ack_timeout=0, long_poll_timeout=15_000))
        assert caller.waits_s() < 5
        assert len(body_of(caller.heard()[0], commands.FetchTopicMessageAck).data) == 2


@EACH
def test_paused_and_forbidden_consumption_says_so(server: Running, form: Form, topic: str) -> None:
    made(server, topic, paused=True)
    made(server, topic + "2", black_list=["127.0.0.1"])
    with Caller(server, form) as caller:
        for name, code in ((topic, 186), (topic + "2", 145)):
            caller.registers(name)
            reply = caller.ask(caller.fetch_command(name, poll_ms=5000))
            assert (reply.status if form == SEED else caller.row(reply).code) == code


@EACH
def test_partitions_are_read_from_any_index_without_a_lock(server: Running, form: Form, topic: str) -> None:
    made(server, topic, partitions=2)
    with Caller(server, form) as caller:
        caller.produce(topic, *(b"%d" % at for at in range(9)), partition=1)
        for index, count, bodies in ((0, 2, [b"0", b"1"]), (7, 9, [b"7", b"8"]), (9, 9, []), (-1, 1, [b"0"])):
            assert caller.bodies(caller.read(topic, index, count=count, partition=1)) == bodies
        assert caller.moves(topic, 4, partition=1) == 0
        assert caller.bodies(caller.read(topic, -1, count=1, partition=1)) == [b"4"]
        codes = [
            caller.read(topic, index, partition=number).code for number, index in ((1, 10), (1, -7), (0, 1), (5, 0))
        ]
        assert codes == [184, 184, 184, 187]


# ---- acknowledgements and positions: 32 to 35 --------------------------------------------------------------------------


@EACH
def test_acknowledgements_move_the_position_or_say_why_not(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.produce(topic, *(b"%d" % at for at in range(5)))
        caller.registers(topic)
        caller.fetch(topic)
        for indexes, code, position in (
            ([0, 2], 140, 0), ([0, 0], 140, 0), ([3], 0, 0), ([1, 0], 0, 2), ([0, 1], 0, 2), ([99], 140, 2),
        ):  # fmt: skip
            assert (caller.ack(topic, indexes), caller.stands(topic).index) == (code, position), indexes
        assert caller.bodies(caller.fetch(topic, count=1)) == [b"2"]
        assert caller.ack(topic, [2], kind=2) == 244  # failed: there is no retry store
        assert caller.stands(topic).index == 2
        assert caller.bodies(caller.fetch(topic, count=1)) == [b"2"]
        assert caller.ack(topic, [0], partition=7) == 187


@EACH
def test_two_partitions_of_a_topic_are_answered_in_one_row_each(server: Running, form: Form, topic: str) -> None:
    """Where the original's own client cannot read the answer: topics are counted, not partitions."""
    made(server, topic, partitions=2)
    with Caller(server, form) as caller:
        rows = [
            commands.PartitionAcks(partition=number, data=[commands.Acknowledged(partition=number, index=0, type=0)])
            for number in (0, 1)
        ]
        caller.produce(topic, b"a", partition=1)
        reply = caller.ask(commands.CommitAck(topics=[commands.TopicAcks(topic=topic, partitions=rows)], app="shop"))
        (row,) = body_of(reply, commands.CommitAckAck).data
        assert [(one.partition, one.code) for one in row.partition_data] == [(0, 140), (1, 0)]


@EACH
def test_positions_are_set_to_a_number_the_oldest_and_the_newest(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        caller.produce(topic, *(b"%d" % at for at in range(5)))
        for index, code, position in ((3, 0, 3), (-1, 0, 5), (-2, 0, 0), (5, 0, 5), (6, 184, 5), (-3, 184, 5)):
            assert (caller.moves(topic, index), caller.stands(topic).index) == (code, position), index
        assert caller.moves(topic, 0, partition=3) == 187


@VERSIONS
def test_index_has_both_ends_from_version_3_on(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        caller.looks_up(topic)
        caller.produce(topic, b"a", b"b")
        row = caller.stands(topic)
        ends = (0, 2) if form.dialect == "real" and form.version >= 3 else (-1, -1)
        assert (row.index, row.code, row.left_index, row.right_index) == (0, 0, *ends)
        assert (caller.stands(topic, partition=1).index, caller.stands(topic, partition=1).code) == (-1, 187)
        assert caller.stands("nowhere").code == 189
        asked = commands.FetchAckIndex(topics=[commands.TopicPartitions(topic=topic, partitions=[0])], app="shop")
        (found,) = body_of(caller.ask(asked), commands.FetchAckIndexAck).topics
        assert [(one.partition, one.index, one.code) for one in found.partitions] == [(0, 0, 0)]


# ---- what is not served yet: 51 to 54 ------------------------------------------------------------------------------------


@EACH
def test_transactions_are_refused_in_words(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form) as caller:
        prepare = commands.ProduceMessagePrepare(topic=topic, app="shop", sequence=1, transaction_id="mine")
        assert caller.ask(prepare).status == 134
        caller.ask(commands.AddProducer(topics=[topic], app="shop", sequence=1))
        reply = caller.ask(prepare)
        assert (reply.status, "transactions are not served yet" in reply.error) == (35, True)
        for kind in (commands.ProduceMessageCommit, commands.ProduceMessageRollback):
            reply = caller.ask(kind(topic=topic, app="shop", tx_id="t"))
            assert body_of(reply, kind.reply or type(None)).code == (138 if form == SEED else 34)
        asked = commands.FetchProduceFeedback(app="shop", topic=topic, status=0, long_poll_timeout=0)
        assert body_of(caller.ask(asked), commands.FetchProduceFeedbackAck).data == []


# ---- all of them -------------------------------------------------------------------------------------------------------


def one_of_each(caller: Caller, topic: str) -> list[tuple[commands.Command, int, int]]:
    """A command of every kind, in an order that makes sense; type and status of its answer."""
    names, app = [topic], "shop"
    wish = commands.PartitionWish(partition=0, count=1, index=0)
    ack = commands.PartitionAcks(partition=0, data=[commands.Acknowledged(partition=0, index=0, type=0)])
    place = commands.PartitionIndex(partition=0, index=-2)
    both = [commands.TopicPartitions(topic=topic, partitions=[0])]
    assigned = commands.AssignmentWish(topic=topic, session_timeout=1, is_nearby=False)
    return [
        (hello(), -1, 0), (commands.Heartbeat(), NO_BODY, 0), (commands.FetchHealth(), -8, 0),
        (commands.FetchCluster(topics=names, app=app), -10, 0),
        (commands.AddProducer(topics=names, app=app, sequence=1), -5, 0),
        (commands.AddConsumer(topics=names, app=app, sequence=1), -3, 0),
        (commands.ProduceMessage(topics=[caller.produced(topic, b"x")], app=app), -50, 0),
        (caller.fetch_command(topic), -30, 0),
        (commands.FetchPartitionMessage(topics=[commands.PartitionWishes(topic=topic, partitions=[wish])], app=app), -31, 0),
        (commands.CommitAck(topics=[commands.TopicAcks(topic=topic, partitions=[ack])], app=app), -32, 0),
        (commands.CommitAckIndex(topics=[commands.TopicIndexes(topic=topic, partitions=[place])], app=app), -33, 0),
        (commands.FetchAckIndex(topics=both, app=app), -34, 0), (commands.FetchIndex(topics=both, app=app), -35, 0),
        (commands.FindCoordinator(topics=names, app=app), -20, 0),
        (commands.FetchAssignedPartition(topics=[assigned], app=app), NO_BODY, 181),
        (commands.ProduceMessagePrepare(topic=topic, app=app, sequence=1, transaction_id=""), NO_BODY, 35),
        (commands.ProduceMessageCommit(topic=topic, app=app, tx_id="t"), -52, 0),
        (commands.ProduceMessageRollback(topic=topic, app=app, tx_id="t"), -53, 0),
        (commands.FetchProduceFeedback(app=app, topic=topic, status=0, long_poll_timeout=0), -54, 0),
        (commands.RemoveProducer(topics=names, app=app), NO_BODY, 0),
        (commands.RemoveConsumer(topics=names, app=app), NO_BODY, 0), (commands.RemoveConnection(), NO_BODY, 0),
    ]  # fmt: skip


@VERSIONS
def test_every_command_has_its_answer_in_every_version(server: Running, form: Form, topic: str) -> None:
    with Caller(server, form, connects=False) as caller:
        asked = one_of_each(caller, topic)
        assert {one.code for one, _, _ in asked} == {code for code in COMMANDS if code < HOUSE_COMMANDS}
        for command, kind, status in asked:
            reply = caller.ask(command)
            assert (reply.head.type, reply.status, reply.head.version) == (kind, status, form.version), command


@VERSIONS
def test_command_of_the_house_is_not_known_in_the_layouts(server: Running, form: Form) -> None:
    with Caller(server, form) as caller:
        for kind in (commands.FetchIndexByTime, commands.Release, commands.Renew):
            reply = caller.ask(kind(topics=[], app="shop"))
            assert (reply.head.type, reply.status) == (NO_BODY, 27)
        assert caller.ask(commands.Heartbeat()).status == 0
