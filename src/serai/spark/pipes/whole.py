"""Whether records are whole, thousands at once: what the walk of `log.audit` checks, as arithmetic over arrays.

    records    checksums; heads as the record index says                             the compiled trail
    heads      each begins where the one before it ends, in ordinals, places, parts; times do not fall
    messages   walked, counted, as many as each head says                            the compiled census
    slots      each leads to its message

A run is whole or it is not: what is wrong, and where, the walk says, record by record.  So this is for speed alone: a record of
one message costs the walk 7 us of a core, and this 1.2, nearly all of it reading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from serai import limits
from serai._core.messages import census
from serai._core.records import FLAG_LAST, HEAD_BYTES, RECORD_BYTES
from serai.errors import Corrupt, OutOfRange
from serai.log.format import HEAD, HEAD_FIELDS, PUBLISHED, RECORD, SLOT, SLOT_BYTES

if TYPE_CHECKING:
    from serai._core.messages import Census
    from serai._core.spans import Span
    from serai.log.folder import Folder
    from serai.log.store import PageFiles
    from serai.log.view import View

    Array = np.ndarray[Any, Any]

RUN_RECORDS = 4096
FEW = 20  # messages of a record; of larger ones the walk costs less than this
HEADS = np.dtype([(name, f"<{code}") for name, code in zip(HEAD_FIELDS, HEAD.format[1:], strict=True)])
SLOTS = np.dtype([("begin", "<i8"), ("size", "<i4"), ("tag", "<u4")])
assert (HEADS.itemsize, SLOTS.itemsize) == (HEAD_BYTES, SLOT.size)


class Odd(Exception):
    """Something is not as it should be, or went away meanwhile."""


def whole(view: View, start: int, stop: int) -> tuple[Array, Array] | None:
    """The heads of the records of a stretch of the record index and where they lie, if all is well; else None."""
    try:
        return Run(view, start, stop).looked_at()
    except (Odd, Corrupt, OutOfRange, ValueError, IndexError, OSError):
        return None


class Run:
    """One stretch, and the record before it, as its end says how the stretch has to begin."""

    def __init__(self, view: View, start: int, stop: int) -> None:
        self.view = view
        self.bounds = view.bounds()
        self.low = max(start - RECORD_BYTES, self.bounds.first_record)
        self.skip = (start - self.low) // RECORD_BYTES
        self.stop = stop
        raw = stretch(view.folder.record_files, self.low, stop)
        self.ordinals, self.places, self.begins, self.times = np.frombuffer(raw, "<i8").reshape(-1, RECORD.size // 8).T
        need(self.ordinals[-1] - self.ordinals[0] < FEW * len(self.ordinals))

    def looked_at(self) -> tuple[Array, Array]:
        spans = self.view.trail.spans(  # compares every checksum, and every head with its entry of the index
            int(self.ordinals[0]), first=self.low, end=self.stop, limit=self.bounds.end, bytes_max=1 << 62,
            messages_max=1 << 62, oversize=True,
        )  # fmt: skip
        heads = heads_at(self.view.folder, self.begins)
        self._chain(heads)
        self._messages(heads, spans)
        return heads[self.skip :], self.begins[self.skip :]

    def _chain(self, heads: Array) -> None:
        """What each record says of the next one."""
        counts = heads["messages"].astype(np.int64)
        parts = heads["part"].astype(np.int64)
        last = (heads["flags"] & FLAG_LAST).astype(bool)
        need(
            (heads["ordinal"] == self.ordinals).all() and (counts > 0).all(),
            (self.ordinals[1:] == self.ordinals[:-1] + counts[:-1]).all(),
            (self.places[1:] == self.places[:-1] + heads["place_length"][:-1]).all(),
            (np.diff(self.times) >= 0).all(),
            (parts[1:] == np.where(last[:-1], 0, parts[:-1] + 1)).all(),
        )
        if not self.skip:
            begin = (self.bounds.first, self.view.places()[0], 0)
            need((self.ordinals[0], self.places[0], parts[0]) == begin)

    def _messages(self, heads: Array, spans: list[Span]) -> None:
        """What the messages are, against heads and slots; laid end to end, a span holds those of some records."""
        lengths, counts = heads["length"].astype(np.int64) - HEAD_BYTES, heads["messages"].astype(np.int64)
        ends = np.cumsum(lengths)
        starts = ends - lengths
        found = [self._census(span) for span in spans]
        edges = np.cumsum([0, *(len(span.data) for span in spans)])
        entry = np.concatenate(
            [np.frombuffer(one.starts, "<i4") + edge for one, edge in zip(found, edges, strict=False)]
        )
        held = np.concatenate([np.frombuffer(one.counts, "<i4") for one in found])
        of = np.searchsorted(starts, entry, side="right") - 1
        firsts = np.searchsorted(starts, edges[:-1])
        need(
            edges[-1] == ends[-1] and (starts[firsts] == edges[:-1]).all(),  # spans and
            (entry[np.searchsorted(entry[:-1], starts)] == starts).all(),  # entries end where their records do
            (np.bincount(of, held, len(heads)) == counts).all(),
            (
                np.add.reduceat(heads["place_length"].astype(np.int64), firsts) == [one.jafka_bytes for one in found]
            ).all(),
        )
        first, last = int(self.ordinals[0]), int(self.ordinals[-1] + counts[-1])
        slots = np.frombuffer(stretch(self.view.folder.slot_files, first * SLOT_BYTES, last * SLOT_BYTES), SLOTS)
        need(
            (slots["tag"] == PUBLISHED << 24).all(),
            (slots["begin"] == np.repeat((self.begins + HEAD_BYTES - starts)[of] + entry, held)).all(),
            (slots["size"] == np.repeat(np.diff(entry, append=edges[-1]), held)).all(),
        )

    def _census(self, span: Span) -> Census:
        return census(
            span.data, span.dress, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
            jafka_magic=self.view.folder.format.jafka_magic,
        )  # fmt: skip


def need(*facts: Any) -> None:
    if not all(facts):
        raise Odd


def stretch(files: PageFiles, start: int, stop: int) -> bytes:
    """Bytes of a stream as its files have them; all of them or an error."""
    out = []
    while start < stop:
        number, position = divmod(start, files.page_bytes)
        size = min(stop - start, files.page_bytes - position)
        with open(files.path(number), "rb") as file:
            out.append(os.pread(file.fileno(), size, position))
        need(len(out[-1]) == size)
        start += size
    return b"".join(out)


def heads_at(folder: Folder, begins: Array) -> Array:
    """The heads at these places of the data, which the trail has just read."""
    found = np.empty((len(begins), HEAD_BYTES), np.uint8)
    pages = begins // folder.page_bytes
    for number in np.unique(pages).tolist():
        here = pages == number
        held = folder.data(number * folder.page_bytes, HEAD_BYTES)
        if held is None:
            raise Odd
        raw = np.frombuffer(memoryview(held[0]), np.uint8)
        found[here] = raw[(begins[here] - number * folder.page_bytes)[:, None] + np.arange(HEAD_BYTES)]
    return found.view(HEADS).ravel()
