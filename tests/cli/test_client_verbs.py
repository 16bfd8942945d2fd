"""serai produce, consume, tail, bench, check history against a real server."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, BinaryIO

import pytest

from serai.client.history import Recorder
from tests.cli.kit import COMMAND, Done, environment, interrupt, on_terminal, serai
from tests.gate.kit import Running

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("verbs") / "data") as running:
        running.ask("POST", "/api/v1/topics", {"name": "four", "partitions": 4})
        yield running


class Ask:
    """A verb against the server."""

    def __init__(self, server: Running, place: Path) -> None:
        self.where = f"127.0.0.1:{server.port}"
        self.place = place

    def __call__(self, *words: str, stdin: bytes = b"") -> Done:
        return serai(*words, cwd=self.place, stdin=stdin, SERAI_SERVER=self.where)

    def start(self, *words: str, stdin: BinaryIO | None = None) -> subprocess.Popen[bytes]:
        import subprocess

        return subprocess.Popen(
            [*COMMAND, *words], cwd=self.place, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(SERAI_SERVER=self.where),
        )  # fmt: skip


@pytest.fixture
def run(server: Running, tmp_path: Path) -> Ask:
    return Ask(server, tmp_path)


# ---- produce -------------------------------------------------------------------------------------------------


def test_words_and_lines_become_messages(run: Ask) -> None:
    done = run("produce", "words", "one", "two", "--positions")
    assert (done.code, done.lines) == (0, ["0 0", "0 1"])
    assert "2 messages stored in words, the last at partition 0, index 1" in done.err
    assert run("produce", "words", stdin=b"three\nfour").code == 0
    assert run("produce", "words", "--count", "2", stdin=b"five\nsix\nseven\n").code == 0
    assert run("produce", "words", "a", "b", "--count", "3").code == 0
    assert run("produce", "words", "--input", "raw", stdin=b"x\ny").code == 0
    got = run("consume", "words", "--timeout", "0.3", "--output", "hex")
    assert [bytes.fromhex(line) for line in got.lines] == [
        b"one", b"two", b"three", b"four", b"five", b"six", b"a", b"b", b"a", b"x\ny",
    ]  # fmt: skip


def test_key_headers_and_level_travel(run: Ask) -> None:
    assert run("produce", "four", "v", "--key", "k", "--header", "a=1", "--header", "b=", "--ack", "receive").code == 0
    (line,) = run("tail", "four", "--since", "start", "--timeout", "0.3", "--output", "jsonl").lines
    found = json.loads(line)
    assert (found["key"], found["headers"]) == ("k", [{"name": "a", "value": "1"}, {"name": "b", "value": ""}])
    assert run("produce", "silent", "v", "--ack", "none").code == 0
    assert run("consume", "silent", "--count", "1", "--timeout", "5").lines == ["v"]


@pytest.mark.parametrize("words", [(), ("--input", "raw")])
def test_stdin_without_an_end_is_refused_before_all_of_it_is_held(run: Ask, words: tuple[str, ...]) -> None:
    with open("/dev/zero", "rb") as endless:
        process = run.start("produce", "endless", *words, stdin=endless)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, b"a request has at most" in err) == (1, True)


def test_header_without_a_value_is_wrong_use(run: Ask) -> None:
    assert run("produce", "t", "x", "--header", "none").code == 2


# ---- consume -------------------------------------------------------------------------------------------------


def test_consume_says_where_it_waits_and_how_to_begin_anew(run: Ask) -> None:
    run("produce", "places", *map(str, range(5)))
    first = run("consume", "places", "--group", "g", "--count", "3")
    assert first.lines == ["0", "1", "2"]
    assert "group g of places: partition 0 at 0 of 5" in first.err
    assert "serai consume places --group g --from start" in first.err
    rest = run("consume", "places", "--group", "g", "--timeout", "0.3")
    assert (rest.code, rest.lines, "partition 0 at 3 of 5" in rest.err) == (0, ["3", "4"], True)
    assert run("consume", "places", "--group", "g", "--timeout", "0.1", "--from", "start").lines == list("01234")
    assert run("consume", "places", "--group", "g", "--timeout", "0.1", "--from", "4").lines == ["4"]
    assert run("consume", "places", "--group", "g", "--timeout", "0.1", "--from", "1h").lines == list("01234")
    assert run("consume", "places", "--group", "g", "--timeout", "0.1", "--from", "end").lines == []


def test_consume_and_tail_say_what_they_wait_for(run: Ask) -> None:
    run("produce", "awaited", "x")
    first = run("consume", "awaited", "--count", "1", "--server", run.where.replace("127.0.0.1", "localhost"))
    assert "--from start --server localhost:" in first.err
    assert "nothing is new" not in first.err
    for verb, said in (("consume", "nothing is new, it waits until Ctrl-C"), ("tail", "from now on, until Ctrl-C")):
        process = run.start(verb, "awaited")
        assert process.stderr is not None
        assert said in process.stderr.readline().decode()
        assert interrupt(process).code == 130


def test_command_that_is_shown_can_be_typed(run: Ask) -> None:
    done = run("consume", "two words", "--group", "a b", "--timeout", "0")
    assert "all over again: serai consume 'two words' --group 'a b' --from start" in done.err


def test_consume_that_gets_too_few_has_code_5(run: Ask) -> None:
    run("produce", "few", "x")
    done = run("consume", "few", "--count", "2", "--timeout", "0.2")
    assert (done.code, done.lines) == (5, ["x"])
    assert "only 1 message of 2 came" in done.err


def test_ctrl_c_ends_consume_with_a_summary_and_keeps_what_was_acknowledged(run: Ask) -> None:
    run("produce", "stopped", "x")
    process = run.start("consume", "stopped")
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\n"
    time.sleep(0.3)
    done = interrupt(process)
    assert (done.code, "stopped after 1 message of stopped" in done.err) == (130, True)
    assert run("consume", "stopped", "--timeout", "0.2").lines == []


def test_reader_that_goes_away_is_no_error(run: Ask) -> None:
    run("produce", "long", "x" * 100, "--count", "20000")
    process = run.start("consume", "long")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert b"Traceback" not in process.stderr.read()
    assert process.wait(30) in (0, -signal.SIGPIPE)


def test_terminal_is_safe_from_what_messages_hold(run: Ask) -> None:
    run("produce", "colours", "--input", "hex", "1b5b324a07ff")
    code, shown = on_terminal(
        "tail", "colours", "--since", "start", "--count", "1", cwd=run.place, SERAI_SERVER=run.where
    )
    assert (code, "\\x1b[2J\\x07\\xff" in shown, "\x1b[2J" in shown) == (0, True, False)


# ---- tail ----------------------------------------------------------------------------------------------------


def test_tail_follows_topics_by_name_and_moves_no_group(run: Ask) -> None:
    run("produce", "left", "l1")
    run("produce", "right", "r1")
    process = run.start("tail", "left", "right", "--since", "start", "--count", "3")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert {process.stdout.readline(), process.stdout.readline()} == {b"left  l1\n", b"right  r1\n"}
        run("produce", "right", "r2")
        assert process.stdout.readline() == b"right  r2\n"
        assert process.wait(30) == 0
    assert run("consume", "left", "--timeout", "0.2").lines == ["l1"]


def test_tail_shows_what_matches(run: Ask) -> None:
    run("produce", "mixed", "apple", "pear", "--key", "fruit")
    run("produce", "mixed", "leek", "--key", "vegetable")
    words = ("tail", "mixed", "--since", "start", "--timeout", "0.2")
    assert run(*words, "--match", "ea").lines == ["pear"]
    assert run(*words, "--key", "^veg").lines == ["leek"]
    assert run(*words, "--match", "(").code == 2
    assert run("tail", "mixed", "--since", "yesterday").code == 2


# ---- bench and check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("produce", "--clients", "2"), ("consume",), ("latency", "--rate", "100", "--seconds", "0.5")]
)
def test_bench_gives_numbers_in_json(words: tuple[str, ...], run: Ask) -> None:
    more = () if words[0] == "latency" else ("--count", "5000", "--batch", "100")
    done = run("bench", *words, *more, "--output", "json", "--topic", f"b-{words[0]}")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["messages"] == {"produce": 10000, "consume": 5000, "latency": 50}[words[0]]
    assert 0 < facts["p50_us"] <= facts["p99_us"] <= facts["p99.9_us"] <= facts["max_us"]
    assert facts["messages_per_second"] > 0


def test_check_history_names_the_message_and_has_code_1(tmp_path: Path) -> None:
    with open(tmp_path / "h.jsonl", "w") as file:
        recorder = Recorder(file)
        recorder.note("send", who="p", number=7, sum=1)
        recorder.note("stored", who="p", number=7, partition=0, index=3)
        recorder.note("end", group="g")
    done = serai("check", "history", "h.jsonl", cwd=tmp_path)
    assert (done.code, done.lines[1].split()[:3]) == (1, ["lost", "p-7", "2"])
    assert "1 message sent, 1 stored, 0 unknown, 0 received by 0 groups: 1 finding" in done.err
    (found,) = json.loads(serai("check", "history", "h.jsonl", "--output", "json", cwd=tmp_path).out)
    assert (found["kind"], found["message"]) == ("lost", "p-7")
    (tmp_path / "h.jsonl").write_text("nonsense\n")
    assert serai("check", "history", "h.jsonl", cwd=tmp_path).code == 2
    assert serai("check", "history", "nowhere", cwd=tmp_path).code == 1


# ---- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("produce", "t", "x"), ("consume", "t"), ("tail", "t"), ("bench", "produce"), ("bench", "latency")]
)
def test_no_server_there_is_code_3(words: tuple[str, ...], tmp_path: Path) -> None:
    done = serai(*words, "--server", "127.0.0.1:1", cwd=tmp_path)
    assert (done.code, "no server answers at 127.0.0.1:1" in done.err, "serai server" in done.err) == (3, True, True)
    assert len(done.err.splitlines()) <= 4


def test_refusal_is_what_why_and_a_hint(run: Ask) -> None:
    done = run("produce", "a/b", "x")
    lines = done.err.splitlines()
    assert (done.code, len(lines)) == (1, 3)
    assert lines[0] == "error: cannot send to a/b"


def test_client_verb_loads_no_server(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys; from serai.cli import main; main(['produce', 't', 'x', '--server', '127.0.0.1:1', '-q'])\n"
        "print([name for name in sys.modules if name.startswith(('asyncio', 'serai.log', 'serai.broker', 'serai.gate'))])"
    )
    out = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert out.strip() == "[]"
