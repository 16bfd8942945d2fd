"""`serai verify` and `serai dump` over a data directory, one of its partitions, and a state log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.cli.kit import on_terminal, serai
from tests.helpers import files_of, patch
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A data directory with ten messages in `orders`, and a state log."""
    with LocalEngine(tmp_path / "data", page_bytes=4096) as engine:
        for at in range(10):
            raw = oracle.encode(Entry(HOUSE, b"message %d" % at, key=b"k%d" % at))
            engine.open("orders").append(raw, HOUSE, level=Level.RECEIVE, now_ms=1000 + at)
        engine.state("positions").put(b"group", b"7", level=Level.RECEIVE)
    return tmp_path


def damage(store: Path) -> byhand.Record:
    record = byhand.read(store / "data/p/orders")[4]
    patch(store / "data/p/orders/0.qd", record.begin + 80, b"\xff\xff")
    return record


def test_sound_data_directory_ends_with_zero(store: Path) -> None:
    before = files_of(store / "data")
    done = serai("verify", "data", cwd=store)
    assert (done.code, done.out) == (0, b"")
    assert done.err == "11 messages in 11 records of 2 logs, 314 bytes in data: no problem, every checksum compared\n"
    assert files_of(store / "data") == before


@pytest.mark.parametrize(("aim", "log"), [("data", "p/orders"), ("data/p/orders", "orders")])
def test_damage_is_named_with_partition_ordinal_and_byte(store: Path, aim: str, log: str) -> None:
    record = damage(store)
    done = serai("verify", aim, cwd=store)
    assert done.code == 1
    (line,) = done.lines
    assert line.startswith(f"record: log {log} ordinal 4: data/p/orders/0.qd byte {record.begin}: its checksum is ")
    assert "1 problem" in done.err


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_report_is_json(store: Path, output: str) -> None:
    record = damage(store)
    found = json.loads(serai("verify", "data", "--output", output, cwd=store).out)
    problem = found["problems"][0] if output == "json" else found
    assert (problem["kind"], problem["log"], problem["ordinal"], problem["position"]) == (
        "record", "p/orders", 4, record.begin,
    )  # fmt: skip


def test_verify_shows_how_far_it_is_on_a_terminal(tmp_path: Path) -> None:
    raw = oracle.encode(Entry(HOUSE, b""))
    with LocalEngine(tmp_path / "data") as engine:
        for _ in range(40_000):
            engine.open("orders").append(raw, HOUSE, level=Level.RECEIVE, now_ms=1)
    code, shown = on_terminal("verify", "data", cwd=tmp_path)
    assert code == 0
    assert "verifying data [" in shown
    assert "40,000 messages in 40,000 records of 1 log" in shown


def test_newer_format_is_refused_by_name(store: Path) -> None:
    (store / "data" / "format").write_text("serai-data 9\n")
    for verb in ("verify", "dump"):
        done = serai(verb, "data", cwd=store)
        assert done.code == 1
        assert "serai-data of version 9" in done.err


def test_dump_lists_the_logs_of_a_data_directory(store: Path) -> None:
    found = [json.loads(line) for line in serai("dump", "data", "--output", "jsonl", cwd=store).lines]
    assert [(one["log"], one["first"], one["end"], one["mark"]["clean"]) for one in found] == [
        ("p/orders", 0, 10, 1), ("s/positions", 0, 1, 1),
    ]  # fmt: skip
    table = serai("dump", "data", cwd=store).lines
    assert table[0].split()[:4] == ["log", "first", "end", "committed"]
    assert table[1].split()[:4] == ["p/orders", "0", "10", "10"]


def test_dump_shows_the_messages_of_a_partition(store: Path) -> None:
    done = serai("dump", "data/p/orders", "--offset", 3, "--count", 2, "--output", "json", cwd=store)
    assert [(row["ordinal"], row["key"], row["payload"], row["time_ms"]) for row in json.loads(done.out)] == [
        (3, "k3", "message 3", 1003), (4, "k4", "message 4", 1004),
    ]  # fmt: skip
    assert serai("dump", "data/p/orders", "--count", 1, cwd=store).lines[1].split()[-3:] == ["k0", "message", "0"]


def test_dump_shows_the_records_of_a_partition(store: Path) -> None:
    rows = [
        json.loads(line) for line in serai("dump", "data/p/orders", "--records", "--output", "jsonl", cwd=store).lines
    ]
    assert [(row["ordinal"], row["begin"]) for row in rows] == [
        (record.ordinal, record.begin) for record in byhand.read(store / "data/p/orders")
    ]


def test_dump_shows_the_changes_of_a_state_log(store: Path) -> None:
    (row,) = [json.loads(line) for line in serai("dump", "data/s/positions", "--output", "jsonl", cwd=store).lines]
    assert (row["key"], row["payload"], row["state"]) == ("group", "7", "set")


def test_dump_shows_damage_as_a_row_and_goes_on(store: Path) -> None:
    damage(store)
    done = serai("dump", "data/p/orders", "--output", "jsonl", cwd=store)
    rows = [json.loads(line) for line in done.lines]
    assert done.code == 1
    assert [row["ordinal"] for row in rows] == list(range(10))
    assert ["problem" in row for row in rows] == [at == 4 for at in range(10)]
    assert "serai verify data/p/orders" in done.err


def test_fields_do_not_go_with_a_log(store: Path) -> None:
    done = serai("dump", "data/p/orders", "--fields", "int", cwd=store)
    assert done.code == 2
    assert "its messages have a dress" in done.err


def test_repair_writes_slots_and_index_again(store: Path) -> None:
    patch(store / "data/p/orders/0.qx", 16 * 3, b"\xff" * 16)
    assert serai("verify", "data", cwd=store).code == 1
    dry = serai("verify", "data", "--repair", "--dry-run", cwd=store)
    assert "p/orders: slots and index of 10 records can be written again" in dry.err
    asked = serai("verify", "data", "--repair", cwd=store)
    assert asked.code == 1
    assert "try: serai verify data --repair --yes" in asked.err
    done = serai("verify", "data", "--repair", "--yes", cwd=store)
    assert (done.code, done.lines) == (0, [])
    assert serai("dump", "data/p/orders", "--offset", 3, "--count", 1, cwd=store).lines[1].endswith("k3 message 3")


def test_repair_says_what_stays_away(store: Path) -> None:
    damage(store)
    patch(store / "data/p/orders/marks", 0, bytes(4096))
    done = serai("verify", "data/p/orders", "--repair", "--yes", cwd=store)
    assert "both marks, which were lost" in done.err
    assert "1 message cannot be read any more" in done.err
    assert done.code == 1
    assert "record: log orders ordinal 4" in done.out.decode()


def test_nothing_is_repaired_that_is_sound(store: Path) -> None:
    before = files_of(store / "data")
    done = serai("verify", "data", "--repair", "--yes", cwd=store)
    assert "nothing to write again in data" in done.err
    assert files_of(store / "data") == before
