"""A small corpus to start from: bytes that draw sound and nearly sound things, the same ones every time."""

from __future__ import annotations

from pathlib import Path
from random import Random


def sow(arguments: list[str], *, count: int, length: int) -> None:
    """Fills an empty corpus directory that is named on the command line; one that has grown stays as it is."""
    folders = [Path(argument) for argument in arguments[1:] if not argument.startswith("-") and Path(argument).is_dir()]
    if not folders or any(folders[0].iterdir()):
        return
    for number in range(count):
        dice = Random(number)
        data = (
            dice.randbytes(length)
            if number % 2
            else bytes(dice.choice((0, 0, 1, 2, 5, 0x7F, 255)) for _ in range(length))
        )
        (folders[0] / f"seed{number:03}").write_bytes(data[: dice.randrange(1, length)])
