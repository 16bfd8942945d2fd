"""Parts, gathered spans, and bytes that stay where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.log.engine import Level
from serai.log.partition import open_partition
from tests.core.dressing import DRESSES, NAMES
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, JAFKA, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from serai.log.partition import Partition


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Partition]:
    with open_partition(tmp_path / "one", page_bytes=4 << 20) as one:
        yield one


def store(log: Partition, raw: bytes, dress: int) -> None:
    log.append(raw, dress, level=Level.RECEIVE, now_ms=1)


@pytest.mark.parametrize("dress", [HOUSE, JAFKA], ids=NAMES.get)
def test_set_of_more_than_a_mebibyte_is_stored_in_parts_cut_between_messages(log: Partition, dress: int) -> None:
    one = oracle.encode(Entry(dress, b"x" * 1000))
    fitting = one * (limits.PART_BYTES // len(one))
    store(log, fitting, dress)
    store(log, fitting + one, dress)
    store(log, fitting * 2 + one, dress)
    parts = [(record.part, bool(record.flags & byhand.LAST)) for record in byhand.read(log.folder.path)]
    assert parts == [(0, True), (0, False), (1, True), (0, False), (1, False), (2, True)]
    assert all(len(record.payload) <= limits.PART_BYTES for record in byhand.read(log.folder.path))


def test_message_of_more_than_a_part_stands_alone(log: Partition) -> None:
    small, large = oracle.encode(Entry(HOUSE, b"x")), oracle.encode(Entry(HOUSE, b"y" * (limits.PART_BYTES + 1)))
    store(log, small + large + small, HOUSE)
    assert [len(record.payload) for record in byhand.read(log.folder.path)] == [len(small), len(large), len(small)]


def test_small_records_come_in_one_span(log: Partition) -> None:
    one = oracle.encode(Entry(HOUSE, b"x" * 100))
    for _ in range(200):
        store(log, one, HOUSE)
    (span,) = log.spans(0, bytes_max=1 << 20)
    assert (span.count, bytes(span.data)) == (200, one * 200)
    assert [span.count for span in log.spans(7, bytes_max=10 * len(one) + 5)] == [10]


def test_gathered_span_has_one_dress(log: Partition) -> None:
    for dress in (*DRESSES, *DRESSES):
        store(log, oracle.encode(Entry(dress, b"x" * 50)) * 2, dress)
    assert [(span.dress, span.count) for span in log.spans(0, bytes_max=1 << 20)] == [
        (dress, 2) for dress in DRESSES * 2
    ]


def test_gathered_span_ends_at_64_kib(log: Partition) -> None:
    one = oracle.encode(Entry(HOUSE, b"x" * 3000))
    for _ in range(50):
        store(log, one, HOUSE)
    spans = log.spans(0, bytes_max=1 << 20)
    assert sum(span.count for span in spans) == 50
    assert len(spans) == 3
    assert all(len(span.data) <= 65536 for span in spans)


@pytest.mark.parametrize("dress", DRESSES, ids=NAMES.get)
def test_large_span_is_a_view_of_the_page(log: Partition, dress: int) -> None:
    raw = oracle.encode(Entry(dress, b"x" * 100)) * 100
    store(log, raw, dress)
    (span,) = log.spans(0, bytes_max=1 << 20)
    assert isinstance(span.data, memoryview)
    if dress == JAFKA:
        assert bytes(span.data) == raw
    assert [span.data.nbytes for span in log.spans(0, bytes_max=len(raw) - 1) if isinstance(span.data, memoryview)] == [
        len(raw) * 99 // 100
    ]
