"""The schema of a frame, and blocks of a log as Arrow batches of it.

    key value topic partition offset timestamp timestampType      names and types of Kafka's source
    headers                                                       with includeHeaders
    messageId producer door sendTime                              with includeIds

Bodies stay bytes (`decode=raw`), become text, or become columns of their own: with `fields`, `json` and `xml`
the column `value` gives way to one for each field of the body, unless `columns` names it too.  Which those are
is said by `.schema(...)`, where names that stand above mean the message's own column, or by the option `fields`.

Spark 4.3 prunes no column of a Python source, so `columns` does: what is not named is neither built nor sent.

Invariants
- every batch has exactly the types of the declared schema; Spark looks at the first one only
- a row that is skipped is counted in the tally
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from serai.errors import Misuse
from serai.spark import decode
from serai.spark.options import Options
from serai.spark.slices import Block, DataLoss, Log, Slice, Wish

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
INSTANT = pa.timestamp("us", "UTC")
TYPES = {
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": INSTANT, "timestampType": pa.int32(), "headers": HEADERS, "messageId": pa.int64(),
    "producer": pa.string(), "door": pa.string(), "sendTime": INSTANT,
}  # fmt: skip
ALWAYS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
IDS = ("messageId", "producer", "door", "sendTime")
NO_TIME = -1  # timestampType of a message whose log keeps no times


@dataclass(frozen=True)
class Shape:
    """Columns of a frame in their order, and how bodies become those that are not the message's own."""

    schema: pa.Schema
    body: decode.Body

    @property
    def own(self) -> frozenset[str]:
        """The columns that come from the message, and the value if a body column is made of it."""
        names = set(self.schema.names) - set(self.body.names)
        return frozenset(names | {"value"} if self.body.names else names)


def shape_of(options: Options, declared: StructType | None = None) -> Shape:
    """The frame the options describe; a schema the user declared goes first."""
    if declared is not None:
        return _declared_shape(options, to_arrow_schema(declared, timezone="UTC"))
    fields = _body_fields(options)
    names = [name for name in ALWAYS if name != "value" or not fields]
    if fields:
        at = names.index("topic")
        names[at:at] = [name for name, _type in fields]
    names += ["headers"] * options.include_headers + list(IDS) * options.include_ids
    types = TYPES | {"value": pa.string() if options.decode == "text" else pa.binary()} | dict(fields)
    names = _chosen(options, names, types)
    schema = pa.schema([pa.field(name, types[name]) for name in names])
    made = [("value", types["value"])] if options.decode == "text" else fields
    return Shape(schema, decode.body_of(options, [(name, kind) for name, kind in made if name in names]))


def _body_fields(options: Options) -> list[tuple[str, pa.DataType]]:
    if options.decode == "fields":
        return decode.typed_fields(options)
    if options.decode in ("json", "xml"):
        return decode.declared_fields(options)
    return []


def _chosen(options: Options, names: list[str], types: dict[str, pa.DataType]) -> list[str]:
    if options.columns is None:
        return names
    allowed = [*names, *(name for name in types if name not in names)]
    plain = {name.lower(): name for name in allowed}
    unknown = [name for name in options.columns if name.lower() not in plain]
    if unknown:
        raise Misuse(f"option columns names {unknown[0]!r}; there are {', '.join(allowed)}")
    return [plain[name.lower()] for name in options.columns]


def _keeps_value(options: Options) -> bool:
    """Whether the column `value` is the body as it is: no field of it has that name, and it was asked for."""
    if options.decode in ("raw", "text"):
        return options.decode == "raw"
    asked = options.fields is not None and "value" in (options.columns or ())
    return asked and all(name != "value" for name, _type in _body_fields(options))


def _declared_shape(options: Options, schema: pa.Schema) -> Shape:
    own = {name: kind for name, kind in TYPES.items() if name != "value" or _keeps_value(options)}
    body = []
    for one in schema:
        if one.name not in own:
            body.append((one.name, one.type))
        elif one.type != own[one.name]:
            raise Misuse(f"the schema says {one.type} for the column {one.name}; it is {own[one.name]}")
    if options.decode == "text" and body == [("value", pa.string())]:
        return Shape(schema, decode.body_of(options, body))
    if body and options.decode in ("raw", "text"):
        raise Misuse(
            f"the schema has the column {body[0][0]!r}, which no message has; bodies become columns with decode=json, xml or fields"
        )
    return Shape(schema, decode.body_of(options, body))


def spark_schema(shape: Shape) -> StructType:
    return from_arrow_schema(shape.schema, prefer_timestamp_ntz=False)


# ---- rows --------------------------------------------------------------------------------------------------


def batches(log: Log, piece: Slice, shape: Shape, options: Options) -> Iterator[pa.RecordBatch]:
    """A slice of a log as batches of the shape; at the end every planned row was given or is accounted for."""
    wish = Wish(
        columns=shape.own, rows=options.batch_rows, bytes=options.batch_bytes or 1 << 30, on_corrupt=options.on_corrupt,
        on_abandoned=options.on_abandoned, fail_on_loss=options.fail_on_data_loss,
    )  # fmt: skip
    given = 0
    try:
        for block in log.blocks(piece.first, piece.last, wish):
            given += block.rows
            for start in range(0, block.rows, options.batch_rows):
                yield from _batch(log, cut(block, start, options.batch_rows), shape, wish)
    except DataLoss as loss:
        if options.fail_on_data_loss:
            raise
        wish.tally.lost = len(piece) - given - wish.tally.corrupt - wish.tally.abandoned
        wish.tally.note(str(loss))
    if given + wish.tally.missing != len(piece):
        raise DataLoss(
            f"{log.path}: positions {piece.first} to {piece.last} were planned, {len(piece)} messages, and {given} came"
        )
    decode.say(log, piece, wish.tally)


def cut(block: Block, start: int, rows: int) -> Block:
    if start == 0 and block.rows <= rows:
        return block
    length = min(rows, block.rows - start)
    return Block(length, {name: array.slice(start, length) for name, array in block.arrays.items()})


def _batch(log: Log, block: Block, shape: Shape, wish: Wish) -> Iterator[pa.RecordBatch]:
    made: dict[str, pa.Array] = {}
    if shape.body.names:
        block, made = shape.body.columns(log, block, wish)
    arrays = [made[one.name] if one.name in made else _own(log, block, one) for one in shape.schema]
    if block.rows:
        yield pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


def _own(log: Log, block: Block, one: pa.Field) -> pa.Array:
    """A column of the message itself: as the log gave it, or the same for all rows."""
    given = block.arrays.get(one.name)
    if given is not None:
        return given
    if one.name == "topic":
        return pa.repeat(pa.scalar(log.topic, pa.string()), block.rows)
    if one.name == "partition":
        return pa.repeat(pa.scalar(log.partition, pa.int32()), block.rows)
    if one.name == "timestampType":
        return pa.repeat(pa.scalar(1 if "timestamp" in block.arrays else NO_TIME, pa.int32()), block.rows)
    if one.name == "messageId":
        return pc.multiply(block.arrays["offset"], pa.scalar(16, pa.int64()))
    return pa.nulls(block.rows, one.type)
