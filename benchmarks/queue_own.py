"""serai's own turns: each shape of its interface that the goals speak of, in the same rounds as the peers.

    append      append(b), one call a message
    batch       append_many(list of 1000), then reading: messages, payloads, lists, Arrow
    native      extend_arrow and skip on pages that are resident already: what the compiled loops reach by themselves
    fields      int, decimal, ASCII string, boolean: chain of calls, tuple, list of tuples, Arrow columns

- Queues have the default page size and lie in the bench's directory, like the peers' stores; only `native` uses
  memory files, and makes their pages resident before the clock starts: data by packing as many bytes and discarding
  the message (the cursor goes back, the pages stay mapped), index by writing zeros to its file.
- The unit of the field work is one call of an empty method compiled as the core is (Cython, one int argument), with
  its Python loop.  It is compiled in the bench's directory; a built-in's empty call stands beside it, and for it
  where nothing can be compiled.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.queue_peers import APPEND, BATCH, LISTS, ONE_BY_ONE, called
from benchmarks.queue_rounds import Contestant, Load, Steps

__all__ = [
    "BUILTIN",
    "CHAIN",
    "CHAIN_DECIMAL",
    "COLUMNS",
    "EMPTY",
    "NATIVE",
    "OTHERWISE",
    "ROWS",
    "SCAN",
    "SERAI",
    "TEMPLATE",
    "UNIT",
    "append_own",
    "batch_own",
    "field_contestants",
    "native_contestants",
]

SERAI = "serai"
OTHERWISE = "serai, payloads() / Arrow"
NATIVE = "native append on resident pages"
SCAN = "native index scan"
UNIT = "one empty call"
EMPTY = "compiled method"
BUILTIN = "built-in method"
FIELDS_READ = "read 4 fields"
CHAIN = "write 4 fields: chain, decimal as (unscaled, scale)"
CHAIN_DECIMAL = "write 4 fields: chain, Decimal"
TEMPLATE = "write 4 fields: template.append(tuple)"
ROWS = "write 4 fields: template.append_many(1000 rows)"
COLUMNS = "write 4 fields: template.extend_arrow(columns)"

KINDS = ("int", "decimal", "string", "boolean")
BATCH_BYTES = 1 << 20
EMPTY_SOURCE = """# cython: language_level=3
cdef class Empty:
    def call(self, int value):
        return self
"""
EMPTY_SETUP = """from setuptools import setup
from Cython.Build import cythonize
setup(name="empty_call", ext_modules=cythonize("empty_call.pyx", quiet=True))
"""


# ---------------------------------------------------------------------------------------------- append, batch


def append(place: Path, load: Load) -> Steps:
    import serai

    count = load.count(1_000_000 if load.body_bytes < 500 else 200_000)
    with serai.Queue(place / "q") as queue:
        yield load.at(APPEND), called(queue.writer().append, load.body, count)


def append_lists(place: Path, load: Load) -> Steps:
    import serai

    count = load.count(1_000_000 if load.body_bytes < 500 else 200_000)
    bodies = [load.body] * 1000
    with serai.Queue(place / "q") as queue:

        def work() -> int:
            write = queue.writer().append_many
            for _ in range(count // 1000):
                write(bodies)
            return count

        yield load.at(BATCH), work
        yield from reads(queue, load, count)
        last = queue.last()
        assert last is not None
        assert last.payload == load.body


def reads(queue: Any, load: Load, count: int) -> Steps:
    """`for m in reader: m.payload`, then lists of payloads."""

    def messages() -> int:
        seen = 0
        for message in queue.reader():
            _body = message.payload
            seen += 1
        assert seen == count, f"{seen} messages came back of {count}"
        return count

    def lists() -> int:
        reader, seen = queue.reader(), 0
        while found := len(reader.read_batch(BATCH_BYTES).to_list()):
            seen += found
        assert seen == count, f"{seen} messages came back of {count}"
        return count

    yield load.at(ONE_BY_ONE), messages
    yield load.at(LISTS), lists


def read_otherwise(place: Path, load: Load) -> Steps:
    """The same queue read by `reader.payloads()` and as Arrow record batches, without a copy where a page allows it."""
    import serai

    pyarrow = importlib.import_module("pyarrow")
    count = load.count(1_000_000 if load.body_bytes < 500 else 200_000)
    with serai.Queue(place / "q") as queue:
        fill(queue, load.body, count)

        def payloads() -> int:
            seen = 0
            for _ in queue.reader().payloads():
                seen += 1
            assert seen == count, f"{seen} messages came back of {count}"
            return count

        def arrow() -> int:
            reader, seen = queue.reader(), 0
            while found := len(batch := reader.read_batch(BATCH_BYTES)):
                assert pyarrow.record_batch(batch).num_rows == found
                seen += found
            assert seen == count, f"{seen} messages came back of {count}"
            return count

        yield load.at(ONE_BY_ONE), payloads
        yield load.at(LISTS), arrow


def fill(queue: Any, body: bytes, count: int) -> None:
    """Untimed writing."""
    writer, bodies = queue.writer(), [body] * 1000
    for _ in range(count // 1000):
        writer.append_many(bodies)


def append_own() -> list[Contestant]:
    """serai among those that append one at a time."""
    return [Contestant(SERAI, "serai", append)]


def batch_own() -> list[Contestant]:
    """serai among those that append lists and read."""
    return [
        Contestant(SERAI, "serai", append_lists),
        Contestant(OTHERWISE, "serai pyarrow", read_otherwise),
    ]


# ---------------------------------------------------------------------------------------------- native


@contextmanager
def resident_queue(place: Path, *, data_bytes: int, index_bytes: int) -> Iterator[Any]:
    """A queue in memory files whose pages are there, and in the writer's data mapping already, before it is used."""
    import serai

    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="serai-bench-", dir=shared if shared.is_dir() else place) as name:
        page_bytes = 1 << 29
        with open(Path(name) / "0.qx", "wb") as index:
            index.write(bytes(index_bytes))
            index.truncate(page_bytes)
        with serai.Queue(name, page_size=page_bytes) as queue:
            zeros = bytes(1 << 20)
            message = queue.new_message()
            for _ in range((data_bytes >> 20) + 1):
                message.pack_bytes(zeros)
            message.discard()
            yield queue


def native(place: Path, load: Load) -> Steps:
    pyarrow = importlib.import_module("pyarrow")
    rows = 10_000 if load.body_bytes < 500 else 1000  # a column of 1 MB, as a reader's batch has
    count = load.count(2_000_000 if load.body_bytes < 500 else 200_000) // rows * rows
    column = pyarrow.array([load.body] * rows, pyarrow.binary())
    with resident_queue(place, data_bytes=count * load.body_bytes, index_bytes=count * 16) as queue:

        def write() -> int:
            extend = queue.writer().extend_arrow
            for _ in range(count // rows):
                extend(column)
            return count

        def scan() -> int:
            skipped = int(queue.reader().skip(2 * count))
            assert skipped == count, f"{skipped} messages were skipped of {count}"
            return count

        yield load.at(NATIVE), write
        yield load.at(SCAN), scan
        yield load.at(SCAN), scan


def native_contestants() -> list[Contestant]:
    """The compiled loops by themselves."""
    return [Contestant(SERAI, "serai pyarrow", native)]


# ---------------------------------------------------------------------------------------------- fields


def prices() -> list[Decimal]:
    """A thousand different prices of five digits with two decimals."""
    return [Decimal(10_000 + 37 * i).scaleb(-2) for i in range(1000)]


def chain(queue: Any, blocks: int) -> Callable[[], int]:
    unscaled = [10_000 + 37 * i for i in range(1000)]

    def work() -> int:
        new = queue.writer().new_message
        for block in range(blocks):
            for price in unscaled:
                new().pack_int(block).pack_decimal(price, 2).pack_string("EURUSD").pack_boolean(True).write_message()
        return blocks * 1000

    return work


def chain_decimal(queue: Any, blocks: int) -> Callable[[], int]:
    decimals = prices()

    def work() -> int:
        new = queue.writer().new_message
        for block in range(blocks):
            for price in decimals:
                new().pack_int(block).pack_decimal(price).pack_string("EURUSD").pack_boolean(True).write_message()
        return blocks * 1000

    return work


def template_tuples(queue: Any, blocks: int) -> Callable[[], int]:
    decimals, template = prices(), queue.writer().template(*KINDS)

    def work() -> int:
        write = template.append
        for block in range(blocks):
            for price in decimals:
                write((block, price, "EURUSD", True))
        return blocks * 1000

    return work


def template_rows(queue: Any, blocks: int) -> Callable[[], int]:
    rows = [(7, price, "EURUSD", True) for price in prices()]
    template = queue.writer().template(*KINDS)

    def work() -> int:
        write = template.append_many
        for _ in range(blocks):
            write(rows)
        return blocks * 1000

    return work


def template_columns(queue: Any, blocks: int) -> Callable[[], int]:
    pyarrow = importlib.import_module("pyarrow")
    template, times = queue.writer().template(*KINDS), 10
    columns = pyarrow.record_batch(
        {
            "number": pyarrow.array([7] * 1000 * times, pyarrow.int32()),
            "price": pyarrow.array(prices() * times, pyarrow.decimal128(12, 2)),
            "text": pyarrow.array(["EURUSD"] * 1000 * times, pyarrow.string()),
            "flag": pyarrow.array([True] * 1000 * times, pyarrow.bool_()),
        }
    )

    def work() -> int:
        write = template.extend_arrow
        for _ in range(blocks // times):
            write(columns)
        return blocks // times * times * 1000

    return work


def fields_read(queue: Any) -> Iterator[tuple[str, Callable[[], int]]]:
    """The four fields back: one call each, one call a message, an iterator of tuples."""

    def one_by_one() -> int:
        seen = 0
        for m in queue.reader():
            m.unpack_int()
            m.unpack_decimal()
            m.unpack_string()
            m.unpack_boolean()
            seen += 1
        return seen

    def unpack() -> int:
        seen = 0
        for m in queue.reader():
            m.unpack(*KINDS)
            seen += 1
        return seen

    def rows() -> int:
        seen = 0
        for _ in queue.reader().rows(*KINDS):
            seen += 1
        return seen

    yield f"{FIELDS_READ}: 4 calls", one_by_one
    yield f"{FIELDS_READ}: unpack(kinds)", unpack
    yield f"{FIELDS_READ}: reader.rows(kinds)", rows


def fields(place: Path, load: Load) -> Steps:
    import serai

    shapes = [
        (CHAIN, chain, 500),
        (CHAIN_DECIMAL, chain_decimal, 500),
        (TEMPLATE, template_tuples, 1000),
        (ROWS, template_rows, 1500),
        (COLUMNS, template_columns, 4000),
    ]
    for measure, shape, blocks in shapes:
        with serai.Queue(place / shape.__name__) as queue:
            yield measure, shape(queue, max(10, int(blocks * load.scale)))
    with serai.Queue(place / "chain_decimal", "r") as queue:
        yield from fields_read(queue)


# ---------------------------------------------------------------------------------------------- the unit


def compiled_method(directory: Path) -> Callable[[int], object] | None:
    """An empty method, compiled; None where there is no Cython or no compiler."""
    (directory / "empty_call.pyx").write_text(EMPTY_SOURCE)
    (directory / "setup.py").write_text(EMPTY_SETUP)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    if subprocess.run(command, cwd=directory, capture_output=True, timeout=120, check=False).returncode:
        return None
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module("empty_call").Empty().call  # type: ignore[no-any-return]
    except ImportError:
        return None
    finally:
        sys.path.remove(str(directory))


def unit_steps(function: Callable[[int], object]) -> Callable[[Path, Load], Steps]:
    def steps(place: Path, load: Load) -> Steps:
        del place
        count = load.count(2_000_000)

        def work() -> int:
            for i in range(count):
                function(i)
            return count

        yield UNIT, work

    return steps


def field_contestants(directory: Path) -> list[Contestant]:
    """The unit in both forms, then serai's field work, in every round."""
    method = compiled_method(directory)
    empty_list: list[int] = []
    units = [Contestant(BUILTIN, "builtins", unit_steps(empty_list.count))]
    if method is not None:
        units.insert(0, Contestant(EMPTY, "builtins", unit_steps(method)))
    return [*units, Contestant(SERAI, "serai pyarrow", fields)]
