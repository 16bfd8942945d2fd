"""What lies in a log, as values for people: a log as a whole, its records, its messages, the changes of a state log.

Invariants
- a reader's rules hold: nothing beyond what the writer published, nothing whose checksum does not fit
- damage is a row of its own, and what lies behind it follows
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from serai import limits
from serai._core.columns import Columns
from serai._core.entries import HOUSE, JAFKA, REAL, SEED
from serai._core.records import FLAG_LAST, RECORD_BYTES
from serai._core.spans import Span
from serai._core.trail import Head
from serai.errors import Corrupt
from serai.log import state
from serai.log.bare import BareLog, is_bare
from serai.log.queue import Queue
from serai.log.view import View

DRESSES = {HOUSE: "house", SEED: "seed", REAL: "real", JAFKA: "jafka"}
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Summary:
    """A log as a whole."""

    log: str
    first: int
    end: int
    committed: int
    first_place: int
    end_place: int
    records: int
    epoch: int
    page_bytes: int
    identity: str
    jafka_magic: int
    pages: int
    disk_bytes: int
    written_by: str  # "nobody", "a process" that told where it stands since the machine started, "an application"
    mark: dict[str, int]  # the newest one; a bare queue has none


@dataclass(frozen=True)
class Row:
    """One line about a stretch of messages, whole or damaged."""

    ordinal: int
    said: dict[str, object]  # what there is to say beside the bytes, in order
    key: bytes | None = None
    body: bytes | None = None
    problem: str = ""


def summary(name: str, path: Path) -> Summary:
    """A log by its folder."""
    if is_bare(path):
        return _queue_summary(name, path)
    with View(path) as view:
        bounds, (first_place, end_place, _) = view.bounds(), view.places()
        files = (view.folder.data_files, view.folder.slot_files, view.folder.record_files)
        paths = [one.path(number) for one in files for number in one.numbers()]
        fixed = view.folder.format
        return Summary(
            name, bounds.first, bounds.end, bounds.committed, first_place, end_place,
            (bounds.record_end - bounds.first_record) // RECORD_BYTES, view.epoch, fixed.page_bytes,
            f"{fixed.identity:016x}", fixed.jafka_magic, len(paths), sum(os.stat(one).st_blocks * 512 for one in paths),
            "a process" if view.alive else "nobody", view.mark()._asdict(),
        )  # fmt: skip


def _queue_summary(name: str, path: Path) -> Summary:
    with BareLog(path, mode="r") as log, Queue(path, "r") as queue:
        facts = queue.stat()
        return Summary(
            name, log.first, log.end, log.committed, log.first_place, log.end_place, facts.messages, 0, facts.page_size, "",
            1, facts.index_pages + facts.data_pages + facts.compressed_pages, facts.disk_bytes, "an application", {},
        )  # fmt: skip


def records(view: View, ordinal: int) -> Iterator[Row]:
    """The heads from a message on."""
    while ordinal < view.end:
        try:
            head = view.head(ordinal)
        except Corrupt as error:
            yield Row(ordinal, {}, problem=str(error))
            ordinal = max(error.next_ordinal or view.end, ordinal + 1)
        else:
            yield Row(head.ordinal, said(head))
            ordinal = head.ordinal + head.messages


def said(head: Head) -> dict[str, object]:
    """A head in words."""
    return {
        "messages": head.messages, "dress": DRESSES[head.dress], "begin": head.begin, "length": head.length,
        "place": head.place, "place_length": head.place_length, "time_ms": head.time, "epoch": head.epoch,
        "producer": head.producer, "sequence": head.sequence, "part": head.part,
        "last": bool(head.flags & FLAG_LAST), "transaction": head.transaction,
    }  # fmt: skip


def messages(view: View, ordinal: int) -> Iterator[Row]:
    """Every message from one on, taken out of whatever it came in."""
    while ordinal < view.end:
        try:
            spans = view.spans(ordinal, bytes_max=_READ_BYTES)
        except Corrupt as error:
            yield Row(ordinal, {}, problem=str(error))
            ordinal = max(error.next_ordinal or view.end, ordinal + 1)
            continue
        for span in spans:
            yield from _unfolded(view, span)
            ordinal = span.ordinal + span.count


def _unfolded(view: View, span: Span) -> Iterator[Row]:
    found = Columns(keys=True)
    found.unfold(
        span.data, span.dress, lead=span.lead, count=span.count, ordinal=span.ordinal,
        inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
    )  # fmt: skip
    bounds = view.bounds()
    times = memoryview(view.trail.times(span.ordinal, span.count, first=bounds.first_record, end=bounds.record_end))
    bodies, keys, bits = bytes(found.values), bytes(found.keys), bytes(found.key_bits)
    ends, key_ends = memoryview(found.ends).cast("i"), memoryview(found.key_ends).cast("i")
    for at in range(span.count):
        has_key = bits[at >> 3] >> (at & 7) & 1
        yield _row(
            view, span.ordinal + at, {"dress": DRESSES[span.dress], "time_ms": times.cast("q")[at]},
            keys[key_ends[at] : key_ends[at + 1]] if has_key else None, bodies[ends[at] : ends[at + 1]],
        )  # fmt: skip


def _row(view: View, ordinal: int, said: dict[str, object], key: bytes | None, body: bytes | None) -> Row:
    """A message and where its slot leads."""
    try:
        begin, size = view.trail.slot(ordinal)
    except Corrupt as error:
        return Row(ordinal, {}, problem=str(error))
    return Row(ordinal, {"begin": begin, "size": size} | said, key, body)


def changes(view: View, ordinal: int) -> Iterator[Row]:
    """Every key that was set or removed in a state log, from a message on; a removed one has no body."""
    while ordinal < view.end:
        try:
            spans = view.spans(ordinal, bytes_max=_READ_BYTES)
        except Corrupt as error:
            yield Row(ordinal, {}, problem=str(error))
            ordinal = max(error.next_ordinal or view.end, ordinal + 1)
            continue
        for span in spans:
            for at, (key, value) in enumerate(state.pairs(bytes(span.data))):
                yield _row(view, span.ordinal + at, {"state": "gone" if value is None else "set"}, key, value)
            ordinal = span.ordinal + span.count
