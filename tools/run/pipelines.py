"""The third act: real Spark jobs over what the server stored, while it goes on serving.

Spark is fetched now, if it is not there, after everything else was seen to work.  One local session runs the pipelines as
`serai pipe run` would, one after the other: archive, metrics, audit.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import serai
from tools.run.server import DATA
from tools.run.words import PLACE, arrived, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAKE = PLACE / "lake"
BOOTSTRAP = Path(__file__).resolve().parent.parent / "bootstrap.sh"
JOBS = (
    ("archive: topics as Parquet, each message once", ["archive", "--data", str(DATA), "--to", str(LAKE)]),
    ("metrics: messages, bytes and delays by minute", ["metrics", "--data", str(DATA), "--by", "topic,minute"]),
    ("audit: the log and its archive, every record and row", ["audit", "--data", str(DATA), "--lake", str(LAKE)]),
)


def act() -> bool:
    """The pipelines over the data directory; whether all of them held, and the archive has every row."""
    say("\nTHE PIPELINES: Spark on this machine over the same data directory\n")
    fetch()
    from serai.spark.session import session

    started = time.perf_counter()
    spark = session(name="make run", vectors=False)
    say(
        f"   {'Spark started':<20} {time.perf_counter() - started:.1f} s, version {spark.version}, {spark.sparkContext.master}"
    )
    try:
        return all([*[job(number, *each) for number, each in enumerate(JOBS, 6)], compared(spark)])
    finally:
        spark.stop()


def fetch() -> None:
    """What Spark needs; pip says what it downloads and how much."""
    if subprocess.run(["sh", str(BOOTSTRAP), "spark"], check=False).returncode:
        raise serai.SeraiError(
            "Spark could not be installed; the words above say why. Without it: make run ARGS=--without-spark"
        )


def job(number: int, title: str, words: list[str]) -> bool:
    """One pipeline, in the words of the command line."""
    from serai.cli import main

    say(f"\n{number}. {title}\n   $ serai pipe run {' '.join(words)}")
    started = time.perf_counter()
    code = main(["pipe", "run", *words])
    say(f"   {'took':<20} {time.perf_counter() - started:.1f} s")
    return code == 0 or arrived(False, f"serai pipe run {words[0]} ended with {code}")


def compared(spark: SparkSession) -> bool:
    """The archive beside the log, counted by Spark's own Parquet reader."""
    from serai.spark.pipes.archive import load

    logged = spark.read.format("serai").option("logDir", str(DATA)).option("columns", "topic,offset").load().count()
    archived = load(spark, str(LAKE)).count()
    return arrived(logged == archived, f"{archived:,} of {logged:,} messages are in the archive; Parquet in {LAKE}")
