"""A program over Spark Connect: no JVM of its own, only the address of a server.

    python -m tests.spark.connecting URL QUEUE DATA CHECKPOINT

Counts a queue and sums what it holds, streams it into a topic, goes on from the checkpoint after more came, reads the topic.
Prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import serai
from tests.spark.kit import SECONDS, load, numbered, rows_of


def main() -> None:
    from pathlib import Path

    from pyspark.sql import SparkSession

    url, queue, data, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    found: dict[str, Any] = {"kind": type(spark).__module__}
    frame = load(spark, Path(queue))
    found["columns"] = frame.columns
    found["rows"] = [(offset, value.decode()) for offset, value in rows_of(frame.select("offset", "value"))]
    spark.sql(f"CREATE TEMPORARY VIEW orders USING serai OPTIONS (logDir '{queue}', columns 'offset')")
    found["sum"] = spark.sql("SELECT sum(offset) FROM orders").first()[0]  # type: ignore[index]
    for more in (0, 20):
        with serai.Queue(queue) as there:
            there.writer().append_many(numbered(100, 100 + more))
        options = {"logDir": queue, "startingOffsets": "earliest", "columns": "value"}
        stream = spark.readStream.format("serai").options(**options).load()
        writer = stream.writeStream.format("serai").options(logDir=data, topic="copy", checkpointLocation=checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
    found["copy"] = [value.decode() for _, value in rows_of(load(spark, Path(data), columns="offset,value"))]
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
