"""Batches that a pipeline plans in its own process, when its tasks need no query but only work to do.

    <place>/batch.json     {"v": 1, "query": "...", "batch": 7, "start": {...}, "end": {...}}

The reader of a stream says where a batch ends, as it would to Spark; the batch is written down and flushed before it is
given out.  Whoever does the work keeps the number beside the result, and says with `done` which one that was: so a batch
that was cut off comes again with the same number and the same positions, and one that is there does not.

A streaming query does the same, but it starts a Python of its own for the reader and plans each batch in the JVM: about
1.2 seconds of processor for a run, which is what three million messages take (`make bench-spark`).
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serai.errors import Corrupt, Misuse
from serai.spark.offsets import Offsets
from serai.spark.pipes import batches
from serai.spark.pipes.place import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from serai.spark.slices import Slice
    from serai.spark.source import Stream

VERSION = 1


@dataclass(frozen=True)
class Batch:
    """What one round of tasks is to do."""

    query: str
    number: int
    slices: Sequence[Slice]
    behind: int | None  # positions that were there, and are in none of the batches so far

    @property
    def rows(self) -> int:
        return sum(map(len, self.slices))


class Planned:
    """The batches of a place, one after the other."""

    def __init__(self, stream: Stream, place: Path, done: Callable[[str], int]) -> None:
        self._stream = stream
        self._path = place / BATCH
        self._done = done
        self._state = self._remembered()

    def _remembered(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"v": VERSION, "query": str(uuid.uuid4()), "batch": -1, "start": None, "end": None}
        except ValueError as error:
            raise Corrupt(f"{self._path} is no JSON: {error}", file=str(self._path)) from None
        if state.get("v") != VERSION:
            raise Misuse(f"{self._path} has version {state.get('v')!r}, this serai reads version {VERSION}")
        return state

    def until_now(self) -> None:
        """From now on nothing is given out that comes later."""
        self._stream.prepareForTriggerAvailableNow()

    def next(self) -> Batch | None:
        """The batch to do now: the one that was cut off, or what came since; None when nothing did."""
        if self._state["batch"] <= self._done(self._state["query"]) and not self._plan():
            return None
        state = self._state
        slices = list(self._stream.partitions(state["start"], state["end"]))
        return Batch(state["query"], state["batch"], slices, self._behind())  # type: ignore[arg-type]  # all are slices

    def _plan(self) -> bool:
        state = self._state
        start = state["end"] or self._stream.initialOffset()
        end = self._stream.latestOffset(start, self._stream.getDefaultReadLimit())
        if end == start:
            return False
        self._state = state | {"batch": state["batch"] + 1, "start": start, "end": end}
        batches.keep(self._path, self._state)
        return True

    def _behind(self) -> int | None:
        latest = self._stream.reportLatestOffset()
        if latest is None:
            return None
        there, end = Offsets.from_json(latest).positions, Offsets.from_json(self._state["end"]).positions
        return max(sum(there[key] - end.get(key, 0) for key in there), 0)

    def close(self) -> None:
        self._stream.stop()
