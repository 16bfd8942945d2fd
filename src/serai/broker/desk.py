"""The broker's one face: every request of every door ends in a call of `Broker`.

    enter, leave                                 who is connected
    ensure                                       topics and subscriptions at first use
    may_produce, produce, park, verdict          messages in
    add_consumer, fetch, ack, release, renew     messages out, with the partition's lock
    fetch_at, index, seek, at_time               messages out, without
    describe, topics, groups, counts             what there is
    create_topic ... remove_subscription         changes
    moved, turn, effects, done, tidy             what the gate feeds

A round of the gate: handle everything one read brought, run `effects`, feed `done`, then `turn` gives the waits
that are finished.  Long polls are looked at in `turn`, once for everything a round appended.

Invariants
- a call changes nothing if it refuses
- `turn` hands over every finished wait once, and `next_ms` says when it must be called at the latest
- messages of one call are stored together or not at all, calls of one session in their order

Left to others: see the room's opening.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from serai import limits
from serai.broker.catalogue import POSITIONS, Catalogue, Effect, Subscription
from serai.broker.delivery import Delivery, Fetch, Reading, deliver, nothing, read
from serai.broker.forgetting import retain
from serai.broker.groups import NEWEST, OLDEST, POSITION, Share, bounds, position_key
from serai.broker.names import app_of, check_name, hash_of
from serai.broker.polls import Polls
from serai.broker.rights import Rights
from serai.broker.sessions import Consumer, Producer, Session
from serai.broker.topics import PRODUCE, Node, Owner, Partition, Topic, number_in
from serai.broker.views import Counts, Description, GroupView, Index, described, is_near, named_groups, viewed
from serai.broker.waits import NEVER_MS, Lot, Wait
from serai.errors import OutcomeUnknown, Refused, SeraiError
from serai.log.engine import Level

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from serai.log.engine import Engine, Log, Ticket

Tickets = list["Ticket"]


class Broker:
    """The state of one node's broker, and every request there is."""

    def __init__(self, engine: Engine, *, node: Node, auto_create: bool, level: Level) -> None:
        self.engine = engine
        self.node = node
        self.auto_create = auto_create
        self.level = level
        self.catalogue = Catalogue(engine)
        self.positions = engine.state(POSITIONS)
        self.sessions: dict[str, Session] = {}
        self._lot = Lot()
        self.noted = self._lot.noted  # taken by the gate, which measures how long that waits
        self._rights = Rights(self.catalogue, self.positions)
        self._polls = Polls(self._lot, self._rights)
        self._entered = 0
        self._forgetting: list[str] = []  # topics that `tidy` still has to visit this time round
        self.produced_sets = 0
        self.produced_messages = 0
        self.produced_bytes = 0

    # ---- who is connected ---------------------------------------------------------------------------

    def enter(
        self, app: str, *, now_ms: int, address: str = "", client: bytes = b"", region: str = "", language: str = "",
        version: str = "",
    ) -> Session:  # fmt: skip
        """Somebody connected."""
        self._entered += 1
        session = Session(f"{self.engine.epoch}-{self._entered}", check_name(app, what="an application"), now_ms)
        session.address, session.client, session.region = address, client, region
        session.language, session.version = language, version
        self.sessions[session.id] = session
        return session

    def leave(self, session: Session) -> None:
        """A connection is gone: its leases end, what it has parked is forgotten."""
        if self.sessions.pop(session.id, None) is None:
            return
        session.gone = True
        for wait in list(session.waits):
            self._lot.drop(wait)
        for name, group in list(session.consumers):
            self.remove_consumer(session, name, group)
        session.producers.clear()

    def ensure(
        self, session: Session, names: Iterable[str], *, app: str, now_ms: int, produces: bool = False, consumes: bool = False
    ) -> Wait[None] | None:  # fmt: skip
        """Make what is about to be used, if that is allowed and it is not there; None: go on."""
        if not self.auto_create:
            return None
        roles = [role for role, wanted in (("producer", produces), ("consumer", consumes)) if wanted]
        topics = self.catalogue.topics
        names = list(names)
        for name in names:
            topic = topics.get(name)
            if (
                topic is None
                or topic.leaving
                or not all(self.catalogue.has(topic, role, app_of(app)) for role in roles)
            ):
                break
        else:
            return None
        effect = self.catalogue.plan_first_use(names, app_of(app), roles, now_ms)
        return None if effect is None else self._await(effect, session)

    # ---- messages in --------------------------------------------------------------------------------

    def may_produce(self, session: Session, name: str, app: str) -> bool:
        """Whether that was looked up before and nothing changed since, so that nothing has to be made first."""
        route = session.routes.get((name, app))
        return route is not None and route.stamp == self.catalogue.stamp

    def produce(
        self, session: Session, name: str, data: Buffer, dress: int, *, app: str, now_ms: int, partition: int = -1,
        level: Level | None = None, key: str | None = None, producer: int = 0, sequence: int = 0, transaction: int = 0,
    ) -> Ticket:  # fmt: skip
        """Append one set of entries to one partition, together or not at all."""
        route = session.routes.get((name, app))
        if route is None or route.stamp != self.catalogue.stamp:
            route = self._rights.route(session, name, app)
        if transaction:
            raise Refused("transactions are not served yet; produce without one", code="unsupported")
        topic = route.topic
        if partition < 0:
            partition = self._choose(topic, key)
        place = topic.opened.get(partition)
        if place is None or topic.strangers:
            place = topic.partition(partition, PRODUCE)
        ticket = place.log.append(
            data, dress, level=route.level or (self.level if level is None else level), now_ms=now_ms,
            client=session.client, app=route.app, partition=partition, producer=producer, sequence=sequence,
        )  # fmt: skip
        self.produced_sets += 1
        self.produced_messages += ticket.count
        self.produced_bytes += len(data)  # type: ignore[arg-type]  # every buffer a door has is a bytes-like with a length
        if topic.polled or place.readers:
            self._polls.stir(place)
        return ticket

    def park(self, session: Session, tickets: Tickets, *, deadline_ms: int) -> Wait[Tickets]:
        """Wait until all tickets are done or failed."""
        wait: Wait[Tickets] = Wait(session, deadline_ms, tickets)
        self._lot.park_tickets(wait, tickets)
        return wait

    def verdict(self, ticket: Ticket) -> SeraiError | None:
        """What became of a ticket: None when it is done."""
        if ticket.done:
            return None
        failed = ticket.failed
        if isinstance(failed, SeraiError):
            return failed
        if failed is not None:
            return Refused(f"{failed}; the partition can only be read", code="disk-failed")
        place = self._place_of(ticket.log)
        if place is None:
            return Refused("the topic was deleted before the answer was known", code="topic-unknown")
        if place.number in place.topic.strangers:
            return Refused("the partition changed hands before the answer was known", code="not-owner")
        return OutcomeUnknown(
            f"messages {ticket.ordinal} to {ticket.ordinal + ticket.count - 1} of partition {place.number} were not on the"
            " disk in time; they may still get there"
        )

    def partition_for(self, name: str, key: str) -> int:
        """The number of the partition where messages of a key stand in order."""
        return self._choose(self.catalogue.find(name), key)

    def partition_of(self, ticket: Ticket) -> int:
        """The number of the partition a ticket is of."""
        return number_in(ticket.log.name)

    # ---- messages out, with the lock ----------------------------------------------------------------

    def add_consumer(self, session: Session, name: str, group: str, now_ms: int) -> Consumer:
        """Register a consumer; again: the same."""
        consumer = session.consumers.get((name, group))
        if consumer is None:
            session.check_room(len(session.consumers))
            consumer = session.consumers[name, group] = Consumer(session, self._rights.group(name, group))
        self._rights.check(consumer)
        consumer.group.active_ms = now_ms
        return consumer

    def add_producer(self, session: Session, name: str, app: str) -> Producer:
        """Register a producer; again: the same."""
        route = self._rights.route(session, name, app)
        producer = session.producers.get((name, app))
        session.check_room(len(session.producers))
        if producer is None or producer.topic is not route.topic:
            producer = session.producers[name, app] = Producer(session, route.topic, app)
        return producer

    def consumer(self, session: Session, name: str, group: str) -> Consumer:
        """A registered consumer."""
        try:
            return session.consumers[name, group]
        except KeyError:
            raise Refused(
                f"no consumer of topic {name!r} for {group!r} is registered here", code="consumer-unknown"
            ) from None

    def producer(self, session: Session, name: str, app: str) -> Producer:
        """A registered producer."""
        try:
            return session.producers[name, app]
        except KeyError:
            raise Refused(
                f"no producer of topic {name!r} for {app!r} is registered here", code="producer-unknown"
            ) from None

    def remove_consumer(self, session: Session, name: str, group: str) -> None:
        """A consumer is gone: its leases end, its polls are forgotten."""
        consumer = session.consumers.pop((name, group), None)
        if consumer is None:
            return
        for share in list(consumer.held):
            self._free(share)
        for wait, fetch in list(consumer.group.pollers.items()):
            if fetch.consumer is consumer:
                self._lot.drop(wait)

    def remove_producer(self, session: Session, name: str, app: str) -> None:
        """A producer is gone."""
        session.producers.pop((name, app), None)

    def fetch(
        self, consumer: Consumer, *, count: int, bytes_max: int, now_ms: int, ack_timeout_ms: int = 0, wait_ms: int = 0
    ) -> Delivery | Wait[Delivery]:
        """The next messages for a consumer, leased; with `wait_ms` a wait when there are none."""
        if consumer.stamp != self.catalogue.stamp:
            self._rights.check(consumer)
        consumer.check()
        if not consumer.group.topic.order:
            raise consumer.group.topic.no_owner()
        policy = consumer.policy
        fetch = Fetch(
            consumer,
            policy.batch_size if count <= 0 else min(count, limits.FETCH_COUNT_MAX),
            max(1, min(bytes_max, limits.FETCH_BYTES_MAX)),
            policy.ack_timeout_ms if ack_timeout_ms <= 0 else min(ack_timeout_ms, limits.LEASE_MS_MAX),
        )
        consumer.group.active_ms = now_ms
        delivery = deliver(fetch, now_ms)
        if delivery is not None:
            return delivery
        group = consumer.group
        if wait_ms <= 0:
            return nothing(group.topic)
        return self._polls.poll(fetch, now_ms + min(wait_ms, limits.LONG_POLL_MS_MAX))

    def ack(
        self, name: str, group: str, partition: int, ordinals: Sequence[int], *, now_ms: int, failed: Sequence[int] = ()
    ) -> int:
        """Acknowledge messages without gaps from the position on; the position by now."""
        share = self._share(name, group, partition)
        share.group.active_ms = now_ms
        start, stop = bounds(ordinals, share)
        position = share.progress.position
        # A batch that was entered in its middle is acknowledged from its first member on.
        if start != position and not (share.deadline_ms and start == share.start and start < position < stop):
            return position
        if failed:
            self._free(share)
            if share.group.policy is not None and share.group.policy.retry:
                raise Refused(
                    "messages that failed cannot be stored for a retry by this server; they will be delivered again",
                    code="retry-disabled",
                )
            return position
        share.advance(stop)
        self._free(share)
        return share.progress.position

    def settle_some(self, name: str, group: str, partition: int, ranges: Iterable[range], *, now_ms: int) -> int:
        """Acknowledge messages wherever they are; the lease ends when all it has is done."""
        share = self._share(name, group, partition)
        share.group.active_ms = now_ms
        checked = [bounds(each, share) for each in ranges]
        share.settle(checked)
        if share.deadline_ms and share.progress.position >= share.stop:
            self._free(share)
        return share.progress.position

    def release(self, name: str, group: str, partition: int, *, now_ms: int, delay_ms: int = 0) -> None:
        """Give a lease back; what it had is delivered again, after a delay."""
        share = self._share(name, group, partition)
        if not share.deadline_ms:
            return
        self._free(share)
        if delay_ms > 0:
            until_ms = now_ms + min(delay_ms, limits.LEASE_MS_MAX)
            share.lease(None, start=share.start, stop=share.stop, attempt=share.attempt, deadline_ms=until_ms)

    def renew(self, name: str, group: str, partition: int, *, ack_timeout_ms: int, now_ms: int) -> int:
        """Keep a lease longer; its deadline, 0 when there is none any more."""
        share = self._share(name, group, partition)
        if share.holder is None or share.deadline_ms <= now_ms:
            return 0
        share.deadline_ms = now_ms + max(1, min(ack_timeout_ms, limits.LEASE_MS_MAX))
        return share.deadline_ms

    # ---- messages out, without the lock -------------------------------------------------------------

    def fetch_at(
        self, session: Session | None, name: str, group: str | None, partition: int, ordinal: int, *, count: int,
        bytes_max: int, now_ms: int, wait_ms: int = 0,
    ) -> Delivery | Wait[Delivery]:  # fmt: skip
        """Messages from an ordinal on, or from the group's position; nobody is kept away by that."""
        if group is not None:
            self._rights.allow(self._rights.group(name, group), session)
        place = self.catalogue.find(name).partition(partition)
        log = place.log
        if ordinal == POSITION and group is not None:
            ordinal = max(self._share(name, group, partition).progress.position, log.first)
        place.check(ordinal)
        reading = Reading(
            ordinal, min(max(count, 1), limits.FETCH_COUNT_MAX), max(1, min(bytes_max, limits.FETCH_BYTES_MAX))
        )
        delivery = read(place, reading)
        if delivery is not None:
            return delivery
        empty = nothing(place.topic)
        if wait_ms <= 0:
            return empty
        return self._polls.follow(place, reading, session, now_ms + min(wait_ms, limits.LONG_POLL_MS_MAX))

    def index(self, name: str, group: str | None, partition: int) -> Index:
        """Where a group stands, and where the partition begins and ends."""
        log = self.catalogue.find(name).partition(partition).log
        position = -1
        if group is not None:
            position = max(self._share(name, group, partition).progress.position, log.first)
        return Index(position, log.first, log.end, log.committed)

    def seek(self, name: str, group: str, partition: int, ordinal: int, *, now_ms: int) -> int:
        """Set a group's position; OLDEST and NEWEST are ordinals too."""
        share = self._share(name, group, partition)
        share.group.active_ms = now_ms
        log = share.partition.log
        to = log.first if ordinal == OLDEST else log.end if ordinal == NEWEST else ordinal
        share.partition.check(to)
        share.move(to)
        self._polls.stir_group(share.group)
        return to

    def seek_time(self, name: str, group: str, partition: int, ms: int, *, now_ms: int) -> int:
        """Set a group's position to the first message stored at a time or later."""
        return self.seek(name, group, partition, self.at_time(name, partition, ms), now_ms=now_ms)

    def at_time(self, name: str, partition: int, ms: int) -> int:
        """The first message stored at a time or later; the end if there is none."""
        return self.catalogue.find(name).partition(partition).log.ordinal_at_time(ms)

    # ---- what there is ------------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self.catalogue.topics

    @property
    def nodes(self) -> list[Node]:
        """The servers of the discovery table."""
        return [self.node]

    @property
    def counts(self) -> Counts:
        """What was done since the start."""
        groups = [group for topic in self.catalogue.topics.values() for group in topic.groups.values()]
        return Counts(
            self.produced_sets, self.produced_messages, self.produced_bytes,
            delivered=sum([group.delivered for group in groups]), acked=sum([group.acked for group in groups]),
            redelivered=sum([group.redelivered for group in groups]), waits=self._lot.count, sessions=len(self.sessions),
            topics=len(self.catalogue.topics),
        )  # fmt: skip

    def find(self, name: str) -> Topic:
        """The topic of exactly that name."""
        return self.catalogue.find(name)

    def find_ignoring_case(self, name: str) -> Topic:
        """The topic of that name, else the only one whose name differs by case alone."""
        if name in self.catalogue.topics:
            return self.catalogue.find(name)
        alike = [topic for topic in self.catalogue.topics.values() if topic.name.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else self.catalogue.find(name)

    def describe(self, name: str, app: str) -> Description:
        """A topic as an application sees it: policies and owners."""
        return described(self.catalogue, name, app_of(app), self.node.id)

    def is_near(self, node: Node, session: Session) -> bool:
        """Whether a node is in a client's region, as far as both say where they are."""
        return is_near(node, session)

    def subscriptions(self, name: str | None = None) -> list[Subscription]:
        """All subscriptions, or those of a topic."""
        by_id = self.catalogue.by_id
        rows = [
            Subscription(by_id[identity].name, app, role, dict(table))
            for (identity, role, app), table in self.catalogue.subscriptions.items()
            if identity in by_id
        ]
        return sorted((row for row in rows if name is None or row.topic == name), key=lambda row: row[:3])

    def groups(self, name: str | None = None, *, now_ms: int) -> list[GroupView]:
        """All groups, or those of a topic, with their positions."""
        views = []
        for topic, group in named_groups(self.catalogue, self.positions, name):
            found = topic.groups.get(group) or self._rights.make_group(topic, group)
            views.append(viewed(found, now_ms))
        return views

    # ---- changes ------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, *, now_ms: int, partitions: int = 1, policy: Mapping[str, Any] | None = None
    ) -> Wait[None]:
        """Make a topic."""
        return self.create_topics([(name, partitions, policy or {})], now_ms=now_ms)

    def create_topics(self, wishes: Iterable[tuple[str, int, Mapping[str, Any]]], *, now_ms: int) -> Wait[None]:
        """Make topics, all or none."""
        return self._await(self.catalogue.plan_topics(wishes, now_ms), None)

    def alter_topic(
        self, name: str, *, now_ms: int, policy: Mapping[str, Any] | None = None, partitions: int | None = None
    ) -> Wait[None]:
        """Change settings (None: back to the default), or add partitions."""
        return self._await(self.catalogue.plan_change(name, policy=policy, partitions=partitions, now_ms=now_ms), None)

    def delete_topic(self, name: str, *, now_ms: int) -> Wait[None]:
        """Delete a topic with everything in it."""
        topic = self.catalogue.find(name)
        effect = self.catalogue.plan_removal(name, now_ms)
        for place in list(topic.opened.values()):
            self._polls.abandon(place, Refused(f"topic {name!r} is being deleted", code="topic-unknown"))
        for group in topic.groups.values():
            for share in group.shares.values():
                share.free()
        topic.groups.clear()
        return self._await(effect, None)

    def set_subscription(
        self, name: str, app: str, role: str, policy: Mapping[str, Any] | None = None, *, now_ms: int
    ) -> Wait[None]:
        """Subscribe an application, or change what is set for it."""
        return self._await(self.catalogue.plan_subscription(name, app, role, policy or {}, now_ms), None)

    def remove_subscription(self, name: str, app: str, role: str, *, now_ms: int) -> Wait[None]:
        """End a subscription; positions stay."""
        return self._await(self.catalogue.plan_subscription(name, app, role, None, now_ms), None)

    def remove_group(self, name: str, group: str) -> None:
        """Forget a group's positions; it begins anew if it comes again."""
        topic = self.catalogue.find(name)
        found = topic.groups.get(group)
        for share in list(found.shares.values()) if found is not None else ():
            self._free(share)
        if found is not None:
            found.shares.clear()
        keys = [position_key(topic.id, number, group) for number in range(topic.count)]
        self.positions.put_many([(key, None) for key in keys if self.positions.get(key)], level=Level.RECEIVE)

    # ---- what the gate feeds ------------------------------------------------------------------------

    @property
    def next_ms(self) -> int:
        """When `turn` must be called at the latest."""
        return self._lot.deadlines.next_ms

    @property
    def waits_for_disk(self) -> bool:
        """Whether somebody waits until what was appended is committed."""
        return bool(self._lot.flushing)

    def moved(self) -> None:
        """The engine rang: committed positions moved, or a flush failed."""
        for log in self.engine.moved():
            self._lot.flushed(log)
            place = self._place_of(log)
            if place is not None and place.topic.committed_only:
                self._polls.stir(place)

    def turn(self, now_ms: int) -> list[Wait[Any]]:
        """Look at everything that was stirred or is due; the waits that are finished."""
        return self._polls.turn(now_ms)

    def drop(self, wait: Wait[Any]) -> None:
        """Who asked is gone."""
        self._lot.drop(wait)

    def effects(self) -> list[Effect]:
        """Take the changes that are to be run now."""
        taken, self.catalogue.effects = self.catalogue.effects, []
        return taken

    def done(self, effect: Effect, error: Exception | None) -> None:
        """An effect was run, or failed."""
        self.catalogue.finish(effect, error)
        for wait in effect.waits:
            if error is None:
                self._lot.finish(wait, None)
            else:
                self._lot.fail(wait, error)
        for key in effect.pairs:
            self._polls.reconsider(self.catalogue.about(key))

    def tidy(self, now_ms: int) -> str:
        """Let the next topic forget what its policy says; its name, empty when no topic forgets anything."""
        topics = self._forgetting
        if not topics:
            self._forgetting = topics = [topic.name for topic in self.catalogue.topics.values() if topic.forgets]
        while topics:
            topic = self.catalogue.topics.get(topics.pop())
            if topic is not None and topic.forgets and not topic.leaving:
                retain(topic, self.positions, now_ms)
                return topic.name
        return ""

    def settle(self) -> None:
        """Run every change that is due, here and now."""
        while self.catalogue.effects:
            for effect in self.effects():
                error = None
                try:
                    effect.run()
                except (SeraiError, OSError) as failure:
                    error = failure
                self.done(effect, error)

    def disown(self, name: str, partition: int, *, node: int = -1, epoch: int = 0) -> None:
        """A partition belongs to another node, or to none, from now on."""
        topic = self.catalogue.find(name)
        place = topic.opened.pop(partition, None)
        topic.strangers[partition] = Owner(partition, node, epoch)
        topic.settle_order()
        for group in topic.groups.values():
            share = group.shares.pop(partition, None)
            if share is not None:
                share.free()
        refusal = Refused(f"partition {partition} of topic {name!r} went to another node", code="not-owner")
        if place is not None:
            self._polls.abandon(place, refusal, keep_pollers=bool(topic.order))

    def own(self, name: str, partition: int) -> None:
        """A partition belongs to this node from now on."""
        topic = self.catalogue.find(name)
        topic.strangers.pop(partition, None)
        topic.settle_order()
        self._polls.reconsider(self.catalogue.topics.get(name))

    # ---- steps of the above -------------------------------------------------------------------------

    def _await(self, effect: Effect, session: Session | None) -> Wait[None]:
        wait: Wait[None] = Wait(session, NEVER_MS)
        self._lot.park(wait)
        effect.waits.append(wait)
        return wait

    def _choose(self, topic: Topic, key: str | None) -> int:
        if not topic.order:
            raise topic.no_owner()
        if key is not None:
            return hash_of(key) % topic.count if key else 0
        topic.turn += 1
        return topic.order[topic.turn % len(topic.order)]

    def _place_of(self, log: Log) -> Partition | None:
        """The partition of a log; None for a state log, or when the topic is gone."""
        identity, _, number = log.name.rpartition("-")
        if not identity.isdigit() or not number.isdigit():
            return None
        topic = self.catalogue.by_id.get(int(identity))
        if topic is None:
            return None
        return topic.opened.get(int(number)) or Partition(topic, int(number), log)

    def _share(self, name: str, group: str, partition: int) -> Share:
        found = self._rights.group(name, group)
        return found.shares.get(partition) or found.share(partition)

    def _free(self, share: Share) -> None:
        share.free()
        self._polls.stir_group(share.group)
