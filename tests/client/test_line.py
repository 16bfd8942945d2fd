"""Lines without sockets: the handshake, coming back, what is logged, what is looked up again."""

from __future__ import annotations

import logging

import pytest

from serai.client import line as lines
from serai.client.line import Address
from serai.doors.jmq.connection import Answer
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.numbers import Number
from serai.errors import OutcomeUnknown, Refused, Unreachable
from tests.client.kit import HERE, Peer, line_of, soon

INDEX = commands.FetchIndex(topics=[commands.TopicPartitions(topic="t", partitions=[0])], app="app")


def answered(request: object) -> Answer:
    row = commands.IndexRange(partition=0, index=7, code=0, left_index=0, right_index=9)
    ack = commands.FetchIndexAck(topics=[commands.TopicRanges(topic="t", partitions=[row])])
    return Answer(request.head, ack)  # type: ignore[attr-defined]  # a request


def test_handshake_says_hello_looks_up_owners_and_registers() -> None:
    peer = Peer(answered, partitions=3)
    line = line_of(commands.AddProducer(topics=["t"], app="app", sequence=0))
    peer.run(line.up(soon()))
    assert peer.asked == ["AddConnection", "FetchCluster", "AddProducer"]
    assert (line.is_up, line.ownership["t"].partitions) == (True, [0, 1, 2])
    assert line.ownership["t"].owners == dict.fromkeys(range(3), HERE)


def test_notification_of_the_server_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="serai.client"):
        Peer(answered, notification="closing at noon").run(line_of().up(soon()))
    assert [record.getMessage() for record in caplog.records] == ["here:1 says: closing at noon"]


def test_first_connection_that_nobody_takes_fails_at_once() -> None:
    peer = Peer(answered)
    peer.refuses = Unreachable("nobody")
    with pytest.raises(Unreachable, match="nobody"):
        peer.run(line_of().up(soon()))
    assert (len(peer.dialled), peer.naps) == (1, [])


def test_lost_connection_is_made_again_with_longer_naps_between() -> None:
    peer, line = Peer(answered), line_of()
    peer.run(line.up(soon()))
    assert line.link is not None
    line.link.lose(Unreachable("cut"))
    assert not line.is_up
    peer.refuses = Unreachable("nobody")
    step = line.up(soon())
    for _ in range(6):  # a dial that is refused, then a nap
        assert isinstance(next(step) if not peer.naps else step.send(None), lines.Dial)
        nap = step.throw(peer.refuses)
        assert isinstance(nap, lines.Nap)
        peer.naps.append(nap.seconds)
    assert all(later > 1.2 * earlier for earlier, later in zip(peer.naps, peer.naps[1:], strict=False))
    peer.refuses = None
    assert isinstance(step.send(None), lines.Dial)
    step.close()
    peer.run(line.up(soon()))
    assert line.is_up


def test_question_is_asked_again_when_the_connection_breaks() -> None:
    lost: list[object] = []

    def once_lost(request: object) -> Answer | None:
        if not lost:
            lost.append(peer.link)
            assert peer.link is not None
            peer.link.lose(Unreachable("cut"))
            return None
        return answered(request)

    peer, line = Peer(once_lost), line_of()
    body = peer.run(line.call(INDEX, soon()))
    assert isinstance(body, commands.FetchIndexAck)
    assert peer.asked.count("AddConnection") == 2


def test_question_without_an_answer_is_unknown() -> None:
    peer = Peer(lambda _: None)
    with pytest.raises(OutcomeUnknown, match="no answer to FetchIndex"):
        peer.run(line_of().call(INDEX, soon()))


def test_refusal_is_an_error_with_the_servers_words() -> None:
    peer = Peer(lambda request: Answer(request.head, None, int(Number.TOPIC_UNKNOWN), "there is no topic 't'"))  # type: ignore[union-attr]  # a request
    with pytest.raises(Refused, match="there is no topic 't'") as caught:
        peer.run(line_of().call(INDEX, soon()))
    assert caught.value.code == "topic-unknown"


def test_server_that_forgot_the_connection_gets_a_new_one() -> None:
    forgot = [True]

    def once(request: object) -> Answer:
        if forgot.pop() if forgot else False:
            return Answer(request.head, None, int(Number.CONNECTION_UNKNOWN), "who?")  # type: ignore[attr-defined]  # a request
        return answered(request)

    peer, line = Peer(once), line_of()
    peer.run(line.call(INDEX, soon()))
    assert peer.asked.count("AddConnection") == 2


def test_owners_are_looked_up_again_when_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    peer, line = Peer(answered), line_of(commands.AddProducer(topics=["t"], app="app", sequence=0))
    peer.run(line.up(soon()))
    peer.run(line.up(soon()))
    assert peer.asked.count("FetchCluster") == 1
    monkeypatch.setattr(lines, "REFRESH_S", 0.0)
    peer.partitions = 2
    peer.run(line.up(soon()))
    assert (peer.asked.count("FetchCluster"), peer.asked.count("AddProducer")) == (2, 1)
    assert line.ownership["t"].partitions == [0, 1]


def test_line_goes_to_the_owner_when_the_server_said_it_is_not() -> None:
    peer, line = Peer(answered), line_of()
    link = peer.run(line.up(soon()))
    peer.leader = Address("there", 2)
    line.stale = True
    peer.run(line.up(soon()))
    link.lose(Unreachable("cut"))
    peer.run(line.up(soon()))
    assert peer.dialled == [HERE, Address("there", 2)]
