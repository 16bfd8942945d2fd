"""kill -9 at any moment of a data directory's life: what was promised is there, whole, once, under its ordinal.

While a process writes three logs and a state log at both levels, reads along here follow it through the pages it maps, so a
torn message would be seen while it is torn; at the end everything is read from the start, and audited.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.errors import OutOfRange
from serai.log.audit import audit
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.state import contents
from serai.log.view import View
from tests.faults.kit import Victim, proof
from tests.faults.log_writing import KEYS, LOGS, STATE, STATE_LOG, taken_apart
from tests.oracle import messages as oracle

if TYPE_CHECKING:
    from pathlib import Path

    from serai._core.spans import Span
    from serai.log.view import Reading

EVERY_KILL = [pytest.param(10, 1 << 14, id="10 kills"), pytest.param(60, 4096, id="60 kills", marks=pytest.mark.slow)]


def bodies(span: Span) -> list[bytes]:
    """What the messages of a span carry, whatever their dress."""
    entries = oracle.decode(bytes(span.data), span.dress)
    return [message.body for entry in entries for message in oracle.flat(entry)][span.lead :]


class Follower:
    """Reads one log along, and checks that ordinals, numbers and epochs go on without a gap."""

    def __init__(self, log: Reading) -> None:
        self.log = log
        self.ordinal = log.first
        self.epoch = self.messages = self.passed = 0

    def look(self) -> None:
        while True:
            try:
                spans = self.log.spans(self.ordinal, bytes_max=100_000)
            except OutOfRange as error:  # given up meanwhile
                self.passed += error.first - self.ordinal
                self.ordinal = max(self.ordinal + 1, error.first)  # a gap that was not given up would show in `take`
                continue
            if not spans:
                return
            for span in spans:
                self.take(span)

    def take(self, span: Span) -> None:
        assert span.ordinal == self.ordinal
        found = bodies(span)
        assert len(found) == span.count
        for raw in found:
            epoch, number = proof(raw)
            assert number == self.ordinal
            assert epoch >= self.epoch
            self.epoch = epoch
            self.ordinal += 1
        self.messages += len(found)


def assert_kept(folder: Path, promised: Counter[tuple[int, int]]) -> None:
    """Everything a killed process was promised is there for a reader of this machine."""
    for which, name in enumerate(LOGS):
        if (folder / "p" / name).exists():
            with View(folder / "p" / name) as view:
                assert view.end >= promised[which, Level.RECEIVE], f"{name}: a message that was received is not there"
                assert view.committed >= promised[which, Level.COMMIT], f"{name}: a committed message is not"
    if promised[STATE_LOG, Level.RECEIVE]:
        with View(folder / "s" / STATE) as view:
            values = contents(view)
        assert set(values) == set(KEYS)
        (number,) = {int.from_bytes(value[:8], "little") for value in values.values()}
        assert number >= max(promised[STATE_LOG, level] for level in Level), "a state that was put is not there"


@pytest.mark.parametrize(("kills", "page_bytes"), EVERY_KILL)
def test_nothing_acknowledged_is_lost_or_torn_when_the_server_is_killed(
    kills: int, page_bytes: int, tmp_path: Path
) -> None:
    folder, dice = tmp_path / "data", Random(kills * page_bytes)
    promised: Counter[tuple[int, int]] = Counter()
    said: Counter[int] = Counter()
    followers: list[Follower] = []
    for epoch in range(1, kills + 1):
        victim = Victim(folder, epoch, page_bytes, module="tests.faults.log_writing")
        victim.wait_until_ready()
        opening = dice.random() < 0.25
        while not opening and victim.hear() < 0:
            time.sleep(0.001)
        if not followers and not opening:
            followers = [Follower(View(folder / "p" / name)) for name in LOGS]
        end = time.monotonic() + dice.choice((0.03, 0.2, 0.6)) * dice.random()
        while time.monotonic() < end:
            for follower in followers:
                follower.look()
        victim.kill()
        for report in victim.reports:
            which, level, ordinal = taken_apart(report)
            promised[which, level] = max(promised[which, level], ordinal)
            said[level] += 1
        for follower in followers:
            follower.look()
        assert_kept(folder, promised)
    assert_whole(folder, followers, promised)
    print(
        f"\n{kills} kills, pages of {page_bytes}: {said[Level.RECEIVE]} promises of receive, {said[Level.COMMIT]} of commit, "
        f"{sum(one.messages for one in followers)} messages followed, {sum(one.passed for one in followers)} given up before"
    )
    assert min(said[Level.RECEIVE], said[Level.COMMIT]) > 2 * kills


def assert_whole(folder: Path, followers: list[Follower], promised: Counter[tuple[int, int]]) -> None:
    """One more process takes over, in order."""
    assert audit(folder).problems == []
    with LocalEngine(folder) as engine:
        for which, name in enumerate(LOGS):
            log = engine.open(name)
            again = Follower(log)
            again.look()
            assert again.ordinal == log.end == log.committed == followers[which].ordinal >= promised[which, 1]
    report = audit(folder)
    assert (report.problems, report.notes) == ([], [])
    assert len(list(folder.glob("p/*/*.spare"))) <= limits.SPARES_MAX * len(LOGS)
    assert not list(folder.glob("p/*/*.new"))
