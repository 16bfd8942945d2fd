# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""JMQ attributes, which are the text of a Java properties file, and house headers, which are names and bytes.

    text      trace=abc123\\nk\\ e\\:y=v \\=2         pure ASCII as Java writes it; read with the whole grammar
    headers   u16 count, count x (u16 length, name, u32 length, value), little endian

Both ways nothing is lost that the other side can say: an escaped character becomes UTF-8, a byte that is not UTF-8
becomes the lone surrogate U+DC00 + byte, as Python's surrogateescape has it, and comes back as that byte.

Invariants
- headers of n bytes of text take at most 4 n + 16 bytes; the caller has the room
- text longer than TEXT_MAX is not written at all, rather than a part of it
- order and repeated names are kept
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    LINE_END = -1
    UNIT = 0x10000                       # added to a UTF-16 unit that was written as four digits
    LITERAL = 0x20000                    # added to a byte behind a backslash: it separates nothing

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end

cdef struct Writer:
    char* at
    uint32_t high                        # a first half of a surrogate pair that waits for its second


# ---- text to headers -------------------------------------------------------------------------------------

cdef inline bint is_blank(int c) noexcept nogil:
    return c == 32 or c == 9 or c == 12


cdef inline bint is_line_end(int c) noexcept nogil:
    return c == 10 or c == 13


cdef int hex_4(const uint8_t* p) noexcept nogil:
    """Four hexadecimal digits, or -1."""
    cdef int value = 0, i, c
    for i in range(4):
        c = p[i]
        if 48 <= c <= 57:
            c -= 48
        elif 97 <= c | 32 <= 102:
            c = (c | 32) - 87
        else:
            return -1
        value = value << 4 | c
    return value


cdef void skip_blanks(Reader* r) noexcept nogil:
    while r.at < r.end and is_blank(r.at[0]):
        r.at += 1


cdef bint next_line(Reader* r) noexcept nogil:
    """Goes to the first character of the next line that is neither empty nor a comment."""
    while r.at < r.end:
        skip_blanks(r)
        if r.at == r.end:
            return False
        if r.at[0] == 35 or r.at[0] == 33:
            while r.at < r.end and not is_line_end(r.at[0]):
                r.at += 1
        elif is_line_end(r.at[0]):
            r.at += 1
        else:
            return True
    return False


cdef int next_character(Reader* r) noexcept nogil:
    """The next character of the line, which goes on behind a backslash at its end."""
    cdef int c
    while r.at < r.end:
        c = r.at[0]
        if is_line_end(c):
            return LINE_END                      # left there: the next line begins with it, and skips it
        r.at += 1
        if c != 92:
            return c
        if r.at == r.end:
            return LINE_END
        c = r.at[0]
        if not is_line_end(c):
            return escaped(r)
        r.at += 1
        if c == 13 and r.at < r.end and r.at[0] == 10:
            r.at += 1
        skip_blanks(r)
    return LINE_END


cdef int escaped(Reader* r) noexcept nogil:
    """What stands behind a backslash; an escape with fewer than four digits is the letter u."""
    cdef int c = r.at[0], value
    r.at += 1
    if c == 117 and r.end - r.at >= 4:
        value = hex_4(r.at)
        if value >= 0:
            r.at += 4
            return UNIT + value
    if c == 116:
        c = 9
    elif c == 110:
        c = 10
    elif c == 114:
        c = 13
    elif c == 102:
        c = 12
    return LITERAL + c


cdef void put_utf8(Writer* w, uint32_t c) noexcept nogil:
    """One code point; a surrogate takes three bytes."""
    cdef uint8_t* p = <uint8_t*>w.at
    if c < 0x80:
        p[0] = c
        w.at += 1
    elif c < 0x800:
        p[0] = 0xC0 | c >> 6
        p[1] = 0x80 | c & 0x3F
        w.at += 2
    elif c < 0x10000:
        p[0] = 0xE0 | c >> 12
        p[1] = 0x80 | c >> 6 & 0x3F
        p[2] = 0x80 | c & 0x3F
        w.at += 3
    else:
        p[0] = 0xF0 | c >> 18
        p[1] = 0x80 | c >> 12 & 0x3F
        p[2] = 0x80 | c >> 6 & 0x3F
        p[3] = 0x80 | c & 0x3F
        w.at += 4


cdef void put_character(Writer* w, int c) noexcept nogil:
    """A character of the text: a byte as it is, a UTF-16 unit as UTF-8."""
    cdef uint32_t unit = c & 0xFFFF
    if w.high:
        if c & UNIT and 0xDC00 <= unit <= 0xDFFF:
            put_utf8(w, 0x10000 + ((w.high - 0xD800) << 10) + (unit - 0xDC00))
            w.high = 0
            return
        finish(w)
    if not c & UNIT or 0xDC80 <= unit <= 0xDCFF:
        w.at[0] = <char>(unit & 0xFF)
        w.at += 1
    elif 0xD800 <= unit <= 0xDBFF:
        w.high = unit
    else:
        put_utf8(w, unit)


cdef void finish(Writer* w) noexcept nogil:
    """Writes a first half that found no second."""
    if w.high:
        put_utf8(w, w.high)
        w.high = 0


cdef int put_name(Reader* r, Writer* w, bint* empty) noexcept nogil:
    """The name of a line; the first character of the value, already read.  Says if the line has nothing at all."""
    cdef int c = next_character(r)
    empty[0] = c == LINE_END
    while c != LINE_END and c != 61 and c != 58 and not is_blank(c):
        put_character(w, c)
        c = next_character(r)
    finish(w)
    while is_blank(c):
        c = next_character(r)
    if c == 61 or c == 58:
        c = next_character(r)
        while is_blank(c):
            c = next_character(r)
    return c


cdef int64_t headers_of(const char* text, int64_t size, char* out) noexcept nogil:
    """Writes the headers that a text says; how many bytes, 0 when it says none."""
    cdef Reader r
    cdef Writer w
    cdef char* start
    cdef int c
    cdef bint empty
    cdef uint16_t count = 0, short_size
    cdef uint32_t long_size
    r.at = <const uint8_t*>text
    r.end = r.at + size
    w.at = out + 2
    w.high = 0
    while next_line(&r):
        start = w.at
        w.at += 2
        c = put_name(&r, &w, &empty)
        if empty:                                # nothing but backslashes at line ends
            w.at = start
            continue
        short_size = <uint16_t>(w.at - start - 2)
        memcpy(start, &short_size, 2)
        start = w.at
        w.at += 4
        while c != LINE_END:
            put_character(&w, c)
            c = next_character(&r)
        finish(&w)
        long_size = <uint32_t>(w.at - start - 4)
        memcpy(start, &long_size, 4)
        count += 1
    memcpy(out, &count, 2)
    return w.at - out if count else 0


# ---- headers to text -------------------------------------------------------------------------------------

cdef int rune(const uint8_t* p, const uint8_t* end, uint32_t* c) noexcept nogil:
    """The code point at p and how many bytes it takes; what is not UTF-8 is one byte, as a lone surrogate."""
    cdef uint32_t first = p[0], value
    cdef int size, i
    cdef uint32_t least
    if first < 0x80:
        c[0] = first
        return 1
    c[0] = 0xDC00 + first
    if first < 0xE0:
        size, least, value = 2, 0x80, first & 0x1F
    elif first < 0xF0:
        size, least, value = 3, 0x800, first & 0x0F
    else:
        size, least, value = 4, 0x10000, first & 0x07
    if first < 0xC2 or first > 0xF4 or end - p < size:
        return 1
    for i in range(1, size):
        if p[i] & 0xC0 != 0x80:
            return 1
        value = value << 6 | p[i] & 0x3F
    if value < least or value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        return 1
    c[0] = value
    return size


cdef char* put_unit(char* at, uint32_t unit) noexcept nogil:
    cdef int i
    cdef uint32_t digit
    at[0] = 92
    at[1] = 117
    for i in range(4):
        digit = unit >> (12 - 4 * i) & 15
        at[2 + i] = <char>(digit + 48 if digit < 10 else digit + 55)
    return at + 6


cdef char* put_escaped(char* at, uint32_t c, bint spaced) noexcept nogil:
    """One code point as Java writes it; `spaced` where a space must be escaped.  At most 12 bytes."""
    if c >= 0x10000:
        c -= 0x10000
        return put_unit(put_unit(at, 0xD800 + (c >> 10)), 0xDC00 + (c & 0x3FF))
    if c == 9 or c == 10 or c == 12 or c == 13:
        at[0] = 92
        at[1] = 116 if c == 9 else 110 if c == 10 else 102 if c == 12 else 114
        return at + 2
    if c < 0x20 or c > 0x7E:
        return put_unit(at, c)
    if c == 92 or c == 61 or c == 58 or c == 35 or c == 33 or (c == 32 and spaced):
        at[0] = 92
        at += 1
    at[0] = <char>c
    return at + 1


cdef char* put_text(char* at, const char* stop, const uint8_t* p, int64_t size, bint name) noexcept nogil:
    """A name or a value; NULL when it does not end before `stop`."""
    cdef const uint8_t* end = p + size
    cdef bint first = True
    cdef uint32_t c
    while p < end:
        if at > stop:
            return NULL
        p += rune(p, end, &c)
        at = put_escaped(at, c, name or first)
        first = False
    return at


cdef int64_t text_of(const char* headers, int64_t size, char* out) noexcept nogil:
    """Writes the text of headers; how many bytes, 0 when they are too long or broken.  Needs TEXT_MAX + 16 bytes."""
    cdef const char* p = headers
    cdef const char* end = p + size
    cdef const char* stop = out + TEXT_MAX
    cdef char* at = out
    cdef uint16_t left, short_size
    cdef uint32_t long_size
    memcpy(&left, p, 2)
    p += 2
    while left > 0:
        if end - p < 2:
            return 0
        memcpy(&short_size, p, 2)
        p += 2
        if <int64_t>short_size + 4 > end - p:
            return 0
        at = put_text(at, stop, <const uint8_t*>p, short_size, True)
        p += short_size
        memcpy(&long_size, p, 4)
        p += 4
        if at == NULL or at >= stop or long_size > end - p:
            return 0
        at[0] = 61
        at = put_text(at + 1, stop, <const uint8_t*>p, long_size, False)
        p += long_size
        left -= 1
        if at == NULL or at > stop:
            return 0
        if left:
            at[0] = 10
            at += 1
    return at - out
