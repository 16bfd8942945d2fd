"""A full disk under the partition log: a clear error, no signal, promises that were given are kept, and reading goes on.

As in `test_full_disk`: other processes on small file systems that are filled to the last block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import run_python, said
from tests.faults.test_full_disk import TOOLS, disk

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["disk"]

LOG_TOOLS = (
    TOOLS
    + """
import select, time
from serai import limits
from serai.errors import DiskFull
from serai.log.audit import audit
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from serai.log.view import View
from tests.faults.test_log_kill import Follower
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, Entry

def append(log, level, count=1, bodies=body):
    raw = b"".join(oracle.encode(Entry(HOUSE, bodies(1, log.end + n))) for n in range(count))
    return log.append(raw, HOUSE, level=level, now_ms=1)

def settled(engine, tickets):
    "Every promise comes true, also on a full disk: its blocks were reserved."
    end = time.monotonic() + 20
    while any(not ticket.done for ticket in tickets):
        assert time.monotonic() < end, [ticket for ticket in tickets if not ticket.done][:5]
        assert not [ticket.failed for ticket in tickets if ticket.failed]
        select.select([engine.fileno()], [], [], 0.05)
        engine.moved()

def until_full(log, tickets, level=Level.COMMIT, count=3):
    "Appends until the disk is full; what was there before the refusal is there after it."
    for _ in range(100_000):
        end = log.end
        try:
            tickets.append(append(log, level, count))
        except DiskFull as error:
            clear(error, ".q")
            assert log.end == end and log.failed is None
            return
    raise AssertionError("the disk is never full")

def small_body(epoch, number):
    return small(number, epoch)

def whole(log):
    follower = Follower(log)
    follower.look()
    assert follower.ordinal == log.end, (follower.ordinal, log.end)
    return follower.messages
"""
)


def scene(disk: Path, source: str, *arguments: object) -> str:
    text = said(run_python(LOG_TOOLS + source, disk, *arguments, timeout=120))
    print(f"\n{text.strip()}")
    return text


@pytest.mark.parametrize("page_bytes", [pytest.param(1 << 16, marks=pytest.mark.slow), 1 << 20])
def test_log_and_its_readers_live_through_a_full_disk(page_bytes: int, disk: Path) -> None:
    scene(disk, """
page_bytes, tickets = int(sys.argv[2]), []
with LocalEngine(DISK / "data", page_bytes=page_bytes) as engine:
    log = engine.open("one")
    until_full(log, tickets)
    stuff()
    for _ in range(5):
        until_full(log, tickets)                 # with the promises of the first ones still open
    settled(engine, tickets)
    with View(DISK / "data" / "p" / "one") as view:
        count = whole(log)
        assert whole(view) == count and view.committed == log.committed == log.end
    log.settle()
    log.commit()
    assert log.failed is None
    let_go()
    settled(engine, [append(log, Level.COMMIT, bodies=small_body)])
    until_full(log, tickets)
    stuff()
    settled(engine, tickets)
    count = whole(log)
with View(DISK / "data" / "p" / "one") as view:      # closed on the full disk
    assert whole(view) == count == view.committed
try:
    LocalEngine(DISK / "data").close()
except DiskFull as error:
    clear(error, "epoch")
let_go()
with LocalEngine(DISK / "data") as engine:
    log = engine.open("one")
    assert whole(log) == count
    settled(engine, [append(log, Level.COMMIT, bodies=small_body)])
assert audit(DISK / "data").problems == []
print(count + 1, "messages, full 8 times, every promise kept")
""", page_bytes)  # fmt: skip


def test_many_partitions_and_a_state_log_wait_for_one_full_disk(disk: Path) -> None:
    scene(disk, """
limits.STATE_PAGE_BYTES = 1 << 15                   # a snapshot with every page
with LocalEngine(DISK / "data", page_bytes=1 << 16) as engine:
    logs, state, tickets = [engine.open(f"log-{n}") for n in range(6)], engine.state("groups"), []
    state.put(b"key", b"first", level=Level.COMMIT)
    stuff()
    full = 0
    for turn in range(2000):
        for log in logs:
            end = log.end
            try:
                tickets.append(append(log, Level.COMMIT))
            except DiskFull as error:
                assert log.end == end
                full += 1
        if full > 50:
            break
    puts, kept, refused = 0, {b"key": b"first"}, 0
    while refused < 25:
        key, value = b"key-%d" % (puts % 40), b"%d" % puts * 300
        puts += 1
        try:
            tickets.append(state.put(key, value, level=Level.COMMIT))
            kept[key] = value
        except DiskFull as error:
            clear(error, ".q")
            assert dict(state.items()) == kept      # what was refused is not there
            refused += 1
            let_go(4096 * (refused % 7))            # enough for a put, or for a snapshot too
    settled(engine, tickets)
    let_go()
    settled(engine, [append(log, Level.COMMIT, bodies=small_body) for log in logs])
    settled(engine, [state.put(b"other", b"x", level=Level.COMMIT)])
    counts = [whole(log) for log in logs]
with LocalEngine(DISK / "data") as engine:
    assert [whole(engine.open(f"log-{n}")) for n in range(6)] == counts
    assert dict(engine.state("groups").items()) == kept | {b"other": b"x"}
assert audit(DISK / "data").problems == []
print(sum(counts), "messages in 6 logs,", full, "refusals,", puts, "puts")
""")  # fmt: skip


def test_retention_makes_room_on_a_full_disk(disk: Path) -> None:
    """The pages that go are the ones that are used again."""
    scene(disk, """
with LocalEngine(DISK / "data", page_bytes=1 << 16) as engine:
    log, tickets = engine.open("one"), []
    until_full(log, tickets)
    stuff()
    until_full(log, tickets)
    settled(engine, tickets)
    before, end = log.first, log.end
    rounds = 0
    for rounds in range(10):
        first = log.retain(Retention(bytes_max=20 * log.folder.page_bytes), now_ms=0)
        assert first > before
        before = first
        log.retain(Retention(bytes_max=4 * log.folder.page_bytes), now_ms=0) if rounds == 5 else None
        before = log.first
        until_full(log, tickets := [])
        settled(engine, tickets)
        assert tickets, "nothing fits although pages were given up"
        whole(log)
assert audit(DISK / "data").problems == []
print(end, "messages until it was full,", log.end - end, "more in", rounds + 1, "rounds of retention")
""")  # fmt: skip
