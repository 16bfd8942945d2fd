# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Spans: stretches of whole entries of one dress, as reading a log gives them.

    Span      a view of the mapped page, or bytes of several small records that were gathered
    Piece     a part of one record, before it is a span
    Gather    small pieces, copied one behind the other

Left to others: which piece of which record (`trail`).
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from serai._core.entries cimport JAFKA
from serai._core.records cimport WRAPPED, Head as HeadBytes


@cython.final
@cython.freelist(64)
cdef class Span:
    """Whole entries of one dress, end to end; `lead` messages of the first one come before `ordinal`.

    `place` is that of the first byte in the Jafka dress, of the record in the others.  `wrapped`: an entry may be several
    messages; else there are as many entries as messages.
    """
    def __repr__(self):
        return (f"Span(ordinal={self.ordinal}, count={self.count}, dress={self.dress}, bytes={len(self.data)}, "
                f"lead={self.lead}, place={self.place}, time={self.time})")


cdef Span span_of(data, HeadBytes* head, int64_t ordinal, Piece* piece, int64_t count):
    cdef Span span = Span.__new__(Span)
    span.data = data
    span.dress = head.dress
    span.ordinal, span.lead, span.count = ordinal, piece.lead, count
    span.place = head.place + (piece.start if head.dress == JAFKA else 0)
    span.time, span.transaction, span.wrapped = head.time, head.transaction, head.flags & WRAPPED != 0
    return span


@cython.final
cdef class Gather:
    """Small pieces, one behind the other, until they are a span."""
    cdef int take(self, const char* p, int64_t size, HeadBytes* head, int64_t ordinal, Piece* piece) except -1:
        cdef bytes larger
        if self.size + size > self.room:
            self.room = min(<int64_t>GATHER_MAX, 4 * (self.size + size))
            larger = PyBytes_FromStringAndSize(NULL, self.room)
            if self.size:
                memcpy(PyBytes_AS_STRING(larger), PyBytes_AS_STRING(self.whole), self.size)
            self.whole = larger
        if self.size == 0:
            self.span = span_of(None, head, ordinal, piece, 0)
            self.dress = head.dress
        memcpy(PyBytes_AS_STRING(self.whole) + self.size, p, size)
        self.size += size
        self.span.count += piece.count
        self.span.time = head.time
        self.span.wrapped = self.span.wrapped or head.flags & WRAPPED != 0
        return 0

    cdef Span done(self):
        cdef Span span = self.span
        span.data = self.whole if self.size == self.room else self.whole[:self.size]
        self.size = 0
        self.room = 0
        self.whole = None
        return span


def span_of_bytes(data, int dress, int64_t ordinal, int64_t count, int64_t place):
    """A span of whole entries that lie in no page of a log."""
    cdef Span span = Span.__new__(Span)
    span.data, span.dress = data, dress
    span.ordinal, span.count, span.place = ordinal, count, place
    return span
