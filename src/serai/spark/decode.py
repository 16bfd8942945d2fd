"""Bodies as columns: text, JSON, XML, and the typed fields of Quick-Queue.

    text     value becomes a string; any charset Python knows
    json     a column for each field: Arrow's reader takes a whole batch at once; when it refuses, rows are tried
             one by one to find out which are bad
    xml      a column for each field: the text of the child element of that name, `_name` for an attribute;
             several elements for an array, the element's own fields for a struct
    fields   `i:int, amount:decimal(38,2), s:string`: one typed value after the other, unpacked in compiled code

A body that cannot be read is an error with topic, partition, offset and reason, or, as `onCorrupt` says, a row that is
left out (`skip`) or whose columns are null (`null`).  Both are counted, and the count is said once a task with the
first offset.  Fields that are missing are null; fields nobody asked for are passed over.
"""

import datetime as dt
import decimal
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from serai._core.columns import fields as unpack
from serai.errors import Corrupt, Misuse
from serai.spark import ddl
from serai.spark.options import Options
from serai.spark.slices import Block, Log, Slice, Tally, Wish

log_to = logging.getLogger("serai.spark")

KINDS: dict[str, pa.DataType] = {
    "byte": pa.int8(), "boolean": pa.bool_(), "short": pa.int16(), "char": pa.string(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "unicode": pa.string(), "decimal": pa.string(),
    "big_integer": pa.string(), "bytes": pa.binary(), "sized_bytes": pa.binary(),
}  # fmt: skip
FIELD = re.compile(r"\s*(\w+)\s*:\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")
Column = list[Any]


class BadBody(Exception):
    """One body cannot be read; says why."""


# What readers of bodies raise: their own, Arrow's, and of the interpreter for a body nested without end.
BAD = (BadBody, pa.ArrowException, ET.ParseError, ValueError, EOFError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Field:
    """One column made of bodies."""

    name: str
    kind: str  # of Quick-Queue; "" for text formats
    type: pa.DataType


@dataclass(frozen=True)
class Body:
    """How bodies become columns; none for raw bytes."""

    how: str
    fields: tuple[Field, ...]
    charset: str
    java: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.fields)

    def columns(self, log: Log, block: Block, wish: Wish) -> tuple[Block, dict[str, pa.Array]]:
        """The block, less the rows that are left out, and the columns made of its bodies."""
        values = block.arrays["value"]
        try:
            return block, self._all_at_once(values)
        except BAD:
            return self._row_by_row(log, block, wish)

    def _all_at_once(self, values: pa.Array) -> dict[str, pa.Array]:
        if values.null_count:
            raise BadBody("a body that is not there")
        if self.how == "text":
            return {self.fields[0].name: _texts(values, self.charset)}
        if self.how == "json":
            return _json_columns(values, self.charset, self.fields)
        if self.how == "fields":
            return _typed_columns(values, self.fields, java=self.java)
        rows = [self._one(body.as_py()) for body in values]
        return {one.name: pa.array([row[i] for row in rows], one.type) for i, one in enumerate(self.fields)}

    def _row_by_row(self, log: Log, block: Block, wish: Wish) -> tuple[Block, dict[str, pa.Array]]:
        """After something was wrong: each body by itself, so that only the bad ones are lost."""
        rows: list[tuple[Any, ...] | None] = []
        for at, body in enumerate(block.arrays["value"]):
            row = None
            if body.is_valid:
                try:
                    row = self._one(body.as_py())
                except BAD as error:
                    _bad(log, block, at, error, wish)
            rows.append(row)
        if wish.on_corrupt == "skip":
            keep = pa.array(np.flatnonzero([row is not None for row in rows]))
            block = Block(len(keep), {name: array.take(keep) for name, array in block.arrays.items()})
            rows = [row for row in rows if row is not None]
        nothing = (None,) * len(self.fields)
        kept = [row or nothing for row in rows]
        return block, {one.name: pa.array([row[i] for row in kept], one.type) for i, one in enumerate(self.fields)}

    def _one(self, body: bytes) -> tuple[Any, ...]:
        """The columns of one body, as values that fit their types."""
        if self.how == "fields":
            ends = np.array([0, len(body)], np.int32)
            return tuple(column[0].as_py() for column in _unpacked(body, ends, self.fields, java=self.java))
        text = body.decode(self.charset)
        if self.how == "text":
            return (text,)
        if self.how == "json":
            given = json.loads(text, parse_float=decimal.Decimal)
            if not isinstance(given, dict):
                raise BadBody(f"it is JSON, but no object: {text[:40]}")
            found = tuple(_json_value(given.get(one.name), one.type) for one in self.fields)
        else:
            root = ET.fromstring(text)
            found = tuple(_from_xml(root, one.name, one.type) for one in self.fields)
        for one, value in zip(self.fields, found, strict=True):
            _fit(one, value)
        return found


def body_of(options: Options, fields: list[tuple[str, pa.DataType]]) -> Body:
    """How the options want bodies; `fields` are the columns made of them."""
    if options.decode == "raw":
        chosen: list[Field] = []
    elif options.decode == "fields":
        known = {one.name: one for one in parse_fields(options)}
        unknown = [name for name, _type in fields if name not in known]
        if unknown:
            raise Misuse(f"the schema has the column {unknown[0]!r}, which neither a message nor the option fields has")
        # every field is unpacked: where one starts is known only by unpacking those before it
        chosen = [Field(one.name, one.kind, dict(fields).get(one.name, one.type)) for one in known.values()]
    else:
        chosen = [Field(name, "", kind) for name, kind in fields]
    return Body(options.decode, tuple(chosen), options.charset, options.dialect == "java")


def say(log: Log, piece: Slice, tally: Tally) -> None:
    """One line about what a task left out."""
    for count, what in (
        (tally.corrupt + tally.corrupt_rows, "could not be read"),
        (tally.abandoned, "were left by dead producers"),
        (tally.lost, "are gone"),
    ):
        if count:
            log_to.warning(
                "%s partition %d, positions %d to %d: %d messages %s; the first: %s",
                log.topic, log.partition, piece.first, piece.last, count, what, tally.first_words,
            )  # fmt: skip


def _bad(log: Log, block: Block, at: int, error: Exception, wish: Wish) -> None:
    offset = block.arrays["offset"][at].as_py()
    words = f"topic {log.topic} partition {log.partition} offset {offset}: the body cannot be read: {error}"
    if wish.on_corrupt == "fail":
        raise Corrupt(
            f"{words}. Option onCorrupt=skip leaves such rows out, null keeps them without their columns", file=log.path
        ) from None
    wish.tally.note(words)
    wish.tally.corrupt_rows += 1


# ---- the option `fields` -----------------------------------------------------------------------------------


def parse_fields(options: Options) -> list[Field]:
    """`name:kind, name:kind(precision,scale)` as fields."""
    if not options.fields:
        raise Misuse("decode=fields needs option fields, as 'id:int, amount:decimal(38,2), name:string'")
    found: list[Field] = []
    at = 0
    while True:
        one = FIELD.match(options.fields, at)
        where = f"option fields, field {len(found) + 1} at character {at}"
        if one is None:
            raise Misuse(f"{where}: expected name:kind, found {options.fields[at : at + 20]!r}")
        found.append(Field(one[1], one[2], _field_type(one, where)))
        at = one.end()
        if at == len(options.fields):
            break
        if options.fields[at] != ",":
            raise Misuse(f"{where} ({one[1]}): expected a comma behind it, found {options.fields[at]!r}")
        at += 1
    names = [one.name for one in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Misuse(f"option fields names {twice[0]!r} twice")
    return found


def _field_type(one: "re.Match[str]", where: str) -> pa.DataType:
    name, kind, precision, scale = one.groups()
    if kind not in KINDS:
        raise Misuse(f"{where} ({name}): no kind is called {kind!r}; there are {', '.join(KINDS)}")
    if precision is None:
        return KINDS[kind]
    if kind not in ("decimal", "big_integer") or not 1 <= int(precision) <= 38 or int(scale or 0) > int(precision):
        raise Misuse(f"{where} ({name}): {kind}({precision},{scale or 0}) cannot be; decimal(38,10) can")
    return pa.decimal128(int(precision), int(scale or 0))


def typed_fields(options: Options) -> list[tuple[str, pa.DataType]]:
    return [(one.name, one.type) for one in parse_fields(options)]


def declared_fields(options: Options) -> list[tuple[str, pa.DataType]]:
    """For JSON and XML the option is a schema as Spark writes it."""
    if not options.fields:
        raise Misuse(
            f"decode={options.decode} needs to know the fields: .schema('id long, name string') or option fields"
        )
    return ddl.read_fields(options.fields, name="fields")


# ---- text and JSON -----------------------------------------------------------------------------------------


def _texts(values: pa.Array, charset: str) -> pa.Array:
    if charset in ("utf-8", "ascii"):
        texts = values.cast(pa.string())
        if charset == "ascii" and not pc.all(pc.string_is_ascii(texts)).as_py():
            raise BadBody("a byte that is not ASCII")
        return texts
    return pa.array([body.as_py().decode(charset) for body in values], pa.string())


def _json_columns(values: pa.Array, charset: str, fields: tuple[Field, ...]) -> dict[str, pa.Array]:
    """Each body is wrapped as {"v":body}, so that a body that is none or two documents is seen."""
    if charset != "utf-8":
        values = _texts(values, charset).cast(pa.binary())
    joined = pc.binary_join_element_wise(b'{"v":', values, b"}\n", b"")
    lines = pa.py_buffer(b"".join(joined.to_pylist()))
    inner = pa.struct([pa.field(one.name, one.type) for one in fields])
    parsed = pyarrow.json.read_json(
        pa.BufferReader(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(lines) + 1, 1 << 16)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", inner)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    column = parsed.column("v").combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.nulls(0, inner)
    if len(column) != len(values) or column.null_count:
        raise BadBody("a body is not one JSON object")
    return {one.name: column.field(i) for i, one in enumerate(fields)}


def _json_value(value: Any, kind: pa.DataType) -> Any:
    """As Arrow's reader would take it: numbers are not text, text is not numbers."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise BadBody(f"expected an object, found {value!r}")
        return {one.name: _json_value(value.get(one.name), one.type) for one in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise BadBody(f"expected an array, found {value!r}")
        return [_json_value(one, kind.value_type) for one in value]
    if pa.types.is_string(kind) != isinstance(value, str) and not (
        pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
    ):
        raise BadBody(f"expected {kind}, found {value!r}")
    if pa.types.is_temporal(kind):
        return _instant(value, kind)
    if pa.types.is_floating(kind):
        return float(value)
    return value if not pa.types.is_decimal(kind) else decimal.Decimal(str(value))


# ---- XML ---------------------------------------------------------------------------------------------------


def _from_xml(element: ET.Element, name: str, kind: pa.DataType) -> Any:
    if name.startswith("_") and name[1:] in element.attrib:
        return _from_text(element.attrib[name[1:]], kind)
    found = [child for child in element if child.tag.rpartition("}")[2] == name]
    if pa.types.is_list(kind):
        return [_element_value(child, kind.value_type) for child in found]
    if len(found) > 1:
        raise BadBody(f"the element {name} stands {len(found)} times; an array takes them all")
    return _element_value(found[0], kind) if found else None


def _element_value(element: ET.Element, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {one.name: _from_xml(element, one.name, one.type) for one in kind}
    text = "".join(element.itertext())
    return text if pa.types.is_string(kind) else _from_text(text.strip(), kind)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise BadBody(f"expected a boolean, found {text!r}")
    return text.lower() in ("true", "1")


def _instant(value: Any, kind: pa.DataType) -> Any:
    found = dt.datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return found.date()
    return found if found.tzinfo or kind.tz is None else found.replace(tzinfo=dt.UTC)


def _from_text(text: str, kind: pa.DataType) -> Any:
    """A value as its text in an element or an attribute."""
    if pa.types.is_string(kind):
        return text
    if not text:
        return None
    try:
        return _reader(kind)(text)
    except (ValueError, ArithmeticError):
        raise BadBody(f"expected {kind}, found {text[:40]!r}") from None


def _reader(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return _truth
    if pa.types.is_decimal(kind):
        return decimal.Decimal
    if pa.types.is_temporal(kind):
        return lambda text: _instant(text, kind)
    return lambda text: text.encode()


# ---- typed fields ------------------------------------------------------------------------------------------


def _typed_columns(values: pa.Array, fields: tuple[Field, ...], *, java: bool) -> dict[str, pa.Array]:
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    columns = _unpacked(values.buffers()[2] or b"", ends, fields, java=java)
    return {one.name: column for one, column in zip(fields, columns, strict=True)}


def _unpacked(bodies: Any, ends: Any, fields: tuple[Field, ...], *, java: bool) -> list[pa.Array]:
    try:
        lists = unpack(bodies, ends, [one.kind for one in fields], java=java)
    except (EOFError, ValueError) as error:
        at = getattr(error, "field", 0)
        raise BadBody(f"field {at + 1}, {fields[at].name}:{fields[at].kind}: {error}") from None
    return [_fit_all(one, values) for one, values in zip(fields, lists, strict=True)]


def _fit_all(one: Field, values: Column) -> pa.Array:
    if pa.types.is_decimal(one.type):
        values = [_scaled(one, decimal.Decimal(value)) for value in values]
    elif one.kind in ("decimal", "big_integer"):
        values = [format(value, "f") if isinstance(value, decimal.Decimal) else str(value) for value in values]
    return pa.array(values, one.type)


def _scaled(one: Field, value: decimal.Decimal) -> decimal.Decimal:
    """The value with the column's scale; digits that would be lost are an error, never rounded away."""
    with decimal.localcontext(decimal.Context(prec=100, traps=[decimal.InvalidOperation, decimal.Inexact])):
        try:
            return value.quantize(decimal.Decimal(1).scaleb(-one.type.scale))
        except decimal.DecimalException:
            raise BadBody(f"{one.name} is {value}, which {one.type} does not hold") from None


def _fit(one: Field, value: Any) -> None:
    try:
        pa.array([value], one.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise BadBody(f"{one.name}: {error}") from None
