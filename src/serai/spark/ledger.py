"""Each batch once: staged files become messages of the log, under a ledger kept in the log's own state.

    <data>/.staged/<writer>/<batch>-<partition>-<attempt>     what a task wrote, flushed, invisible to readers
    <data>/s/spark      <writer> -> {"batch": 7, "copying": false, ...}

    tasks      stage, each attempt a file of its own
    driver     1 the decision: batch, files and where each partition ends, flushed
               2 every set is appended with the writer and its number in the record's head, flushed
               3 "copying" becomes false, flushed; the files go

A crash before 1 leaves files nobody names: they go with the next batch.  Between 1 and 3 whoever commits next, for
this batch or a later one, first does 2 for the sets that are not there yet: their numbers stand in the heads of the
records behind the ends of the decision.  After 3 the batch is there, and coming again is answered "already done".

Invariants
- a batch is visible whole or, for as long as nobody repairs a crash in the middle, in part; never twice
- the files of a decision stay until its batch is done
- one process commits at a time: the data directory's lock
"""

import hashlib
import json
import os
import shutil
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from serai._core.crc import crc32c
from serai._core.entries import HOUSE
from serai.errors import Corrupt, Locked, Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import Partition
from serai.log.state import State
from serai.log.store import space_for, sync_directory
from serai.spark.partitions import topics_in

STAGED = ".staged"
STATE = "spark"
CHUNK = struct.Struct("<IIiII")  # bytes of the set, CRC-32C of what follows it, partition, messages, bytes of the topic
PATIENCE_S = 60.0  # for another commit to the same directory


# ---- staging -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunk:
    """One set of messages for one partition."""

    topic: str
    partition: int
    count: int
    messages: bytes | memoryview


class Stage:
    """The file of one attempt of one task."""

    def __init__(self, data: Path, writer: str, batch: int, part: int, attempt: int) -> None:
        self.path = _folder(data, writer) / f"{batch}-{part}-{attempt}"
        self.count = 0
        self.bytes = 0
        with space_for(data):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115 - closed by `close`

    def put(self, chunk: Chunk) -> None:
        topic = chunk.topic.encode()
        sum_ = crc32c(chunk.messages, crc32c(topic))
        with space_for(self.path):
            self._file.write(CHUNK.pack(len(chunk.messages), sum_, chunk.partition, chunk.count, len(topic)) + topic)
            view = memoryview(chunk.messages)
            while view:
                view = view[self._file.write(view) :]
        self.count += chunk.count
        self.bytes += len(chunk.messages)

    def close(self) -> None:
        """Brings it to the disk: a decision will name it."""
        os.fsync(self._file.fileno())
        self._file.close()
        sync_directory(self.path.parent)

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def _folder(data: Path, writer: str) -> Path:
    return data / STAGED / hashlib.blake2b(writer.encode(), digest_size=16).hexdigest()


def path_of(data: Path, writer: str, name: str) -> Path:
    """A staged file by its name."""
    return _folder(data, writer) / name


def read_staged(path: Path) -> Iterator[Chunk]:
    """The sets of a staged file, each there until the next; damage is an error, as a decision may name it."""
    room = bytearray()  # the same memory for all: fresh pages cost more than what is read into them
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size
        while head := file.read(CHUNK.size):
            if len(head) == CHUNK.size:
                size, sum_, partition, count, name = CHUNK.unpack(head)
                left -= CHUNK.size + name + size
                if left >= 0:
                    topic = file.read(name)
                    room = room if len(room) >= size else bytearray(size)
                    messages = memoryview(room)[:size]
                    if file.readinto(messages) == size and crc32c(messages, crc32c(topic)) == sum_:
                        yield Chunk(topic.decode(), partition, count, messages)
                        continue
            raise Corrupt(
                f"{path} is damaged at byte {file.tell()}: it was staged and flushed, so the disk lost it; the query's batch is to "
                "be written again from the source", file=str(path), position=file.tell(),
            )  # fmt: skip


# ---- the ledger --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What the ledger says of a writer."""

    batch: int
    copying: bool = False
    files: tuple[str, ...] = ()
    ends: tuple[tuple[str, int], ...] = ()  # of partitions, when it was decided

    def dump(self) -> bytes:
        ends = dict(self.ends)
        return json.dumps({"batch": self.batch, "copying": self.copying, "files": self.files, "ends": ends}).encode()

    @classmethod
    def load(cls, raw: bytes) -> "Entry":
        value = json.loads(raw)
        return cls(value["batch"], value["copying"], tuple(value["files"]), tuple(value["ends"].items()))


def commit(data: Path, writer: str, batch: int, files: Sequence[Path], *, once: bool) -> bool:
    """Makes staged files visible; False when this batch was there already."""
    with engine_of(data) as engine:
        ledger = engine.state(STATE)
        key = writer.encode()
        raw = ledger.get(key)
        entry = Entry.load(raw) if raw is not None else None
        if entry is not None and entry.copying:
            for name in entry.files:  # all of it is looked at before any of it becomes visible
                deque(read_staged(_folder(data, writer) / name), maxlen=0)
            _finish(engine, ledger, writer, entry, data)
            entry = replace(entry, copying=False)
        done = once and entry is not None and entry.batch >= batch
        if not done and files:
            chosen = Entry(batch, True, tuple(path.name for path in files), _ends(engine, files))
            _write(ledger, key, chosen)
            _finish(engine, ledger, writer, chosen, data)
            if not once:  # nobody will ask for it
                ledger.put(key, None, level=Level.COMMIT)
    sweep(data, writer, batch)
    return not done


def engine_of(data: Path, patience_s: float | None = None) -> LocalEngine:
    """The engine of the directory, once whoever has it is done: other queries commit here too."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return LocalEngine(data)
        except Locked:
            if time.monotonic() > deadline:
                raise Locked(
                    f"{data} is held by another process for more than {patience_s:.0f} s: a server works there. Stop it, or "
                    "write to a directory of its own"
                ) from None
            time.sleep(0.02)


def _ends(engine: LocalEngine, files: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    """Where every partition ends that the files name; topics that are new are made."""
    wanted = {(chunk.topic, chunk.partition) for path in files for chunk in read_staged(path)}
    homes = make_topics(engine, sorted({topic for topic, _partition in wanted}))
    for topic, partition in sorted(wanted):
        if not 0 <= partition < len(homes[topic]):
            raise Misuse(f"rows are to go to partition {partition} of topic {topic}, which has {len(homes[topic])}")
    names = sorted(homes[topic][partition] for topic, partition in wanted)
    return tuple((name, engine.open(name).end) for name in names)


def make_topics(
    engine: LocalEngine, topics: Sequence[str], partitions: Mapping[str, int] = MappingProxyType({})
) -> dict[str, list[str]]:
    """The partitions of these topics; one that is not in the catalogue is put there, with one partition or as many as told.

    A folder in the catalogue's place is a topic too: one that was made without it.
    """
    catalogue = engine.catalogue()
    known = topics_in(dict(catalogue.items()))
    loose = set(engine.partitions()) - {f"{number}-{at}" for number, count in known.values() for at in range(count)}
    fresh = json.loads(catalogue.get(b"ids") or b'{"next": 1}')["next"]
    pairs = []
    for topic in topics:
        if topic not in known and topic not in loose:
            count = partitions.get(topic, 1)
            value = {"name": topic, "partitions": count, "table": {}, "epoch": engine.epoch, "changed_ms": _now_ms()}
            pairs.append((f"topic/{fresh}".encode(), json.dumps(value, ensure_ascii=False).encode()))
            known[topic] = (fresh, count)
            fresh += 1
    if pairs:
        ids = json.dumps({"next": fresh, "epoch": engine.epoch}).encode()
        catalogue.put_many([*pairs, (b"ids", ids)], level=Level.COMMIT)
        catalogue.log.commit()
    return {
        topic: [f"{known[topic][0]}-{at}" for at in range(known[topic][1])] if topic in known else [topic]
        for topic in topics
    }


def _write(ledger: State, key: bytes, entry: Entry) -> None:
    ledger.put(key, entry.dump(), level=Level.COMMIT)
    ledger.log.commit()


def _finish(engine: LocalEngine, ledger: State, writer: str, entry: Entry, data: Path) -> None:
    """Appends what is not there yet of a decided batch, and says that it is done."""
    producer, transaction = producer_of(writer), entry.batch + 1
    there = {name: _numbers(engine.open(name), end, producer, transaction) for name, end in entry.ends}
    homes: dict[str, list[str]] = {}
    number = 0
    for file in entry.files:
        for chunk in read_staged(_folder(data, writer) / file):
            number += 1
            if chunk.topic not in homes:
                homes |= make_topics(engine, [chunk.topic])
            name = homes[chunk.topic][chunk.partition]
            if number not in there[name]:
                engine.open(name).append(
                    chunk.messages, HOUSE, level=Level.RECEIVE, now_ms=_now_ms(), producer=producer, sequence=number,
                    transaction=transaction,
                )  # fmt: skip
    for name in there:
        engine.open(name).commit()
    _write(ledger, writer.encode(), Entry(entry.batch))


def _numbers(log: Partition, since: int, producer: int, transaction: int) -> set[int]:
    """The sets of this batch that are in a partition already."""
    found = set()
    ordinal = max(since, log.first)
    while ordinal < log.end:
        head = log.head(ordinal)
        if (head.producer, head.transaction) == (producer, transaction):
            found.add(head.sequence)
        ordinal = head.ordinal + head.messages
    return found


def producer_of(writer: str) -> int:
    """The number that stands for a writer in the heads of its records."""
    return int.from_bytes(hashlib.blake2b(writer.encode(), digest_size=8).digest(), "little") >> 1 or 1


def sweep(data: Path, writer: str, batch: int) -> None:
    """Removes what was staged for a batch that is done, or by attempts that never were."""
    folder = _folder(data, writer)
    for path in folder.glob("*-*-*"):
        if int(path.name.partition("-")[0]) <= batch:
            path.unlink(missing_ok=True)
    if not any(folder.glob("*")):
        shutil.rmtree(folder, ignore_errors=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
