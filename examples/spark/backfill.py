"""A backfill: what a queue holds is put into a new topic by one batch job, and a stream goes on exactly behind it.

    python examples/spark/backfill.py [DIR]

The batch ends at a position that is asked first, and the stream begins there.  The job has a name, so running it again
writes nothing.
"""

import sys
import tempfile
from decimal import Decimal
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import serai
import serai.spark
from serai.spark.session import session

FIELDS = "number:long, price:decimal(18,2)"
HISTORY, LATER = 20_000, 500


def write(path: Path, low: int, high: int) -> None:
    """Trades with typed values."""
    with serai.Queue(path) as queue:
        writer = queue.writer()
        for number in range(low, high):
            writer.new_message().pack_long(number).pack_decimal(Decimal(f"{number}.25")).write_message()


def as_json(frame: DataFrame) -> DataFrame:
    """The new form of a message."""
    return frame.select(
        sql.col("number").cast("string").alias("key"), sql.to_json(sql.struct("number", "price")).alias("value")
    )


def backfill(spark: SparkSession, folder: Path, end: int) -> None:
    """All messages before a position, once."""
    options = {"logDir": str(folder / "trades"), "decode": "fields", "fields": FIELDS, "minPartitions": "4"}
    history = spark.read.format("serai").options(**options, endingOffsets=f'{{"trades": {{"0": {end}}}}}').load()
    job = {"logDir": str(folder / "data"), "topic": "trades-json", "writerId": "backfill", "jobId": f"trades to {end}"}
    as_json(history).write.format("serai").mode("append").options(**job).save()


def go_on(spark: SparkSession, folder: Path, begin: int) -> None:
    """All messages from that position on, in batches of 200."""
    options = {"logDir": str(folder / "trades"), "decode": "fields", "fields": FIELDS, "maxOffsetsPerTrigger": "200"}
    live = spark.readStream.format("serai").options(**options, startingOffsets=f'{{"trades": {{"0": {begin}}}}}').load()
    places = {"logDir": str(folder / "data"), "topic": "trades-json", "checkpointLocation": str(folder / "check")}
    query = as_json(live).writeStream.format("serai").options(**places).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """History, more messages, the history's job once more, the stream; then every message is there once."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        write(folder / "trades", 0, HISTORY)
        end = serai.spark.count(logDir=str(folder / "trades"))
        spark = session(name="backfill")
        backfill(spark, folder, end)
        write(folder / "trades", HISTORY, HISTORY + LATER)
        backfill(spark, folder, end)
        go_on(spark, folder, end)
        copied = spark.read.format("serai").options(logDir=str(folder / "data"), columns="key").load()
        found = sorted(int(row.key) for row in copied.collect())
        print(f"{end} messages of history and {len(found) - end} new ones, each once")
        assert found == list(range(HISTORY + LATER))


if __name__ == "__main__":
    main()
