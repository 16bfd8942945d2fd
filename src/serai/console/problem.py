"""A refusal, as HTTP says it: a status, and in JSON what, why and a hint.

    {"error": {"code": "topic-unknown", "what": "...", "why": "...", "hint": "..."}}

Invariant: every house code of `errors.REFUSALS` has a status; a test compares the two tables.
"""

from __future__ import annotations

import json

from serai.errors import BadMessages, Corrupt, Misuse, OutcomeUnknown, PeerError, Refused, SeraiError

STATUS = {
    "refused": 400,
    "bad-ack": 400,
    "bad-checksum": 400,
    "bad-messages": 400,
    "bad-name": 400,
    "bad-policy": 400,
    "black-listed": 403,
    "consumer-unknown": 404,
    "disk-failed": 503,
    "disk-full": 507,
    "engine-away": 503,
    "limit-reached": 409,
    "locked": 409,
    "moving": 503,
    "newer-format": 503,
    "no-coordinator": 503,
    "no-owner": 503,
    "not-owner": 503,
    "out-of-range": 416,
    "outcome-unknown": 504,
    "partition-unknown": 404,
    "paused": 409,
    "producer-unknown": 404,
    "queue-full": 507,
    "recovering": 503,
    "retry-disabled": 501,
    "subscription-unknown": 404,
    "too-large": 413,
    "too-many-waiting": 429,
    "topic-exists": 409,
    "topic-unknown": 404,
    "unsupported": 501,
}
HINTS = {
    "disk-full": "free space, then try again",
    "outcome-unknown": "look whether it is there before sending it again",
    "out-of-range": "serai topic describe TOPIC",
    "partition-unknown": "serai topic describe TOPIC",
    "subscription-unknown": "serai subscription set TOPIC APP --role consumer",
    "topic-exists": "serai topic alter TOPIC",
    "topic-unknown": "serai topic list",
}
RETRY_AFTER_S = 1


class Problem(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, what: str, why: str, hint: str, *, code: str = "bad-request") -> None:
        super().__init__(f"{what}: {why}")
        self.status = status
        self.what = what
        self.why = why
        self.hint = hint
        self.code = code


def problem_body(problem: Problem) -> bytes:
    """What is sent."""
    said = {"code": problem.code, "what": problem.what, "why": problem.why, "hint": problem.hint}
    return json.dumps({"error": said}, ensure_ascii=False).encode()


def problem_of(error: SeraiError, what: str) -> Problem:
    """A failure of the house, in the words of HTTP."""
    code = error.code if isinstance(error, Refused | OutcomeUnknown | BadMessages) else _code_of(error)
    status = STATUS.get(code, 400 if isinstance(error, PeerError | Misuse) else 500)
    return Problem(status, what, str(error), HINTS.get(code, "see /openapi.json"), code=code)


def _code_of(error: SeraiError) -> str:
    return "corrupt" if isinstance(error, Corrupt) else "misuse" if isinstance(error, Misuse) else "refused"
