"""The verbs of `serai queue`: what they write, read, follow and print."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

import serai as package
from tests.cli.kit import COMMAND, environment, interrupt, serai, start
from tests.helpers import files_of, load, patch

if TYPE_CHECKING:
    from pathlib import Path


def filled(folder: Path, count: int = 10, **options: object) -> Path:
    with package.Queue(folder, **options) as queue:  # type: ignore[arg-type]  # keywords of the tests' own
        queue.writer().append_many([b"message %d" % number for number in range(count)])
    return folder


def payloads(folder: Path) -> list[bytes]:
    with package.Queue(folder, "r") as queue:
        return list(queue.reader().payloads())


# ------------------------------------------------------------------------------------------------ put


def test_each_text_is_a_message(tmp_path: Path) -> None:
    done = serai("queue", "put", "q", "hello", "grüße", "", cwd=tmp_path)
    assert (done.code, done.out) == (0, b"")
    assert done.err == "3 messages written to q, the last at offset 32\n"
    assert payloads(tmp_path / "q") == [b"hello", "grüße".encode(), b""]


def test_each_line_of_stdin_is_a_message(tmp_path: Path) -> None:
    done = serai("queue", "put", "q", cwd=tmp_path, stdin=b"one\n\ntwo\xff\nthree")
    assert done.code == 0
    assert payloads(tmp_path / "q") == [b"one", b"", b"two\xff", b"three"]


def test_no_input_writes_no_message(tmp_path: Path) -> None:
    assert serai("queue", "put", "q", cwd=tmp_path).err == "0 messages written to q\n"


def test_many_lines_arrive_in_order(tmp_path: Path) -> None:
    lines = [b"%07d" % number for number in range(300_000)]
    assert serai("queue", "put", "q", "--page-size", "1M", cwd=tmp_path, stdin=b"\n".join(lines)).code == 0
    assert payloads(tmp_path / "q") == lines


def test_a_line_is_published_as_soon_as_it_is_there(tmp_path: Path) -> None:
    with start("queue", "put", "q", cwd=tmp_path) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nhalf")
        process.stdin.flush()
        with package.Queue(tmp_path / "q") as queue:
            tailed = package.tail(queue.reader(), timeout=20)
            assert next(tailed).payload == b"first"
            done = interrupt(process)
        assert done.code == 130
        assert "stopped; 1 message written to q, the last at offset 0" in done.err


def test_offsets_are_printed_when_asked_for(tmp_path: Path) -> None:
    filled(tmp_path / "q", 2)
    assert serai("queue", "put", "q", "a", "b", "--offsets", cwd=tmp_path).out == b"32\n48\n"


def test_raw_input_is_one_message(tmp_path: Path) -> None:
    body = bytes(range(256)) * 10
    assert serai("queue", "put", "q", "--input", "raw", cwd=tmp_path, stdin=body).code == 0
    assert payloads(tmp_path / "q") == [body]


@pytest.mark.parametrize(("form", "text"), [("base64", base64.b64encode(b"\0\1\xff")), ("hex", b"0001ff")])
def test_encoded_input_is_decoded(form: str, text: bytes, tmp_path: Path) -> None:
    assert serai("queue", "put", "q", "--input", form, cwd=tmp_path, stdin=text + b"\n").code == 0
    assert payloads(tmp_path / "q") == [b"\0\1\xff"]


@pytest.mark.parametrize("form", ["base64", "hex"])
def test_wrong_line_is_named_and_those_before_it_are_written(form: str, tmp_path: Path) -> None:
    done = serai("queue", "put", "q", "--input", form, cwd=tmp_path, stdin=b"aaaa\n!!\n")
    assert done.code == 1
    assert "1 message written to q" in done.err
    assert "'!!' is not" in done.err
    assert len(payloads(tmp_path / "q")) == 1


def test_fields_are_packed_from_json_and_come_back_as_json(tmp_path: Path) -> None:
    kinds = "byte,boolean,short,char,int,long,float,double,string,unicode,decimal,big_integer,sized_bytes"
    row = [-1, True, 300, "x", 70000, 1 << 40, 0.5, 1.25, "abc", "grüße €", "0.10", 1 << 70, "AAEC"]
    put = serai("queue", "put", "q", "--fields", kinds, cwd=tmp_path, stdin=json.dumps(row).encode() + b"\n")
    assert put.code == 0, put.err
    done = serai("queue", "get", "q", "--fields", kinds, "--output", "jsonl", cwd=tmp_path)
    assert json.loads(done.out)["values"] == row
    with package.Queue(tmp_path / "q", "r") as queue:
        message = queue.reader().next()
        assert message is not None
        assert message.unpack(*kinds.split(","))[10:] == (Decimal("0.10"), 1 << 70, b"\0\1\2")


@pytest.mark.parametrize("line", ["[1]", '{"a": 1}', "nonsense", '[1, "x"]', '["1", 1.5]', "[1, true]"])
def test_line_that_does_not_fit_the_fields_is_refused(line: str, tmp_path: Path) -> None:
    done = serai("queue", "put", "q", line, "--fields", "int,decimal", cwd=tmp_path)
    assert done.code == 1
    assert "error: " in done.err
    assert "try: " in done.err
    assert payloads(tmp_path / "q") == []


def test_producer_writes_into_a_queue_of_several(tmp_path: Path) -> None:
    for name in ("AA0", "BB1"):
        assert serai("queue", "put", "m", name.lower(), "--producer", name, cwd=tmp_path).code == 0
    done = serai("queue", "get", "m", "--output", "jsonl", cwd=tmp_path)
    assert [(json.loads(line)["producer"], json.loads(line)["payload"]) for line in done.lines] == [
        ("AA0", "aa0"), ("BB1", "bb1"),
    ]  # fmt: skip
    nameless = serai("queue", "put", "m", "x", cwd=tmp_path)
    assert nameless.code == 2
    assert "producer name" in nameless.err


def test_page_size_dialect_and_checksum_reach_the_files(tmp_path: Path) -> None:
    done = serai("queue", "put", "q", "[1, 0.1]", "--fields", "int,decimal", "--page-size", "64K", "--dialect", "java",
                 "--checksum", "index24", "--sync", cwd=tmp_path)  # fmt: skip
    assert done.code == 0, done.err
    files = files_of(tmp_path / "q")
    assert {len(content) for content in files.values()} == {65536}
    assert files["0.qd"][4] == 1  # the short tag of the java dialect
    assert any(files["0.qx"][12:15])


def test_second_writer_is_refused_in_words(tmp_path: Path) -> None:
    with package.Queue(filled(tmp_path / "q")) as queue:
        queue.writer()
        done = serai("queue", "put", "q", "x", cwd=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: cannot write to q\n  why: ")
    assert "already has a writer" in done.err


# ------------------------------------------------------------------------------------------------ get


def test_lines_that_were_put_come_back_as_they_were(tmp_path: Path) -> None:
    lines = b"".join(b"%d \xff\t\n" % number for number in range(1000))
    serai("queue", "put", "q", cwd=tmp_path, stdin=lines)
    assert serai("queue", "get", "q", cwd=tmp_path).out == lines


def test_unbuffered_python_loses_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "q", 50_000)
    done = serai("queue", "get", "q", cwd=tmp_path, PYTHONUNBUFFERED="1")
    assert done.lines == [f"message {number}" for number in range(50_000)]


def test_shapes_of_a_message(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q") as queue:
        queue.writer().append_many(["é".encode(), b"\xff\n"])
    shapes = {
        "text": "é\n".encode() + b"\xff\n\n",
        "raw": "é".encode() + b"\xff\n",
        "hex": b"c3a9\nff0a\n",
        "base64": b"w6k=\n/wo=\n",
    }
    for output, expected in shapes.items():
        assert serai("queue", "get", "q", "--output", output, cwd=tmp_path).out == expected
    records = [{"offset": 0, "size": 2, "payload": "é"}, {"offset": 16, "size": 2, "payload_base64": "/wo="}]
    assert json.loads(serai("queue", "get", "q", "--output", "json", cwd=tmp_path).out) == records
    assert [json.loads(line) for line in serai("queue", "get", "q", "--output", "jsonl", cwd=tmp_path).lines] == records
    table = serai("queue", "get", "q", "--output", "table", cwd=tmp_path).lines
    assert [line.split() for line in table] == [
        ["offset", "by", "size", "payload"],
        ["0", "2", "é"],
        ["16", "2", "\\xff\\n"],
    ]


def test_json_of_nothing_is_an_empty_array(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    assert json.loads(serai("queue", "get", "q", "--output", "json", cwd=tmp_path).out) == []


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), range(10)),
        (("--count", 3), range(3)),
        (("--count", 0), ()),
        (("--offset", 128), (8, 9)),
        (("--offset", 32, "--count", 2), (2, 3)),
        (("--from", "end"), (9,)),
        (("--from", "end", "--count", 3), (7, 8, 9)),
        (("--from", "end", "--count", 50), range(10)),
        (("--offset", 1600), ()),
    ],
)
def test_where_reading_starts_and_how_far_it_goes(words: tuple[object, ...], numbers: range, tmp_path: Path) -> None:
    filled(tmp_path / "q")
    done = serai("queue", "get", "q", *words, cwd=tmp_path)
    assert (done.code, done.lines) == (0, [f"message {number}" for number in numbers])


def test_offset_that_no_message_can_have_is_wrong_use(tmp_path: Path) -> None:
    filled(tmp_path / "q")
    done = serai("queue", "get", "q", "--offset", "10", cwd=tmp_path)
    assert done.code == 2
    assert "multiples of 16" in done.err


def test_missing_directory_is_said_and_not_made(tmp_path: Path) -> None:
    for words in (("get", "q"), ("tail", "q"), ("stat", "q"), ("compress", "q"), ("expand", "q")):
        done = serai("queue", *words, cwd=tmp_path)
        assert (done.code, done.out) == (1, b"")
        assert "there is no such directory" in done.err
        assert "try: serai queue put q hello" in done.err
    assert list(tmp_path.iterdir()) == []


def test_damaged_message_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    filled(tmp_path / "q", 10, page_size=256, checksum="index24")
    patch(tmp_path / "q" / "0.qd", 20, b"X")
    done = serai("queue", "get", "q", "--checksum", "index24", cwd=tmp_path)
    assert done.code == 1
    assert done.lines == [f"message {number}" for number in range(10) if number != 2]
    assert "warning: " in done.err
    assert "checksum" in done.err


def test_dead_producer_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    load("multi_seed_dead_producer").expand(tmp_path / "m")
    done = serai("queue", "tail", "m", "--from", "start", "--timeout", "0.3", "--output", "jsonl", cwd=tmp_path)
    assert [json.loads(line)["offset"] for line in done.lines] == [0, 16, 32, 48, 80, 96]
    assert "MP2" in done.err
    assert done.code == 1


def test_fields_that_do_not_fit_a_message_are_named_with_its_offset(tmp_path: Path) -> None:
    filled(tmp_path / "q")
    done = serai("queue", "get", "q", "--fields", "long,long", cwd=tmp_path)
    assert done.code == 1
    assert "the message at offset 0 does not read as long,long" in done.err


def test_unknown_kind_of_field_is_answered_with_the_nearest(tmp_path: Path) -> None:
    filled(tmp_path / "q")
    done = serai("queue", "get", "q", "--fields", "int,strng", cwd=tmp_path)
    assert done.code == 2
    assert "did you mean 'string'?" in done.err


def test_java_decimals_are_read_in_their_dialect(tmp_path: Path) -> None:
    with package.Queue(tmp_path / "q", dialect="java") as queue:
        queue.new_message().pack_decimal(Decimal("1.5")).write_message()
    done = serai("queue", "get", "q", "--fields", "decimal", "--dialect", "java", cwd=tmp_path)
    assert done.out == b"1.5\n"


def test_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    filled(tmp_path / "q", 100_000)
    with start("queue", "get", "q", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"message 0\n"
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


# ------------------------------------------------------------------------------------------------ tail


def test_tail_shows_what_is_written_from_now_on(tmp_path: Path) -> None:
    with package.Queue(filled(tmp_path / "q")) as queue:
        process = start("queue", "tail", "q", "--verbose", "--count", "3", cwd=tmp_path)
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == b"following q from offset 160\n"
        for text in (b"one", b"two", b"three"):
            queue.writer().append(text)
            assert process.stdout.readline() == text + b"\n"  # each one at once
        assert process.wait(30) == 0
        process.communicate()


def test_tail_waits_for_a_queue_that_is_not_written_yet(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    process = start("queue", "tail", "q", "--count", "1", cwd=tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline() == b"nothing was written to q yet; waiting\n"
    with package.MultiQueue(tmp_path / "q", "rw", "AA0", page_size=64) as queue:
        queue.writer().append(b"first")
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"first\n")


def test_tail_ends_after_its_timeout(tmp_path: Path) -> None:
    filled(tmp_path / "q")
    done = serai("queue", "tail", "q", "--from", "start", "--timeout", "0.1", cwd=tmp_path)
    assert (done.code, len(done.lines)) == (0, 10)
    short = serai("queue", "tail", "q", "--from", "start", "--count", "11", "--timeout", "0.1", cwd=tmp_path)
    assert (short.code, len(short.lines)) == (5, 10)
    assert "only 10 messages of 11 came" in short.err
    (tmp_path / "empty").mkdir()
    assert serai("queue", "tail", "empty", "--count", "1", "--timeout", "0.1", cwd=tmp_path).code == 5


def test_interrupted_tail_says_how_to_go_on(tmp_path: Path) -> None:
    process = start("queue", "tail", filled(tmp_path / "q"), "--from", "start", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"message 0\n"
    done = interrupt(process)
    assert done.code == 130
    assert "stopped after 10 messages, 90 bytes" in done.err
    assert "--offset 160" in done.err
    assert "Traceback" not in done.err


# ------------------------------------------------------------------------------------------------ the directory


def test_stat_says_what_the_queue_says(tmp_path: Path) -> None:
    filled(tmp_path / "q", 100, page_size=256)
    with package.Queue(tmp_path / "q", "r") as queue:
        stat = queue.stat()
    for output in ("json", "jsonl"):
        found = json.loads(serai("queue", "stat", "q", "--output", output, cwd=tmp_path).out)
        assert (found["messages"], found["page_size"], found["end_offset"]) == (100, 256, stat.end_offset)
        assert found["disk_bytes"] == stat.disk_bytes
    table = serai("queue", "stat", "q", cwd=tmp_path).out.decode()
    assert "messages          100\n" in table
    assert "page size         256 bytes\n" in table


def test_compress_and_expand_undo_each_other(tmp_path: Path) -> None:
    filled(tmp_path / "q", 100, page_size=256)
    before = files_of(tmp_path / "q")
    assert serai("queue", "compress", "q", cwd=tmp_path).err.startswith("3 pages compressed; q took ")
    assert not (tmp_path / "q" / "0.qd").exists()
    assert len(serai("queue", "get", "q", cwd=tmp_path).lines) == 100
    assert serai("queue", "expand", "q", cwd=tmp_path).err.startswith("3 pages expanded; q took ")
    assert files_of(tmp_path / "q") == before


def test_bench_measures_four_ways_and_leaves_nothing(tmp_path: Path) -> None:
    done = serai("queue", "bench", "b", "--count", "20000", "--size", "50", "--output", "json", cwd=tmp_path)
    found = json.loads(done.out)
    assert [step["step"] for step in found] == [
        "append", "append_many, 1000 each", "read one by one", "read_batch, as lists",
    ]  # fmt: skip
    assert all(step["messages_per_second"] > 1000 for step in found)
    assert list((tmp_path / "b").iterdir()) == []
    table = serai("queue", "bench", "b", "--count", "1500", cwd=tmp_path).lines
    assert len(table) == 5
    assert table[0].split() == ["step", "time", "messages", "a", "second", "bytes", "a", "second"]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv | make test as root"
)
def test_directory_that_may_not_be_written_has_its_own_code(tmp_path: Path) -> None:
    """As root without root's right to pass over modes: another user may not even see where the package lies."""
    filled(tmp_path / "q", page_size=256)
    for path in (*(tmp_path / "q").iterdir(), tmp_path / "q"):
        path.chmod(path.stat().st_mode & ~0o222)
    command = ["setpriv", "--bounding-set=-dac_override", *COMMAND, "queue", "put", str(tmp_path / "q"), "x"]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=60)
    assert done.returncode == 4, done.stderr
    assert b"Permission denied" in done.stderr


def test_put_asks_for_the_directory_alone(tmp_path: Path) -> None:
    """Texts are optional: without any, stdin is read."""
    done = serai("queue", "put", cwd=tmp_path)
    assert done.code == 2
    assert "required: DIR\n" in done.err
