"""Ten thousand idle topics: made, started over, and small."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.broker.kit import House

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = 10_000
START_SECONDS_MAX = 5
RESIDENT_BYTES_MAX = 200 << 20
OPENING = """
import json, resource, sys, time
from pathlib import Path
started = time.perf_counter()
from tests.broker.kit import House
with House(Path(sys.argv[1])) as house:
    seconds = time.perf_counter() - started
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(json.dumps([len(house.broker.topics), seconds, pages * resource.getpagesize()]))
"""


def test_ten_thousand_idle_topics_start_quickly_and_are_small(tmp_path: Path) -> None:
    with House(tmp_path / "data") as house:
        guest = house.guest()
        for at in range(0, TOPICS, 1000):
            names = [f"topic-{each}" for each in range(at, at + 1000)]
            house.done(house.broker.ensure(guest, names, app="app", produces=True, consumes=True, now_ms=house.now_ms))
    done = subprocess.run(
        [sys.executable, "-c", OPENING, str(tmp_path / "data")], capture_output=True, text=True, check=True, timeout=60
    )
    topics, seconds, resident_bytes = json.loads(done.stdout)
    assert topics == TOPICS
    assert seconds < START_SECONDS_MAX
    assert resident_bytes < RESIDENT_BYTES_MAX
