"""What starts quickly: `import serai` and `serai --help` load nothing they do not need.

Each question is asked of a fresh interpreter.  `-X importtime` would show who loads a module that is named here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from tests.laws.tree import ROOT

HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "decimal", "duckdb", "http", "inspect", "logging", "multiprocessing",
    "numpy", "pandas", "polars", "pyarrow", "pyspark", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "unittest",
}  # fmt: skip
HELP_SECONDS_MAX = 0.25
HELP_MODULES_MAX = 120  # a bare interpreter has about 50 here, argparse and what it needs 25
HELP = "from serai.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"


def fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(code: str) -> set[str]:
    names = fresh(f"{code}\nimport sys\nnames = list(sys.modules)\nimport json\nprint()\nprint(json.dumps(names))")
    return set(json.loads(names.splitlines()[-1]))


def test_import_serai_loads_nothing_heavy() -> None:
    loaded = modules_after("import serai") - modules_after("")
    assert not loaded & HEAVY, f"import serai loads {sorted(loaded & HEAVY)}"


def test_embedded_queue_loads_neither_asyncio_nor_arrow() -> None:
    loaded = modules_after("import serai; serai.Queue, serai.MultiQueue")
    assert not loaded & {"asyncio", "multiprocessing", "numpy", "polars", "pyarrow", "pyspark", "ssl"}


def test_help_loads_few_modules() -> None:
    loaded = modules_after(HELP)
    assert not loaded & {"asyncio", "numpy", "polars", "pyarrow", "pyspark", "ssl"}
    assert len(loaded) <= HELP_MODULES_MAX, f"serai --help loads {len(loaded)} modules: {sorted(loaded)}"


def test_help_starts_in_a_quarter_of_a_second() -> None:
    best = HELP_SECONDS_MAX + 1
    for _ in range(15):  # five are enough on an idle machine; a busy one gets more tries, not more time
        started = time.perf_counter()
        fresh(HELP)
        best = min(best, time.perf_counter() - started)
        if best < HELP_SECONDS_MAX:
            return
    raise AssertionError(f"serai --help takes {best:.2f} s at best, more than {HELP_SECONDS_MAX}")
