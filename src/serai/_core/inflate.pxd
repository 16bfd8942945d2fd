"""For the other compiled modules: the codecs by number, and compressed bytes where they lie."""

from libc.stdint cimport int64_t

cdef enum:
    PLAIN = 0
    ZIP = 1
    ZLIB = 2
    SNAPPY = 3
    GZIP = 4

cdef bytes inflated(const char* p, Py_ssize_t n, int codec, int64_t limit)
