"""The checksums for other compiled modules: `from serai._core.crc cimport crc32c`.  Begin with 0; see crc.h."""

from libc.stdint cimport uint32_t

cdef uint32_t crc32c(uint32_t crc, const void* p, size_t n) noexcept nogil
cdef uint32_t crc32(uint32_t crc, const void* p, size_t n) noexcept nogil
