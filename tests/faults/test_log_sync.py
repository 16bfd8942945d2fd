"""A disk that does not keep what it is given: after a failed sync nothing more is promised until the log is opened again.

The library `failing.c` stands before libc in another process and fails the n-th sync, for every n until none is left to
fail.  It fails once: the next one succeeds, which proves nothing, as the kernel has forgotten by then what it could not
write.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.faults.kit import run_python, said

HERE = Path(__file__).parent
CCLESS = "needs a C compiler | apt install gcc"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled."""
    library = tmp_path_factory.mktemp("failing") / "failing.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    for one in dict.fromkeys((compiler, "cc", "gcc")):
        try:
            subprocess.run([one, "-shared", "-fPIC", "-O1", "-o", library, HERE / "failing.c", "-ldl"], check=True)
        except FileNotFoundError:
            continue
        return library
    pytest.skip(CCLESS)


TOOLS = """
import ctypes, os, select, sys, time
from pathlib import Path
from serai import limits
from serai.errors import Failed
from serai.log.audit import audit
from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.faults.kit import body, proof
from tests.faults.test_log_kill import Follower
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, Entry

FOLDER = Path(sys.argv[1])
DISK = ctypes.CDLL(None)
FSYNC, FDATASYNC, SYNCFS, MSYNC, PWRITE = 1, 2, 4, 8, 16
SYNCS = FSYNC | FDATASYNC | SYNCFS | MSYNC
limits.FLUSH_EVERY_S = 0.02

def fails(first, kinds=SYNCS, inode=0):
    DISK.disk_fails(ctypes.c_long(first), ctypes.c_long(1), ctypes.c_int(kinds), ctypes.c_ulong(inode))

def works():
    DISK.disk_fails(ctypes.c_long(-1), ctypes.c_long(0), 0, ctypes.c_ulong(0))

def append(log, level, epoch=1, count=3):
    raw = b"".join(oracle.encode(Entry(HOUSE, body(epoch, log.end + n))) for n in range(count))
    return log.append(raw, HOUSE, level=level, now_ms=1)

def settled(engine, tickets, seconds=10):
    "Waits until each ticket is done or failed."
    end = time.monotonic() + seconds
    while any(not ticket.done and ticket.failed is None for ticket in tickets):
        assert time.monotonic() < end, tickets
        select.select([engine.fileno()], [], [], 0.05)
        engine.moved()

def whole(log):
    follower = Follower(log)
    follower.look()
    assert follower.ordinal == log.end
    return log.end

def refuses(log):
    "A log whose disk failed: says so, takes nothing, can be read."
    end, committed = log.end, log.committed
    for wish in (lambda: append(log, Level.COMMIT), lambda: append(log, Level.RECEIVE), log.commit, lambda: log.truncate(0)):
        try:
            wish()
        except Failed as error:
            text = str(error)
            assert log.name in text and "Input/output error" in text and "open the log again" in text, text
            assert error.code == "disk-failed"
        else:
            raise AssertionError(f"{log.name} promises something again")
    time.sleep(0.06)                       # some turns of the thread that flushes, whose syncs would succeed
    assert (log.end, log.committed) == (end, committed)
    whole(log)
"""


def scene(library: Path, folder: Path, source: str, *arguments: object) -> str:
    text = said(run_python(TOOLS + source, folder, *arguments, environment={"LD_PRELOAD": str(library)}))
    print(f"\n{text.strip()}")
    return text


def test_no_promise_follows_a_failed_sync_until_the_log_is_opened_again(failing: Path, tmp_path: Path) -> None:
    scene(failing, tmp_path / "data", """
def play(engine, log, tickets):
    "What fails somewhere in the middle."
    for number in range(12):
        tickets.append(append(log, Level.COMMIT if number % 3 else Level.RECEIVE))
        if number == 5:
            log.settle()
        if number % 4 == 3:
            settled(engine, tickets)
    settled(engine, tickets)

failures = 0
with LocalEngine(FOLDER, page_bytes=4096) as engine:
    log = engine.open("one")
    for n in range(1000):
        fails(n)
        tickets = []
        try:
            play(engine, log, tickets)
        except Failed:
            pass
        fired = DISK.disk_calls() > n
        committed = log.committed
        works()
        if not fired:
            break
        failures += 1
        assert log.failed is not None, n
        promised = max(committed, max((t.ordinal + t.count for t in tickets if t.level == 2 and t.done), default=0))
        assert all(t.failed is log.failed for t in tickets if not t.done)
        refuses(log)
        assert engine.condition().failures == failures
        end = log.end
        log.close()
        log = engine.open("one")
        assert log.failed is None and log.end == end == log.committed >= promised
        whole(log)
        settled(engine, [ticket := append(log, Level.COMMIT)])
        assert ticket.done and audit(FOLDER).problems == []
print(failures, "failed syncs of one log, none followed by a promise;", whole(log), "messages at the end")
assert failures >= 10
""")  # fmt: skip


def test_sync_that_fails_for_many_partitions_ends_the_promises_of_all_of_them(failing: Path, tmp_path: Path) -> None:
    scene(failing, tmp_path / "data", """
with LocalEngine(FOLDER, page_bytes=4096) as engine:
    logs = [engine.open(f"log-{number}") for number in range(limits.SYNC_TOGETHER + 8)]
    settled(engine, [append(log, Level.COMMIT) for log in logs])
    for log in logs:
        log.flush_lock.acquire()           # they gather behind this turn
    fails(0, SYNCFS)
    tickets = [append(log, Level.COMMIT) for log in logs]
    for log in logs:
        log.flush_lock.release()
    settled(engine, tickets)
    works()
    failed = [log for log in logs if log.failed is not None]
    for log in failed:
        refuses(log)
    assert all(ticket.done == (ticket.log.failed is None) for ticket in tickets)
    assert len(failed) >= limits.SYNC_TOGETHER, len(failed)
    assert engine.condition().failures == len(failed)
    for log in failed:
        log.close()
        again = engine.open(log.name)
        settled(engine, [append(again, Level.COMMIT)])
        assert whole(again) == 9
print(len(failed), "of", len(logs), "partitions failed together, and came back")
""")  # fmt: skip


def test_failed_partition_does_not_stop_the_others(failing: Path, tmp_path: Path) -> None:
    scene(failing, tmp_path / "data", """
with LocalEngine(FOLDER, page_bytes=1 << 16) as engine:
    logs = [engine.open(f"log-{number}") for number in range(5)]
    settled(engine, [append(log, Level.COMMIT) for log in logs])
    fails(0, inode=os.stat(FOLDER / "p" / "log-2" / "0.qd").st_ino)
    tickets = [append(log, Level.COMMIT) for log in logs for _ in range(3)]
    settled(engine, tickets)
    assert {ticket.log.name for ticket in tickets if not ticket.done} == {"log-2"}
    refuses(logs[2])
    settled(engine, others := [append(log, Level.COMMIT) for log in logs if log.name != "log-2"])
    assert all(ticket.done for ticket in others)
with LocalEngine(FOLDER) as engine:        # closing said nothing false: all of it is looked at
    assert engine.open("log-2").end == logs[2].end
    whole(engine.open("log-2"))
print("one of 5 failed, the others went on")
""")  # fmt: skip


def test_sync_that_fails_while_a_log_is_opened_is_said_and_nothing_is_promised(failing: Path, tmp_path: Path) -> None:
    scene(failing, tmp_path / "data", """
with LocalEngine(FOLDER, page_bytes=4096) as engine:
    log = engine.open("one")
    log.settle()
    for _ in range(10):
        append(log, Level.RECEIVE)
    log.abandon()
    refused = opened = 0
    for n in range(100):
        fails(n)
        try:
            log = engine.open("one")
        except Failed as error:
            assert "one" in str(error) and "Input/output error" in str(error), error
            refused += 1
        else:
            if DISK.disk_calls() <= n:
                break
            opened += 1
            if log.failed is not None:
                refuses(log)
            log.abandon()
    works()
    assert whole(log) == 30 and refused + opened >= 4, (refused, opened)
print(refused, "openings refused,", opened, "without a promise")
""")  # fmt: skip


def test_mark_that_cannot_be_written_ends_the_promises(failing: Path, tmp_path: Path) -> None:
    scene(failing, tmp_path / "data", """
with LocalEngine(FOLDER, page_bytes=4096) as engine:
    log = engine.open("one")
    append(log, Level.RECEIVE)
    fails(0, PWRITE)
    log.settle()
    assert DISK.disk_calls() == 1
    works()
    refuses(log)
    log.close()
    assert whole(engine.open("one")) == 3
print("a mark was not written")
""")  # fmt: skip
