from libc.stdint cimport int8_t, int16_t, int32_t, int64_t
from libc.string cimport memcpy

from serai._core.cursor cimport View
from serai._core.pages cimport Appender

# The kinds in one order; KINDS in values.pyx gives their names.
cdef enum Kind:
    BYTE, BOOLEAN, SHORT, CHAR, INT, LONG, FLOAT, DOUBLE, STRING, UNICODE, DECIMAL, BIG_INTEGER, BYTES, SIZED_BYTES

cdef enum:
    FIELDS_MAX = 64                  # of one template, of one row

cdef extern from "stdint.h":
    const int64_t INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX

cdef int kind_of(object name, bint last) except -1
cdef int64_t whole(object value, int64_t low, int64_t high, str kind) except? -1
cdef double real(object value, str kind) except? -1

cdef int put_float(Appender w, double value) except -1
cdef int put_char(Appender w, object value) except -1
cdef int put_string(Appender w, object value) except -1
cdef int put_unicode(Appender w, object value) except -1
cdef int put_buffer(Appender w, object value, bint sized) except -1
cdef int put_big(Appender w, object value) except -1
cdef int put_unscaled(Appender w, int64_t unscaled, int64_t scale, bint java) except -1
cdef int put_big_unscaled(Appender w, object unscaled, int64_t scale, bint java) except -1
cdef int put_scaled(Appender w, object unscaled, object scale, bint java) except -1
cdef int put_decimal(Appender w, object value, bint java) except -1
cdef int put_value(Appender w, int kind, object value, bint java) except -1

cdef int short_of(View m, Py_ssize_t n, str kind) except -1
cdef object take_float(View m)
cdef object take_double(View m)
cdef object take_string(View m)
cdef object take_unicode(View m)
cdef object take_raw(View m, int64_t n, str kind)
cdef object take_big(View m)
cdef object take_decimal(View m, bint java)
cdef object take_value(View m, int kind, bint java)

cdef inline int put_1(Appender w, int64_t value) except -1:
    cdef int8_t v = <int8_t>value
    return w.put(<const char*>&v, 1)

cdef inline int put_2(Appender w, int64_t value) except -1:
    cdef int16_t v = <int16_t>value
    return w.put(<const char*>&v, 2)

cdef inline int put_4(Appender w, int64_t value) except -1:
    cdef int32_t v = <int32_t>value
    return w.put(<const char*>&v, 4)

cdef inline int put_8(Appender w, int64_t value) except -1:
    return w.put(<const char*>&value, 8)

cdef inline int put_double(Appender w, double value) except -1:
    return w.put(<const char*>&value, 8)

cdef inline int put_boolean(Appender w, object value) except -1:
    cdef char v = 1 if value else 0
    return w.put(&v, 1)

cdef inline const char* take(View m, Py_ssize_t n, str kind) except NULL:
    cdef const char* p = m.at
    if n > m.end - p:
        short_of(m, n, kind)
    m.at = p + n
    return p

cdef inline int64_t take_2(View m, str kind) except? -1:
    cdef int16_t v
    memcpy(&v, take(m, 2, kind), 2)
    return v

cdef inline int64_t take_4(View m, str kind) except? -1:
    cdef int32_t v
    memcpy(&v, take(m, 4, kind), 4)
    return v

cdef inline int64_t take_8(View m, str kind) except? -1:
    cdef int64_t v
    memcpy(&v, take(m, 8, kind), 8)
    return v
