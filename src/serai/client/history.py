"""Histories: what producers and consumers saw, written down while it happens, and whether a broker may do such things.

One event is a line of JSON.  A message is named by who sent it and its number, which count up in the order of sending.

    {"event": "send", "who": "p1", "number": 7, "sum": 3735928559}                     about to be sent; sum: CRC-32 of its body
    {"event": "stored", "who": "p1", "number": 7, "partition": 0, "index": 41}         acknowledged to the producer
    {"event": "failed", "who": "p1", "number": 7}                                      surely not stored
    {"event": "unknown", "who": "p1", "number": 7}                                     stored or not
    {"event": "received", "group": "g", "who": "p1", "number": 7, "sum": 3735928559, "partition": 0, "index": 41}
    {"event": "done", "group": "g", "partition": 0, "index": 41, "count": 1}           the server confirmed the acknowledgement
    {"event": "end", "group": "g"}                                                     the group received all there is

What is forbidden

    lost        stored, and a group that came to the end never received it
    doubled     stored in two places; or received by a group that had its acknowledgement confirmed before
    moved       received elsewhere than where it was stored; or behind a later message of its sender in the same partition
    altered     received with other bytes than it was sent with; or never sent; or surely not stored and received nevertheless

Left to others: sending and receiving (tests, users), words and exit codes (`serai check history`).
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Iterable

MEMBERS: dict[str, dict[str, type]] = {
    "send": {"who": str, "number": int, "sum": int},
    "stored": {"who": str, "number": int, "partition": int, "index": int},
    "failed": {"who": str, "number": int},
    "unknown": {"who": str, "number": int},
    "received": {"group": str, "who": str, "number": int, "sum": int, "partition": int, "index": int},
    "done": {"group": str, "partition": int, "index": int, "count": int},
    "end": {"group": str},
}


class Recorder:
    """Writes events to a file, from any thread."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def note(self, event: str, **members: str | int) -> None:
        """One event, now."""
        line = json.dumps({"event": event, **members})
        with self._lock:
            self._file.write(f"{line}\n")


class Name(NamedTuple):
    """Which message."""

    who: str
    number: int

    def __str__(self) -> str:
        return f"{self.who}-{self.number}"


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """Where it is."""

    partition: int
    index: int

    def __str__(self) -> str:
        return f"partition {self.partition}, index {self.index}"


class Finding(NamedTuple):
    """What must not be."""

    kind: str
    message: str
    line: int
    text: str


@dataclass
class Seen:
    """What a history says, gathered."""

    sums: dict[Name, int] = field(default_factory=dict)
    stored: dict[Name, tuple[Place, int]] = field(default_factory=dict)
    failed: set[Name] = field(default_factory=set)
    unknown: int = 0
    received: dict[str, dict[Name, Place]] = field(default_factory=dict)
    places: dict[Place, Name] = field(default_factory=dict)
    done: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def found(self, kind: str, name: Name, line: int, text: str) -> None:
        """Something that must not be; of each message and kind the first is enough."""
        if not any(each.kind == kind and each.message == str(name) for each in self.findings):
            self.findings.append(Finding(kind, str(name), line, text))


def check(lines: Iterable[str]) -> Seen:
    """Read a history and look for what must not be; Misuse when a line is none."""
    seen = Seen()
    for number, line in enumerate(lines, 1):
        if line.strip():
            _take(seen, number, _event(number, line))
    _look_for_lost(seen)
    _look_at_order(seen)
    seen.findings.sort(key=lambda each: each.line)
    return seen


def _event(number: int, line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        members = MEMBERS[event["event"]]
    except (ValueError, KeyError, TypeError):
        raise Misuse(f"line {number} is no event of a history: {line[:80].strip()!r}") from None
    for name, kind in members.items():
        if type(event.get(name)) is not kind:
            raise Misuse(f"line {number}: {event['event']!r} needs {name!r}, {kind.__name__}, not {event.get(name)!r}")
    return dict(event)


def _take(seen: Seen, line: int, event: dict[str, Any]) -> None:
    match event:
        case {"event": "done", "group": group, "partition": partition, "index": index, "count": count}:
            seen.done.setdefault((group, partition), []).append((index, index + count))
        case {"event": "end", "group": group}:
            seen.ended[group] = line
        case {"event": kind, "who": who, "number": number}:
            name = Name(who, number)
            if kind == "send":
                seen.sums[name] = event["sum"]
            elif kind == "stored":
                seen.stored[name] = Place(event["partition"], event["index"]), line
            elif kind == "failed":
                seen.failed.add(name)
            elif kind == "unknown":
                seen.unknown += 1
            else:
                _receive(seen, line, name, event)


def _receive(seen: Seen, line: int, name: Name, event: dict[str, Any]) -> None:
    group, place = event["group"], Place(event["partition"], event["index"])
    if name not in seen.sums:
        seen.found("altered", name, line, f"received from {place}, but nobody sent such a message")
    elif seen.sums[name] != event["sum"]:
        seen.found("altered", name, line, f"sent with sum {seen.sums[name]}, received from {place} with {event['sum']}")
    if name in seen.failed:
        seen.found("altered", name, line, f"refused, surely not stored, and received from {place} nevertheless")
    holder = seen.places.setdefault(place, name)
    if holder != name:
        seen.found("moved", name, line, f"received from {place}, where {holder} was received before")
    before = seen.received.setdefault(group, {}).setdefault(name, place)
    if before != place:
        seen.found("doubled", name, line, f"stored twice: received from {before} and from {place}")
    for start, stop in seen.done.get((group, place.partition), ()):
        if start <= place.index < stop:
            seen.found("doubled", name, line, f"delivered to {group} again, whose acknowledgement was confirmed")
            break


def _look_for_lost(seen: Seen) -> None:
    for name, (place, line) in seen.stored.items():
        for group in seen.ended:
            got = seen.received.get(group, {}).get(name)
            if got is None:
                seen.found("lost", name, line, f"stored at {place}, and {group} never received it")
            elif got != place:
                seen.found("moved", name, line, f"stored at {place}, and received from {got}")


def _look_at_order(seen: Seen) -> None:
    """Within a partition, the messages of a sender stand in the order in which they were sent."""
    last: dict[tuple[str, int], Name] = {}
    known = {place: name for name, (place, _) in seen.stored.items()} | seen.places
    for place in sorted(known):
        name = known[place]
        before = last.get((name.who, place.partition))
        if before is not None and before.number > name.number:
            line = seen.stored[name][1] if name in seen.stored else 0
            seen.found("moved", name, line, f"stands at {place}, behind {before}, which was sent later")
        last[name.who, place.partition] = name
