"""What the Spark tests share: frames over a directory, rows to compare, queries that end by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serai.spark.options import read_options
from serai.spark.slices import Log, Wish, find_logs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SECONDS = 120  # a query on a busy machine; none is expected to take ten


def numbered(low: int, high: int) -> list[bytes]:
    """Bodies of about 30 bytes, each another one."""
    return [b"message %012d of many" % number for number in range(low, high)]


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    """A batch frame over a queue."""
    return spark.read.format("serai").options(logDir=str(path), **options).load()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows as tuples, binaries as bytes, in the order of their offset where there is one."""
    rows = [tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in frame.collect()]
    at = frame.columns.index("offset") if "offset" in frame.columns else None
    return rows if at is None else sorted(rows, key=lambda row: row[at])


class Stream:
    """A source and a checkpoint; each `run` is one life of the query: AvailableNow, from where the last one stopped."""

    def __init__(self, spark: SparkSession, path: Path, checkpoint: Path, **options: Any) -> None:
        self.spark, self.path, self.checkpoint = spark, path, checkpoint
        self.options = {"startingOffsets": "earliest", **options}
        self.sizes: list[int] = []

    def run(self, **options: Any) -> list[tuple[Any, ...]]:
        """What came in this life, batch after batch; `sizes` are their rows."""
        found: list[tuple[Any, ...]] = []
        frame = self.spark.readStream.format("serai").options(logDir=str(self.path), **self.options, **options).load()

        def keep(batch: DataFrame, _number: int) -> None:
            found.extend(rows_of(batch))

        query = (
            frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(SECONDS), "the query did not end"
        finally:
            query.stop()
        self.sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        return found


def only_log(path: Path, **options: str) -> Log:
    """The one log in a directory."""
    (log,) = find_logs(read_options({"logDir": str(path), **options}))
    return log


def wish(**settings: Any) -> Wish:
    """Blocks as the source asks for them by default."""
    asked: dict[str, Any] = {
        "columns": frozenset({"value", "offset", "producer"}), "rows": 20_000, "bytes": 8 << 20, "on_corrupt": "fail",
        "on_abandoned": "skip", "fail_on_loss": True,
    }  # fmt: skip
    return Wish(**asked | settings)
