"""Error numbers and levels of JMQ, and which of them stands for each word of the house.

    number(code, form, producing)     what a client of a dialect and version is told of a house code
    LEVELS[dialect][quality]          what a producer waits for

Invariants
- every code of `serai.errors` has a number
- a number fits into the status byte
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from serai.wire.layout import Form


class Number(IntEnum):
    """Statuses and codes; from 20 on without the seed's hundreds: the real layout only."""

    SUCCESS = 0
    NO_PERMISSION = 1
    AUTHENTICATION_FAILED = 2
    SERVICE_NOT_AVAILABLE = 3
    UNKNOWN_ERROR = 4
    DATABASE_ERROR = 5
    PARAMETER_ERROR = 6
    NEGATIVE_VOTE = 7
    CHECKSUM_ERROR = 8
    INITIALISATION_ERROR = 9
    CONNECT_ERROR = 20
    CONNECT_TIMEOUT = 21
    REQUEST_TIMEOUT = 22
    SEND_FAILED = 23
    TOO_MANY_REQUESTS = 24
    INTERRUPTED = 25
    EXECUTOR_BUSY = 26
    COMMAND_NOT_SUPPORTED = 27
    DECODE_ERROR = 28
    PLUGIN_MISSING = 29
    TRANSACTION_PREPARE_FAILED = 30
    TRANSACTION_EXECUTE_FAILED = 31
    TRANSACTION_COMMIT_FAILED = 32
    TRANSACTION_ROLLBACK_FAILED = 33
    TRANSACTION_UNKNOWN = 34
    NOT_SUPPORTED = 35
    BATCH_SPANS_PARTITIONS = 36
    RATE_LIMITED = 74
    CLIENT_TOO_OLD = 75
    BODY_EMPTY = 76
    IO_ERROR = 91
    INDEX_ABOVE_MAXIMUM = 92
    INDEX_BELOW_MINIMUM = 93
    DISK_FULL = 94
    DISK_FLUSH_SLOW = 101
    SERIALISATION_ERROR = 107
    WRITE_TIMEOUT = 108
    WRITE_ERROR = 109
    READ_ERROR = 110
    REPLICATION_ENQUEUE_TIMEOUT = 111
    REPLICATION_TIMEOUT = 112
    REPLICATION_ERROR = 113
    REPLICATION_POSITION_ERROR = 114
    FLUSH_POSITION_ERROR = 115
    WRONG_SYNC_STATE = 116
    REPLICATION_MAY_NOT_DEGRADE = 117
    CONNECTION_EXISTS = 131
    CONNECTION_UNKNOWN = 132
    PRODUCER_UNKNOWN = 134
    CONSUMER_UNKNOWN = 136
    TRANSACTION_EXISTS = 137
    SEED_TRANSACTION_UNKNOWN = 138
    COMMIT_FAILED = 139
    ACK_FAILED = 140
    STORING_FAILED = 141
    GETTING_FAILED = 142
    ORDER_STATE_FAILED = 143
    TOPIC_FORBIDS_SENDING = 144
    TOPIC_FORBIDS_CONSUMING = 145
    OWNER_FORBIDS_SENDING = 146
    OWNER_FORBIDS_CONSUMING = 147
    TOO_MANY_TRANSACTIONS = 148
    CROSS_SITE = 149
    ELECTION_ERROR = 150
    COORDINATOR_NOT_AVAILABLE = 181
    ASSIGNOR_UNKNOWN = 182
    ASSIGNMENT_FAILED = 183
    INDEX_OUT_OF_RANGE = 184
    NO_PARTITIONS = 185
    PAUSED = 186
    FETCH_NOT_LEADER = 187
    PRODUCE_NOT_LEADER = 188
    TOPIC_UNKNOWN = 189
    NO_PARTITION_GROUP = 190
    PARTITION_ELSEWHERE = 191
    BROKER_NOT_READABLE = 192
    BROKER_NOT_WRITABLE = 193
    RETRY_DISABLED = 244
    RETRY_NO_TOKEN = 245


class Meaning(NamedTuple):
    """The number for a house code; `fetching` where a consumer is told another, `seed` where that dialect has its own."""

    number: Number
    fetching: Number | None = None
    seed: Number | None = None


MEANINGS = {
    "refused": Meaning(Number.SERVICE_NOT_AVAILABLE),
    "topic-unknown": Meaning(Number.TOPIC_UNKNOWN),
    "topic-exists": Meaning(Number.PARAMETER_ERROR),
    "partition-unknown": Meaning(Number.PRODUCE_NOT_LEADER, fetching=Number.FETCH_NOT_LEADER),
    "subscription-unknown": Meaning(Number.NO_PERMISSION),
    "producer-unknown": Meaning(Number.PRODUCER_UNKNOWN),
    "consumer-unknown": Meaning(Number.CONSUMER_UNKNOWN),
    "black-listed": Meaning(Number.TOPIC_FORBIDS_SENDING, fetching=Number.TOPIC_FORBIDS_CONSUMING),
    "paused": Meaning(Number.PAUSED),
    "bad-ack": Meaning(Number.ACK_FAILED),
    "out-of-range": Meaning(Number.INDEX_OUT_OF_RANGE),
    "not-owner": Meaning(Number.PRODUCE_NOT_LEADER, fetching=Number.FETCH_NOT_LEADER),
    "moving": Meaning(Number.ELECTION_ERROR),
    "recovering": Meaning(Number.WRONG_SYNC_STATE),
    "engine-away": Meaning(Number.REPLICATION_MAY_NOT_DEGRADE),
    "outcome-unknown": Meaning(Number.REPLICATION_TIMEOUT),
    "too-many-waiting": Meaning(Number.REPLICATION_ENQUEUE_TIMEOUT),
    "disk-full": Meaning(Number.DISK_FULL, seed=Number.WRITE_ERROR),
    "disk-failed": Meaning(Number.IO_ERROR),
    "no-coordinator": Meaning(Number.COORDINATOR_NOT_AVAILABLE),
    "no-owner": Meaning(Number.NO_PARTITION_GROUP),
    "bad-name": Meaning(Number.PARAMETER_ERROR),
    "bad-policy": Meaning(Number.PARAMETER_ERROR),
    "bad-messages": Meaning(Number.PARAMETER_ERROR),
    "bad-checksum": Meaning(Number.CHECKSUM_ERROR),
    "too-large": Meaning(Number.PARAMETER_ERROR),
    "retry-disabled": Meaning(Number.RETRY_DISABLED),
    "unsupported": Meaning(Number.NOT_SUPPORTED),
    "limit-reached": Meaning(Number.SERVICE_NOT_AVAILABLE),
    "newer-format": Meaning(Number.SERVICE_NOT_AVAILABLE),
    "locked": Meaning(Number.SERVICE_NOT_AVAILABLE),
    "queue-full": Meaning(Number.WRITE_ERROR),
}
COARSE = {Number.TOPIC_FORBIDS_SENDING, Number.BROKER_NOT_READABLE, Number.BROKER_NOT_WRITABLE}  # 1 for version 1

NONE, RECEIVE, COMMIT = 0, 1, 2  # levels, as the log counts them
LEVELS = {
    "seed": {0: COMMIT, 1: RECEIVE, 2: NONE, 3: COMMIT},
    "real": {0: NONE, 1: RECEIVE, 2: COMMIT, 3: COMMIT, 4: COMMIT},
    "house": {0: COMMIT, 1: RECEIVE, 2: NONE, 3: COMMIT},
}
ONE_WAY = {"seed": 2, "real": 0, "house": 2}  # the quality in a frame's head that wants no answer


def number(code: str, form: Form, *, producing: bool) -> int:
    """What a client is told of a house code."""
    meaning = MEANINGS[code]
    found = meaning.number if producing or meaning.fetching is None else meaning.fetching
    if form.dialect == "seed" and meaning.seed is not None:
        found = meaning.seed
    if form.dialect == "real" and form.version == 1 and found in COARSE:
        found = Number.NO_PERMISSION
    return int(found)
