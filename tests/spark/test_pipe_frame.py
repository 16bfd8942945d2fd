"""What every pipeline has: declared settings, a place, words; and `serai pipe`, which is made of the declarations."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from serai.cli import main
from serai.errors import Locked, Misuse
from serai.spark.options import count
from serai.spark.pipes import MODULES, all_pipes
from serai.spark.pipes.frame import Outcome, Pipe, Totals, setting
from serai.spark.pipes.place import look, taken
from serai.spark.pipes.running import positions, words_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

WITHOUT_SPARK = "import sys; sys.modules.update(pyspark=None, pyarrow=None, numpy=None); "


@dataclass(frozen=True, kw_only=True)
class Sample(Pipe):
    """Does nothing at all."""

    name = "sample"
    does = "do nothing"
    example = "serai pipe run sample --data here"
    fixed = ("data",)

    data: str = setting("where it is", metavar="DIR")
    most: int = setting("how many", kind=count, metavar="N", default=7)


def test_settings_are_read_from_the_declaration() -> None:
    assert Sample.of({"data": "here", "most": "3"}) == Sample(data="here", most=3)
    assert [(one.flag, one.needed, one.default) for one in Sample.settings()] == [
        ("--data", True, None), ("--most", False, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs --data"),
        ({"data": "x", "most": "many"}, "--most is 'many'; it is a whole number from 1 on"),
        ({"data": "x", "least": "1"}, "no setting 'least'; there are data, most"),
    ],
)
def test_wrong_setting_is_refused_with_what_is_wanted(given: dict[str, str], words: str) -> None:
    with pytest.raises(Misuse, match=re.escape(words)):
        Sample.of(given)


def test_place_is_one_runs_at_a_time(tmp_path: Path) -> None:
    pipe = Sample(data="x")
    with taken(tmp_path, pipe), pytest.raises(Locked, match="in use"), taken(tmp_path, pipe):
        pass


def test_place_of_other_settings_is_refused_with_both(tmp_path: Path) -> None:
    with taken(tmp_path, Sample(data="x")) as place:
        place.checkpoint.mkdir()
        place.tell(state="done")
    with taken(tmp_path, Sample(data="x", most=1)):
        pass
    with pytest.raises(Misuse, match="data 'x', now 'y'"), taken(tmp_path, Sample(data="y")):
        pass


def test_status_tells_a_run_that_is_at_work_from_one_that_died(tmp_path: Path) -> None:
    home = tmp_path / "lake" / "_serai" / "sample"
    with taken(home, Sample(data="x")) as place:
        place.tell(rows=5)
        assert [(one["state"], one["rows"]) for one in look(tmp_path)] == [("running", 5)]
    assert [one["state"] for one in look(tmp_path)] == ["died"]


def test_rows_are_told_by_positions() -> None:
    offset = '{"epoch": {}, "topics": {"a": {"0": 5, "1": 7}}, "v": 1}'
    assert positions(offset) == {("a", "0"): 5, ("a", "1"): 7}
    assert positions(None) == positions("null") == {}


def test_stopped_run_says_that_the_next_goes_on() -> None:
    assert (
        Totals(10, 2, 5.0, stopped=True).sentence
        == "10 rows in 2 batches, 2 rows/s; stopped, the next run goes on from here"
    )


def test_error_of_a_task_is_told_in_its_own_words() -> None:
    wrapped = "[STREAM_FAILED] Query failed\nTraceback (most recent call last):\n  File x\nserai.errors.Corrupt: page 7 is gone\n"
    assert words_of(ValueError(wrapped)) == "page 7 is gone"


@pytest.mark.parametrize("kind", all_pipes(), ids=lambda kind: kind.name)
def test_pipeline_says_what_it_does(kind: type[Pipe], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipe", "explain", kind.name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{kind.name}: {kind.does}\n\n{kind.explanation()}")
    assert kind.example.startswith(f"serai pipe run {kind.name} ")
    assert main(["pipe", "run", kind.name, "--help"]) == 0
    flags = capsys.readouterr().out
    assert all(one.flag in flags and one.flag in shown for one in kind.settings())
    given = {one.name for one in kind.settings() if one.flag in kind.example}
    assert given >= {one.name for one in kind.settings() if one.needed}


def test_pipelines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipe", "list", "--output", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(MODULES)


@pytest.mark.parametrize("words", [["list"], ["explain", "archive"], ["run", "archive", "--help"], ["--help"]])
def test_words_about_pipelines_load_no_spark(words: list[str]) -> None:
    code = f"{WITHOUT_SPARK}from serai.cli import main; sys.exit(main(['pipe', *{words!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_missing_spark_is_said_with_the_line_that_installs_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util as util; there = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'pyspark' else there(name, *more)\n"
        "from serai.cli import main; sys.exit(main(['pipe', 'run', 'archive', '--data', 'q', '--to', 'lake']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'serai[spark]'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["run", "archiv"], "did you mean 'archive'?"),
        (["run", "archive", "--data", "x"], "--to"),
        (["run", "archive", "--data", "x", "--to", "y", "--topcs", "z"], "did you mean '--topics'?"),
        (["run", "archive", "--data", "x", "--to", "y", "--every", "soon"], "it is a time span"),
        (["run", "archive", "--data", "x", "--to", "y", "--conf", "a"], "it is KEY=VALUE"),
        (["run", "archive", "--data", "x", "--to", "y", "--batch-rows", "no"], "it is a whole number"),
    ],
)
def test_wrong_use_of_pipe_has_code_2(words: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipe", *words]) == 2
    told = capsys.readouterr()
    assert shown in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_status_of_a_folder_without_runs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipe", "status", str(tmp_path)]) == 1
    assert "no pipeline has run there" in capsys.readouterr().err


def test_run_prints_rows_and_remembers_how_far_it_is(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue, lake = fill([b"a", b"b", b"c"]), tmp_path / "lake"
    words = ["pipe", "run", "archive", "--data", str(queue), "--to", str(lake), "--output", "jsonl"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["rows"] for line in shown.out.splitlines()] == [3]
    assert "archive: 3 rows in 1 batch," in shown.err
    assert main(words) == 0
    assert "archive: 0 rows" in capsys.readouterr().err
    assert main(["pipe", "status", str(lake), "--output", "json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["pipe"], said["state"], said["settings"]["data"]) == ("archive", "done", str(queue))


def test_failed_run_says_why_and_so_does_its_status(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue = fill([b"a", b"b"])
    words = ["pipe", "run", "archive", "--data", str(queue), "--to", str(tmp_path / "lake")]
    assert main(words) == 0
    shutil.rmtree(queue)
    fill([b"c"])
    capsys.readouterr()
    assert main(words) == 1
    shown = capsys.readouterr().err.splitlines()
    (said,) = look(tmp_path)
    assert said["state"] == "failed"
    assert [f"  why: {said['why']}", "  try: serai pipe run archive --help"] == shown[-2:]
    assert "orders" in said["why"]


@pytest.mark.parametrize("name", ["archive", "fold", "metrics"])
def test_mistyped_directory_or_topic_takes_no_place_and_needs_no_spark(
    name: str, tmp_path: Path, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    queue = fill([b"a"])
    more = {
        "archive": ["--to", "lake"],
        "fold": ["--to", "table", "--fields", "int", "--by", "f0", "--take", "n = count()"],
    }
    where = [*more.get(name, []), *([] if name == "metrics" else ["--checkpoint", str(tmp_path / "place")])]
    for data, topics, why in (
        (tmp_path / "none", "orders", "is not a directory"),
        (queue, "ordes", "has no topic ordes"),
    ):
        assert main(["pipe", "run", name, "--data", str(data), "--topics", topics, *where]) == 2
        shown = capsys.readouterr().err
        assert why in shown
        assert f"try: serai pipe run {name} --help" in shown
    assert not (tmp_path / "place").exists()


def test_outcome_may_have_no_rows() -> None:
    assert Outcome("done").rows == ()
