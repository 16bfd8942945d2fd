"""A Spark cluster on this machine: a master and workers, each a Java of its own, on free ports of the loopback.

They are what `pyspark` brings, so nothing else is installed.  A worker dies with its executors and their Python, as a
machine does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.find_spark_home import _find_spark_home

from serai.spark.java import prepare_java
from tests.spark.kit import SECONDS
from tests.spark.test_faults import below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEPLOY = "org.apache.spark.deploy"


@dataclass
class Cluster:
    """One that runs."""

    url: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker_of(self, pid: int) -> None:
        """All processes of the worker that this one belongs to, at once."""
        (tree,) = [tree for one in self.workers if pid in (tree := below(one.pid))]
        kill(tree)


def kill(tree: list[int]) -> None:
    for pid in tree:
        with suppress(ProcessLookupError):  # it ended when one above it did
            os.kill(pid, signal.SIGKILL)


@contextmanager
def cluster(home: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Each worker has one core."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.append(_start(home / "master", "master.Master", "--port", "0", "--host", "127.0.0.1"))
        url = _said(home / "master", r"Starting Spark master at (\S+)", running[0])
        for number in range(workers):
            place = home / f"worker-{number}"
            own = ("--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--work-dir", str(place / "work"), url)
            running.append(_start(place, "worker.Worker", *own))
        for number, worker in enumerate(running[1:]):
            _said(home / f"worker-{number}", "Successfully registered with master", worker)
        yield Cluster(url, running[1:])
    finally:
        for one in running:
            if one.poll() is None:
                kill(below(one.pid))
            one.wait(SECONDS)


def _start(place: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    place.mkdir()
    prepare_java()
    home = _find_spark_home()
    env = os.environ | {"SPARK_HOME": home, "SPARK_DAEMON_MEMORY": "200m", "SPARK_LOCAL_IP": "127.0.0.1"}
    (place / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.one.ref = one\n"
        "appender.one.type = Console\nappender.one.name = one\nappender.one.target = SYSTEM_ERR\n"
        "appender.one.layout.type = PatternLayout\nappender.one.layout.pattern = %m%n\n"
    )
    env["SPARK_DAEMON_JAVA_OPTS"] = f"-Dlog4j2.configurationFile={(place / 'log4j2.properties').as_uri()}"
    command = [f"{home}/bin/spark-class", f"{DEPLOY}.{name}", "--webui-port", "0", *words]
    with open(place / "words", "wb") as out:
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def _said(place: Path, words: str, process: subprocess.Popen[bytes]) -> str:
    """Waits until it says this; gives what stands in the brackets."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(words, (place / "words").read_text()):
            return found[found.re.groups]
        time.sleep(0.05)
    raise AssertionError(f"not said: {words}\n{(place / 'words').read_text()}")
