# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Compressed bodies made plain, never to more than `limit` bytes.

    codec   1  zip      an archive with one entry, as JMQ writes it
            2  zlib     RFC 1950
            3  snappy   the framed format, checked by its CRC-32C
            4  gzip     RFC 1952, up to 16 members

Invariants
- nothing is allocated beyond `limit` and what the standard library's zlib keeps in hand
- what is broken, cut short or too large is a ValueError
- bytes behind the end of a zlib or gzip stream are ignored, as the Java libraries do
"""
import zlib

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from serai._core.crc cimport crc32, crc32c

cdef enum:
    GZIP_MEMBERS_MAX = 16                # each further member copies what follows it
    SNAPPY_CHUNK_MAX = 65536
    ZIP_HEAD = 30
    ZIP_DIRECTORY = 46                   # the entry of the central directory, without its name
    ZIP_END = 22
    STORED = 0
    DEFLATED = 8


def inflate(data, int codec, int64_t limit):
    """The plain bytes of data; ValueError when there are more than limit."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return inflated(<const char*>view.buf, view.len, codec, limit)
    finally:
        PyBuffer_Release(&view)


cdef bytes inflated(const char* p, Py_ssize_t n, int codec, int64_t limit):
    if limit < 0:
        limit = 0
    if codec == SNAPPY:
        return unsnapped(<const uint8_t*>p, n, limit)
    view = PyMemoryView_FromMemory(<char*>p, n, PyBUF_READ)
    if codec == ZLIB:
        return stream(view, 15, limit)[0]
    if codec == GZIP:
        return ungzipped(view, limit)
    if codec == ZIP:
        return unzipped(view, <const uint8_t*>p, n, limit)
    raise ValueError(f"codec must be 1 to 4, not {codec}")


cdef tuple stream(data, int window, int64_t limit):
    """One deflate stream: its plain bytes and what follows it."""
    decoder = zlib.decompressobj(window)
    try:
        plain = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"the compressed bytes are broken: {error}") from None
    if len(plain) > limit:
        raise ValueError(f"the compressed bytes hold more than the limit of {limit} bytes")
    if not decoder.eof:
        raise ValueError("the compressed bytes end too early")
    return plain, decoder.unused_data


cdef bytes ungzipped(data, int64_t limit):
    plain, rest = stream(data, 31, limit)
    parts = [plain]
    while rest[:2] == b"\x1f\x8b":
        if len(parts) == GZIP_MEMBERS_MAX:
            raise ValueError(f"a gzip body has more than {GZIP_MEMBERS_MAX} members")
        limit -= len(plain)
        plain, rest = stream(rest, 31, limit)
        parts.append(plain)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# ---- zip: found through the directory at its end, since the local head may lack the sizes ------------

cdef uint32_t little(const uint8_t* p, int n) noexcept nogil:
    cdef uint32_t value = 0
    cdef int i
    for i in range(n):
        value |= <uint32_t>p[i] << (8 * i)
    return value


cdef bytes unzipped(view, const uint8_t* p, Py_ssize_t n, int64_t limit):
    cdef const uint8_t* end = p + n - ZIP_END
    cdef const uint8_t* entry
    cdef int64_t directory, head, start, packed, size
    if n < ZIP_HEAD + ZIP_DIRECTORY + ZIP_END or memcmp(end, b"PK\x05\x06", 4):
        raise ValueError("a zip body does not end with its directory")
    directory = little(end + 16, 4)
    if little(end + 10, 2) != 1 or directory + ZIP_DIRECTORY > n:
        raise ValueError("a zip body must have exactly one entry")
    entry = p + directory
    packed = little(entry + 20, 4)
    size = little(entry + 24, 4)
    head = little(entry + 42, 4)
    if memcmp(entry, b"PK\x01\x02", 4) or head + ZIP_HEAD > n or memcmp(p + head, b"PK\x03\x04", 4):
        raise ValueError("the directory of a zip body is broken")
    start = head + ZIP_HEAD + little(p + head + 26, 2) + little(p + head + 28, 2)
    if start + packed > n:
        raise ValueError("the compressed bytes end too early")
    if size > limit:
        raise ValueError(f"the compressed bytes hold more than the limit of {limit} bytes")
    if little(entry + 10, 2) == DEFLATED:
        plain = stream(view[start:start + packed], -15, limit)[0]
    elif little(entry + 10, 2) == STORED:
        plain = bytes(view[start:start + packed])
    else:
        raise ValueError("a zip body must be stored or deflated")
    if len(plain) != size or crc32(0, PyBytes_AS_STRING(plain), <size_t>len(plain)) != little(entry + 16, 4):
        raise ValueError("the checksum of a zip body is wrong")
    return plain


# ---- snappy, framed ----------------------------------------------------------------------------------

cdef bytes unsnapped(const uint8_t* p, Py_ssize_t n, int64_t limit):
    cdef int64_t size = snappy_size(p, p + n)
    cdef bytes plain
    if size < 0:
        raise ValueError("the snappy chunks are broken")
    if size > limit:
        raise ValueError(f"the compressed bytes hold more than the limit of {limit} bytes")
    plain = PyBytes_FromStringAndSize(NULL, size)
    if not snappy_chunks(p, p + n, <uint8_t*>PyBytes_AS_STRING(plain)):
        raise ValueError("the snappy chunks are broken")
    return plain


cdef int64_t block_size(const uint8_t* p, const uint8_t* end, int* used) noexcept nogil:
    """The length that a raw block says in front, and how many bytes say it; -1 when it cannot be."""
    cdef int64_t size = 0
    used[0] = 0
    while used[0] < 3 and p + used[0] < end:
        size |= <int64_t>(p[used[0]] & 0x7F) << (7 * used[0])
        used[0] += 1
        if p[used[0] - 1] < 0x80:
            return size if size <= SNAPPY_CHUNK_MAX else -1
    return -1


cdef int64_t snappy_size(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Plain bytes of all chunks, from their heads alone; -1 when the chunks do not fit together."""
    cdef int64_t total = 0, size, plain
    cdef int kind, used
    if end - p < 10 or memcmp(p, b"\xff\x06\x00\x00sNaPpY", 10):
        return -1
    while p < end:
        if end - p < 4:
            return -1
        kind = p[0]
        size = little(p + 1, 3)
        p += 4
        if size > end - p or 2 <= kind <= 0x7F or (kind == 0xFF and size != 6):
            return -1
        if kind < 2:
            if size < 4:
                return -1
            plain = size - 4 if kind == 1 else block_size(p + 4, p + size, &used)
            if plain < 0 or plain > SNAPPY_CHUNK_MAX:
                return -1
            total += plain
        p += size
    return total


cdef bint snappy_chunks(const uint8_t* p, const uint8_t* end, uint8_t* out) noexcept nogil:
    """Writes the plain bytes of chunks that `snappy_size` has measured; their checksums decide."""
    cdef int64_t size, plain
    cdef uint32_t total
    cdef int kind, used
    while p < end:
        kind = p[0]
        size = little(p + 1, 3)
        p += 4
        if kind < 2:
            if kind == 1:
                plain = size - 4
                memcpy(out, p + 4, plain)
            else:
                plain = block_size(p + 4, p + size, &used)
                if not unblock(p + 4 + used, p + size, out, plain):
                    return False
            total = crc32c(0, out, plain)
            if <uint32_t>((total >> 15 | total << 17) + 0xA282EAD8U) != little(p, 4):
                return False
            out += plain
        p += size
    return True


cdef bint unblock(const uint8_t* p, const uint8_t* end, uint8_t* out, int64_t size) noexcept nogil:
    """One raw block into exactly `size` bytes."""
    cdef uint8_t* at = out
    cdef uint8_t* stop = out + size
    cdef int64_t n, back
    cdef int tag, more
    while p < end:
        tag = p[0]
        p += 1
        more = tag & 3
        if more == 0:                            # a literal: its length is in the tag, or in 1 to 4 bytes
            n = tag >> 2
            if n >= 60:
                more = n - 59
                if end - p < more:
                    return False
                n = little(p, more)
                p += more
            n += 1
            if n > end - p or n > stop - at:
                return False
            memcpy(at, p, n)
            p += n
            at += n
            continue
        n = 4 + (tag >> 2 & 7) if more == 1 else 1 + (tag >> 2)
        if more == 3:
            more = 4
        if end - p < more:
            return False
        back = little(p, more)
        if more == 1:
            back |= <int64_t>(tag >> 5) << 8
        p += more
        if back == 0 or back > at - out or n > stop - at:
            return False
        while n > 0:                             # one by one: a copy may overlap what it writes
            at[0] = (at - back)[0]
            at += 1
            n -= 1
    return at == stop
