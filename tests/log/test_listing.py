"""What a listing says is what the directory holds, read by hand; damage is a row, and the rest follows."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import serai
from serai.log import listing
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.view import View
from tests.core.dressing import DRESSES, encoded
from tests.helpers import patch
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, JAFKA, Entry

if TYPE_CHECKING:
    from pathlib import Path


def make(path: Path) -> list[tuple[int, bytes, int]]:
    """A partition of every dress; dress, body and time of each message."""
    dice, held = Random(3), []
    with open_partition(path, page_bytes=8192) as log:
        for at in range(60):
            dress = dice.choice(DRESSES)
            bodies = [dice.randbytes(dice.randrange(120)) for _ in range(dice.randrange(1, 5))]
            entries = [Entry(dress, body, key=b"" if dress == JAFKA else b"k%d" % at) for body in bodies]
            log.append(encoded(entries), dress, level=Level.RECEIVE, now_ms=1000 + at, transaction=at % 3)
            held += [(dress, body, 1000 + at) for body in bodies]
    return held


def test_messages_are_those_that_were_appended(tmp_path: Path) -> None:
    held = make(tmp_path / "one")
    with View(tmp_path / "one") as view:
        rows = list(listing.messages(view, 0))
        assert [(row.ordinal, row.said["dress"], row.body, row.said["time_ms"]) for row in rows] == [
            (at, listing.DRESSES[dress], body, time) for at, (dress, body, time) in enumerate(held)
        ]
        assert all((row.key is None) == (row.said["dress"] == "jafka") for row in rows)
        assert list(listing.messages(view, 17)) == rows[17:]


def test_records_are_those_read_by_hand(tmp_path: Path) -> None:
    make(tmp_path / "one")
    with View(tmp_path / "one") as view:
        rows = list(listing.records(view, 0))
    found = byhand.read(tmp_path / "one")
    assert [(row.ordinal, row.said["begin"], row.said["length"], row.said["transaction"]) for row in rows] == [
        (record.ordinal, record.begin, record.length, record.transaction) for record in found
    ]


def test_damage_is_a_row_and_the_rest_follows(tmp_path: Path) -> None:
    make(tmp_path / "one")
    records = byhand.read(tmp_path / "one")
    hit = records[5]
    patch(tmp_path / "one" / "0.qd", hit.begin + 72, b"\xff")
    with View(tmp_path / "one") as view:
        for rows in (list(listing.messages(view, 0)), list(listing.records(view, 0))):
            (broken,) = [row for row in rows if row.problem]
            assert broken.ordinal == hit.ordinal
            assert f"byte {hit.begin} (ordinal {hit.ordinal})" in broken.problem
            assert rows[-1].ordinal >= records[-1].ordinal


def test_damaged_slot_is_a_row_and_the_rest_follows(tmp_path: Path) -> None:
    make(tmp_path / "one")
    with View(tmp_path / "one") as view:
        before = list(listing.messages(view, 0))
    patch(tmp_path / "one" / "0.qx", 16 * 5 + 15, b"\0")
    with View(tmp_path / "one") as view:
        after = list(listing.messages(view, 0))
    assert after[:5] + after[6:] == before[:5] + before[6:]
    assert (after[5].ordinal, after[5].body) == (5, None)
    assert "0.qx byte 80 (ordinal 5)" in after[5].problem


def test_changes_tell_removed_keys_from_empty_values(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        state = engine.state("positions")
        state.put_many([(b"a", b"1"), (b"b", b"")], level=Level.RECEIVE)
        state.put(b"a", None, level=Level.RECEIVE)
    with View(tmp_path / "data" / "s" / "positions") as view:
        rows = list(listing.changes(view, 0))
    assert [(row.ordinal, row.key, row.body, row.said["state"]) for row in rows] == [
        (0, b"a", b"1", "set"), (1, b"b", b"", "set"), (2, b"a", None, "gone"),
    ]  # fmt: skip


def test_summary_says_where_a_log_stands(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data", page_bytes=8192) as engine:
        log = engine.open("one", jafka_magic=0)
        log.append(oracle.encode(Entry(HOUSE, b"x" * 100)), HOUSE, level=Level.RECEIVE, now_ms=5)
        found = listing.summary("p/one", tmp_path / "data" / "p" / "one")
        assert (found.first, found.end, found.records, found.end_place, found.jafka_magic) == (0, 1, 1, 109, 0)
        assert (found.written_by, found.pages) == ("a process", 3)
    found = listing.summary("p/one", tmp_path / "data" / "p" / "one")
    assert (found.written_by, found.committed, found.mark["end"]) == ("nobody", 1, 1)


def test_bare_queue_has_a_summary_too(tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "q", page_size=4096) as queue:
        queue.writer().append_many([b"0123456789"] * 20)
    found = listing.summary("p/q", tmp_path / "q")
    assert (found.first, found.end, found.end_place, found.written_by) == (0, 20, 400, "an application")
