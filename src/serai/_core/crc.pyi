from typing import Final

from typing_extensions import Buffer

LEVELS: Final[tuple[str, ...]]
KIND: Final[str]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
def force(level: int) -> None: ...
