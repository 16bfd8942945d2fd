"""Who may ask: a browser's page of another site may not, whatever it does with names.

    Host     must be an address, localhost, or a name this server was told (`hosts`): a name that a stranger's DNS points
             here is refused (rebinding)
    Origin   if there, must be this server itself
    Sec-Fetch-Site   cross-site is refused

Programs that are no browser send neither Origin nor Sec-Fetch-Site and are not concerned.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from serai.console.problem import Problem, problem_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from serai.console.house import Application, Message


class Guard:
    """Stands in front of the application."""

    def __init__(self, app: Application, *, hosts: str) -> None:
        self._app = app
        self._names = {"localhost", *(name.strip().lower() for name in hosts.split(",") if name.strip())}

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Let a request in, or say why not."""
        problem = self._objection({name: value.decode("latin-1") for name, value in scope.get("headers", ())})
        if problem is None:
            await self._app(scope, receive, send)
        else:
            response: Any = Response(problem_body(problem), problem.status, media_type="application/json")
            await response(scope, receive, send)

    def _objection(self, headers: dict[bytes, str]) -> Problem | None:
        host = headers.get(b"host", "")
        if host and not self._is_ours(host):
            return _refused(
                f"this server is not called {host[:80]!r}", "call it by its address, or start it with --set hosts=NAME"
            )
        origin = headers.get(b"origin", "")
        if origin and origin.partition("://")[2].lower() != host.lower():
            return _refused(
                f"the request comes from a page of {origin[:80]!r}",
                "ask from this server's own pages, or from a program",
            )
        if headers.get(b"sec-fetch-site", "") == "cross-site":
            return _refused(
                "the request comes from a page of another site", "ask from this server's own pages, or from a program"
            )
        return None

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]").rstrip(".").lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _refused(why: str, hint: str) -> Problem:
    return Problem(403, "the request is refused", why, hint, code="forbidden")
