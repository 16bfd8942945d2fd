"""The data directory that every later version must open: made once for each version of the format, then kept.

    python -m tests.data.keep        makes tests/data/format-v<version> and format-v<version>.json, if they are not there

A kept directory is never made again: it is what a program of its day left on a disk.  Beside it stands what is in it,
worked out by hand (`tests.oracle`) when it was made.  It holds

    p/mixed      every dress: plain, with keys and headers, batches, compressed, nested, in parts, longer than a page
    p/ancient    messages of Jafka's magic 0
    p/cut        truncated and written on: what was given up lies between its records
    p/headless   the oldest pages given up, one of them waiting to be used again
    p/killed     no orderly end: three records, the last two above the newest mark
    p/queue      a queue directory as an application made it
    s/positions  values, some of them gone, over several snapshots

What it leaves out: a machine's own words, that is, the boot number of the live area; it is zero, as after a new start.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import serai
from serai import limits
from serai.log.engine import Level
from serai.log.format import LIVE_BOOT, LOG_VERSION, MARKS_FILE
from serai.log.local import LocalEngine
from serai.log.partition import Partition, open_partition
from serai.log.retention import Retention
from tests.core.dressing import DRESSES, NAMES, as_members
from tests.helpers import patch
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import GZIP, HOUSE, JAFKA, REAL, SEED, ZIP, ZLIB, Entry, Server

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(__file__).parent
PAGE_BYTES = 4096
PART_BYTES = 1024
QUEUE_BODIES = [b"", b"one", b"two " * 300]
HEADERS = ((b"trace", b"abc123"), (b"k e:y", b"v = 2"))
Content = dict[str, Any]


def main() -> int:
    target = FOLDER / f"format-v{LOG_VERSION}"
    if target.exists():
        print(f"{target} is there already; what is kept is never made again", file=sys.stderr)
        return 1
    make(target)
    target.with_suffix(".json").write_text(json.dumps(content_of(target), indent=1) + "\n", encoding="utf-8")
    return 0


# ---- what goes in ------------------------------------------------------------------------------------------------


def make(path: Path) -> None:
    kept = limits.PART_BYTES, limits.STATE_PAGE_BYTES
    limits.PART_BYTES, limits.STATE_PAGE_BYTES = PART_BYTES, PAGE_BYTES
    try:
        with LocalEngine(path, page_bytes=PAGE_BYTES) as engine:
            fill(engine)
        kill(path / "p" / "killed", engine.epoch)
    finally:
        limits.PART_BYTES, limits.STATE_PAGE_BYTES = kept
    for marks in path.rglob(MARKS_FILE):
        patch(marks, LIVE_BOOT, bytes(8))


def fill(engine: LocalEngine) -> None:
    mixed = engine.open("mixed")
    for at, entries in enumerate(sets()):
        append(mixed, entries, now_ms=1000 * at, transaction=at % 3)
    ancient = engine.open("ancient", jafka_magic=0)
    append(ancient, [Entry(JAFKA, b"old", magic=0), Entry(JAFKA, b"older", magic=0)], now_ms=1)
    append(ancient, [Entry(HOUSE, b"new", b"key")], now_ms=2)
    cut = engine.open("cut")
    for at in range(4):
        append(cut, [Entry(REAL, b"call %d" % at), Entry(REAL, b"again %d" % at)], now_ms=at)
    cut.truncate(4)
    append(cut, [Entry(SEED, b"instead", b"key")], now_ms=9)
    headless = engine.open("headless")
    for at in range(9):
        append(headless, [Entry(HOUSE, b"%d " % at * 700)], now_ms=at)
    headless.retain(Retention(bytes_max=2 * PAGE_BYTES), now_ms=0)
    positions = engine.state("positions")
    for at in range(90):
        value = None if at % 5 == 4 else b"position %d" % at
        positions.put(b"group-%d" % (at % 7), value, level=Level.RECEIVE)
    with serai.Queue(engine.path / "p" / "queue", page_size=PAGE_BYTES) as queue:
        queue.writer().append_many(QUEUE_BODIES)


def sets() -> Iterable[list[Entry]]:
    """Sets of messages of every dress and shape."""
    dice = Random(1)
    for dress in DRESSES:
        yield [Entry(dress, b"%s %d" % (NAMES[dress].encode(), at)) for at in range(3)]
        yield [Entry(dress, dice.randbytes(200)) for _ in range(12)]  # in parts
        yield [Entry(dress, b"longer than a page " * 240)]
    yield [Entry(HOUSE, b"headed", b"key", headers=HEADERS, priority=3, flag=7, send_time=5, ordered=True)]
    for dress in (SEED, REAL):
        head = Entry(dress, b"headed", b"key", attributes=oracle.text_of(HEADERS), app=b"shop", priority=3, send_time=5)
        yield [head, replace(head, body=oracle.deflate(b"packed", ZLIB), codec=ZLIB)]
        members = as_members([replace(head, body=b"member %d" % at) for at in range(3)], head)
        yield [oracle.wrap(dress, members, codec) for codec in (0, ZIP, ZLIB)]
    for codec in (0, ZLIB, GZIP):
        yield [oracle.wrap(HOUSE, (Entry(HOUSE, b"inner", b"key"), Entry(HOUSE, b"other")), codec)]
    inner = oracle.wrap(JAFKA, (Entry(JAFKA, b"deep"), Entry(JAFKA, b"deeper", magic=0)), GZIP)
    yield [oracle.wrap(JAFKA, (inner, Entry(JAFKA, b"shallow")), GZIP), Entry(JAFKA, b"plain")]


def append(log: Partition, entries: list[Entry], *, now_ms: int, transaction: int = 0) -> None:
    dress, raw = entries[0].dress, b"".join(map(oracle.encode, entries))
    log.append(
        raw,
        dress,
        level=Level.RECEIVE,
        now_ms=now_ms,
        partition=3,
        producer=7,
        sequence=now_ms,
        transaction=transaction,
    )


def kill(path: Path, epoch: int) -> None:
    with open_partition(path, epoch=epoch, page_bytes=PAGE_BYTES) as log:
        append(log, [Entry(HOUSE, b"marked")], now_ms=1)
    log = open_partition(path, epoch=epoch)
    append(log, [Entry(HOUSE, b"not marked")], now_ms=2)
    append(log, [Entry(JAFKA, b"nor this")], now_ms=3)
    log.commit()
    log.abandon()


# ---- what is in it, worked out by hand ---------------------------------------------------------------------------


def content_of(path: Path) -> Content:
    return {
        "partitions": {log.name: partition_of(log) for log in sorted((path / "p").iterdir()) if log.name != "queue"},
        "queue": [body.decode() for body in QUEUE_BODIES],
        "killed": ["not marked", "nor this"],
        "states": {log.name: state_of(log) for log in sorted((path / "s").iterdir())},
    }


def partition_of(path: Path) -> Content:
    """Where it begins and ends, its bodies, and a digest of its messages in each dress."""
    records = byhand.read(path)
    magic = int(byhand.words_of(path)["jafka-magic"])
    mark = byhand.mark_of(path)
    flat = [message for record in records for entry in record.entries for message in oracle.flat(entry)]
    shown = {target: hashlib.sha256() for target in DRESSES}
    for record in records:
        server = Server(3, record.ordinal, 1, record.time, b"", b"shop", magic)
        for target, digest in shown.items():
            digest.update(oracle.redress(record.payload, record.dress, target, server))
    return {
        "first": mark.first, "end": mark.end, "first_place": mark.first_place, "end_place": mark.place,
        "records": [record.count for record in records], "times": [record.time for record in records],
        "bodies": [digest_of(message.body) for message in flat], "keys": [message.key.decode() for message in flat],
        "dressed": {NAMES[target]: digest.hexdigest() for target, digest in shown.items()},
    }  # fmt: skip


def digest_of(body: bytes) -> str:
    """Short bodies as they are."""
    return body.decode() if len(body) < 50 else hashlib.sha256(body).hexdigest()[:16]


def state_of(path: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    for record in byhand.read(path):
        for entry in record.entries:
            values.pop(entry.key.decode(), None)
            if not entry.flag:
                values[entry.key.decode()] = entry.body.decode()
    return values


if __name__ == "__main__":
    raise SystemExit(main())
