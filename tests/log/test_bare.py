"""A bare queue directory is a log: ordinals, places and spans are those of a list, and the queue stays a queue."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import serai
from serai.errors import BadMessages, Corrupt, Misuse, OutOfRange, Refused
from serai.log.bare import BareLog, is_bare
from serai.log.engine import Level, Log
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.retention import Retention
from tests.core.dressing import DRESSES, encoded
from tests.helpers import load, patch
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, Entry

if TYPE_CHECKING:
    from pathlib import Path

BODIES = [b"%d" % at * (at % 37) for at in range(300)]


def queue_of(path: Path, bodies: list[bytes], *, page_size: int = 512, checksum: str | None = None) -> Path:
    with serai.Queue(path, page_size=page_size, checksum=checksum) as queue:
        queue.writer().append_many(bodies)
    return path


def bodies_of(log: Log, ordinal: int, **limits: int) -> list[bytes]:
    out: list[bytes] = []
    for span in log.spans(
        ordinal, bytes_max=limits.get("bytes_max", 1 << 20), messages_max=limits.get("messages_max", 1 << 20)
    ):
        entries = oracle.decode(bytes(span.data), HOUSE)
        assert (span.ordinal, span.count, span.dress) == (ordinal + len(out), len(entries), HOUSE)
        out += [entry.body for entry in entries]
    return out


def shown(bodies: list[bytes]) -> list[bytes]:
    return [oracle.encode(Entry(JAFKA, body, magic=1)) for body in bodies]


def test_queue_reads_as_a_log_of_its_messages(tmp_path: Path) -> None:
    with BareLog(queue_of(tmp_path / "q", BODIES)) as log:
        assert (log.first, log.end, log.committed) == (0, 300, 300)
        assert bodies_of(log, 0) == BODIES
        assert bodies_of(log, 123, messages_max=7) == BODIES[123:130]
        assert bodies_of(log, 300) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.integers(0, 2000), st.integers(1, 40))
def test_spans_are_the_longest_run_within_both_limits(ordinal: int, bytes_max: int, messages_max: int) -> None:
    run: list[bytes] = []
    for body in BODIES[ordinal : ordinal + messages_max]:
        if run and sum(16 + len(one) for one in [*run, body]) > bytes_max:
            break
        run.append(body)
    assert bodies_of(LOG, ordinal, bytes_max=bytes_max, messages_max=messages_max) == run


@pytest.fixture(scope="module", autouse=True)
def one_log(tmp_path_factory: pytest.TempPathFactory) -> None:
    global LOG
    LOG = BareLog(queue_of(tmp_path_factory.mktemp("bare") / "q", BODIES), mode="r")


LOG: BareLog


def test_nothing_larger_than_asked_comes_without_oversize() -> None:
    assert LOG.spans(36, bytes_max=20, oversize=False) == []
    assert len(LOG.spans(36, bytes_max=20)) == 1


def test_places_are_the_sums_of_jafka_entries() -> None:
    places = [0, *itertools.accumulate(map(len, shown(BODIES)))]
    assert (LOG.first_place, LOG.end_place) == (0, places[-1])
    for ordinal in range(0, 301, 7):
        assert LOG.place_of(ordinal) == places[ordinal]
    for place in range(0, places[-1] + 1, 41):
        held = max(at for at, start in enumerate(places) if start <= place)
        assert LOG.ordinal_at_place(place) == held


@pytest.mark.parametrize(("place", "size"), [(0, 1 << 20), (0, 17), (5, 100), (1001, 3000)])
def test_jafka_log_is_one_run_of_bytes(place: int, size: int) -> None:
    assert b"".join(map(bytes, LOG.spans_at_place(place, bytes_max=size))) == b"".join(shown(BODIES))[place:][:size]


@pytest.mark.parametrize("dress", DRESSES)
def test_bodies_of_every_dress_are_appended(tmp_path: Path, dress: int) -> None:
    entries = [Entry(dress, b"one"), Entry(dress, b""), Entry(dress, b"three" * 50)]
    with BareLog(queue_of(tmp_path / "q", BODIES[:5])) as log:
        ticket = log.append(encoded(entries), dress, level=Level.RECEIVE, now_ms=1)
        assert (ticket.ordinal, ticket.count, log.end, log.committed) == (5, 3, 8, 5)
        assert bodies_of(log, 4) == [BODIES[4], b"one", b"", b"three" * 50]
        assert log.append(encoded(entries), dress, level=Level.COMMIT, now_ms=1).done
        assert log.committed == 11
    with serai.Queue(tmp_path / "q", "r") as queue:
        assert [bytes(message.payload) for message in queue.reader()][5:] == [b"one", b"", b"three" * 50] * 2


def test_wrong_messages_are_refused_whole(tmp_path: Path) -> None:
    with BareLog(queue_of(tmp_path / "q", BODIES[:5])) as log:
        with pytest.raises(BadMessages, match="nothing of these messages was stored"):
            log.append(encoded([Entry(HOUSE, b"good")]) + b"\xff\xff", HOUSE, level=Level.RECEIVE, now_ms=1)
        assert log.end == 5


def test_what_the_application_appends_is_seen(tmp_path: Path) -> None:
    queue_of(tmp_path / "q", BODIES[:3])
    with serai.Queue(tmp_path / "q") as queue, BareLog(tmp_path / "q", mode="r") as log:
        for at, body in enumerate(BODIES[3:100]):
            queue.writer().append(body)
            assert log.end == 4 + at
        assert bodies_of(log, 50) == BODIES[50:100]


def test_checksums_go_on_where_a_queue_has_them(tmp_path: Path) -> None:
    queue_of(tmp_path / "q", BODIES[:3], checksum="index24")
    with BareLog(tmp_path / "q") as log:
        log.append(encoded([Entry(HOUSE, b"more")]), HOUSE, level=Level.RECEIVE, now_ms=1)
    from serai.log.verify import verify

    assert verify(tmp_path / "q", checksum="index24").checksums == 4


def test_damage_is_said_and_passed(tmp_path: Path) -> None:
    queue_of(tmp_path / "q", [b"0123456789"] * 20)
    patch(tmp_path / "q" / "0.qx", 16 * 7 + 8, (1 << 30).to_bytes(4, "little"))
    with BareLog(tmp_path / "q", mode="r") as log:
        assert len(bodies_of(log, 0)) == 7
        with pytest.raises(Corrupt) as caught:
            log.spans(7, bytes_max=100)
        assert (caught.value.ordinal, caught.value.next_ordinal) == (7, 8)
        assert len(bodies_of(log, 8)) == 12


def test_golden_directory_of_the_java_library_is_a_log(tmp_path: Path) -> None:
    vector = load("single_seed_readme10")
    vector.expand(tmp_path / "q")
    with BareLog(tmp_path / "q", mode="r") as log:
        assert log.end == len(vector.messages)
        assert [len(body) for body in bodies_of(log, 0)] == [message.size for message in vector.messages]


def test_engine_serves_a_queue_that_is_linked_into_it(tmp_path: Path) -> None:
    queue_of(tmp_path / "orders", BODIES)
    with LocalEngine(tmp_path / "data") as engine:
        os.symlink(tmp_path / "orders", tmp_path / "data" / "p" / "orders")
        log: Log = engine.open("orders")
        assert bodies_of(log, 290) == BODIES[290:]
        assert engine.open("orders") is log
        ticket = log.append(encoded([Entry(JAFKA, b"by a door")]), JAFKA, level=Level.COMMIT, now_ms=1)
        assert ticket.done
    with serai.Queue(tmp_path / "orders", "r") as queue:
        last = queue.last()
        assert last is not None
        assert last.payload == b"by a door"


def test_partition_that_lost_its_format_is_not_taken_for_a_queue(tmp_path: Path) -> None:
    open_partition(tmp_path / "one", page_bytes=4096).close()
    (tmp_path / "one" / "format").unlink()
    assert not is_bare(tmp_path / "one")
    assert not is_bare(tmp_path / "nothing")
    load("multi_seed_dead_producer").expand(tmp_path / "several")
    assert not is_bare(tmp_path / "several")
    with pytest.raises(Misuse, match="several producers"):
        BareLog(tmp_path / "several", mode="r")


def test_what_a_queue_does_not_keep_is_refused() -> None:
    for work in (lambda: LOG.truncate(3), lambda: LOG.ordinal_at_time(5)):
        with pytest.raises(Refused, match="bare queue") as caught:
            work()
        assert caught.value.code == "unsupported"
    assert LOG.retain(Retention(bytes_max=0), now_ms=0) == 0
    for ordinal in (-1, 301):
        with pytest.raises(OutOfRange, match="holds the ordinals 0 to 300"):
            LOG.spans(ordinal, bytes_max=1)
    head = LOG.head(36)
    assert (head.messages, head.dress, head.place_length) == (1, HOUSE, 10 + len(BODIES[36]))
