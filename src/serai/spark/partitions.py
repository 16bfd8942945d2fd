"""Partitions of serai's own log, read while a server or a sink may be writing them.

    <data>/s/catalogue    topic/7 -> {"name": "orders", "partitions": 2, ...}
    <data>/p/7-0, 7-1     the topic's partitions

Messages come in any of four dresses and are gathered natively: key, body, headers, times.  A partition nobody
put into the catalogue is a topic of its own, called as its folder.

Invariants
- `end(committed=True)` is what the writer has seen flushed; after it died, what its last mark says
- every row has the store time of its own record
- positions and times alone come from the index, and no message is looked at: damage is said to who reads it
- a page that is read is locked: retention unlinks or leaves it, and what it took away is a loss with numbers
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from serai import limits
from serai._core.columns import Chunk, Columns
from serai.errors import Corrupt, OutOfRange
from serai.log.folder import is_partition, read_words
from serai.log.format import DATA_KIND, FORMAT_FILE, STORE_VERSION
from serai.log.state import contents
from serai.log.view import View
from serai.spark.slices import Block, DataLoss, Wish

DOORS = ("", "house", "jmq", "jmq", "jafka")  # by dress
GATHERED = {"values": "value", "keys": "key", "headers": "headers", "sends": "sendTime", "doors": "door"}
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


def is_data(path: Path) -> bool:
    """Whether a directory is a serai data directory; one of a later version is refused by name."""
    if not (path / "p").is_dir() or not (path / FORMAT_FILE).exists():
        return False
    read_words(path / FORMAT_FILE, kind=DATA_KIND, version=STORE_VERSION)
    return True


def read_catalogue(data: Path) -> dict[str, tuple[int, int]]:
    """The topics of a data directory: id and number of partitions of each."""
    return topics_in(read_state(data / "s" / "catalogue"))


def read_state(home: Path) -> dict[bytes, bytes]:
    """Keys and values of a state log as they are now; none when there is no such log."""
    if not is_partition(home):
        return {}
    for _ in range(100):  # a snapshot may take away what is being read
        with View(home) as view, suppress(OutOfRange):
            return contents(view)
    raise Corrupt(f"{home} changes faster than it can be read", file=str(home))


def topics_in(values: dict[bytes, bytes]) -> dict[str, tuple[int, int]]:
    """The topics among the entries of a catalogue."""
    found = {}
    for key, raw in values.items():
        kind, _, number = key.decode().partition("/")
        if kind == "topic":
            value = json.loads(raw)
            found[value["name"]] = (int(number), int(value["partitions"]))
    return found


def places_of(data: Path) -> list[tuple[Path, str, int]]:
    """Every folder of a data directory that may be a partition, with topic and number."""
    found = []
    for topic, (number, count) in read_catalogue(data).items():
        found += [(data / "p" / f"{number}-{partition}", topic, partition) for partition in range(count)]
    known = {path.name for path, _topic, _partition in found}
    loose = sorted(name for name in os.listdir(data / "p") if name not in known and not name.startswith("."))
    found += [(data / "p" / name, name, 0) for name in loose]
    return [one for one in found if one[0].is_dir()]  # the others were never written to


def logs_of(data: Path) -> "list[PartitionLog]":
    """Every partition of a data directory under its topic's name."""
    return [PartitionLog(str(path), topic, number) for path, topic, number in places_of(data) if is_partition(path)]


class PartitionLog:
    """One partition."""

    def __init__(self, path: str, topic: str, partition: int) -> None:
        self.path = path
        self.topic = topic
        self.partition = partition
        self._view = View(path)

    def close(self) -> None:
        self._view.close()

    def first(self) -> int:
        return self._view.first

    def end(self, *, committed: bool) -> int:
        return self._view.committed if committed else self._view.end

    def mark(self, _position: int) -> str:
        return f"{self._view.folder.format.identity:016x}"

    def at_time(self, time_ms: int) -> int:
        return self._view.ordinal_at_time(time_ms)

    # ---- how much it is

    def count(self, first: int, last: int) -> int:
        return last - first

    def weigh(self, first: int, last: int) -> int:
        if last <= first:
            return 0
        try:
            low = self._view.trail.slot(max(first, self._view.first))[0]
            begin, size = self._view.trail.slot(last - 1)
        except Corrupt:  # it will be said where it is read
            return 0
        return max(begin + size - low, 0)

    def within(self, first: int, last: int, bytes_max: int) -> int:
        low, high = first + 1, last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.weigh(first, middle) <= bytes_max else (low, middle - 1)
        return low

    # ---- the messages

    def blocks(self, first: int, last: int, wish: Wish) -> Iterator[Block]:
        asked = {argument: name in wish.columns for argument, name in GATHERED.items()}
        position = first
        while position < last:
            columns = Columns(**asked)
            try:
                if any(asked.values()):
                    self._gather(columns, position, last, wish)
                    rows = len(columns)
                else:
                    rows = self._count(position, last, wish)
            except OutOfRange as error:
                position = self._overtaken(position, last, error, wish)
                continue
            except Corrupt as error:
                behind = min(error.next_ordinal or last, last)
                yield from self._damaged(error, position, behind, wish)
                position = behind
                continue
            yield self._block(columns, position, rows, wish)
            position += rows

    def _count(self, position: int, last: int, wish: Wish) -> int:
        """How many rows come next when nothing of them is wanted that stands in a message: the index says it all."""
        self._view.spans(position, bytes_max=0, messages_max=0)  # out of range when they are gone
        rows = min(position + wish.rows, last, self._view.end) - position
        if rows <= 0:
            raise self._ended(position, last)
        return rows

    def _ended(self, at: int, last: int) -> DataLoss:
        return DataLoss(
            f"{self.path} ends at position {at}, but up to {last} was planned: {last - at} messages are gone"
        )

    def _gather(self, columns: Columns, position: int, last: int, wish: Wish) -> None:
        """Rows from a position on, up to both limits; an error comes out only if there are no rows before it."""
        while len(columns) < wish.rows and columns.nbytes < wish.bytes and position + len(columns) < last:
            at = position + len(columns)
            try:
                spans = self._view.spans(
                    at, bytes_max=wish.bytes, messages_max=min(wish.rows - len(columns), last - at)
                )
            except (OutOfRange, Corrupt):
                if len(columns):
                    return
                raise
            if not spans:
                raise self._ended(at, last)
            for span in spans:
                columns.unfold(
                    span.data, span.dress, lead=span.lead, count=min(span.count, last - span.ordinal), ordinal=span.ordinal,
                    inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
                )  # fmt: skip

    def _overtaken(self, position: int, last: int, error: OutOfRange, wish: Wish) -> int:
        """Retention took messages away between planning and reading."""
        if error.first <= position:
            raise DataLoss(f"{self.path} was cut at {error.end}, but up to {last} was planned") from None
        count = min(error.first, last) - position
        words = (
            f"topic {self.topic} partition {self.partition} in {self.path}: positions {position} to {position + count} are no "
            f"longer there, {count} messages; the first one is {error.first}"
        )
        if wish.fail_on_loss:
            raise DataLoss(f"{words}. Option failOnDataLoss=false goes on without them") from None
        wish.tally.lost += count
        wish.tally.note(words)
        return position + count

    def _damaged(self, error: Corrupt, position: int, behind: int, wish: Wish) -> Iterator[Block]:
        if wish.on_corrupt == "fail" or behind <= position:
            raise error
        count = behind - position
        wish.tally.note(str(error))
        if wish.on_corrupt == "skip":
            wish.tally.corrupt += count
        else:
            offset = pa.array(np.arange(position, behind, dtype=np.int64))
            yield Block(count, {"value": pa.nulls(count, pa.binary()), "offset": offset})

    def _block(self, columns: Columns, position: int, rows: int, wish: Wish) -> Block:
        made: dict[str, Callable[[], pa.Array]] = {
            "value": lambda: _binary(columns.values, columns.ends, rows, None),
            "offset": lambda: pa.array(np.arange(position, position + rows, dtype=np.int64)),
            "key": lambda: _binary(columns.keys, columns.key_ends, rows, columns.key_bits),
            "timestamp": lambda: self._times(position, rows),
            "timestampType": lambda: pa.repeat(pa.scalar(1, pa.int32()), rows),
            "sendTime": lambda: _instants(columns.sends, rows, columns.send_bits),
            "door": lambda: _doors(columns.doors),
            "headers": lambda: _headers(columns, rows),
        }
        return Block(rows, {name: make() for name, make in made.items() if name in wish.columns or name == "offset"})

    def _times(self, position: int, rows: int) -> pa.Array:
        bounds = self._view.bounds()
        raw = self._view.trail.times(position, rows, first=bounds.first_record, end=bounds.record_end)
        return pa.array(np.frombuffer(raw, np.int64) * 1000).view(pa.timestamp("us", "UTC"))


def _binary(values: Chunk, ends: Chunk, rows: int, bits: Chunk | None) -> pa.Array:
    valid = None if bits is None else pa.py_buffer(bits)
    return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(values)])


def _instants(times: Chunk, rows: int, bits: Chunk) -> pa.Array:
    return pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, [pa.py_buffer(bits), pa.py_buffer(times)])


def _doors(doors: Chunk) -> pa.Array:
    which = pa.array(np.frombuffer(memoryview(doors), np.int8))
    return pa.DictionaryArray.from_arrays(which, pa.array(DOORS)).cast(pa.string())


def _headers(columns: Columns, rows: int) -> pa.Array:
    count = len(columns.header_name_ends) // 4 - 1
    names = _binary(columns.header_names, columns.header_name_ends, count, None)
    values = _binary(columns.header_values, columns.header_value_ends, count, None)
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid:  # names are bytes; what is no UTF-8 is shown as far as it goes
        texts = pa.array([name.as_py().decode("utf-8", "replace") for name in names], pa.string())
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADER))
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(columns.header_ends)])
    return pa.ListArray.from_arrays(ends, pairs)
