from typing import final

from typing_extensions import Buffer

@final
class Held: ...

def envelopes(
    values: Buffer,
    ends: Buffer,
    *,
    rows: Buffer | None = None,
    keys: Buffer | None = None,
    key_ends: Buffer | None = None,
    key_bits: Buffer | None = None,
    key_shift: int = 0,
    notes: Buffer | None = None,
    note_ends: Buffer | None = None,
    times: Buffer | None = None,
) -> bytes: ...
def spread(
    keys: Buffer,
    key_ends: Buffer,
    *,
    key_bits: Buffer | None = None,
    key_shift: int = 0,
    partitions: int,
    keyless: int,
) -> bytes: ...
