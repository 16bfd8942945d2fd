"""Any first bytes at the port: a door, a fault of the peer, or a wish for a few more, and the same verdict however they are cut.

python tests/fuzz/fuzz_sniffer.py -max_total_time=60 CORPUS
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import atheris

with atheris.instrument_imports(include=["serai.gate.sniff", "serai.doors.jmq.connection"]):
    import serai.doors.jmq.connection  # noqa: F401 - loaded by the sniffer at its first use
    from serai.gate.sniff import FIRST_BYTES_MAX, sniff
from serai.errors import PeerError


def verdict(data: bytes) -> object:
    """What the sniffer says."""
    try:
        return sniff(data)
    except PeerError:
        return "refused"


def one_input(data: bytes) -> None:
    """The verdict of the whole is the first verdict of its beginnings."""
    said = [verdict(data[:cut]) for cut in range(min(len(data), 2 * FIRST_BYTES_MAX) + 1)]
    decided = [each for each in said if each is not None]
    assert len(set(decided)) <= 1, said
    assert decided or len(data) < FIRST_BYTES_MAX, said


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
