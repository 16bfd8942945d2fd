"""Any bytes as a message, and any order of unpack calls on it, in both dialects.

    python tests/fuzz/fuzz_unpack.py -max_total_time=60 CORPUS

A call gives a value and moves on, or raises ValueError, EOFError or OverflowError and stays inside the message; what was
read can be packed again, and then reads the same.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import atheris

import serai

with atheris.instrument_imports(include=["tests.fuzz.exercise", "decimal"]):
    from tests.fuzz.exercise import KINDS, MEMORY, VALUE_ERRORS, Bytes
from tests.fuzz.seeds import sow

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES_EACH = 2000  # then a new queue


class Post:
    """A queue in memory that gives each message back."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._stack = contextlib.ExitStack()
        self._count = 0

    def send(self, payload: bytes, *, checked: bool = True) -> serai.Message:
        if self._count % MESSAGES_EACH == 0:
            self._stack.close()
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="serai-fuzz-", dir=MEMORY))
            self.queue = self._stack.enter_context(serai.Queue(folder, page_size=1 << 12, dialect=self.dialect))
            self.readers = {flag: self.queue.reader(checked=flag) for flag in (True, False)}
        self._count += 1
        message = self.readers[checked].set_offset(self.queue.writer().append(payload))
        assert message is not None
        return message


def kinds(source: Bytes) -> Iterator[str]:
    for _ in range(source.integer(0, 12)):
        yield KINDS[source.integer(0, len(KINDS) - 2)]


def same(first: object, second: object) -> bool:
    if isinstance(first, Decimal) and isinstance(second, Decimal):
        return first.as_tuple() == second.as_tuple()
    return first == second or (first != first and second != second)  # NaN


def one_input(data: bytes) -> None:
    source = Bytes(data)
    dialect = ("seed", "java")[source.integer(0, 1)]
    calls, payload = list(kinds(source)), data[16:]
    message = POSTS[dialect].send(payload, checked=source.integer(0, 3) > 0)
    for kind in calls:
        before = message.position
        try:
            (value,) = message.unpack(kind)
        except EOFError:
            assert message.position >= before
            continue
        except VALUE_ERRORS:
            assert message.position >= before
            continue
        assert message.position > before
        again(POSTS[dialect], kind, value)
        message = POSTS[dialect].send(payload)
        message.position = min(before + 1, len(message))


def again(post: Post, kind: str, value: object) -> None:
    """What can be read can be written, and reads the same."""
    try:
        offset = post.queue.writer().template(kind).append((value,))
    except VALUE_ERRORS:
        assert kind in ("char", "unicode", "string"), f"{kind} {value!r} was read and cannot be written"
        return
    message = post.readers[True].set_offset(offset)
    assert message is not None
    (second,) = message.unpack(kind)
    assert same(value, second), f"{kind}: {value!r} became {second!r}"


POSTS = {dialect: Post(dialect) for dialect in ("seed", "java")}


def main() -> None:
    sow(sys.argv, count=40, length=200)
    # The core is compiled: what guides the fuzzer is which branches are taken here.
    global again
    again = atheris.instrument_func(again)
    atheris.Setup(sys.argv, atheris.instrument_func(one_input))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
