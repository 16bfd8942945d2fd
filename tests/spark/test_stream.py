"""The stream's driver side, called as Spark calls it but without Spark: admission, targets, losses, what travels."""

from __future__ import annotations

import logging
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from serai.spark.slices import DataLoss, Slice
from serai.spark.source import SeraiSource, Stream
from tests.spark.kit import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

BODY = len(numbered(0, 1)[0])


def stream(path: Path, **options: str) -> Stream:
    source = SeraiSource({"logDir": str(path), **options})
    made = source.streamReader(source.schema())
    assert isinstance(made, Stream)
    return made


def at(offset: Mapping[str, Any], topic: str = "orders") -> int:
    return int(offset["topics"][topic]["0"])


def start(position: int = 0, topic: str = "orders") -> dict[str, Any]:
    return {"epoch": {}, "topics": {topic: {"0": position}}, "v": 1}


def test_first_answer_stays_though_messages_come(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 10)))
    first = one.initialOffset()
    fill(numbered(10, 20))
    assert one.initialOffset() == first
    assert at(first) == 10
    assert at(stream(one._logs[0].path, startingOffsets="earliest").initialOffset()) == 0  # type: ignore[arg-type]


def test_latest_offset_honours_rows_and_bytes_exactly(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 100)))
    assert at(one.latestOffset(start(), ReadMaxRows(30))) == 30
    assert at(one.latestOffset(start(95), ReadMaxRows(30))) == 100
    assert at(one.latestOffset(start(), ReadMaxBytes(BODY * 7 + 1))) == 7
    assert at(one.latestOffset(start(), ReadMaxBytes(1))) == 1


def test_all_available_ignores_the_options(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 100)), maxOffsetsPerTrigger="5", maxBytesPerTrigger="1")
    assert at(one.latestOffset(start(), ReadAllAvailable())) == 100


def test_rows_and_bytes_together_give_the_smaller(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 100)), maxOffsetsPerTrigger="50", maxBytesPerTrigger=str(BODY * 20))
    assert one.getDefaultReadLimit() == ReadMaxRows(50)
    assert at(one.latestOffset(start(), one.getDefaultReadLimit())) == 20


def test_streams_have_a_byte_limit_unless_it_is_switched_off(fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 1))
    limit = stream(path).getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    assert limit.max_bytes % (1 << 30) == 0
    assert stream(path, maxBytesPerTrigger="0").getDefaultReadLimit() == ReadAllAvailable()


def test_limit_is_shared_in_proportion_among_topics(fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(numbered(0, 90), name="many")
    fill(numbered(0, 10), name="few")
    one = stream(tmp_path, startingOffsets="earliest")
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(50))
    assert (at(end, "many"), at(end, "few")) == (45, 5)


def test_too_few_messages_wait_until_the_delay_is_over(fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 10))
    asked = start()
    assert stream(path, minOffsetsPerTrigger="11").latestOffset(asked, ReadAllAvailable()) is asked
    assert at(stream(path, minOffsetsPerTrigger="10").latestOffset(asked, ReadAllAvailable())) == 10
    late = stream(path, minOffsetsPerTrigger="11", maxTriggerDelay="0ms")
    assert at(late.latestOffset(asked, ReadAllAvailable())) == 10


def test_available_now_ends_where_the_log_ended_at_its_start(fill: Callable[..., Path]) -> None:
    path = fill(numbered(0, 10))
    one = stream(path, minOffsetsPerTrigger="1000")
    one.prepareForTriggerAvailableNow()
    fill(numbered(10, 20))
    end = one.latestOffset(start(), ReadAllAvailable())
    assert at(end) == 10
    assert one.latestOffset(end, ReadAllAvailable()) == end


def test_available_now_includes_a_topic_that_came_before_it(fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(numbered(0, 5), name="old")
    known = stream(tmp_path, startingOffsets="earliest")
    before = known.latestOffset(known.initialOffset(), ReadAllAvailable())
    fill(numbered(0, 7), name="new")
    again = stream(tmp_path)
    again.prepareForTriggerAvailableNow()
    end = again.latestOffset(before, ReadAllAvailable())
    assert (at(end, "old"), at(end, "new")) == (5, 7)
    pieces = again.partitions(before, end)
    assert [(piece.topic, piece.first, piece.last) for piece in pieces if isinstance(piece, Slice)] == [("new", 0, 7)]


def test_no_new_messages_give_the_same_offset_and_no_tasks(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 10)))
    end = one.latestOffset(start(), ReadAllAvailable())
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert list(one.partitions(end, end)) == []


def test_what_travels_holds_no_log(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 10)))
    end = one.latestOffset(start(), ReadAllAvailable())
    (piece,) = one.partitions(start(), end)
    sent, part = pickle.loads(pickle.dumps((one, piece)))
    assert sent._logs == []
    assert sum(batch.num_rows for batch in sent.read(part)) == 10


def test_backlog_is_reported(fill: Callable[..., Path]) -> None:
    one = stream(fill(numbered(0, 10)))
    assert one.reportLatestOffset() is None
    one.latestOffset(start(), ReadMaxRows(3))
    report = one.reportLatestOffset()
    assert report is not None
    assert at(report) == 10


# ---- losses ----------------------------------------------------------------------------------------------------------


def made_again(fill: Callable[..., Path], path: Path, low: int, high: int) -> None:
    shutil.rmtree(path)
    fill(numbered(low, high))


def lossy(path: Path, offset: Mapping[str, Any], words: str, caplog: pytest.LogCaptureFixture, goes_on_at: int) -> None:
    """The same loss, once as an error and once as a warning."""
    with pytest.raises(DataLoss, match=words):
        stream(path).latestOffset(dict(offset), ReadAllAvailable())
    caplog.clear()
    kind = stream(path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "serai.spark"):
        end = kind.latestOffset(dict(offset), ReadAllAvailable())
    assert words.replace("\\", "") in caplog.text
    (piece,) = kind.partitions(dict(offset), end)
    assert isinstance(piece, Slice)
    assert piece.first == goes_on_at
    assert piece.last == at(end)


def test_log_made_again_and_shorter_is_said_with_numbers(
    fill: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = fill(numbered(0, 100))
    end = stream(path).latestOffset(start(), ReadAllAvailable())
    made_again(fill, path, 500, 540)
    lossy(path, end, "position 100 was read before, but the log ends at 40", caplog, 0)


def test_log_made_again_and_longer_is_seen_by_its_mark(
    fill: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = fill(numbered(0, 100))
    end = stream(path).latestOffset(start(), ReadAllAvailable())
    made_again(fill, path, 500, 700)
    lossy(path, end, "the message before position 100 is another one", caplog, 0)


def test_copy_of_a_log_is_the_same_log(fill: Callable[..., Path], tmp_path: Path) -> None:
    path = fill(numbered(0, 100))
    end = stream(path).latestOffset(start(), ReadMaxRows(50))
    shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    assert at(stream(path).latestOffset(end, ReadAllAvailable())) == 100


def test_first_pages_removed_are_said_with_numbers(fill: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    path = fill(numbered(0, 100), page_size=256)  # 16 entries a page
    (path / "0.qx").unlink()
    (path / "1.qx").unlink()
    lossy(path, start(5), "positions 5 to 32 are no longer there, 27 messages; the first one is 32", caplog, 32)


def test_topic_that_is_gone_is_an_error_or_passed_over(fill: Callable[..., Path], tmp_path: Path) -> None:
    fill(numbered(0, 5), name="one")
    fill(numbered(0, 5), name="two")
    known = stream(tmp_path, startingOffsets="earliest")
    end = known.latestOffset(known.initialOffset(), ReadAllAvailable())
    shutil.rmtree(tmp_path / "two")
    fill(numbered(5, 8), name="one")
    with pytest.raises(DataLoss, match="two partition 0: read before, and no longer there"):
        stream(tmp_path).latestOffset(end, ReadAllAvailable())
    after = stream(tmp_path, failOnDataLoss="false").latestOffset(end, ReadAllAvailable())
    assert at(after, "one") == 8
