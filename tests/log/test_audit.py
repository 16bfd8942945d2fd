"""Everything that is wrong in a data directory is named, with its log, its ordinal and its byte; and nothing that is not.

The directory has three partitions in every dress, one of them cut once and one with its head given up, and a state log.
What is live in it is read by hand (`tests.oracle.partition`), so that each flipped bit is known to matter.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from serai._core.records import RECORD_BYTES
from serai.errors import Corrupt, Misuse, NewerFormat
from serai.log.audit import audit, kind_of, logs_of
from serai.log.engine import Level
from serai.log.format import MARK, MARK_AT
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.retention import Retention
from tests.core.dressing import DRESSES, encoded
from tests.helpers import every_file, patch
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from serai.log.audit import Problem

PAGE_BYTES = 8192
CUT, HEADLESS = "p/cut", "p/headless"


def fill(log: object, count: int, dice: Random) -> None:
    for at in range(count):
        dress = dice.choice(DRESSES)
        entries = [Entry(dress, dice.randbytes(dice.randrange(200))) for _ in range(dice.randrange(1, 6))]
        log.append(encoded(entries), dress, level=Level.RECEIVE, now_ms=1000 + at)  # type: ignore[attr-defined]  # a partition


def make(path: Path) -> Path:
    dice = Random(7)
    with LocalEngine(path, page_bytes=PAGE_BYTES) as engine:
        fill(engine.open("whole"), 60, dice)
        cut = engine.open("cut")
        fill(cut, 30, dice)
        cut.truncate(next(record.ordinal for record in byhand.read(path / CUT) if record.ordinal > 40))
        fill(cut, 30, dice)
        headless = engine.open("headless")
        fill(headless, 120, dice)
        assert headless.retain(Retention(bytes_max=2 * PAGE_BYTES), now_ms=0) > 0
        headless.append(long_message(dice), HOUSE, level=Level.RECEIVE, now_ms=5000)
        for at in range(40):
            engine.state("positions").put(b"group-%d" % (at % 7), dice.randbytes(20), level=Level.RECEIVE)
    return path


def long_message(dice: Random) -> bytes:
    """A message longer than two pages."""
    return encoded([Entry(HOUSE, dice.randbytes(2 * PAGE_BYTES))])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("audit") / "data")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "data"))


def flipped(file: Path, byte: int, bit: int) -> None:
    with open(file, "r+b") as raw:
        found = os.pread(raw.fileno(), 1, byte)
        os.pwrite(raw.fileno(), bytes([found[0] ^ 1 << bit]), byte)


def problems_of(store: Path, file: Path, byte: int, bit: int) -> list[Problem]:
    """What an audit says while one bit is another one."""
    flipped(file, byte, bit)
    try:
        return audit(store).problems
    finally:
        flipped(file, byte, bit)


def test_sound_directory_has_no_problem(store: Path) -> None:
    report = audit(store)
    read = [record for name in logs_of(store) for record in byhand.read(store / name)]
    assert (report.problems, report.notes) == ([], [])
    assert report.logs == len(logs_of(store)) == 4
    assert report.records == len(read)
    assert report.messages == sum(record.count for record in read)
    assert report.bytes == sum(len(record.payload) for record in read)


def test_audit_changes_nothing(copy: Path) -> None:
    before = every_file(copy)
    audit(copy)
    assert before == every_file(copy)


@pytest.mark.parametrize("name", ["p/whole", CUT, HEADLESS, "s/positions"])
def test_flipped_bit_of_a_record_is_named_with_its_ordinal_and_byte(store: Path, name: str) -> None:
    dice = Random(name)
    records = byhand.read(store / name)
    page_bytes = int(byhand.words_of(store / name)["page-bytes"])
    for _ in range(40):
        record = dice.choice(records)
        number, byte = divmod(record.begin + dice.randrange(record.length), page_bytes)
        (problem,) = problems_of(store, store / name / f"{number}.qd", byte, dice.randrange(8))
        assert (problem.kind, problem.log, problem.ordinal) == ("record", name, record.ordinal), problem
        assert (problem.file, problem.position) == (
            str(store / name / f"{record.begin // page_bytes}.qd"), record.begin % page_bytes,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["p/whole", CUT, HEADLESS])
def test_flipped_bit_of_a_slot_is_named_with_its_ordinal(store: Path, name: str) -> None:
    dice = Random(name)
    first, end = byhand.mark_of(store / name).first, byhand.mark_of(store / name).end
    for _ in range(30):
        ordinal = dice.randrange(first, end)
        number, byte = divmod(16 * ordinal, PAGE_BYTES)
        file = store / name / f"{number}.qx"
        (problem,) = problems_of(store, file, byte + dice.randrange(16), dice.randrange(8))
        assert (problem.kind, problem.log, problem.ordinal) == ("slot", name, ordinal), problem
        assert (problem.file, problem.position) == (str(file), byte)


@pytest.mark.parametrize("name", ["p/whole", CUT, HEADLESS])
def test_flipped_bit_of_the_record_index_is_named_and_hides_nothing(store: Path, name: str) -> None:
    dice = Random(name)
    mark, found = byhand.mark_of(store / name), byhand.read(store / name)
    for at in range(0, len(found), 3):
        number, byte = divmod(mark.first_record + RECORD_BYTES * at, PAGE_BYTES)
        file = store / name / f"{number}.qr"
        flipped(file, spot := byte + dice.randrange(RECORD_BYTES), bit := dice.randrange(8))
        report = audit(store / name)
        flipped(file, spot, bit)
        (problem,) = report.problems
        assert (problem.kind, problem.ordinal) == ("index", found[at].ordinal), problem
        assert (problem.file, problem.position) == (str(file), byte)
        assert report.records == len(found)


def test_flipped_bit_of_a_mark_is_named(store: Path) -> None:
    for start in MARK_AT:
        for byte in range(0, MARK.size, 7):
            (problem,) = problems_of(store, store / CUT / "marks", start + byte, byte % 8)
            assert (problem.kind, problem.log, problem.position) == ("marks", CUT, start), problem


def test_many_problems_are_all_named_and_the_rest_is_looked_at(store: Path) -> None:
    records = byhand.read(store / "p/whole")
    spots = [divmod(record.begin + 80, PAGE_BYTES) for record in records[5:50:3]]
    for number, byte in spots:
        flipped(store / "p/whole" / f"{number}.qd", byte, 3)
    report = audit(store / "p/whole")
    for number, byte in spots:
        flipped(store / "p/whole" / f"{number}.qd", byte, 3)
    assert [problem.ordinal for problem in report.problems] == [record.ordinal for record in records[5:50:3]]
    assert report.records == len(records) - len(spots)


def test_missing_page_is_named_and_the_others_are_looked_at(copy: Path, store: Path) -> None:
    gone = sorted(copy.glob("p/whole/*.qd"), key=lambda path: int(path.stem))[1]
    gone.unlink()
    report = audit(copy)
    assert {problem.log for problem in report.problems} == {"p/whole"}
    assert ("page", str(gone)) in {(problem.kind, problem.file) for problem in report.problems}
    lost = [record for record in byhand.read(store / "p/whole") if record.begin // PAGE_BYTES == 1]
    assert [problem.ordinal for problem in report.problems if problem.kind == "record"] == [
        record.ordinal for record in lost
    ]


def test_page_of_another_length_is_named(copy: Path) -> None:
    page = copy / "p/whole" / "0.qx"
    os.truncate(page, 100)
    assert ("page", str(page), 100) in {(p.kind, p.file, p.position) for p in audit(copy).problems}


def test_lost_marks_are_named_and_other_logs_are_looked_at(copy: Path) -> None:
    patch(copy / CUT / "marks", 0, bytes(4096))
    report = audit(copy)
    assert [(problem.kind, problem.log) for problem in report.problems] == [("marks", CUT)]
    assert report.records == sum(len(byhand.read(copy / name)) for name in logs_of(copy) if name != CUT)


def test_records_above_the_mark_are_a_note(tmp_path: Path) -> None:
    log = open_partition(tmp_path / "one", page_bytes=PAGE_BYTES)
    fill(log, 10, Random(1))
    log.settle()
    fill(log, 5, Random(2))
    log.abandon()
    patch(tmp_path / "one" / "marks", 2048, bytes(96))  # as after a start of the machine
    report = audit(tmp_path / "one")
    assert report.problems == []
    assert report.notes == ["one: 5 records lie above the newest mark; whoever opens it for writing takes them over"]


def test_directory_of_a_living_writer_is_sound_up_to_what_it_published(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=PAGE_BYTES) as engine:
        for count in (0, 10, 30):
            fill(engine.open("one"), count, Random(count))
            report = audit(tmp_path / "data")
            assert (report.problems, report.messages) == ([], engine.open("one").end)


def test_progress_ends_at_all_records(store: Path) -> None:
    heard: list[tuple[int, int]] = []
    report = audit(store, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (report.records, report.records)
    assert heard == sorted(heard)


def test_format_of_tomorrow_is_refused_by_its_number(copy: Path) -> None:
    log = copy / CUT / "format"
    log.write_text(log.read_text().replace("serai-log 1", "serai-log 2"))
    assert [(p.kind, p.log) for p in audit(copy).problems] == [("format", CUT)]
    with pytest.raises(NewerFormat, match="serai-log of version 2"):
        audit(copy / CUT)
    (copy / "format").write_text("serai-data 3\n")
    with pytest.raises(NewerFormat, match="serai-data of version 3"):
        audit(copy)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="is not a directory"):
        audit(tmp_path / "nothing")
    (tmp_path / "format").write_bytes(b"\xff something else")
    assert kind_of(tmp_path) == ""
    with pytest.raises(Corrupt, match="does not begin with 'serai-data"):
        audit(tmp_path)


def test_epoch_that_is_no_number_is_named(copy: Path) -> None:
    (copy / "epoch").write_text("tomorrow\n")
    (copy / "p" / ".half.abc.new").mkdir()
    report = audit(copy)
    assert [problem.kind for problem in report.problems] == ["epoch"]
    assert len(report.notes) == 1
    assert json.dumps(report.notes[0]).count("half made")


def test_bare_queue_that_is_served_is_looked_at_too(copy: Path) -> None:
    with serai.Queue(copy / "p" / "queue", page_size=4096) as queue:
        queue.writer().append_many([b"0123456789"] * 20)
    before = audit(copy)
    assert (before.problems, before.logs) == ([], 5)
    patch(copy / "p" / "queue" / "0.qx", 16 * 4, bytes(16))
    (problem,) = audit(copy).problems
    assert (problem.kind, problem.log, problem.ordinal, problem.position) == ("hole", "p/queue", 4, 64)
