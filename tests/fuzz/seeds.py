"""A small corpus to start from: bytes that draw sound and nearly sound things; the same ones every time."""

from __future__ import annotations

from pathlib import Path
from random import Random


def write_seeds(arguments: list[str], *, count: int, length: int) -> bool:
    """Obeys `--seeds FOLDER`; whether it was asked to."""
    if arguments[1:2] != ["--seeds"]:
        return False
    folder = Path(arguments[2])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        dice = Random(number)
        data = dice.randbytes(length) if number % 2 else bytes(dice.choice((0, 0, 1, 2, 5, 0x7F, 255)) for _ in range(length))
        (folder / f"seed{number:03}").write_bytes(data[: dice.randrange(1, length)])
    return True
