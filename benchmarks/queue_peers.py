"""The peers: what a Python program would otherwise keep its messages in, each used the way its users use it.

    plain buffered file   length and body through a 64 KiB buffer: the bound for anything that stores; no index, no
                          reader while it is written, no recovery
    LMDB                  writemap, no sync: one message a transaction, or 1000; keys ascend, so it may append
    RocksDB               through rocksdict, raw bytes, write-ahead log on, no fsync; write batches of 1000
    queuelib              FifoDiskQueue; has no batches
    SQLite                WAL, synchronous=normal; one row a transaction, or 1000
    faster-fifo           shared memory between processes, not stored; bytes pass as they are, not pickled
    pyzmq ipc             PUSH/PULL without a high-water mark, not stored

- Durability is the page cache's for all that store: a crash of the process loses nothing, a power cut may.  The plain
  file alone loses its buffer.
- Each append is timed with its store open; closing is not timed.
- The body is one and the same object everywhere, so its bytes are in the cache for all alike.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.queue_rounds import Contestant, Load, Steps

__all__ = ["APPEND", "BATCH", "LISTS", "ONE_BY_ONE", "append_peers", "batch_peers"]

APPEND = "append one at a time"
BATCH = "append in lists of 1000"
ONE_BY_ONE = "read one at a time"
LISTS = "read in lists"

LIST_COUNT = 10_000  # about what 1 MiB of 100-byte messages holds, serai's batch
LMDB_BYTES_MAX = 4 << 30
KEY = struct.Struct(">Q").pack
LENGTH = struct.Struct(">I").pack


def called(function: Callable[[bytes], Any], body: bytes, count: int) -> Callable[[], int]:
    """The plain loop of one call a message."""

    def work() -> int:
        for _ in range(count):
            function(body)
        return count

    return work


def drained(messages: Callable[[], Any], count: int) -> Callable[[], int]:
    """Iterate over everything once, and be sure that everything was there."""

    def work() -> int:
        seen = 0
        for _ in messages():
            seen += 1
        assert seen == count, f"{seen} messages came back of {count}"
        return count

    return work


def listed(messages: Callable[[], Any], count: int) -> Callable[[], int]:
    """Lists of 10,000 values."""

    def work() -> int:
        values, seen = iter(messages()), 0
        while found := len(list(itertools.islice(values, LIST_COUNT))):
            seen += found
        assert seen == count, f"{seen} messages came back of {count}"
        return count

    return work


# ---------------------------------------------------------------------------------------------- plain buffered file


def file_append(place: Path, load: Load) -> Steps:
    body, count = load.body, load.count(1_000_000 if load.body_bytes < 500 else 200_000)
    with open(place / "f", "wb", buffering=1 << 16) as file:

        def work() -> int:
            write = file.write
            for _ in range(count):
                write(LENGTH(len(body)))
                write(body)
            file.flush()
            return count

        yield load.at(APPEND), work


def file_batch(place: Path, load: Load) -> Steps:
    body, count = load.body, load.count(1_000_000 if load.body_bytes < 500 else 200_000)
    with open(place / "f", "wb", buffering=1 << 16) as file:

        def write() -> int:
            put = file.write
            for _ in range(count // 1000):
                put(b"".join([LENGTH(len(body)) + body] * 1000))
            file.flush()
            return count

        yield load.at(BATCH), write

    def read() -> int:
        with open(place / "f", "rb") as stored:
            take, seen = stored.read, 0
            while head := take(4):
                take(int.from_bytes(head, "big"))
                seen += 1
        assert seen == count
        return count

    yield load.at(ONE_BY_ONE), read


# ---------------------------------------------------------------------------------------------- LMDB


def lmdb_open(place: Path) -> Any:
    lmdb = importlib.import_module("lmdb")
    return lmdb.open(str(place / "q"), map_size=LMDB_BYTES_MAX, sync=False, writemap=True, map_async=True)


def lmdb_append(place: Path, load: Load) -> Steps:
    body, count = load.body, load.count(80_000)
    with lmdb_open(place) as store:

        def work() -> int:
            for i in range(count):
                with store.begin(write=True) as transaction:
                    transaction.put(KEY(i), body, append=True)
            return count

        yield load.at(APPEND), work


def lmdb_batch(place: Path, load: Load) -> Steps:
    body, count = load.body, load.count(400_000 if load.body_bytes < 500 else 100_000)
    with lmdb_open(place) as store:

        def write() -> int:
            for first in range(0, count, 1000):
                with store.begin(write=True) as transaction:
                    put = transaction.put
                    for i in range(first, first + 1000):
                        put(KEY(i), body, append=True)
            return count

        yield load.at(BATCH), write
        with store.begin() as reading:
            yield load.at(ONE_BY_ONE), drained(reading.cursor, count)
        with store.begin() as reading:
            yield load.at(LISTS), listed(lambda: reading.cursor().iternext(keys=False), count)


def lmdb_values(place: Path, load: Load) -> Steps:
    """LMDB's two quickest ways, asked for by name: putmulti, and a cursor that leaves the keys out."""
    body, count = load.body, load.count(400_000 if load.body_bytes < 500 else 100_000)
    with lmdb_open(place) as store:

        def write() -> int:
            for first in range(0, count, 1000):
                with store.begin(write=True) as transaction:
                    transaction.cursor().putmulti([(KEY(i), body) for i in range(first, first + 1000)], append=True)
            return count

        yield load.at(BATCH), write
        with store.begin() as reading:
            yield load.at(ONE_BY_ONE), drained(lambda: reading.cursor().iternext(keys=False), count)


# ---------------------------------------------------------------------------------------------- RocksDB


def rocks_append(place: Path, load: Load) -> Steps:
    rocksdict = importlib.import_module("rocksdict")
    body, count = load.body, load.count(60_000 if load.body_bytes < 500 else 30_000)
    store = rocksdict.Rdict(str(place / "q"), rocksdict.Options(raw_mode=True))

    def work() -> int:
        for i in range(count):
            store[KEY(i)] = body
        return count

    try:
        yield load.at(APPEND), work
    finally:
        store.close()


def rocks_batch(place: Path, load: Load) -> Steps:
    rocksdict = importlib.import_module("rocksdict")
    body, count = load.body, load.count(300_000 if load.body_bytes < 500 else 60_000)
    store = rocksdict.Rdict(str(place / "q"), rocksdict.Options(raw_mode=True))

    def work() -> int:
        for first in range(0, count, 1000):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for i in range(first, first + 1000):
                batch.put(KEY(i), body)
            store.write(batch)
        return count

    try:
        yield load.at(BATCH), work
        yield load.at(ONE_BY_ONE), drained(store.values, count)
        yield load.at(LISTS), listed(store.values, count)
    finally:
        store.close()


# ---------------------------------------------------------------------------------------------- queuelib, SQLite


def queuelib_append(place: Path, load: Load) -> Steps:
    body, count = load.body, load.count(60_000)
    queue = importlib.import_module("queuelib").FifoDiskQueue(str(place / "q"))

    def read() -> int:
        pop = queue.pop
        for _ in range(count):
            assert pop() is not None
        return count

    try:
        yield load.at(APPEND), called(queue.push, body, count)
        yield load.at(ONE_BY_ONE), read
    finally:
        queue.close()


def sqlite_open(place: Path) -> sqlite3.Connection:
    store = sqlite3.connect(place / "q.db", isolation_level=None)
    store.execute("pragma journal_mode=wal")
    store.execute("pragma synchronous=normal")
    store.execute("create table m(id integer primary key, b blob)")
    return store


def sqlite_append(place: Path, load: Load) -> Steps:
    body, count, store = load.body, load.count(8_000), sqlite_open(place)

    def work() -> int:
        for _ in range(count):
            store.execute("insert into m(b) values(?)", (body,))
        return count

    try:
        yield load.at(APPEND), work
    finally:
        store.close()


def sqlite_batch(place: Path, load: Load) -> Steps:
    body, count, store = load.body, load.count(100_000 if load.body_bytes < 500 else 20_000), sqlite_open(place)
    rows = [(body,)] * 1000

    def values() -> Any:
        return store.execute("select b from m order by id")

    def work() -> int:
        for _ in range(count // 1000):
            store.execute("begin")
            store.executemany("insert into m(b) values(?)", rows)
            store.execute("commit")
        return count

    try:
        yield load.at(BATCH), work
        yield load.at(ONE_BY_ONE), drained(values, count)
        yield load.at(LISTS), listed(values, count)
    finally:
        store.close()


# ---------------------------------------------------------------------------------------------- faster-fifo, pyzmq


def fifo_open(count: int, body_bytes: int) -> Any:
    fifo = importlib.import_module("faster_fifo")
    return fifo.Queue(max_size_bytes=count * (body_bytes + 64), loads=bytes, dumps=lambda body: body)


def fifo_append(place: Path, load: Load) -> Steps:
    del place
    body, count = load.body, load.count(40_000)
    queue = fifo_open(count, load.body_bytes)

    def read() -> int:
        get = queue.get
        for _ in range(count):
            get()
        return count

    yield load.at(APPEND), called(queue.put, body, count)
    yield load.at(ONE_BY_ONE), read


def fifo_batch(place: Path, load: Load) -> Steps:
    del place
    bodies, count = [load.body] * 1000, load.count(60_000)
    queue = fifo_open(count, load.body_bytes)

    def write() -> int:
        for _ in range(count // 1000):
            queue.put_many(bodies)
        return count

    def read() -> int:
        seen = 0
        while seen < count:
            seen += len(queue.get_many(max_messages_to_get=1000))
        return count

    yield load.at(BATCH), write
    yield load.at(LISTS), read


def zmq_append(place: Path, load: Load) -> Steps:
    zmq = importlib.import_module("zmq")
    body, count = load.body, load.count(60_000)
    address = f"ipc://{os.path.relpath(place)}/s"  # a socket's name has about 100 characters at most
    with zmq.Context() as context, context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
        for socket in (push, pull):
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.LINGER, 0)
        pull.bind(address)
        push.connect(address)

        def read() -> int:
            receive = pull.recv
            for _ in range(count):
                receive()
            return count

        yield load.at(APPEND), called(push.send, body, count)
        yield load.at(ONE_BY_ONE), read


def append_peers() -> list[Contestant]:
    """Those that append one at a time."""
    return [
        Contestant("plain buffered file", "io", file_append),
        Contestant("LMDB", "lmdb", lmdb_append),
        Contestant("RocksDB", "rocksdict", rocks_append),
        Contestant("queuelib", "queuelib", queuelib_append),
        Contestant("SQLite WAL", "sqlite3", sqlite_append),
        Contestant("faster-fifo", "faster_fifo", fifo_append),
        Contestant("pyzmq ipc", "zmq", zmq_append),
    ]


def batch_peers() -> list[Contestant]:
    """Those that append in lists of 1000, then read what they wrote."""
    return [
        Contestant("plain buffered file", "io", file_batch),
        Contestant("LMDB", "lmdb", lmdb_batch),
        Contestant("LMDB, its quickest way", "lmdb", lmdb_values),
        Contestant("RocksDB", "rocksdict", rocks_batch),
        Contestant("SQLite WAL", "sqlite3", sqlite_batch),
        Contestant("faster-fifo", "faster_fifo", fifo_batch),
    ]
