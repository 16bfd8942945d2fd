"""What there is to be, for `spark-pipelines`: a table that follows a queue, a view of it, a topic of what was large.

Paths are below the folder the command is run in.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

HERE = Path.cwd()
spark = SparkSession.active()


@dp.table(format="parquet")
def orders() -> DataFrame:
    """Every order, once: a stream, so each run brings what is new."""
    options = {"logDir": str(HERE / "orders"), "decode": "json", "startingOffsets": "earliest"}
    return spark.readStream.format("serai").options(**options).schema("id bigint, who string, amount bigint").load()


@dp.materialized_view(format="parquet")
def totals() -> DataFrame:
    """Made anew by each run."""
    return (
        spark.read.table("orders").groupBy("who").agg(sql.count("*").alias("orders"), sql.sum("amount").alias("amount"))
    )


dp.create_sink("large", "serai", {"logDir": str(HERE / "data"), "topic": "large"})


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    """A flow into a topic, each batch once."""
    large = spark.readStream.table("orders").where("amount >= 900")
    return large.select(sql.col("who").alias("key"), sql.to_json(sql.struct("id", "amount")).alias("value"))
