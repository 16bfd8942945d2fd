"""Runs the pipeline of `orders.py` twice over a queue that grows, and compares what it made with what Python says.

    python examples/spark/declarative/run.py [DIR]

Spark's own catalogue lives in memory, and a second run would find a folder no catalogue knows; the embedded Hive one
stays, in DIR/metastore_db.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds

import serai
from serai.spark.java import prepare_java

SPEC = """\
name: orders
storage: {storage}
libraries:
  - glob:
      include: orders.py
"""
WHO = ("ann", "bob", "cid")


def write(path: Path, low: int, high: int) -> None:
    """Orders as JSON."""
    with serai.Queue(path) as queue:
        writer = queue.writer()
        for number in range(low, high):
            order = {"id": number, "who": WHO[number % 3], "amount": number % 1000}
            writer.append(json.dumps(order).encode())


def run(folder: Path) -> None:
    """What `spark-pipelines run` does in a shell, with the two settings that may not stand in the spec."""
    prepare_java()
    confs = ["spark.sql.catalogImplementation=hive", f"spark.sql.warehouse.dir={folder / 'warehouse'}"]
    words = [word for conf in confs for word in ("--conf", conf)]
    command = Path(sys.executable).with_name("spark-pipelines")
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run([command, "run", *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def check(folder: Path, count: int) -> None:
    """The table, the view and the topic against Python."""
    amounts = [number % 1000 for number in range(count)]
    table = ds.dataset(folder / "warehouse" / "orders", format="parquet").to_table()
    assert sorted(table.column("id").to_pylist()) == list(range(count))
    totals = ds.dataset(folder / "warehouse" / "totals", format="parquet").to_table().to_pylist()
    wanted: Counter[str] = Counter()
    for number, amount in enumerate(amounts):
        wanted[WHO[number % 3]] += amount
    assert {row["who"]: row["amount"] for row in totals} == wanted
    assert sum(row["orders"] for row in totals) == count
    large = sum(amount >= 900 for amount in amounts)
    assert topic_length(folder / "data") == large
    print(f"{count} orders of {len(wanted)} customers, {large} large ones")


def topic_length(data: Path) -> int:
    import serai.spark

    return serai.spark.count(logDir=str(data), subscribe="large")


def main() -> None:
    """Two runs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch).absolute()
        (folder / "spark-pipeline.yml").write_text(SPEC.format(storage=(folder / "storage").as_uri()), encoding="utf-8")
        (folder / "orders.py").write_bytes(Path(__file__).with_name("orders.py").read_bytes())
        for low, high in ((0, 2000), (2000, 3000)):
            write(folder / "orders", low, high)
            run(folder)
            check(folder, high)


if __name__ == "__main__":
    main()
