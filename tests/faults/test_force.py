"""What reaches the disk when `force()` returns, seen from the calls the system gets; and the event log that relies on it.

`os.fdatasync` and `os.fsync` do their work and write down which file it was; files are told apart by inode, as pages are
made under another name.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

import serai
from tests.faults.kit import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = 4096


class Synced:
    """Files and directories that were synced, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self._inodes: list[int] = []
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            self._inodes.append(os.fstat(fd).st_ino)
            real(fd)

        return sync

    def take(self) -> list[str]:
        """Names of what was synced since the last question."""
        paths = {path.stat().st_ino: str(path.relative_to(self.folder)) for path in self.folder.rglob("*")}
        paths[self.folder.stat().st_ino] = "."
        names = [paths.get(inode, "?") for inode in self._inodes]
        self._inodes.clear()
        return names


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synced:
    return Synced(monkeypatch, tmp_path)


def test_force_covers_every_page_since_the_last_one_data_before_index(tmp_path: Path, synced: Synced) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        writer = queue.writer()
        writer.append_many([bytes(1000)] * 300)  # 73 data pages and a bit, 2 index pages
        queue.force()
        names = synced.take()
        assert {f"{number}.qd" for number in range(74)} | {"0.qx", "1.qx"} <= set(names)
        assert "." in names, "new files have new names, which are in the directory"
        assert max(i for i, name in enumerate(names) if name.endswith(".qd")) < names.index("0.qx")
        queue.force()
        assert set(synced.take()) <= {"73.qd", "1.qx"}
        writer.append(bytes(8000))
        writer.force()
        assert set(synced.take()) == {"73.qd", "74.qd", "75.qd", "1.qx", "."}


def test_force_without_a_message_syncs_nothing(tmp_path: Path, synced: Synced) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        queue.force()
        assert synced.take() == []


def test_force_covers_a_page_the_cursor_came_back_to(tmp_path: Path, synced: Synced) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        writer = queue.writer()
        writer.append(bytes(4000))
        writer.new_message().pack_bytes(bytes(5000))
        queue.force()
        synced.take()
        writer.discard()
        writer.append(bytes(50))
        writer.append(bytes(200))
        queue.force()
        assert {"0.qd", "1.qd", "0.qx"} <= set(synced.take())


def test_message_without_bytes_has_a_directory_too(tmp_path: Path, synced: Synced) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        queue.new_message().write_message()
        queue.force()
        assert {"0.qx", "."} <= set(synced.take())


def test_force_of_one_of_several_covers_its_state_and_folder(tmp_path: Path, synced: Synced) -> None:
    with serai.MultiQueue(tmp_path, name="AA0", page_size=PAGE) as queue:
        queue.writer().append_many([bytes(1000)] * 10)
        queue.force()
        names = set(synced.take())
        assert {"AA0/0.qd", "AA0/1.qd", "AA0/2.qd", "0.qx", "AA0.qm", "AA0", "."} <= names


def test_compressed_page_is_on_disk_before_the_plain_one_goes(
    tmp_path: Path, synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        queue.writer().append_many([bytes(1000)] * 10)
        real, seen = os.unlink, []

        def unlink(path: str, **keywords: object) -> None:
            if str(path).endswith(".qd"):
                seen.append((os.path.basename(path), synced.take()))
            real(path, **keywords)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "unlink", unlink)
        assert queue.compress() == 2
    assert [name for name, _ in seen] == ["0.qd", "1.qd"]
    for name, names in seen:
        assert f"{name}.zst" in names
        assert "." in names


def test_error_of_the_disk_comes_out_of_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serai.Queue(tmp_path, page_size=PAGE) as queue:
        queue.writer().append(b"x")

        def broken(fd: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(OSError, match="Input/output"):
                queue.force()
        queue.force()
        assert queue.writer().append(b"y") == 16


# ------------------------------------------------------------------------------------------------ the event log of the seed

TRANSFER = struct.Struct("<QHHq")  # number, from, to, amount

BANK = """
import os, sys
import serai
from tests.faults.test_force import ACCOUNTS, transfer
folder, forced = sys.argv[1], sys.argv[2] == "force"
with serai.Queue(folder, page_size=4096) as queue:
    balances, count = dict.fromkeys(range(ACCOUNTS), 0), 0
    for m in queue.reader():                              # replay: the log is the truth
        number, source, target, amount = m.unpack("long", "short", "short", "long")
        assert number == count
        balances[source] -= amount
        balances[target] += amount
        count += 1
    os.write(1, b"%d %d\\n" % (count, sum(k * v for k, v in balances.items())))
    while True:
        source, target, amount = transfer(count)
        queue.new_message().pack_long(count).pack_short(source).pack_short(target).pack_long(amount).write_message()
        if forced and count % 50 == 0:
            queue.force()
        balances[source] -= amount                        # only now the memory changes
        balances[target] += amount
        count += 1
        os.write(1, b"%d %d\\n" % (count, sum(k * v for k, v in balances.items())))
"""
ACCOUNTS = 20


def transfer(number: int) -> tuple[int, int, int]:
    """The one transfer with this number."""
    dice = Random(number)
    return dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS), dice.randrange(1, 1000)


def expected(count: int) -> dict[int, int]:
    """A short sum over all balances after each number of transfers."""
    balances, sums = dict.fromkeys(range(ACCOUNTS), 0), {0: 0}
    for number in range(count):
        source, target, amount = transfer(number)
        balances[source] -= amount
        balances[target] += amount
        sums[number + 1] = sum(k * v for k, v in balances.items())
    return sums


@pytest.mark.parametrize("way", ["force", "no force"])
@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_event_log_is_replayed_to_the_same_balances_after_every_kill(kills: int, way: str, tmp_path: Path) -> None:
    """Q19: write the event, then change memory; kill; replay gives what memory was, or one event more."""
    dice, before, said = Random(19), 0, []
    for _ in range(kills):
        command = [sys.executable, "-c", BANK, str(tmp_path / "log"), way]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.04 * dice.random())
        process.kill()
        lines = [first, *process.stdout.read().split(b"\n")[:-1]]
        process.stdout.close()
        process.wait()
        pairs = [tuple(map(int, line.split())) for line in lines if line.strip()]
        assert pairs[0][0] >= before, "the replay is shorter than what memory was"
        assert [count for count, _ in pairs] == list(range(pairs[0][0], pairs[-1][0] + 1))
        said += pairs
        before = pairs[-1][0]
    sums = expected(before)
    assert all(sums[count] == total for count, total in said)
    print(f"\n{kills} kills, {before} transfers, balances as replayed every time ({way})")
    assert before > 10 * kills
