"""Two streams joined: each order with its payment, if that came within the hour; the pairs become a topic of their own.

    python examples/spark/stream_join.py [DIR]

Spark keeps what still waits for its other half in the checkpoint, until the watermark says that it can no longer come.
"""

import datetime as dt
import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import serai
from serai.spark.session import session

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ORDERS = 300


def write(folder: Path) -> dict[int, int]:
    """Orders and payments as JSON in two queues; gives what the join is to find: the amount of each order paid in time."""
    wanted = {}
    with serai.Queue(folder / "orders") as orders, serai.Queue(folder / "payments") as payments:
        ordering, paying = orders.writer(), payments.writer()
        for number in range(ORDERS):
            at, minutes = START + dt.timedelta(seconds=number), number % 90
            ordering.append(json.dumps({"id": number, "amount": 10 * number, "at": at.isoformat()}).encode())
            if number % 3 == 0:  # the others are never paid
                paid = at + dt.timedelta(minutes=minutes)
                paying.append(json.dumps({"of": number, "paid": paid.isoformat()}).encode())
                wanted |= {number: 10 * number} if minutes <= 60 else {}
    return wanted


def stream(spark: SparkSession, path: Path, fields: str) -> DataFrame:
    """A queue as a stream of columns."""
    options = {"logDir": str(path), "decode": "json", "startingOffsets": "earliest"}
    return spark.readStream.format("serai").options(**options).schema(fields).load()


def join(spark: SparkSession, folder: Path) -> None:
    """What is there now, then the end; run again, it goes on where it stood."""
    orders = stream(spark, folder / "orders", "id bigint, amount bigint, at timestamp").withWatermark("at", "1 hour")
    payments = stream(spark, folder / "payments", "of bigint, paid timestamp").withWatermark("paid", "1 hour")
    pairs = orders.join(payments, sql.expr("id = of AND paid BETWEEN at AND at + INTERVAL 1 HOUR"))
    messages = pairs.select(
        sql.col("id").cast("string").alias("key"), sql.to_json(sql.struct("id", "amount")).alias("value")
    )
    places = {"logDir": str(folder / "data"), "topic": "paid", "checkpointLocation": str(folder / "check")}
    query = messages.writeStream.format("serai").options(**places).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """Joins, and compares the topic with what Python says."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        wanted = write(folder)
        spark = session(name="stream join")
        join(spark, folder)
        rows = spark.read.format("serai").options(logDir=str(folder / "data"), subscribe="paid").load().collect()
        found = [json.loads(row.value) for row in rows]
        print(f"{len(found)} of {ORDERS} orders were paid within the hour")
        assert len(found) == len(wanted)
        assert {one["id"]: one["amount"] for one in found} == wanted


if __name__ == "__main__":
    main()
