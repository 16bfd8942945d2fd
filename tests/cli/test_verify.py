"""`serai verify` names problems on stdout, says the verdict on stderr, and cuts only what it was told to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import serai as package
from tests.cli.kit import on_terminal, serai
from tests.helpers import files_of, patch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A queue of 20 messages with a hole at offset 64."""
    with package.Queue(tmp_path / "q", page_size=4096) as queue:
        queue.writer().append_many([b"0123456789"] * 20)
    patch(tmp_path / "q" / "0.qx", 64, bytes(16))
    return tmp_path


def test_sound_queue_ends_with_zero(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q", checksum="index24") as queue:
        queue.writer().append_many([b"0123456789"] * 20)
    done = serai("verify", "q", cwd=tmp_path)
    assert (done.code, done.out) == (0, b"")
    assert done.err == "20 messages, 200 bytes in q: no problem, 20 checksums compared\n"


def test_problem_is_named_with_file_byte_and_offset(broken: Path) -> None:
    done = serai("verify", "q", cwd=broken)
    assert done.code == 1
    assert done.lines == [
        "hole: q/0.qx byte 64 (offset 64): 1 entries are not published although later ones are: readers stop here"
    ]
    assert "1 problem" in done.err


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_report_is_json(output: str, broken: Path) -> None:
    found = json.loads(serai("verify", "q", "--output", output, cwd=broken).out)
    problem = found["problems"][0] if output == "json" else found
    assert (problem["kind"], problem["position"], problem["offset"]) == ("hole", 64, 64)


def test_repair_needs_a_yes(broken: Path) -> None:
    before = files_of(broken / "q")
    done = serai("verify", "q", "--repair", cwd=broken)
    assert done.code == 1
    assert "from offset 64 on: 15 messages published there will be lost" in done.err
    assert "try: serai verify q --repair --yes" in done.err
    assert files_of(broken / "q") == before


def test_dry_run_says_what_would_be_lost_and_changes_nothing(broken: Path) -> None:
    before = files_of(broken / "q")
    done = serai("verify", "q", "--repair", "--dry-run", cwd=broken)
    assert done.code == 0
    assert "would cut everything from offset 64 on: 15 messages" in done.err
    assert files_of(broken / "q") == before


def test_repair_with_yes_cuts_and_verifies(broken: Path) -> None:
    done = serai("verify", "q", "--repair", "--yes", cwd=broken)
    assert done.code == 0
    assert "15 messages cut off" in done.err
    assert "4 messages, 40 bytes in q: no problem" in done.err
    assert "nothing to cut in q" in serai("verify", "q", "--repair", cwd=broken).err


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_repair_asks_on_a_terminal(answer: bytes, code: int, broken: Path) -> None:
    before = files_of(broken / "q")
    ended, shown = on_terminal("verify", "q", "--repair", cwd=broken, typed=answer)
    assert ended == code
    assert "go on? [y/N]" in shown
    assert (files_of(broken / "q") == before) == (code == 1)


def test_repair_beside_a_writer_is_refused(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q", page_size=4096) as queue:
        queue.writer().append_many([b"0123456789"] * 20)
        patch(tmp_path / "q" / "0.qx", 64, bytes(16))
        done = serai("verify", "q", "--repair", "--yes", cwd=tmp_path)
    assert done.code == 1
    assert "has a writer" in done.err


def test_repair_of_several_producers_is_wrong_use(tmp_path: Path) -> None:
    with package.MultiQueue(tmp_path / "m", "rw", "AA0") as queue:
        queue.writer().append(b"x")
    done = serai("verify", "m", "--repair", "--yes", cwd=tmp_path)
    assert done.code == 2
    assert "several producers" in done.err


def test_notes_are_talk(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    done = serai("verify", "q", cwd=tmp_path)
    assert (done.code, done.out) == (0, b"")
    assert "note: there are no pages" in done.err
    assert serai("verify", "q", "--quiet", cwd=tmp_path).err == ""
