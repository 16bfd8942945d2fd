"""The messages a pipeline looks at once: a frame over a log, and what turns its rows into a table for people.

Bytes of a key are shown as text where they are text, else as hexadecimal digits; a table of many rows is cut, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession


def log_rows(spark: SparkSession, data: str, columns: str, **options: str | None) -> DataFrame:
    """The messages of a log; an option that is None is not given."""
    given = {name: text for name, text in options.items() if text is not None}
    asked: Mapping[str, str] = {"logDir": str(Path(data).absolute()), "columns": columns, **given}
    if "startingTimestamp" in given:  # a topic that has nothing so new has no rows, which is no error here
        asked = {**asked, "startingOffsetsByTimestampStrategy": "latest"}
    return spark.read.format("serai").options(**asked).load()


def as_text(column: Column) -> Column:
    """Bytes for people."""
    return f.coalesce(f.try_validate_utf8(column.cast("string")), f.concat(f.lit("0x"), f.hex(column)))


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
