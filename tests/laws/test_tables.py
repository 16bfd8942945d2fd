"""Tables that say which test holds which promise name tests that exist."""

from __future__ import annotations

import ast
import itertools
import re
from typing import TYPE_CHECKING

import pytest

from tests.core import test_dress
from tests.core.dressing import NAMES
from tests.laws.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::([\w.]+))?`", PAGE)))
CELLS = re.findall(r"`\[(\w+-\w+)\]`", PAGE)


def names_in(path: Path) -> set[str]:
    """Functions of a module, and methods behind the name of their class; inherited ones are not looked for."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda part: part or "all")
def test_every_test_that_a_table_names_exists(file: str, name: str) -> None:
    path = ROOT / "tests" / (file if "/" in file else f"log/{file}")
    assert path.exists(), f"docs/testing.md names {file}, which is not there"
    assert not name or name in names_in(path), f"docs/testing.md names {name}, which {file} does not have"


def test_every_cell_of_the_table_of_dresses_is_a_parameter() -> None:
    wanted = [f"{source}-{target}" for source, target in itertools.product(NAMES.values(), repeat=2)]
    assert wanted == CELLS
    for work in (
        test_dress.test_redress_gives_what_the_oracle_gives, test_dress.test_the_nth_message_stays_the_nth,
        test_dress.test_output_is_bounded,
    ):  # fmt: skip
        (mark,) = [mark for mark in vars(work)["pytestmark"] if mark.name == "parametrize"]
        assert [parameter.id for parameter in mark.args[1]] == CELLS
