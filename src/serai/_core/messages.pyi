from typing import NamedTuple, final

from typing_extensions import Buffer

class WrongSum(ValueError): ...

class Cut(NamedTuple):
    start: int
    stop: int
    entries: int
    messages: int
    lead: int

@final
class Census:
    @property
    def messages(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def jafka_bytes(self) -> int: ...
    @property
    def largest(self) -> int: ...
    @property
    def wrapped(self) -> bool: ...
    @property
    def exact(self) -> bool: ...
    @property
    def starts(self) -> bytes: ...
    @property
    def counts(self) -> bytes: ...

def census(
    data: Buffer,
    dress: int,
    *,
    inflated_max: int,
    depth_max: int,
    jafka_magic: int = 1,
    start: int = 0,
    entries_max: int = -1,
) -> Census: ...
def layout(data: Buffer, dress: int, *, inflated_max: int, depth_max: int) -> tuple[bytes, bytes]: ...
def cut(
    data: Buffer,
    dress: int,
    *,
    skip: int,
    bytes_max: int,
    messages_max: int,
    inflated_max: int,
    depth_max: int,
) -> Cut: ...
