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


def ask(args: Namespace, method: str, path: list[str], *, body: Any = None, query: dict[str, Any] | None = None) -> Any:
    """One request; its JSON, or a failure in words."""
    from http.client import HTTPConnection, HTTPException

    from serai.config import address_of

    host, port = address_of(args.server)
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
    return understood(what, f"{host}:{port}", response.status, text, prog=args.parser.prog)


def understood(what: str, where: str, status: int, text: bytes, *, prog: str) -> Any:
    """The JSON of an answer; a refusal becomes a failure."""
    try:
        said = json.loads(text)
    except ValueError:
        raise Failure(
            what, f"{where} is no server of serai: it answered {text[:60]!r}", "--server HOST:PORT", code=UNREACHABLE
        ) from None
    if status >= 400:
        error = said.get("error", {})
        hint = error.get("hint", "")
        raise Failure(
            what,
            error.get("why", f"status {status}"),
            hint if hint.startswith("serai ") else f"{prog} --help",  # others are for guests of the HTTP API
            code=CODES.get(status, FAILED),
        )
    return said
