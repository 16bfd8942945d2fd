"""Slots, index and marks are made again from the records: the same messages as before, and none that was given up."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from serai.errors import Corrupt, Locked
from serai.log.audit import audit
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.rebuild import plan, rebuild
from serai.log.retention import Retention
from serai.log.view import View
from tests.helpers import files_of, patch
from tests.log.test_audit import CUT, HEADLESS, PAGE_BYTES, fill, make
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from serai.log.view import Reading

NAMES = ["p/whole", CUT, HEADLESS, "s/positions"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("rebuild") / "data")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "data"))


def content(log: Reading) -> list[tuple[int, int, bytes]]:
    out, ordinal = [], log.first
    while spans := log.spans(ordinal, bytes_max=1 << 20):
        out += [(span.ordinal, span.dress, bytes(span.data)) for span in spans]
        ordinal = spans[-1].ordinal + spans[-1].count
    return out


def content_of(path: Path) -> list[tuple[int, int, bytes]]:
    with View(path) as view:
        return content(view)


def spoil(path: Path, suffix: str, dice: Random) -> None:
    """Rubbish in every page of a stream."""
    for page in path.glob("*" + suffix):
        page.write_bytes(dice.randbytes(page.stat().st_size))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spoilt", [(".qx",), (".qr",), (".qx", ".qr"), (".qx", ".qr", "marks")], ids="".join)
def test_log_comes_back_from_its_data_alone(copy: Path, name: str, spoilt: tuple[str, ...]) -> None:
    path, before = copy / name, content_of(copy / name)
    for suffix in spoilt:
        spoil(path, suffix, Random(name))
    if "marks" in spoilt:
        with pytest.raises(Corrupt, match="--repair"):
            open_partition(path)
    rebuild(path)
    assert audit(path).problems == []
    assert [piece[2] for piece in joined(content_of(path))] == [piece[2] for piece in joined(before)]
    byhand.read(path)
    with open_partition(path) as log:
        assert joined(content(log)) == joined(before)
        if name.startswith("p/"):
            fill(log, 5, Random(9))
    assert audit(path).problems == []


def joined(pieces: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    out: list[tuple[int, int, bytes]] = []
    for ordinal, dress, raw in pieces:
        if out and out[-1][1] == dress:
            out[-1] = (out[-1][0], dress, out[-1][2] + raw)
        else:
            out.append((ordinal, dress, raw))
    return out


def test_missing_pages_of_slots_and_index_are_made(copy: Path) -> None:
    path, before = copy / "p/whole", content_of(copy / "p/whole")
    for page in [*path.glob("*.qx"), *path.glob("*.qr")]:
        page.unlink()
    rebuild(path)
    assert content_of(path) == before


def test_plan_changes_nothing(copy: Path) -> None:
    patch(copy / CUT / "0.qx", 0, b"\xff" * 64)
    before = files_of(copy)
    assert plan(copy / CUT).missing == []
    assert files_of(copy) == before


def test_messages_of_a_damaged_record_stay_away_and_the_others_are_served(copy: Path) -> None:
    path = copy / "p/whole"
    hit = byhand.read(path)[7]
    patch(path / f"{hit.begin // PAGE_BYTES}.qd", hit.begin % PAGE_BYTES + 75, b"\xff\xff")
    patch(path / "0.qr", 32 * 20, b"\xff" * 32)
    found = rebuild(path)
    assert found.missing == [(hit.ordinal, hit.ordinal + hit.count)]
    with View(path) as view:
        with pytest.raises(Corrupt):
            view.spans(hit.ordinal, bytes_max=1000)
        assert view.spans(hit.ordinal + hit.count, bytes_max=1000)
        assert sum(span.count for span in view.spans(0, bytes_max=1 << 20)) == hit.ordinal


def test_records_above_the_mark_are_still_taken_over(tmp_path: Path) -> None:
    log = open_partition(tmp_path / "one", page_bytes=PAGE_BYTES)
    fill(log, 20, Random(1))
    log.settle()
    fill(log, 20, Random(2))
    before = content(log)
    log.abandon()
    patch(tmp_path / "one" / "0.qr", 64, b"\xff" * 8)
    rebuild(tmp_path / "one")
    with open_partition(tmp_path / "one") as again:
        assert joined(content(again)) == joined(before)


def test_old_bytes_of_a_page_used_again_are_not_believed(tmp_path: Path) -> None:
    one = oracle.encode(Entry(HOUSE, b"x" * 100))  # all records alike, so that old ones stand where new ones could
    with open_partition(tmp_path / "one", page_bytes=4096) as log:
        for at in range(400):
            log.append(one, HOUSE, level=Level.RECEIVE, now_ms=at)
            if at % 40 == 39:
                log.trail.forget()
                log.folder.forget()
                log.retain(Retention(bytes_max=2 * 4096), now_ms=0)
        first, end = log.first, log.end
    spoil(tmp_path / "one", "marks", Random(1))
    found = rebuild(tmp_path / "one")
    assert found.marks_lost
    with View(tmp_path / "one") as view:
        assert (view.first, view.end) == (first, end)


def test_log_that_is_served_is_not_rebuilt(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        engine.open("one")
        with pytest.raises(Locked, match="stop it before repairing"):
            rebuild(tmp_path / "data" / "p" / "one")
    rebuild(tmp_path / "data" / "p" / "one")
    with open_partition(tmp_path / "data" / "p" / "one") as log, pytest.raises(Locked):
        rebuild(log.folder.path)
