"""The HTTP API of a real server: every route, and every refusal in JSON."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from serai.cli import build
from serai.console.app import ROUTES
from serai.console.problem import HINTS, STATUS
from serai.errors import REFUSALS
from tests.gate.kit import Running

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = "/api/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("api") / "data") as running:
        running.ask("POST", f"{V1}/topics", {"name": "orders", "partitions": 2})
        running.ask("PUT", f"{V1}/topics/orders/subscriptions/consumer/billing", {})
        yield running


def test_every_house_code_has_a_status() -> None:
    assert REFUSALS.keys() <= STATUS.keys()
    assert {status for status in STATUS.values() if not 400 <= status <= 599} == set()


def test_every_hint_that_is_a_command_is_one() -> None:
    commands = [hint.partition(" ")[2].split() for hint in HINTS.values() if hint.startswith("serai ")]
    assert commands
    for words in commands:
        assert "run" in build().parse(words), words


def test_topics_are_made_seen_changed_and_deleted(server: Running) -> None:
    status, made = server.ask("POST", f"{V1}/topics", {"name": "a", "partitions": 2, "policy": {"retention_ms": 5}})
    assert (status, [row["partition"] for row in made["partitions"]], made["policy"]) == (
        201,
        [0, 1],
        {"retention_ms": 5},
    )
    assert server.ask("GET", f"{V1}/topics/a") == (200, made)
    assert "a" in [row["name"] for row in server.ask("GET", f"{V1}/topics")[1]["topics"]]
    status, changed = server.ask("PATCH", f"{V1}/topics/a", {"partitions": 3, "policy": {"retention_ms": None}})
    assert (status, len(changed["partitions"]), changed["policy"]) == (200, 3, {})
    status, said = server.ask("DELETE", f"{V1}/topics/a?dry_run=true")
    assert (status, said["deleted"], said["lost"]["partitions"]) == (200, False, 3)
    assert server.ask("DELETE", f"{V1}/topics/a")[1]["deleted"] is True
    assert server.ask("GET", f"{V1}/topics/a")[0] == 404


def test_records_come_back_as_they_were_produced(server: Running) -> None:
    records: list[dict[str, Any]] = [
        {"value": "plain"},
        {"value": "grüße", "key": "k", "headers": {"kind": "greeting", "n": "1"}},
        {"value_base64": base64.b64encode(b"\xff\0").decode()},
        {"value": ""},
    ]
    status, said = server.ask("POST", f"{V1}/topics/seen/records", {"records": records})
    assert (status, said["offset"], said["count"], said["level"]) == (201, 0, 4, "commit")
    shown = server.ask("GET", f"{V1}/topics/seen/records")[1]
    rows = shown["records"]
    assert [row.get("value") for row in rows] == ["plain", "grüße", None, ""]
    assert rows[2]["value_base64"] == records[2]["value_base64"]
    assert (rows[1]["key"], rows[1]["headers"]) == (
        "k", [{"name": "kind", "value": "greeting"}, {"name": "n", "value": "1"}]
    )  # fmt: skip
    assert ([row["offset"] for row in rows], shown["next"], shown["end"]) == ([0, 1, 2, 3], 4, 4)


def test_records_are_looked_at_from_anywhere(server: Running) -> None:
    server.ask(
        "POST", f"{V1}/topics/far/records", {"records": [{"value": str(at)} for at in range(50)], "level": "receive"}
    )
    for query, first, count in (
        ("", 0, 50), ("?count=3", 0, 3), ("?offset=7&count=2", 7, 2), ("?offset=-5", 45, 5), ("?offset=start&count=1", 0, 1),
    ):  # fmt: skip
        rows = server.ask("GET", f"{V1}/topics/far/records{query}")[1]["records"]
        assert ([int(row["value"]) for row in rows], rows[0]["offset"]) == (list(range(first, first + count)), first)
    assert server.ask("GET", f"{V1}/topics/far/records?offset=end")[1]["records"] == []


def test_looking_at_the_end_waits_for_what_comes(server: Running) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server.ask("POST", f"{V1}/topics", {"name": "waited"})
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(server.ask, "GET", f"{V1}/topics/waited/records?offset=end&wait_ms=15000")
        while not any(line.startswith("serai_waits 1") for line in server.ask("GET", "/metrics")[1].splitlines()):
            assert not looking.done()
        server.ask("POST", f"{V1}/topics/waited/records", {"records": [{"value": "came"}]})
        assert [row["value"] for row in looking.result(10)[1]["records"]] == ["came"]
    status, said = server.ask("GET", f"{V1}/topics/waited/records?offset=end&wait_ms=50")
    assert (status, said["records"]) == (200, [])


def test_positions_are_seen_and_reset(server: Running) -> None:
    server.ask("POST", f"{V1}/topics/orders/records", {"records": [{"value": "x"}] * 10, "partition": 1})
    reset = f"{V1}/topics/orders/groups/billing/reset"
    dry = server.ask("POST", reset, {"to": "end", "dry_run": True})[1]
    assert [(row["before"], row["after"]) for row in dry["partitions"]] == [(0, 0), (0, 10)]
    server.ask("POST", reset, {"to": "4", "partition": 1})
    group = server.ask("GET", f"{V1}/topics/orders/groups/billing")[1]
    assert [(row["position"], row["lag"]) for row in group["partitions"]] == [(0, 0), (4, 6)]
    assert group["lag"] == 6
    assert [view["group"] for view in server.ask("GET", f"{V1}/groups?topic=orders")[1]["groups"]] == ["billing"]
    assert server.ask("DELETE", f"{V1}/topics/orders/groups/billing?dry_run=1")[1]["removed"] is False
    assert server.ask("DELETE", f"{V1}/topics/orders/groups/billing")[1]["removed"] is True


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/topics/absent", None, 404, "topic-unknown"),
        ("POST", "/topics", {"name": "orders"}, 409, "topic-exists"),
        ("POST", "/topics", {"name": "../x"}, 400, "bad-name"),
        ("POST", "/topics", {"name": "t", "policy": {"retetion_ms": 1}}, 400, "bad-policy"),
        ("POST", "/topics", {"name": "t", "partitions": 0}, 409, "limit-reached"),
        ("POST", "/topics", {"name": 7}, 400, "bad-request"),
        ("POST", "/topics", {"nmae": "t"}, 400, "bad-request"),
        ("POST", "/topics", [1], 400, "bad-request"),
        ("GET", "/topics?colour=red", None, 400, "bad-request"),
        ("GET", "/topics/orders/records?offset=7777", None, 416, "out-of-range"),
        ("GET", "/topics/orders/records?offset=x", None, 400, "bad-request"),
        ("GET", "/topics/orders/records?partition=9", None, 404, "partition-unknown"),
        ("GET", "/topics/orders/records?partition=-1", None, 404, "partition-unknown"),
        ("POST", "/topics/orders/records", {"records": []}, 400, "bad-request"),
        ("POST", "/topics/orders/records", {"records": [{"valeu": "x"}]}, 400, "bad-request"),
        ("POST", "/topics/orders/records", {"records": ["x"]}, 400, "bad-request"),
        ("POST", "/topics/orders/records", {"records": [{"value": "x"}], "level": "sure"}, 400, "bad-request"),
        ("POST", "/topics/orders/records", {"records": [{"value_base64": "%"}]}, 400, "bad-request"),
        ("POST", "/topics/orders/records", {"records": [{"value": "x", "headers": {"a": 1}}]}, 400, "bad-request"),
        ("PUT", "/topics/orders/subscriptions/owner/app", {}, 400, "bad-policy"),
        ("DELETE", "/topics/orders/subscriptions/consumer/nobody", None, 404, "subscription-unknown"),
        ("GET", "/topics/orders/groups/nobody", None, 404, "subscription-unknown"),
        ("POST", "/topics/orders/groups/nobody/reset", {"to": "end"}, 404, "subscription-unknown"),
        ("PUT", "/topics", {}, 405, "no-route"),
        ("GET", "/nothing", None, 404, "no-route"),
    ],
)
def test_refusals_have_their_status_and_say_what_why_and_a_hint(
    server: Running, method: str, path: str, body: object, status: int, code: str
) -> None:
    found, said = server.ask(method, V1 + path, body)
    assert (found, said["error"]["code"]) == (status, code), said
    assert all(said["error"][word] for word in ("what", "why", "hint"))


def test_nearest_field_is_named(server: Running) -> None:
    assert (
        "did you mean 'partitions'?"
        in server.ask("POST", f"{V1}/topics", {"name": "t", "partition": 3})[1]["error"]["why"]
    )


def test_metrics_are_what_prometheus_reads(server: Running) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    server.ask("POST", f"{V1}/topics/counted/records", {"records": [{"value": "x"}] * 3})
    families = {family.name: family for family in text_string_to_metric_families(server.ask("GET", "/metrics")[1])}
    stored = {sample.labels["topic"]: sample.value for sample in families["serai_messages_in"].samples}
    assert stored["counted"] == 3
    assert {"serai_connections", "serai_group_lag", "serai_disk_free_bytes", "serai_redeliveries"} <= families.keys()


def test_health_and_readiness(server: Running) -> None:
    assert server.ask("GET", "/healthz")[1]["status"] == "ok"
    assert server.ask("GET", "/readyz") == (200, {"status": "ready", "reasons": []})


def test_openapi_has_every_route_with_words(server: Running) -> None:
    paths = server.ask("GET", "/openapi.json")[1]["paths"]
    assert {(method, path) for method, path, _ in ROUTES} == {
        (method.upper(), path) for path, methods in paths.items() for method in methods
    }
    assert all(entry["summary"] for methods in paths.values() for entry in methods.values())
