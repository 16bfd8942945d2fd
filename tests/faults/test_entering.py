"""At most one writer, whatever two processes do at the same time; and nobody alive is taken for dead.

Where two processes must meet at one instant, a call of the system is wrapped so that the second one acts inside the
first one's call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import serai
from tests.faults.kit import ROOT, run_python, said
from tests.helpers import patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def inside(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[str], object]) -> None:
    """Before each call of os.<name>, `act` hears the last argument; what it does there calls the real one."""
    real = getattr(os, name)

    def call(*arguments: object, **keywords: object) -> object:
        with monkeypatch.context() as patch:
            patch.setattr(os, name, real)
            act(str(arguments[-1]))
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, call)


# ------------------------------------------------------------------------------------------------ one writer

ENTER = """
import os, sys, time
import serai
folder, moment = sys.argv[1], float(sys.argv[2])
queue = serai.Queue(folder, page_size=4096)
while time.time() < moment:
    pass
try:
    queue.writer().append(b"x")
    print("writer", flush=True)
except serai.Locked:
    print("locked", flush=True)
sys.stdin.read()
"""


def test_of_processes_that_enter_a_fresh_directory_together_one_is_the_writer(tmp_path: Path) -> None:
    for attempt in range(3):
        folder, moment = tmp_path / str(attempt), time.time() + 0.3
        command = [sys.executable, "-c", ENTER, str(folder), str(moment)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(3)]  # type: ignore[call-overload]
        answers = [process.stdout.readline().strip() for process in processes]
        for process in processes:
            process.communicate("")
        assert sorted(answers) == ["locked", "locked", "writer"]
        with serai.Queue(folder, "r") as queue:
            assert list(queue.reader().payloads()) == [b"x"]


def test_nobody_enters_while_the_first_page_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is faster by the whole way: its page has the name when ours asks for it."""
    other = serai.Queue(tmp_path, page_size=64)
    inside(monkeypatch, "link", lambda path: other.writer() if path.endswith("0.qx") else None)
    with serai.Queue(tmp_path, page_size=64) as queue, pytest.raises(serai.Locked):
        queue.writer()
    assert other.writer().append(b"x") == 0
    other.close()


def test_nobody_enters_while_the_writer_turns_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []

    def intrude(path: str) -> None:
        try:
            serai.Queue(tmp_path).writer()
            outcomes.append(f"in at {path}")
        except serai.Locked:
            outcomes.append("locked")

    with serai.Queue(tmp_path, page_size=64) as queue:
        writer = queue.writer()
        for name in ("link", "unlink", "close", "dup"):
            with monkeypatch.context() as patch:
                inside(patch, name, intrude)
                assert [writer.append(b"%d" % number) for number in range(12)]
        assert len(list(queue.reader().payloads())) == 48
    assert set(outcomes) == {"locked"}
    assert len(outcomes) > 10
    with serai.Queue(tmp_path) as queue:  # and when it has gone, the next one may
        assert queue.writer().append(b"next") == 48 * 16


def test_threads_that_enter_together_give_one_writer(tmp_path: Path) -> None:
    for attempt in range(20):
        inside_now: list[serai.Queue] = []
        begin = threading.Barrier(4)

        def enter(folder: Path = tmp_path / str(attempt), begin: threading.Barrier = begin) -> None:
            queue = serai.Queue(folder, page_size=64)
            begin.wait()
            try:
                queue.writer()
                inside_now.append(queue)  # noqa: B023 - used in this turn only
            except serai.Locked:
                pass

        threads = [threading.Thread(target=enter) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(inside_now) == 1
        inside_now[0].close()


def test_threads_that_forget_the_lock_get_an_error_and_lose_nothing(tmp_path: Path) -> None:
    source = """
        import pathlib, sys
        from tests.faults.test_entering import write_without_lock
        write_without_lock(pathlib.Path(sys.argv[1]))
    """
    said(run_python(source, tmp_path))


def write_without_lock(tmp_path: Path) -> None:
    """One thread writes columns, which are copied without the interpreter's lock, the other single messages in between."""
    column = [b"A%06d" % number * 40 for number in range(50_000)]
    with serai.Queue(tmp_path / "shelf", page_size=1 << 24) as shelf:
        shelf.writer().append_many(column)
        batch = shelf.reader().read_batch(1 << 30)
    stop, written, words = threading.Event(), {"columns": 0, "singles": 0}, set[str]()

    def write_singles() -> None:
        while not stop.is_set():
            try:
                writer.append(b"B%06d" % written["singles"])
                written["singles"] += 1
            except RuntimeError as error:
                words.add(str(error))

    with serai.Queue(tmp_path / "queue", page_size=1 << 26) as queue:
        writer = queue.writer()
        thread = threading.Thread(target=write_singles)
        thread.start()
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            end = time.monotonic() + 20
            while written["columns"] < 6 and time.monotonic() < end:
                try:
                    writer.extend_arrow(batch.values)
                    written["columns"] += 1
                except RuntimeError as error:
                    words.add(str(error))
        finally:
            sys.setswitchinterval(before)
            stop.set()
            thread.join()
        found = list(queue.reader().payloads())
    assert all("two threads" in word for word in words)
    assert [payload for payload in found if payload[:1] == b"A"] == column[: len(batch)] * written["columns"]
    assert [payload for payload in found if payload[:1] == b"B"] == [b"B%06d" % n for n in range(written["singles"])]


# ------------------------------------------------------------------------------------------------ fork

FORK = """
import gc, os, sys
import serai
folder, kind, end = sys.argv[1:]
make = {"single": lambda: serai.Queue(folder, page_size=4096),
        "several": lambda: serai.MultiQueue(folder, name="AA0", page_size=4096)}[kind]
queue = make()
writer = queue.writer()
assert writer.append(b"parent") == 0
child = os.fork()
if child == 0:
    if end == "writes":
        for write in (lambda: writer.append(b"child"), lambda: writer.append_many([b"child"] * 500),
                      lambda: writer.new_message().pack_int(1).write_message(), lambda: queue.writer().append(b"child"),
                      lambda: writer.template("int").append((1,)), writer.force):
            try:
                write()
                os._exit(3)
            except serai.Misuse as error:
                assert "process" in str(error) or "closed" in str(error), error
        os._exit(0)
    if end == "drops":
        del queue, writer
        gc.collect()
        os._exit(0)
    if end == "closes":
        queue.close()
        os._exit(0)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
try:
    make().writer()
    print("a second writer is in")
except serai.Locked:
    print("locked")
assert writer.append(b"parent again") == 16
print(list(queue.reader().payloads()))
"""


@pytest.mark.parametrize("end", ["drops", "closes", "exits", "writes"])
@pytest.mark.parametrize("kind", ["single", "several"])
def test_forked_child_neither_writes_nor_lets_anybody_in(kind: str, end: str, tmp_path: Path) -> None:
    done = run_python(FORK, tmp_path, kind, end)
    assert said(done) == "locked\n[b'parent', b'parent again']\n"


# ------------------------------------------------------------------------------------------------ page sizes


def test_page_size_is_looked_up_again_when_the_first_page_is_made(tmp_path: Path) -> None:
    """Two queues were opened on an empty directory; the second to write takes what the first one made."""
    late = serai.Queue(tmp_path)
    with serai.Queue(tmp_path, page_size=4096) as early:
        early.writer().append_many([b"%d" % number for number in range(600)])
    assert late.writer().append(b"600") == 9600
    assert [int(payload) for payload in late.reader().payloads()] == list(range(601))
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {4096}
    late.close()


def test_queue_with_another_page_size_is_refused_when_the_first_page_is_made(tmp_path: Path) -> None:
    late = serai.Queue(tmp_path, page_size=1 << 16)
    with serai.Queue(tmp_path, page_size=4096) as early:
        early.writer().append(b"x")
    with pytest.raises(serai.Misuse, match="4096"):
        late.writer()
    late.close()


@pytest.mark.parametrize("kind", ["single", "several"])
def test_page_that_another_one_made_meanwhile_keeps_its_length(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other producer makes the first page while ours, of another length, waits for its name."""

    def make(name: str, page_size: int) -> serai.Queue | serai.MultiQueue:
        if kind == "single":
            return serai.Queue(tmp_path, page_size=page_size)
        return serai.MultiQueue(tmp_path, name=name, page_size=page_size)

    early = make("AA0", 4096)

    def be_faster(path: str) -> None:
        if path.endswith("0.qx") and not (tmp_path / "0.qx").exists():
            early.writer().append_many([b"x"] * 100)
            if kind == "single":
                early.close()

    inside(monkeypatch, "link", be_faster)
    late = make("BB1", 1 << 16)
    with pytest.raises(serai.SeraiError) as raised:
        late.writer().append(b"y")
    assert "4096" in str(raised.value)
    late.close()
    monkeypatch.undo()
    early.close()
    assert {path.stat().st_size for path in tmp_path.rglob("*.q[xd]")} == {4096}
    with make("AA0", 4096) as queue:
        assert queue.writer().append(b"z") == 1600


# ------------------------------------------------------------------------------------------------ who is alive


def claimed(folder: Path) -> serai.MultiQueue:
    """A living producer that has claimed an entry and not finished it."""
    queue = serai.MultiQueue(folder, name="AA0", page_size=4096)
    queue.writer().append(b"a")
    patch(folder / "0.qx", 16 + 8, b"\x01\0\0\0" + b"AA0"[::-1])
    return queue


def test_living_producer_is_not_taken_for_dead_when_no_file_can_be_opened(tmp_path: Path) -> None:
    queue = claimed(tmp_path)
    text = said(run_python("""
import os, resource, sys, time
import serai
reader = serai.MultiQueue(sys.argv[1]).reader()
assert reader.next().payload == b"a" and reader.next() is None
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hogs = []
try:
    while True:
        hogs.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(30):
    try:
        assert reader.next() is None
    except OSError as error:
        assert error.errno == 24
    time.sleep(0.001)
for fd in hogs:
    os.close(fd)
for _ in range(10):
    assert reader.next() is None
    time.sleep(0.001)
print(reader.offset)
""", queue.path))  # fmt: skip
    assert text == "16\n"


def test_living_producer_is_not_taken_for_dead_by_a_reader_of_another_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user | run as root")
    queue = claimed(tmp_path)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o005 == 0o005:
            break
        path.chmod(path.stat().st_mode | 0o055)
    text = said(run_python("""
import os, sys, time
import serai
reader = serai.MultiQueue(sys.argv[1]).reader()
os.setegid(65534)
os.seteuid(65534)
assert reader.next().payload == b"a"
for _ in range(30):
    assert reader.next() is None
    time.sleep(0.001)
print(reader.offset)
""", queue.path))  # fmt: skip
    assert text == "16\n"


def test_two_compressing_at_once_or_one_of_each_kind_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%05d" % number * 100 for number in range(100)]
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many(bodies)
    refused = []

    def disturb(_path: str) -> None:
        for work in ("compress", "expand"):
            with serai.Queue(tmp_path) as other:
                try:
                    getattr(other, work)()
                except serai.Locked:
                    refused.append(work)

    with serai.Queue(tmp_path) as queue:
        for work in ("compress", "expand"):
            for name in ("replace", "unlink"):
                with monkeypatch.context() as patch:
                    inside(patch, name, disturb)
                    getattr(queue, work)()
                assert list(queue.reader().payloads()) == bodies
    assert refused
    with serai.Queue(tmp_path, "r") as queue:
        assert list(queue.reader().payloads()) == bodies


def test_opening_while_pages_come_and_go(tmp_path: Path) -> None:
    """Another process compresses and expands all the time; opening, counting and reading do not mind."""
    bodies = [b"%05d" % number * 100 for number in range(60)]
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many(bodies)
    worker = subprocess.Popen(
        [sys.executable, "-c", "import sys, serai\nq = serai.Queue(sys.argv[1])\nwhile True:\n    q.compress()\n    q.expand()",
         str(tmp_path)], cwd=ROOT,
    )  # fmt: skip
    try:
        end, looks = time.monotonic() + 0.7, 0
        while time.monotonic() < end:
            with serai.Queue(tmp_path, "r") as queue:
                assert list(queue.reader().payloads()) == bodies
                assert queue.stat().messages == 60
                looks += 1
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()
    print(f"\n{looks} openings while pages came and went")


def test_writer_that_opens_while_a_page_is_expanded_cuts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between "there is no plain page" and "there is no compressed one" the page was expanded."""
    bodies = [b"%05d" % number * 20 for number in range(41 * 2)]  # ends close behind a page end
    with serai.Queue(tmp_path, page_size=4096) as queue:
        queue.writer().append_many(bodies)
        assert queue.compress() == 2
    from serai.log.store import PageFiles

    real = PageFiles.present
    helper = serai.Queue(tmp_path)
    asked: list[int] = []

    def present(self: PageFiles, number: int) -> bool:
        answer = real(self, number)
        if not answer and not asked:
            asked.append(number)
            helper.expand()
        return answer

    monkeypatch.setattr(PageFiles, "present", present)
    with serai.Queue(tmp_path) as queue:
        assert queue.writer().append(b"next") == 16 * len(bodies)
        assert list(queue.reader().payloads()) == [*bodies, b"next"]
