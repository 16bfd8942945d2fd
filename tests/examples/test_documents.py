"""What the README and the guide show is run: Python from top to bottom, shell blocks with `serai` in the path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERAI = f"""#!/bin/sh
exec {sys.executable} -W error -c 'import sys; from serai.cli import main; sys.exit(main())' "$@"
"""


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def with_blocks(language: str) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES if blocks(page, language)]


def run(command: list[str], folder: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
    return subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def test_readme_and_guide_have_code() -> None:
    assert with_blocks("python") == ["README.md", "docs/guide/queue.md"]
    assert with_blocks("sh") == ["README.md", "docs/guide/commands.md"]


@pytest.mark.parametrize("name", with_blocks("python"))
def test_python_of_a_page_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    code = "\n".join(blocks(ROOT / name, "python"))
    done = run([sys.executable, "-W", "error", "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_first_lines_of_the_readme_print_the_message(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", blocks(PAGES[0], "python")[0]], tmp_path)
    assert done.stdout == "[(0, 'hello', 1)]\n"


@pytest.mark.parametrize("name", with_blocks("sh"))
def test_commands_of_a_page_run_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    (tmp_path / "serai").write_text(SERAI)
    (tmp_path / "serai").chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    for block in blocks(ROOT / name, "sh"):
        done = run(["sh", "-ec", block], folder, tmp_path)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        assert "error" not in done.stderr


def test_generated_parts_of_the_format_page_agree_with_the_code() -> None:
    done = run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
