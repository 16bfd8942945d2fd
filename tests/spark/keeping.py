"""A log and its archive to search and to replay: what was written, archived, and taken away again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark.pipes.archive import Archive
from serai.spark.pipes.frame import Asked, Outcome
from serai.spark.pipes.running import run
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry

if TYPE_CHECKING:
    from pathlib import Path

    from serai.spark.pipes.frame import Pipe

HOUR_MS = 3_600_000
KEYS = (b"anna", b"bert", b"\xff\x01")


class Kept(NamedTuple):
    """A message as the tests know it."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes
    value: bytes


def done(pipe: Pipe, checkpoint: Path | None = None) -> Outcome:
    """A run of a pipeline in the session that is there."""
    return run(pipe, Asked(checkpoint=checkpoint), lambda _progress: None, lambda _words: None)


def message(topic: str, partition: int, offset: int) -> Kept:
    """The message that stands at a position: an hour after the one before."""
    value = f"{topic} {partition} größe {offset:04}".encode() if offset % 10 else b"\xfe\x00%d" % offset
    return Kept(topic, partition, offset, offset * HOUR_MS + partition, KEYS[offset % 3], value)


def topics(data: Path, **partitions: int) -> None:
    """Topics as a server would have made them."""
    with LocalEngine(data) as engine:
        pairs = [
            (f"topic/{number}".encode(), json.dumps({"name": name, "partitions": count, "table": {}}).encode())
            for number, (name, count) in enumerate(partitions.items(), 1)
        ]
        ids = json.dumps({"next": len(pairs) + 1}).encode()
        engine.catalogue().put_many([*pairs, (b"ids", ids)], level=Level.COMMIT)


def write(data: Path, homes: dict[str, tuple[str, int]], first: int, last: int) -> list[Kept]:
    """The messages first..last of each partition; `homes` names their folders."""
    found = []
    with LocalEngine(data, page_bytes=1 << 12) as engine:
        for home, (topic, partition) in homes.items():
            log = engine.open(home)
            for one in (message(topic, partition, offset) for offset in range(first, last)):
                entry = Entry(
                    HOUSE, one.value, one.key, headers=((b"at", b"%d" % one.offset),), send_time=one.time_ms - 5
                )
                log.append(encoded([entry]), HOUSE, level=Level.RECEIVE, now_ms=one.time_ms)
                found.append(one)
            log.commit()
    return found


def archive(data: Path, lake: Path) -> None:
    done(Archive(data=str(data), to=str(lake)))
