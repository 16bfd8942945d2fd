"""serai topic, subscription, group against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.kit import Done, on_terminal, serai
from tests.gate.kit import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("admin") / "data") as running:
        running.ask("POST", "/api/v1/topics", {"name": "orders"})
        running.ask("POST", "/api/v1/topics/orders/records", {"records": [{"value": str(at)} for at in range(20)]})
        running.ask("PUT", "/api/v1/topics/orders/subscriptions/consumer/billing")
        yield running


@pytest.fixture
def run(server: Running, tmp_path: Path) -> Ask:
    return Ask(server, tmp_path)


class Ask:
    """A verb against the server."""

    def __init__(self, server: Running, place: Path) -> None:
        self.where = f"127.0.0.1:{server.port}"
        self.place = place

    def __call__(self, *words: str) -> Done:
        return serai(*words, cwd=self.place, SERAI_SERVER=self.where)

    def json(self, *words: str) -> object:
        done = self(*words, "--output", "json")
        assert done.code == 0, done.err
        return json.loads(done.out)


def test_topic_is_made_listed_changed_described_and_deleted(run: Ask) -> None:
    assert run("topic", "create", "a", "--partitions", "2", "--policy", "retention_ms=1000").code == 0
    row = next(line for line in run("topic", "list").lines if line.startswith("a "))
    assert row.split() == ["a", "2", "0", "0", "retention_ms=1000"]
    assert run("topic", "alter", "a", "--partitions", "3", "--policy", "retention_ms").code == 0
    said = run("topic", "describe", "a")
    assert len(said.lines) == 1 + 3 + 3
    assert "set: nothing" in said.lines
    assert run("topic", "delete", "a", "--yes").code == 0
    assert run("topic", "describe", "a").code == 1


def test_names_of_any_script_and_of_shell_characters_come_through(run: Ask) -> None:
    for name in ("заказы", "a b?c=d&e#f", "%2e%2e"):
        assert run("topic", "create", name).code == 0
        assert run("topic", "describe", name).code == 0
        assert run("topic", "delete", name, "--yes").code == 0


def test_delete_asks_and_says_what_is_lost(run: Ask) -> None:
    run("topic", "create", "kept")
    done = run("topic", "delete", "kept")
    assert (done.code, "0 messages in 1 partition and" in done.err, "--yes" in done.err) == (2, True, True)
    assert run("topic", "delete", "kept", "--dry-run").code == 0
    assert run("topic", "describe", "kept").code == 0
    code, _ = on_terminal("topic", "delete", "kept", cwd=run.place, typed=b"y\n", SERAI_SERVER=run.where)
    assert code == 0
    assert run("topic", "describe", "kept").code == 1


def test_reset_shows_before_and_after_and_dry_run_changes_nothing(run: Ask) -> None:
    dry = run("group", "reset", "orders", "billing", "--to", "5", "--dry-run")
    assert dry.lines[0].split() == ["partition", "before", "after", "lag", "before", "lag", "after"]
    assert dry.lines[1].split() == ["0", "0", "5", "20", "15"]
    assert "nothing was changed" in dry.err
    assert run("group", "reset", "orders", "billing", "--to", "5").code == 2
    assert run("group", "reset", "orders", "billing", "--to", "5", "--yes").code == 0
    assert run("group", "describe", "orders", "billing").lines[1].split()[:5] == ["0", "5", "0", "20", "15"]
    for to, position in (("end", 20), ("-3", 17), ("start", 0), ("-1h", 0), ("time:0", 0), ("group:billing", 0)):
        assert run("group", "reset", "orders", "billing", "--to", to, "--yes").code == 0, to
        assert run("group", "lag", "--topic", "orders").lines[1].split()[3] == str(position), to
    far = run("group", "reset", "orders", "billing", "--to", "999", "--yes")
    assert (far.code, "holds ordinals 0 to 19" in far.err) == (1, True)


def test_subscriptions_are_listed_changed_and_removed(run: Ask) -> None:
    assert run("subscription", "set", "orders", "audit", "--role", "consumer", "--policy", "batch_size=7").code == 0
    listed = run("subscription", "list", "--topic", "orders", "--output", "jsonl")
    assert {"topic": "orders", "app": "audit", "role": "consumer", "policy": {"batch_size": 7}} in map(
        json.loads, listed.lines
    )
    assert run("subscription", "remove", "orders", "audit", "--role", "consumer").code == 0
    gone = run("subscription", "remove", "orders", "audit", "--role", "consumer")
    assert (gone.code, "audit" in gone.err) == (1, True)


def test_json_is_what_the_api_says(run: Ask, server: Running) -> None:
    assert run.json("topic", "describe", "orders") == server.ask("GET", "/api/v1/topics/orders")[1]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("topic", "create", "orders"), 1, "exists"),
        (("topic", "create", "x/y"), 2, "x/y"),
        (("topic", "create", "t", "--policy", "retentoin_ms=1"), 2, "did you mean 'retention_ms'?"),
        (("topic", "alter", "orders"), 2, "nothing is to be changed"),
        (("topic", "describe", "nowhere"), 1, "there is no topic 'nowhere'"),
        (("group", "describe", "orders", "nobody"), 1, "nobody of that name"),
        (("group", "reset", "orders", "billing", "--to", "yesterday", "--yes"), 2, "yesterday"),
    ],
)
def test_refusals_are_what_why_and_a_hint(run: Ask, words: tuple[str, ...], code: int, why: str) -> None:
    done = run(*words)
    lines = done.err.splitlines()
    assert (done.code, done.out) == (code, b"")
    assert lines[0].startswith("error: cannot ")
    assert why in lines[1]
    assert lines[2].startswith("  try: serai ")  # what can be typed here, not what the HTTP API would say


def test_no_server_there_is_code_3(tmp_path: Path) -> None:
    done = serai("topic", "list", "--server", "127.0.0.1:1", cwd=tmp_path)
    assert (done.code, "no server answers at 127.0.0.1:1" in done.err) == (3, True)
    assert "serai server" in done.err
    assert serai("topic", "list", "--server", "here:there", cwd=tmp_path).code == 2
