"""The audit: nothing in what is sound; every damage that is done for real found where it was done, and nothing else.

Most tests look with the pieces themselves, as tasks would, and start no Spark; what only the whole can tell runs on it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serai
from serai._core.crc import crc32c
from serai._core.records import RECORD_BYTES
from serai.cli import main
from serai.errors import Misuse
from serai.log.audit import audit as walk
from serai.log.engine import Level
from serai.log.healing import sealed
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from serai.log.view import View
from serai.spark import ledger
from serai.spark.pipes.archive import Archive
from serai.spark.pipes.audit import Audit
from serai.spark.pipes.compact import compact
from serai.spark.pipes.frame import Asked as Told
from serai.spark.pipes.frame import Outcome
from serai.spark.pipes.lake import File, Lake
from serai.spark.pipes.looking import KINDS, Asked, Looking, Piece, Records, Row
from serai.spark.pipes.running import run
from serai.spark.pipes.whole import whole
from tests.core.dressing import DRESSES, encoded, sets
from tests.helpers import patch
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PAGE_BYTES = 8192
HOUR_MS = 3_600_000
LOGS = {"1-0": ("orders", 0), "1-1": ("orders", 1), "cut": ("cut", 0), "old": ("old", 0), "sets": ("sets", 0)}
LAID: dict[str, list[byhand.Record]] = {}  # the records of each, as they lie in every copy
Found = tuple[str, str, int | None, int | None, int | None]  # kind, topic, partition, first, last


def audit(**asked: Any) -> Outcome:
    words: dict[str, Any] = {name: str(value) if isinstance(value, Path) else value for name, value in asked.items()}
    pipe = Audit(**words)
    return run(pipe, Told(), lambda _progress: None, lambda _words: None)


def archive(data: Path, lake: Path, **asked: Any) -> Lake:
    run(Archive(data=str(data), to=str(lake), **asked), Told(), lambda _progress: None, lambda _words: None)
    return Lake(lake)


def rows(data: Path | None = None, lake: Path | None = None, **settings: Any) -> list[Row]:
    """What the tasks of an audit give, without Spark."""
    asked = Asked(None if data is None else str(data), None if lake is None else str(lake), **settings)
    return [row for piece in Looking(asked).partitions() if isinstance(piece, Piece) for row in piece.look()]


def findings(data: Path | None = None, lake: Path | None = None, **settings: Any) -> list[Found]:
    return [place_of(asdict(row)) for row in rows(data, lake, **settings) if row.kind in KINDS]


def place_of(row: dict[str, Any]) -> Found:
    return (row["kind"], row["topic"], row["partition"], row["first"], row["last"])


def fill(log: Any, count: int, dice: Random, *, now_ms: int = 1000) -> None:
    for at in range(count):
        dress = dice.choice(DRESSES)
        entries = [Entry(dress, dice.randbytes(dice.randrange(200))) for _ in range(dice.randrange(1, 6))]
        log.append(encoded(entries), dress, level=Level.RECEIVE, now_ms=now_ms + at)


def make(data: Path) -> Path:
    """Topics `orders` with two partitions, `cut` that was cut once, `old` with its head given up, a queue and a writer's sets."""
    dice = Random(11)
    with LocalEngine(data, page_bytes=PAGE_BYTES) as engine:
        table = json.dumps({"name": "orders", "partitions": 2, "table": {}}).encode()
        engine.catalogue().put_many([(b"topic/1", table), (b"ids", b'{"next": 2}')], level=Level.COMMIT)
        for name in ("1-0", "1-1"):
            fill(engine.open(name), 60, dice)
        cut = engine.open("cut")
        fill(cut, 30, dice)
        cut.truncate(next(one.ordinal for one in byhand.read(data / "p" / "cut") if one.ordinal > 40))
        fill(cut, 30, dice, now_ms=HOUR_MS)
        old = engine.open("old")
        fill(old, 120, dice)
        assert old.retain(Retention(bytes_max=2 * PAGE_BYTES), now_ms=0) > 0
        old.append(encoded([Entry(HOUSE, dice.randbytes(2 * PAGE_BYTES))]), HOUSE, level=Level.RECEIVE, now_ms=5000)
        sets = engine.open("sets")
        for number in range(1, 30):
            body = encoded([Entry(HOUSE, b"%d" % number)])
            sets.append(
                body, HOUSE, level=Level.RECEIVE, now_ms=1, producer=7, sequence=number % 10, transaction=number // 10
            )
    with serai.Queue(data / "p" / "queue", page_size=4096, checksum="index24") as queue:
        queue.writer().append_many([b"%09d" % number for number in range(300)])
    return data


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = make(tmp_path_factory.mktemp("sound") / "data")
    LAID.update({name: byhand.read(data / "p" / name) for name in LOGS})
    return data


@pytest.fixture(scope="module")
def archived(sound: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive(sound, tmp_path_factory.mktemp("archived") / "lake", batch_rows=150).root


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


@pytest.fixture
def lake(archived: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(archived, tmp_path / "lake"))


def flip(file: Path, byte: int, bit: int) -> None:
    with open(file, "r+b") as raw:
        found = os.pread(raw.fileno(), 1, byte)
        os.pwrite(raw.fileno(), bytes([found[0] ^ 1 << bit]), byte)


# ---- sound -------------------------------------------------------------------------------------------------


def test_sound_log_and_archive_have_no_finding_and_exit_0(
    sound: Path, archived: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = walk(sound).messages - sum(walk(sound / "s" / name).messages for name in os.listdir(sound / "s"))
    assert main(["pipe", "run", "audit", "--data", str(sound), "--lake", str(archived), "--output", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert f"{messages:,} messages" in told.err
    assert "in 6 partitions" in told.err
    assert f"{sum(one.rows for one in Lake(archived).files()):,} rows" in told.err
    assert "nothing is wrong" in told.err


def test_audit_changes_nothing(data: Path, lake: Path) -> None:
    before = {path: path.read_bytes() for path in (*data.rglob("*"), *lake.rglob("*")) if path.is_file()}
    assert findings(data, lake) == []
    assert before == {path: path.read_bytes() for path in (*data.rglob("*"), *lake.rglob("*")) if path.is_file()}


def test_log_that_is_written_to_has_no_finding(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=PAGE_BYTES) as engine:
        for count in (0, 10, 300):
            fill(engine.open("one"), count, Random(count))
            assert findings(tmp_path / "data") == []
            assert sum(row.messages for row in rows(tmp_path / "data")) == engine.open("one").end


def test_audit_needs_something_to_look_at(sound: Path, tmp_path: Path) -> None:
    for asked, words in (
        ({}, "needs --data"), ({"data": sound, "to": tmp_path}, "is there already"),
    ):  # fmt: skip
        with pytest.raises(Misuse, match=words):
            Audit.run(Audit(**{name: str(path) for name, path in asked.items()}), None)  # type: ignore[arg-type]  # refused before it asks
    with pytest.raises(Misuse, match="names nothing, of which"):
        rows(sound, topics=("nothing",))
    with pytest.raises(Misuse, match="is no archive"):
        rows(lake=tmp_path)
    with pytest.raises(Misuse, match="have no store time"):
        rows(sound, since_ms=5)


# ---- logs --------------------------------------------------------------------------------------------------


def hurt_record(home: Path, dice: Random) -> Found:
    """One bit of one record."""
    record = dice.choice(LAID[home.name])
    number, byte = divmod(record.begin + dice.randrange(record.length), PAGE_BYTES)
    flip(home / f"{number}.qd", byte, dice.randrange(8))
    return ("checksum", *LOGS[home.name], record.ordinal, record.ordinal + record.count)


def hurt_slot(home: Path, dice: Random) -> Found:
    ordinal = dice.choice([one.ordinal + at for one in LAID[home.name] for at in range(one.count)])
    number, byte = divmod(16 * ordinal, PAGE_BYTES)
    flip(home / f"{number}.qx", byte + dice.randrange(16), dice.randrange(8))
    return ("index", *LOGS[home.name], ordinal, ordinal + 1)


def hurt_index(home: Path, dice: Random) -> Found:
    at, record = dice.choice(list(enumerate(LAID[home.name])))
    number, byte = divmod(byhand.mark_of(home).first_record + RECORD_BYTES * at, PAGE_BYTES)
    flip(home / f"{number}.qr", byte + dice.randrange(RECORD_BYTES), dice.randrange(8))
    return ("index", *LOGS[home.name], record.ordinal, record.ordinal + record.count)


@pytest.mark.parametrize("hurt", [hurt_record, hurt_slot, hurt_index])
@pytest.mark.parametrize("name", LOGS)
def test_flipped_bit_is_found_where_it_is(
    data: Path, sound: Path, name: str, hurt: Callable[[Path, Random], Found]
) -> None:
    dice = Random(f"{hurt.__name__} {name}")
    for _ in range(3):
        shutil.copytree(sound / "p" / name, data / "p" / name, dirs_exist_ok=True)
        expected = hurt(data / "p" / name, dice)
        assert findings(data) == [expected]


def rewrite(home: Path, at: int, **changes: int) -> None:
    """Record `at` with other words in its head and a checksum that is right, and the record index after it."""
    record, identity = LAID[home.name][at], int(byhand.words_of(home)["identity"], 16) & 0xFFFFFFFF
    with View(home) as view:
        head = view.trail.scan(record.begin)._replace(**changes)  # type: ignore[union-attr]  # it is whole
    raw = sealed(head, record.payload, identity)
    patch(home / f"{record.begin // PAGE_BYTES}.qd", record.begin % PAGE_BYTES, raw)
    entry = byhand.RECORD.pack(head.ordinal, head.place, head.begin, head.time)
    number, byte = divmod(byhand.mark_of(home).first_record + RECORD_BYTES * at, PAGE_BYTES)
    patch(home / f"{number}.qr", byte, entry)


@pytest.mark.parametrize("changes", [{"time": 3}, {"part": 1}])
def test_break_of_order_is_found_at_its_record(data: Path, changes: dict[str, int]) -> None:
    record = LAID["1-1"][20]
    rewrite(data / "p/1-1", 20, **changes)
    assert findings(data) == [("order", "orders", 1, record.ordinal, record.ordinal + record.count)]


def test_records_of_a_missing_page_are_one_finding(data: Path) -> None:
    gone = [record for record in LAID["1-0"] if record.begin // PAGE_BYTES == 1]
    (data / "p/1-0/1.qd").unlink()
    found = findings(data)
    assert ("unreadable", "orders", 0, None, None) in found  # the page itself
    first, last = gone[0].ordinal, gone[-1].ordinal + gone[-1].count
    assert [one for one in found if one[3] is not None] == [("unreadable", "orders", 0, first, last)]


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("unreadable", lambda home: (home / "format").unlink()),
        ("unreadable", lambda home: (home / "format").write_text("serai-log 2\n")),
        ("index", lambda home: patch(home / "marks", 0, bytes(4096))),
    ],
)
def test_log_that_cannot_be_opened_is_a_finding_and_the_others_are_looked_at(
    data: Path, kind: str, harm: Callable[[Path], object]
) -> None:
    before = sum(row.messages for row in rows(data) if row.topic != "cut")
    harm(data / "p/cut")
    assert findings(data) == [(kind, "cut", 0, None, None)]
    assert sum(row.messages for row in rows(data)) == before


def test_damaged_catalogue_is_a_finding_and_topics_are_called_as_their_folders(data: Path) -> None:
    record = byhand.read(data / "s/catalogue")[0]
    flip(data / "s/catalogue/0.qd", record.begin + 80, 1)
    hurt_record(data / "p/1-1", Random(5))
    assert [one[:3] for one in sorted(findings(data))] == [("checksum", "1-1", 0), ("unreadable", "", 0)]


def test_damage_of_a_queue_is_found(data: Path) -> None:
    flip(data / "p/queue/0.qd", 9 * 100 + 4, 3)
    assert findings(data) == [("checksum", "queue", 0, 100, 101)]
    patch(data / "p/queue/0.qx", 16 * 40, bytes(16 * 5))
    assert findings(data / "p/queue") == [("gap", "queue", 0, 40, 45), ("checksum", "queue", 0, 100, 101)]


def test_queues_of_a_folder_are_looked_at_each(tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "one", page_size=4096) as queue:
        queue.writer().append_many([b"%09d" % number for number in range(300)])
    for name in ("AA0", "BB1"):
        page_size = 4096 if name == "AA0" else None
        with serai.MultiQueue(tmp_path / "many", "rw", name, page_size=page_size) as many:
            many.writer().append_many([b"from " + name.encode()] * 100)
    assert findings(tmp_path) == []
    assert sum(row.messages for row in rows(tmp_path)) == 500
    flip(tmp_path / "many" / "0.qx", 16 * 30 + 8, 5)
    assert {(kind, topic, first) for kind, topic, _partition, first, _last in findings(tmp_path)} == {
        ("index", "many", 31)
    }
    assert findings(tmp_path, topics=("one",)) == []


def test_set_that_a_sender_brought_twice_is_found(data: Path, spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(data, page_bytes=PAGE_BYTES) as engine:
        log = engine.open("sets")
        end = log.end
        body = encoded([Entry(HOUSE, b"again"), Entry(HOUSE, b"and more")])
        log.append(body, HOUSE, level=Level.RECEIVE, now_ms=2, producer=7, sequence=4, transaction=1)
        log.append(body, HOUSE, level=Level.RECEIVE, now_ms=2, producer=8, sequence=4, transaction=1)
    told = audit(data=data, to=tmp_path / "found")
    assert [place_of(dict(row)) for row in told.rows] == [("duplicate", "sets", 0, end, end + 2)]
    assert told.failed
    assert told.rows[0]["words"] == "set 4 of producer 7, transaction 1, is at position 13 already"
    assert told.words.endswith("1 finding (1 duplicate)")
    assert [row.words for row in spark.read.parquet(str(tmp_path / "found")).collect()] == [told.rows[0]["words"]]


def test_batch_of_the_sink_that_is_not_finished_is_found(data: Path) -> None:
    entry = ledger.Entry(3, True, ("3-0-0",), (("sets", 0),))
    with LocalEngine(data, page_bytes=PAGE_BYTES) as engine:
        engine.state(ledger.STATE).put(b"query", entry.dump(), level=Level.COMMIT)
        engine.state(ledger.STATE).put(b"other", ledger.Entry(9).dump(), level=Level.COMMIT)
        assert findings(data) == []  # somebody has the directory, and may be at it
        (note,) = (row.words for row in rows(data) if row.kind == "note")
        assert str(note).startswith("batch 3 of writer query")
    assert findings(data) == [("transaction", "", None, None, None)]


def test_span_of_time_is_all_that_is_looked_at(data: Path) -> None:
    shutil.rmtree(data / "p/queue")
    expected = hurt_record(data / "p/1-0", Random(3))
    assert findings(data) == findings(data, until_ms=HOUR_MS) == [expected]
    assert findings(data, since_ms=HOUR_MS) == []
    whole, late = (sum(row.messages for row in rows(data, since_ms=since)) for since in (None, HOUR_MS))
    assert late == sum(record.count for record in LAID["cut"] if record.time >= HOUR_MS)
    assert whole > late > 0


def test_any_cut_of_a_log_finds_what_one_walk_finds(data: Path, sound: Path) -> None:
    dice = Random(21)
    for _ in range(25):
        home = data / "p" / dice.choice(list(LOGS))
        shutil.copytree(sound / "p" / home.name, home, dirs_exist_ok=True)
        for _ in range(dice.randrange(6)):
            dice.choice([hurt_index, hurt_slot, hurt_record, scratch, scratch, scratch])(home, dice)
        first = byhand.mark_of(home).first_record // RECORD_BYTES
        end = byhand.mark_of(home).record_end // RECORD_BYTES
        edges = sorted({first, end, *(dice.randrange(first, end) for _ in range(3))})
        cut = [Records("t", 0, str(home), low, high) for low, high in pairwise(edges)]
        found = [place_of(asdict(row)) for piece in cut for row in piece.look() if row.kind in KINDS]
        whole = Records("t", 0, str(home), first, end)
        assert found == [place_of(asdict(row)) for row in whole.look() if row.kind in KINDS]
        assert len(found) == len({problem.ordinal for problem in walk(home).problems})


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1 << 32))
def test_arrays_and_the_walk_agree_on_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, seed: int
) -> None:
    home, dice = tmp_path_factory.mktemp("any") / "data" / "p" / "one", Random(seed)
    with LocalEngine(home.parents[1], page_bytes=1 << 12) as engine:
        log = engine.open("one")
        for now in range(data.draw(st.integers(1, 8))):
            dress = data.draw(st.sampled_from(DRESSES))
            raw = encoded(data.draw(sets(dress)))
            if raw:
                log.append(raw, dress, level=Level.RECEIVE, now_ms=now)
        end = log.end
    assert findings(home) == []
    mark = byhand.mark_of(home)
    if mark.record_end == mark.first_record:
        return
    with View(home) as view:
        run = whole(view, mark.first_record, mark.record_end)
        messages = [view.trail.head(at).messages for at in range(mark.first_record, mark.record_end, RECORD_BYTES)]
    assert run is not None or 0 in messages or max(messages) > 5
    assert run is None or run[0]["messages"].tolist() == messages
    assert sum(messages) == end
    file = dice.choice(sorted(home.glob("*.q?")))
    live = {"d": mark.data_end, "x": 16 * end, "r": mark.record_end}[file.suffix[-1]] - (int(file.stem) << 12)
    flip(file, dice.randrange(min(live, 1 << 12)), dice.randrange(8))
    with View(home) as view:
        run = whole(view, mark.first_record, mark.record_end)
    assert run is None or walk(home).problems == []
    assert run is not None or 0 in messages or max(messages) > 5 or walk(home).problems != []


def scratch(home: Path, dice: Random) -> None:
    """A byte anywhere in the data that counts."""
    mark = byhand.mark_of(home)
    number, byte = divmod(dice.randrange(mark.data_end), PAGE_BYTES)
    if (home / f"{number}.qd").exists():
        flip(home / f"{number}.qd", byte, dice.randrange(8))


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_is_found_exactly(data: Path, spark: SparkSession, seed: int) -> None:
    dice, expected = Random(seed), set()
    for name in dice.sample(list(LOGS), dice.randrange(1, 5)):
        records = LAID[name]
        for record in dice.sample(records, dice.randrange(1, 4)):
            flip(
                data / "p" / name / f"{record.begin // PAGE_BYTES}.qd",
                record.begin % PAGE_BYTES + dice.randrange(4, 72),
                2,
            )
            expected.add(("checksum", *LOGS[name], record.ordinal, record.ordinal + record.count))
    told = audit(data=data, most=100)
    assert {place_of(dict(row)) for row in told.rows} == expected
    assert len(told.rows) == len(expected)
    assert told.failed


# ---- archives ----------------------------------------------------------------------------------------------


def manifests(lake: Path) -> list[Path]:
    return sorted((lake / "_serai/manifests").iterdir())


def edit(lake: Path, change: Callable[[File], File | None]) -> None:
    """Each file's line in its manifest, as `change` would have it."""
    for path in manifests(lake):
        said = json.loads(path.read_text())
        said["add"] = [asdict(one) for row in said["add"] if (one := change(File(**row))) is not None]
        path.write_text(json.dumps(said))


def chosen(lake: Path, topic: str = "orders", partition: int = 1) -> list[File]:
    found = [one for one in Lake(lake).files() if (one.topic, one.partition) == (topic, partition)]
    assert len(found) >= 2
    return found


def test_file_that_is_gone_cut_or_changed_is_found(lake: Path) -> None:
    dice = Random(2)
    gone, short, changed = dice.sample(chosen(lake, "cut", 0) + chosen(lake), 3)
    (lake / gone.path).unlink()
    os.truncate(lake / short.path, short.bytes - dice.randrange(1, short.bytes))
    flip(lake / changed.path, dice.randrange(changed.bytes), 6)
    assert sorted(findings(lake=lake)) == sorted(
        (kind, one.topic, one.partition, one.first, one.last)
        for kind, one in (("unreadable", gone), ("unreadable", short), ("checksum", changed))
    )


def test_files_that_were_joined_meanwhile_are_no_finding(lake: Path) -> None:
    asked = Asked(lake=str(lake))
    pieces = [one for one in Looking(asked).partitions() if isinstance(one, Piece)]
    with (there := Lake(lake)).alone():
        before, after = compact(there, 1 << 20)
        there.sweep()
    assert before > after > 0
    found = [row for piece in pieces for row in piece.look()]
    assert not [row for row in found if row.kind in KINDS]
    assert len([row for row in found if row.kind == "note"]) == before
    assert findings(lake=lake) == []


def test_gap_and_overlap_among_manifests_are_found(lake: Path) -> None:
    one, other = chosen(lake)[0], chosen(lake, "cut", 0)[1]
    edit(lake, lambda file: None if file == one else replace(file, first=file.first - 2) if file == other else file)
    found = findings(lake=lake)
    assert ("duplicate", "cut", 0, other.first - 2, other.first) in found
    assert ("skipped", "cut", 0, other.first - 2, other.first) in found  # it is named for two more than it has
    assert len(found) == 2  # and a file before the others was never promised
    middle = chosen(lake, "old", 0)[1:-1] or chosen(lake, "queue", 0)[1:-1]
    edit(lake, lambda file: None if file == middle[0] else file)
    assert ("gap", middle[0].topic, 0, middle[0].first, middle[0].last) in findings(lake=lake)


def test_beginning_that_the_log_has_and_the_archive_has_not_is_a_gap(data: Path, lake: Path) -> None:
    one = chosen(lake)[0]
    edit(lake, lambda file: None if file == one else file)
    assert findings(data, lake) == [("gap", "orders", 1, 0, one.last)]


def test_lost_or_unreadable_manifest_is_found(lake: Path) -> None:
    lost = manifests(lake)[1]
    raw = lost.read_text()
    for harm in (lost.unlink, lambda: lost.write_text("{"), lambda: lost.write_text(raw.replace('"crc"', '"cic"'))):
        harm()
        assert [one[0] for one in findings(lake=lake)] == ["unreadable"]
    lost.write_text(raw)
    assert findings(lake=lake) == []


def rewritten(lake: Path, one: File, change: Callable[[pa.Table], pa.Table]) -> None:
    """A file with other rows, and a manifest that says that this is how it was written."""
    path = lake / one.path
    pq.write_table(change(pq.ParquetFile(path).read()), path)
    raw = path.read_bytes()
    edit(lake, lambda file: replace(file, bytes=len(raw), crc=crc32c(raw)) if file == one else file)


def swapped(table: pa.Table, at: int) -> pa.Table:
    order = list(range(len(table)))
    order[at], order[at + 1] = at + 1, at
    return table.take(order)


def test_rows_out_of_order_twice_or_lost_are_found(lake: Path) -> None:
    order, twice, lost = chosen(lake)[0], chosen(lake, "cut", 0)[0], chosen(lake, "orders", 0)[0]
    rewritten(lake, order, lambda table: swapped(table, 4))
    rewritten(lake, twice, lambda table: pa.concat_tables([table.slice(0, 6), table.slice(5)]))
    rewritten(lake, lost, lambda table: pa.concat_tables([table.slice(0, 7), table.slice(9)]))
    found = findings(lake=lake)
    assert ("duplicate", "cut", 0, twice.first + 5, twice.first + 6) in found
    assert ("different", "cut", 0, twice.first, twice.last) in found  # a row more than the manifest counts
    assert ("gap", "orders", 0, lost.first + 7, lost.first + 9) in found
    assert ("different", "orders", 0, lost.first, lost.last) in found
    assert ("order", "orders", 1, order.first + 4, order.first + 5) in found


def test_row_that_is_not_the_logs_is_found_beside_it(data: Path, lake: Path) -> None:
    one = chosen(lake)[1]

    def other_value(table: pa.Table) -> pa.Table:
        values = table.column("value").to_pylist()
        values[3] = b"something else"
        values[4] = b"another thing"
        values[8] = b"and that"
        return table.set_column(table.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))

    rewritten(lake, one, other_value)
    assert findings(lake=lake) == []
    at = one.first
    assert findings(data, lake) == [
        ("different", "orders", 1, at + 3, at + 5), ("different", "orders", 1, at + 8, at + 9),
    ]  # fmt: skip


def test_what_is_not_archived_yet_is_counted_and_no_finding(data: Path, lake: Path) -> None:
    with LocalEngine(data, page_bytes=PAGE_BYTES) as engine:
        engine.open("cut").append(encoded([Entry(HOUSE, b"new")] * 9), HOUSE, level=Level.COMMIT, now_ms=2 * HOUR_MS)
        engine.open("fresh").append(encoded([Entry(HOUSE, b"new")] * 4), HOUSE, level=Level.COMMIT, now_ms=1)
    found = rows(data, lake)
    assert [place_of(asdict(row)) for row in found if row.kind in KINDS] == []
    assert sorted((row.topic, row.messages) for row in found if row.kind == "behind") == [
        ("cut", 9), ("fresh", 4), ("queue", 300),
    ]  # fmt: skip


def test_archive_of_a_queue_is_compared_with_it(tmp_path: Path, fill: Callable[..., Path], spark: SparkSession) -> None:
    queue = fill([b"%030d" % number for number in range(900)], page_size=4096)
    lake = archive(queue, tmp_path / "lake", batch_rows=400).root
    assert findings(queue, lake) == []
    flip(queue / "0.qd", 30 * 7 + 3, 1)  # a queue without checksums: only the archive knows what was there
    assert findings(queue) == []
    assert findings(queue, lake) == [("different", "orders", 0, 7, 8)]


@pytest.mark.parametrize("word", ["skip", "null"])
def test_messages_the_archive_left_out_are_told_apart(
    data: Path, tmp_path: Path, spark: SparkSession, word: str
) -> None:
    hurt = hurt_record(data / "p/1-0", Random(8))
    lake = archive(data, tmp_path / "left", topics="orders", on_corrupt=word).root
    assert findings(lake=lake) == [("skipped", *hurt[1:])]
    assert sorted(findings(data, lake, topics=("orders",))) == sorted([hurt, ("skipped", *hurt[1:])])


def test_findings_of_both_are_shown_counted_and_fail(
    data: Path, lake: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    hurt = [hurt_record(data / "p/1-0", Random(4)), hurt_record(data / "p/old", Random(4))]
    (lake / chosen(lake)[0].path).unlink()
    words = ["pipe", "run", "audit", "--data", str(data), "--lake", str(lake), "--most", "2", "--output", "jsonl"]
    assert main(words) == 1
    told = capsys.readouterr()
    shown = [json.loads(line) for line in told.out.splitlines()]
    assert [place_of(row) for row in shown] == [hurt[1], hurt[0]]
    assert "3 findings (2 checksum, 1 unreadable); the first 2 of 3 rows are shown" in told.err
