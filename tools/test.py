"""`make test`: pytest over the whole suite.

The table of what was skipped, and the line that would install it, is printed by `tests/conftest.py`, so it
is there however pytest is started.  `--fast` leaves out the tests marked slow and those on Spark, `--slow` runs only those;
all other arguments go to pytest as they are.  Three processes share the work (`tests/sharing.py` says how), as much of it is
waiting; `-n 0` is one.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become pytest, so that its closing line is the last one and signals reach it."""
    arguments = ["-n", "3", *sys.argv[1:]]
    chosen = {"--fast": ["-m", "not slow"], "--slow": ["-m", "slow"]}
    translated = [word for argument in arguments for word in chosen.get(argument, [argument])]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *translated])


if __name__ == "__main__":
    main()
