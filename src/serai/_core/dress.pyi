from typing_extensions import Buffer

def redress(
    data: Buffer,
    source: int,
    target: int,
    *,
    inflated_max: int,
    depth_max: int,
    bytes_max: int,
    jafka_magic: int = 1,
    partition: int = 0,
    index: int = 0,
    term: int = 0,
    store_time: int = 0,
    client: bytes = b"",
    app: bytes = b"",
) -> bytes: ...
def patch(
    data: Buffer,
    dress: int,
    *,
    partition: int,
    index: int,
    term: int,
    store_time: int,
    client: bytes = b"",
) -> int: ...
