"""The tree as the laws see it: the root, the files git would keep, the sources."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "serai"
CORE = SOURCES / "_core"
NOT_OURS = {".git", ".venv", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache", "__pycache__", "build"}


def kept_files() -> list[Path]:
    """The files that are tracked or would be; without git, those of an unpacked source archive."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        found = {ROOT / name for name in listed.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        found = {path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)}
    return sorted(path for path in found if path.is_file() and path.suffix != ".so")


def python_files() -> list[Path]:
    """All Python sources of the project, tests and tools too."""
    return [path for path in kept_files() if path.suffix == ".py"]


def name_of(path: Path) -> str:
    """A file's name as a reader would say it."""
    return str(path.relative_to(ROOT))
