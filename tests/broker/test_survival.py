"""What survives: nothing acknowledged comes again, nothing else is lost, order holds, whatever is killed when.

A state machine drives the broker with restarts against a plain model; a child process is killed for real, at
any point of its work, and what it said is compared with what the directory says afterwards.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serai._core.entries import HOUSE
from serai.broker import Consumer, Delivery, Session
from serai.broker.groups import position_key
from serai.broker.progress import Progress
from serai.errors import Corrupt
from serai.log.engine import Level
from tests.broker.kit import House, batch, bodies_of, entry, refused, words

ROOT = Path(__file__).resolve().parents[2]
GROUPS = ["app", "app.night"]
PARTITIONS = 2
KILLS = 12


class GroupsAgainstModel(RuleBasedStateMachine):
    """Two groups, two partitions, consumers that come and go, leases that end, a server that starts again."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))  # a start syncs a lot
        self.house = House(self.folder / "data")
        self.house.topic(partitions=PARTITIONS)
        self.stored: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.ends: list[list[int]] = [[0] for _ in range(PARTITIONS)]  # of entries
        self.made = 0
        self.acked = {group: [set[int]() for _ in range(PARTITIONS)] for group in GROUPS}
        self.begin()

    def begin(self) -> None:
        self.sessions: list[Session] = [self.house.guest() for _ in range(2)]
        self.held: list[tuple[str, Delivery]] = []  # everything that was ever delivered in this life
        self.leased: dict[tuple[str, int], int] = {}  # when the lease ends

    def teardown(self) -> None:
        self.house.close()
        shutil.rmtree(self.folder)

    def consumer(self, who: int, group: str) -> Consumer:
        return self.house.consumer(self.sessions[who], group=group)

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 6), wrapped=st.booleans())
    def produce(self, partition: int, count: int, wrapped: bool) -> None:
        bodies = words(count, self.made)
        data = batch(bodies) if wrapped else b"".join(map(entry, bodies))
        ticket = self.house.broker.produce(
            self.sessions[0], "orders", data, HOUSE, app="app", partition=partition, now_ms=self.house.now_ms
        )
        assert (ticket.ordinal, ticket.count) == (len(self.stored[partition]), count)
        self.stored[partition] += bodies
        end = ticket.ordinal + count
        self.ends[partition] += [end] if wrapped else range(ticket.ordinal + 1, end + 1)
        self.made += count

    @rule(who=st.integers(0, 1), group=st.sampled_from(GROUPS), count=st.integers(1, 8), timeout_ms=st.integers(1, 50))
    def fetch(self, who: int, group: str, count: int, timeout_ms: int) -> None:
        delivery = self.house.fetch(self.consumer(who, group), count=count, ack_timeout_ms=timeout_ms)
        now_ms = self.house.now_ms
        if not delivery.count:
            for number in range(PARTITIONS):  # nothing to be had: everything is leased or acknowledged
                missing = set(range(len(self.stored[number]))) - self.acked[group][number]
                assert not missing or self.leased.get((group, number), 0) > now_ms
            return
        number = delivery.partition
        assert self.leased.get((group, number), 0) <= now_ms, "two leases of one partition"
        got = range(delivery.ordinal, delivery.stop)
        assert not self.acked[group][number] & set(got), "delivered after it was acknowledged"
        assert delivery.ordinal == min(set(range(len(self.stored[number]))) - self.acked[group][number]), "not in order"
        assert bodies_of(delivery) == self.stored[number][delivery.ordinal : delivery.stop]
        self.held.append((group, delivery))
        self.leased[group, number] = now_ms + timeout_ms

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Acknowledge something that was delivered once, perhaps long ago, perhaps only its front."""
        group, delivery = data.draw(st.sampled_from(self.held))
        ends = [each for each in self.ends[delivery.partition] if delivery.ordinal < each <= delivery.stop]
        stop = data.draw(st.sampled_from(ends))
        before = self.position(group, delivery.partition)
        share = self.house.broker.find("orders").groups[group].share(delivery.partition)
        counts = delivery.ordinal == before or (
            share.deadline_ms > 0 and share.start == delivery.ordinal and delivery.ordinal < before < stop
        )
        after = self.house.broker.ack(
            "orders", group, delivery.partition, range(delivery.ordinal, stop), now_ms=self.house.now_ms
        )
        if counts:
            self.acked[group][delivery.partition] |= set(range(stop))
            self.leased.pop((group, delivery.partition), None)
        assert after == self.position(group, delivery.partition)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle_some(self, data: st.DataObject) -> None:
        group, delivery = data.draw(st.sampled_from(self.held))
        number = delivery.partition
        ends = [each for each in self.ends[number] if delivery.ordinal <= each <= delivery.stop]  # a batch is not torn
        start, stop = sorted([data.draw(st.sampled_from(ends)), data.draw(st.sampled_from(ends))])
        if start == stop:
            return
        self.house.broker.settle_some("orders", group, number, [range(start, stop)], now_ms=self.house.now_ms)
        self.acked[group][number] |= set(range(start, stop))
        share = self.house.broker.find("orders").groups[group].shares[number]
        if not share.deadline_ms:
            self.leased.pop((group, number), None)

    @rule(group=st.sampled_from(GROUPS), number=st.integers(0, PARTITIONS - 1))
    def release(self, group: str, number: int) -> None:
        self.house.broker.release("orders", group, number, now_ms=self.house.now_ms)
        self.leased.pop((group, number), None)

    @rule(ms=st.integers(1, 60))
    def wait(self, ms: int) -> None:
        assert self.house.turn(after_ms=ms) == []

    @rule(who=st.integers(0, 1))
    def reconnect(self, who: int) -> None:
        left = self.sessions[who]
        for (group, number), _ in list(self.leased.items()):
            share = self.house.broker.find("orders").groups[group].shares[number]
            if share.holder is not None and share.holder.session is left:
                del self.leased[group, number]
        self.house.broker.leave(left)
        self.sessions[who] = self.house.guest()

    @rule()
    def restart(self) -> None:
        self.house.restart()
        self.begin()

    def position(self, group: str, number: int) -> int:
        acked = self.acked[group][number]
        return next(each for each in range(len(self.stored[number]) + 1) if each not in acked)

    @invariant()
    def positions_are_the_first_that_is_not_acknowledged(self) -> None:
        for group in GROUPS:
            for number in range(PARTITIONS):
                assert self.house.broker.index("orders", group, number).position == self.position(group, number)


GroupsAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestGroupsAgainstModel = GroupsAgainstModel.TestCase

WORK = """
import sys
from pathlib import Path
from serai.broker import Broker
from tests.broker.kit import House, bodies_of, words

house = House(Path(sys.argv[1]))
first = "orders" not in house.broker.topics
if first:
    house.topic()
guest = house.guest()
consumer = house.consumer(guest)
number = house.broker.index("orders", None, 0).end
print("ready", flush=True)
while True:
    ticket = house.produce(guest, words(7, number))
    print("produced", ticket.ordinal + ticket.count, flush=True)
    number += 7
    delivery = house.fetch(consumer, count=5)
    bodies = [body.decode() for body in bodies_of(delivery)]
    print("delivered", delivery.ordinal, delivery.stop, delivery.attempt, *bodies, flush=True)
    if number % 3:
        house.ack(delivery)
        print("acked", delivery.stop, flush=True)
    else:
        house.broker.release("orders", "app", 0, now_ms=house.now_ms)
"""


def said_before_the_kill(data: Path, seconds: float) -> list[list[str]]:
    """What a child said that worked for so long, line by line; a line that the kill cut is left out."""
    with subprocess.Popen(
        [sys.executable, "-c", WORK, str(data)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        said = child.stdout.read()
    return [line.split() for line in said[: said.rfind("\n") + 1].splitlines()]


def test_killed_broker_neither_forgets_nor_repeats_what_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20261119)
    produced = acked = lines = 0
    under_way: tuple[int, int] | None = None  # start and attempt of what was delivered and not acknowledged
    for _ in range(KILLS):
        for verb, *rest in said_before_the_kill(tmp_path / "data", chance.uniform(0, 0.05)):
            lines += 1
            if verb == "produced":
                produced = int(rest[0])
            elif verb == "acked":
                acked, under_way = int(rest[0]), None
            else:
                start, stop, attempt = map(int, rest[:3])
                assert start == acked, "an acknowledged message came again, or one was stepped over"
                assert rest[3:] == [str(each) for each in range(start, stop)]
                assert under_way is None or attempt > under_way[1], "a delivery was forgotten"
                under_way = start, attempt
        with House(tmp_path / "data") as house:
            index = house.broker.index("orders", "app", 0)
        # What was done and not said yet may be there: one set, one acknowledgement.
        assert produced <= index.end <= produced + 7
        assert acked <= index.position <= acked + 5
        if index.position > acked:
            under_way = None
        produced, acked = index.end, index.position
    assert lines > 10 * KILLS, "the children hardly worked"


def test_position_that_a_power_cut_left_in_front_of_the_log_is_taken_back(tmp_path: Path) -> None:
    with House(tmp_path / "data") as house:
        house.topic()
        guest = house.guest()
        house.produce(guest, words(10))
        house.ack(house.fetch(house.consumer(guest), count=8))
        house.broker.find("orders").partition(0).log.truncate(5)  # what was only received is gone
    with House(tmp_path / "data") as house:
        guest = house.guest()
        assert house.broker.index("orders", "app", 0).position == 5
        house.produce(guest, words(3, 100))
        assert bodies_of(house.fetch(house.consumer(guest))) == words(3, 100)


def test_position_of_a_newer_epoch_is_not_taken_over(house: House) -> None:
    house.topic()
    house.broker.positions.put(position_key(1, 0, "app"), Progress(0).encode(99), level=Level.RECEIVE)
    with refused("not-owner"):
        house.fetch(house.consumer(house.guest()))


@pytest.mark.parametrize("data", [b"", b"\1", b"\2" * 21])
def test_position_that_cannot_be_read_is_named(house: House, data: bytes) -> None:
    house.topic()
    house.broker.positions.put(position_key(1, 0, "app"), data, level=Level.RECEIVE)
    with pytest.raises(Corrupt, match=r"group 'app' in partition 0 of topic 'orders'"):
        house.fetch(house.consumer(house.guest()))
