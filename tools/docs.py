"""`make docs` writes the generated parts of the documents; with `--check` it says which have drifted.

A generated part stands between two comment lines,

    <!-- begin NAME -->  ...  <!-- end NAME -->

and NAME is a key of SOURCES below: a function that gives the text.  Also checked, because a document that
sends its reader to nowhere has drifted too: every relative link leads to a file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")


def make_targets() -> str:
    """The list that plain `make` prints."""
    rows = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    width = max(len(name) for name, _ in rows)
    return "```\n" + "".join(f"make {name:<{width}}  {text}\n" for name, text in rows) + "```\n"


def command_help() -> str:
    """What `serai --help` says."""
    command = [sys.executable, "-c", "import sys; from serai.cli import main; sys.exit(main(['--help']))"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "100"})
    return f"```\n{shown.stdout.rstrip()}\n```\n"


SOURCES: dict[str, Callable[[], str]] = {"make": make_targets, "help": command_help}


def documents() -> Iterator[Path]:
    """Every page that a reader may open."""
    yield from sorted(ROOT.glob("*.md"))
    for room in ("docs", "changes", "examples"):
        yield from sorted((ROOT / room).rglob("*.md"))


def renewed(text: str) -> str:
    """The same page with its generated parts made again."""
    return PART.sub(lambda part: part[1] + SOURCES[part["name"]]() + part[3], text)


def broken_links(page: Path, text: str) -> list[str]:
    """The page's links that lead to no file."""
    return [link for link in LINK.findall(text) if not (page.parent / link).exists()]


def main() -> int:
    """Write, or with --check compare."""
    checking = "--check" in sys.argv[1:]
    problems = []
    for page in documents():
        text = page.read_text(encoding="utf-8")
        fresh = renewed(text)
        if fresh != text and checking:
            problems.append(f"{page.relative_to(ROOT)}: a generated part has drifted; `make docs` writes it again")
        elif fresh != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
        problems += [f"{page.relative_to(ROOT)}: no file at the link {link}" for link in broken_links(page, text)]
    print("\n".join(problems) or "the documents agree with the tree")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
