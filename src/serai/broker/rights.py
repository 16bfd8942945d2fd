"""Who may do what: permissions looked up in the catalogue, once for each state of it.

    Route     a session may produce to a topic for an application
    Group     exists for whoever is subscribed
    Consumer  may fetch, or is told why not

Invariant: after any change of the catalogue (`stamp`) every permission is looked up again before it is used.

Left to others: what the catalogue says (`catalogue`), what policies mean (`policy`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serai import limits
from serai.broker.catalogue import Catalogue
from serai.broker.groups import Group
from serai.broker.names import app_of, check_name
from serai.broker.policy import ConsumerPolicy, ProducerPolicy, in_force
from serai.broker.sessions import Consumer, Route, Session
from serai.errors import Refused
from serai.log.engine import Level

if TYPE_CHECKING:
    from serai.broker.topics import Topic
    from serai.log.engine import StateLog

LEVELS = {"receive": Level.RECEIVE, "commit": Level.COMMIT}


class Rights:
    """What sessions may do, by the catalogue as it is."""

    __slots__ = ("catalogue", "positions")

    def __init__(self, catalogue: Catalogue, positions: StateLog) -> None:
        self.catalogue = catalogue
        self.positions = positions

    def route(self, session: Session, name: str, app: str) -> Route:
        """What producing needs, looked up and checked."""
        topic = self.catalogue.find(name)
        table = self.catalogue.subscriptions.get((topic.id, "producer", app_of(app)))
        if table is None:
            check_name(app, what="an application")
            raise Refused(f"{app!r} is no producer of topic {name!r}; subscribe it first", code="subscription-unknown")
        policy = in_force(ProducerPolicy, topic.table, table)
        if session.address in policy.black_list:
            raise black_listed(session, name)
        route = Route(topic, app.encode(), policy, LEVELS.get(topic.policy.level), self.catalogue.stamp)
        if len(session.routes) >= limits.REGISTERED_MAX:
            session.routes.clear()
        session.routes[name, app] = route
        return route

    def make_group(self, topic: Topic, name: str) -> Group:
        group = topic.groups[name] = Group(topic, name, self.positions, self.catalogue.engine.epoch)
        self.refresh(group)
        return group

    def refresh(self, group: Group) -> None:
        """What the catalogue says of a group now."""
        table = self.catalogue.subscriptions.get((group.topic.id, "consumer", group.app))
        group.policy = None if table is None else in_force(ConsumerPolicy, group.topic.table, table)
        group.stamp = self.catalogue.stamp

    def group(self, name: str, group: str) -> Group:
        """A group whose application is subscribed."""
        topic = self.catalogue.find(name)
        found = topic.groups.get(group)
        if found is None:
            check_name(group, what="a group")
            if not self.catalogue.has(topic, "consumer", app_of(group)):
                raise not_subscribed(name, group)
            if len(topic.groups) >= limits.GROUPS_MAX:
                raise Refused(
                    f"topic {name!r} has {limits.GROUPS_MAX} groups, the most there can be; remove some",
                    code="limit-reached",
                )
            found = self.make_group(topic, group)
        elif found.stamp != self.catalogue.stamp:
            self.refresh(found)
        if found.policy is None:
            raise not_subscribed(name, group)
        return found

    def allow(self, group: Group, session: Session | None) -> None:
        """Refuse what a group's policy forbids this connection."""
        assert group.policy is not None
        if session is not None and session.address in group.policy.black_list:
            raise black_listed(session, group.topic.name)
        if group.policy.paused:
            raise Refused(f"consumption of topic {group.topic.name!r} by {group.app!r} is paused", code="paused")

    def check(self, consumer: Consumer) -> None:
        """Look a consumer's permissions up again; what forbids it is raised when it fetches."""
        group = consumer.group
        current = self.catalogue.topics.get(group.topic.name)
        # The topic may be deleted, or made anew under another id.
        if current is not group.topic or current.leaving or current.groups.get(group.name) is not group:
            group = consumer.group = self.group(group.topic.name, group.name)
        consumer.refusal = None
        consumer.stamp = self.catalogue.stamp
        self.refresh(group)
        if group.policy is None:
            refusal = not_subscribed(group.topic.name, group.name)
            consumer.refusal = str(refusal), refusal.code
            return
        consumer.policy = group.policy
        try:
            self.allow(group, consumer.session)
        except Refused as refused:
            consumer.refusal = str(refused), refused.code


def not_subscribed(name: str, group: str) -> Refused:
    """An application without a subscription."""
    return Refused(
        f"{app_of(group)!r} is no consumer of topic {name!r}; subscribe it first", code="subscription-unknown"
    )


def black_listed(session: Session, name: str) -> Refused:
    """An address that a policy forbids."""
    return Refused(f"{session.address} may not use topic {name!r}: its policy forbids the address", code="black-listed")
