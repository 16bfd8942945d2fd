"""Positions in checkpoints and options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from serai.errors import Misuse
from serai.spark.offsets import EARLIEST, LATEST, Offsets, ending, read_time, starting
from serai.spark.options import read_options
from tests.spark.kit import numbered, only_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = 1_800_000_000_000


def test_json_has_sorted_keys_and_decimal_partitions() -> None:
    given = Offsets({("b", 1): 5, ("a", 0): 7}, {("a", 0): "5d41402a"})
    text = json.dumps(given.to_json())
    assert text == '{"epoch": {"a": {"0": "5d41402a"}}, "topics": {"a": {"0": 7}, "b": {"1": 5}}, "v": 1}'
    assert Offsets.from_json(json.loads(text)) == given


def test_another_version_is_refused_by_number() -> None:
    with pytest.raises(Misuse, match="version 2, this serai reads version 1"):
        Offsets.from_json({"v": 2, "topics": {}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1700000000000", 1_700_000_000_000), ("now", NOW), ("now-10m", NOW - 600_000), ("2027-01-15T08:00:00", NOW),
     ("2027-01-15T10:00:00+02:00", NOW)],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert read_time(text, name="startingTimestamp", now=NOW) == expected


def test_wrong_time_is_refused_by_name() -> None:
    with pytest.raises(Misuse, match="option startingTimestamp is 'yesterday'"):
        read_time("yesterday", name="startingTimestamp", now=NOW)


@pytest.mark.parametrize(
    ("said", "expected"),
    [("earliest", 0), ("latest", 100), ("-30", 70), ("-1000", 0), ('{"orders": {"0": 42}}', 42),
     ('{"orders": {"0": -2}}', 0), ('{"orders": {"0": -1}}', 100)],
)  # fmt: skip
def test_starting_offsets(fill: Callable[..., Path], said: str, expected: int) -> None:
    log = only_log(fill(numbered(0, 100)))
    options = read_options({"logDir": log.path, "startingOffsets": said})
    assert starting(options, [log], default=EARLIEST, ends={("orders", 0): 100}) == {("orders", 0): expected}


def test_defaults_are_the_callers_and_the_end(fill: Callable[..., Path]) -> None:
    log = only_log(fill(numbered(0, 10)))
    options = read_options({"logDir": log.path})
    ends = {("orders", 0): 10}
    assert starting(options, [log], default=LATEST, ends=ends) == {("orders", 0): 10}
    assert starting(options, [log], default=EARLIEST, ends=ends) == {("orders", 0): 0}
    assert ending(options, [log], ends=ends) == {("orders", 0): 10}


@pytest.mark.parametrize(
    ("said", "words"),
    [("middle", "earliest, latest, -1000 or JSON"), ('{"other": {"0": 1}}', "says nothing about topic orders"), ("{", "it is JSON"),
     ('{"orders": {"0": "x"}}', "a position, -2 or -1"), ("committed", "keeps no position of a group")],
)  # fmt: skip
def test_wrong_starting_offsets_are_refused(fill: Callable[..., Path], said: str, words: str) -> None:
    log = only_log(fill(numbered(0, 10)))
    options = read_options({"logDir": log.path, "startingOffsets": said})
    with pytest.raises(Misuse, match=words):
        starting(options, [log], default=EARLIEST, ends={("orders", 0): 10})


def test_queue_without_times_refuses_to_start_by_time(fill: Callable[..., Path]) -> None:
    log = only_log(fill(numbered(0, 10)))
    options = read_options({"logDir": log.path, "startingTimestamp": "now-10m"})
    with pytest.raises(Misuse, match=r"no store time, so none is found by .*: start it by offset"):
        starting(options, [log], default=EARLIEST, ends={("orders", 0): 10})
