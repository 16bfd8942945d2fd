"""Options: names in any case, nearest names for wrong ones, values checked where they are given."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from serai.errors import Misuse
from serai.spark import options
from serai.spark.options import read_options

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = {"logdir": "x"}


@pytest.fixture(autouse=True)
def forget_warnings() -> Iterator[None]:
    options._warned.clear()
    yield
    options._warned.clear()


def test_names_are_taken_in_any_case_and_by_their_alias() -> None:
    assert read_options({"LOGDIR": "x", "MaxOffsetsPerTrigger": "5"}).max_offsets_per_trigger == 5
    assert read_options({"path": "x"}).log_dir == "x"


def test_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Misuse, match=r"no option 'maxOffsetPerTriger': did you mean maxOffsetsPerTrigger\?"):
        read_options(HERE | {"maxOffsetPerTriger": "5"})


def test_unknown_option_near_to_nothing_lists_all() -> None:
    with pytest.raises(Misuse, match="there are assign, asyncProgress"):
        read_options(HERE | {"zzzz": "5"})


def test_kafka_options_are_ignored_with_one_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "serai.spark"):
        for _ in range(2):
            read_options(HERE | {"kafka.fetch.min.bytes": "1", "groupIdPrefix": "me"})
    assert [record.getMessage() for record in caplog.records] == [
        "option kafka.fetch.min.bytes has no meaning for serai and is ignored",
        "option groupIdPrefix has no meaning for serai and is ignored",
    ]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("decode", "yaml", "raw, text, json, xml or fields"),
        ("maxOffsetsPerTrigger", "0", "whole number from 1 on"),
        ("maxBytesPerTrigger", "many", "number of bytes"),
        ("maxTriggerDelay", "soon", "time span"),
        ("includeHeaders", "yes", "true or false"),
        ("charset", "klingon", "no such charset"),
        ("columns", "a,a", "different names"),
        ("subscribePattern", "(", "no regular expression"),
        ("assign", "[1]", "JSON of topics"),
    ],
)
def test_wrong_value_is_refused_by_name(name: str, value: str, words: str) -> None:
    with pytest.raises(Misuse, match=f"option {name} is .*{words}"):
        read_options(HERE | {name: value})


def test_sizes_and_spans_are_written_as_people_write_them() -> None:
    read = read_options(HERE | {"maxBytesPerTrigger": "8MiB", "batchBytes": "64k", "maxTriggerDelay": "2m"})
    assert (read.max_bytes_per_trigger, read.batch_bytes, read.max_trigger_delay_ms) == (8 << 20, 64 << 10, 120_000)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("UTF-8", "utf-8"), ("UTF_8_NB", "utf-8"), ("GBK", "gbk"), ("GB2312", "gb2312"), ("gb18030", "gb18030"),
     ("ISO_8859_15", "iso8859-15"), ("ISO-8859-1", "iso8859-1"), ("UTF-16LE", "utf-16-le"), ("ASCII", "ascii")],
)  # fmt: skip
def test_charsets_of_the_z_protocol_are_known(name: str, codec: str) -> None:
    assert read_options(HERE | {"charset": name}).charset == codec


def test_where_the_log_lies_must_be_said_once() -> None:
    with pytest.raises(Misuse, match="say where the log is"):
        read_options({})
    with pytest.raises(Misuse, match="on this machine only"):
        read_options({"kafka.bootstrap.servers": "127.0.0.1:9092"})
    with pytest.raises(Misuse, match="two places"):
        read_options({"logDir": "x", "servers": "127.0.0.1:15555"})
    with pytest.raises(Misuse, match="given twice"):
        read_options({"logDir": "x", "path": "y"})


def test_topics_are_chosen_in_one_way() -> None:
    with pytest.raises(Misuse, match="only one of them"):
        read_options(HERE | {"subscribe": "a", "assign": '{"a": [0]}'})


def test_group_is_refused_with_the_reason() -> None:
    with pytest.raises(Misuse, match="checkpoint is where positions stand"):
        read_options(HERE | {"group": "reports"})


def test_names_of_a_subclass_are_its_own() -> None:
    assert read_options(HERE | {"export": "lake"}, extra=("export",)).log_dir == "x"
