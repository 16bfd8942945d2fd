"""How the command line behaves whatever the verb: help, words for errors, colour, quiet, examples."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import TYPE_CHECKING

import pytest

import serai as package
from serai.cli import build, main
from serai.cli.terminal import Bar, Talk, counted, sized, table
from tests.cli.kit import COMMAND, interrupt, on_terminal, serai, start
from tests.gate.kit import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every parser that runs something."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from verbs(child)
    if parser.get_default("run"):
        yield parser


VERBS = {parser.prog: parser for parser in verbs(build())}
QUEUE = tuple(f"queue {name}" for name in ("put", "get", "tail", "stat", "bench", "compress", "expand"))
OVER_FILES = (*QUEUE, "dump", "verify")
PIPES = ("pipe list", "pipe explain", "pipe run", "pipe status")  # `tests/spark/test_pipe_frame.py` runs their examples
ASKING = (  # those that talk to a server, in the order of their help
    *(f"topic {name}" for name in ("list", "create", "describe", "alter", "delete")),
    *(f"subscription {name}" for name in ("list", "set", "remove")),
    *(f"group {name}" for name in ("list", "describe", "lag", "reset")),
)


MESSAGES = ("produce", "consume", "tail")
MEASURING = ("bench produce", "bench consume", "bench latency")
JUDGING = "check history"


def test_there_are_these_verbs() -> None:
    names = ("server", *MESSAGES, *ASKING, *OVER_FILES, *PIPES, *MEASURING, JUDGING)
    assert list(VERBS) == [f"serai {name}" for name in names]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    with package.Queue(tmp_path / "orders") as queue:
        for number in range(20):
            queue.new_message().pack_string(f"order {number}").write_message()
    return tmp_path


def example(prog: str) -> list[str]:
    """The words of the example that ends a verb's help."""
    found = re.search(r"example:\n  (serai .*)\n$", VERBS[prog].format_help())
    assert found is not None
    assert found[1].startswith(prog)
    return shlex.split(found[1])[1:]


@pytest.mark.parametrize("name", OVER_FILES)
def test_help_ends_with_an_example_that_works(name: str, orders: Path) -> None:
    done = serai(*example(f"serai {name}"), cwd=orders)
    assert done.code == 0, done.err
    assert "error" not in done.err


def test_help_of_what_asks_a_server_ends_with_an_example_that_works(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as server:
        server.ask("POST", "/api/v1/topics", {"name": "orders"})
        server.ask("PUT", "/api/v1/topics/orders/subscriptions/consumer/billing")
        server.ask("POST", "/api/v1/topics/orders/groups/billing/reset", {"to": "start"})
        for name in sorted(ASKING, key=lambda each: "remove" in each):
            done = serai(*example(f"serai {name}"), cwd=tmp_path, SERAI_SERVER=f"127.0.0.1:{server.port}")
            assert (done.code, "error" in done.err) == (0, False), done.err


def test_help_of_what_sends_and_receives_ends_with_an_example_that_works(tmp_path: Path) -> None:
    with Running(tmp_path / "data") as server:
        for name in (*MESSAGES, *MEASURING):
            done = serai(*example(f"serai {name}"), cwd=tmp_path, SERAI_SERVER=f"127.0.0.1:{server.port}")
            assert (done.code, "error" in done.err) == (0, False), done.err


def test_help_of_the_judge_ends_with_an_example_that_works(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"event": "end", "group": "g"}\n')
    assert serai(*example(f"serai {JUDGING}"), cwd=tmp_path).code == 0


def test_help_of_the_server_ends_with_an_example_that_works(tmp_path: Path) -> None:
    process = start(*example("serai server"), cwd=tmp_path)
    assert process.stderr is not None
    assert b"serai: ready on" in process.stderr.readline()
    assert interrupt(process).code == 0


@pytest.mark.parametrize("words", [(), ("queue",), *(tuple(prog.split()[1:]) for prog in VERBS)])
def test_help_is_data_and_ends_with_zero(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: serai")
    assert shown.err == ""


@pytest.mark.parametrize("words", [(), ("queue",)])
def test_missing_verb_is_wrong_use(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: serai" in shown.err


def test_version_names_the_instructions_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"serai [\d.]+ \(Python 3\.\S+, \w+, CRC-32C by \w+\)\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["quue"], "queue"),
        (["verfiy", "q"], "verify"),
        (["queue", "gt", "q"], "get"),
        (["queue", "stats", "q"], "stat"),
        (["queue", "get", "q", "--cuont", "3"], "--count"),
        (["queue", "get", "q", "--fileds=int"], "--fields"),
        (["queue", "get", "q", "--output", "jsn"], "json"),
        (["dump", "q", "--dialect", "jva"], "java"),
    ],
)
def test_mistyped_word_is_answered_with_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert f"did you mean {meant!r}?" in shown.err
    assert "--help" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "get"],
        ["queue", "get", "q", "--count", "-1"],
        ["queue", "get", "q", "--count", "many"],
        ["queue", "get", "q", "--offset", "16", "--from", "end"],
        ["queue", "put", "q", "--page-size", "1T"],
        ["queue", "tail", "q", "--timeout", "-2"],
        ["queue", "tail", "q", "--timeout", "nan"],
        ["queue", "get", "q", "extra"],
        ["queue", "bench", "--count", "0"],
        ["server", "--port", "99999"],
        ["server", "--set", "port"],
        ["tail", "t", "--since", "99999999999d"],
    ],
)
def test_wrong_use_has_code_2_and_no_traceback(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) <= 3
    assert all(line == line.rstrip() for line in shown.err.splitlines())  # nothing that should stand there is missing


@pytest.mark.parametrize(
    ("words", "aim"), [("queue get", "read"), ("queue stat", "look at"), ("dump", "dump"), ("verify", "verify")]
)
def test_error_is_what_why_and_a_hint(words: str, aim: str, tmp_path: Path) -> None:
    done = serai(*words.split(), "nowhere", cwd=tmp_path)
    assert done.code == 1
    assert done.err.splitlines() == [
        f"error: cannot {aim} nowhere", "  why: there is no such directory", "  try: serai queue put nowhere hello",
    ]  # fmt: skip


@pytest.mark.parametrize("words", ["queue get", "queue stat", "dump"])
def test_directory_without_a_queue_is_said_to_be_one(words: str, tmp_path: Path) -> None:
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / "deep" / "file").write_bytes(bytes(1 << 20))
    done = serai(*words.split(), "other", cwd=tmp_path)
    assert done.code == 0
    assert done.err == "there is no page of a queue in other: nothing was written there yet\n"
    assert "MiB" not in done.out.decode().replace("1.0 GiB", "")  # nothing is counted that is none of the queue's


def test_file_in_place_of_a_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert "it is a file" in serai("queue", "get", "f", cwd=tmp_path).err
    assert "is a file" in serai("queue", "put", "f", "x", cwd=tmp_path).err


def test_verbose_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "0.qx").write_bytes(bytes(17))
    plain, told = (serai("queue", "get", "q", *more, cwd=tmp_path) for more in ((), ("--verbose",)))
    assert plain.code == told.code == 1
    assert "Traceback" not in plain.err
    assert "Traceback" in told.err
    assert "try: serai verify q" in plain.err


def test_quiet_says_nothing_but_errors(tmp_path: Path) -> None:
    assert serai("queue", "put", "q", "x", "--quiet", cwd=tmp_path).err == ""
    assert serai("--quiet", "queue", "put", "q", "x", cwd=tmp_path).err == ""
    assert serai("queue", "get", "nowhere", "--quiet", cwd=tmp_path).err.startswith("error: ")


def test_pipes_see_no_colour_unless_forced(tmp_path: Path) -> None:
    serai("queue", "put", "q", "x", cwd=tmp_path)
    words = ("queue", "stat", "q")
    assert b"\x1b" not in serai(*words, cwd=tmp_path).out
    assert b"\x1b[1m" in serai(*words, cwd=tmp_path, FORCE_COLOR="1").out
    assert b"\x1b" not in serai(*words, cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="1").out


def test_terminals_see_colour_unless_it_is_refused(tmp_path: Path) -> None:
    serai("queue", "put", "q", "x", cwd=tmp_path)
    assert "\x1b[1m" in on_terminal("queue", "stat", "q", cwd=tmp_path)[1]
    assert "\x1b" not in on_terminal("queue", "stat", "q", cwd=tmp_path, NO_COLOR="1")[1]
    assert "\x1b" not in on_terminal("queue", "stat", "q", cwd=tmp_path, TERM="dumb")[1]


def test_terminals_are_safe_from_what_messages_hold(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q") as queue:
        queue.writer().append("\x1b[2Jgrüße\x07".encode() + b"\xff")
    code, shown = on_terminal("queue", "get", "q", cwd=tmp_path, PYTHONIOENCODING="utf-8")
    assert (code, shown) == (0, "\\x1b[2Jgrüße\\x07\\xff\r\n")


def test_bar_is_drawn_on_a_terminal_and_taken_away(tmp_path: Path) -> None:
    code, shown = on_terminal("queue", "bench", "--count", "2000000", cwd=tmp_path)
    assert code == 0
    assert "measuring [#" in shown
    assert "\r\x1b[K" in shown


def test_long_work_says_one_line_for_each_tenth_into_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("serai.cli.terminal.PATIENCE_SECONDS", 0)
    bar = Bar("working", quiet=False)
    for done in range(1001):
        bar.show(done, 1000)
    bar.clear()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"working: {percent} %" for percent in range(10, 101, 10)]


def test_short_work_and_quiet_work_say_nothing_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Talk(quiet=False, verbose=False).progress("working") as show:
        show(10, 10)
    with Talk(quiet=True, verbose=False).progress("working") as show:
        show(10, 10)
    assert capsys.readouterr().err == ""


def test_numbers_are_written_for_people() -> None:
    assert [counted(count) for count in (0, 1, 1234)] == ["0 messages", "1 message", "1,234 messages"]
    assert [sized(count) for count in (0, 1023, 1024, 5 << 30)] == ["0 bytes", "1,023 bytes", "1.0 KiB", "5.0 GiB"]
    assert table(("name", "count"), [("a", 5), ("bcd", 12345)]).splitlines() == [
        "name   count",
        "a          5",
        "bcd   12,345",
    ]


def test_starting_loads_no_queue() -> None:
    import subprocess

    code = "import sys; from serai.cli import main; main(['--help']); print([m for m in sys.modules if 'serai' in m])"
    out = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True).stdout
    assert "serai.log" not in out
    assert "serai._core" not in out
