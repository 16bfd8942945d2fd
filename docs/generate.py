# ruff: noqa: INP001, T201 - a program, not a package
"""Writes the generated parts of the format pages from the code; with --check it says whether they have drifted.

    <!-- NAME: made by docs/generate.py -->  ...  <!-- NAME: end -->

The bytes of each kind are not described but packed, the numbers are read from where the code has them, and the tables of a
protocol are made of its layouts, so a page cannot say what the code does not do.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import struct
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
import prometheus_client.core

import serai
from serai import errors, limits
from serai._core import pages, records
from serai._core.entries import HOUSE
from serai._core.values import KINDS
from serai.broker import Broker, Node
from serai.broker.policy import ConsumerPolicy, ProducerPolicy, TopicPolicy
from serai.client.settings import MANNER, Sending
from serai.config import Settings
from serai.console.app import ROUTES
from serai.console.house import GateState, House
from serai.console.metrics import Numbers
from serai.doors.jmq.schema import commands, frame
from serai.doors.jmq.schema import numbers as jmq_numbers
from serai.log import folder, marks, state
from serai.log import format as names
from serai.log.engine import Level
from serai.log.listing import DRESSES
from serai.log.local import LocalEngine
from serai.log.times import Times
from serai.spark.options import Options as SparkOptions
from serai.spark.pipes import all_pipes
from serai.wire.describe import bit_table, table
from serai.wire.layout import all_parts

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES = sorted(page for folder in ("formats", "guide") for page in (Path(__file__).parent / folder).glob("*.md"))
PART = re.compile(r"(<!-- (?P<name>\w+): made by docs/generate.py -->\n).*?(<!-- (?P=name): end -->)", re.DOTALL)
SAMPLES: dict[str, list[Any]] = {
    "byte": [-2], "boolean": [True], "short": [258], "char": ["A"], "int": [66051], "long": [1], "float": [1.0],
    "double": [1.0], "string": ["AB"], "unicode": ["A€"], "decimal": [Decimal("-1.28"), Decimal("1E-200")],
    "big_integer": [128], "bytes": [b"AB"], "sized_bytes": [b"AB"],
}  # fmt: skip


def packed(kind: str, value: Any, dialect: str) -> str:
    """One value as the bytes of a message."""
    with tempfile.TemporaryDirectory() as folder, serai.Queue(folder, page_size=4096, dialect=dialect) as queue:
        getattr(queue.new_message(), f"pack_{kind}")(value).write_message()
        return " ".join(f"{byte:02x}" for byte in next(queue.reader().payloads()))


def values() -> str:
    """A row for every kind."""
    rows = ["| kind | value | `seed` | `java` |", "|---|---|---|---|"]
    for kind in KINDS:
        for value in SAMPLES[kind]:
            seed, java = (packed(kind, value, dialect) for dialect in names.DIALECTS)
            shown = str(value) if isinstance(value, Decimal) else repr(value)
            rows.append(f"| `{kind}` | `{shown}` | `{seed}` | {'the same' if java == seed else f'`{java}`'} |")
    return "\n".join(rows) + "\n"


def numbers() -> str:
    """A row for every constant that another program needs."""
    rows = [
        ("bytes of an index entry", names.SLOT_BYTES),
        ("end flag of a published entry", f"{names.PUBLISHED:#04x}"),
        ("bytes of a producer's state", names.STATE_BYTES),
        ("page length", f"{limits.PAGE_BYTES_MIN} to {limits.PAGE_BYTES_MAX}, by default {limits.PAGE_BYTES_DEFAULT}"),
        ("highest page number", limits.PAGE_NUMBER_MAX),
        ("most bytes of a message", names.MESSAGE_BYTES_MAX),
        ("plain bytes in a frame of a compressed page", limits.FRAME_BYTES),
        ("byte of the newest index page that a single producer locks (serai only)", f"{names.WRITER_LOCK_BYTE:#x}"),
    ]
    return "| | |\n|---|---|\n" + "".join(f"| {what} | {value} |\n" for what, value in rows)


def struct_of(name: str) -> list[tuple[int, int, str, str, str]]:
    """The fields of a packed struct of the core: offset, bytes, type, name, what stands behind it."""
    text = (Path(serai.__file__).parent / "_core" / "records.pxd").read_text(encoding="utf-8")
    body = re.search(rf"cdef packed struct {name}:\n((?:    .*\n?)+)", text)
    assert body is not None
    rows, at = [], 0
    for line in body[1].splitlines():
        found = re.fullmatch(r"    (u?int(\d+)_t) (\w+)\s*(?:# (.*))?", line)
        assert found is not None, line
        rows.append((at, int(found[2]) // 8, found[1].removesuffix("_t"), found[3], found[4] or ""))
        at += rows[-1][1]
    return rows


def log_head() -> str:
    """The record head, field by field."""
    rows = "".join(f"| {at}..{at + size - 1} | {kind} | {name.replace('_', ' ')} | {said} |\n" if size > 1 else
                   f"| {at} | {kind} | {name.replace('_', ' ')} | {said} |\n"
                   for at, size, kind, name, said in struct_of("Head"))  # fmt: skip
    return "| bytes | | field | |\n|---|---|---|---|\n" + rows


def log_index() -> str:
    """An entry of the record index."""
    rows = "".join(f"| {at}..{at + size - 1} | {kind} | {name} | {said} |\n"
                   for at, size, kind, name, said in struct_of("Record"))  # fmt: skip
    return "| bytes | | field | |\n|---|---|---|---|\n" + rows


def log_marks() -> str:
    """A mark, and the live area."""
    fields = ["magic", "crc", *marks.Mark._fields]
    kinds = re.findall(r"\d*[a-zA-Z]", names.MARK.format.removeprefix("<"))
    words = {"4s": repr(names.MARK_MAGIC)[1:], "I": "uint32", "Q": "uint64", "q": "int64"}
    rows, at = ["| bytes of a mark | | field |\n|---|---|---|\n"], 0
    for kind, name in zip(kinds, fields, strict=True):
        size = struct.calcsize("<" + kind)
        rows.append(f"| {at}..{at + size - 1} | {words[kind]} | {name.replace('_', ' ')} |\n")
        at += size
    rows.append("\n| bytes of the file | int64 |\n|---|---|\n")
    live = {name: value for name, value in vars(names).items() if name.startswith("LIVE_") and name != "LIVE_AT"}
    for name, value in sorted(live.items(), key=lambda item: item[1]):
        rows.append(f"| {value}..{value + 7} | {name.removeprefix('LIVE_').lower().replace('_', ' ')} |\n")
    return "".join(rows)


def log_numbers() -> str:
    """Every constant that another program needs to read a log."""
    rows = [
        ("version of a partition, of a data directory", f"{names.LOG_VERSION}, {names.STORE_VERSION}"),
        ("bytes of a record head", records.HEAD_BYTES),
        ("bytes of a record index entry", records.RECORD_BYTES),
        ("bytes of a slot", names.SLOT_BYTES),
        ("dresses", ", ".join(f"{number} {name}" for number, name in DRESSES.items())),
        ("flags of a record", f"{records.FLAG_LAST} last part, {records.FLAG_WRAPPED} an entry is a batch or compressed"),
        ("page length, a power of two", f"by default {limits.LOG_PAGE_BYTES_DEFAULT}, at least {limits.LOG_PAGE_BYTES_MIN}"),
        ("page length of a state log", limits.STATE_PAGE_BYTES),
        ("bytes of messages from which a set is stored in parts", limits.PART_BYTES),
        ("bytes of the marks file", names.MARKS_BYTES),
        ("where the two marks stand, and the live area", f"{names.MARK_AT[0]} and {names.MARK_AT[1]}, {names.LIVE_AT}"),
        ("byte of a data page that a reader locks while it maps the page", f"{names.READER_LOCK_BYTE:#x}"),
    ]  # fmt: skip
    return "| | |\n|---|---|\n" + "".join(f"| {what} | {value} |\n" for what, value in rows)


def log_format_file() -> str:
    """The format files as the code writes them."""
    with tempfile.TemporaryDirectory() as place:
        folder.create(Path(place) / "one", jafka_magic=1, page_bytes=limits.LOG_PAGE_BYTES_DEFAULT)
        text = (Path(place) / "one" / names.FORMAT_FILE).read_text(encoding="ascii")
    text = re.sub(r"identity \w+", "identity 0123456789abcdef", text)
    data = f"{names.DATA_KIND} {names.STORE_VERSION}\n"
    return f"```\n{text}```\nof a partition or state log, and of a data directory\n```\n{data}```\n"


class Sheet:
    """Three pages in memory, as a recorder asks for them."""

    def __init__(self) -> None:
        self.pages = [pages.Page(-1, limits.LOG_PAGE_BYTES_MIN, True) for _ in range(3)]

    def writing(self, which: int) -> Callable[[int, int], tuple[pages.Page, int]]:
        return lambda _offset, _need: (self.pages[which], limits.LOG_PAGE_BYTES_MIN)

    def __getattr__(self, name: str) -> Callable[[int, int], tuple[pages.Page, int]]:
        return self.writing(["data", "slots", "records"].index(name))


def log_sample() -> str:
    """One message as it lies in the three streams."""
    sheet = Sheet()
    into = records.Recorder(
        sheet, live=pages.Page(-1, 4096, True), live_at=0, page_bytes=limits.LOG_PAGE_BYTES_MIN, data_offset=0, ordinal=0,
        record_offset=0, place=0, time=0, identity=0x89ABCDEF, epoch=1, jafka_magic=1, inflated_max=1, inflated_free=1,
        inflated_ratio=1, depth_max=1, part_bytes=limits.PART_BYTES,
    )  # fmt: skip
    into.append(state.message(b"k", b"v"), HOUSE, 1_700_000_000_000)
    said = {"data": into.data_end, "slots": names.SLOT_BYTES, "record index": records.RECORD_BYTES}
    lines = []
    for (name, size), page in zip(said.items(), sheet.pages, strict=True):
        raw = bytes(memoryview(page)[:size])
        lines += [f"{name if at == 0 else '':14}{at:4}  {raw[at : at + 16].hex(' ')}" for at in range(0, size, 16)]
    return "```\n" + "\n".join(lines) + "\n```\n"


def jmq_heads() -> str:
    """What stands around a payload."""
    return f"{table(frame.Head)}\nIn an answer then:\n\n{table(frame.Status)}\n{bit_table(frame.Identity)}"


def jmq_messages() -> str:
    """A message, its bits, and the members of a batch."""
    parts = [table(frame.Message), bit_table(frame.SystemCode), table(frame.BatchHead), table(frame.Member)]
    return "\n".join(parts)


def jmq_commands() -> str:
    """A section for each command and its answer."""
    found = []
    for code, command in sorted(commands.COMMANDS.items()):
        found.append(f"### {code} {command.__name__}\n\n{(command.__doc__ or '').strip()}\n")
        found.append(table(command) if all_parts(command) else "No payload.\n")
        if command.reply is None:
            found.append("The answer has no payload.\n")
        else:
            found.append(f"Answer {-code}:\n\n{table(command.reply)}")
    return "\n".join(found)


def jmq_numbers_table() -> str:
    """Every number in words, and which house words it stands for."""
    said: dict[int, list[str]] = {}
    for code, meaning in jmq_numbers.MEANINGS.items():
        said.setdefault(meaning.number, []).append(code)
        if meaning.fetching is not None:
            said.setdefault(meaning.fetching, []).append(f"{code} (fetching)")
        if meaning.seed is not None:
            said.setdefault(meaning.seed, []).append(f"{code} (seed)")
    rows = ["| number | meaning | of the house |\n|---|---|---|\n"]
    for one in jmq_numbers.Number:
        words = one.name.lower().replace("_", " ")
        rows.append(f"| {one.value} | {words} | {', '.join(f'`{code}`' for code in said.get(one, []))} |\n")
    return "".join(rows)


def jmq_levels() -> str:
    """What a producer's quality byte waits for."""
    words = {jmq_numbers.NONE: "nothing", jmq_numbers.RECEIVE: "stored, flushed later", jmq_numbers.COMMIT: "flushed"}
    rows = ["| value | seed, house | real |\n|---|---|---|\n"]
    for value in range(5):
        waits = [words.get(jmq_numbers.LEVELS[dialect].get(value, -1), "code 6") for dialect in ("seed", "real")]
        rows.append(f"| {value} | {waits[0]} | {waits[1]} |\n")
    return "".join(rows)


def policy(kind: type) -> str:
    """A row for every setting, from the lines of the class."""
    rows = ["| word | default | |\n|---|---|---|\n"]
    for line in inspect.getsource(kind).splitlines():
        found = re.match(r" {4}(\w+): .* = (.*?)  #: (.*)", line)
        if found:
            rows.append(f"| `{found[1]}` | `{json.dumps(getattr(kind(), found[1]))}` | {found[3]} |\n")
    return "".join(rows)


def sending() -> str:
    """A row for every word of how a producer sends."""
    rows = ["| word | default | |\n|---|---|---|\n"]
    for line in inspect.getsource(Sending).splitlines():
        found = re.match(r" {4}(\w+): .*  #: (.*)", line)
        if found:
            rows.append(f"| `{found[1]}` | `{MANNER[found[1]]!r}` | {found[2]} |\n")
    return "".join(rows)


def client_errors() -> str:
    """A row for every error that a program may meet, those of other rooms left out."""
    kinds = [errors.OutcomeUnknown, errors.Unreachable, errors.Refused, *errors.Refused.__subclasses__()]
    kinds += [errors.PeerError, errors.Misuse, errors.Closed]
    rows = ["| error | |\n|---|---|\n"]
    told = [kind for kind in kinds if hasattr(serai, kind.__name__) and kind not in (errors.Locked, errors.QueueFull)]
    rows += [f"| `{kind.__name__}` | {(kind.__doc__ or '').splitlines()[0]} |\n" for kind in told]
    return "".join(rows)


def routes() -> str:
    """A row for every route of the HTTP API."""
    rows = ["| | |\n|---|---|\n"]
    for method, path, run in ROUTES:
        rows.append(f"| `{method} {path}` | {inspect.getdoc(run)} |\n")
    return "".join(rows)


def metric_names() -> str:
    """A row for every family, collected from a server that has done nothing yet."""
    with tempfile.TemporaryDirectory() as place:
        engine = LocalEngine(place, page_bytes=limits.LOG_PAGE_BYTES_MIN)
        broker = Broker(engine, node=Node(1, "127.0.0.1", 0), auto_create=True, level=Level.COMMIT)
        state = GateState({}, {}, 0, 0, is_ending=False, produce_times=Times())
        house = House(broker, Settings(), 0, now_ms=lambda: 0, finish=None, state=lambda: state)  # type: ignore[arg-type]  # nothing waits here
        families = list(Numbers(house, prometheus_client, {}).collect())
        engine.close()
    rows = ["| metric | |\n|---|---|\n"]
    for family in families:
        labels = ",".join(family._labelnames)
        name = family.name + ("_total" if family.type == "counter" else "") + (f"{{{labels}}}" if labels else "")
        rows.append(f"| `{name}` | {family.documentation} |\n")
    return "".join(rows)


def refusals() -> str:
    """The table of `errors.py`."""
    rows = [f"| `{code}` | {meaning} |\n" for code, meaning in sorted(errors.REFUSALS.items())]
    return "| code | meaning |\n|---|---|\n" + "".join(rows)


def spark_options(*, of_sink: bool) -> str:
    """A row for every option of the source, or of the sink alone, from the lines of the class."""
    fields = {one.name: one for one in dataclasses.fields(SparkOptions)}
    text = inspect.getsource(SparkOptions).split("    # ---- of the sink alone\n")[of_sink]
    rows = ["| option | default | |\n|---|---|---|\n"]
    for said, name in re.findall(r" {4}#: (.*)\n {4}(\w+): ", text):
        one = fields[name]
        names = " or ".join(f"`{word}`" for word in (one.metadata["name"], *one.metadata["aliases"]))
        default = "" if one.default is None else f"`{str(one.default).lower()}`"
        rows.append(f"| {names} | {default} | {said} |\n")
    assert text.count(" = option(") == len(rows) - 1, "an option without a word about it"
    return "".join(rows)


def spark_pipes() -> str:
    """A row for every pipeline, and what it can be told, from the declarations."""
    rows = ["| pipeline | | settings |\n|---|---|---|\n"]
    for one in all_pipes():
        flags = ", ".join(f"**`{own.flag}`**" if own.needed else f"`{own.flag}`" for own in one.settings())
        rows.append(f"| `{one.name}` | {one.does} | {flags} |\n")
    return "".join(rows)


def program(name: str) -> str:
    """A program of `examples/spark`, as it stands."""
    text = (Path(__file__).parent.parent / "examples" / "spark" / f"{name}.py").read_text(encoding="utf-8")
    return f"```python program\n{text}```\n"


PARTS: dict[str, Callable[[], str]] = {
    "values": values,
    "numbers": numbers,
    "log_head": log_head,
    "log_index": log_index,
    "log_marks": log_marks,
    "log_numbers": log_numbers,
    "log_format_file": log_format_file,
    "log_sample": log_sample,
    "jmq_heads": jmq_heads,
    "jmq_messages": jmq_messages,
    "jmq_commands": jmq_commands,
    "jmq_numbers": jmq_numbers_table,
    "jmq_levels": jmq_levels,
    "topic_policy": lambda: policy(TopicPolicy),
    "producer_policy": lambda: policy(ProducerPolicy),
    "consumer_policy": lambda: policy(ConsumerPolicy),
    "refusals": refusals,
    "settings": lambda: policy(Settings),
    "sending": sending,
    "client_errors": client_errors,
    "routes": routes,
    "metric_names": metric_names,
    "spark_source": lambda: spark_options(of_sink=False),
    "spark_sink": lambda: spark_options(of_sink=True),
    "spark_pipes": spark_pipes,
    "stream_join": lambda: program("stream_join"),
    "alerts": lambda: program("alerts"),
    "backfill": lambda: program("backfill"),
    "declarative": lambda: program("declarative/orders"),
}


def renew(page: Path, *, checking: bool) -> bool:
    """Writes a page's generated parts; True if it differed from what is there and may not be written."""
    text = page.read_text(encoding="utf-8")
    fresh = PART.sub(lambda part: part[1] + PARTS[part["name"]]() + part[3], text)
    if fresh == text:
        return False
    if checking:
        print(f"{page.name}: a generated part has drifted; `python docs/generate.py` writes it again")
        return True
    page.write_text(fresh, encoding="utf-8")
    print(f"wrote {page}")
    return False


def main() -> int:
    """Write, or with --check compare."""
    drifted = [renew(page, checking="--check" in sys.argv[1:]) for page in PAGES]
    return int(any(drifted))


if __name__ == "__main__":
    sys.exit(main())
