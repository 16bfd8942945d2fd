"""CRC-32C and CRC-32 one bit at a time, as the definition says: the oracle for `serai._core.crc`.

Both are reflected: the state is shifted towards its lowest bit, and the polynomials are written with x^31 lowest.
"""

CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320


def remainder(data: bytes, value: int, polynomial: int) -> int:
    state = value ^ 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (polynomial if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def crc32c(data: bytes, value: int = 0) -> int:
    return remainder(data, value, CASTAGNOLI)


def crc32(data: bytes, value: int = 0) -> int:
    return remainder(data, value, IEEE)
