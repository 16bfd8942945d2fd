"""What `/metrics` says of a real server is what happened to it: times, bytes on the disk, bytes out, who was shown out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serai.doors.jmq.schema.frame import REAL
from tests.doors.jmq.caller import Caller
from tests.gate.kit import Running, until_closed

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = "/api/v1"
NO_FRAME = b"\0\0\0\1\0"  # a length of one byte


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("metrics") / "data") as running:
        yield running


def numbers(server: Running) -> Counter[tuple[str, ...]]:
    """Every sample: its name, the values of its labels."""
    found = Counter[tuple[str, ...]]()
    for family in text_string_to_metric_families(server.ask("GET", "/metrics")[1]):
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value  # type: ignore[assignment]  # counts and seconds
    return found


def produce(server: Running, topic: str, count: int, level: str) -> None:
    wish = {"records": [{"value": "x" * 100}] * count, "level": level}
    assert server.ask("POST", f"{V1}/topics/{topic}/records", wish)[0] == 201


def test_requests_that_wait_for_the_disk_are_timed_and_so_are_its_syncs(server: Running) -> None:
    before = numbers(server)
    for _ in range(5):
        produce(server, "timed", 1, "commit")
    grown = numbers(server)
    grown.subtract(before)
    waited = grown["serai_produce_seconds_count",]
    assert 0 < waited <= 5  # a disk may be quicker than the question whether it is done
    assert waited == grown["serai_produce_seconds_bucket", "+Inf"] == grown["serai_produce_seconds_bucket", "10.0"]
    assert grown["serai_flush_seconds_count",] >= 5
    assert 0 < grown["serai_produce_seconds_sum",] < 60
    assert 0 < grown["serai_flush_seconds_sum",] < 60


def test_requests_that_do_not_wait_are_not_timed(server: Running) -> None:
    before = numbers(server)
    produce(server, "quick", 1, "receive")
    assert numbers(server)["serai_produce_seconds_count",] == before["serai_produce_seconds_count",]


def test_bytes_of_a_log_are_those_of_its_files(server: Running) -> None:
    produce(server, "small", 1, "commit")
    for _ in range(30):
        produce(server, "large", 1000, "receive")
    found = numbers(server)
    logs = [sum(path.stat().st_blocks * 512 for path in folder.iterdir()) for folder in (server.data / "p").iterdir()]
    assert found["serai_log_bytes", "large"] in logs
    assert found["serai_log_bytes", "small"] in logs
    assert found["serai_log_bytes", "large"] > 30_000 * 100
    assert sum(value for name, value in found.items() if name[0] == "serai_log_bytes") == sum(logs)


def test_a_sound_disk_has_no_faults(server: Running) -> None:
    found = numbers(server)
    assert found["serai_corrupt_records_total",] == found["serai_fsync_errors_total",] == 0
    assert {("serai_corrupt_records_total",), ("serai_fsync_errors_total",)} <= found.keys()


def test_bytes_that_were_delivered_are_counted_for_the_group(server: Running) -> None:
    with Caller(server, REAL) as caller:
        caller.looks_up("fetched")
        assert caller.produce("fetched", *[bytes(1000)] * 7).code == 0
        caller.registers("fetched")
        assert len(caller.bodies(caller.fetch("fetched", count=7))) == 7
    found = numbers(server)
    (count,) = (value for name, value in found.items() if name[0] == "serai_messages_out_total" and "fetched" in name)
    (size,) = (value for name, value in found.items() if name[0] == "serai_bytes_out_total" and "fetched" in name)
    assert count == 7
    assert 7 * 1000 < size < 7 * 1200


def test_who_is_shown_out_is_counted_with_the_reason(server: Running) -> None:
    before = numbers(server)
    with Caller(server, REAL) as caller:
        caller.sock.sendall(NO_FRAME)
        assert until_closed(caller.sock)[0] == b""
    grown = numbers(server)
    grown.subtract(before)
    shown_out = {name: value for name, value in grown.items() if name[0] == "serai_frame_errors_total" and value}
    assert shown_out == {("serai_frame_errors_total", "jmq", "rules"): 1}
