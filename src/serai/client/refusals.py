"""What a server's numbers mean to a program: an error of the house, and whether to ask again.

NOT_STORED    nothing was done and it may work in a moment: ask again, after a look at who owns the partitions
"""

from __future__ import annotations

from serai.doors.jmq.schema.numbers import MEANINGS, Number
from serai.errors import (
    REFUSALS,
    Backpressure,
    Denied,
    DiskFull,
    Failed,
    NotDurable,
    OutcomeUnknown,
    PeerError,
    Refused,
    SeraiError,
)  # fmt: skip

NOT_STORED = frozenset(
    {
        Number.PRODUCE_NOT_LEADER, Number.FETCH_NOT_LEADER, Number.ELECTION_ERROR, Number.WRONG_SYNC_STATE,
        Number.NO_PARTITION_GROUP, Number.REPLICATION_ENQUEUE_TIMEOUT, Number.TOO_MANY_REQUESTS, Number.RATE_LIMITED,
        Number.CONNECTION_UNKNOWN, Number.PRODUCER_UNKNOWN, Number.CONSUMER_UNKNOWN,
    }
)  # fmt: skip
UNKNOWN = frozenset({Number.REPLICATION_TIMEOUT, Number.WRITE_TIMEOUT, Number.REQUEST_TIMEOUT})
DENIED = frozenset(
    {
        Number.NO_PERMISSION, Number.AUTHENTICATION_FAILED, Number.TOPIC_FORBIDS_SENDING, Number.TOPIC_FORBIDS_CONSUMING,
        Number.OWNER_FORBIDS_SENDING, Number.OWNER_FORBIDS_CONSUMING,
    }
)  # fmt: skip
BROKEN = frozenset({Number.DECODE_ERROR, Number.COMMAND_NOT_SUPPORTED})
PARAMETER = (
    "a name, a size or a setting that cannot be; names have no '/' and no control characters, and at most 255 bytes"
)
NAMES = {int(each): each.name.lower().replace("_", " ") for each in Number}
CODES: dict[int, str] = {}
for _code, _meaning in MEANINGS.items():
    if _code in REFUSALS and _meaning.number is not Number.PARAMETER_ERROR:  # one number for five words: none of them
        CODES.setdefault(_meaning.number, _code)
        if _meaning.fetching is not None:
            CODES.setdefault(_meaning.fetching, _code)


def failure(number: int, what: str, text: str = "") -> SeraiError:
    """The error that says why the server declined `what`."""
    code = CODES.get(number, "refused")
    name = NAMES.get(number, "a number this client does not know")
    why = text or (PARAMETER if number == Number.PARAMETER_ERROR else REFUSALS[code])
    said = f"cannot {what}: the server answered {number}, {name} ({why})"
    if number in UNKNOWN:
        return OutcomeUnknown(said)
    if number in DENIED:
        return Denied(said, code=code)
    if number in BROKEN:
        return PeerError(said)
    if number in {Number.DISK_FULL, Number.WRITE_ERROR}:
        return DiskFull(said)
    if number == Number.IO_ERROR:
        return Failed(said)
    if number == Number.REPLICATION_MAY_NOT_DEGRADE:
        return NotDurable(said)
    if number in {Number.REPLICATION_ENQUEUE_TIMEOUT, Number.TOO_MANY_REQUESTS, Number.RATE_LIMITED}:
        return Backpressure(said)
    return Refused(said, code=code)
