"""One Spark session for all tests of a process, and queues to read.

Starting Spark takes 5 to 15 seconds, a query 0.3: so there is one session, made when the first test asks for it.  What is
off here costs a test more than it shows: the code that Spark generates and compiles for each query is for millions of rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import serai
from tests.gate.kit import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

EARLY = Path(__file__).parent / "early"
CONFS = {
    "spark.driver.memory": "1500m",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.task.maxFailures": "1",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",  # so that `test_connect` needs no JVM of its own
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


@contextmanager
def warm(address: Path) -> Iterator[dict[str, str]]:
    """What Spark's environment has to say, so that its Pythons begin with serai loaded (`early/sitecustomize.py`)."""
    command = [sys.executable, str(EARLY / "warm.py"), str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        path = os.pathsep.join(filter(None, (str(EARLY), os.environ.get("PYTHONPATH"))))
        yield {"PYTHONPATH": path, "SERAI_TEST_WARM": str(address)}  # leaving the block ends it: its input ends


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from serai.spark.session import session

    place = tmp_path_factory.mktemp("spark")
    confs = CONFS | {"spark.connect.grpc.binding.port": str(free_port())}
    with warm(place / "warm") as environment:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)  # for this Spark alone: those that tests start are as they always are
            made = session(name="serai tests", master="local[2]", work_dir=place, confs=confs)
        yield made
        made.stop()


@pytest.fixture
def fill(tmp_path: Path) -> Callable[..., Path]:
    """Makes a queue of these bodies, or puts more into it; gives its directory."""

    def put(bodies: Iterable[bytes], name: str = "orders", page_size: int = 1 << 16) -> Path:
        path = tmp_path / name
        with serai.Queue(path, page_size=None if path.exists() else page_size) as queue:
            queue.writer().append_many(list(bodies))
        return path

    return put
