"""What every test run has: one table, at the end, of what was skipped and the line that would install it.

A skip's reason is written `what is missing | the line that installs it`, so that the table can be made:

    pytest.importorskip("polars", reason="polars is missing | pip install polars")

And property tests have no deadline for an example: on a busy machine it fails tests that are right.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import hypothesis

if TYPE_CHECKING:
    import pytest

hypothesis.settings.register_profile("serai", deadline=None)
hypothesis.settings.load_profile("serai")
WORDS_BEFORE_REASON = re.compile(r"^(Skipped|unconditional skip): ?")


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
