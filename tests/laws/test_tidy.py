"""Short functions, short files, and a first sentence in every module.

The compiled sources have no parser at hand, so theirs are measured by indentation: a function begins at a
`def`, `cdef` or `cpdef` line whose head ends with a colon, and ends before the next line that is not
deeper and not a closing bracket.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.laws.tree import SOURCES, name_of, python_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 600
HEAD = re.compile(r"^(?P<indent>\s*)(?:def|cdef|cpdef)\s+(?!(?:class|enum|struct|extern)\b)[^=#]*?(?P<name>\w+)\s*\(")

PURE = sorted(SOURCES.rglob("*.py"))
COMPILED = sorted(SOURCES.rglob("*.pyx"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of every function in a Python file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def compiled_functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and lines of every function in a Cython file."""
    lines = text.splitlines()
    for first, line in enumerate(lines):
        head = HEAD.match(line)
        if head is None:
            continue
        last_of_head = next(at for at in range(first, len(lines)) if is_head_end(lines, first, at))
        if lines[last_of_head].split("#")[0].rstrip().endswith(":"):
            yield head["name"], end_of_body(lines, last_of_head, len(head["indent"])) - first


def is_head_end(lines: list[str], first: int, at: int) -> bool:
    """True at the line where the brackets opened since `first` are all closed."""
    head = " ".join(line.split("#")[0] for line in lines[first : at + 1])
    return head.count("(") == head.count(")")


def end_of_body(lines: list[str], head: int, indent: int) -> int:
    """The number of the line behind a function's last line that is not blank."""
    end = head + 1
    for at in range(head + 1, len(lines)):
        line = lines[at]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip()) <= indent:
            break
        end = at + 1
    return end


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    long = [f"{name}: {lines} lines" for name, lines in functions(path) if lines > FUNCTION_LINES_MAX]
    assert not long, f"{name_of(path)} has functions of more than {FUNCTION_LINES_MAX} lines: {long}"


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_compiled_functions_are_short(path: Path) -> None:
    measured = list(compiled_functions(path.read_text(encoding="utf-8")))
    long = [f"{name}: {lines} lines" for name, lines in measured if lines > FUNCTION_LINES_MAX]
    assert measured, f"no function was found in {name_of(path)}; the law cannot read it"
    assert not long, f"{name_of(path)} has functions of more than {FUNCTION_LINES_MAX} lines: {long}"


@pytest.mark.parametrize("path", [*PURE, *COMPILED], ids=name_of)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES_MAX, f"{name_of(path)} has {lines} lines, more than {FILE_LINES_MAX}: it holds two ideas"


@pytest.mark.parametrize("path", python_files(), ids=name_of)
def test_every_module_opens_with_its_idea(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{name_of(path)} does not open with a docstring"


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_every_compiled_module_opens_with_its_idea(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if line.strip() and not line.startswith("#"))
    assert first.startswith(('"""', 'r"""')), f"{name_of(path)} does not open with a docstring"


def test_compiled_functions_are_measured_by_indentation() -> None:
    method = "  cdef int f(self,\n      int a) except -1:\n    x = (1,\n      2)\n\n    return a\n"
    assert list(compiled_functions(f"cdef class A:\n{method}\n  cdef int y = g(1)\n")) == [("f", 6)]
