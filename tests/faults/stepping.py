"""Dies at each call of the system, one after the other: the instants between two of them, all of them.

    python -m tests.faults.stepping SCENE FOLDER

For n = 0, 1, 2 ... a forked child plays a scene and kills itself before its n-th call of `os`, and again behind it; the
parent then looks at what the child left.  The loop ends when a child gets through, and prints how many died.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import serai
from serai.log.verify import verify
from tests.faults.kit import body, proof

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = (
    "open",
    "posix_fallocate",
    "ftruncate",
    "link",
    "unlink",
    "rename",
    "replace",
    "mkdir",
    "fsync",
    "fdatasync",
    "close",
    "dup",
)
FILLED = 14  # messages in the scenes about compressed pages: three pages and a bit


def die_at(n: int, *, behind: bool) -> None:
    """From here on, the n-th call of the system is the last one."""
    calls = count()

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            mine = next(calls)
            if mine == n and not behind:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = real(*arguments, **keywords)
            if mine == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))


# ------------------------------------------------------------------------------------------------ scenes


def write_single(folder: Path, report: Callable[[int], None]) -> None:
    """Turns index and data pages all the time; starts where the queue ends."""
    with serai.Queue(folder, page_size=64) as queue:
        writer = queue.writer()
        for _ in range(8):
            number = writer.offset // 16
            writer.append(body(1, number)[:40] if number % 5 else b"")
            report(number)
        queue.force()


def check_single(folder: Path, reported: int) -> None:
    with serai.Queue(folder, "r", page_size=64) as reading:
        found = list(reading.reader(0).payloads())
        assert len(found) > reported, f"{reported} was published, {len(found)} messages are there"
        assert_numbered(found)
    assert verify(folder).problems == [] if found else True
    with serai.Queue(folder, page_size=64) as queue:
        assert queue.writer().append(b"end") == 16 * len(found), "the next writer does not go on behind the end"
        assert_numbered(list(queue.reader(0).payloads())[:-1])
    assert not list(folder.glob("*.new")), "something half made was left"


def assert_numbered(found: list[bytes]) -> None:
    for number, payload in enumerate(found):
        assert payload == (body(1, number)[:40] if number % 5 else b""), f"message {number} is {payload!r}"


def write_several(folder: Path, report: Callable[[int], None]) -> None:
    """Two producers take turns, so that both make index pages."""
    with (
        serai.MultiQueue(folder, name="AA0", page_size=64) as a,
        serai.MultiQueue(folder, name="BB1", page_size=64) as b,
    ):
        for number in range(8):
            (a if number % 3 else b).writer().append(body(1, number)[:40])
            report(number)
        a.force()


def check_several(folder: Path, reported: int) -> None:
    for name in ("AA0", "BB1"):  # both come back
        with serai.MultiQueue(folder, name=name, page_size=64) as queue:
            queue.writer()
    with serai.MultiQueue(folder) as queue:
        found = list(queue.reader(0).payloads())
    assert len(found) > reported
    assert found == [body(1, number)[:40] for number in range(len(found))]
    with serai.MultiQueue(folder, name="AA0") as queue:
        assert queue.writer().append(b"end") == 16 * len(found)
    assert [problem for problem in verify(folder).problems if problem.kind != "state"] == []


def compress(folder: Path, report: Callable[[int], None]) -> None:
    with serai.Queue(folder) as queue:
        report(queue.compress())


def expand(folder: Path, report: Callable[[int], None]) -> None:
    with serai.Queue(folder) as queue:
        report(queue.expand())


def check_sealed(folder: Path, _reported: int) -> None:
    """Readable at once, by a writer that starts, and after both ways were walked to the end."""

    def assert_whole(more: int) -> None:
        with serai.Queue(folder, "r") as reading:
            found = list(reading.reader().payloads())
            assert [proof(payload)[1] for payload in found] == list(range(FILLED + more))

    assert_whole(0)
    assert verify(folder).problems == []
    with serai.Queue(folder) as queue:
        queue.writer().append(body(2, FILLED))
        assert_whole(1)
        queue.compress()
        assert_whole(1)
        queue.expand()
        assert_whole(1)
        assert queue.stat().compressed_pages == 0
    assert not list(folder.glob("*.new"))


def fill(folder: Path) -> None:
    with serai.Queue(folder, page_size=1024) as queue:
        queue.writer().append_many([body(1, number) for number in range(FILLED)])


def fill_and_compress(folder: Path) -> None:
    fill(folder)
    with serai.Queue(folder) as queue:
        assert queue.compress() == 3


SCENES: dict[
    str, tuple[Callable[[Path], object], Callable[[Path, Callable[[int], None]], None], Callable[[Path, int], None]]
] = {
    "single": (lambda folder: None, write_single, check_single),
    "several": (lambda folder: None, write_several, check_several),
    "compress": (fill, compress, check_sealed),
    "expand": (fill_and_compress, expand, check_sealed),
}


def play(name: str, folder: Path, n: int, *, behind: bool) -> tuple[bool, int]:
    """One child; whether it died, and the number it reported last."""
    scene = SCENES[name][1]
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        write = os.write
        die_at(n, behind=behind)

        def report(number: int) -> None:
            write(theirs, bytes([number]))

        scene(folder, report)
        os._exit(0)
    os.close(theirs)
    _pid, status = os.waitpid(child, 0)
    said = os.read(ours, 1 << 16)
    os.close(ours)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True, said[-1] if said else -1
    assert os.WEXITSTATUS(status) == 0, f"the child of step {n} failed by itself"
    return False, said[-1] if said else -1


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    base, deaths = folder / "base", 0
    base.mkdir()
    prepare, _scene, check = SCENES[name]
    prepare(base)
    for n in count():
        survivors = 0
        for behind in (False, True):
            shutil.rmtree(folder / "play", ignore_errors=True)
            shutil.copytree(base, folder / "play")
            died, reported = play(name, folder / "play", n, behind=behind)
            try:
                check(folder / "play", reported)
            except BaseException as error:
                error.add_note(
                    f"scene {name}, killed {'behind' if behind else 'before'} call {n}; it had reported {reported}"
                )
                raise
            deaths += died
            survivors += not died
        if survivors == 2:
            break
    print(deaths)


if __name__ == "__main__":
    main()
