"""One Spark session for all tests of a process, and queues to read.

Starting Spark takes 5 to 15 seconds, a query 0.3: so there is one session, made when the first test asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import serai
from tests.gate.kit import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

CONFS = {
    "spark.driver.memory": "1500m",
    "spark.ui.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.task.maxFailures": "1",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",  # so that `test_connect` needs no JVM of its own
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One Spark for pipelines and one for the rest, where several processes share the suite."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("pipes" if item.path.stem.startswith("test_pipe") else "spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from serai.spark.session import session

    confs = CONFS | {"spark.connect.grpc.binding.port": str(free_port())}
    made = session(name="serai tests", master="local[2]", work_dir=tmp_path_factory.mktemp("spark"), confs=confs)
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
