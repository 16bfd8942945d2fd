# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Typed values as bytes: how each kind of Quick-Queue stands in a message.

    byte boolean            1 byte; a boolean is true only for exactly 1
    short char              2 bytes; a char is one UTF-16 code unit
    int float / long double 4 / 8 bytes
    string                  ASCII, then 0x00
    unicode                 UTF-16 code units, then two zero bytes
    decimal                 seed: 0, int8 scale, int8 length, bytes | 1, int32 scale, int32 length, bytes
                            java: 1, int8 scale, int8 length, bytes | 2, int32 scale, bytes to the message end
    big_integer             int32 length, bytes
    bytes / sized_bytes     raw / int32 length, raw

Numbers are little endian, unaligned, without tags.  Unscaled values and big integers are minimal
big-endian two's complement.  Every `put_*` writes through `Appender.put`, so a value may start and end
on any byte of any page; every `take_*` stops at the message end.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport (PyUnicode_1BYTE_DATA, PyUnicode_DATA, PyUnicode_DecodeASCII, PyUnicode_DecodeUTF16,
                              PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ_CHAR)
from cpython.object cimport PyObject
from libc.math cimport isinf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memchr, memcpy


from serai._core.cursor cimport View
from serai._core.pages cimport Appender

cdef extern from "Python.h":
    int PyUnicode_IS_ASCII(object text)
    int64_t PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    object PyUnicode_FromOrdinal(int code)

KINDS = ("byte", "boolean", "short", "char", "int", "long", "float", "double", "string", "unicode", "decimal",
         "big_integer", "bytes", "sized_bytes")
cdef dict KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
cdef object Decimal = None
cdef enum:
    DECIMAL_MAX = 65536              # bytes of an unscaled value
    SHORT_MAX = 127                  # scale and length of the short decimal form are below 128


cdef int kind_of(object name, bint last) except -1:
    number = KIND_NUMBERS.get(name)
    if number is None:
        raise ValueError(f"unknown kind {name!r}; the kinds are {', '.join(KINDS)}")
    if number == BYTES and not last:
        raise ValueError("'bytes' has no length of its own, so it can only be the last field; use 'sized_bytes'")
    return number


cdef int64_t whole(object value, int64_t low, int64_t high, str kind) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if type(value) is not int and not hasattr(type(value), "__index__"):
        raise TypeError(f"pack_{kind} takes an int, not {type(value).__name__}")
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < low or number > high:
        raise OverflowError(f"pack_{kind} takes {low}..{high}, not {value}")
    return number


cdef double real(object value, str kind) except? -1:
    if type(value) is not float and not hasattr(type(value), "__float__") and not hasattr(type(value), "__index__"):
        raise TypeError(f"pack_{kind} takes a float, not {type(value).__name__}")
    return value


# ---- values into a message -------------------------------------------------------------------------

cdef int put_float(Appender w, double value) except -1:
    cdef float v = <float>value
    if isinf(v) and not isinf(value):
        raise OverflowError(f"pack_float takes up to 3.4e38, not {value}; pack_double takes it")
    return w.put(<const char*>&v, 4)

cdef int put_char(Appender w, object value) except -1:
    cdef int64_t unit
    if type(value) is str:
        if len(value) != 1:
            raise ValueError(f"pack_char takes one character or a code unit, not {value!r}")
        unit = PyUnicode_READ_CHAR(value, 0)
        if unit > 0xFFFF:
            raise ValueError(f"{value!r} is two UTF-16 code units; pack_unicode takes it, pack_char does not")
    else:
        unit = whole(value, 0, 0xFFFF, "char")
    return put_2(w, unit)

cdef int put_string(Appender w, object value) except -1:
    if type(value) is not str:
        raise TypeError(f"pack_string takes a str, not {type(value).__name__}")
    if not PyUnicode_IS_ASCII(value):
        raise ValueError(f"pack_string takes ASCII only and {value!r} has more; pack_unicode takes all characters")
    return w.put(<const char*>PyUnicode_1BYTE_DATA(value), PyUnicode_GET_LENGTH(value) + 1)

cdef int put_unicode(Appender w, object value) except -1:
    cdef Py_ssize_t i, n
    cdef bytes units
    if type(value) is not str:
        raise TypeError(f"pack_unicode takes a str, not {type(value).__name__}")
    n = PyUnicode_GET_LENGTH(value)
    if PyUnicode_KIND(value) == 2:
        w.put(<const char*>PyUnicode_DATA(value), 2 * n)
    elif PyUnicode_KIND(value) == 1:
        for i in range(n):
            put_2(w, PyUnicode_READ_CHAR(value, i))
    else:
        units = value.encode("utf-16-le", "surrogatepass")
        w.put(PyBytes_AS_STRING(units), PyBytes_GET_SIZE(units))
    return put_2(w, 0)

cdef int put_buffer(Appender w, object value, bint sized) except -1:
    cdef Py_buffer view
    if type(value) is bytes:
        if sized:
            put_4(w, whole(PyBytes_GET_SIZE(value), 0, INT32_MAX, "sized_bytes"))
        return w.put(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if not PyObject_CheckBuffer(value):
        raise TypeError(f"pack_{'sized_bytes' if sized else 'bytes'} takes bytes or another buffer, not {type(value).__name__}")
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        if sized:
            put_4(w, whole(view.len, 0, INT32_MAX, "sized_bytes"))
        return w.put(<const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)

cdef object decimal_class():
    """decimal.Decimal, loaded when the first one comes by."""
    global Decimal, inside_known
    if Decimal is None:
        from decimal import Decimal as found
        inside_known = inside_agrees(found)
        Decimal = found
    return Decimal

# Where CPython's decimal keeps its number (docs/decisions/0003-decimals.md): the sign, exponent and first
# word of up to 19 digits can be read in 2 ns, str() takes 30.  It is a private layout, so it is believed
# only when the object has the size it had and a row of samples reads as as_tuple() says; else str() is read.
cdef struct Inside:
    uint8_t flags                    # 1 negative, 2 infinite, 4 and 8 not a number
    Py_ssize_t exponent, digits, words, room
    uint64_t* word

cdef bint inside_known = False

cdef inline Inside* inside(object value) noexcept:
    return <Inside*>(<char*><PyObject*>value + sizeof(PyObject) + sizeof(Py_hash_t))

cdef bint inside_agrees(object found):
    cdef Inside* body
    if found.__basicsize__ != sizeof(PyObject) + sizeof(Py_hash_t) + sizeof(Inside) + 4 * sizeof(uint64_t):
        return False
    for text in ("0", "-1", "123.45", "-9.99E+5", "1E-30", "-0.000001", "999999999999999999", "NaN", "-Infinity"):
        value = found(text)
        body = inside(value)
        sign, digits, exponent = value.as_tuple()
        if (body.flags & 14 != 0) is not (exponent in ("n", "F")) or body.flags & 1 != sign:
            return False
        if body.flags & 14 == 0 and (body.words != 1 or body.exponent != exponent
                                     or body.word[0] != int("".join(map(str, digits)))):
            return False
    return True

cdef bytes minimal(object value):
    """Minimal big-endian two's complement, at least one byte: the form of Java's BigInteger."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)

cdef int put_big(Appender w, object value) except -1:
    cdef bytes raw
    if not isinstance(value, int):
        raise TypeError(f"pack_big_integer takes an int, not {type(value).__name__}")
    raw = minimal(value)
    put_4(w, len(raw))
    return w.put(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

cdef int put_decimal_head(Appender w, int64_t scale, Py_ssize_t n, bint java) except -1:
    if scale < INT32_MIN or scale > INT32_MAX:
        raise OverflowError(f"the scale of a decimal is an int32; {scale} is not")
    if scale <= SHORT_MAX and n <= SHORT_MAX and scale >= -128:
        put_1(w, 1 if java else 0)
        put_1(w, scale)
        return put_1(w, n)
    put_1(w, 2 if java else 1)
    put_4(w, scale)
    return 0 if java else put_4(w, n)

cdef int put_unscaled(Appender w, int64_t unscaled, int64_t scale, bint java) except -1:
    """The short form of nearly every decimal: its bytes are built on the stack."""
    cdef char[16] raw
    cdef int64_t rest = unscaled
    cdef int i = 15
    cdef char* at = w.at
    if 0 <= scale <= SHORT_MAX and w.stop - at >= 11:          # straight into the page
        i = 1
        while not -128 <= rest <= 127:
            rest >>= 8
            i += 1
        at[0] = 1 if java else 0
        at[1] = <char>scale
        at[2] = <char>i
        w.at = at + 3 + i
        at += 2
        rest = unscaled
        while i > 0:
            at[i] = <char>(rest & 0xFF)
            rest >>= 8
            i -= 1
        return 0
    raw[i] = <char>(rest & 0xFF)
    while not -128 <= rest <= 127:
        rest >>= 8
        i -= 1
        raw[i] = <char>(rest & 0xFF)
    if 0 <= scale <= SHORT_MAX:
        raw[i - 1] = <char>(16 - i)
        raw[i - 2] = <char>scale
        raw[i - 3] = 1 if java else 0
        return w.put(raw + i - 3, 19 - i)
    put_decimal_head(w, scale, 16 - i, java)
    return w.put(raw + i, 16 - i)

cdef int check_decimal(int64_t n) except -1:
    """Turning digits into a number takes time that grows with their square: 64 KiB take half a second."""
    if n > DECIMAL_MAX:
        raise ValueError(f"a decimal has at most {DECIMAL_MAX} bytes of digits, this one has {n}")
    return 0

cdef int put_big_unscaled(Appender w, object unscaled, int64_t scale, bint java) except -1:
    cdef bytes raw = minimal(unscaled)
    check_decimal(len(raw))
    put_decimal_head(w, scale, len(raw), java)
    return w.put(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

cdef int put_scaled(Appender w, object unscaled, object scale, bint java) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(unscaled, &overflow)
    cdef int64_t places = whole(scale, INT32_MIN, INT32_MAX, "decimal (its scale)")
    if overflow:
        return put_big_unscaled(w, unscaled, places, java)
    return put_unscaled(w, number, places, java)

cdef int put_decimal(Appender w, object value, bint java) except -1:
    """From inside the Decimal, else out of str(value), which is four times cheaper than as_tuple()."""
    cdef str text
    cdef const char* p
    cdef Py_ssize_t i, n
    cdef int64_t unscaled = 0, scale = 0
    cdef int digits = 0
    cdef bint negative, point = False
    cdef Inside* body
    if type(value) is Decimal and inside_known:
        body = inside(value)
        if body.flags & 14 == 0 and body.words == 1 and body.word[0] <= <uint64_t>INT64_MAX:
            unscaled = <int64_t>body.word[0]
            return put_unscaled(w, -unscaled if body.flags & 1 else unscaled, -body.exponent, java)
    if type(value) is tuple and len(value) == 2:
        return put_scaled(w, value[0], value[1], java)
    if type(value) is int:
        return put_scaled(w, value, 0, java)
    if not isinstance(value, decimal_class()):
        raise TypeError(f"pack_decimal takes a Decimal, an int or (unscaled, scale), not {type(value).__name__}")
    text = str(value)
    p = <const char*>PyUnicode_1BYTE_DATA(text)
    n = PyUnicode_GET_LENGTH(text)
    negative = n > 0 and p[0] == c"-"
    i = 1 if negative else 0
    while i < n and digits < 18:
        if c"0" <= p[i] <= c"9":
            unscaled = unscaled * 10 + (p[i] - c"0")
            digits += unscaled != 0
            scale += point
        elif p[i] == c".":
            point = True
        else:
            break
        i += 1
    if i == n and digits <= 18:
        return put_unscaled(w, -unscaled if negative else unscaled, scale, java)
    return put_decimal_parts(w, value, java)

cdef int put_decimal_parts(Appender w, object value, bint java) except -1:
    """The decimals that str() writes with an exponent or with more digits than an int64 holds."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"pack_decimal takes a finite number, not {value}")
    unscaled = int(decimal_class()((0, digits, 0)))
    return put_scaled(w, -unscaled if sign else unscaled, -exponent, java)

cdef int put_value(Appender w, int kind, object value, bint java) except -1:
    if kind == INT:
        return put_4(w, whole(value, INT32_MIN, INT32_MAX, "int"))
    if kind == LONG:
        return put_8(w, whole(value, INT64_MIN, INT64_MAX, "long"))
    if kind == DECIMAL:
        return put_decimal(w, value, java)
    if kind == STRING:
        return put_string(w, value)
    if kind == BOOLEAN:
        return put_boolean(w, value)
    if kind == DOUBLE:
        return put_double(w, real(value, "double"))
    if kind == FLOAT:
        return put_float(w, real(value, "float"))
    if kind == BYTE:
        return put_1(w, whole(value, -128, 127, "byte"))
    if kind == SHORT:
        return put_2(w, whole(value, -32768, 32767, "short"))
    if kind == CHAR:
        return put_char(w, value)
    if kind == UNICODE:
        return put_unicode(w, value)
    if kind == BIG_INTEGER:
        return put_big(w, value)
    return put_buffer(w, value, kind == SIZED_BYTES)


# ---- values out of a message -----------------------------------------------------------------------

cdef int short_of(View m, Py_ssize_t n, str kind) except -1:
    raise EOFError(f"unpack_{kind} needs {n} bytes at position {m.at - m.base} of the message at offset "
                   f"{m.offset}, which has {m.size} bytes: {m.end - m.at} are left")

cdef object take_float(View m):
    cdef float v
    memcpy(&v, take(m, 4, "float"), 4)
    return <double>v

cdef object take_double(View m):
    cdef double v
    memcpy(&v, take(m, 8, "double"), 8)
    return v

cdef object take_string(View m):
    cdef const char* p = m.at
    cdef const char* end = <const char*>memchr(p, 0, m.end - p) if m.end > p else NULL
    if end == NULL:
        raise EOFError(f"unpack_string found no closing zero byte from position {p - m.base} of the message at "
                       f"offset {m.offset}, which has {m.size} bytes")
    m.at = end + 1
    try:
        return PyUnicode_DecodeASCII(p, end - p, NULL)
    except UnicodeDecodeError as error:
        m.at = p
        raise ValueError(f"unpack_string found byte {error.object[error.start]:#04x} at position {p - m.base + error.start} "
                         f"of the message at offset {m.offset}; a string has ASCII only") from None

cdef object take_unicode(View m):
    cdef const char* p = m.at
    cdef const char* end = p
    cdef int order = -1
    while end + 2 <= m.end:
        if end[0] == 0 and end[1] == 0:
            m.at = end + 2
            return PyUnicode_DecodeUTF16(p, end - p, "surrogatepass", &order)
        end += 2
    raise EOFError(f"unpack_unicode found no closing zero pair from position {p - m.base} of the message at "
                   f"offset {m.offset}, which has {m.size} bytes")

cdef object take_raw(View m, int64_t n, str kind):
    if n < 0:
        raise ValueError(f"unpack_{kind} was given or found the length {n} in the message at offset {m.offset}")
    return PyBytes_FromStringAndSize(take(m, n, kind), n)

cdef object take_big(View m):
    return int.from_bytes(take_raw(m, take_4(m, "big_integer"), "big_integer"), "big", signed=True)

cdef char* scientific(char* end, int64_t unscaled, int64_t exponent):
    """Writes "unscaledEexponent" backwards from `end`; gives where it starts."""
    end = digits_before(end, exponent) - 1
    end[0] = c"E"
    return digits_before(end, unscaled)

cdef char* digits_before(char* end, int64_t number):
    cdef uint64_t rest = -<uint64_t>number if number < 0 else number
    while True:
        end -= 1
        end[0] = c"0" + <char>(rest % 10)
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        end -= 1
        end[0] = c"-"
    return end

cdef object take_decimal(View m, bint java):
    cdef const char* start = m.at
    cdef int tag = <int8_t>take(m, 1, "decimal")[0] - (1 if java else 0)
    cdef int64_t scale, n, unscaled
    cdef const char* p
    cdef char[48] text
    if tag == 0:
        p = take(m, 2, "decimal")
        scale = <int8_t>p[0]
        n = <int8_t>p[1]
    elif tag == 1:
        scale = take_4(m, "decimal")
        n = m.end - m.at if java else take_4(m, "decimal")
    else:
        m.at = start
        raise ValueError(f"unpack_decimal found tag {tag + java} at position {start - m.base} of the message at offset "
                         f"{m.offset}; the {'java' if java else 'seed'} dialect has {0 + java} and {1 + java}")
    if 1 <= n <= 8:
        p = take(m, n, "decimal")
        unscaled = <int8_t>p[0]
        while n > 1:
            p += 1
            n -= 1
            unscaled = unscaled * 256 + <uint8_t>p[0]
        p = scientific(text + 47, unscaled, -scale)
        return decimal_class()(PyUnicode_DecodeASCII(p, text + 47 - p, NULL))
    raw = take_raw(m, n, "decimal")
    check_decimal(n)
    number = decimal_class()(int.from_bytes(raw, "big", signed=True)).as_tuple()
    return decimal_class()((number.sign, number.digits, -scale))

cdef object take_value(View m, int kind, bint java):
    if kind == INT:
        return take_4(m, "int")
    if kind == LONG:
        return take_8(m, "long")
    if kind == DECIMAL:
        return take_decimal(m, java)
    if kind == STRING:
        return take_string(m)
    if kind == BOOLEAN:
        return take(m, 1, "boolean")[0] == 1
    if kind == DOUBLE:
        return take_double(m)
    if kind == FLOAT:
        return take_float(m)
    if kind == BYTE:
        return <int8_t>take(m, 1, "byte")[0]
    if kind == SHORT:
        return take_2(m, "short")
    if kind == CHAR:
        return PyUnicode_FromOrdinal(<uint16_t>take_2(m, "char"))
    if kind == UNICODE:
        return take_unicode(m)
    if kind == BIG_INTEGER:
        return take_big(m)
    return take_raw(m, m.end - m.at if kind == BYTES else take_4(m, "sized_bytes"), KINDS[kind])
