"""A writer of rows, as most Python data sources have one: the same staging and the same ledger, but fed row by row.

The peer of the Arrow sink.  It is a module of its own so that Spark's workers can import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from serai.spark import sink
from serai.spark.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

ROWS = 10_000  # an Arrow batch of Spark's has as many


class RowSource(DataSource):
    """`format("serai-rows")`, which can only be written."""

    @classmethod
    def name(cls) -> str:
        return "serai-rows"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        return RowWriter(sink.BatchWriter(read_options(self.options), schema, overwrite=overwrite), schema.names)


class RowWriter(DataSourceWriter):
    """The sink behind rows."""

    def __init__(self, inner: sink.BatchWriter, names: list[str]) -> None:
        self.inner, self.names = inner, names

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self.inner.write(self._batches(iterator))

    def _batches(self, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        while some := list(islice(rows, ROWS)):
            columns = [pa.array([row[at] for row in some], pa.binary()) for at in range(len(self.names))]
            yield pa.RecordBatch.from_arrays(columns, self.names)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.inner.abort(messages)
