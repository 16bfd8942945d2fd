"""`serai dump` shows entries as they lie, the unpublished and the damaged too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import serai as package
from tests.cli.kit import serai
from tests.helpers import load, patch

if TYPE_CHECKING:
    from pathlib import Path


def test_dump_shows_every_entry_of_a_golden_directory(tmp_path: Path) -> None:
    vector = load("single_seed_readme10")
    vector.expand(tmp_path / "q")
    found = [json.loads(line) for line in serai("dump", "q", "--output", "jsonl", cwd=tmp_path).lines]
    assert [(e["offset"], e["begin"], e["size"]) for e in found] == [
        (m.offset, m.begin, m.size) for m in vector.messages
    ]
    assert all(entry["published"] for entry in found)


def test_dump_decodes_fields(tmp_path: Path) -> None:
    vector = load("single_seed_readme10")
    vector.expand(tmp_path / "q")
    kinds = [kind for kind, _ in vector.messages[3].fields]
    done = serai(
        "dump", "q", "--offset", 48, "--count", 1, "--fields", ",".join(kinds), "--output", "json", cwd=tmp_path
    )
    (entry,) = json.loads(done.out)
    assert entry["offset"] == 48
    assert len(entry["values"]) == len(kinds)
    table = serai("dump", "q", "--offset", 48, "--count", 1, "--fields", ",".join(kinds), cwd=tmp_path).lines
    assert table[0].split() == ["offset", "begin", "size", "by", "sum", "state", "payload"]
    assert table[1].split()[3] == "published"


def test_dump_shows_an_unfinished_entry_without_bytes(tmp_path: Path) -> None:
    load("multi_seed_dead_producer").expand(tmp_path / "m")
    done = serai("dump", "m", "--output", "jsonl", cwd=tmp_path)
    entry = json.loads(done.lines[4])
    assert entry == {"offset": 64, "begin": 0, "size": 7, "published": False, "producer": "MP2"}
    assert done.code == 0
    assert "unfinished" in serai("dump", "m", cwd=tmp_path).lines[5]


def test_dump_shows_checksums_and_what_does_not_fit_them(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q", page_size=256, checksum="index24") as queue:
        queue.writer().append_many([b"0123456789"] * 5)
    patch(tmp_path / "q" / "0.qd", 25, b"X")
    done = serai("dump", "q", "--checksum", "index24", "--output", "jsonl", cwd=tmp_path)
    found = [json.loads(line) for line in done.lines]
    assert done.code == 1
    assert all(len(entry["checksum"]) == 6 for entry in found)
    assert [("problem" in entry, "payload" in entry) for entry in found] == [
        (False, True), (False, True), (True, False), (False, True), (False, True),
    ]  # fmt: skip
    assert "serai verify q" in done.err
    assert "damaged" in serai("dump", "q", "--checksum", "index24", cwd=tmp_path).lines[3]


def test_field_that_does_not_fit_is_shown_beside_its_entry(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q") as queue:
        queue.writer().append_many([b"12345678", b"1", b"12345678"])
    done = serai("dump", "q", "--fields", "long", "--output", "jsonl", cwd=tmp_path)
    assert done.code == 1
    assert ["unfit" in json.loads(line) for line in done.lines] == [False, True, False]
    assert "1 message cannot be read as long" in done.err
    row = serai("dump", "q", "--fields", "long", cwd=tmp_path).lines[2]
    assert "published   unpack_long needs 8 bytes" in row  # not damaged: it is made of something else


def test_long_payload_is_shortened_in_the_table_only(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q") as queue:
        queue.writer().append(b"x" * 500 + b"\x1b[2J")
    table = serai("dump", "q", cwd=tmp_path).lines
    assert len(table[1]) <= 100
    assert table[1].endswith("xxx...")
    assert len(json.loads(serai("dump", "q", "--output", "jsonl", cwd=tmp_path).out)["payload"]) == 504


def test_dump_of_nothing_is_an_empty_array(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    assert json.loads(serai("dump", "q", "--output", "json", cwd=tmp_path).out) == []
