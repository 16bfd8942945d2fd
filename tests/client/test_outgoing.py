"""What a producer has on its way, without sockets: batches, order, what is sent again and what never is."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from serai import limits
from serai._core.crc import crc32c
from serai._core.frames import Run
from serai._core.parcels import Delivery
from serai.client.outgoing import Manner, Outgoing, Position, Receipt
from serai.client.settings import MANNER
from serai.doors.jmq.connection import RunAnswer
from serai.doors.jmq.schema.numbers import Number
from serai.errors import Backpressure, DiskFull, Misuse, OutcomeUnknown, Refused, TooLarge, Unreachable
from tests.client.kit import Peer, line_of, push

if TYPE_CHECKING:
    from serai.doors.jmq.connection import Request

PLAIN: dict[str, Any] = {"key": None, "headers": None, "partition": None, "priority": 0, "flag": 0}


class Log:
    """Stores runs, unless the next code says otherwise."""

    def __init__(self, *codes: int, silent: bool = False, partitions: int = 1) -> None:
        self.codes = list(codes)
        self.silent = silent
        self.runs: list[Run] = []
        self.values: list[tuple[int, bytes]] = []
        self.peer = Peer(self.store, partitions=partitions)

    def store(self, run: Request | Run) -> RunAnswer | None:
        assert isinstance(run, Run)
        if self.silent:
            return None
        code = self.codes.pop(0) if self.codes else 0
        if code:
            return RunAnswer(run, -1, -1, code)
        first = len(self.values)
        self.runs.append(run)
        held = Delivery(
            run.set.data, topic="t", partition=0, index=0, lead=0, count=run.set.messages, inflated_max=1 << 20
        )
        self.values += [(run.partition, value) for value in held.values]
        return RunAnswer(run, 0, first)


def producer(**manner: Any) -> Outgoing:
    return Outgoing(line_of(), "t", "app", Manner(**{**MANNER, **manner}))


def add(out: Outgoing, *values: bytes, **more: Any) -> list[Receipt]:
    return [out.add(value, **{**PLAIN, **more}) for value in values]


def test_messages_are_gathered_until_there_are_enough() -> None:
    log, out = Log(), producer(batch_count=3)
    receipts = add(out, b"a", b"b")
    assert not out.has_ready
    receipts += add(out, b"c", b"d")
    assert out.has_ready
    log.peer.run(out.push())
    log.peer.turn()
    assert [receipt.done for receipt in receipts] == [True, True, True, False]
    assert [receipt.position().index for receipt in receipts[:3]] == [0, 1, 2]
    push(log.peer, out)
    assert receipts[3].position() == Position(0, 3)
    assert out.is_empty
    assert [run.set.messages for run in log.runs] == [3, 1]


def test_messages_are_gathered_until_they_have_enough_bytes() -> None:
    out = producer(batch_bytes=100)
    add(out, bytes(50))
    assert not out.has_ready
    add(out, bytes(50))  # does not fit beside the first
    assert out.has_ready


def test_messages_linger_so_long_and_no_longer() -> None:
    out = producer(linger_s=5.0)
    add(out, b"a")
    due_s = out.due_s
    out.close_due(due_s - 0.001)
    assert not out.has_ready
    out.close_due(due_s)
    assert (out.has_ready, out.due_s) == (True, float("inf"))
    hasty = producer(linger_s=0.0)
    add(hasty, b"a")
    assert hasty.has_ready


def test_list_is_one_request_and_has_one_outcome() -> None:
    log, out = Log(), producer(batch_count=10)
    add(out, b"before")
    receipt = out.add_many([b"%d" % each for each in range(20)], partition=None)
    (after,) = add(out, b"after")
    push(log.peer, out)
    assert [(run.frames, run.set.messages) for run in log.runs] == [(3, 22)]  # alike, so that they are handled as one
    assert (receipt.position(), after.position()) == (Position(0, 1, 20), Position(0, 21))
    assert [value for _, value in log.values] == [b"before", *(b"%d" % each for each in range(20)), b"after"]
    with pytest.raises(Misuse, match="empty"):
        out.add_many([], partition=None)


def test_keys_choose_partitions_and_keep_their_order() -> None:
    log = Log(partitions=4)
    out = producer()
    log.peer.run(out.line.up(float("inf")))
    for number in range(40):
        add(out, b"%d" % number, key=f"k{number % 7}")
    add(out, b"chosen", partition=2, key="k0")
    push(log.peer, out)
    for number in range(40):
        assert (crc32c(b"k%d" % (number % 7)) % 4, b"%d" % number) in log.values
    for each in range(4):
        numbers = [int(value) for partition, value in log.values if partition == each and value != b"chosen"]
        assert numbers == sorted(numbers)
    assert (2, b"chosen") in log.values


def test_compressed_messages_are_one_batch() -> None:
    log, out = Log(), producer(compression="zlib")
    receipts = add(out, *(b"body %d " % each * 10 for each in range(50)))
    push(log.peer, out)
    (run,) = log.runs
    assert (run.set.entries, run.set.messages) == (1, 50)
    assert len(bytes(run.set.data)) < 50 * 80
    assert zlib.decompress(bytes(run.set.data)[20:])
    assert [value for _, value in log.values] == [b"body %d " % each * 10 for each in range(50)]
    assert receipts[49].position() == Position(0, 49)


def test_refusal_that_stored_nothing_is_tried_again_in_order() -> None:
    log, out = Log(int(Number.PRODUCE_NOT_LEADER), int(Number.ELECTION_ERROR)), producer(batch_count=1)
    receipts = add(out, b"a")
    push(log.peer, out)
    assert not receipts[0].done
    assert out.line.is_old
    receipts += add(out, b"b")
    out._held_until_s = 0.0
    push(log.peer, out)
    out._held_until_s = 0.0
    push(log.peer, out)
    assert [receipt.position().index for receipt in receipts] == [0, 1]
    assert [value for _, value in log.values] == [b"a", b"b"]
    assert log.peer.asked.count("FetchCluster") >= 2


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (Number.DISK_FULL, DiskFull), (Number.TOPIC_UNKNOWN, Refused), (Number.REPLICATION_TIMEOUT, OutcomeUnknown),
        (Number.UNKNOWN_ERROR, Refused),
    ],
)  # fmt: skip
def test_refusal_for_good_is_the_outcome(number: Number, kind: type[Exception]) -> None:
    log, out = Log(int(number)), producer()
    receipts = add(out, b"a", b"b")
    push(log.peer, out)
    for receipt in receipts:
        with pytest.raises(kind, match=str(int(number))):
            receipt.position()
    assert (log.values, out.is_empty, out.has_room) == ([], True, True)


def test_too_many_requests_is_backpressure_once_the_time_is_over() -> None:
    log, out = Log(int(Number.TOO_MANY_REQUESTS)), producer()
    (receipt,) = add(out, b"a")
    out.close_all()
    log.peer.run(out.push())
    receipt.request.deadline_s = 0.0
    log.peer.turn()
    with pytest.raises(Backpressure):
        receipt.position()


def test_lost_connection_leaves_what_was_sent_unknown_and_keeps_the_rest() -> None:
    log, out = Log(silent=True), producer(batch_count=1)
    (first,) = add(out, b"sent")
    push(log.peer, out)
    assert out.line.link is not None
    out.line.link.lose(Unreachable("cut"))
    with pytest.raises(OutcomeUnknown, match="may have been done"):
        first.position()
    (second,) = add(out, b"kept")
    log.silent = False
    push(log.peer, out)
    assert (second.position(), log.values) == (Position(0, 0), [(-1, b"kept")])


def test_what_could_not_be_sent_in_time_is_surely_not_stored() -> None:
    log, out = Log(), producer()
    log.peer.run(out.line.up(float("inf")))
    (receipt,) = add(out, b"late")
    receipt.request.deadline_s = 0.0
    push(log.peer, out)
    with pytest.raises(Unreachable, match="not stored"):
        receipt.position()
    assert log.values == []


def test_window_counts_bytes_without_an_outcome() -> None:
    log, out = Log(), producer(window_bytes=1000)
    freed: list[bool] = []
    out.on_room = lambda: freed.append(out.has_room)
    while out.has_room:
        add(out, bytes(100))
    push(log.peer, out)
    assert (out.has_room, freed) == (True, [True])


def test_level_none_is_done_when_it_is_sent() -> None:
    log, out = Log(), producer(level="none")
    (receipt,) = add(out, b"a")
    push(log.peer, out)
    assert (receipt.position(), [value for _, value in log.values]) == (Position(-1, -1), [b"a"])


def test_request_beyond_a_frame_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRAME_BYTES_MAX", 10_000)
    log, out = Log(), producer()
    with pytest.raises(TooLarge):
        add(out, bytes(10_000))
    with pytest.raises(TooLarge):
        out.add_many([bytes(1000)] * 10, partition=None)
    assert out.is_empty
    (receipt,) = add(out, bytes(8000))
    push(log.peer, out)
    assert receipt.position() == Position(0, 0)


def test_value_that_is_no_bytes_leaves_nothing_behind() -> None:
    out = producer()
    with pytest.raises(TypeError):
        add(out, "text")  # type: ignore[arg-type]  # that is what is tried
    with pytest.raises(TypeError):
        out.add_many(["text"], partition=None)  # type: ignore[list-item]  # and here
    assert out.is_empty


@pytest.mark.parametrize("wrong", [{"level": "maybe"}, {"compression": "rar"}])
def test_manner_that_does_not_exist_is_misuse(wrong: dict[str, str]) -> None:
    with pytest.raises(Misuse, match=r"one of|is None"):
        producer(**wrong)
