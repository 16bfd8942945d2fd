"""What every command needs besides itself, and what it may say.

    command --> a function of (Visit, command) --> a payload, None (an answer without one), Later, or Refused

A command that fails as a whole is told a number and words; a row of it a number only, so rows are tried one by one.

Invariants
- every failure of the broker or the log has a number; anything else is a bug and is not caught here
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from serai.doors.jmq.schema.numbers import Number, number
from serai.errors import BadMessages, Corrupt, OutcomeUnknown, Refused, SeraiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai.broker import Broker, Session, Wait
    from serai.wire.layout import Form, Layout

FAILURES = (Refused, OutcomeUnknown, BadMessages, Corrupt)


class Visit(NamedTuple):
    """Who asks, and when."""

    broker: Broker
    session: Session
    form: Form  # the dialect, and the version of the request
    answer_bytes: int  # most bytes of messages in one answer
    now_ms: int


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that is not known yet; `polls`: it may take as long as a client is ready to wait."""

    wait: Wait[Any]
    finish: Callable[[], Layout | None]
    polls: bool = False


Said: TypeAlias = "Layout | Later | None"


def number_of(error: SeraiError, form: Form, *, producing: bool) -> int:
    """What a client is told of a failure."""
    if isinstance(error, Corrupt):
        return int(Number.READ_ERROR)
    return number(getattr(error, "code", "refused"), form, producing=producing)
