"""The compiled checksums against zlib and a bitwise oracle, at every level this machine has."""

import array
import ctypes
import mmap
import random
import sys
import threading
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai._core import crc
from tests.oracle import crc as oracle

BEST = len(crc.LEVELS) - 1
NOISE = random.Random(20).randbytes(70_000)
# The first and the last byte count of each way through checksums.c, and what lies around them.
EDGES = [63, 64, 65, 80, 81, 128, 271, 272, 273, 288, 399, 400, 512, 576, 577, 640, 641, 832, 833, 1024, 1025, 4096]

# RFC 3720 B.4 for CRC-32C; "123456789" is the check value of the catalogues.
VECTORS_32C = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]
VECTORS_32 = [
    (b"", 0),
    (b"123456789", 0xCBF43926),
    (b"The quick brown fox jumps over the lazy dog", 0x414FA339),
]


@pytest.fixture(params=range(BEST + 1), ids=crc.LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[int]:
    chosen: int = request.param
    crc.force(chosen)
    yield chosen
    crc.force(BEST)


@pytest.mark.parametrize(("data", "expected"), VECTORS_32C)
def test_known_values_of_crc32c(level: int, data: bytes, expected: int) -> None:
    assert crc.crc32c(data) == expected == oracle.crc32c(data)


@pytest.mark.parametrize(("data", "expected"), VECTORS_32)
def test_known_values_of_crc32(level: int, data: bytes, expected: int) -> None:
    assert crc.crc32(data) == expected == oracle.crc32(data)


def test_every_length_to_300_gives_what_the_definition_says(level: int) -> None:
    for value in (0, 0xFFFFFFFF, 0x12345678):
        expected = value
        for size in range(301):
            assert crc.crc32c(NOISE[:size], value) == expected, size
            assert crc.crc32(NOISE[:size], value) == zlib.crc32(NOISE[:size], value), size
            expected = oracle.crc32c(NOISE[size : size + 1], expected)


@pytest.mark.parametrize("size", EDGES)
def test_lengths_where_the_method_changes(level: int, size: int) -> None:
    data = NOISE[7 : 7 + size]
    assert crc.crc32c(data, 0x9ABCDEF0) == oracle.crc32c(data, 0x9ABCDEF0)
    assert crc.crc32(data, 0x9ABCDEF0) == zlib.crc32(data, 0x9ABCDEF0)


def test_every_alignment_gives_the_same(level: int) -> None:
    for size in (5, 20, 100, 116, 400, 1500):
        data = NOISE[:size]
        sum_c, sum_i = oracle.crc32c(data), zlib.crc32(data)
        for shift in range(65):
            view = memoryview(bytes(shift) + data)[shift:]
            assert (crc.crc32c(view), crc.crc32(view)) == (sum_c, sum_i), (size, shift)


def test_a_checksum_continues_at_every_cut(level: int) -> None:
    for size in (1, 7, 16, 100, 116, 300, 1030):
        data = NOISE[:size]
        sum_c, sum_i = crc.crc32c(data), crc.crc32(data)
        for cut in range(size + 1):
            assert crc.crc32c(data[cut:], crc.crc32c(data[:cut])) == sum_c, (size, cut)
            assert crc.crc32(data[cut:], crc.crc32(data[:cut])) == sum_i, (size, cut)


def test_random_long_inputs_agree_between_levels_and_with_zlib(level: int) -> None:
    chance = random.Random(level)
    for _ in range(300):
        first, last = sorted((chance.randrange(len(NOISE)), chance.randrange(len(NOISE))))
        data, value = NOISE[first:last], chance.randrange(1 << 32)
        assert crc.crc32(data, value) == zlib.crc32(data, value)
        cut = chance.randrange(len(data) + 1)
        crc.force(0)
        expected = crc.crc32c(data[cut:], crc.crc32c(data[:cut], value))
        crc.force(level)
        assert crc.crc32c(data, value) == expected


def test_the_whole_noise_gives_what_the_definition_says(level: int) -> None:
    assert crc.crc32c(NOISE) == WHOLE
    assert crc.crc32(NOISE) == zlib.crc32(NOISE)


WHOLE = oracle.crc32c(NOISE)


@given(data=st.binary(max_size=700), value=st.integers(0, 0xFFFFFFFF))
def test_all_levels_agree_on_any_bytes(data: bytes, value: int) -> None:
    sum_c, sum_i = oracle.crc32c(data, value), zlib.crc32(data, value)
    try:
        for each in range(BEST + 1):
            crc.force(each)
            assert (crc.crc32c(data, value), crc.crc32(data, value)) == (sum_c, sum_i), crc.LEVELS[each]
    finally:
        crc.force(BEST)


def test_no_byte_outside_the_input_is_read(level: int) -> None:
    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    room = mmap.mmap(-1, 3 * page)  # the outer pages are closed: touching one ends the test run
    anchor = ctypes.c_char.from_buffer(room)
    start = ctypes.addressof(anchor)
    room[page : 2 * page] = NOISE[:page]
    for closed in (start, start + 2 * page):
        assert libc.mprotect(ctypes.c_void_p(closed), ctypes.c_size_t(page), 0) == 0
    with memoryview(room) as view:
        for size in [*range(300), *EDGES]:
            assert crc.crc32(view[page : page + size]) == zlib.crc32(NOISE[:size])
            assert crc.crc32(view[2 * page - size : 2 * page]) == zlib.crc32(NOISE[page - size : page])
            front, back = crc.crc32c(view[page : page + size]), crc.crc32c(view[2 * page - size : 2 * page])
            assert (front, back) == (crc.crc32c(NOISE[:size]), crc.crc32c(NOISE[page - size : page]))
    del anchor
    room.close()


def test_any_contiguous_buffer_is_taken() -> None:
    numbers = array.array("i", range(50))
    expected = zlib.crc32(numbers.tobytes())
    for data in (numbers, memoryview(numbers), bytearray(numbers.tobytes())):
        assert crc.crc32(data) == expected
    with pytest.raises(BufferError, match="contiguous"):
        crc.crc32c(memoryview(NOISE)[::2])


def test_a_value_that_is_no_checksum_is_refused() -> None:
    for value in (-1, 1 << 32):
        with pytest.raises(OverflowError, match="uint32"):
            crc.crc32c(b"", value)


def test_another_thread_runs_while_a_large_input_is_summed() -> None:
    data, ran, gate = bytes(1 << 25), threading.Event(), threading.Lock()
    gate.acquire()

    def pass_gate() -> None:
        with gate:
            ran.set()

    thread = threading.Thread(target=pass_gate)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # from here on only a released GIL lets the thread run
    try:
        gate.release()
        runs = next((run for run in range(1000) if crc.crc32c(data) >= 0 and ran.is_set()), None)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert runs is not None


def test_kind_names_the_fastest_level() -> None:
    assert crc.LEVELS[0] == "portable"
    assert crc.LEVELS[-1] == crc.KIND


def test_a_level_the_machine_lacks_is_refused_by_name_of_those_it_has() -> None:
    for absent in (-1, BEST + 1):
        with pytest.raises(ValueError, match=f"level must be 0 to {BEST} .*not {absent}"):
            crc.force(absent)


def test_other_compiled_modules_find_both_functions() -> None:
    assert {"crc32c", "crc32"} <= set(getattr(crc, "__pyx_capi__"))  # noqa: B009  (no stub declares it)
