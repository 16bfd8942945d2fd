"""Positions as they stand in a checkpoint and in options.

    {"epoch": {"orders": {"0": "5d41402a"}}, "topics": {"orders": {"0": 1500, "1": 1499}}, "v": 1}

A number is the *next* position of a partition.  `epoch` holds each log's mark as far as that position, so that a
log which was deleted and made again is told from the one the query knew.  This JSON is in checkpoints for ever:
`v` is its version, and older ones stay readable.

Where a query begins and ends is said in one of four ways, of which the first given wins:

    startingTimestamp             one time for all: milliseconds, ISO text, `now-10m`
    startingOffsetsByTimestamp    {"orders": {"0": time}}
    startingOffsets               earliest, latest, -1000 (before the end), {"orders": {"0": 1500}}; -2 and -1 there
                                  mean earliest and latest
"""

import datetime as dt
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serai.errors import Misuse
from serai.spark.options import Options, duration_ms
from serai.spark.slices import Log

VERSION = 1
EARLIEST = -2
LATEST = -1
Key = tuple[str, int]


@dataclass
class Offsets:
    """The next position of each partition, and the mark of the log it belongs to."""

    positions: dict[Key, int] = field(default_factory=dict)
    marks: dict[Key, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Keys are sorted: Spark compares the text in places."""
        topics: dict[str, dict[str, int]] = {}
        epoch: dict[str, dict[str, str]] = {}
        for key in sorted(self.positions):
            topics.setdefault(key[0], {})[str(key[1])] = self.positions[key]
            if self.marks.get(key):
                epoch.setdefault(key[0], {})[str(key[1])] = self.marks[key]
        return {"epoch": epoch, "topics": topics, "v": VERSION}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "Offsets":
        if given.get("v") != VERSION:
            raise Misuse(
                f"the checkpoint's offsets have version {given.get('v')!r}, this serai reads version {VERSION}: was the "
                "checkpoint written by a newer serai, or by another source?"
            )
        return cls(dict(_flat(given["topics"])), dict(_flat(given.get("epoch", {}))))


def _flat(tree: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[Key, Any]]:
    for topic, partitions in tree.items():
        for partition, value in partitions.items():
            yield (topic, int(partition)), value


def key_of(log: Log) -> Key:
    return (log.topic, log.partition)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def read_time(text: str | int, *, name: str, now: int) -> int:
    """Milliseconds since 1970 of `1700000000000`, `2026-11-19T02:00:00` (UTC unless it says else) or `now-10m`."""
    words = str(text).strip()
    if words.isdecimal():
        return int(words)
    if words == "now":
        return now
    back = re.fullmatch(r"now\s*-\s*(.+)", words)
    try:
        if back is not None:
            return now - duration_ms(back[1])
        moment = dt.datetime.fromisoformat(words)
    except ValueError:
        raise Misuse(f"option {name} is {text!r}; a time is milliseconds since 1970, ISO text, or now-10m") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1000)


def starting(options: Options, logs: list[Log], *, default: int, ends: Mapping[Key, int]) -> dict[Key, int]:
    """Where each log is read from; `default` is EARLIEST or LATEST."""
    chosen = _Chosen(
        "starting", options.starting_timestamp, options.starting_offsets_by_timestamp, options.starting_offsets,
        options.no_time_match,
    )  # fmt: skip
    return {key_of(log): chosen.position(log, ends[key_of(log)], default) for log in logs}


def ending(options: Options, logs: list[Log], *, ends: Mapping[Key, int]) -> dict[Key, int]:
    """Where a batch ends in each log; no time that late means the end."""
    chosen = _Chosen(
        "ending", options.ending_timestamp, options.ending_offsets_by_timestamp, options.ending_offsets, "latest"
    )
    return {key_of(log): chosen.position(log, ends[key_of(log)], LATEST) for log in logs}


class _Chosen:
    """One of the ways to say where, read and checked."""

    def __init__(self, side: str, moment: str | None, moments: str | None, offsets: str | None, no_match: str) -> None:
        self._side = side
        self._no_match = no_match
        self._now = now_ms()
        self._moment = None if moment is None else read_time(moment, name=f"{side}Timestamp", now=self._now)
        self._moments = None if moments is None else _tree(moments, f"{side}OffsetsByTimestamp")
        self._offsets: Any = offsets
        if offsets is not None and offsets.strip().startswith("{"):
            self._offsets = _tree(offsets, f"{side}Offsets")

    def position(self, log: Log, end: int, default: int) -> int:
        if self._moment is not None:
            return self._at(log, self._moment, end)
        if self._moments is not None and key_of(log) in self._moments:
            name = f"{self._side}OffsetsByTimestamp"
            return self._at(log, read_time(self._moments[key_of(log)], name=name, now=self._now), end)
        if self._offsets is None:
            return _named(log, default, end)
        if isinstance(self._offsets, dict):
            return self._told(log, end)
        return self._worded(log, str(self._offsets).strip().lower(), end)

    def _at(self, log: Log, moment: int, end: int) -> int:
        found = log.at_time(moment)
        if found >= end and self._side == "starting" and self._no_match == "error":
            raise Misuse(
                f"topic {log.topic} partition {log.partition} has no message as new as {moment} ms; "
                "startingOffsetsByTimestampStrategy=latest would start at the end"
            )
        return min(found, end)

    def _told(self, log: Log, end: int) -> int:
        if key_of(log) not in self._offsets:
            raise Misuse(f"option {self._side}Offsets says nothing about topic {log.topic} partition {log.partition}")
        told = self._offsets[key_of(log)]
        if type(told) is not int or told < EARLIEST:
            raise Misuse(f"option {self._side}Offsets says {told!r} for topic {log.topic}; it is a position, -2 or -1")
        return _named(log, told, end)

    def _worded(self, log: Log, words: str, end: int) -> int:
        if words == "earliest":
            return log.first()
        if words == "latest":
            return end
        if re.fullmatch(r"-\d+", words):
            return max(log.first(), end + int(words))
        if words == "committed":
            raise Misuse(
                f"option {self._side}Offsets: a log on this machine keeps no position of a group; say earliest or latest"
            )
        raise Misuse(f"option {self._side}Offsets is {words!r}; it is earliest, latest, -1000 or JSON of positions")


def _named(log: Log, told: int, end: int) -> int:
    return log.first() if told == EARLIEST else end if told == LATEST else told


def _tree(text: str, name: str) -> dict[Key, Any]:
    try:
        return dict(_flat(json.loads(text)))
    except (ValueError, AttributeError):
        raise Misuse(f'option {name} is {text!r}; it is JSON, as {{"orders": {{"0": 1500}}}}') from None
