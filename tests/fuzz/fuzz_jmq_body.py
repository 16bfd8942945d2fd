"""Any bytes as the payload of any command or answer, in every dialect: a value, or Malformed; commands behind it are heard.

    python tests/fuzz/fuzz_jmq_body.py -max_total_time=60 CORPUS

The first byte chooses the form, the second the layout.  What was read can be written again, and then reads the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import atheris

with atheris.instrument_imports(include=["serai.wire", "serai.doors"]):
    from serai.doors.jmq.schema.commands import COMMANDS
    from serai.doors.jmq.schema.frame import HOUSE, REAL, SEED
    from serai.wire.layout import Form, Malformed, decode, encode

from serai.wire.buffer import flat
from tests.fuzz.jmq import payloads, served

FORMS = [SEED, REAL, HOUSE, Form("real", 1), Form("real", 2), Form("real", 3)]
LAYOUTS = [*COMMANDS.values(), *(one.reply for one in COMMANDS.values() if one.reply)]


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    form, layout, body = FORMS[data[0] % len(FORMS)], LAYOUTS[data[1] % len(LAYOUTS)], data[2:]
    served(form, getattr(layout, "code", 0), body)
    try:
        value, end = decode(layout, body, form)
    except Malformed:
        return
    assert end <= len(body)
    again = flat(encode(value, form))
    assert flat(encode(decode(layout, again, form)[0], form)) == again


def main() -> None:
    payloads(sys.argv, FORMS, LAYOUTS)
    atheris.Setup(sys.argv, atheris.instrument_func(one_input))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
