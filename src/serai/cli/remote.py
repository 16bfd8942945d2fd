"""Asking a running server over its HTTP API, and its refusals in the command line's words.

Exit codes: 3 nobody answers there, 4 not allowed, 5 no answer in time or an outcome nobody knows, 1 refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from serai.cli.terminal import FAILED, NOT_ALLOWED, TIMED_OUT, UNREACHABLE, USAGE, Failure

if TYPE_CHECKING:
    from argparse import Namespace

ANSWER_S = 30.0
CODES = {400: USAGE, 401: NOT_ALLOWED, 403: NOT_ALLOWED, 504: TIMED_OUT}


def address(text: str, prog: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; either may be left out."""
    from serai.config import SERVER_DEFAULT

    host, colon, port = text.rpartition(":")
    if not colon or (text.count(":") > 1 and not text.startswith("[")):
        host, port = text, SERVER_DEFAULT.rpartition(":")[2]
    if not port.isdecimal() or int(port) > 65535:
        raise Failure(f"cannot reach {text}", f"{port!r} is no port", f"{prog} --server HOST:PORT", code=USAGE)
    return host.strip("[]") or "127.0.0.1", int(port)


def ask(args: Namespace, method: str, path: list[str], *, body: Any = None, query: dict[str, Any] | None = None) -> Any:
    """One request; its JSON, or a failure in words."""
    from http.client import HTTPConnection, HTTPException

    host, port = address(args.server, args.parser.prog)
    where = "/api/v1/" + "/".join(quote(part, safe="") for part in path)
    kept = {name: value for name, value in (query or {}).items() if value is not None}
    connection = HTTPConnection(host, port, timeout=ANSWER_S)
    what = f"cannot {args.aim.format(**vars(args))}"
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, f"{where}?{urlencode(kept)}" if kept else where, data)
        response = connection.getresponse()
        text = response.read()
    except TimeoutError as error:
        raise Failure(
            what,
            f"{host}:{port} did not answer within {ANSWER_S:.0f} s",
            "look again before repeating it",
            code=TIMED_OUT,
        ) from error
    except OSError as error:
        raise Failure(
            what,
            f"no server answers at {host}:{port}: {error.strerror or error}",
            "serai server, or --server HOST:PORT",
            code=UNREACHABLE,
        ) from error
    except HTTPException as error:
        raise Failure(
            what, f"{host}:{port} is no server of serai: {error!r}", "--server HOST:PORT", code=UNREACHABLE
        ) from error
    finally:
        connection.close()
    return understood(what, f"{host}:{port}", response.status, text)


def understood(what: str, where: str, status: int, text: bytes) -> Any:
    """The JSON of an answer; a refusal becomes a failure."""
    try:
        said = json.loads(text)
    except ValueError:
        raise Failure(
            what, f"{where} is no server of serai: it answered {text[:60]!r}", "--server HOST:PORT", code=UNREACHABLE
        ) from None
    if status >= 400:
        error = said.get("error", {})
        raise Failure(
            what,
            error.get("why", f"status {status}"),
            error.get("hint", "serai --help"),
            code=CODES.get(status, FAILED),
        )
    return said
