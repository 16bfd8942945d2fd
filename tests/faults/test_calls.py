"""A failure of the system at call n, and an interrupt at line n, for n = 1, 2, 3 ... until none comes any more.

The same writer goes on after each failure, as a program does that catches it: every message is there once, in order,
under the next offset, and nothing half made lies about when the writer has closed.
"""

from __future__ import annotations

import errno
import os
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import serai
from serai.log import queue as log_queue
from serai.log.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

MESSAGES = [b"%02d" % number * (number % 5 * 9) for number in range(14)]
LOG = os.path.dirname(log_queue.__file__)
CALLS = (
    "open",
    "posix_fallocate",
    "ftruncate",
    "link",
    "unlink",
    "mkdir",
    "dup",
    "fdatasync",
    "fsync",
    "replace",
    "stat",
)


def patiently(failures: list[str], work: Callable[..., Any], *arguments: object, **keywords: object) -> Any:
    """Does it again after a failure; the third in a row is one too many."""
    for _ in range(3):
        try:
            return work(*arguments, **keywords)
        except (OSError, serai.SeraiError, KeyboardInterrupt) as error:
            failures.append(repr(error))  # not the error, whose traceback would keep a half-made writer alive
    raise AssertionError(f"fails again and again: {failures[-3:]}")


def opened(folder: Path, failures: list[str], begin: Callable[[], None]) -> serai.Queue:
    queue: serai.Queue = patiently(failures, serai.Queue, folder, page_size=64)
    patiently(failures, queue.writer)
    begin()
    return queue


def append(queue: serai.Queue | serai.MultiQueue, payload: bytes) -> int:
    return queue.writer().append(payload)


def closed(queue: serai.Queue | serai.MultiQueue, failures: list[str]) -> None:
    sys.settrace(None)  # interrupts are over: what closes at an interrupt is what `del` closes
    patiently(failures, queue.close)


def single(folder: Path, failures: list[str], begin: Callable[[], None]) -> Callable[[], None]:
    queue = opened(folder, failures, begin)
    for number, payload in enumerate(MESSAGES):
        assert patiently(failures, append, queue, payload) == 16 * number
    patiently(failures, queue.force)
    closed(queue, failures)
    return lambda: assert_messages(folder)


def assert_messages(folder: Path) -> None:
    with serai.Queue(folder, "r") as reading:
        assert list(reading.reader().payloads()) == MESSAGES


def chain(folder: Path, failures: list[str], begin: Callable[[], None]) -> Callable[[], None]:
    """Values packed one by one; after a failure the message is given up and built again."""
    queue = opened(folder, failures, begin)

    def build(number: int, payload: bytes) -> int:
        message = queue.new_message().pack_int(number)
        for at in range(0, len(payload), 3):
            message.pack_bytes(payload[at : at + 3])
        offset: int = message.write_message()
        return offset

    for number, payload in enumerate(MESSAGES):
        assert patiently(failures, build, number, payload) == 16 * number
    closed(queue, failures)
    return lambda: assert_values(folder)


def assert_values(folder: Path) -> None:
    with serai.Queue(folder, "r") as reading:
        assert list(reading.reader().rows("int", "bytes")) == list(enumerate(MESSAGES))


def several(folder: Path, failures: list[str], begin: Callable[[], None]) -> Callable[[], None]:
    """Two producers in turn: each finds its next page taken by the other half of the time."""
    queues = [patiently(failures, serai.MultiQueue, folder, name=name, page_size=64) for name in ("AA0", "BB1")]
    for queue in queues:
        patiently(failures, queue.writer)
    begin()
    for number, payload in enumerate(MESSAGES):
        queue = queues[number % 3 == 1]
        patiently(failures, append, queue, payload)
    for queue in queues:
        patiently(failures, queue.force)
        closed(queue, failures)
    return lambda: assert_both(folder)


def assert_both(folder: Path) -> None:
    with serai.MultiQueue(folder) as reading:
        assert [(m.offset, m.payload) for m in reading.reader()] == [(16 * i, p) for i, p in enumerate(MESSAGES)]
    for name in ("AA0", "BB1"):
        with serai.MultiQueue(folder, name=name) as queue:
            assert queue.writer().data_end >= sum(map(len, MESSAGES)) // 4


def sealed(folder: Path, failures: list[str], begin: Callable[[], None]) -> Callable[[], None]:
    """Pages are compressed, expanded and compressed again; what was done before a failure stays done."""
    queue = opened(folder, failures, begin)
    for number, payload in enumerate(MESSAGES):
        assert patiently(failures, append, queue, payload) == 16 * number
    for work in (queue.compress, queue.expand, queue.compress):
        patiently(failures, work)
    closed(queue, failures)
    return lambda: assert_messages(folder)


SCENES = {"single": single, "chain": chain, "several": several, "sealed": sealed}


def assert_tidy(folder: Path) -> None:
    with serai.MultiQueue(folder, name="AA0") if (folder / "AA0.qm").exists() else serai.Queue(folder) as queue:
        queue.writer()
    assert verify(folder).problems == []


# ------------------------------------------------------------------------------------------------ the system fails


def failing(monkeypatch: pytest.MonkeyPatch, n: int, number: int, *, behind: bool) -> list[str]:
    """The n-th call of the system from here on fails, before it did its work or behind it; its name, once it came."""
    calls, fired = count(), list[str]()

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            mine = next(calls) == n
            if mine:
                fired.append(real.__name__)
            if mine and not behind:
                raise OSError(number, os.strerror(number), *arguments[:1])
            answer = real(*arguments, **keywords)
            if mine and answer is None:
                raise OSError(number, os.strerror(number), *arguments[:1])
            return answer

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return fired


FAILURES = [
    pytest.param(errno.ENOSPC, 17, id="some ENOSPC"),
    pytest.param(errno.EIO, 17, id="some EIO"),
    *(
        pytest.param(e, 1, id=f"every {errno.errorcode[e]}", marks=pytest.mark.slow)
        for e in (errno.ENOSPC, errno.EIO, errno.EMFILE)
    ),
]


@pytest.mark.parametrize(("number", "stride"), FAILURES)
@pytest.mark.parametrize("scene", SCENES)
def test_any_call_of_the_system_may_fail(
    scene: str, number: int, stride: int, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for n in count(number % stride, stride):
        failures = list[str]()
        for behind in (False, True):
            folder = in_memory / f"{n}{behind}"
            try:
                with monkeypatch.context() as patch:
                    fired = failing(patch, n, number, behind=behind)
                    check = SCENES[scene](folder, failures, lambda: None)
                check()
                assert_tidy(folder)
            except BaseException as error:
                error.add_note(f"call {n} {fired} failed {'behind' if behind else 'before'} its work: {failures}")
                raise
        failed += len(failures)
        if not fired:
            break
    print(f"\n{scene}: {failed} failures survived ({errno.errorcode[number]})")
    assert failed > 60 // stride


# ------------------------------------------------------------------------------------------------ interrupts


HANDS = os.path.join(LOG, "lock.py")  # a lock that changes hands: a few lines that an interrupt must not part


def interrupt_at(n: int, fired: list[str]) -> Callable[[FrameType, str, object], Any]:
    """A tracer that raises KeyboardInterrupt at the n-th line that is run in the log, as a signal would."""
    lines = count()

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if not file.startswith(LOG) or file == HANDS or name == "close":
            return None
        if event == "line" and next(lines) == n:
            fired.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            raise KeyboardInterrupt
        return trace

    return trace


def steps(first: int, stride: int) -> Iterator[int]:
    yield from range(first, 100_000, stride)


@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", ["single", "chain", "several"])
def test_interrupt_at_any_line_of_the_log_leaves_a_writer_that_goes_on(
    scene: str, stride: int, in_memory: Path
) -> None:
    interrupts = 0
    for n in steps(0, stride):
        folder, failures, fired = in_memory / str(n), list[str](), list[str]()
        tracer = interrupt_at(n, fired)
        try:
            check = SCENES[scene](folder, failures, lambda tracer=tracer: sys.settrace(tracer))  # type: ignore[misc]
            sys.settrace(None)
            check()
            assert_tidy(folder)
        except BaseException as error:
            error.add_note(f"interrupted at line {n} of the log, {fired}")
            raise
        finally:
            sys.settrace(None)
        if not fired:
            break
        interrupts += 1
    print(f"\n{scene}: {interrupts} interrupts survived")
    assert interrupts > 400 // stride
