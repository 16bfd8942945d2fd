"""Every setting of a topic or a subscription: its word, its default, the values it can have.

A topic and each subscription keep only what was set, a table of words.  What holds for a subscription is

    the defaults below  <  what the topic says  <  what the subscription says

so a topic's table may hold any word, a subscription's those of its role.

Invariants
- a table with an unknown word or an impossible value is never stored
- a policy in force is immutable: a change makes another one
- every word says after `#:` what it means; docs/guide/delivery.md has its tables from there

Left to others: where tables are kept (`catalogue`), who obeys (`desk`, `delivery`).  `concurrent` is advertised
and served as 1, `retry` and its times are advertised; the retry store does not exist yet.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from serai import limits
from serai.errors import Refused

Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What holds for everyone who uses a topic."""

    kind: str = "normal"  #: `normal`, `broadcast` or `ordered`: a hint for clients
    level: str = ""  #: `receive` or `commit` for whatever is produced; empty: what the request says
    visible: str = "appended"  #: readers see what is `appended`, or only what is `committed`
    jafka_magic: int = 1  #: how Jafka's places are counted, 0 or 1; fixed when a topic is made
    priority: tuple[int, ...] = ()  #: partitions that are read before the others
    params: tuple[tuple[str, str], ...] = ()  #: advertised to clients as it stands
    retention_ms: int = 0  #: messages older than this may go; 0: never
    retention_bytes: int = 0  #: the oldest messages of a partition with more than this may go; 0: never


@dataclass(frozen=True, slots=True)
class ProducerPolicy:
    """What holds for an application that produces."""

    nearby: bool = False  #: advertised: clients use nodes of their own region only
    single: bool = False  #: advertised: one thread of a client sends at a time
    archive: bool = False  #: what is produced goes to the archive
    weight: tuple[tuple[int, int], ...] = ()  #: advertised: how much of a client's messages goes to which node
    black_list: tuple[str, ...] = ()  #: addresses that are refused
    timeout_ms: int = 2000  #: advertised: how long a client waits for an answer


@dataclass(frozen=True, slots=True)
class ConsumerPolicy:
    """What holds for an application that consumes."""

    nearby: bool = False  #: advertised: clients use nodes of their own region only
    paused: bool = False  #: fetches are refused
    archive: bool = False  #: what is consumed goes to the archive
    retry: bool = True  #: messages that failed go to the retry store (there is none yet: they stay); false: they stay
    seq: bool = False  #: partition 0 only, strictly in order
    ack_timeout_ms: int = 300_000  #: a lease ends after this, if the fetch does not say otherwise
    batch_size: int = 10  #: messages of one answer, if the fetch does not say otherwise
    concurrent: int = 1  #: advertised: locks there may be in one partition; served as 1 until there is a window
    delay_ms: int = 0  #: a message is delivered no sooner than this after it was stored
    black_list: tuple[str, ...] = ()  #: addresses that are refused
    err_times: int = 3  #: advertised: failures after which a client gives a message to the retry store
    max_partitions: int = 0  #: leases one consumer may hold; 0: any number
    read_retry_probability: int = 20  #: advertised, in thousandths
    start: str = "oldest"  #: where a new group begins: `oldest` or `newest`
    retry_delay_ms: int = 1000  #: advertised: the first wait before a retry
    retry_multiplier: float = 2.0  #: advertised: by how much each further wait is longer
    retry_max: int = 0  #: advertised: most retries; 0: any number
    retry_expire_ms: int = 3 * 24 * 3600 * 1000  #: advertised: no retry after this


Policy = TypeVar("Policy", TopicPolicy, ProducerPolicy, ConsumerPolicy)
ROLES: dict[str, type[ProducerPolicy | ConsumerPolicy]] = {"producer": ProducerPolicy, "consumer": ConsumerPolicy}
WORDS = {
    kind: {field.name: field.default for field in fields(kind)}
    for kind in (TopicPolicy, ProducerPolicy, ConsumerPolicy)
}
CHOICES = {
    "kind": ("normal", "broadcast", "ordered"),
    "level": ("", "receive", "commit"),
    "visible": ("appended", "committed"),
    "start": ("oldest", "newest"),
}
RANGES = {
    "jafka_magic": (0, 1),
    "retention_ms": (0, 1 << 62),
    "retention_bytes": (0, 1 << 62),
    "timeout_ms": (1, limits.LEASE_MS_MAX),
    "ack_timeout_ms": (1, limits.LEASE_MS_MAX),
    "batch_size": (1, (1 << 15) - 1),
    "concurrent": (1, (1 << 31) - 1),
    "delay_ms": (0, limits.DELAY_MS_MAX),
    "err_times": (0, (1 << 31) - 1),
    "max_partitions": (0, limits.PARTITIONS_MAX),
    "read_retry_probability": (0, 1000),
    "retry_delay_ms": (0, limits.DELAY_MS_MAX),
    "retry_multiplier": (1, 1000),
    "retry_max": (0, (1 << 31) - 1),
    "retry_expire_ms": (0, limits.DELAY_MS_MAX),
}


def in_force(kind: type[Policy], *tables: Table) -> Policy:
    """The policy that results from tables, the last one strongest."""
    words = WORDS[kind]
    found = {word: _frozen(value) for table in tables for word, value in table.items() if word in words}
    return kind(**found)


def check_topic_table(table: Table) -> Table:
    """The table, if a topic can have it; keys of tables in it are made text, as JSON has them."""
    return {
        word: _check(word, value, {**WORDS[TopicPolicy], **WORDS[ProducerPolicy], **WORDS[ConsumerPolicy]})
        for word, value in table.items()
    }


def check_role_table(table: Table, role: str) -> Table:
    """The table, if a subscription in that role can have it."""
    if role not in ROLES:
        raise _bad(f"a subscription's role is {role!r}; it is producer or consumer")
    return {word: _check(word, value, WORDS[ROLES[role]]) for word, value in table.items()}


def _check(word: str, value: Any, words: dict[str, Any]) -> Any:
    if word not in words:
        near = get_close_matches(word, words, n=1)
        raise _bad(f"there is no setting {word!r} here" + (f"; did you mean {near[0]!r}?" if near else ""))
    if word == "weight":
        return {
            str(_whole(word, node, (0, (1 << 31) - 1))): _whole(word, weight, (0, (1 << 15) - 1))
            for node, weight in _pairs(word, value)
        }
    if word == "params":
        return {_text(word, key): _text(word, text) for key, text in _pairs(word, value)}
    if word == "black_list":
        return [_text(word, address) for address in _items(word, value)]
    if word == "priority":
        return [_whole(word, number, (0, limits.PARTITIONS_MAX - 1)) for number in _items(word, value)]
    if word in CHOICES:
        if value not in CHOICES[word]:
            raise _bad(f"{word} is {value!r}; it is one of {', '.join(repr(choice) for choice in CHOICES[word])}")
        return value
    if isinstance(words[word], bool):
        if not isinstance(value, bool):
            raise _bad(f"{word} is {value!r}; it is true or false")
        return value
    if isinstance(words[word], float):
        low, high = RANGES[word]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise _bad(f"{word} is {value!r}; it is a number from {low} to {high}")
        return float(value)
    return _whole(word, value, RANGES[word])


def _bad(text: str) -> Refused:
    return Refused(text, code="bad-policy")


def _whole(word: str, value: Any, bounds: tuple[int, int]) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not bounds[0] <= number <= bounds[1]:
        raise _bad(f"{word} has {value!r}; it is a whole number from {bounds[0]} to {bounds[1]}")
    return number


def _text(word: str, value: Any) -> str:
    if not isinstance(value, str) or len(value.encode("utf-8", "replace")) > limits.POLICY_WORD_BYTES_MAX:
        raise _bad(f"{word} has {str(value)[:40]!r}; it is text of at most {limits.POLICY_WORD_BYTES_MAX} bytes")
    return value


def _items(word: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)) or len(value) > limits.POLICY_WORDS_MAX:
        raise _bad(f"{word} is a list of at most {limits.POLICY_WORDS_MAX}")
    return list(value)


def _pairs(word: str, value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict) or len(value) > limits.POLICY_WORDS_MAX:
        raise _bad(f"{word} is a table of at most {limits.POLICY_WORDS_MAX}")
    return list(value.items())


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(
            (int(key) if key.isdigit() and isinstance(number, int) else key, number) for key, number in value.items()
        )
    return tuple(value) if isinstance(value, list) else value
