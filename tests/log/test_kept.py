"""What earlier versions left on a disk is opened, read in every dress, verified and written on; `tests.data.keep` made it.

The kept directories are never touched: every test works on a copy.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serai._core.dress import redress
from serai.log.audit import audit
from serai.log.bare import BareLog
from serai.log.engine import Level
from serai.log.format import LOG_VERSION, STORE_VERSION
from serai.log.local import LocalEngine
from serai.log.state import contents
from serai.log.view import View
from tests.core.dressing import DRESSES, LIMITS, NAMES
from tests.data import keep
from tests.helpers import every_file
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from serai.log.engine import Log
    from serai.log.view import Reading

KEPT = sorted(path for path in keep.FOLDER.glob("format-v*") if path.is_dir())


def content(kept: Path) -> keep.Content:
    found: keep.Content = json.loads(kept.with_suffix(".json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def copy(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "data"))


def seen(log: Reading) -> keep.Content:
    """As `keep.partition_of`, through the log's own reading and dressing."""
    counts, times, flat = [], [], []
    shown = dict.fromkeys(DRESSES, b"")
    ordinal = log.first
    while ordinal < log.end:
        head = log.head(ordinal)
        (span,) = log.spans(ordinal, bytes_max=1 << 20, messages_max=head.messages)
        assert (span.ordinal, span.count, span.time) == (head.ordinal, head.messages, head.time)
        for target in DRESSES:
            shown[target] += redress(
                span.data, span.dress, target, jafka_magic=log.folder.format.jafka_magic, partition=3, index=ordinal,
                term=1, store_time=head.time, app=b"shop", bytes_max=1 << 20, **LIMITS,
            )  # fmt: skip
        flat += [one for entry in oracle.decode(bytes(span.data), span.dress) for one in oracle.flat(entry)]
        counts.append(head.messages)
        times.append(head.time)
        ordinal += head.messages
    return {
        "first": log.first, "end": log.end, "first_place": log.places()[0], "end_place": log.places()[1],
        "records": counts, "times": times,
        "bodies": [keep.digest_of(message.body) for message in flat], "keys": [message.key.decode() for message in flat],
        "dressed": {NAMES[target]: hashlib.sha256(data).hexdigest() for target, data in shown.items()},
    }  # fmt: skip


def test_there_is_a_directory_of_every_version() -> None:
    names = [f"format-v{version}" for version in range(1, max(LOG_VERSION, STORE_VERSION) + 1)]
    assert [path.name for path in KEPT] == names
    newest = KEPT[-1]
    assert (newest / "format").read_text() == f"serai-data {STORE_VERSION}\n"
    for name in content(newest)["partitions"]:
        assert (newest / "p" / name / "format").read_text().startswith(f"serai-log {LOG_VERSION}\n")


def test_every_message_is_read_in_every_dress(kept: Path, copy: Path) -> None:
    before = every_file(copy)
    for name, expected in content(kept)["partitions"].items():
        with View(copy / "p" / name) as view:
            assert seen(view) == expected
    with BareLog(copy / "p" / "queue", mode="r") as queue:
        assert bodies_of(queue) == content(kept)["queue"]
    for name, expected in content(kept)["states"].items():
        with View(copy / "s" / name) as view:
            assert {key.decode(): value.decode() for key, value in contents(view).items()} == expected
    assert every_file(copy) == before


def bodies_of(log: Log, ordinal: int = 0) -> list[str]:
    spans = log.spans(ordinal, bytes_max=1 << 20)
    return [one.body.decode() for span in spans for one in oracle.decode(bytes(span.data), span.dress)]


def test_nothing_in_it_is_a_problem(copy: Path) -> None:
    before = every_file(copy)
    report = audit(copy)
    assert report.problems == []
    assert every_file(copy) == before


def test_it_is_written_on(kept: Path, copy: Path) -> None:
    expected = content(kept)
    epoch = int((copy / "epoch").read_text())
    with LocalEngine(copy) as engine:
        assert engine.epoch == epoch + 1
        assert engine.partitions() == sorted([*expected["partitions"], "queue"])
        for name, before in expected["partitions"].items():
            log = engine.open(name)
            if name != "killed":
                assert seen(log) == before
            end = log.end
            log.append(oracle.encode(Entry(HOUSE, b"today")), HOUSE, level=Level.COMMIT, now_ms=1 << 40)
            assert bodies_of(log, end) == ["today"]
        assert bodies_of(engine.open("killed")) == [
            *expected["partitions"]["killed"]["bodies"],
            *expected["killed"],
            "today",
        ]
        for name, values in expected["states"].items():
            state = engine.state(name)
            assert {key.decode(): value.decode() for key, value in state.items()} == values
            state.put(b"today", b"1", level=Level.COMMIT)
        engine.open("queue").append(oracle.encode(Entry(HOUSE, b"today")), HOUSE, level=Level.COMMIT, now_ms=1)
        assert bodies_of(engine.open("queue")) == [*expected["queue"], "today"]
    assert audit(copy).problems == []


def test_keeping_makes_what_was_kept(tmp_path: Path) -> None:
    """So that the next version's directory holds as much as this one."""
    keep.make(tmp_path / "data")
    assert keep.content_of(tmp_path / "data") == content(KEPT[-1])
