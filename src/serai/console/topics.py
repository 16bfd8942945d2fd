"""/api/v1/topics and /api/v1/subscriptions: make, look at, change, delete.

A list opens no log that is not open yet, unless they are few: ten thousand idle topics stay idle when somebody lists them,
and their numbers are then null.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from serai.console.asking import answer, asked, house, told

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from serai.broker import Broker, Topic

OPENED_FOR_A_LIST = 256


async def list_topics(request: Request) -> Response:
    """All topics, with how many messages they hold."""
    asked(request)
    broker = house(request).broker
    stored = set(broker.engine.partitions())
    budget = OPENED_FOR_A_LIST
    rows = []
    for topic in sorted(broker.topics.values(), key=lambda each: each.name):
        closed = [
            number
            for number in range(topic.partitions)
            if topic.partition_id(number) in stored and number not in topic.opened
        ]
        budget -= len(closed)
        rows.append(summary(topic, stored if budget >= 0 or not closed else None))
    return answer({"topics": rows})


def summary(topic: Topic, stored: set[str] | None) -> dict[str, Any]:
    """A topic on one line; numbers are null when they are not known."""
    numbers = range(topic.partitions)
    row: dict[str, Any] = {
        "name": topic.name,
        "id": topic.id,
        "partitions": topic.partitions,
        "messages": None,
        "produced": None,
    }
    if stored is not None:
        there = [number for number in numbers if number in topic.opened or topic.partition_id(number) in stored]
        row["messages"] = sum(topic.end(number) - topic.first(number) for number in there)
        row["produced"] = sum(topic.end(number) for number in there)
    return row | {"policy": topic.table, "groups": len(topic.groups)}


async def create_topic(request: Request) -> Response:
    """Make a topic: name, partitions, policy."""
    wish = await told(request, "name", "partitions", "policy")
    place = house(request)
    name = wish.need("name", str)
    await place.finish(
        place.broker.create_topic(
            name, partitions=wish.get("partitions", int, 1), policy=wish.get("policy", dict, {}), now_ms=place.now_ms()
        )
    )
    return answer(describe(place.broker, name), 201)


async def describe_topic(request: Request) -> Response:
    """A topic with its partitions, owners, policies and subscriptions."""
    asked(request)
    return answer(describe(house(request).broker, request.path_params["topic"]))


def describe(broker: Broker, name: str) -> dict[str, Any]:
    """Everything about a topic."""
    topic = broker.find(name)
    owners = topic.owners(broker.node.id, broker.engine.epoch)
    rows = []
    for owner in owners:
        row: dict[str, Any] = {"partition": owner.partition, "node": owner.node, "epoch": owner.epoch}
        if owner.node == broker.node.id:
            log = topic.partition(owner.partition).log
            row |= {
                "first": log.first, "end": log.end, "committed": log.committed,
                "state": "failed" if log.failed is not None else "fine",
            }  # fmt: skip
        rows.append(row)
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": rows,
        "policy": topic.table,
        "in_force": {key: _plain(value) for key, value in asdict(topic.policy).items()},
        "subscriptions": [
            {"app": each.app, "role": each.role, "policy": each.policy} for each in broker.subscriptions(name)
        ],
        "groups": sorted(topic.groups),
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


async def alter_topic(request: Request) -> Response:
    """Change settings (null: back to the default), or add partitions."""
    wish = await told(request, "partitions", "policy")
    place = house(request)
    name = request.path_params["topic"]
    await place.finish(
        place.broker.alter_topic(
            name,
            partitions=wish.get("partitions", int, 0) if wish.has("partitions") else None,
            policy=wish.get("policy", dict, {}) if wish.has("policy") else None,
            now_ms=place.now_ms(),
        )
    )
    return answer(describe(place.broker, name))


async def delete_topic(request: Request) -> Response:
    """Delete a topic with everything in it; `dry_run` says what that is."""
    wish = asked(request, "dry_run")
    place = house(request)
    name = request.path_params["topic"]
    topic = place.broker.find(name)
    lost = summary(topic, set(place.broker.engine.partitions())) | {
        "groups": len(place.broker.groups(name, now_ms=place.now_ms()))
    }
    if not wish.get("dry_run", bool, default=False):
        await place.finish(place.broker.delete_topic(name, now_ms=place.now_ms()))
    return answer({"deleted": not wish.get("dry_run", bool, default=False), "lost": lost})


# ---- subscriptions -----------------------------------------------------------------------------------------


async def list_subscriptions(request: Request) -> Response:
    """Who is subscribed to what: of all topics or of one."""
    wish = asked(request, "topic")
    broker = house(request).broker
    name = broker.find(wish.need("topic", str)).name if wish.has("topic") else None
    return answer({"subscriptions": [row._asdict() for row in broker.subscriptions(name)]})


async def set_subscription(request: Request) -> Response:
    """Subscribe an application in a role, or change what is set for it."""
    wish = await told(request, "policy")
    place = house(request)
    topic, role, app = (request.path_params[key] for key in ("topic", "role", "app"))
    await place.finish(
        place.broker.set_subscription(topic, app, role, wish.get("policy", dict, {}), now_ms=place.now_ms())
    )
    found = next(row for row in place.broker.subscriptions(topic) if (row.role, row.app) == (role, app))
    return answer(found._asdict())


async def remove_subscription(request: Request) -> Response:
    """End a subscription; positions stay."""
    asked(request)
    place = house(request)
    topic, role, app = (request.path_params[key] for key in ("topic", "role", "app"))
    await place.finish(place.broker.remove_subscription(topic, app, role, now_ms=place.now_ms()))
    return answer({"removed": {"topic": topic, "app": app, "role": role}})
