"""Reading without a group: a position for each partition, kept here; nothing is locked, acknowledged or moved.

    start ──► positions {partition: index} ──► fetch: one question for all partitions ──► deliveries, positions behind them

Invariants
- messages of a partition come in order, each once, as long as one reader reads
- messages that are forgotten before they were read are stepped over, and that is logged

Left to others: how long to wait when there is nothing (sync, aio).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from serai.client.incoming import OLDEST, Place, resolved, unpacked
from serai.client.line import CALL_S
from serai.client.refusals import failure
from serai.doors.jmq.schema.commands import (
    FetchIndex,
    FetchIndexAck,
    FetchPartitionMessage,
    FetchPartitionMessageAck,
    PartitionWish,
    PartitionWishes,
    TopicPartitions,
)  # fmt: skip
from serai.doors.jmq.schema.numbers import Number
from serai.errors import SeraiError

if TYPE_CHECKING:
    from serai._core.parcels import Delivery
    from serai.client.line import Line, Step

LOG = logging.getLogger("serai.client")


class Reading:
    """Where a reader is in the partitions of a topic."""

    def __init__(self, line: Line, topic: str, app: str, start: Place) -> None:
        self.line = line
        self.topic = topic
        self.app = app
        self._start = start
        self.positions: dict[int, int] = {}

    def open(self) -> Step[None]:
        """Find the positions."""
        yield from self.line.up(time.monotonic() + CALL_S)
        yield from self._place(self._partitions(), self._start)

    def seek(self, to: Place, partition: int | None) -> Step[None]:
        """Go on elsewhere."""
        yield from self._place(self._partitions() if partition is None else [partition], to)

    def _partitions(self) -> list[int]:
        return self.line.ownership[self.topic].partitions

    def _place(self, partitions: list[int], to: Place) -> Step[None]:
        places = yield from resolved(self.line, self.topic, self.app, partitions, to)
        if any(index < 0 for _, index in places):
            stored = yield from self._stored(partitions)
            places = [(number, stored[number][0 if index == OLDEST else 1]) for number, index in places]
        self.positions.update(places)

    def _stored(self, partitions: list[int]) -> Step[dict[int, tuple[int, int]]]:
        """The oldest index of each partition, and the one behind the newest."""
        command = FetchIndex(topics=[TopicPartitions(topic=self.topic, partitions=partitions)], app=self.app)
        body = yield from self.line.call(command, time.monotonic() + CALL_S)
        assert isinstance(body, FetchIndexAck)
        for row in body.topics[0].partitions:
            if row.code:
                raise failure(row.code, f"look up partition {row.partition} of {self.topic!r}")
        return {row.partition: (row.left_index, row.right_index) for row in body.topics[0].partitions}

    def fetch(self, count: int) -> Step[list[Delivery]]:
        """What there is now, from where the last fetch ended."""
        link = yield from self.line.up(time.monotonic() + CALL_S)
        del link
        for number in self._partitions():  # partitions that were added are read from their start
            self.positions.setdefault(number, 0)
        wishes = [PartitionWish(partition=each, count=count, index=index) for each, index in self.positions.items()]
        command = FetchPartitionMessage(topics=[PartitionWishes(topic=self.topic, partitions=wishes)], app=self.app)
        body = yield from self.line.call(command, time.monotonic() + CALL_S)
        assert isinstance(body, FetchPartitionMessageAck)
        found = []
        for row in body.data[0].partitions:
            if row.code == Number.INDEX_OUT_OF_RANGE:
                yield from self._step_over(row.partition)
            elif row.code:
                raise failure(row.code, f"read partition {row.partition} of {self.topic!r}")
            elif row.count:
                delivery = unpacked(row.messages, self.topic, row.partition, row.index, row.lead, row.count)
                self.positions[row.partition] = delivery.next_index
                found.append(delivery)
        return found

    def _step_over(self, partition: int) -> Step[None]:
        """The messages wanted are not there any more, or not yet."""
        first, end = (yield from self._stored([partition]))[partition]
        index = self.positions[partition]
        if first <= index <= end:
            return
        if index > end:
            raise SeraiError(f"index {index} of partition {partition} is behind the end of {self.topic!r}, {end}")
        LOG.warning("messages %d to %d of partition %d of %r are forgotten", index, first - 1, partition, self.topic)
        self.positions[partition] = first
