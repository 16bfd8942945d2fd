"""A local Spark with the settings that suit serai; any other session does as well.

    from serai.spark.session import session
    spark = session()

Binds to loopback only, keeps its scratch files below one folder, and runs workers with this very Python.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from serai.spark.java import prepare_java

QUIET = Path(__file__).with_name("log4j2.properties").absolute()  # Spark says errors only, from its first word on
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session(
    *,
    name: str = "serai",
    master: str | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    confs: Mapping[str, str] | None = None,
    vectors: bool = True,
) -> SparkSession:
    """The running session, or a new one; `confs` go over what is set here; only MLlib needs `vectors`."""
    running = SparkSession.getActiveSession()
    if running is not None and master is None:
        return running
    prepare_java(vectors=vectors)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master or "local[*]")
    for key, value in {**_settings(work_dir), **(confs or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings(work_dir: str | os.PathLike[str] | None) -> dict[str, str]:
    work = Path(work_dir or Path(tempfile.gettempdir()) / f"serai-spark-{os.getuid()}").absolute()
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        "spark.python.daemon.module": "serai.spark.daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(work / "scratch"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": ROCKS,
    }
