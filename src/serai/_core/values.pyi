from typing import Final

KINDS: Final[tuple[str, ...]]
