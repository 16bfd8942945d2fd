"""Which topics and subscriptions there are, in memory; every change is an effect.

    wish --plan--> Effect --run by the gate: written and flushed--> done --learn--> memory, waits finished

In the catalogue's state log, values are JSON with the epoch and the time of the change:

    topic/7                          {"name": "orders", "partitions": 4, "table": {...}}
    subscription/7/consumer/billing  {"table": {...}}
    ids                              {"next": 8}

Invariants
- what is read at the start and what is fed back after a change go through the same function, `learn`
- a change is durable before anybody is told of it, so no message is kept for a topic that a crash forgets
- a change is made on top of the changes that are still under way
- an id is never used again: its counter is written together with the topic
- a topic that is deleted stays deleted: partitions that a crash left behind go at the next start

Left to others: when effects run (gate), what policies mean (`policy`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from serai import limits
from serai.broker.names import check_name, is_name
from serai.broker.policy import Table, TopicPolicy, check_role_table, check_topic_table, in_force
from serai.broker.topics import Topic
from serai.errors import Corrupt, Refused
from serai.log.engine import Level

if TYPE_CHECKING:
    from serai.broker.waits import Wait
    from serai.log.engine import Engine

Value = dict[str, Any]
IDS = "ids"


class Subscription(NamedTuple):
    """An application's right to use a topic in a role, and what was set for it."""

    topic: str
    app: str
    role: str
    policy: Table


class Effect:
    """A change of the catalogue that is to be made, and was not made yet."""

    __slots__ = ("engine", "forgotten", "names", "pairs", "removed", "waits")

    def __init__(self, engine: Engine, pairs: dict[str, Value | None], names: Iterable[str]) -> None:
        self.engine = engine
        self.pairs = pairs
        self.names = tuple(names)  # of the topics it is about
        self.removed: list[str] = []  # partitions that go with it
        self.forgotten: list[bytes] = []  # positions that go with it
        self.waits: list[Wait[Any]] = []

    def run(self) -> None:
        """Write it and see it flushed, then remove what goes with it."""
        written = [
            (key.encode(), None if value is None else dump(value, self.engine.epoch))
            for key, value in self.pairs.items()
        ]
        if written:
            ticket = self.engine.catalogue().put_many(written, level=Level.COMMIT)
            if not ticket.done:
                ticket.log.commit()
            if ticket.failed is not None:
                raise ticket.failed
        if self.forgotten:
            self.engine.state(POSITIONS).put_many([(key, None) for key in self.forgotten], level=Level.RECEIVE)
        for partition in self.removed:
            with suppress(OSError):  # what could not go is an orphan, and goes at the next start
                self.engine.remove(partition)


POSITIONS = "positions"


def dump(value: Value, epoch: int) -> bytes:
    """A value as the catalogue keeps it."""
    return json.dumps({**value, "epoch": epoch}, ensure_ascii=False, separators=(",", ":")).encode()


class Catalogue:
    """Topics and subscriptions as they are, and the changes under way."""

    __slots__ = (
        "by_id",
        "effects",
        "engine",
        "making",
        "next_id",
        "planned",
        "stamp",
        "subscriptions",
        "topics",
        "under_way",
    )

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        self.subscriptions: dict[tuple[int, str, str], Table] = {}  # topic's id, role, app
        self.next_id = 1
        self.stamp = 0  # grows with every change
        self.effects: list[Effect] = []  # not taken yet
        self.under_way: dict[Effect, None] = {}
        self.planned: dict[str, Value | None] = {}  # the changes under way, last one by key
        self.making: dict[str, Effect] = {}  # topics that do not exist yet
        for key, data in engine.catalogue().items():
            self._load(key, data)
        orphans = [partition for partition in engine.partitions() if self._is_orphan(partition)]
        if orphans:
            self._plan({}, (), 0).removed = orphans

    def _load(self, key: bytes, data: bytes) -> None:
        try:
            value = json.loads(data)
            epoch = value.pop("epoch")
            self.learn(key.decode(), value)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise Corrupt(
                f"the catalogue's entry {key!r} cannot be read: {error}; restore the catalogue from a copy",
                file="catalogue", found=data[:64],
            ) from error  # fmt: skip
        if epoch > self.engine.epoch:
            raise Refused(
                f"the catalogue's entry {key!r} was written in epoch {epoch}, this is epoch {self.engine.epoch}:"
                " a newer server owns this data",
                code="not-owner",
            )

    def _is_orphan(self, partition: str) -> bool:
        """Whether a partition is left from a topic that was deleted: its id was given away, and is nobody's."""
        identity, _, number = partition.partition("-")
        if not (identity.isdecimal() and number.isdecimal()):
            return False
        topic = self.by_id.get(int(identity))
        return int(identity) < self.next_id and (topic is None or int(number) >= topic.count)

    # ---- what is ------------------------------------------------------------------------------------

    def learn(self, key: str, value: Value | None) -> None:
        """Take in what the catalogue's log says of a key; None: nothing any more."""
        kind, _, rest = key.partition("/")
        if kind == "topic":
            self._learn_topic(int(rest), value)
        elif kind == "subscription":
            identity, role, app = rest.split("/")
            if value is None:
                self.subscriptions.pop((int(identity), role, app), None)
            else:
                self.subscriptions[int(identity), role, app] = value["table"]
        elif key == IDS and value is not None:
            self.next_id = max(self.next_id, value["next"])
        self.stamp += 1

    def _learn_topic(self, identity: int, value: Value | None) -> None:
        topic = self.by_id.get(identity)
        if value is None:
            if topic is not None:
                del self.by_id[identity], self.topics[topic.name]
            return
        if topic is None:
            topic = self.by_id[identity] = self.topics[value["name"]] = Topic(self.engine, identity, value["name"])
            self.next_id = max(self.next_id, identity + 1)
        topic.learn(count=value["partitions"], table=value["table"])

    def about(self, key: str) -> Topic | None:
        """The topic that a key of the catalogue is about."""
        words = key.split("/")
        return self.by_id.get(int(words[1])) if len(words) > 1 else None

    def find(self, name: str) -> Topic:
        """The topic of exactly that name."""
        topic = self.topics.get(name)
        if topic is None or topic.leaving:
            check_name(name, what="a topic")
            raise Refused(f"there is no topic {name!r}; make it, or check the name", code="topic-unknown")
        return topic

    def has(self, topic: Topic, role: str, app: str) -> bool:
        """Whether an application is subscribed in a role."""
        return (topic.id, role, app) in self.subscriptions

    # ---- what is wished -----------------------------------------------------------------------------

    def plan_topics(self, wishes: Iterable[tuple[str, int, Mapping[str, Any]]], now_ms: int) -> Effect:
        """Make topics: name, partitions, table."""
        pairs: dict[str, Value | None] = {}
        names = []
        for name, partitions, policy in wishes:
            check_name(name, what="a topic")
            if name in self.topics or name in self.making or name in names:
                raise Refused(f"a topic {name!r} exists; choose another name or alter that one", code="topic-exists")
            self._topic_pair(pairs, name, partitions, check_topic_table(dict(policy)))
            names.append(name)
        effect = self._plan(pairs, names, now_ms)
        self.making.update(dict.fromkeys(names, effect))
        return effect

    def plan_first_use(self, names: Iterable[str], app: str, roles: Iterable[str], now_ms: int) -> Effect | None:
        """Make the topics and subscriptions that somebody is about to use; None when nothing is missing."""
        pairs: dict[str, Value | None] = {}
        made: list[str] = []
        for name in dict.fromkeys(names):
            if name in self.making:
                return self.making[name]
            topic = self.topics.get(name)
            if topic is not None:
                identity = topic.id
            elif is_name(name):
                if len(made) >= limits.PLAN_TOPICS_MAX:
                    raise Refused(
                        f"one request makes at most {limits.PLAN_TOPICS_MAX} topics; make them first",
                        code="limit-reached",
                    )
                identity = self._topic_pair(pairs, name, 1, {})
                made.append(name)
            else:
                continue
            for role in roles:
                key = f"subscription/{identity}/{role}/{app}"
                if is_name(app) and (identity, role, app) not in self.subscriptions:
                    pairs[key] = {"table": {}}
        if not pairs:
            return None
        for effect in self.under_way:  # the same wish of a neighbour is under way: join it
            if pairs.keys() <= effect.pairs.keys():
                return effect
        effect = self._plan(pairs, made, now_ms)
        self.making.update(dict.fromkeys(made, effect))
        return effect

    def plan_change(
        self, name: str, *, policy: Mapping[str, Any] | None, partitions: int | None, now_ms: int
    ) -> Effect:
        """Change a topic's table, or give it more partitions."""
        topic = self.find(name)
        key = f"topic/{topic.id}"
        value = dict(self.planned.get(key) or {"name": name, "partitions": topic.count, "table": topic.table})
        if partitions is not None:
            if not value["partitions"] <= partitions <= limits.PARTITIONS_MAX:
                raise Refused(
                    f"topic {name!r} has {value['partitions']} partitions and cannot have {partitions}: the number only grows,"
                    f" up to {limits.PARTITIONS_MAX}",
                    code="limit-reached",
                )
            value["partitions"] = partitions
        if policy is not None:
            value["table"] = altered(value["table"], check_topic_table(without_none(policy)), policy)
            if in_force(TopicPolicy, value["table"]).jafka_magic != topic.policy.jafka_magic:
                raise Refused("jafka_magic is fixed when a topic is made; make another topic", code="bad-policy")
        return self._plan({key: value}, (), now_ms)

    def plan_removal(self, name: str, now_ms: int) -> Effect:
        """Delete a topic, its partitions, subscriptions and positions."""
        topic = self.find(name)
        pairs: dict[str, Value | None] = {f"topic/{topic.id}": None, IDS: {"next": self.next_id}}
        for identity, role, app in self.subscriptions:
            if identity == topic.id:
                pairs[f"subscription/{identity}/{role}/{app}"] = None
        effect = self._plan(pairs, [name], now_ms)
        effect.removed = [topic.partition_id(number) for number in range(topic.count)]
        start = f"{topic.id}/".encode()
        effect.forgotten = [key for key, _ in self.engine.state(POSITIONS).items() if key.startswith(start)]
        topic.leaving = True
        self.stamp += 1
        self.making[name] = effect  # who wants to use it waits, and then makes it anew
        return effect

    def plan_subscription(
        self, name: str, app: str, role: str, policy: Mapping[str, Any] | None, now_ms: int
    ) -> Effect:
        """Subscribe an application or change its subscription; None: end it."""
        topic = self.find(name)
        check_name(app, what="an application")
        checked = check_role_table(without_none(policy or {}), role)
        key = f"subscription/{topic.id}/{role}/{app}"
        if policy is None:
            if not self.has(topic, role, app):
                raise Refused(f"{app!r} is no {role} of topic {name!r}", code="subscription-unknown")
            return self._plan({key: None}, (), now_ms)
        planned = self.planned.get(key)
        table = planned["table"] if planned else self.subscriptions.get((topic.id, role, app), {})
        return self._plan({key: {"table": altered(table, checked, policy)}}, (), now_ms)

    def finish(self, effect: Effect, error: Exception | None) -> None:
        """An effect was run: learn what it wrote, or forget that it was wished."""
        del self.under_way[effect]
        for name in effect.names:
            self.making.pop(name, None)
            topic = self.topics.get(name)
            if topic is not None and effect.removed and error is not None:
                topic.leaving = False
                self.stamp += 1
        for key, value in effect.pairs.items():
            if self.planned.get(key) is value:
                self.planned.pop(key, None)
            if error is None:
                self.learn(key, value)

    def _plan(self, pairs: dict[str, Value | None], names: Iterable[str], now_ms: int) -> Effect:
        for value in pairs.values():
            if value is not None:
                value["changed_ms"] = now_ms
        effect = Effect(self.engine, pairs, names)
        self.planned.update(pairs)
        self.effects.append(effect)
        self.under_way[effect] = None
        return effect

    def _topic_pair(self, pairs: dict[str, Value | None], name: str, partitions: int, table: Table) -> int:
        if not 1 <= partitions <= limits.PARTITIONS_MAX:
            raise Refused(
                f"topic {name!r} cannot have {partitions} partitions, only 1 to {limits.PARTITIONS_MAX}",
                code="limit-reached",
            )
        if len(self.topics) + len(self.making) + len(pairs) >= limits.TOPICS_MAX:
            raise Refused(
                f"there are {limits.TOPICS_MAX} topics, the most there can be; delete some", code="limit-reached"
            )
        identity = self.next_id
        self.next_id += 1
        pairs[f"topic/{identity}"] = {"name": name, "partitions": partitions, "table": table}
        pairs[IDS] = {"next": self.next_id}
        return identity


def altered(table: Table, checked: Table, wish: Mapping[str, Any]) -> Table:
    """A table after a wish: words with None fall back to their defaults."""
    kept = {word: value for word, value in table.items() if wish.get(word, "") is not None}
    return {**kept, **checked}


def without_none(wish: Mapping[str, Any]) -> Table:
    """The words of a wish that set something."""
    return {word: value for word, value in wish.items() if value is not None}
