"""Any bytes as the files of a queue directory: opened, read in every way, verified, repaired, written to.

    python tests/fuzz/fuzz_directory.py -max_total_time=60 CORPUS

A corpus directory that is empty gets a few inputs to start from.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # it may be started as a file

import atheris

with atheris.instrument_imports(include=["serai"]):
    import serai.log.verify

from tests.fuzz.exercise import Bytes, draw, exercise
from tests.fuzz.seeds import sow

assert serai.log.verify


def one_input(data: bytes) -> None:
    exercise(draw(Bytes(data)))


def main() -> None:
    logging.disable()
    os.environ["SERAI_PAGE_SIZE"] = "256"
    sow(sys.argv, count=60, length=3000)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
