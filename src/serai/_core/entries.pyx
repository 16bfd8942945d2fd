# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""One entry of each of the four dresses, taken apart where it lies.

    1 house   our own, little endian; the body is what is left
              | 0 length u32 | 4 attributes | 5 priority i8 | 6 flag u16 | 8 send time i64, ms | 16 ...
              attributes: bits 0-2 codec (0 none, 2 zlib, 4 gzip), 3 key, 4 headers, 5 batch, 6 ordered, 7 zero
              batch:      u32 count, then `count` house messages, compressed together if there is a codec
              key:        u16 length, bytes
              headers:    u32 bytes of what follows, u16 count, count x (u16 length, name, u32 length, value)
    2 seed    JMQ as the seed document has it: 47 bytes up to the body, then key, attributes, extension, app
    3 real    JMQ as its clients speak it: magic 0x1234 and 16 bytes of client address more, 65 up to the body
    4 jafka   | 0 length i32 | 4 magic | 5 attributes (magic 1 only) | crc u32 of the payload | payload

docs/formats/messages.md has every byte of all four, and what each can say of the others.

Invariants
- a length is compared with the bytes that are there before it is used, and never allocated
- JMQ messages are parsed by their fields: some clients write -1 for the length
- what is wrong is a small number, so that loops run without the GIL; `words` says it
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from serai._core.crc cimport crc32
from serai._core.inflate cimport GZIP, PLAIN, SNAPPY, ZLIB

cdef enum:
    INT32_MAX = 0x7FFFFFFF

cdef tuple REASONS = (
    "", "truncated: the bytes end inside this entry", "the length is less than a head", "the length is negative",
    "the magic is unknown", "the codec is unknown", "the key does not fit", "the headers do not fit",
    "a reserved bit is set, or a batch has key or headers", "this is not a JMQ message of this layout",
    "a batch does not hold the messages it says", "a member's lengths are wrong",
    "the checksum does not fit the body", "wrappers are nested too deep", "a member of a batch is a wrapper",
)


# ---- one entry of each dress: 0, or the reason why it cannot be -----------------------------------------

cdef int take(int dress, const char* p, const char* end, Entry* e) noexcept nogil:
    """Takes the entry at p apart; `e` was zeroed once before the first of a set."""
    if dress == HOUSE:
        return take_house(p, end, e)
    if dress == JAFKA:
        return take_jafka(p, end, e)
    return take_jmq(p, end, dress, e)


cdef inline uint16_t little_2(const char* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return v


cdef inline uint32_t little_4(const char* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef int take_house(const char* p, const char* end, Entry* e) noexcept nogil:
    cdef int64_t room = end - p, size
    cdef int bits
    if room < 4:
        return CUT_SHORT
    size = little_4(p)
    if size < HOUSE_HEAD:
        return SHORT
    if size > room:
        return CUT_SHORT
    bits = <uint8_t>p[4]
    e.dress = HOUSE
    e.start = p
    e.size = size
    e.body = p + HOUSE_HEAD
    e.key_size = e.notes_size = 0
    e.count = 1
    e.sum = -1
    e.exact = True
    e.codec = bits & CODEC_BITS
    e.batch = bits & BATCH_BIT != 0
    e.ordered = bits & ORDERED_BIT != 0
    e.priority = <int8_t>p[5]
    e.flag = little_2(p + 6)
    memcpy(&e.send_time, p + 8, 8)
    if bits & ~ORDERED_BIT and not take_options(bits, p + size, e):
        return wrong_option(bits, p + size, e)
    e.body_size = p + size - e.body
    return 0


cdef bint take_options(int bits, const char* end, Entry* e) noexcept nogil:
    """Batch count, key and headers, which move the body; False when one of them cannot be."""
    cdef int64_t n
    if bits & 0x80 or not (e.codec == PLAIN or e.codec == ZLIB or e.codec == GZIP):
        return False
    if bits & BATCH_BIT:
        if bits & (KEY_BIT | HEADERS_BIT) or end - e.body < 4:
            return False
        e.count = little_4(e.body)
        e.body += 4
        return 0 < e.count <= INT32_MAX
    if bits & KEY_BIT:
        if end - e.body < 2:
            return False
        n = little_2(e.body)
        if n > end - e.body - 2:
            return False
        e.key = e.body + 2
        e.key_size = n
        e.body = e.key + n
    if bits & HEADERS_BIT:
        if end - e.body < 6:
            return False
        n = little_4(e.body)
        if n < 2 or n > end - e.body - 4:
            return False
        e.notes = e.body + 4
        e.notes_size = n
        e.body = e.notes + n
    return True


cdef int wrong_option(int bits, const char* end, Entry* e) noexcept nogil:
    """Which of the reasons `take_options` had."""
    if not (e.codec == PLAIN or e.codec == ZLIB or e.codec == GZIP):
        return CODEC
    if bits & 0x80 or (bits & BATCH_BIT and bits & (KEY_BIT | HEADERS_BIT)):
        return BITS
    if bits & BATCH_BIT:
        return COUNT
    return KEY if bits & KEY_BIT and e.body == e.start + HOUSE_HEAD else HEADERS


cdef bint headers_fit(const char* p, int64_t size) noexcept nogil:
    """The headers fill their block exactly."""
    cdef const char* end = p + size
    cdef int left = little_2(p)
    cdef int64_t n
    p += 2
    while left > 0:
        if end - p < 2:
            return False
        n = little_2(p)
        p += 2
        if n + 4 > end - p:
            return False
        p += n
        n = little_4(p)
        p += 4
        if n > end - p:
            return False
        p += n
        left -= 1
    return p == end


cdef inline const char* field(const char* p, const char* end, int width, int64_t* size, bint* exact) noexcept nogil:
    """Where the bytes of a sized field start; NULL when they are not all there.  Negative lengths are empty fields."""
    cdef int64_t n
    if end - p < width:
        return NULL
    if width == 1:
        n = <int8_t>p[0]
    elif width == 2:
        n = <int16_t>get_2(p)
    else:
        n = <int32_t>get_4(p)
    if n < 0:
        n = 0
        exact[0] = False
    if n > end - p - width:
        return NULL
    size[0] = n
    return p + width


cdef int take_jmq(const char* p, const char* end, int dress, Entry* e) noexcept nogil:
    cdef int head = REAL_HEAD if dress == REAL else SEED_HEAD, width = 1 if dress == REAL else 2, reason
    cdef const char* at
    if end - p < head:
        return CUT_SHORT
    at = p + 18
    if dress == REAL:
        if get_2(at) != 0x1234:
            return LAYOUT
        e.client = p + 23
        at += 2
    e.code = get_2(at)
    e.priority = <int8_t>at[2]
    at = p + head - 26                           # from here on both are alike
    e.send_time = <int64_t>get_8(at)
    e.store_time = <int32_t>get_4(at + 8)
    e.sum = <int64_t>get_8(at + 12)
    e.flag = get_2(at + 20)
    e.exact = True
    e.dress = dress
    reason = take_code(e)
    if reason:
        return reason
    e.body = field(at + 22, end, 4, &e.body_size, &e.exact)
    if e.body == NULL:
        return CUT_SHORT
    e.key = field(e.body + e.body_size, end, width, &e.key_size, &e.exact)
    if e.key == NULL:
        return CUT_SHORT
    e.notes = field(e.key + e.key_size, end, 2, &e.notes_size, &e.exact)
    if e.notes == NULL:
        return CUT_SHORT
    e.extension = field(e.notes + e.notes_size, end, 4, &e.extension_size, &e.exact)
    if e.extension == NULL:
        return CUT_SHORT
    e.app = field(e.extension + e.extension_size, end, width, &e.app_size, &e.exact)
    if e.app == NULL:
        return CUT_SHORT
    e.start = p
    e.size = e.app + e.app_size - p
    if <int32_t>get_4(p) != e.size:
        e.exact = False
    return 0


cdef int take_code(Entry* e) noexcept nogil:
    """What the system code says: ordered, batch, codec."""
    cdef int kind = e.code >> 4 & 7
    if e.dress == SEED and e.code & VERSION != 0x0100:
        return LAYOUT
    e.ordered = e.code & ORDERED != 0
    e.batch = e.code >> 12 == 1
    e.count = 1
    e.codec = PLAIN
    if e.batch:
        e.count = e.flag
        if not 0 < e.count < 0x8000:
            return COUNT
    if e.code & COMPRESSED:
        if e.dress == REAL and e.code & VERSION == 0:
            kind &= 3
        if kind > SNAPPY:
            return CODEC
        e.codec = kind if kind else SNAPPY
    return 0


cdef int take_jafka(const char* p, const char* end, Entry* e) noexcept nogil:
    cdef int64_t room = end - p, length
    cdef int head, bits = 0
    if room < 4:
        return CUT_SHORT
    length = <int32_t>get_4(p)
    if length < 0:
        return NEGATIVE
    if length > room - 4:
        return CUT_SHORT
    if length < MAGIC_0_HEAD - 4:
        return SHORT
    head = MAGIC_0_HEAD
    if p[4] == 1:
        if length < MAGIC_1_HEAD - 4:
            return SHORT
        bits = p[5] & 3
        head = MAGIC_1_HEAD
    elif p[4] != 0:
        return MAGIC
    if bits > 1:
        return CODEC
    e.dress = JAFKA
    e.start = p
    e.size = length + 4
    e.body = p + head
    e.body_size = e.size - head
    e.sum = get_4(e.body - 4)
    e.codec = GZIP if bits else PLAIN
    e.batch = bits != 0
    e.count = -1 if bits else 1
    e.exact = True
    return 0


# ---- members of a batch: they have the head of their own dress, or in JMQ a smaller one ------------------

cdef int take_member(Entry* outer, const char* p, const char* end, Entry* e) noexcept nogil:
    cdef const char* at
    cdef int key_width = 4 if outer.dress == SEED else 1, reason
    if outer.dress == HOUSE or outer.dress == JAFKA:
        reason = take(outer.dress, p, end, e)
        if outer.dress == HOUSE and reason == 0 and (e.codec or e.batch):
            return NESTED
        return reason
    if end - p < 7:
        return CUT_SHORT
    e[0] = outer[0]                              # times, app and extension are those of the whole batch
    e.codec = PLAIN
    e.batch = False
    e.count = 1
    e.sum = -1
    e.priority = <int8_t>p[4]
    e.flag = get_2(p + 5)
    e.exact = True
    e.body = field(p + 7, end, 4, &e.body_size, &e.exact)
    if e.body == NULL:
        return CUT_SHORT
    e.key = field(e.body + e.body_size, end, key_width, &e.key_size, &e.exact)
    if e.key == NULL:
        return CUT_SHORT
    e.notes = field(e.key + e.key_size, end, 2, &e.notes_size, &e.exact)
    if e.notes == NULL:
        return CUT_SHORT
    e.start = p
    e.size = e.notes + e.notes_size - p
    return 0 if get_4(p) == e.size and e.exact else MEMBER


cdef int check(Entry* e) noexcept nogil:
    """The checksum, or in a house message the form of the headers: 0, or the reason."""
    if e.dress == HOUSE:
        return HEADERS if e.notes_size and not headers_fit(e.notes, e.notes_size) else 0
    if e.dress == JAFKA or not (e.sum == -1 or e.sum == 0):
        return 0 if crc32(0, e.body, e.body_size) == e.sum else SUM
    return 0


cdef str words(int reason):
    return REASONS[reason]


globals().update(HOUSE=HOUSE, SEED=SEED, REAL=REAL, JAFKA=JAFKA)
