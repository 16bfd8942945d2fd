"""The house in order: versions agree, every change is told, make's list is whole, the vectors are named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.laws.tree import ROOT, SOURCES, kept_files, name_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGES = sorted((ROOT / "changes").glob("*.md"))
CHANGE_CHARACTERS_MAX = 1000


def test_every_compiled_module_is_built() -> None:
    built = {module["name"] for module in PROJECT["tool"]["setuptools"]["ext-modules"]}
    assert built == {f"serai._core.{path.stem}" for path in (SOURCES / "_core").glob("*.pyx")}


def test_every_core_header_makes_its_users_compile_again() -> None:
    headers = {name_of(path) for path in (SOURCES / "_core").glob("*.[h]")}
    for module in PROJECT["tool"]["setuptools"]["ext-modules"]:
        assert set(module["depends"]) >= headers, f"{module['name']} does not depend on {headers}"


def test_base_install_is_a_handful_of_packages() -> None:
    assert len(PROJECT["project"]["dependencies"]) <= 5


@pytest.mark.parametrize("path", CHANGES, ids=name_of)
def test_change_is_short_and_numbered(path: Path) -> None:
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name), f"{path.name} is not called NNNN-words.md"
    assert len(path.read_text(encoding="utf-8")) <= CHANGE_CHARACTERS_MAX


def test_changes_have_one_order() -> None:
    numbers = [path.name[:4] for path in CHANGES]
    twice = {number for number in numbers if numbers.count(number) > 1}
    assert not twice, f"give the newer of these the next free number: {sorted(twice)}"


def test_every_make_target_is_explained() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony is not None
    assert targets == set(phony[1].split())


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in (SOURCES / "__init__.py").read_text(encoding="utf-8")


def test_architecture_is_short_and_names_every_module_of_the_log() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    for path in (SOURCES / "log").glob("[a-z]*.py"):
        assert f"`{path.stem}`" in text, f"ARCHITECTURE.md does not name log/{path.name}"


def test_links_of_documents_lead_to_files() -> None:
    dead = [
        f"{name_of(page)}: {link}"
        for page in kept_files()
        if page.suffix == ".md"
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not dead


def test_decisions_that_sources_name_are_written() -> None:
    numbers = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    files = [path for path in SOURCES.rglob("*") if path.suffix in (".py", ".pyx")]
    named = {number for path in files for number in re.findall(r"decisions/(\d{4})", path.read_text(encoding="utf-8"))}
    assert named
    assert named <= numbers
