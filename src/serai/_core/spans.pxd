"""For the trail: spans, and how small ones are gathered."""

from libc.stdint cimport int64_t, uint64_t

from serai._core.records cimport Head as HeadBytes

cdef enum:
    GATHER_BELOW = 4096                  # smaller pieces are copied together
    GATHER_MAX = 65536                   # up to so many bytes

cdef struct Piece:                       # a part of one record
    int64_t start                        # bytes behind the head
    int64_t stop
    int64_t lead
    int64_t count

cdef class Span:
    cdef readonly object data
    cdef readonly int dress
    cdef readonly int64_t ordinal, lead, count, place, time
    cdef readonly uint64_t transaction
    cdef readonly bint wrapped

cdef class Gather:
    cdef bytes whole
    cdef int64_t size, room
    cdef int dress
    cdef Span span

    cdef int take(self, const char* p, int64_t size, HeadBytes* head, int64_t ordinal, Piece* piece) except -1
    cdef Span done(self)

cdef Span span_of(data, HeadBytes* head, int64_t ordinal, Piece* piece, int64_t count)
