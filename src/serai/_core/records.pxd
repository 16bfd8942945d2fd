"""For the other compiled modules: the head of a record, and the entries of the record index."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

cdef enum:
    HEAD = 72            # bytes in front of a record's messages
    RECORD = 32          # bytes of a record index entry
    SUMMED = 8           # the checksum is over everything from here on
    VERSION_1 = 1
    LAST = 1             # flag: the last part of what one request brought
    WRAPPED = 2          # flag: an entry holds several messages, or is compressed
    PAD = 0xFFFFFFFF     # in place of a length: go on at the next page

cdef packed struct Head:
    uint32_t length      # of the whole record
    uint32_t sum         # CRC-32C of all that follows, begun with the log's identity
    uint8_t version      # of this head
    uint8_t dress        # what kind of messages follow
    uint16_t flags       # see the numbers below
    uint32_t count       # messages
    int64_t ordinal      # of the first message
    int64_t place        # Jafka's byte offset of the first
    uint32_t place_length  # bytes a Jafka client sees of these messages
    uint32_t epoch       # of the owner that wrote it
    int64_t time         # store time, ms
    uint64_t producer    # the sender's number, 0 is none
    uint32_t sequence    # what the sender counts
    uint32_t part        # number of this part of what one request brought
    uint64_t transaction  # it was copied from, 0 is none

cdef packed struct Record:
    int64_t ordinal      # of the record's first message
    int64_t place        # of the same
    int64_t begin        # data offset of the head
    int64_t time         # store time, ms
