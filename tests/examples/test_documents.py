"""What the README and the guide show is run: Python from top to bottom, shell blocks with `serai` in the path.

A page that begins with `$ serai server` has that server up, on a port of its own, for all that comes after it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.kit import start

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+(?: \w+)?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERVER = re.compile(r"^\$ serai (server .*)$", re.MULTILINE)
READY = re.compile(r"ready on (\S+:\d+)")
SERAI = f"""#!/bin/sh
exec {sys.executable} -W error -c 'import sys; from serai.cli import main; sys.exit(main())' "$@"
"""


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def with_blocks(language: str) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES if blocks(page, language)]


@contextmanager
def served(page: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The environment of what a page shows: where its server is, if it has one."""
    words = SERVER.findall(page.read_text(encoding="utf-8"))
    if not words:
        yield {}
        return
    (command,) = words
    with start(*shlex.split(command), "--port", "0", cwd=folder) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline().decode()
            ready = READY.search(said)
            assert ready, said
            yield {"SERAI_SERVER": ready[1]}
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert process.returncode == 0


def run(command: list[str], folder: Path, around: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | around,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_readme_and_guide_have_code() -> None:
    assert with_blocks("python") == ["README.md", *(f"docs/guide/{name}.md" for name in ("client", "queue", "server"))]
    assert with_blocks("sh") == ["README.md", "docs/guide/commands.md", "docs/guide/server.md"]


@pytest.mark.parametrize("name", with_blocks("python"))
def test_python_of_a_page_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    code = "\n".join(blocks(ROOT / name, "python"))
    with served(ROOT / name, tmp_path) as env:
        done = run([sys.executable, "-W", "error", "-c", code], tmp_path, env)
    assert done.returncode == 0, done.stderr


def test_first_lines_of_the_readme_print_the_message(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", blocks(PAGES[0], "python")[0]], tmp_path, {})
    assert done.stdout == "[(0, 'hello', 1)]\n"


@pytest.mark.parametrize("name", with_blocks("sh"))
def test_commands_of_a_page_run_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    (tmp_path / "serai").write_text(SERAI)
    (tmp_path / "serai").chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    with served(ROOT / name, folder) as env:
        env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
        for block in blocks(ROOT / name, "sh"):
            done = run(["sh", "-ec", block], folder, env)
            assert done.returncode == 0, f"{block}\n{done.stderr}"
            assert "error" not in done.stderr


def test_spark_of_the_readme_shows_what_its_client_sent(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs Spark | make test")
    (code,) = blocks(PAGES[0], "python spark")
    with served(PAGES[0], tmp_path) as env:
        sent = run([sys.executable, "-c", "\n".join(blocks(PAGES[0], "python"))], tmp_path, env)
        assert sent.returncode == 0, sent.stderr
        begin = "from serai.spark.session import session\nspark = session(name='readme', master='local[1]')\n"
        done = run([sys.executable, "-c", begin + code], tmp_path, {})
    assert done.returncode == 0, done.stderr
    assert re.search(r"\|payments\| +0\|customer-7\|10\.25\|", done.stdout), done.stdout


def test_generated_parts_of_the_format_page_agree_with_the_code() -> None:
    done = run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], ROOT, {})
    assert done.returncode == 0, done.stdout + done.stderr
