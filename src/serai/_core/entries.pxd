"""For the other compiled modules: where things stand in the four dresses, and one entry taken apart."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    uint16_t swap_2 "__builtin_bswap16"(uint16_t v) noexcept nogil
    uint32_t swap_4 "__builtin_bswap32"(uint32_t v) noexcept nogil
    uint64_t swap_8 "__builtin_bswap64"(uint64_t v) noexcept nogil

cdef enum:
    HOUSE = 1
    SEED = 2
    REAL = 3
    JAFKA = 4

cdef enum:                               # byte 4 of a house message
    CODEC_BITS = 0x07
    KEY_BIT = 0x08
    HEADERS_BIT = 0x10
    BATCH_BIT = 0x20
    ORDERED_BIT = 0x40

cdef enum:                               # where things stand
    HOUSE_HEAD = 16
    SEED_HEAD = 47                       # up to the body, its length included
    REAL_HEAD = 65
    MAGIC_0_HEAD = 9
    MAGIC_1_HEAD = 10
    CLIENT = 16

cdef enum:                               # the system code of JMQ
    COMPRESSED = 0x0001
    ORDERED = 0x0002
    CODEC_MASK = 0x0070
    ADDRESS = 0x0080
    VERSION = 0x0F00
    BATCH = 0x1000

cdef enum:                               # why an entry cannot be; entries.pyx has the words
    CUT_SHORT = 1
    SHORT
    NEGATIVE
    MAGIC
    CODEC
    KEY
    HEADERS
    BITS
    LAYOUT
    COUNT
    MEMBER
    SUM
    DEPTH
    NESTED

cdef struct Entry:                       # one message or wrapper; a field that its dress lacks stays zero
    const char* start
    int64_t size                         # all bytes of the entry
    const char* body
    int64_t body_size
    const char* key
    int64_t key_size
    const char* notes                    # JMQ: properties text; house: the headers behind their u32 length
    int64_t notes_size
    const char* extension
    int64_t extension_size
    const char* app
    int64_t app_size
    const char* client                   # 16 bytes, or NULL
    int64_t send_time
    int64_t sum                          # CRC-32 of the body as it stands; negative: not known
    int64_t count                        # messages; negative: known when opened
    int32_t store_time
    int32_t code                         # system code
    int32_t flag
    int32_t priority
    int dress
    int codec                            # of inflate.pxd
    bint batch                           # the body, made plain, is entries
    bint ordered
    bint exact                           # all lengths are written as they are

cdef inline uint16_t get_2(const char* p) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, p, 2)
    return swap_2(v)

cdef inline uint32_t get_4(const char* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return swap_4(v)

cdef inline uint64_t get_8(const char* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return swap_8(v)

cdef inline void put_2(char* p, uint16_t v) noexcept nogil:
    v = swap_2(v)
    memcpy(p, &v, 2)

cdef inline void put_4(char* p, uint32_t v) noexcept nogil:
    v = swap_4(v)
    memcpy(p, &v, 4)

cdef inline void put_8(char* p, uint64_t v) noexcept nogil:
    v = swap_8(v)
    memcpy(p, &v, 8)

cdef int take(int dress, const char* p, const char* end, Entry* e) noexcept nogil
cdef int take_member(Entry* outer, const char* p, const char* end, Entry* e) noexcept nogil
cdef int check(Entry* e) noexcept nogil
cdef str words(int reason)
