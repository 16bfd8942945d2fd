"""For the other compiled modules: JMQ attributes to house headers and back."""

from libc.stdint cimport int64_t

cdef enum:
    TEXT_MAX = 0x7FFF                    # what the length of JMQ attributes can say

cdef int64_t headers_of(const char* text, int64_t size, char* out) noexcept nogil
cdef int64_t text_of(const char* headers, int64_t size, char* out) noexcept nogil
