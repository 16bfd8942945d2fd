"""/api/v1/groups and positions: how far everyone is, and going back or ahead.

A reset is computed first, for every partition it is about, and then made; `dry_run` stops in between.

    to: "start" | "end" | an ordinal | "-10" (so many back) | "time:<ms since 1970>" | "-10m" (a while back) | "group:<other>"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from serai.console.asking import answer, asked, bad, house, told
from serai.console.problem import Problem
from serai.errors import OutOfRange

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from serai.broker import Broker
    from serai.broker.views import GroupView
    from serai.console.house import House

WHILE_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FORMS = "start, end, an ordinal, -N for N back, -10m (s, m, h, d) for a while back, time:MS, or group:NAME"


async def list_groups(request: Request) -> Response:
    """All groups, or those of a topic, with their lag."""
    wish = asked(request, "topic")
    place = house(request)
    name = place.broker.find(wish.need("topic", str)).name if wish.has("topic") else None
    return answer({"groups": [shown(view) for view in place.broker.groups(name, now_ms=place.now_ms())]})


async def describe_group(request: Request) -> Response:
    """A group in every partition: position, lag, lease."""
    asked(request)
    return answer(shown(_view(house(request), request.path_params["topic"], request.path_params["group"])))


def shown(view: GroupView) -> dict[str, Any]:
    """A group as JSON."""
    rows = [row._asdict() for row in view.partitions]
    return view._asdict() | {"partitions": rows, "lag": sum(row.lag for row in view.partitions)}


def _view(place: House, topic: str, group: str) -> GroupView:
    place.broker.find(topic)
    for view in place.broker.groups(topic, now_ms=place.now_ms()):
        if view.group == group:
            return view
    raise Problem(
        404, f"there is no group {group} of topic {topic}", "nobody of that name consumed from it, or has a position there",
        f"serai group list --topic {topic}", code="subscription-unknown",
    )  # fmt: skip


async def remove_group(request: Request) -> Response:
    """Forget a group's positions; it begins anew if it comes again."""
    wish = asked(request, "dry_run")
    place = house(request)
    view = _view(place, request.path_params["topic"], request.path_params["group"])
    dry = wish.get("dry_run", bool, default=False)
    if not dry:
        place.broker.remove_group(view.topic, view.group)
    return answer({"removed": not dry, "lost": shown(view)})


async def reset_group(request: Request) -> Response:
    """Set positions; shows before and after, and with `dry_run` changes nothing."""
    wish = await told(request, "to", "partition", "dry_run")
    place = house(request)
    topic, group = request.path_params["topic"], request.path_params["group"]
    to = str(wish.need("to", str)).strip()
    chosen = (
        [wish.need("partition", int)] if wish.has("partition") else list(range(place.broker.find(topic).partitions))
    )
    rows = [_planned(place, topic, group, number, to) for number in chosen]
    dry = wish.get("dry_run", bool, default=False)
    if not dry:
        for row in rows:
            place.broker.seek(topic, group, row["partition"], row["after"], now_ms=place.now_ms())
    return answer({"topic": topic, "group": group, "reset": not dry, "partitions": rows})


def _planned(place: House, topic: str, group: str, number: int, to: str) -> dict[str, Any]:
    index = place.broker.index(topic, group, number)
    after = _target(place.broker, topic, number, to, position=index.position, now_ms=place.now_ms())
    if not index.first <= after <= index.end:
        raise OutOfRange(
            f"partition {number} of topic {topic} holds ordinals {index.first} to {index.end - 1}, not {after}",
            first=index.first, end=index.end,
        )  # fmt: skip
    return {
        "partition": number, "before": index.position, "after": after, "first": index.first, "end": index.end,
        "lag_before": index.end - index.position, "lag_after": index.end - after,
    }  # fmt: skip


def _target(broker: Broker, topic: str, number: int, to: str, *, position: int, now_ms: int) -> int:
    index = broker.index(topic, None, number)
    if to in ("start", "end"):
        return index.first if to == "start" else index.end
    if to.isdecimal():
        return int(to)
    if found := re.fullmatch(r"-(\d+)([smhd]?)", to):
        if found[2]:
            return broker.at_time(topic, number, now_ms - int(found[1]) * WHILE_MS[found[2]])
        return max(index.first, position - int(found[1]))
    if found := re.fullmatch(r"time:(\d+)", to):
        return broker.at_time(topic, number, int(found[1]))
    if to.startswith("group:"):
        return broker.index(topic, to.removeprefix("group:"), number).position
    raise bad(f"to is {to[:80]!r}; it is {FORMS}")
