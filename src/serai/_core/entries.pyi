from typing import Final

HOUSE: Final[int]
SEED: Final[int]
REAL: Final[int]
JAFKA: Final[int]
