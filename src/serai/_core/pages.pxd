from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

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

cdef class Page:
    cdef char* base
    cdef readonly Py_ssize_t length
    cdef readonly bint writable

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

cdef class View:
    cdef const char* base
    cdef const char* at
    cdef const char* end
    cdef object owner                        # keeps the bytes alive: a Page or a bytes object
    cdef readonly int64_t offset, begin
    cdef readonly int64_t size
    cdef uint32_t name
    cdef void clear(self) noexcept

cdef class Window:
    cdef Page page
    cdef char* base                          # address of the byte at `lo`
    cdef int64_t lo, hi                      # stream offsets that may be read through it
    cdef int64_t number

cdef class Lane:
    cdef object fetch
    cdef uint32_t name
    cdef int64_t mask
    cdef int shift
    cdef Page page
    cdef char* base
    cdef int64_t lo, hi                      # stream offsets of the current window
    cdef list table
    cdef char* locate(self, int64_t offset, int64_t size) except? NULL
    cdef bytes gather(self, int64_t offset, int64_t size)

cdef class Cursor:
    cdef object supply
    cdef View view
    cdef readonly int64_t offset
    cdef int64_t known                       # entries below are published, the one at `known` may be looked at
    cdef Lane slots
    cdef Lane lane
    cdef list lanes
    cdef Page slot_page
    cdef char* slot
    cdef char* slot_end
    cdef int64_t mask                        # page size - 1; -1 while nobody knows it
    cdef readonly bint shared, summed, checked
    cdef bint closed
    cdef bint measure(self) except -1
    cdef int turn(self) except -1
    cdef int step(self) except -1
    cdef int unready(self, uint64_t stamp) except -1
    cdef int place(self, Lane lane, int64_t begin, int64_t size) except -1
    cdef int check_sum(self, uint64_t stamp) except -1
    cdef Lane lane_of(self, uint32_t name)
    cdef int damaged(self, int64_t size, str text) except -1
    cdef Py_ssize_t run_on(self, int64_t room) except -1
    cdef int64_t peek(self) except -2
    cdef void forward(self, Py_ssize_t count) noexcept

from libc.string cimport memcpy
