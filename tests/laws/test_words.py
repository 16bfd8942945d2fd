"""Words that belong to a machine or a place of work, not to the project, are in none of its files.

The words are spelled in two halves, so that this file does not find itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.laws.tree import kept_files, name_of

if TYPE_CHECKING:
    from pathlib import Path

# Where files lie; who serves packages (clients know their own); who works here, and how; promises.
WORDS = r"""
    /wo~rk/  /ro~ot/  /ho~me/\w  /tmp~/plan  \.lib~rary
    py~pi\.org  python~hosted  deb\.deb~ian  crat~es\.io  npm~js\.org  proxy\.gol~ang  mav~en\.org
    (index-url|regis~try|resol~ved)["']?\s*[=:]\s*["']?https?:
    work~place  \bC~EO\b  sub~agent  Cla~ude  Anth~ropic  language\smod~el  \bLL~M\b
    \bTO~DO\b  \bFIX~ME\b  \bXX~X\b
"""
FOUND = re.compile("|".join(WORDS.replace("~", "").split()))


def read(path: Path) -> str:
    """A file's text; what is not text has no words."""
    data = path.read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def test_files_hold_only_the_projects_words() -> None:
    found = [
        f"{name_of(path)} line {number}: {match[0]}"
        for path in kept_files()
        for number, line in enumerate(read(path).splitlines(), 1)
        if (match := FOUND.search(line))
    ]
    assert not found, "words that do not belong to the project:\n" + "\n".join(found)


def test_file_names_hold_only_the_projects_words() -> None:
    assert not [name_of(path) for path in kept_files() if FOUND.search(name_of(path))]
