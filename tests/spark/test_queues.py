"""Queue directories as logs, read without Spark: the same rows from any slice, whatever lies in the pages."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import serai
import serai.spark
from serai.errors import Corrupt, DeadProducer, Misuse
from serai.spark.options import read_options
from serai.spark.slices import DataLoss, find_logs
from tests import helpers
from tests.spark.kit import numbered, only_log, wish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from serai.spark.slices import Log


def rows(log: Log, first: int = 0, last: int | None = None, **settings: Any) -> list[tuple[int, bytes | None]]:
    end = log.end(committed=True) if last is None else last
    return [
        pair
        for block in log.blocks(first, end, wish(**settings))
        for pair in zip(block.arrays["offset"].to_pylist(), block.arrays["value"].to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("name", helpers.vector_names())
def test_every_golden_directory_gives_its_messages(name: str, tmp_path: Path) -> None:
    vector = helpers.load(name)
    log = only_log(vector.expand(tmp_path / "golden"), dialect=vector.dialect)
    readable = vector.messages[: vector.expect.get("readable", len(vector.messages))]
    unfinished = vector.expect.get("claimed_unfinished_offset")
    published = {message.offset // 16: message.payload for message in readable if message.offset != unfinished}
    assert dict(rows(log)) == published


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 700)), max_size=120),
    page_bits=st.integers(6, 12), cut=st.tuples(st.floats(0, 1), st.floats(0, 1)), batch=st.integers(1, 50),
)  # fmt: skip
def test_any_slice_of_any_queue_gives_its_messages(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], page_bits: int, cut: tuple[float, float], batch: int
) -> None:
    bodies = [bytes([number & 0xFF]) * size for number, size in enumerate(sizes)]
    path = tmp_path_factory.mktemp("any") / "q"
    with serai.Queue(path, page_size=1 << page_bits) as queue:
        queue.writer().append_many(bodies)
    first, last = sorted(round(part * len(bodies)) for part in cut)
    log = only_log(path)
    assert rows(log, first, last, rows=batch, bytes=200) == list(enumerate(bodies))[first:last]
    assert log.weigh(first, last) == sum(sizes[first:last])


def test_long_runs_stay_where_they_lie(fill: Callable[..., Path]) -> None:
    log = only_log(fill(numbered(0, 1000), page_size=1 << 20))
    (block,) = log.blocks(0, 1000, wish())
    assert block.arrays["value"].buffers()[2].size >= 1000 * 28
    assert block.arrays["value"].to_pylist() == numbered(0, 1000)


def test_messages_over_page_ends_are_gathered_with_their_neighbours(fill: Callable[..., Path]) -> None:
    log = only_log(fill(numbered(0, 500), page_size=256))
    blocks = list(log.blocks(0, 500, wish()))
    assert len(blocks) == 1
    assert blocks[0].arrays["value"].to_pylist() == numbered(0, 500)


def test_compressed_pages_are_read_as_if_they_were_plain(fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 2000), page_size=1 << 12)
    with serai.Queue(path) as queue:
        assert queue.compress() > 5
    assert [value for _offset, value in rows(only_log(path))] == numbered(0, 2000)


@pytest.mark.parametrize("bytes_max", [1, 28, 29, 57, 1000, 1 << 30])
def test_byte_limit_is_exact(fill: Callable[..., Path], bytes_max: int) -> None:
    log = only_log(fill(numbered(0, 100)))
    assert log.within(10, 100, bytes_max) == max(11, min(100, 10 + bytes_max // len(numbered(0, 1)[0])))


def test_byte_limit_of_several_producers_is_exact(tmp_path: Path) -> None:
    path = two_producers(tmp_path, 100)
    log = only_log(path)
    assert log.weigh(0, 100) == 100 * 28
    assert log.within(10, 100, 28 * 7 + 5) == 17
    assert log.within(10, 100, 1) == 11
    assert log.within(10, 100, 1 << 30) == 100


def two_producers(tmp_path: Path, count: int) -> Path:
    path = tmp_path / "orders"
    with (
        serai.MultiQueue(path, "rw", "AA0", page_size=1 << 12) as one,
        serai.MultiQueue(path, "rw", "BB1", page_size=1 << 12) as two,
    ):
        for number, body in enumerate(numbered(0, count)):
            (one if number % 3 else two).writer().append(body)
    return path


def test_several_producers_come_in_their_common_order(tmp_path: Path) -> None:
    log = only_log(two_producers(tmp_path, 300))
    blocks = list(log.blocks(5, 300, wish(rows=50)))
    assert [value for block in blocks for value in block.arrays["value"].to_pylist()] == numbered(5, 300)
    names = [name for block in blocks for name in block.arrays["producer"].to_pylist()]
    assert names == ["AA0" if number % 3 else "BB1" for number in range(5, 300)]


def claim(path: Path, offset: int, size: int, name: str) -> None:
    """What a producer leaves that dies between claiming an entry and finishing it."""
    page = int((path / "0.qx").stat().st_size)
    with open(path / f"{offset // page}.qx", "r+b") as file:
        file.seek(offset % page)
        file.write(struct.pack("<qi", 0, size) + name.encode()[::-1] + b"\0")


def test_entry_of_a_dead_producer_is_skipped_and_counted_or_an_error(tmp_path: Path) -> None:
    path = two_producers(tmp_path, 10)
    claim(path, 160, 5, "AA0")
    with serai.MultiQueue(path, "rw", "BB1") as queue:
        queue.writer().append(b"behind it")
    log = only_log(path)
    asked = wish()
    assert log.end(committed=True) == 12
    found = [value for block in log.blocks(9, 12, asked) for value in block.arrays["value"].to_pylist()]
    assert found == [*numbered(9, 10), b"behind it"]
    assert asked.tally.abandoned == 1
    assert serai.spark.count(logDir=path) == 11
    with pytest.raises(DeadProducer, match="AA0"):
        rows(log, 9, 12, on_abandoned="fail")


def test_nothing_is_planned_behind_an_entry_a_living_producer_has_not_finished(tmp_path: Path) -> None:
    path = two_producers(tmp_path, 10)
    claim(path, 160, 5, "AA0")
    with serai.MultiQueue(path, "rw", "BB1") as queue:
        queue.writer().append(b"behind it")
    fd = os.open(path / "AA0.qm", os.O_RDWR)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)  # of this process: an OFD lock question from here sees it as another's
        assert only_log(path).end(committed=True) == 10
    finally:
        os.close(fd)
    assert only_log(path).end(committed=True) == 12


def test_message_with_a_wrong_checksum_is_an_error_or_left_out_or_null(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with serai.Queue(path, page_size=1 << 12, checksum="index24") as queue:
        queue.writer().append_many(numbered(0, 20))
    with open(path / "0.qd", "r+b") as file:
        file.seek(28 * 7 + 3)
        file.write(b"X")
    log = only_log(path)
    with pytest.raises(Corrupt, match="checksum"):
        rows(log)
    asked = wish(on_corrupt="skip")
    left = [value for block in log.blocks(0, 20, asked) for value in block.arrays["value"].to_pylist()]
    assert left == [body for number, body in enumerate(numbered(0, 20)) if number != 7]
    assert asked.tally.corrupt == 1
    assert rows(log, on_corrupt="null")[6:9] == [(6, numbered(6, 7)[0]), (7, None), (8, numbered(8, 9)[0])]


def test_messages_planned_that_are_not_there_are_a_loss_with_numbers(fill: Callable[..., Path]) -> None:
    log = only_log(fill(numbered(0, 20)))
    with pytest.raises(DataLoss, match="ends at position 20, but up to 25 was planned: 5 messages are gone"):
        rows(log, 10, 25)


def test_mark_tells_a_log_from_one_made_again(fill: Callable[..., Path], tmp_path: Path) -> None:
    one = only_log(fill(numbered(0, 20)))
    same = only_log(fill(numbered(0, 30), name="copy"))
    other = only_log(fill(numbered(100, 120), name="other"))
    assert one.mark(20) == same.mark(20) != other.mark(20)
    assert one.mark(0) == one.mark(21) == ""
    assert len(one.mark(1)) == 8


def test_empty_directory_is_a_queue_that_will_be(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    log = only_log(tmp_path / "orders")
    assert (log.first(), log.end(committed=True), log.mark(0)) == (0, 0, "")
    with serai.Queue(tmp_path / "orders") as queue:
        queue.writer().append(b"now it is")
    assert rows(log) == [(0, b"now it is")]


def test_empty_directory_may_become_a_queue_of_several(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    log = only_log(tmp_path / "orders")
    assert log.end(committed=True) == 0
    two_producers(tmp_path, 3)
    assert [value for _offset, value in rows(log)] == numbered(0, 3)


def test_folder_of_queues_has_a_topic_for_each(fill: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("abc", "orders", "bills"):
        fill(numbered(0, 3), name=name)
    (tmp_path / "notes").mkdir()

    def topics(**options: str) -> list[str]:
        return [log.topic for log in find_logs(read_options({"logDir": str(tmp_path), **options}))]

    assert topics() == ["abc", "bills", "orders"]
    assert topics(subscribe="orders,abc") == ["abc", "orders"]
    assert topics(subscribePattern="b.*") == ["bills"]
    assert topics(assign='{"orders": [0]}') == ["orders"]
    with pytest.raises(Misuse, match="has no topic ordres; it has abc, bills, orders"):
        topics(subscribe="ordres")


def test_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="is not a directory on this machine"):
        only_log(tmp_path / "none")
