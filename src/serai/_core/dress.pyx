# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""From one dress into another, and what a JMQ server sets in messages of its own dress.

    redress   a set of one dress -> bytes of another, in one pass; wrappers are opened, their members come out
              as plain messages, so that the nth message stays the nth
    patch     partition, index, term, store time, client address and missing checksums, written into place

What the target cannot say is dropped, never bent: docs/formats/messages.md has the table.  A checksum of the body
travels along where both sides have one, so a body that was damaged on the way is found by whoever reads it.

Invariants
- redress into the same dress keeps every whole entry: untouched, or in JMQ with what the server sets and the
  lengths put right
- a body that JMQ compressed stays compressed between the two JMQ layouts, unless it is a batch
- output is never longer than `bytes_max`
- patch writes nothing unless the whole set can be patched
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from serai._core.crc cimport crc32
from serai._core.entries cimport ADDRESS, BATCH, CLIENT, CODEC_MASK, COMPRESSED, HEADERS_BIT, HOUSE
from serai._core.entries cimport HOUSE_HEAD, JAFKA, KEY_BIT, MAGIC_0_HEAD, MAGIC_1_HEAD, ORDERED, ORDERED_BIT, REAL
from serai._core.entries cimport REAL_HEAD, SEED, SEED_HEAD, VERSION, Entry, put_2, put_4, put_8, take
from serai._core.inflate cimport SNAPPY
from serai._core.messages cimport Walk, prepare, refuse, walk
from serai._core.properties cimport TEXT_MAX, headers_of, text_of

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize_raw "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n)
    int _PyBytes_Resize(PyObject** whole, Py_ssize_t n) except -1
    void set_size "Py_SET_SIZE"(PyObject* whole, Py_ssize_t n) noexcept

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    JOYQUEUE = 0x010C                    # a plain message of the program's own kind, version 1
    SHRINK_BYTES_MIN = 65536             # smaller outputs are shrunk to their length
    RESERVED = 0xE000                    # high bits of the system code
    IPV4_CLIENT = 6                      # bytes of an address: port, low byte first, and the address

cdef struct Dresser:                     # where messages go, and what the server says of them
    PyObject* whole
    char* at
    char* stop
    int64_t bytes_max
    int target
    int magic
    int64_t partition
    int64_t index
    int64_t term
    int64_t store_time
    const char* client
    int64_t client_size
    const char* app
    int64_t app_size


# ---- room ------------------------------------------------------------------------------------------------

cdef int64_t likely_size(Walk* w, Dresser* d, const char* base, int64_t size) noexcept nogil:
    """What the output takes if all messages are like the first, and a little more."""
    cdef int64_t one
    cdef Entry e
    memset(&e, 0, sizeof(Entry))
    if take(w.dress, base, base + size, &e):
        return 256
    if w.dress == d.target:
        return size + 256
    one = e.body_size + e.key_size + e.notes_size + MAGIC_1_HEAD
    if d.target == HOUSE:
        one += HOUSE_HEAD - MAGIC_1_HEAD
    elif d.target != JAFKA:
        one += REAL_HEAD + e.app_size + e.extension_size + d.app_size
    one = (size // e.size + 1) * one
    return (one if one < 2 * size else 2 * size) + size // 32 + 256


cdef int open_output(Walk* w, Dresser* d, const char* base, int64_t size) except -1:
    cdef int64_t room = likely_size(w, d, base, size)
    d.whole = PyBytes_FromStringAndSize_raw(NULL, room)
    if d.whole == NULL:
        raise MemoryError
    d.at = PyBytes_AS_STRING(<object>d.whole)
    d.stop = d.at + room
    return 0


cdef int close_output(Dresser* d) except -1:
    """Gives the output its length.

    A little room at the end stays allocated: a block that always shrinks before it is freed never moves malloc's
    threshold, so each call would have fresh pages from the kernel; large sets were four times slower
    (benchmarks/messages.py).
    """
    cdef char* base = PyBytes_AS_STRING(<object>d.whole)
    cdef int64_t used = d.at - base, room = d.stop - base
    if used > d.bytes_max:
        raise ValueError(f"the messages take more than {d.bytes_max} bytes in the other dress")
    if used < SHRINK_BYTES_MIN or room - used > used // 8:
        _PyBytes_Resize(&d.whole, used)
    else:
        set_size(d.whole, used)
        d.at[0] = 0
    return 0


cdef int grow(Dresser* d, int64_t need) except -1 with gil:
    cdef int64_t used = d.at - PyBytes_AS_STRING(<object>d.whole)
    if used > d.bytes_max:
        raise ValueError(f"the messages take more than {d.bytes_max} bytes in the other dress")
    _PyBytes_Resize(&d.whole, used + used // 2 + need)
    d.at = PyBytes_AS_STRING(<object>d.whole) + used
    d.stop = d.at + used // 2 + need
    return 0


cdef inline int reserve(Dresser* d, int64_t need) except -1 nogil:
    if need > d.stop - d.at:
        grow(d, need)
    return 0


cdef inline void put(Dresser* d, const char* p, int64_t size) noexcept nogil:
    if size > 0:                                 # a field that is not there has no address either
        memcpy(d.at, p, size)
        d.at += size


cdef inline uint32_t sum_of(Entry* m) noexcept nogil:
    return <uint32_t>m.sum if m.sum > 0 else crc32(0, m.body, m.body_size)


# ---- one message into each dress -------------------------------------------------------------------------

cdef int put_jafka(void* self, Entry* m) except -1 nogil:
    cdef Dresser* d = <Dresser*>self
    cdef int head = MAGIC_0_HEAD + d.magic
    reserve(d, head + m.body_size)
    put_4(d.at, <uint32_t>(m.body_size + head - 4))
    d.at[4] = d.magic
    d.at[5] = 0
    put_4(d.at + head - 4, sum_of(m))
    d.at += head
    put(d, m.body, m.body_size)
    return 0


cdef int put_house(void* self, Entry* m) except -1 nogil:
    cdef Dresser* d = <Dresser*>self
    cdef int bits = ORDERED_BIT if m.ordered else 0
    cdef int64_t send_time = m.send_time, size
    cdef uint16_t flag = m.flag, key_size = <uint16_t>m.key_size if m.key_size <= 0xFFFF else 0
    cdef uint32_t long_size
    cdef char* start
    reserve(d, HOUSE_HEAD + 2 + m.key_size + 4 * m.notes_size + 32 + m.body_size)
    start = d.at
    d.at += HOUSE_HEAD
    if key_size:
        bits |= KEY_BIT
        memcpy(d.at, &key_size, 2)
        d.at += 2
        put(d, m.key, key_size)
    if m.notes_size:
        size = headers_of(m.notes, m.notes_size, d.at + 4)
        if size:
            bits |= HEADERS_BIT
            long_size = <uint32_t>size
            memcpy(d.at, &long_size, 4)
            d.at += 4 + size
    put(d, m.body, m.body_size)
    if m.dress == JAFKA:
        send_time = d.store_time
    long_size = <uint32_t>(d.at - start)
    memcpy(start, &long_size, 4)
    start[4] = bits
    start[5] = m.priority
    memcpy(start + 6, &flag, 2)
    memcpy(start + 8, &send_time, 8)
    return 0


cdef int code_of(Dresser* d, Entry* m) noexcept nogil:
    """The system code that the target writes."""
    cdef int code = m.code
    if m.dress != REAL and m.dress != SEED:
        code = JOYQUEUE | (ORDERED if m.ordered else 0)
        m = NULL
    elif not m.batch:
        code &= ~BATCH
    if m != NULL and m.codec == 0:
        code &= ~(COMPRESSED | CODEC_MASK)
    if m == NULL or m.dress != d.target:
        if m != NULL:
            code &= ~RESERVED
        if m != NULL and code & VERSION == 0:    # old writers: always IPv4
            code = code & ~0x40 | 0x0100 | ADDRESS
        if m != NULL or d.target == REAL:
            code ^= ADDRESS                      # the two layouts have the bit the other way round
        if m != NULL and m.codec == SNAPPY:      # 0 in the seed's layout, 3 in the real one
            code = code & ~CODEC_MASK | (0x30 if d.target == REAL else 0)
    if d.target == REAL and d.client_size and code & VERSION:
        code = code & ~ADDRESS | (ADDRESS if d.client_size == IPV4_CLIENT else 0)
    return code


cdef int64_t stored_after(Dresser* d, Entry* m, int64_t send_time) noexcept nogil:
    """Store time as JMQ counts it: milliseconds since the send time, as far as an INT goes."""
    if d.store_time == 0:
        return m.store_time
    if send_time < d.store_time - INT32_MAX:     # compared before they are subtracted: clients send any number
        return INT32_MAX
    if send_time > d.store_time + INT32_MAX:
        return -INT32_MAX
    return d.store_time - send_time


cdef void put_client(Dresser* d, char* to, const char* old) noexcept nogil:
    if d.client_size:
        memset(to, 0, CLIENT)
        memcpy(to, d.client, d.client_size if d.client_size < CLIENT else CLIENT)
    elif old != NULL:
        memcpy(to, old, CLIENT)
    else:
        memset(to, 0, CLIENT)


cdef inline void put_sized(Dresser* d, int width, const char* p, int64_t size) noexcept nogil:
    """A field with its length in front."""
    if width == 1:
        d.at[0] = <char>size
    elif width == 2:
        put_2(d.at, <uint16_t>size)
    else:
        put_4(d.at, <uint32_t>size)
    d.at += width
    put(d, p, size)


cdef int put_notes(Dresser* d, Entry* m) except -1 nogil:
    """Attributes: the text as it is, or made of house headers."""
    cdef int64_t size
    if m.dress == HOUSE and m.notes_size:
        size = text_of(m.notes, m.notes_size, d.at + 2)
        put_2(d.at, <uint16_t>size)
        d.at += 2 + size
    else:
        put_sized(d, 2, m.notes, m.notes_size)
    return 0


cdef void put_head(Dresser* d, Entry* m) noexcept nogil:
    """What stands in front of a JMQ body, but for the length of the whole."""
    cdef int64_t send_time = d.store_time if m.dress == JAFKA else m.send_time
    cdef char* at = d.at
    put_2(at + 4, <uint16_t>d.partition)
    put_8(at + 6, <uint64_t>d.index)
    put_4(at + 14, <uint32_t>d.term)
    at += 18
    if d.target == REAL:
        put_2(at, 0x1234)
        at += 2
    put_2(at, <uint16_t>code_of(d, m))
    at[2] = m.priority
    at += 3
    if d.target == REAL:
        put_client(d, at, m.client)
        at += CLIENT
    put_8(at, <uint64_t>send_time)
    put_4(at + 8, <uint32_t>stored_after(d, m, send_time))
    put_8(at + 12, sum_of(m))
    put_2(at + 20, <uint16_t>m.flag)
    d.at = at + 22


cdef int put_jmq(void* self, Entry* m) except -1 nogil:
    cdef Dresser* d = <Dresser*>self
    cdef int width = 1 if d.target == REAL else 2
    cdef int64_t sized_max = 0x7F if d.target == REAL else 0x7FFF
    cdef int64_t key_size = m.key_size, app_size = m.app_size, notes_room = m.notes_size
    cdef const char* app = m.app
    cdef char* start
    if m.dress == HOUSE or m.dress == JAFKA:
        app, app_size = d.app, d.app_size
        if m.notes_size:
            notes_room = TEXT_MAX + 16
    if key_size > sized_max:
        key_size = 0
    if app_size > sized_max:
        app_size = 0
    reserve(d, REAL_HEAD + 16 + m.body_size + key_size + notes_room + m.extension_size + app_size)
    start = d.at
    put_head(d, m)
    put_sized(d, 4, m.body, m.body_size)
    put_sized(d, width, m.key, key_size)
    put_notes(d, m)
    put_sized(d, 4, m.extension, m.extension_size)
    put_sized(d, width, app, app_size)
    put_4(start, <uint32_t>(d.at - start))
    d.index += m.count
    return 0


# ---- a set into its own dress ----------------------------------------------------------------------------

cdef int set_in_place(Dresser* d, Entry* e, char* start) except -1 nogil:
    """What the server says, written into an entry whose lengths are right."""
    cdef int head = REAL_HEAD if e.dress == REAL else SEED_HEAD
    put_2(start + 4, <uint16_t>d.partition)
    put_8(start + 6, <uint64_t>d.index)
    put_4(start + 14, <uint32_t>d.term)
    if e.dress == REAL and d.client_size:
        put_2(start + 20, <uint16_t>code_of(d, e))
        put_client(d, start + 23, NULL)
    put_4(start + head - 18, <uint32_t>stored_after(d, e, e.send_time))
    if e.sum <= 0:
        put_8(start + head - 14, crc32(0, e.body, e.body_size))
    d.index += e.count
    return 0


cdef int settle(Walk* w, Dresser* d, const char* base, const char* end) except -1 nogil:
    """Every whole JMQ entry once more, as the server says; `walk` for the entries alone."""
    cdef const char* p = base
    cdef char* start
    cdef Entry e
    cdef int reason
    memset(&e, 0, sizeof(Entry))
    while p < end:
        w.top = p - base
        reason = take(w.dress, p, end, &e)
        if reason:
            refuse(w, 0, reason, 0)
        if e.exact:
            reserve(d, e.size)
            start = d.at
            put(d, p, e.size)
            set_in_place(d, &e, start)
        else:
            put_jmq(d, &e)
        p += e.size
    return 0


cdef int keep(Walk* w, Dresser* d, const char* base, const char* end) except -1 nogil:
    """Every whole entry, untouched."""
    walk(w, base, end)
    reserve(d, w.bytes)
    put(d, base, w.bytes)
    return 0


cdef int dress_up(Walk* w, Dresser* d, const char* base, const char* end) except -1 nogil:
    """The whole set into the target's dress."""
    if w.dress == d.target:
        if w.dress == HOUSE or w.dress == JAFKA:
            return keep(w, d, base, end)
        return settle(w, d, base, end)
    w.opening = True
    w.self = d
    if d.target == HOUSE:
        w.visit = put_house
    elif d.target == JAFKA:
        w.visit = put_jafka
    else:
        w.keeping = w.dress == SEED or w.dress == REAL
        w.visit = put_jmq
    return walk(w, base, end)


cdef int brief(Dresser* d, int target, bytes client, bytes app) except -1:
    """Checks what the caller says of the target."""
    cdef Py_ssize_t client_size = len(client), app_size = len(app)
    if not HOUSE <= target <= JAFKA:
        raise ValueError(f"dress must be 1 to 4, not {target}")
    if client_size and not IPV4_CLIENT <= client_size <= 18:
        raise ValueError(f"a client is 6 bytes (IPv4) or 16 to 18 (IPv6), not {client_size}")
    if app_size > (0x7F if target == REAL else 0x7FFF):
        raise ValueError(f"an app of {app_size} bytes does not fit a JMQ message")
    if not -0x8000 <= d.partition <= 0x7FFF or not -INT32_MAX <= d.term <= INT32_MAX:
        raise ValueError(f"partition must be a SHORT and term an INT, not {d.partition} and {d.term}")
    d.target = target
    d.client = PyBytes_AS_STRING(client)
    d.client_size = client_size
    d.app = PyBytes_AS_STRING(app)
    d.app_size = app_size
    return 0


def redress(data, int source, int target, *, int64_t inflated_max, int depth_max, int64_t bytes_max,
            int jafka_magic=1, int64_t partition=0, int64_t index=0, int64_t term=0, int64_t store_time=0,
            bytes client=b"", bytes app=b""):
    """The messages of a set in the target's dress.

    index is that of the first message; jafka_magic is for messages that were not Jafka's.  An empty client keeps
    the address that is there, a store_time of 0 the time.  store_time is also the send time of Jafka messages, which
    have none.
    """
    cdef Py_buffer view
    cdef Walk w
    cdef Dresser d
    cdef const char* base
    memset(&d, 0, sizeof(Dresser))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        prepare(&w, &view, source, inflated_max, depth_max)
        if not 0 <= jafka_magic <= 1 or not 0 <= bytes_max <= INT32_MAX:
            raise ValueError(f"jafka_magic is 0 or 1, bytes_max below 2 GiB; not {jafka_magic} and {bytes_max}")
        d.partition, d.index, d.term, d.store_time = partition, index, term, store_time
        d.magic, d.bytes_max = jafka_magic, bytes_max
        brief(&d, target, client, app)
        base = <const char*>view.buf
        open_output(&w, &d, base, view.len)
        with nogil:
            dress_up(&w, &d, base, base + view.len)
        close_output(&d)
        return <object>d.whole
    finally:
        Py_XDECREF(d.whole)
        PyBuffer_Release(&view)


cdef int patch_entries(char* base, const char* end, int dress, Server* server) except -1 nogil:
    """As `patch`, of entries that were validated and are exact."""
    cdef Dresser d
    cdef Entry e
    memset(&d, 0, sizeof(Dresser))
    memset(&e, 0, sizeof(Entry))
    d.target = dress
    d.partition, d.index, d.term, d.store_time = server.partition, server.index, server.term, server.store_time
    d.client, d.client_size = server.client, server.client_size
    while base < end and take(dress, base, end, &e) == 0:
        set_in_place(&d, &e, base)
        base += e.size
    return 0


cdef int64_t patch_set(Walk* w, Dresser* d, char* base, const char* end) except -1 nogil:
    cdef const char* p = base
    cdef Entry e
    memset(&e, 0, sizeof(Entry))
    walk(w, base, end)
    if not w.exact:
        return 0
    while p < end:
        if take(w.dress, p, end, &e):
            return 0
        set_in_place(d, &e, <char*>p)
        p += e.size
    return 1


def patch(data, int dress, *, int64_t partition, int64_t index, int64_t term, int64_t store_time, bytes client=b""):
    """Writes what the server says into JMQ messages where they lie; the index behind the last of them.

    Only for entries whose lengths are right (`Census.exact`); others go through `redress`.
    """
    cdef Py_buffer view
    cdef Walk w
    cdef Dresser d
    cdef char* base
    cdef bint done
    memset(&d, 0, sizeof(Dresser))
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        prepare(&w, &view, dress, 0, 0)
        if dress != SEED and dress != REAL:
            raise ValueError(f"only JMQ messages are patched, not dress {dress}")
        d.partition, d.index, d.term, d.store_time = partition, index, term, store_time
        brief(&d, dress, client, b"")
        base = <char*>view.buf
        with nogil:
            done = patch_set(&w, &d, base, base + view.len)
        if not done:
            raise ValueError("a message's lengths are not as they are written; it must be dressed anew")
        return d.index
    finally:
        PyBuffer_Release(&view)
