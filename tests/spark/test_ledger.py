"""Each batch once, whatever stops whoever commits it: every step of a commit is cut off and taken up again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from serai._core.entries import HOUSE
from serai.errors import Corrupt, Locked, Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark import ledger
from serai.spark.ledger import Chunk, Stage, commit, read_staged
from serai.spark.options import read_options
from serai.spark.partitions import read_catalogue
from serai.spark.slices import find_logs
from tests.core.dressing import encoded
from tests.oracle.messages import Entry
from tests.spark.kit import numbered, wish

if TYPE_CHECKING:
    from pathlib import Path

WRITER = "a query"


def chunk(low: int, high: int, topic: str = "orders", partition: int = 0) -> Chunk:
    return Chunk(topic, partition, high - low, encoded([Entry(HOUSE, body) for body in numbered(low, high)]))


def staged(data: Path, batch: int, *chunks: Chunk, part: int = 0, attempt: int = 0, writer: str = WRITER) -> Path:
    LocalEngine(data).close()
    file = Stage(data, writer, batch, part, attempt)
    for one in chunks:
        file.put(one)
    file.close()
    return file.path


def found(data: Path) -> dict[str, list[bytes]]:
    """The bodies of each partition."""
    bodies: dict[str, list[bytes]] = {}
    for log in find_logs(read_options({"logDir": str(data)})):
        blocks = log.blocks(log.first(), log.end(committed=True), wish())
        bodies[f"{log.topic}/{log.partition}"] = [
            value for block in blocks for value in block.arrays["value"].to_pylist()
        ]
    return bodies


def test_batch_becomes_visible_as_a_whole_and_its_files_go(tmp_path: Path) -> None:
    files = [staged(tmp_path, 0, chunk(0, 5), chunk(5, 9)), staged(tmp_path, 0, chunk(9, 12), part=1)]
    assert found(tmp_path) == {}
    assert commit(tmp_path, WRITER, 0, files, once=True)
    assert found(tmp_path) == {"orders/0": numbered(0, 12)}
    assert not list((tmp_path / ".staged").rglob("*-*"))


def test_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    commit(tmp_path, WRITER, 0, [staged(tmp_path, 0, chunk(0, 5))], once=True)
    again = staged(tmp_path, 0, chunk(0, 5), attempt=1)
    assert not commit(tmp_path, WRITER, 0, [again], once=True)
    assert not again.exists()
    assert commit(tmp_path, WRITER, 1, [staged(tmp_path, 1, chunk(5, 7))], once=True)
    assert found(tmp_path) == {"orders/0": numbered(0, 7)}


def test_writers_do_not_hide_each_others_batches(tmp_path: Path) -> None:
    for number, writer in enumerate(["one", "two"]):
        file = staged(tmp_path, 0, chunk(5 * number, 5 * number + 5), writer=writer)
        assert commit(tmp_path, writer, 0, [file], once=True)
    assert found(tmp_path) == {"orders/0": numbered(0, 10)}


def test_plain_commits_come_as_often_as_they_are_made_and_leave_no_trace(tmp_path: Path) -> None:
    for _ in range(2):
        assert commit(tmp_path, WRITER, 0, [staged(tmp_path, 0, chunk(0, 5))], once=False)
    assert found(tmp_path) == {"orders/0": numbered(0, 5) * 2}
    with LocalEngine(tmp_path) as engine:
        assert len(engine.state(ledger.STATE)) == 0


def test_files_that_no_task_reported_go_with_the_batch(tmp_path: Path) -> None:
    lost = staged(tmp_path, 0, chunk(0, 5), attempt=0)
    commit(tmp_path, WRITER, 0, [staged(tmp_path, 0, chunk(0, 5), attempt=1)], once=True)
    assert not lost.exists()
    assert found(tmp_path) == {"orders/0": numbered(0, 5)}


def test_topics_that_are_new_are_put_into_the_catalogue(tmp_path: Path) -> None:
    commit(tmp_path, WRITER, 0, [staged(tmp_path, 0, chunk(0, 1, "订单"), chunk(1, 2, "b"))], once=True)
    commit(tmp_path, WRITER, 1, [staged(tmp_path, 1, chunk(2, 3, "c"))], once=True)
    assert read_catalogue(tmp_path) == {"b": (1, 1), "订单": (2, 1), "c": (3, 1)}
    assert found(tmp_path) == {"b/0": numbered(1, 2), "c/0": numbered(2, 3), "订单/0": numbered(0, 1)}


def test_topics_there_are_keep_their_partitions(tmp_path: Path) -> None:
    with LocalEngine(tmp_path) as engine:
        value = json.dumps({"name": "orders", "partitions": 2, "table": {}}).encode()
        engine.catalogue().put_many([(b"topic/7", value), (b"ids", b'{"next": 8}')], level=Level.COMMIT)
        engine.open("loose").append(chunk(0, 1).messages, HOUSE, level=Level.RECEIVE, now_ms=0)
    files = [staged(tmp_path, 0, chunk(0, 2, partition=1), chunk(5, 6, "loose"), chunk(6, 7, "new"))]
    commit(tmp_path, WRITER, 0, files, once=True)
    assert found(tmp_path) == {
        "loose/0": [*numbered(0, 1), *numbered(5, 6)], "new/0": numbered(6, 7), "orders/1": numbered(0, 2),
    }  # fmt: skip
    assert read_catalogue(tmp_path)["new"] == (8, 1)


def test_staged_file_that_the_disk_lost_is_an_error(tmp_path: Path) -> None:
    path = staged(tmp_path, 0, chunk(0, 5), chunk(5, 9))
    raw = path.read_bytes()
    for cut in (10, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:cut])
        with pytest.raises(Corrupt, match="damaged at byte"):
            list(read_staged(path))
    path.write_bytes(raw[:-3] + b"X" + raw[-2:])
    with pytest.raises(Corrupt, match="damaged at byte"):
        commit(tmp_path, WRITER, 0, [path], once=True)
    assert found(tmp_path) == {}


def test_directory_that_a_server_holds_is_refused_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = staged(tmp_path, 0, chunk(0, 5))
    monkeypatch.setattr(ledger, "PATIENCE_S", 0.1)
    with LocalEngine(tmp_path), pytest.raises(Locked, match="a server works there"):
        commit(tmp_path, WRITER, 0, [path], once=True)


# ---- cut off at every step ---------------------------------------------------------------------------------------------

COMMITTING = """
import os, signal, sys
from pathlib import Path
from serai.log import partition
from serai.spark import ledger

step, data, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
count = 0
def stops(call):
    def stepped(*args, **kwargs):
        global count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    return stepped
for name in ("append", "commit"):
    setattr(partition.Partition, name, stops(getattr(partition.Partition, name)))
ledger.sweep = stops(ledger.sweep)
ledger.commit(data, "a query", 3, [Path(name) for name in names], once=True)
print("done", count)
"""


def committed(data: Path, step: int, files: list[Path]) -> subprocess.CompletedProcess[str]:
    """A commit by another process, killed before its nth step."""
    command = [sys.executable, "-c", COMMITTING, str(step), str(data), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_commit_killed_at_any_step_is_finished_by_the_next_and_nothing_comes_twice(tmp_path: Path) -> None:
    def files(data: Path, attempt: int) -> list[Path]:
        one = [chunk(at, at + 3, "a" if at % 2 else "b") for at in range(0, 12, 3)]
        return [
            staged(data, 3, *one, attempt=attempt),
            staged(data, 3, chunk(100, 200, "a"), part=1, attempt=attempt),
        ]  # fmt: skip

    expected = {
        "a/0": [*numbered(3, 6), *numbered(9, 12), *numbered(100, 200)], "b/0": [*numbered(0, 3), *numbered(6, 9)],
    }  # fmt: skip
    whole = committed(tmp_path / "whole", 10_000, files(tmp_path / "whole", 0))
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout.split()[1])
    assert steps > 10
    assert found(tmp_path / "whole") == expected
    for step in range(1, steps + 1):
        data = tmp_path / str(step)
        assert committed(data, step, files(data, 0)).returncode == -signal.SIGKILL
        commit(data, WRITER, 3, files(data, 1), once=True)  # what Spark does: the batch again, by new attempts
        assert found(data) == expected, f"killed before step {step} of {steps}"
        commit(data, WRITER, 4, [staged(data, 4, chunk(500, 510, "b"))], once=True)
        assert found(data) == expected | {"b/0": [*expected["b/0"], *numbered(500, 510)]}


def test_later_batch_finishes_an_earlier_one(tmp_path: Path) -> None:
    files = [staged(tmp_path, 3, chunk(0, 3), chunk(3, 6))]
    assert committed(tmp_path, 7, files).returncode == -signal.SIGKILL
    assert commit(tmp_path, WRITER, 4, [staged(tmp_path, 4, chunk(6, 9))], once=True)
    assert found(tmp_path) == {"orders/0": numbered(0, 9)}


def test_writers_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from serai.spark import ledger; from tests.spark.test_ledger import *\n"
        "data, writer, low = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
        "for batch in range(5):\n"
        "    file = ledger.Stage(data, writer, batch, 0, 0)\n"
        "    file.put(chunk(low + 10 * batch, low + 10 * batch + 10)); file.close()\n"
        "    ledger.commit(data, writer, batch, [file.path], once=True)\n"
    )
    LocalEngine(tmp_path).close()
    commands = [[sys.executable, "-c", code, str(tmp_path), f"w{low}", str(low)] for low in (0, 1000, 2000)]
    running: list[subprocess.Popen[Any]] = [subprocess.Popen(command, cwd=os.getcwd()) for command in commands]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    bodies = found(tmp_path)["orders/0"]
    assert sorted(bodies) == sorted([*numbered(0, 50), *numbered(1000, 1050), *numbered(2000, 2050)])
    for low in (0, 1000, 2000):
        own = set(numbered(low, low + 50))
        assert [body for body in bodies if body in own] == numbered(low, low + 50)


def test_wrong_partition_of_a_topic_is_refused_before_anything_is_decided(tmp_path: Path) -> None:
    path = staged(tmp_path, 0, chunk(0, 5, partition=3))
    with pytest.raises(Misuse, match="partition 3 of topic orders, which has 1"):
        commit(tmp_path, WRITER, 0, [path], once=True)
    assert found(tmp_path) == {}


def test_decided_batch_whose_staged_file_was_lost_meanwhile_shows_no_part_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [staged(tmp_path, 0, chunk(0, 5)), staged(tmp_path, 0, chunk(5, 9), part=1)]

    def killed(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_finish", killed)  # behind the decision, before the first set
        with pytest.raises(InterruptedError):
            commit(tmp_path, WRITER, 0, files, once=True)
    raw = files[1].read_bytes()
    files[1].write_bytes(raw[:-3] + b"X" + raw[-2:])
    with pytest.raises(Corrupt, match="damaged at byte"):
        commit(tmp_path, WRITER, 1, [], once=True)
    assert found(tmp_path).get("orders/0", []) == []
    files[1].write_bytes(raw)
    commit(tmp_path, WRITER, 1, [], once=True)
    assert found(tmp_path) == {"orders/0": numbered(0, 9)}
