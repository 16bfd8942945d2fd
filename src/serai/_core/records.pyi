from typing import Final, Protocol, final, type_check_only

from typing_extensions import Buffer

from serai._core.pages import Page

HEAD_BYTES: Final[int]
RECORD_BYTES: Final[int]
FLAG_LAST: Final[int]
FLAG_WRAPPED: Final[int]

@final
class Strip: ...

@type_check_only
class RecordSupply(Protocol):
    """What a recorder asks of the log."""

    def data(self, offset: int, need: int) -> tuple[Page, int]: ...
    def slots(self, offset: int, need: int) -> tuple[Page, int]: ...
    def records(self, offset: int, need: int) -> tuple[Page, int]: ...

@final
class Recorder:
    def __new__(
        cls,
        supply: RecordSupply,
        *,
        live: Page,
        live_at: int,
        page_bytes: int,
        data_offset: int,
        ordinal: int,
        record_offset: int,
        place: int,
        time: int,
        identity: int,
        epoch: int,
        jafka_magic: int,
        inflated_max: int,
        inflated_free: int,
        inflated_ratio: int,
        depth_max: int,
        part_bytes: int,
    ) -> Recorder: ...
    @property
    def end(self) -> int: ...
    @property
    def data_end(self) -> int: ...
    @property
    def record_end(self) -> int: ...
    @property
    def place(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def count(self) -> int: ...
    def append(
        self,
        data: Buffer,
        dress: int,
        now_ms: int,
        client: bytes = b"",
        app: bytes = b"",
        partition: int = 0,
        producer: int = 0,
        sequence: int = 0,
        transaction: int = 0,
    ) -> int: ...
    def adopt(self, payload: Buffer, dress: int, *, begin: int, length: int, time: int, place_length: int) -> None: ...
    def move(self, *, data_offset: int, ordinal: int, record_offset: int, place: int, time: int) -> None: ...
    def show(self) -> None: ...
    def ask_again(self) -> None: ...
    def let_go(self, instead: Page) -> None: ...
