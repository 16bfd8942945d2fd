"""When an append counts as done, who brings it to the disk, and what of it goes there.

Syncs are watched, not replaced: each call is noted with its thread and the file it was for, and then done.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.view import View
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from serai.log.engine import Ticket
    from serai.log.partition import Partition

ONE = oracle.encode(Entry(HOUSE, b"x" * 100))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    with LocalEngine(tmp_path / "data", page_bytes=65536) as one:
        yield one


class Syncs:
    """What kind of file was synced, and by which thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        self._real = os.fdatasync
        patch.setattr(os, "fdatasync", self._watch)

    def _watch(self, fd: int) -> None:
        name = os.path.basename(
            os.readlink(f"/proc/self/fd/{fd}")
        )  # a page may still be known by the name it was made under
        kind = next((kind for kind in (".qd", ".qx", ".qr", "marks") if kind in name), name)
        self.seen.append((kind, threading.current_thread().name))
        self._real(fd)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _thread in self.seen]


def append(log: Partition, level: Level) -> Ticket:
    return log.append(ONE, HOUSE, level=level, now_ms=1)


def wait(engine: LocalEngine, tickets: Iterable[Ticket], seconds: float = 20) -> None:
    """As the gate waits: on the bell."""
    tickets, poll, until = list(tickets), select.poll(), time.monotonic() + seconds
    poll.register(engine.fileno(), select.POLLIN)
    while not all(ticket.done for ticket in tickets):
        assert time.monotonic() < until, "the bell did not ring"
        poll.poll(100)
        engine.moved()


@pytest.mark.parametrize("level", [Level.NONE, Level.RECEIVE])
def test_append_that_waits_for_nothing_is_done_at_once(engine: LocalEngine, level: Level) -> None:
    log = engine.open("one")
    ticket = append(log, level)
    assert ticket.done
    assert (log.end, log.committed) == (1, 0)


def test_append_of_level_commit_is_done_when_the_bell_rings(engine: LocalEngine) -> None:
    log = engine.open("one")
    ticket = append(log, Level.COMMIT)
    wait(engine, [ticket])
    assert (log.committed, log.committed_place) == (1, log.end_place)


def test_bell_names_the_logs_whose_position_moved(engine: LocalEngine) -> None:
    first, second = engine.open("first"), engine.open("second")
    append(first, Level.COMMIT)
    until, moved = time.monotonic() + 20, []
    while first not in moved and time.monotonic() < until:
        moved += engine.moved()
        time.sleep(0.001)
    assert first in moved
    assert second not in moved


def test_commit_syncs_data_pages_only(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.open("one")
    append(log, Level.RECEIVE)
    log.commit()
    syncs = Syncs(monkeypatch)
    for _ in range(20):
        append(log, Level.RECEIVE)
        log.commit()
    assert syncs.kinds == [".qd"] * 20


def test_one_sync_serves_all_who_wait(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.open("one")
    wait(engine, [append(log, Level.COMMIT)])
    syncs = Syncs(monkeypatch)
    for _ in range(5):
        wait(engine, [append(log, Level.COMMIT) for _ in range(128)])
    assert set(syncs.seen) == {(".qd", "serai-flush")}
    assert len(syncs.seen) <= 15, "128 waiters need one sync or two, not one each"
    assert [thread.name for thread in threading.enumerate()].count("serai-flush") == 1


def test_lone_waiter_flushes_itself(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine.open("one")
    append(log, Level.RECEIVE)
    syncs = Syncs(monkeypatch)
    log.commit()
    assert (log.committed, syncs.seen) == (1, [(".qd", threading.current_thread().name)])


def test_what_was_only_received_is_on_the_disk_within_a_second_or_two(engine: LocalEngine) -> None:
    log = engine.open("one")
    append(log, Level.RECEIVE)
    until = time.monotonic() + 20 * limits.FLUSH_EVERY_S
    while log.committed < 1:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_mark_follows_by_itself(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MARK_EVERY_S", 0.0)
    log = engine.open("one")
    append(log, Level.RECEIVE)
    until = time.monotonic() + 20 * limits.FLUSH_EVERY_S
    while byhand.mark_of(log.folder.path).end < 1:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert byhand.mark_of(log.folder.path).clean == 0


def test_many_partitions_are_done_in_one_turn(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [engine.open(f"p{number}") for number in range(limits.SYNC_TOGETHER + 20)]
    wait(engine, [append(log, Level.COMMIT) for log in logs])
    syncs = Syncs(monkeypatch)
    wait(engine, [append(log, Level.COMMIT) for log in logs])
    assert len(syncs.seen) < len(logs), "one sync for all of them, and a few for those that came before the thread woke"
    assert all(log.committed == 2 for log in logs)


def test_close_leaves_clean_marks_and_nothing_to_take_over(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for number in range(3):
            append(engine.open(f"p{number}"), Level.RECEIVE)
    for number in range(3):
        mark = byhand.mark_of(tmp_path / "data" / "p" / f"p{number}")
        assert (mark.end, mark.clean) == (1, 1)


def test_reader_that_stays_below_committed_sees_what_a_power_cut_cannot_take(tmp_path: Path) -> None:
    with open_partition(tmp_path / "one") as log, View(tmp_path / "one") as view:
        append(log, Level.RECEIVE)
        log.commit()
        append(log, Level.RECEIVE)
        for reader in (log, view):
            counts = [
                sum(span.count for span in reader.spans(0, bytes_max=1000, committed=committed))
                for committed in (True, False)
            ]
            assert counts == [1, 2]
