"""Real file systems cut off under a writing process: what was committed is there after the next mount.

The control is in the same run: of what was only received some must be gone, or the cut is not one.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from serai.log.audit import audit
from serai.log.engine import Level
from serai.log.local import LocalEngine
from tests.faults.disks import again, cut_off, mount_image, unmount
from tests.faults.kit import Victim
from tests.faults.log_writing import KEYS, LOGS, STATE, STATE_LOG, taken_apart
from tests.faults.test_log_kill import Follower

if TYPE_CHECKING:
    from pathlib import Path

EVERY_CUT = [pytest.param(4, id="4 cuts"), pytest.param(15, id="15 cuts", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("cuts", EVERY_CUT)
def test_nothing_committed_is_lost_when_the_file_system_is_cut_off(cuts: int, kind: str, tmp_path: Path) -> None:
    disk, dice = tmp_path / "disk", Random(cuts)
    image = mount_image(kind, disk)
    promised: Counter[tuple[int, int]] = Counter()
    lost: Counter[int] = Counter()
    said = messages = 0
    try:
        for epoch in range(1, cuts + 1):
            victim = Victim(disk / "data", epoch, 1 << 16, module="tests.faults.log_writing", errors=subprocess.DEVNULL)
            victim.wait_until_ready()
            while victim.hear() < 0:
                time.sleep(0.001)
            time.sleep(0.7 * dice.random())
            victim.hear()
            heard = list(victim.reports)  # a sync that is under way at the cut may be answered by half a file system
            cut_off(disk)
            end(victim)
            for report in heard:
                which, level, ordinal = taken_apart(report)
                promised[which, level] = max(promised[which, level], ordinal)
                said += level == Level.COMMIT
            unmount(disk)
            assert again(image, disk), "the file system does not come back"
            messages = assert_committed(disk / "data", promised, lost)
    finally:
        unmount(disk)
    print(
        f"\n{cuts} cuts of {kind}: {said} promises of commit, {lost[Level.COMMIT]} lost; {lost[Level.RECEIVE]} messages that were "
        f"only received are gone, {messages} are there"
    )
    assert lost[Level.COMMIT] == 0
    assert lost[Level.RECEIVE] > 0, "a cut that loses nothing at all proves nothing"
    assert said > 2 * cuts


def end(victim: Victim) -> None:
    """It may have died of the cut."""
    victim.process.kill()
    victim.process.wait()
    assert victim.process.stdout is not None
    victim.process.stdout.close()


def assert_committed(folder: Path, promised: Counter[tuple[int, int]], lost: Counter[int]) -> int:
    """Opens everything after the cut, reads it whole, and forgets the promises that were none."""
    with LocalEngine(folder, page_bytes=1 << 16) as engine:
        messages = 0
        for which, name in enumerate(LOGS):
            log = engine.open(name)
            follower = Follower(log)
            follower.look()
            assert follower.ordinal == log.end
            messages += log.end - log.first
            count_lost(which, log.end, promised, lost)
        values = dict(engine.state(STATE).items())
        numbers = {int.from_bytes(value[:8], "little") for value in values.values()} or {0}
        assert set(values) in (set(), set(KEYS))
        assert len(numbers) == 1, f"a put is there in part: {numbers}"
        count_lost(STATE_LOG, max(numbers), promised, lost)
    assert audit(folder).problems == []
    return messages


def count_lost(which: int, end: int, promised: Counter[tuple[int, int]], lost: Counter[int]) -> None:
    for level in Level:
        lost[level] += max(0, promised[which, level] - end)
        promised[which, level] = min(promised[which, level], end)
