from libc.stdint cimport int64_t

from serai._core.pages cimport Appender, View

cdef int64_t whole(object value, int64_t low, int64_t high, str kind) except? -1
cdef int put_value(Appender w, int kind, object value) except -1
cdef object take_value(View m, int kind, bint java)
cdef int put_unscaled(Appender w, int64_t unscaled, int64_t scale, bint java) except -1
cdef int put_big(Appender w, object value) except -1
cdef int put_big_unscaled(Appender w, object unscaled, int64_t scale, bint java) except -1
cdef int put_unicode(Appender w, object value) except -1
cdef int kind_of(object name, bint last) except -1

# The kinds in one order; KINDS in pack.pyx gives their names.
cdef enum Kind:
    BYTE, BOOLEAN, SHORT, CHAR, INT, LONG, FLOAT, DOUBLE, STRING, UNICODE, DECIMAL, BIG_INTEGER, BYTES, SIZED_BYTES

cdef class Writer(Appender):
    cdef readonly bint java
    cdef object _lock
    cdef object __weakref__
    cdef int fit(self) except -1

cdef class Message(View):
    cdef readonly bint java
