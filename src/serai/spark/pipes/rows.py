"""The messages a pipeline looks at once: a frame over a log, and what turns its rows into a table for people.

Bytes of a key are shown as text where they are text, else as hexadecimal digits; a table of many rows is cut, and says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import TimestampType

from serai.errors import Misuse
from serai.spark.options import read_options
from serai.spark.slices import find_logs
from serai.spark.source import closing_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

HEX = re.compile(r"0x(?:[0-9A-Fa-f]{2})+")


def log_rows(spark: SparkSession, data: str, columns: str, **options: str | None) -> DataFrame:
    """The messages of a log; an option that is None is not given."""
    given = {name: text for name, text in options.items() if text is not None}
    asked: Mapping[str, str] = {"logDir": str(Path(data).absolute()), "columns": columns, **given}
    if "startingTimestamp" in given:  # a topic that has nothing so new has no rows, which is no error here
        asked = {**asked, "startingOffsetsByTimestampStrategy": "latest"}
    return spark.read.format("serai").options(**asked).load()


def check_log(data: str, topics: str | None) -> None:
    """Raises what Spark would only raise as the query starts: no such directory, no such topic."""
    asked = {"logDir": str(Path(data).absolute())} | ({"subscribe": topics} if topics else {})
    with closing_all(find_logs(read_options(asked))):
        pass


def as_text(column: Column) -> Column:
    """Bytes for people."""
    return f.coalesce(f.try_validate_utf8(column.cast("string")), f.concat(f.lit("0x"), f.hex(column)))


def of_key(text: str) -> Column:
    """Whether a key is the one people see as this text: its own bytes, or those it spells in hexadecimal digits."""
    own = f.col("key") == f.lit(text.encode())
    return own | (f.col("key") == f.lit(bytes.fromhex(text[2:]))) if HEX.fullmatch(text) else own


def matching(regex: str, codec: str) -> Column:
    """Whether a value, as text, has something that a regular expression of Python matches."""
    compiled = re.compile(regex)

    def look(values: pa.Array) -> pa.Array:
        found = (None if raw is None else compiled.search(raw.decode(codec, "replace")) for raw in values.to_pylist())
        return pa.array([one is not None for one in found], pa.bool_())

    kind: Any = arrow_udf  # its types want an argument that its code warns of
    matched: Column = kind(look, "boolean")("value")
    return matched


def first_rows(frame: DataFrame, most: int, *order: Column) -> list[dict[str, Any]]:
    """The first rows, with values that JSON can say; times as text of the session's zone, not of this process."""
    first = frame.orderBy(*order).limit(most)
    times = [one.name for one in frame.schema if isinstance(one.dataType, TimestampType)]
    texts = first.withColumns({name: f.col(name).cast("string") for name in times}) if times else first
    return [{name: _plain(value) for name, value in row.asDict(recursive=True).items()} for row in texts.collect()]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def cut(shown: int, whole: int) -> str:
    """What to say about rows that are not shown."""
    return "" if shown >= whole else f"; the first {shown:,} of {whole:,} rows are shown"


def check_free(path: str | None, flag: str = "--to") -> None:
    """An error before any work when a result would stand on something else."""
    if path is not None and Path(path).exists():
        raise Misuse(f"{flag} is {path!r}, which is there already: name a directory that is not, or remove it")
