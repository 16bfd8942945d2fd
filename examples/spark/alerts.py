"""A window over a stream: sensors that were too hot for a minute, on average, become messages of a topic `alerts`.

    python examples/spark/alerts.py [DIR]

A window is told once, when the watermark is behind its end; the windows at the end of the log wait for later readings.
"""

import datetime as dt
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import serai
from serai.spark.session import session

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
READINGS, SENSORS, LIMIT = 3000, 5, 80.0


def write(path: Path) -> set[tuple[int, str]]:
    """A reading every second of each sensor in turn; gives the sensors and minutes that are to be told."""
    heat: dict[tuple[int, dt.datetime], list[float]] = defaultdict(list)
    with serai.Queue(path) as queue:
        writer = queue.writer()
        for number in range(READINGS):
            sensor, at = number % SENSORS, START + dt.timedelta(seconds=number)
            degrees = 60.0 + 30.0 * ((number // 60 + sensor) % 4 == 0)
            writer.append(json.dumps({"sensor": sensor, "degrees": degrees, "at": at.isoformat()}).encode())
            heat[sensor, at.replace(second=0)].append(degrees)
    over = at - dt.timedelta(seconds=10)  # the watermark: windows that end after it may still get readings
    return {
        (sensor, minute.strftime("%H:%M"))
        for (sensor, minute), degrees in heat.items()
        if sum(degrees) / len(degrees) > LIMIT and minute + dt.timedelta(minutes=1) <= over
    }


def watch(spark: SparkSession, folder: Path) -> None:
    """Each window once, when no reading of it can come any more; each batch of alerts once, whatever is killed."""
    options = {"logDir": str(folder / "readings"), "decode": "json", "startingOffsets": "earliest"}
    readings = spark.readStream.format("serai").options(**options)
    hot = (
        readings.schema("sensor int, degrees double, at timestamp").load()
        .withWatermark("at", "10 seconds")
        .groupBy(sql.window("at", "1 minute"), "sensor").agg(sql.avg("degrees").alias("degrees"))
        .where(sql.col("degrees") > LIMIT)
    )  # fmt: skip
    said = sql.struct("sensor", sql.date_format("window.start", "HH:mm").alias("minute"), "degrees")
    alerts = hot.select(sql.col("sensor").cast("string").alias("key"), sql.to_json(said).alias("value"))
    places = {"logDir": str(folder / "data"), "topic": "alerts", "checkpointLocation": str(folder / "check")}
    query = alerts.writeStream.format("serai").options(**places).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """Watches, and compares the alerts with what Python says."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        wanted = write(folder / "readings")
        spark = session(name="alerts")
        watch(spark, folder)
        rows = spark.read.format("serai").options(logDir=str(folder / "data"), subscribe="alerts").load().collect()
        found = [json.loads(row.value) for row in rows]
        print(f"{len(found)} alerts about {len({one['sensor'] for one in found})} sensors")
        assert len(found) == len(wanted)
        assert {(one["sensor"], one["minute"]) for one in found} == wanted


if __name__ == "__main__":
    main()
