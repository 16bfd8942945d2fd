from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "atomics.h" nogil:
    uint64_t load_acquire(const void* p)
    void store_release(void* p, uint64_t value)
    void store_flag(void* p, uint8_t value)
    int claim_zero(void* p, uint64_t value)
    void touch(void* p)
    void relax()

cdef enum:
    SLOT = 16          # bytes of an index entry
    FLAG = 0x7F        # end flag of a published entry

cdef uint32_t place_sum(uint32_t crc, int64_t offset, int64_t begin, int64_t size) noexcept nogil

cdef class Page:
    cdef char* base
    cdef readonly Py_ssize_t length
    cdef readonly bint writable
    cdef bint shared

cdef class Appender:
    cdef object supply                       # the log's side: data(), slots(), close(), force()
    cdef readonly int64_t page_bytes
    cdef int64_t mask
    cdef Page data_page                      # the page under the data cursor; None before the first byte
    cdef char* base
    cdef char* at
    cdef char* stop                          # end of what is reserved here
    cdef int64_t base_offset                 # data offset of `base`
    cdef int64_t begin                       # data offset of the open message, or of the next one
    cdef Page slot_page
    cdef char* slot
    cdef int64_t slot_offset, slot_stop      # next entry; entries below slot_stop may be published
    cdef int64_t* state                      # the three numbers of the .qm file; NULL in a single queue
    cdef int state_turn                      # which of the two ends the next message writes
    cdef Page state_page
    cdef uint64_t stamp_bits                 # flag and name as they stand in every stamp
    cdef readonly bint summed                # index24 checksums are written
    cdef uint32_t sum                        # checksum over the finished pages of the open message
    cdef char* sum_at
    cdef bint open                           # a message was begun
    cdef bint busy                           # inside a call of the log: a second thread must not enter

    cdef inline int64_t tell(self) noexcept:
        return self.base_offset + (self.at - self.base)
    cdef int alone(self) except -1
    cdef int start(self) except -1
    cdef int more(self, int64_t need) except -1
    cdef int more_slots(self) except -1
    cdef int put_over(self, const char* p, Py_ssize_t n) except -1
    cdef inline int put(self, const char* p, Py_ssize_t n) except -1:
        if n <= self.stop - self.at:
            memcpy(self.at, p, n)
            self.at += n
            return 0
        return self.put_over(p, n)
    cdef int rollback(self) except -1
    cdef int abandon(self) except -1
    cdef int64_t publish(self) except -1
    cdef int64_t publish_shared(self, int64_t size) except -1
    cdef uint32_t total(self, int64_t size)
    cdef int64_t append_bytes(self, const char* p, Py_ssize_t n) except -1
    cdef int64_t append_slow(self, const char* p, Py_ssize_t n) except -1
    cdef Py_ssize_t append_run(self, const char* p, const int32_t* ends, Py_ssize_t n) except -1
