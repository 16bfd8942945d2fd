"""What can go wrong, in four families, so that a caller knows whose fault it is.

    PeerError   another process broke the rules (a producer that died, bytes that are no request)
    Refused     a legal wish we decline now (disk full, directory in use); `code` is the house's word
    Corrupt     bytes on disk are wrong: says file, position, expected and found
    Misuse      our caller is wrong: a mode, an offset, a closed queue

A message says what happened, why, where, and what to do about it.  Errors of the compiled core are
Python's own (ValueError, TypeError, OverflowError, EOFError, RuntimeError): they are about one value.
"""


class SeraiError(Exception):
    """Any error of serai."""


class PeerError(SeraiError):
    """Somebody else broke the rules."""


class DeadProducer(PeerError):
    """A producer died between claiming an entry and finishing it; the entry is skipped."""

    def __init__(self, text: str, *, offset: int, producer: str) -> None:
        super().__init__(text)
        self.offset = offset
        self.producer = producer


# Why a legal request is declined, in the house's words.  A door's schema maps each of them to its own number.
REFUSALS = {
    "refused": "declined, for the reason the text gives",
    "bad-ack": "what is acknowledged has gaps or repeats, or was never stored",
    "bad-name": "no topic, application or group can be called that",
    "bad-policy": "a setting that does not exist, or a value it cannot have",
    "black-listed": "the policy forbids this address",
    "consumer-unknown": "the consumer is not registered on this connection",
    "disk-failed": "the disk lost bytes; the partition can only be read until it was verified",
    "disk-full": "no space for the next bytes",
    "engine-away": "the engine cannot be reached, or has fewer copies than it must",
    "limit-reached": "one more would be over a bound of the house",
    "locked": "somebody else writes there",
    "moving": "the partition is changing hands",
    "newer-format": "a later version of serai wrote it",
    "no-coordinator": "nobody coordinates this application now",
    "no-owner": "no partition of the topic has an owner",
    "not-owner": "another node owns the partition",
    "out-of-range": "the ordinal is older than the oldest message or newer than the newest",
    "partition-unknown": "the topic has no partition of that number",
    "paused": "the policy pauses consumption",
    "producer-unknown": "the producer is not registered on this connection",
    "queue-full": "the last page number is used up",
    "recovering": "the partition is not ready yet",
    "retry-disabled": "messages that failed cannot be stored for a retry; they stay where they are",
    "subscription-unknown": "the application has no subscription to the topic",
    "too-many-waiting": "too many requests are parked already",
    "too-large": "a message or a request has more bytes than it may have",
    "topic-exists": "a topic of that name exists",
    "topic-unknown": "there is no such topic",
    "unsupported": "this server does not do that",
}


class Refused(SeraiError):
    """A legal request that is declined; `code`, a word of `REFUSALS`, names the reason for every door."""

    code = "refused"

    def __init__(self, text: str, *, code: str | None = None) -> None:
        super().__init__(text)
        if code is not None:
            assert code in REFUSALS, code
            self.code = code


class OutcomeUnknown(SeraiError):
    """Neither done nor failed: the time was over before the answer was known."""

    code = "outcome-unknown"


class Unreachable(SeraiError):
    """No server answers there; what was asked was not done."""


class Denied(Refused):
    """Not allowed: who asks may not do that there."""


class TooLarge(Refused):
    """More bytes than one message, or one request, may have; nothing of it was stored."""

    code = "too-large"


class Backpressure(Refused):
    """Too much is on its way already; nothing of this was sent."""

    code = "too-many-waiting"


class NotDurable(Refused):
    """What was asked for cannot be made as safe as it was asked for."""

    code = "engine-away"


class DiskFull(Refused):
    """No space for the next bytes; nothing was written, reading goes on."""

    code = "disk-full"


class Locked(Refused):
    """Another writer holds the directory or the producer name."""

    code = "locked"


class QueueFull(Refused):
    """The last page number is used up."""

    code = "queue-full"


class Failed(Refused):
    """The disk did not keep what it was given; nothing more is promised until the log is opened again."""

    code = "disk-failed"


class NewerFormat(Refused):
    """Written by a later version of serai; nothing was changed."""

    code = "newer-format"


class OutOfRange(Refused):
    """An ordinal, place or time that the log does not hold (any more, or yet)."""

    code = "out-of-range"

    def __init__(self, text: str, *, first: int, end: int) -> None:
        super().__init__(text)
        self.first = first
        self.end = end


class BadMessages(PeerError):
    """A set of messages that cannot be right: nothing of it was stored."""

    code = "bad-messages"


class BadChecksum(BadMessages):
    """A message's checksum is not that of its body."""

    code = "bad-checksum"


class Corrupt(SeraiError):
    """Bytes on disk that cannot be right."""

    ordinal: int | None = None  # of a log: the damaged record's first message
    next_ordinal: int | None = None  # and where reading can go on

    def __init__(
        self, text: str, *, file: str, position: int | None = None, expected: object = None, found: object = None
    ) -> None:
        super().__init__(text)
        self.file = file
        self.position = position
        self.expected = expected
        self.found = found


class Misuse(SeraiError, ValueError):
    """The caller's own mistake."""


class ReadOnly(Misuse):
    """Writing through a queue that was opened for reading."""


class Closed(Misuse):
    """Use after close."""
