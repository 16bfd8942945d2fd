from libc.stdint cimport int64_t

cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data

cdef class Source:
    cdef object capsules
    cdef ArrowArrayStream* stream
    cdef ArrowSchema own_schema
    cdef ArrowArray own_array
    cdef ArrowSchema* schema
    cdef ArrowArray* array
    cdef bint done
    cdef bint step(self) except -1

cdef class Batch:
    cdef readonly int64_t first_offset
    cdef Py_ssize_t count
    cdef const char* base
    cdef object owner
    cdef bytes ends                  # int32[count + 1], ends[0] = 0
    cdef bytes places                # int64[count], offsets of the messages; None: 16 apart
    @staticmethod
    cdef Batch make(int64_t first_offset, Py_ssize_t count, const char* base, object owner, bytes ends, bytes places)
    cdef bytes offset_bytes(self)
