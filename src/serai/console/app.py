"""The console as one ASGI application: routes, errors as JSON, and /openapi.json made of the routes."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

import serai
from serai.console import groups, health, metrics, records, topics
from serai.console.asking import answer
from serai.console.guard import Guard
from serai.console.problem import RETRY_AFTER_S, Problem, problem_body, problem_of
from serai.errors import SeraiError

if TYPE_CHECKING:
    from starlette.requests import Request

    from serai.console.house import Application, House

V1 = "/api/v1"
TOPIC = f"{V1}/topics/{{topic}}"
GROUP = f"{TOPIC}/groups/{{group}}"
SUBSCRIPTION = f"{TOPIC}/subscriptions/{{role}}/{{app}}"
ROUTES = [
    ("GET", "/healthz", health.healthz),
    ("GET", "/readyz", health.readyz),
    ("GET", "/metrics", metrics.metrics),
    ("GET", f"{V1}/topics", topics.list_topics),
    ("POST", f"{V1}/topics", topics.create_topic),
    ("GET", TOPIC, topics.describe_topic),
    ("PATCH", TOPIC, topics.alter_topic),
    ("DELETE", TOPIC, topics.delete_topic),
    ("GET", f"{TOPIC}/records", records.browse),
    ("POST", f"{TOPIC}/records", records.produce),
    ("GET", f"{V1}/subscriptions", topics.list_subscriptions),
    ("PUT", SUBSCRIPTION, topics.set_subscription),
    ("DELETE", SUBSCRIPTION, topics.remove_subscription),
    ("GET", f"{V1}/groups", groups.list_groups),
    ("GET", GROUP, groups.describe_group),
    ("DELETE", GROUP, groups.remove_group),
    ("POST", f"{GROUP}/reset", groups.reset_group),
]


def make_app(house: House) -> Application:
    """The application for one server."""
    app = Starlette(
        routes=[*(Route(path, run, methods=[method]) for method, path, run in ROUTES), Route("/openapi.json", openapi)],
        exception_handlers={Problem: _problem, SeraiError: _failure, HTTPException: _no_route},
    )
    app.state.house = house
    return Guard(app, hosts=house.settings.hosts)


def _said(problem: Problem) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if problem.status in (429, 503) else {}
    return Response(problem_body(problem), problem.status, headers, media_type="application/json")


def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _said(error)


def _failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, SeraiError)
    return _said(problem_of(error, f"{request.method} {request.url.path} failed"))


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    why = (
        f"{request.method} is not what it takes"
        if error.status_code == 405
        else f"there is nothing at {request.url.path[:200]}"
    )
    response = _said(Problem(error.status_code, "the request is not served", why, "GET /openapi.json", code="no-route"))
    response.headers.update(error.headers or {})
    return response


async def openapi(_request: Request) -> Response:
    """This API, described."""
    paths: dict[str, Any] = {}
    for method, path, run in ROUTES:
        names = re.findall(r"\{(\w+)\}", path)
        paths.setdefault(path, {})[method.lower()] = {
            "operationId": run.__name__,
            "summary": inspect.getdoc(run),
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ],
            "responses": {
                "default": {
                    "description": "JSON; a refusal is {error: {code, what, why, hint}}",
                    "content": {"application/json": {}},
                }
            },
        }
    info = {"title": "serai", "version": serai.__version__}
    return answer({"openapi": "3.1.0", "info": info, "paths": paths})
