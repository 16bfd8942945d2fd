"""What every test run has: one table, at the end, of what was skipped and the line that would install it.

A skip's reason is written `what is missing | the line that installs it`, so that the table can be made:

    pytest.importorskip("polars", reason="polars is missing | pip install polars")

And property tests have no deadline for an example: on a busy machine it fails tests that are right.  Every Spark, whoever
starts it, is one that is quick to start (`tests/spark/conf`).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sharing import Sharing

hypothesis.settings.register_profile("serai", deadline=None)
hypothesis.settings.load_profile("serai")
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "conf")
os.environ["SPARK_LAUNCHER_OPTS"] = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # the Java that only says how Spark is started
)
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 1 << 30
WORDS_BEFORE_REASON = re.compile(r"^(Skipped|unconditional skip): ?")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    """Several processes share the tests as we say."""
    from tests.sharing import Sharing

    return Sharing(config, log)


@pytest.hookimpl(tryfirst=True)  # before those marked slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first; what needs a Spark is slow."""
    from tests.sharing import rank

    items.sort(key=lambda item: rank(item.nodeid))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder of a file system in memory, if there is one with room: for thousands of runs that look at calls, not at a disk."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_BYTES_MIN:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="serai-", dir=MEMORY) as folder:
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table before pytest's own closing line."""
    rows = Counter(reason(report) for report in terminalreporter.stats.get("skipped", []))
    left_out = len(terminalreporter.stats.get("deselected", []))
    if left_out:
        rows["left out by the command line", "make test"] = left_out
    if not rows:
        return
    terminalreporter.section("not run, and what would run it", sep="-")
    width = max(len(missing) for missing, _ in rows)
    for (missing, line), count in sorted(rows.items()):
        terminalreporter.write_line(f"{count:>5}  {missing:<{width}}  {line}")


def reason(report: pytest.TestReport) -> tuple[str, str]:
    """What a skipped test missed, and the line that installs it."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    missing, _, line = WORDS_BEFORE_REASON.sub("", text).partition("|")
    return missing.strip(), line.strip()
