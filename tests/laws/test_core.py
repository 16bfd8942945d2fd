"""The compiled core stays apart: the import linter cannot see inside `.pyx`, this law can.

- cimports come from libc, cpython, cython and the core itself
- nothing of serai but the core is imported
- no source is pasted into another
- every module has its stub, its classes cannot be pickled, and only the core subclasses them
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.laws.tree import CORE, name_of

if TYPE_CHECKING:
    from pathlib import Path

MODULES = sorted(CORE.glob("*.pyx"))
COMPILED = sorted([*MODULES, *CORE.glob("*.pxd")])
CIMPORT = re.compile(r"^\s*(?:from\s+(?P<package>[\w.]+)\s+)?cimport\s+(?P<names>[\w., ]+)", re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from\s+(?P<package>[\w.]+)\s+import|import\s+(?P<name>[\w.]+))", re.MULTILINE)
PASTED = re.compile(r"^\s*include\s+[\"']", re.MULTILINE)
CLASS = re.compile(r"(?P<before>(?:^@.*\n)*)^cdef class (?P<name>\w+)(?:\((?P<base>\w+)\))?:", re.MULTILINE)
BASES = {match["base"] for path in MODULES for match in CLASS.finditer(path.read_text(encoding="utf-8"))}
ROOMS = ("libc.", "cpython.", "cython.", "serai._core.", ".")


def is_allowed(name: str) -> bool:
    return f"{name}.".startswith(ROOMS)


def cimported(text: str) -> list[str]:
    found = []
    for match in CIMPORT.finditer(text):
        found += [match["package"]] if match["package"] else re.split(r"\s*,\s*", match["names"].strip())
    return found


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_core_cimports_only_c_python_and_itself(path: Path) -> None:
    strange = [name for name in cimported(path.read_text(encoding="utf-8")) if not is_allowed(name)]
    assert not strange, f"{name_of(path)} cimports {strange}; the core knows libc, cpython, cython and itself"


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_core_imports_nothing_of_serai_but_itself(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    names = [match["package"] or match["name"] for match in IMPORT.finditer(text)]
    strange = [name for name in names if f"{name}.".startswith("serai.") and not is_allowed(name)]
    assert not strange, f"{name_of(path)} imports {strange}; the core stands below all other rooms"


@pytest.mark.parametrize("path", COMPILED, ids=name_of)
def test_core_pastes_no_source(path: Path) -> None:
    assert not PASTED.search(path.read_text(encoding="utf-8")), f"{name_of(path)} has a textual include"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_core_module_has_a_stub(path: Path) -> None:
    assert path.with_suffix(".pyi").exists(), f"{name_of(path)} has no .pyi beside it"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_core_classes_are_final_and_not_pickled(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    open_ended = {match["name"] for match in CLASS.finditer(text) if "@cython.final" not in match["before"]}
    assert open_ended <= BASES, f"{name_of(path)}: {open_ended - BASES} lack @cython.final"
    first_lines = "\n".join(text.splitlines()[:6])
    assert "auto_pickle=False" in first_lines, f"{name_of(path)} does not set auto_pickle=False"
