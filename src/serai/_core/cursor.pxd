from libc.stdint cimport int64_t, uint32_t, uint64_t

from serai._core.pages cimport Page

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
