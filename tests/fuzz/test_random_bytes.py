"""Random bytes as `.qx`, `.qd`, `.qm` and `.qd.zst`: an error of serai or a clean end, never a crash, a hang or much memory."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import serai
from tests.fuzz.exercise import STEPS, draw, exercise, lay, read, unpack_all, walk
from tests.fuzz.exercise import step_message as one_message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DrawFn

ROOT = Path(__file__).resolve().parents[2]
RELAXED = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = st.sampled_from(
    ["0.qx", "1.qx", "0.qd", "1.qd", "0.qd.zst", "AA0.qm", "AA0/0.qd", "AA0/0.qd.zst", "BB1.qm", "0.qmx"]
)


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Small pages where nothing says otherwise, and no word about each tail that is cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERAI_PAGE_SIZE", "256")
        logging.disable()
        yield
        logging.disable(logging.NOTSET)


class Drawn:
    """Choices made by hypothesis, which makes a failing directory small."""

    def __init__(self, draw_one: DrawFn) -> None:
        self._draw = draw_one

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def raw(self, length: int) -> bytes:
        return self._draw(st.binary(min_size=length, max_size=length))


@st.composite
def directories(draw_one: DrawFn) -> dict[str, bytes]:
    return draw(Drawn(draw_one))


@RELAXED
@given(files=directories())
def test_directory_that_is_nearly_right(files: dict[str, bytes]) -> None:
    exercise(files)


@RELAXED
@given(files=st.dictionaries(NAMES, st.binary(max_size=600), max_size=5))
def test_directory_of_plain_noise(files: dict[str, bytes]) -> None:
    exercise(files)


@RELAXED
@given(
    files=st.dictionaries(
        NAMES, st.integers(4, 8).flatmap(lambda n: st.binary(min_size=1 << n, max_size=1 << n)), max_size=4
    )
)
def test_directory_of_noise_in_pages(files: dict[str, bytes]) -> None:
    exercise(files)


@settings(RELAXED, max_examples=300)
@given(payload=st.binary(max_size=300), dialect=st.sampled_from(["seed", "java"]), checked=st.booleans())
def test_message_of_noise_is_unpacked_or_refused(
    payload: bytes, dialect: str, checked: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"noise-{dialect}"
    with serai.Queue(folder, page_size=256, dialect=dialect) as queue:
        offset = queue.writer().append(payload)
        message = queue.reader(checked=checked).set_offset(offset)
        assert message is not None
        assert message.payload == payload
        if checked:
            unpack_all(message)


# ------------------------------------------------------------------------------------------------ with little memory and time


def guarded(first: int, count: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz.guarded", str(first), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-3000:]}"
    assert done.stdout == f"{count}\n"


def test_random_directories_need_little_memory_and_time() -> None:
    """A process that may take 256 MiB more than it has, and 5 seconds of the processor for each."""
    guarded(0, 80)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1000, 5000])
def test_many_random_directories_need_little_memory_and_time(first: int) -> None:
    guarded(first, 1500)


def test_size_that_is_a_lie_takes_no_memory(tmp_path: Path) -> None:
    """An entry says 2 GiB; the pages are not there, and nothing of that length is made before this is known."""
    entry = b"\x10" + bytes(7) + (0x7FFFFFFF).to_bytes(4, "little") + b"\0\0\0\x7f"
    lay({"0.qx": entry.ljust(1 << 16, b"\0"), "0.qd": bytes(1 << 16)}, tmp_path)
    source = "import resource, sys\nfrom tests.fuzz.test_random_bytes import lie\nlie(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\n"


def lie(folder: str) -> None:
    """In a process of its own, with 100 MiB more than it has."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (100 << 20), now + (100 << 20)))
    with serai.Queue(folder, "r") as queue:
        try:
            queue.reader().next()
        except serai.Corrupt:
            print("refused")
        read(queue)


def test_walk_ends(tmp_path: Path) -> None:
    """The walk itself would notice a reader that never ends."""
    with serai.Queue(tmp_path, page_size=1 << 16) as queue:
        queue.writer().append_many([b""] * (STEPS + 1))
        with pytest.raises(AssertionError, match="does not come to an end"):
            walk(queue.reader(), one_message)


# ------------------------------------------------------------------------------------------------ atheris


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(path.stem for path in Path(__file__).parent.glob("fuzz_*.py")))
def test_fuzz_target_finds_nothing_in_five_seconds(target: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed | .venv/bin/pip install atheris==3.0.0")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    alone = ["sh", "-c", '"$@"; exit $?', "sh"]  # else the memory this process once had counts as the target's
    command = [*alone, sys.executable, f"tests/fuzz/{target}.py"]
    done = subprocess.run(
        [*command, "-max_total_time=5", "-print_final_stats=1", f"-artifact_prefix={tmp_path}/", str(corpus)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    runs = next(line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line)
    print(f"\n{target}: {runs} inputs")
    assert int(runs) > 50
