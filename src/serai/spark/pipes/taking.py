"""The words of `fold`: rows an event becomes, and what is kept of them.

    each = "account = source, change = -amount; account = target, change = amount where target <> ''"
    take = "balance = sum(change), events = count(), last(change)"

A text is cut at its commas, semicolons and `where` as far as they stand in no brackets and no quotes; what is between
them is Spark SQL about one event.  Partial results of the same keys can be put together in any order:

    sum            exact: whole numbers and decimals, never floats (but Spark's minus sign keeps 34 digits, `0 - x` all 38)
    count          count() all events, count(x) those whose x is not null
    min, max       nulls are passed over
    first, last    by position: topic, partition, offset, row of `each`; `<name>_at` says which that was; nulls count
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|\w+|.", re.DOTALL)
TAKE = re.compile(r"(?:(\w+)\s*=\s*)?(\w+)\s*\((.*)\)", re.DOTALL)
POSITION = ("topic", "partition", "offset")
EDGES = ("first", "last")
HOWS = ("sum", "count", "min", "max", *EDGES)
AT = "_at"  # where a row comes from
STEP = "step"  # which row of `each` it is
ROW = "_row"


@dataclass(frozen=True)
class Row:
    """One row an event becomes: names and what stands there, as SQL; and when it does."""

    columns: tuple[tuple[str, str], ...]
    where: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _words in self.columns)


@dataclass(frozen=True)
class Taken:
    """One column of the snapshot."""

    name: str
    how: str
    what: str  # SQL; "" for count()

    @property
    def at(self) -> str:
        return f"{self.name}_at"


# ---- reading the words -------------------------------------------------------------------------------------


def cut(text: str, mark: str) -> list[str]:
    """The parts of a text between marks that stand in no brackets and no quotes."""
    parts, depth = [""], 0
    for token in TOKEN.findall(text):
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if depth < 0:
            break
        if depth == 0 and token.lower() == mark:
            parts.append("")
        else:
            parts[-1] += token
    if depth:
        raise ValueError("its brackets do not go together")
    return [part.strip() for part in parts]


def read_each(text: str) -> tuple[Row, ...]:
    """`name = SQL, name = SQL [where SQL]; ...`"""
    rows = tuple(_row(one) for one in cut(text, ";"))
    for one in rows[1:]:
        if set(one.names) != set(rows[0].names):
            raise ValueError(f"its rows have {', '.join(rows[0].names)} and {', '.join(one.names)}: give all the same")
    return rows


def _row(text: str) -> Row:
    columns, *where = cut(text, "where")
    if len(where) > 1 or where == [""]:
        raise ValueError(f"behind where stands one condition, not {' where '.join(where)!r}")
    found = []
    for one in cut(columns, ","):
        name, _sign, words = (part.strip() for part in one.partition("="))
        if not re.fullmatch(r"\w+", name) or not words:
            raise ValueError(f"expected name = SQL, found {one!r}")
        found.append((name, words))
    row = Row(tuple(found), where[0] if where else "")
    _check_names(row.names)
    return row


def read_take(text: str) -> tuple[Taken, ...]:
    """`name = how(SQL), how(column), count()`"""
    found = []
    for one in cut(text, ","):
        match = TAKE.fullmatch(one)
        if match is None:
            raise ValueError(f"expected name = sum(x), found {one!r}")
        name, how, what = match[1], match[2].lower(), match[3].strip()
        if how not in HOWS:
            raise ValueError(f"{one!r} is none of {', '.join(HOWS)}")
        if not what and how != "count":
            raise ValueError(f"{one!r} says nothing of what")
        if not name and not re.fullmatch(r"\w*", what):
            raise ValueError(f"{one!r} needs a name in front, as x = {one}")
        found.append(Taken(name or (f"{how}_{what}" if what else how), how, what))
    _check_names([one.name for one in found])
    return tuple(found)


def _check_names(names: Sequence[str]) -> None:
    plain = [name.lower() for name in names]
    twice = [name for name in names if plain.count(name.lower()) > 1]
    if twice:
        raise ValueError(f"it names {twice[0]!r} twice")


# ---- folding -----------------------------------------------------------------------------------------------


def rows_of(events: DataFrame, each: Sequence[Row]) -> DataFrame:
    """The rows events become, each with the place it comes from."""
    from pyspark.sql import functions as f

    place = [name for name in POSITION if name in events.columns]
    if not each:
        return events.withColumn(AT, f.struct(*place, f.lit(0).alias(STEP)))
    rows = []
    for step, one in enumerate(each):  # a row that is not made is not computed either
        row = f.struct(
            *(f.expr(dict(one.columns)[name]).alias(name) for name in each[0].names), f.lit(step).alias(STEP)
        )
        rows.append(f.when(f.expr(one.where), row) if one.where else row)
    wide = events.select(f.struct(*place).alias(AT), f.explode(f.array(*rows)).alias(ROW)).where(f"{ROW} is not null")
    at = f.struct(*(f.col(f"{AT}.{name}") for name in place), f.col(f"{ROW}.{STEP}"))
    return wide.select(*(f.col(f"{ROW}.{name}") for name in each[0].names), at.alias(AT))


def folded(rows: DataFrame, by: Sequence[str], take: Sequence[Taken]) -> DataFrame:
    """Rows as a table of their keys."""
    from pyspark.sql import functions as f

    columns: list[Column] = []
    for one in take:
        what = f.expr(one.what) if one.what else f.lit(1)
        if one.how in EDGES:
            columns += _edge(one, what, AT)
        elif one.how == "sum":
            columns.append(f.sum(what.cast(sum_type(rows, one))).alias(one.name))
        else:
            columns.append(getattr(f, one.how)(what).alias(one.name))
    return rows.groupBy(*by).agg(*columns)


def together(tables: Sequence[DataFrame], by: Sequence[str], take: Sequence[Taken]) -> DataFrame:
    """Tables of different events as the table of them all."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as f

    if len(tables) == 1:
        return tables[0]
    columns: list[Column] = []
    for one in take:
        if one.how in EDGES:
            columns += _edge(one, f.col(one.name), one.at)
        else:
            how = f.sum if one.how == "count" else getattr(f, one.how)
            columns.append(how(one.name).alias(one.name))
    return reduce(DataFrame.unionByName, tables).groupBy(*by).agg(*columns)


def _edge(one: Taken, what: Column, at: str) -> list[Column]:
    """The value at the first or last place, and that place."""
    from pyspark.sql import functions as f

    pick, edge = (f.min_by, f.min) if one.how == "first" else (f.max_by, f.max)
    return [pick(what, at).alias(one.name), edge(at).alias(one.at)]


def sum_type(rows: DataFrame, one: Taken) -> str:
    """The type a sum is kept in, wide enough to go on adding."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import DecimalType, IntegralType

    kind = rows.select(f.expr(one.what)).schema[0].dataType
    if isinstance(kind, IntegralType):
        return "bigint"
    if isinstance(kind, DecimalType):
        return f"decimal(38,{kind.scale})"
    raise Misuse(
        f"--take says {one.name} = sum({one.what}), which is {kind.simpleString()}: a sum is exact, so it is of whole numbers or "
        "decimals. Declare the field as decimal(38,2), or write sum(cast(... as decimal(38,2)))"
    )
