# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, auto_pickle=False
# cython: embedsignature=True, embedsignature.format=clinic
"""The two checksums of serai for Python and, through crc.pxd, for the other compiled modules.

    crc32c(data, value=0)   Castagnoli: iSCSI, ext4, the index24 entries of a queue
    crc32(data, value=0)    IEEE: the same numbers as zlib.crc32

`value` is the checksum of what came before, so crc32c(b, crc32c(a)) == crc32c(a + b).  `data` is anything with a
contiguous buffer.  Above 64 KiB the GIL is released: a smaller input takes less time than handing the GIL over.

LEVELS names the ways this machine can compute them, slowest first; KIND is the last of them, the one in use unless a
test has called `force`.  checksums.c holds the arithmetic and says how each level works.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from "crc.h" nogil:
    uint32_t serai_crc32c(uint32_t crc, const void* p, size_t n) noexcept
    uint32_t serai_crc32(uint32_t crc, const void* p, size_t n) noexcept
    void serai_crc_init() noexcept
    int serai_crc_levels() noexcept
    const char* serai_crc_level_name(int level) noexcept
    const char* serai_crc_kind() noexcept
    int serai_crc_force(int level) noexcept

cdef enum:
    GIL_BYTES_MAX = 65536

ctypedef uint32_t (*checksum)(uint32_t crc, const void* p, size_t n) noexcept nogil


cdef uint32_t crc32c(uint32_t crc, const void* p, size_t n) noexcept nogil:
    return serai_crc32c(crc, p, n)


cdef uint32_t crc32(uint32_t crc, const void* p, size_t n) noexcept nogil:
    return serai_crc32(crc, p, n)


cdef uint32_t over(checksum function, object data, uint32_t value) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len > GIL_BYTES_MAX:
        with nogil:
            value = function(value, view.buf, <size_t>view.len)
    else:
        value = function(value, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return value


# A Cython module has one scope for C and Python names, and cimport needs the plain ones; Python gets these under them.
def _crc32c(data, uint32_t value=0):
    """CRC-32C of data, continued from value."""
    return over(serai_crc32c, data, value)


def _crc32(data, uint32_t value=0):
    """CRC-32 of data, continued from value; equals zlib.crc32."""
    return over(serai_crc32, data, value)


def force(int level):
    """For tests: compute with LEVELS[level] from now on, in the whole process."""
    if serai_crc_force(level):
        raise ValueError(f"level must be 0 to {serai_crc_levels() - 1} on this machine (LEVELS names them), not {level}")


serai_crc_init()
globals().update(crc32c=_crc32c, crc32=_crc32)
LEVELS = tuple([serai_crc_level_name(level).decode("ascii") for level in range(serai_crc_levels())])
KIND = serai_crc_kind().decode("ascii")
