"""Search: log and archive as one table, compared row by row with what plain Python finds among the same messages."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from serai.cli import main
from serai.errors import Misuse
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from serai.spark.pipes.lake import Lake
from serai.spark.pipes.search import Search, find
from tests.spark.keeping import HOUR_MS, Kept, archive, done, message, topics, write
from tests.spark.kit import numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

HOMES = {"1-0": ("orders", 0), "1-1": ("orders", 1), "2-0": ("payments", 0)}


class Place(NamedTuple):
    """A log, its archive, and all that was ever written; `first` is what retention left of partition 0 of orders."""

    data: Path
    lake: Path
    written: list[Kept]
    first: int

    def where(self, one: Kept) -> str:
        return "archive" if (one.topic, one.partition) == ("orders", 0) and one.offset < self.first else "log"


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    home = tmp_path_factory.mktemp("search")
    data, lake = home / "data", home / "lake"
    topics(data, orders=2, payments=1)
    written = write(data, HOMES, 0, 100)
    archive(data, lake)
    with LocalEngine(data) as engine:
        first = engine.open("1-0").retain(Retention(bytes_max=1 << 12), now_ms=0)
    written += write(data, HOMES, 100, 130)
    assert 24 < first < 100
    assert first % 24
    return Place(data, lake, written, first)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Topic, partition, offset, key, value and where, sorted."""
    found = frame.select("topic", "partition", "offset", "key", "value", "where").collect()
    return sorted((*row[:3], bytes(row[3]), bytes(row[4]), row[5]) for row in found)


def expected(place: Place, chosen: Callable[[Kept], Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (one.topic, one.partition, one.offset, one.key, one.value, place.where(one))
        for one in place.written
        if chosen(one)
    )


def places(place: Place) -> dict[str, Any]:
    return {"data": str(place.data), "lake": str(place.lake)}


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, lambda _one: True),
        ({"topics": "payments"}, lambda one: one.topic == "payments"),
        ({"key": "anna"}, lambda one: one.key == b"anna"),
        ({"key": "0xFF01"}, lambda one: one.key == b"\xff\x01"),
        ({"since": str(30 * HOUR_MS), "until": str(101 * HOUR_MS)}, lambda one: 30 * HOUR_MS <= one.time_ms < 101 * HOUR_MS),
        ({"text": "größe 001"}, lambda one: "größe 001".encode() in one.value),
        ({"regex": "(?i)GRÖSSE|größe .*[37]$"}, lambda one: one.offset % 10 in (3, 7)),
        ({"regex": r"\x00\d{2}"}, lambda one: one.offset % 10 == 0 and one.offset >= 10),
        ({"topics": "orders", "since": "1970-01-02T00:00:01", "key": "bert", "text": " 1 "},
         lambda one: one.topic == "orders" and one.time_ms >= 24 * HOUR_MS + 1000 and one.key == b"bert"
         and b" 1 " in one.value),
        ({"text": "nowhere"}, lambda _one: False),
        ({"since": "now-1m"}, lambda _one: False),
    ],
    ids=lambda value: ",".join(value) or "all" if isinstance(value, dict) else "",
)  # fmt: skip
def test_found_is_what_python_finds_and_each_message_once(
    spark: SparkSession, place: Place, asked: dict[str, str], chosen: Callable[[Kept], Any]
) -> None:
    assert rows(find(spark, **places(place), **asked)) == expected(place, chosen)


def test_log_alone_and_archive_alone(spark: SparkSession, place: Place) -> None:
    log = expected(place, lambda one: place.where(one) == "log" and one.topic == "orders")
    assert rows(find(spark, data=str(place.data), topics="orders")) == log
    kept = [(*row[:5], "archive") for row in expected(place, lambda one: one.offset < 100)]
    assert rows(find(spark, lake=str(place.lake))) == kept


def test_shown_are_the_first_by_time_and_files_of_other_days_are_not_read(place: Place) -> None:
    since, until = place.first - 2, place.first + 3
    times: dict[str, Any] = {"since": str(since * HOUR_MS), "until": str(until * HOUR_MS)}
    told = done(Search(**places(place), **times, topics=("orders",), most=7))
    first = sorted(
        (one for one in place.written if one.topic == "orders" and since <= one.offset < until),
        key=lambda one: (one.time_ms, one.partition),
    )
    assert [(row["partition"], row["offset"], row["where"]) for row in told.rows] == [
        (one.partition, one.offset, place.where(one)) for one in first[:7]
    ]
    files = Lake(place.lake).files()
    days = {day for day in (since // 24, (until - 1) // 24) if day * 24 < place.first}
    skipped = len(files) - len(days)  # of partition 0; the log holds all of the others
    assert told.words == (
        "10 messages, 8 in the log; the first 7 of 10 rows are shown; "
        f"{skipped} of {len(files)} archive files were not read"
    )


def test_bodies_are_shown_as_text_or_digits_and_kept_as_they_are(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    to = tmp_path / "found"
    span: dict[str, Any] = {"since": str(29 * HOUR_MS), "until": str(31 * HOUR_MS), "key": "0xFF01"}
    told = done(Search(**places(place), **span, topics=("payments",), to=str(to)))
    assert told.rows == [
        {"topic": "payments", "partition": 0, "offset": 29, "time": "1970-01-02 05:00:00", "key": "0xFF01",
         "value": "payments 0 größe 0029", "where": "log"},
    ]  # fmt: skip
    assert done(Search(**places(place), key="0xFF01", topics=("payments",), since="0", until="1")).rows == []
    assert [row["value"] for row in done(Search(data=str(place.data), topics=("payments",), most=1)).rows] == [
        "0xFE0030"
    ]
    (row,) = spark.read.parquet(str(to)).collect()
    assert (bytes(row.value), row.sendTime.timestamp()) == ("payments 0 größe 0029".encode(), (29 * HOUR_MS - 5) / 1000)
    assert [(one.key, bytes(one.value)) for one in row.headers] == [("at", b"29")]
    with pytest.raises(Misuse, match="which is there already"):
        done(Search(**places(place), to=str(to)))


def test_topic_that_was_made_again_or_removed_has_its_old_messages(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    write(data, {"orders": ("orders", 0), "payments": ("payments", 0)}, 0, 20)
    archive(data, lake)
    shutil.rmtree(data)
    write(data, {"orders": ("orders", 0)}, 10, 15)  # other messages at the positions 0 to 5
    found = rows(find(spark, data=str(data), lake=str(lake)))
    old = [
        (topic, 0, at, message(topic, 0, at).value, "archive") for topic in ("orders", "payments") for at in range(20)
    ]
    new = [("orders", 0, at, message("orders", 0, at + 10).value, "log") for at in range(5)]
    assert sorted((*row[:3], *row[4:]) for row in found) == sorted(old + new)
    told = done(Search(data=str(data), lake=str(lake), topics=("payments",), most=1))
    assert (
        told.words == "20 messages, 0 in the log; the first 1 of 20 rows are shown; 1 of 2 archive files were not read"
    )
    told = done(Search(lake=str(lake), since="now-1m"))
    assert (told.words, told.rows) == ("0 messages, 0 in the log; 2 of 2 archive files were not read", [])


def test_queue_and_its_archive_are_one_until_it_is_made_again(
    spark: SparkSession, fill: Callable[..., Path], tmp_path: Path
) -> None:
    queue, lake = fill(numbered(0, 50)), tmp_path / "lake"
    archive(queue, lake)
    fill(numbered(50, 60))

    def both() -> list[tuple[int, bytes, str]]:
        found = find(spark, data=str(queue), lake=str(lake)).select("offset", "value", "where").collect()
        return sorted((row[0], bytes(row[1]), row[2]) for row in found)

    assert both() == [(at, body, "log") for at, body in enumerate(numbered(0, 60))]
    shutil.rmtree(queue)
    fill(numbered(1000, 1060))
    old = [(at, body, "archive") for at, body in enumerate(numbered(0, 50))]
    assert both() == sorted(old + [(at, body, "log") for at, body in enumerate(numbered(1000, 1060))])
    with pytest.raises(Misuse, match="a queue, whose messages have no time: leave out --since and --until"):
        find(spark, data=str(queue), since="now-1h")
    assert find(spark, lake=str(lake), since="0").count() == 0


def test_text_in_another_charset_is_found_where_it_stands(
    spark: SparkSession, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = ["订单".encode("gbk"), b"\xa1" + "订单".encode("gbk")[:-1] + b"\xa1", "单订单".encode("gbk"), b"\xff"]
    queue = fill(bodies)
    assert "订单".encode("gbk")[1:3] in bodies[0]  # bytes that are no character of it
    odd = "订单".encode("gbk")[1:3].decode("gbk")
    words = ["pipe", "run", "search", "--data", str(queue), "--charset", "gbk", "--output", "jsonl", "--text"]
    assert main([*words, "订单"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["offset"], row["value"]) for row in shown] == [(0, "订单"), (2, "单订单")]
    assert main([*words, odd]) == 0
    assert [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()] == [1]


def test_messages_that_go_while_they_are_looked_for_are_an_error_with_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    write(data, {"orders": ("orders", 0)}, 0, 100)
    found = find(spark, data=str(data))
    with LocalEngine(data) as engine:
        first = engine.open("orders").retain(Retention(bytes_max=1 << 12), now_ms=0)
    with pytest.raises(PySparkException, match=f"positions 0 to {first} are no longer there, {first} messages"):
        found.collect()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "search needs a place to look in: --data, a log, --lake, its archive, or both"),
        ({"data": "D", "regex": "a(b"}, "missing ), unterminated subpattern at position 1"),
        ({"data": "D", "text": "größe", "charset": "ascii"}, "--text is 'größe'; ascii cannot write it: ordinal not in"),
        ({"data": "D", "charset": "runes"}, "--charset is 'runes'; no such charset"),
        ({"data": "D", "lake": "L", "topics": "orders,colours"}, "has no topic colours; it has orders, payments"),
        ({"lake": "D"}, "is no archive: it has no manifests"),
        ({"data": "D", "since": "soon"}, "since is 'soon'; a time is milliseconds since 1970, ISO text, or now-10m"),
    ],
)  # fmt: skip
def test_wrong_search_is_refused_in_words(spark: SparkSession, place: Place, asked: dict[str, str], words: str) -> None:
    known = {"D": str(place.data), "L": str(place.lake)}
    with pytest.raises(Misuse, match=re.escape(words)):
        find(spark, **{name: known.get(text, text) for name, text in asked.items()})


def test_run_prints_a_table_json_or_lines_and_says_what_it_found(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "pipe",
        "run",
        "search",
        "--data",
        str(place.data),
        "--lake",
        str(place.lake),
        "--text",
        "orders 0 größe 0001",
    ]
    assert main(words) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[0].split() == ["topic", "partition", "offset", "time", "key", "value", "where"]
    assert told.out.splitlines()[-1].split() == [
        "orders", "0", "1", "1970-01-01", "01:00:00", "bert", "orders", "0", "größe", "0001", "archive",
    ]  # fmt: skip
    assert "search: 1 messages, 0 in the log" in told.err
    assert main([*words, "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["value"] == "orders 0 größe 0001"
    assert main([*words, "--key", "anna", "--output", "jsonl"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "search: 0 messages, 0 in the log" in told.err
    assert main(["pipe", "run", "search", "--data", str(place.data), "--regex", "["]) == 2
    assert "unterminated character set at position 0" in capsys.readouterr().err
