"""`id bigint, tags array<string>, who struct<name: string>` as Arrow types.

Spark's own reader of such text lives in the JVM, which the process that plans a Python source does not have.

    fields = name [:] type {, ...}
    type   = word | decimal(p,s) | array<type> | struct<fields>

An error names the character it happened at.
"""

import re

import pyarrow as pa

from serai.errors import Misuse

WORDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(), "smallint": pa.int16(), "short": pa.int16(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(), "float": pa.float32(),
    "real": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "decimal": pa.decimal128(10, 0),
}  # fmt: skip
TOKEN = re.compile(r"\s*(`[^`]+`|\w+|[<>(),:])")


class _Text:
    """The text, and how far it is read."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.at = text.rstrip(), name, 0

    def peek(self) -> str:
        found = TOKEN.match(self.text, self.at)
        return found[1] if found else ""

    def take(self, *expected: str) -> str:
        token = self.peek()
        if not token or (token not in expected if expected else token in "<>(),:"):
            raise self.wrong(" or ".join(expected) or "a word")
        self.at = TOKEN.match(self.text, self.at).end()  # type: ignore[union-attr]  # peek has just matched it
        return token

    def wrong(self, expected: str) -> Misuse:
        found = self.text[self.at : self.at + 20].strip() or "the end"
        return Misuse(f"option {self.name}, character {self.at}: expected {expected}, found {found!r}")


def read_fields(text: str, *, name: str) -> list[tuple[str, pa.DataType]]:
    """Names and types, in their order."""
    source = _Text(text, name)
    found = _fields(source, "")
    names = [one for one, _type in found]
    twice = [one for one in names if names.count(one) > 1]
    if twice:
        raise Misuse(f"option {name} names {twice[0]!r} twice")
    return found


def _fields(source: _Text, close: str) -> list[tuple[str, pa.DataType]]:
    found = []
    while True:
        word = source.take().strip("`")
        if source.peek() == ":":
            source.take(":")
        found.append((word, _type(source)))
        if source.peek() != ",":
            break
        source.take(",")
    if source.peek() != close or (not close and source.at != len(source.text)):
        raise source.wrong(f"a comma or {close or 'the end'}")
    return found


def _type(source: _Text) -> pa.DataType:
    before = source.at
    word = source.take().lower()
    if word == "array":
        source.take("<")
        inner = _type(source)
        source.take(">")
        return pa.list_(pa.field("element", inner))
    if word == "struct":
        source.take("<")
        fields = _fields(source, ">")
        source.take(">")
        return pa.struct([pa.field(name, kind) for name, kind in fields])
    if word == "decimal" and source.peek() == "(":
        return _decimal(source)
    if word not in WORDS:
        source.at = before
        raise source.wrong(f"a type ({', '.join(WORDS)}, array<...>, struct<...>)")
    return WORDS[word]


def _decimal(source: _Text) -> pa.DataType:
    source.take("(")
    precision, scale = source.take(), "0"
    if source.peek() == ",":
        source.take(",")
        scale = source.take()
    source.take(")")
    if not (precision.isdecimal() and scale.isdecimal() and 1 <= int(precision) <= 38 and int(scale) <= int(precision)):
        raise source.wrong(f"decimal(1..38, 0..precision), not decimal({precision},{scale})")
    return pa.decimal128(int(precision), int(scale))
