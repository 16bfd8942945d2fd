"""Long polls: who is looked at when something may have changed, and what is due when.

    an append, a freed lease, a changed setting  --stir-->  groups and partitions  --turn-->  waits finished
    the end of a lease or of a delay             --due--->

Everything that one round of the gate stirs is looked at once, in `turn`, so a round of many appends costs one look
and the answers are large.

Invariants
- the longest waiting is served first
- a poll that could not be served is looked at again when the lease or the delay that keeps it waiting ends
- a wait whose time is over in this turn is served once more before it ends empty
- nobody waits for a partition that went away

Left to others: what there is for whom (`delivery`), where waits are kept (`waits`).
"""

from __future__ import annotations

from typing import Any

from serai.broker.delivery import Delivery, Fetch, Reading, deliver, nothing, read
from serai.broker.groups import Group
from serai.broker.rights import Rights
from serai.broker.sessions import Session
from serai.broker.topics import Partition, Topic
from serai.broker.waits import NEVER_MS, Lot, Wait
from serai.errors import Refused, SeraiError


class Polls:
    """The groups and partitions somebody waits for."""

    __slots__ = ("grown", "lot", "rights", "stirred")

    def __init__(self, lot: Lot, rights: Rights) -> None:
        self.lot = lot
        self.rights = rights
        self.stirred: dict[Group, None] = {}  # groups whose pollers are to be looked at
        self.grown: dict[Partition, None] = {}  # partitions whose readers are

    def poll(self, fetch: Fetch, deadline_ms: int) -> Wait[Delivery]:
        """Park a fetch that found nothing."""
        group = fetch.consumer.group
        wait = Wait(fetch.consumer.session, deadline_ms, nothing(group.topic))
        self.lot.park(wait)
        wait.queue = group.pollers
        group.pollers[wait] = fetch
        group.topic.polled[group] = None
        self.look_later(group)
        return wait

    def follow(self, place: Partition, reading: Reading, session: Session | None, deadline_ms: int) -> Wait[Delivery]:
        """Park a read at the end of a partition."""
        wait = Wait(session, deadline_ms, nothing(place.topic))
        self.lot.park(wait)
        wait.queue = place.readers
        place.readers[wait] = reading
        return wait

    def turn(self, now_ms: int) -> list[Wait[Any]]:
        """Look at everything that was stirred or is due; the waits that are finished."""
        late: list[Wait[Any]] = []
        if self.lot.deadlines.next_ms <= now_ms:
            for thing in self.lot.deadlines.due(now_ms):
                if isinstance(thing, Wait):
                    late.append(thing)
                elif isinstance(thing, Group):
                    thing.wake_ms = NEVER_MS
                    self.stirred[thing] = None
        if self.stirred:
            stirred, self.stirred = self.stirred, {}
            for group in stirred:
                self.serve_pollers(group, now_ms)
        if self.grown:
            grown, self.grown = self.grown, {}
            for place in grown:
                self.serve_readers(place)
        for wait in late:
            self.lot.end_late(wait)
        return self.lot.hand_over()

    def stir_group(self, group: Group) -> None:
        if group.pollers:
            self.stirred[group] = None

    def stir(self, place: Partition) -> None:
        """More can be read in a partition."""
        self.stirred.update(place.topic.polled)
        if place.readers:
            self.grown[place] = None

    def reconsider(self, topic: Topic | None) -> None:
        """Settings of a topic changed: whoever waits for it is looked at."""
        if topic is not None:
            self.stirred.update(topic.polled)

    def abandon(self, place: Partition, refusal: Refused, *, keep_pollers: bool = False) -> None:
        """Nothing more comes from a partition: nobody is left hanging."""
        for wait in list(place.readers):
            self.lot.fail(wait, refusal)
        self.lot.abandon(place.log)
        for group in place.topic.groups.values():
            if keep_pollers:
                self.stir_group(group)
                continue
            for wait in list(group.pollers):
                self.lot.fail(wait, refusal)

    def serve_pollers(self, group: Group, now_ms: int) -> None:
        """Give what there is to those who wait, the longest waiting first."""
        for wait, fetch in list(group.pollers.items()):
            consumer = fetch.consumer
            try:
                if consumer.stamp != self.rights.catalogue.stamp:
                    self.rights.check(consumer)
                consumer.check()
                delivery = deliver(fetch, now_ms)
            except (SeraiError, OSError) as error:
                self.lot.fail(wait, error)
                continue
            if delivery is not None:
                self.lot.finish(wait, delivery)
            elif not consumer.policy.max_partitions:
                break  # what this one cannot have, the others cannot have either
        if group.pollers:
            self.look_later(group)
        else:
            group.topic.polled.pop(group, None)

    def look_later(self, group: Group) -> None:
        """Be woken when a lease or a delay ends, if that is what the pollers of a group wait for."""
        if group.due_ms < group.wake_ms:
            group.wake_ms = group.due_ms
            self.lot.deadlines.add(group.due_ms, group)

    def serve_readers(self, place: Partition) -> None:
        for wait, reading in list(place.readers.items()):
            try:
                delivery = read(place, reading)
            except (SeraiError, OSError) as error:
                self.lot.fail(wait, error)
                continue
            if delivery is not None:
                self.lot.finish(wait, delivery)
