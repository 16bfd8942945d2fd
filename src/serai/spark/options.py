"""Options of the source and the sink: one table, so that a name, its kind and its default stand together.

    spark.read.format("serai").option("logDir", "orders").option("columns", "offset,value")

Spark hands options over with keys in lower case, so names are compared without case.  The names of Kafka's
source are accepted as they are, so that a job moves over by changing the format and the address; `kafka.*`
options that mean nothing here are ignored with one warning each.

Invariants
- an option nobody knows is an error that names the nearest known one
- a value is checked where it is given, before anything is read, and the error repeats name and value
"""

import difflib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from serai import limits
from serai.errors import Misuse

log = logging.getLogger("serai.spark")

DECODES = ("raw", "text", "json", "xml", "fields")
ON_CORRUPT = ("fail", "skip", "null")
ISOLATIONS = ("committed", "uncommitted")
TRANSPORTS = ("auto", "local")
DIALECTS = ("seed", "java")
NO_TIME_MATCH = ("error", "latest")
PARTITIONERS = ("hash", "roundrobin", "sparkpartition")
DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d|)")
DURATION_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE = re.compile(r"(\d+)\s*(|k|m|g|kib|mib|gib)")
SIZE_FACTOR = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

# The charsets the Z-Protocol names, by the names people write; Python knows more and accepts them too.
CHARSETS = {
    "ascii": "ascii", "utf_8": "utf-8", "utf8": "utf-8", "utf_8_nb": "utf-8", "utf_16be": "utf-16-be", "utf_be": "utf-16-be",
    "utf_16le": "utf-16-le", "utf_le": "utf-16-le", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030",
    "iso_8859_1": "latin-1", "latin1": "latin-1", "iso_8859_15": "iso8859-15",
}  # fmt: skip


def one_of(*allowed: str) -> Callable[[str], str]:
    """A reader of options that have a few values."""

    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"it is {', '.join(allowed[:-1])} or {allowed[-1]}")
        return text.lower()

    return read


def truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.lower() == "true"


def count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("it is a whole number from 1 on")
    return int(text)


def size(text: str) -> int:
    """Bytes, also written as 64k, 8MiB, 1g; 0 means no limit."""
    found = SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("it is a number of bytes, as 1048576, 512k, 8MiB or 1g")
    return int(found[1]) * SIZE_FACTOR[found[2][:1]]


def duration_ms(text: str) -> int:
    found = DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("it is a time span, as 500ms, 30s, 15m or 2h")
    return int(found[1]) * DURATION_MS[found[2]]


def names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or len(set(found)) != len(found):
        raise ValueError("it is a list of different names with commas between them")
    return found


def charset(text: str) -> str:
    """The codec behind a charset's name."""
    import codecs

    plain = text.strip().lower().replace("-", "_")
    try:
        return codecs.lookup(CHARSETS.get(plain, text.strip())).name
    except LookupError:
        raise ValueError(f"no such charset; some are {', '.join(sorted(set(CHARSETS.values())))}") from None


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    return text


def assigned(text: str) -> Any:
    """{"topic": [0, 1]}"""
    try:
        found = json.loads(text)
        if all(isinstance(parts, list) and all(type(part) is int for part in parts) for parts in found.values()):
            return {topic: tuple(parts) for topic, parts in found.items()}
    except (ValueError, AttributeError):
        pass
    raise ValueError('it is JSON of topics and their partitions, as {"orders": [0, 1]}')


def option(name: str, kind: Callable[[str], Any], default: Any = None, *aliases: str) -> Any:
    """A field of the options below."""
    return field(default=default, metadata={"name": name, "kind": kind, "aliases": aliases})


@dataclass(frozen=True)
class Options:
    """What was asked of the source or the sink, read and checked."""

    #: a data directory, one log of it, a queue, or a folder of queues; `load(path)` is the same
    log_dir: str | None = option("logDir", str, None, "path")
    #: for later: logs are read on this machine only
    servers: str | None = option("servers", str, None, "kafka.bootstrap.servers")
    #: topics; all there are, if nothing is said
    subscribe: tuple[str, ...] | None = option("subscribe", names)
    #: topics whose whole name fits this regular expression of Python's
    subscribe_pattern: str | None = option("subscribePattern", pattern)
    #: partitions, as `{"orders": [0, 1]}`
    assign: Any = option("assign", assigned)
    #: only these, in this order; the others are neither built nor sent (Spark prunes no column of a Python source)
    columns: tuple[str, ...] | None = option("columns", names)
    #: the column `headers`
    include_headers: bool = option("includeHeaders", truth, False)
    #: the columns `messageId`, `producer`, `door`, `sendTime`
    include_ids: bool = option("includeIds", truth, False)
    #: `local` maps the files; the only way there is
    transport: str = option("transport", one_of(*TRANSPORTS), "auto")
    #: rows of an Arrow batch, at most
    batch_rows: int = option("batchRows", count, 20_000)
    #: bytes of an Arrow batch, about
    batch_bytes: int = option("batchBytes", size, 8 * limits.MIB)
    #: cut into at least so many tasks
    min_partitions: int | None = option("minPartitions", count)
    #: messages of a task, at most
    max_records_per_partition: int | None = option("maxRecordsPerPartition", count)
    #: messages of a batch, at most, shared out in proportion to what each partition has
    max_offsets_per_trigger: int | None = option("maxOffsetsPerTrigger", count)
    #: bytes of a batch; without it 1 GiB for each core, 0 for no limit
    max_bytes_per_trigger: int | None = option("maxBytesPerTrigger", size)
    #: wait until there are so many
    min_offsets_per_trigger: int | None = option("minOffsetsPerTrigger", count)
    #: but no longer than this: ms, or a span as 30s and 15m
    max_trigger_delay_ms: int = option("maxTriggerDelay", duration_ms, 900_000)
    #: `earliest` (of batches), `latest` (of streams), `-100` for so many before the end, or JSON
    starting_offsets: str | None = option("startingOffsets", str)
    #: ms, an ISO time, or `now-10m`; goes before `startingOffsets`
    starting_timestamp: str | None = option("startingTimestamp", str)
    #: JSON of topics, partitions and ms
    starting_offsets_by_timestamp: str | None = option("startingOffsetsByTimestamp", str)
    #: when nothing is that new: `error`, or `latest`
    no_time_match: str = option("startingOffsetsByTimestampStrategy", one_of(*NO_TIME_MATCH), "error")
    #: of batches: `latest` or JSON
    ending_offsets: str | None = option("endingOffsets", str)
    #: of batches: up to this time
    ending_timestamp: str | None = option("endingTimestamp", str)
    #: of batches: JSON of topics, partitions and ms
    ending_offsets_by_timestamp: str | None = option("endingOffsetsByTimestamp", str)
    #: messages that are gone are an error with numbers; `false`: a warning with the same numbers
    fail_on_data_loss: bool = option("failOnDataLoss", truth, True)
    #: `committed`: what is on the disk; `uncommitted`: everything there is
    isolation: str = option("isolation", one_of(*ISOLATIONS), "committed")
    #: damaged messages and bodies: `fail`, `skip` or `null`, counted
    on_corrupt: str = option("onCorrupt", one_of(*ON_CORRUPT), "fail")
    #: an entry whose producer died in the middle of it: `skip` or `fail`
    on_abandoned: str = option("onAbandoned", one_of("skip", "fail"), "skip")
    #: bodies as `raw`, `text`, `json`, `xml` or typed `fields`
    decode: str = option("decode", one_of(*DECODES), "raw")
    #: of text, JSON and XML
    charset: str = option("charset", charset, "utf-8")
    #: names and types of the columns of a body; `.schema(...)` says the same
    fields: str | None = option("fields", str)
    #: of typed values: `seed` or `java`
    dialect: str = option("dialect", one_of(*DIALECTS), "seed")
    #: answer filters on `offset`, `partition`, `topic` and `timestamp` by the plan
    pushdown: bool = option("pushdown", truth, False)
    # ---- of the sink alone
    #: Spark's; refused beside `exactlyOnce`
    async_progress: bool = option("asyncProgressTrackingEnabled", truth, False)
    #: where rows go; without it the column `topic` says
    topic: str | None = option("topic", str)
    #: each batch of a stream once, unless this is `false`: then as often as Spark writes it
    exactly_once: bool | None = option("exactlyOnce", truth)
    #: of a batch job that is to be written once: who writes
    writer_id: str | None = option("writerId", str)
    #: and which batch it is
    job_id: str | None = option("jobId", str)
    #: `hash` of the key, `roundrobin` or `sparkPartition`
    partitioner: str = option("partitioner", one_of(*PARTITIONERS), "hash")

    def __post_init__(self) -> None:
        chosen = [one for one in (self.subscribe, self.subscribe_pattern, self.assign) if one is not None]
        if len(chosen) > 1:
            raise Misuse(
                "subscribe, subscribePattern and assign are three ways to say one thing: give only one of them"
            )
        if self.log_dir is None and self.servers is None:
            raise Misuse("say where the log is: option('logDir', a log or queue directory on this machine)")
        if self.log_dir is None:
            raise Misuse(
                "this version of serai reads and writes logs on this machine only: give option('logDir', directory) instead of "
                "'servers'"
            )
        if self.servers is not None:
            raise Misuse("logDir and servers are two places: give only one of them")


# Names of other sources and of the part over the wire: known, so that a ported job is told what it loses, not stopped.
IGNORED = {
    "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms", "groupidprefix",
    "fetch.timeoutms", "fetch.retries", "fetch.retryintervalms", "newpartitions", "acks",
}  # fmt: skip
SPARKS = {
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingcheckpointintervalms",
}  # Spark's own; it shows them to sinks
REFUSED = {
    "group": "positions of a group are published through a server; with logDir the checkpoint is where positions stand",
}
_TABLE = {name.lower(): one for one in fields(Options) for name in (one.metadata["name"], *one.metadata["aliases"])}
_warned: set[str] = set()


def _ignore(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        log.warning("option %s has no meaning for serai and is ignored", name)


def known_names() -> list[str]:
    """Every option's name as documents write it."""
    return sorted(one.metadata["name"] for one in fields(Options))


def _unknown(name: str) -> Misuse:
    near = difflib.get_close_matches(name.lower(), _TABLE, n=1, cutoff=0.5)
    hint = f"did you mean {_TABLE[near[0]].metadata['name']}?" if near else f"there are {', '.join(known_names())}"
    return Misuse(f"serai has no option {name!r}: {hint}")


def read_options(given: Mapping[str, str], *, extra: tuple[str, ...] = ()) -> Options:
    """The options as they were given, whatever case their names are in; `extra` names belong to the caller."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        plain = name.lower()
        one = _TABLE.get(plain)
        if plain in extra or plain in SPARKS:
            continue
        if one is None:
            if plain in REFUSED:
                raise Misuse(f"option {name}: {REFUSED[plain]}")
            if plain not in IGNORED and not plain.startswith("kafka."):
                raise _unknown(name)
            _ignore(name)
            continue
        if one.name in values:
            raise Misuse(f"option {one.metadata['name']} is given twice, once as {name}")
        try:
            values[one.name] = one.metadata["kind"](text)
        except ValueError as error:
            raise Misuse(f"option {one.metadata['name']} is {text!r}; {error}") from None
    return Options(**values)
