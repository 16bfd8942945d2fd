"""kill -9 at any moment: what was published is there, whole and once, and the next writer goes on behind it.

While a process writes, a reader here follows it in every shape, so a torn message would be seen while it is torn; at
the end everything is read again from the start.
"""

from __future__ import annotations

import time
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from tests.faults.kit import SHAPES, Victim, looks, proof

if TYPE_CHECKING:
    from pathlib import Path

EVERY_KILL = [pytest.param(5, id="5 kills"), pytest.param(30, id="30 kills", marks=pytest.mark.slow)]
PAGE_SIZES = [4096, 1 << 16]


# ------------------------------------------------------------------------------------------------ one producer


class Follower:
    """Reads along, in another shape every time, and checks that offset, number and epoch go on without a gap."""

    def __init__(self, queue: serai.Queue) -> None:
        self.reader = queue.reader(0)
        self.offset = 0
        self.epoch = 0
        self.turns = 0

    def look(self) -> None:
        self.turns += 1
        for offset, payload in looks(self.reader, SHAPES[self.turns % len(SHAPES)]):
            epoch, number = proof(payload)
            assert offset == self.offset
            assert number == offset // 16
            assert epoch >= self.epoch
            self.offset += 16
            self.epoch = epoch

    @property
    def count(self) -> int:
        return self.offset // 16


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("kills", EVERY_KILL)
def test_nothing_published_is_lost_or_torn_when_the_writer_is_killed(
    kills: int, page_size: int, tmp_path: Path
) -> None:
    folder, dice, busy = tmp_path / "queue", Random(kills * page_size), 0
    folder.mkdir()
    with serai.Queue(folder, "r", page_size=page_size) as queue:
        follower = Follower(queue)
        for epoch in range(1, kills + 1):
            before = follower.count
            victim = Victim("single", folder, epoch, page_size)
            victim.wait_until_ready()
            opening = dice.random() < 0.25  # dies while it opens the queue, most of the time
            while not opening and victim.hear() < 0:
                follower.look()
            end = time.monotonic() + dice.choice((0.01, 0.03, 0.1)) * dice.random()
            while time.monotonic() < end:
                follower.look()
                victim.hear()
            reported = victim.kill()
            follower.look()
            assert follower.count > reported, "a published message is not there"
            busy += follower.count > before
        again = Follower(queue)
        again.look()
        assert again.count == follower.count
    with serai.Queue(folder, page_size=page_size) as queue:  # and one that is not killed
        assert queue.writer().append(b"goes on") == 16 * again.count
    assert not list(folder.glob("*.new"))
    print(
        f"\n{kills} kills, {busy} while it wrote, {again.count} messages, {follower.turns} looks, pages of {page_size}"
    )
    assert busy >= kills // 2


# ------------------------------------------------------------------------------------------------ several producers


class Crowd:
    """Three producers, one of which is killed now and then, and a reader that follows them all."""

    names = ("AA0", "BB1", "CC2")

    def __init__(self, folder: Path, page_size: int) -> None:
        self.folder, self.page_size = folder, page_size
        self.reported: dict[tuple[str, int], int] = {}
        self.epochs = dict.fromkeys(self.names, 0)
        self.victims: dict[str, Victim] = {}
        self.seen: dict[int, tuple[str, int, int]] = {}
        self.skipped: set[int] = set()
        self.turns = 0

    def start(self, name: str) -> None:
        self.epochs[name] += 1
        self.victims[name] = Victim("several", self.folder, self.epochs[name], self.page_size, name)
        self.victims[name].wait_until_ready()

    def kill(self, name: str) -> None:
        self.reported[name, self.epochs[name]] = self.victims.pop(name).kill()

    def look(self, reader: serai.Reader) -> None:
        """Reads up to the tail; an unfinished entry is told once, with its place, and passed."""
        self.turns += 1
        for victim in self.victims.values():
            victim.hear()
        try:
            if self.turns % 2:
                while len(batch := reader.read_batch(20_000)):
                    for offset, payload in zip(batch.offsets, batch.to_list(), strict=True):
                        self.take(offset, "", payload)
            else:
                for m in reader:
                    self.take(m.offset, m.producer, m.payload)
        except serai.DeadProducer as error:
            self.skip(error, reader)

    def skip(self, error: serai.DeadProducer, reader: serai.Reader) -> None:
        assert error.offset not in self.skipped
        assert error.producer in self.names
        assert reader.offset == error.offset + 16
        self.skipped.add(error.offset)

    def take(self, offset: int, name: str, payload: bytes) -> None:
        assert offset not in self.seen
        self.seen[offset] = (name, *proof(payload))


def assert_all_are_there(crowd: Crowd) -> int:
    """Everybody came back once more, so every entry is finished: dense offsets, each producer's own order, no doubles."""
    numbers: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    newest = dict.fromkeys(crowd.names, 0)
    offset = 0
    with serai.MultiQueue(crowd.folder) as queue:
        for m in queue.reader():
            epoch, number = proof(m.payload)
            assert m.offset == offset
            assert epoch >= newest[m.producer], "a message of an earlier run comes after one of a later run"
            assert number == numbers[m.producer, epoch] + 1, "a message is missing, doubled or out of order"
            newest[m.producer], numbers[m.producer, epoch] = epoch, number
            if offset in crowd.seen:
                name, *rest = crowd.seen.pop(offset)
                assert (name or m.producer, *rest) == (m.producer, epoch, number), "a message changed after it was read"
                crowd.skipped.discard(offset)
            else:
                assert offset in crowd.skipped, f"the follower passed the message at {offset} in silence"
            offset += 16
    assert not crowd.seen
    for (name, epoch), number in crowd.reported.items():
        assert numbers[name, epoch] >= number, f"{name} had published {number} in run {epoch}"
    return offset // 16


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("kills", EVERY_KILL)
def test_producers_lose_nothing_when_one_after_the_other_is_killed(kills: int, page_size: int, tmp_path: Path) -> None:
    folder, dice = tmp_path / "queue", Random(kills + page_size)
    folder.mkdir()
    crowd = Crowd(folder, page_size)
    with serai.MultiQueue(folder, page_size=page_size) as queue:
        reader = queue.reader(0)
        for name in crowd.names:
            crowd.start(name)
        for _ in range(kills):
            end = time.monotonic() + 0.1 * dice.random()
            while time.monotonic() < end:
                crowd.look(reader)
            name = dice.choice(crowd.names)
            crowd.kill(name)
            crowd.look(reader)
            crowd.start(name)
        for name in crowd.names:
            crowd.kill(name)
        for name in crowd.names:  # each comes back and finishes what it had begun
            with serai.MultiQueue(folder, name=name) as back:
                back.writer()
        end = time.monotonic() + 20
        while reader.offset < queue.stat().end_offset and time.monotonic() < end:
            crowd.look(reader)
    skipped = len(crowd.skipped)
    total = assert_all_are_there(crowd)
    print(f"\n{kills + 3} kills, {total} messages, {skipped} entries seen unfinished, pages of {page_size}")
    assert total > 100
