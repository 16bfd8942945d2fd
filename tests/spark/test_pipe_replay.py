"""Replay: what was archived comes again exactly, once, in order of each partition, whoever is killed on the way."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from serai.cli import main
from serai.errors import Locked, Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.view import View
from serai.spark.pipes.lake import File, Lake
from serai.spark.pipes.lakestream import LakeStream, Piece, Reading, Stop
from serai.spark.pipes.replay import Replay
from serai.spark.pipes.wanted import Wanted
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry, text_of
from tests.spark.keeping import HOUR_MS, Kept, archive, done, message, topics, write
from tests.spark.kit import SECONDS, load, numbered
from tests.spark.test_faults import START_S, below
from tests.spark.test_sink import forget_commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

HOMES = {"1-0": ("orders", 0), "1-1": ("orders", 1), "2-0": ("payments", 0)}
Came = dict[tuple[str, int], list[tuple[bytes | None, bytes, int, list[tuple[str, bytes]]]]]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a hundred messages of each of three partitions."""
    home = tmp_path_factory.mktemp("replay")
    topics(home / "data", orders=2, payments=1)
    write(home / "data", HOMES, 0, 100)
    archive(home / "data", home / "lake")
    return home / "lake"


def came(spark: SparkSession, data: Path) -> Came:
    """Key, body, send time and headers of each message, by topic and partition, in their order."""
    found: Came = defaultdict(list)
    frame = load(spark, data, columns="topic,partition,offset,key,value,sendTime,headers")
    for row in sorted(frame.collect(), key=lambda row: row.offset):
        notes = [(one.key, bytes(one.value)) for one in row.headers]
        key = None if row.key is None else bytes(row.key)
        found[row.topic, row.partition].append((key, bytes(row.value), round(row.sendTime.timestamp() * 1000), notes))
    return dict(found)


def sent(one: Kept) -> tuple[bytes | None, bytes, int, list[tuple[str, bytes]]]:
    return (one.key, one.value, one.time_ms - 5, [("at", b"%d" % one.offset)])


def of(
    topic: str, partition: int, first: int, last: int, chosen: Callable[[Kept], Any] = lambda _one: True
) -> list[Any]:
    every = (message(topic, partition, offset) for offset in range(first, last))
    return [sent(one) for one in every if chosen(one)]


def replay(lake: Path, data: Path, **settings: Any) -> Any:
    return done(Replay(lake=str(lake), data=str(data), **settings))


# ---- once and in order -------------------------------------------------------------------------------------


def test_everything_comes_again_as_it_was_and_a_second_run_does_nothing(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    told = replay(lake, tmp_path / "again", batch_rows=70)
    whole = {(topic, partition): of(topic, partition, 0, 100) for topic, partition in HOMES.values()}
    assert came(spark, tmp_path / "again") == whole
    assert told.rows == [
        {"topic": "orders", "partitions": 2, "messages": 200}, {"topic": "payments", "partitions": 1, "messages": 100},
    ]  # fmt: skip
    assert told.words.startswith("300 messages written into ")
    assert "300 rows in 5 batches" in told.words
    assert replay(lake, tmp_path / "again").words.startswith("0 messages written")
    assert came(spark, tmp_path / "again") == whole


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"topics": ("payments",), "key": "0xFF01", "into": "retry"},
         {("retry", 0): of("payments", 0, 0, 100, lambda one: one.key == b"\xff\x01")}),
        ({"topics": ("orders",), "since": str(30 * HOUR_MS), "until": str(60 * HOUR_MS), "partitions": 4},
         {("orders", 0): of("orders", 0, 30, 60), ("orders", 1): of("orders", 1, 30, 60)}),
        ({"where": "partition = 1 and offset % 10 = 3 and cast(value as string) like '%größe%'"},
         {("orders", 1): of("orders", 1, 0, 100, lambda one: one.offset % 10 == 3)}),
        ({"topics": ("orders",), "where": "partition = 1", "into": "narrow", "partitions": 1},
         {("narrow", 0): of("orders", 1, 0, 100)}),
        ({"since": "now-1h"}, {}),
    ],
    ids=["key", "time", "where", "narrow", "nothing"],
)  # fmt: skip
def test_only_what_is_asked_for_comes(
    spark: SparkSession, lake: Path, tmp_path: Path, asked: dict[str, Any], expected: Came
) -> None:
    told = replay(lake, tmp_path / "again", **asked)
    assert came(spark, tmp_path / "again") == expected
    assert sum(row["messages"] for row in told.rows) == sum(map(len, expected.values()))


def test_run_goes_on_with_what_was_archived_since_and_old_logs_come_first(spark: SparkSession, tmp_path: Path) -> None:
    data, lake, again = tmp_path / "data", tmp_path / "lake", tmp_path / "again"
    write(data, {"orders": ("orders", 0)}, 0, 40)
    archive(data, lake)
    replay(lake, again, batch_rows=15)
    write(data, {"orders": ("orders", 0)}, 40, 50)
    archive(data, lake)
    shutil.rmtree(data)
    write(data, {"orders": ("orders", 0)}, 50, 60)  # positions from 0 again, of another log
    shutil.rmtree(lake / "_serai" / "archive")  # its checkpoint knows the log that was
    archive(data, lake)
    assert replay(lake, again).rows == [{"topic": "orders", "partitions": 1, "messages": 20}]
    assert came(spark, again) == {("orders", 0): of("orders", 0, 0, 60)}


def test_batch_that_comes_again_is_written_once(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    replay(lake, again, batch_rows=100)
    forget_commit(again / ".replay" / "spark", 2)
    assert replay(lake, again, batch_rows=100).words.startswith("0 messages written")
    assert came(spark, again) == {(topic, part): of(topic, part, 0, 100) for topic, part in HOMES.values()}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_driver_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    spark: SparkSession, lake: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    words = ["pipe", "run", "replay", "--lake", str(lake), "--data", str(again), "--batch-rows", "6"]
    with open(tmp_path / "words", "w+") as told:
        command = [sys.executable, "-c", f"from serai.cli import main; main({words!r})"]
        driver = subprocess.Popen(command, stdout=told, stderr=told)
        deadline = time.monotonic() + START_S
        home = again / "p" / "1-0"
        while driver.poll() is None and time.monotonic() < deadline and not (home.exists() and end_of(home) >= 10):
            time.sleep(0.02)
        for pid in below(driver.pid):
            with suppress(ProcessLookupError):  # workers come and go
                os.kill(pid, signal.SIGKILL)
        driver.wait(SECONDS)
        told.seek(0)
        assert 10 <= end_of(home) < 100, told.read()
    before = sum(end_of(path) for path in (again / "p").iterdir())
    done_now = replay(lake, again)
    assert came(spark, again) == {(topic, part): of(topic, part, 0, 100) for topic, part in HOMES.values()}
    assert sum(row["messages"] for row in done_now.rows) == 300 - before
    assert [path.name for path in (again / ".staged").rglob("*-*-*")] == []


def end_of(home: Path) -> int:
    with View(home) as view:
        return view.end


def test_archive_of_a_queue_comes_into_a_log(spark: SparkSession, fill: Callable[..., Path], tmp_path: Path) -> None:
    archive(fill(numbered(0, 30)), tmp_path / "lake")
    replay(tmp_path / "lake", tmp_path / "again")
    assert came(spark, tmp_path / "again") == {("orders", 0): [(None, body, 0, []) for body in numbered(0, 30)]}


def test_messages_of_other_doors_keep_business_id_attributes_and_send_time(spark: SparkSession, tmp_path: Path) -> None:
    attributes = ((b"colour", b"red"), (b"size", b"7"))
    entries = {
        HOUSE: Entry(HOUSE, b"own", b"k1", headers=attributes, send_time=11, priority=3, flag=9),
        SEED: Entry(SEED, b"seed", b"k2", attributes=text_of(attributes), send_time=12, priority=4, flag=9),
        REAL: Entry(REAL, b"real", b"", attributes=text_of(attributes), send_time=13),
        JAFKA: Entry(JAFKA, b"jafka"),
    }
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("orders")
        for dress, entry in entries.items():
            log.append(encoded([entry]), dress, level=Level.RECEIVE, now_ms=1000)
        log.commit()
    archive(tmp_path / "data", tmp_path / "lake")
    replay(tmp_path / "lake", tmp_path / "again")
    headers = [("colour", b"red"), ("size", b"7")]
    assert came(spark, tmp_path / "again") == {
        ("orders", 0): [
            (b"k1", b"own", 11, headers), (b"k2", b"seed", 12, headers), (None, b"real", 13, headers),
            (None, b"jafka", 0, []),
        ]
    }  # fmt: skip


# ---- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"where": "offset >> 3 ="}, "Syntax error at or near end of input. SQLSTATE: 42601 (line 1, pos 13)"),
        ({"where": "colour = 'red'"}, "`colour` cannot be resolved. Did you mean one of the following?"),
        ({"where": "offset + 1"}, 'Filter expression "(offset + 1)" of type "BIGINT" is not a boolean'),
        ({"topics": ("colours",)}, "has no topic colours; it has orders, payments"),
        ({"into": "a/b"}, "a topic cannot be called 'a/b'"),
        ({"until": "soon"}, "until is 'soon'; a time is"),
    ],
)
def test_wrong_replay_is_refused_before_anything_is_written(
    spark: SparkSession, lake: Path, tmp_path: Path, asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=re.escape(words)):
        replay(lake, tmp_path / "again", **asked)
    assert not (tmp_path / "again" / "p").exists()


def test_other_partitions_than_a_topic_has_are_refused(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    topics(tmp_path / "again", orders=3)
    with pytest.raises(Misuse, match="--partitions is 2, but topic orders is there with 3: leave it out"):
        replay(lake, tmp_path / "again", partitions=2)


def test_server_on_the_same_directory_is_named_with_what_to_do(
    spark: SparkSession, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serai.spark.pipes.replay.PATIENCE_S", 0.1)
    with (
        LocalEngine(tmp_path / "again"),
        pytest.raises(Locked, match="in use: a server, or another writer, works there"),
    ):
        replay(lake, tmp_path / "again")
    assert replay(lake, tmp_path / "again", topics=None).words.startswith("300 messages written")


def test_place_of_another_selection_is_refused(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    replay(lake, tmp_path / "again", topics=("payments",))
    with pytest.raises(
        Misuse, match=r"was begun with topics \['payments'\], now \['orders'\].* give another --checkpoint"
    ):
        replay(lake, tmp_path / "again", topics=("orders",))


def test_run_prints_a_table_json_or_lines(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pipe", "run", "replay", "--lake", str(lake), "--topics", "payments", "--data"]
    assert main([*words, str(tmp_path / "one")]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines() if "payments" in line] == [["payments", "1", "100"]]
    assert "replay: 100 messages written into" in told.err
    row = {"topic": "payments", "partitions": 1, "messages": 0}
    assert main([*words, str(tmp_path / "one"), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [row]
    assert main([*words, str(tmp_path / "one"), "--output", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out) == row
    assert main([*words, str(tmp_path / "two"), "--where", "offset = = 1"]) == 2
    assert "--where is 'offset = = 1'; [PARSE_SYNTAX_ERROR]" in capsys.readouterr().err


# ---- the archive as a stream, without Spark ----------------------------------------------------------------


def file(first: int, last: int, *, epoch: str = "a", partition: int = 0, hour: int = 0) -> File:
    times = (hour * HOUR_MS * 1000, (hour + 1) * HOUR_MS * 1000)
    name = f"{partition}{epoch}-{first}-{last}"
    return File(name, "orders", partition, epoch, first, last, last - first, 1, 1, *times)


def stream(root: Path, *files: File, **wanted: Any) -> LakeStream:
    """A stream over an archive of these files."""
    lake = Lake(root)
    with lake.alone():
        lake.commit(f"query {len(lake.files())}", 0, list(files))
    return LakeStream(root, Wanted(**wanted), 1000)


def pieces(one: LakeStream, start: dict[str, Any], end: dict[str, Any]) -> list[list[tuple[str, int, int]]]:
    found = [reading for reading in one.partitions(start, end) if isinstance(reading, Reading)]
    return [[(piece.path, piece.low, piece.high) for piece in reading.pieces] for reading in found]


def test_place_in_the_stream_reads_back() -> None:
    place = Stop({("orders", 0, "5d"): 7, ("a/b", 12, ""): 0}, 5, None)
    assert place.to_json() == {"since": 5, "topics": {"a/b": {"12/": 0}, "orders": {"0/5d": 7}}, "v": 1}
    assert Stop.from_json(place.to_json()) == place
    with pytest.raises(Misuse, match="version 2"):
        Stop.from_json({"v": 2})


def test_batches_follow_each_log_and_the_older_log_first(tmp_path: Path) -> None:
    made = stream(
        tmp_path, file(5, 10, epoch="b", hour=0), file(10, 12, epoch="b", hour=1), file(0, 4, epoch="a", hour=2)
    )
    start = made.initialOffset()
    assert start == {"topics": {"orders": {"0/a": 0, "0/b": 5}}, "v": 1}
    middle = made.latestOffset(start, ReadMaxRows(8))
    assert pieces(made, start, middle) == [[("0b-5-10", 5, 10), ("0b-10-12", 10, 12), ("0a-0-4", 0, 1)]]
    end = made.latestOffset(middle, ReadAllAvailable())
    assert pieces(made, middle, end) == [[("0a-0-4", 1, 4)]]
    assert made.latestOffset(end, ReadMaxRows(8)) == end


def test_what_comes_to_the_archive_while_a_run_goes_on_waits_for_the_next(tmp_path: Path) -> None:
    made = stream(tmp_path, file(0, 4))
    made.prepareForTriggerAvailableNow()
    start = made.initialOffset()
    stream(tmp_path, file(4, 9), file(0, 3, partition=1))
    end = made.latestOffset(start, ReadAllAvailable())
    assert pieces(made, start, end) == [[("0a-0-4", 0, 4)]]
    assert made.latestOffset(end, ReadAllAvailable()) == end
    fresh = stream(tmp_path)
    more = fresh.latestOffset(end, ReadAllAvailable())
    assert pieces(fresh, end, more) == [[("0a-4-9", 4, 9)], [("1a-0-3", 0, 3)]]


def test_same_places_give_the_same_positions_when_files_were_written_anew(tmp_path: Path) -> None:
    made = stream(tmp_path, file(0, 4), file(4, 9), since_us=1)
    start = made.initialOffset()
    middle = made.latestOffset(start, ReadMaxRows(6))
    lake = Lake(tmp_path)
    with lake.alone():
        lake.replace([file(0, 9)], [file(0, 4), file(4, 9)])
    fresh = LakeStream(tmp_path, Wanted(since_us=99), 1000)
    assert pieces(fresh, start, middle) == [[("0a-0-9", 0, 6)]]
    assert list(fresh.partitions(start, middle)) == [Reading("orders", (Piece("0a-0-9", 0, 6),), 1, None)]


def test_archive_that_lost_what_was_read_is_an_error_with_positions(tmp_path: Path) -> None:
    made = stream(tmp_path / "one", file(0, 9))
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    other = stream(tmp_path / "two", file(0, 4))
    with pytest.raises(Misuse, match="up to 4, and this run had read up to 9: it is another archive"):
        other.partitions(start, end)


def test_positions_that_stand_for_two_messages_are_an_error(tmp_path: Path) -> None:
    made = stream(tmp_path, file(0, 9, epoch=""), file(0, 5, epoch="", hour=3))
    with pytest.raises(Misuse, match="positions 0 to 5 of orders twice: the queue was made again"):
        made.initialOffset()
