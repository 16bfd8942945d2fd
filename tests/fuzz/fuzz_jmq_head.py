"""Any bytes to a JMQ server, from the first one on: recognised or not, commands or a PeerError, whole as byte by byte.

python tests/fuzz/fuzz_jmq_head.py -max_total_time=60 CORPUS
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import atheris

with atheris.instrument_imports(include=["serai.wire", "serai.doors"]):
    from serai.doors.jmq.connection import recognise

from tests.fuzz.jmq import frames, listen


def one_input(data: bytes) -> None:
    step, data = (data[0] or 1, data[1:]) if data else (1, data)
    told = {recognise(data[:size]) for size in range(min(16, len(data) + 1))}
    assert not {True, False} <= told
    whole, died = listen([data])
    parts, died_too = listen([data[at : at + step] for at in range(0, len(data), step)])
    assert whole == parts, f"{whole} whole, {parts} in pieces of {step}"
    assert died == died_too


def main() -> None:
    frames(sys.argv)
    atheris.Setup(sys.argv, atheris.instrument_func(one_input))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
