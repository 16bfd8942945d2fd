"""Requests: fields of a body or a query by name and kind; a field that nobody knows is named, with the nearest one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.responses import Response

from serai.console.problem import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from serai.console.house import House

Kind = TypeVar("Kind")
SEE = "see /openapi.json"
WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}


def house(request: Request) -> House:
    """What the gate lent."""
    found: House = request.app.state.house
    return found


def answer(value: Any, status: int = 200) -> Response:
    """JSON, as it leaves."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Response(body, status, media_type="application/json")


class Wish:
    """The fields of a request."""

    def __init__(self, fields: Mapping[str, Any], known: tuple[str, ...], *, is_text: bool) -> None:
        for name in fields:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                raise bad(
                    f"there is no field {name!r}"
                    + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}")
                )
        self._fields = fields
        self._is_text = is_text

    def get(self, name: str, kind: type[Kind], default: Kind) -> Kind:
        """A field, or the default."""
        value = self._fields.get(name)
        if value is None:
            return default
        if self._is_text and kind is not str:
            value = _from_text(name, value, kind)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise bad(f"{name} is {str(value)[:80]!r}; it is {WORDS[kind]}")
        return value

    def need(self, name: str, kind: type[Kind]) -> Kind:
        """A field that must be there."""
        if self._fields.get(name) is None:
            raise bad(f"{name} is missing; it is {WORDS[kind]}")
        return self.get(name, kind, kind())

    def has(self, name: str) -> bool:
        """Whether a field says something."""
        return self._fields.get(name) is not None


def asked(request: Request, *known: str) -> Wish:
    """The fields of the query."""
    return Wish(request.query_params, known, is_text=True)


async def told(request: Request, *known: str) -> Wish:
    """The fields of the body."""
    body = await request.body()
    try:
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise bad(f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise bad("the body is not a JSON object")
    return Wish(fields, known, is_text=False)


def bad(why: str) -> Problem:
    """A request that makes no sense."""
    return Problem(400, "the request cannot be understood", why, SEE)


def _from_text(name: str, text: str, kind: type[Any]) -> Any:
    if kind is bool and text.lower() in ("1", "true", "yes", "0", "false", "no"):
        return text.lower() in ("1", "true", "yes")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            pass
    raise bad(f"{name} is {text[:80]!r}; it is {WORDS[kind]}")
