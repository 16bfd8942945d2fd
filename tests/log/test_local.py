"""A data directory has one engine, an epoch that grows, and a format that is looked at before anything is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from serai.errors import Closed, Corrupt, Locked, Misuse, NewerFormat
from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.helpers import every_file
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from pathlib import Path

ONE = oracle.encode(Entry(HOUSE, b"x"))


def test_epoch_grows_by_one_at_every_start(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        with LocalEngine(tmp_path / "data") as engine:
            assert engine.epoch == epoch
            log = engine.open("one")
            log.append(ONE, HOUSE, level=Level.RECEIVE, now_ms=1)
            assert log.head(epoch - 1).epoch >= epoch


def test_second_engine_is_refused(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data"), pytest.raises(Locked, match="one server has a data directory"):
        LocalEngine(tmp_path / "data")
    LocalEngine(tmp_path / "data").close()


@pytest.mark.parametrize("which", ["format", "p/one/format"])
def test_format_of_tomorrow_is_refused_by_name_and_nothing_is_written(tmp_path: Path, which: str) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        engine.open("one")
    path = tmp_path / "data" / which
    kind, _, rest = path.read_text().partition("\n")
    path.write_text(f"{kind.split()[0]} 2\n{rest}")
    before = every_file(tmp_path / "data")
    with pytest.raises(NewerFormat, match=f"{kind.split()[0]} of version 2; this serai reads version 1"):
        LocalEngine(tmp_path / "data").open("one")
    after = every_file(tmp_path / "data")
    if which == "p/one/format":
        assert (before.pop("epoch"), after.pop("epoch")) == (b"1\n", b"2\n")  # the rest of the directory was served
    assert after == before


@pytest.mark.parametrize("text", ["", "something else\n", "serai-log one\n", "\xff\xfe"])
def test_format_that_is_none_is_damage(tmp_path: Path, text: str) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        engine.open("one")
    (tmp_path / "data" / "p" / "one" / "format").write_bytes(text.encode("latin-1"))
    with LocalEngine(tmp_path / "data") as engine, pytest.raises(Corrupt, match="does not begin with 'serai-log"):
        engine.open("one")


def test_directory_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Misuse, match=r"notes\.txt is there"):
        LocalEngine(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_what_a_killed_process_left_half_made_goes_at_the_next_start(tmp_path: Path) -> None:
    LocalEngine(tmp_path / "data").close()
    for name in (".one.0a1b.new", ".two.0a1b.gone"):
        (tmp_path / "data" / "p" / name).mkdir()
    with LocalEngine(tmp_path / "data") as engine:
        assert engine.partitions() == []
        assert os.listdir(tmp_path / "data" / "p") == []


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\0b", "ü", "x" * 101])
def test_name_that_could_leave_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with LocalEngine(tmp_path / "data") as engine, pytest.raises(Misuse, match="cannot be the name of a partition"):
        engine.open(name)


def test_removed_partition_is_gone_and_its_spans_stay_readable(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("one")
        large = oracle.encode(Entry(HOUSE, b"y" * 10_000))
        log.append(large, HOUSE, level=Level.RECEIVE, now_ms=1)
        (span,) = log.spans(0, bytes_max=1 << 20)
        engine.remove("one")
        engine.remove("never-there")
        assert engine.partitions() == []
        assert bytes(span.data) == large
        with pytest.raises(Closed):
            log.append(ONE, HOUSE, level=Level.RECEIVE, now_ms=1)
        assert engine.open("one").end == 0


def test_closed_engine_opens_nothing(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path / "data")
    engine.close()
    engine.close()
    with pytest.raises(Closed, match="is closed"):
        engine.open("one")


def test_damage_is_counted_once_for_each_place_and_stays_counted(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=4096) as engine:
        log = engine.open("one")
        for number in range(9):
            log.append(oracle.encode(Entry(HOUSE, b"body %d" % number)), HOUSE, level=Level.RECEIVE, now_ms=1)
    page = tmp_path / "data" / "p" / "one" / "0.qd"
    page.write_bytes(page.read_bytes().replace(b"body 3", b"bode 3").replace(b"body 7", b"bode 7"))
    with LocalEngine(tmp_path / "data") as engine:
        log = engine.open("one")
        assert engine.condition().damaged == 0
        for ordinal in (3, 7, 3, 7, 3):
            with pytest.raises(Corrupt):
                log.spans(ordinal, bytes_max=100)
        assert engine.condition().damaged == 2
        engine.remove("one")
        assert engine.condition().damaged == 2


def test_syncs_are_timed(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=4096) as engine:
        log = engine.open("one")
        for done in range(1, 4):
            ticket = log.append(ONE, HOUSE, level=Level.COMMIT, now_ms=1)
            while not ticket.done:
                engine.moved()
            times = engine.condition().times
            assert sum(times.counts) >= done
    assert 0 < times.total_s < 60
