"""For the other compiled modules: the walk over a set of messages, with a visit of each."""

from libc.stdint cimport int32_t, int64_t

from serai._core.entries cimport Entry

ctypedef int (*Visit)(void* self, Entry* message) except -1 nogil

cdef struct Walk:
    int dress
    bint sums                            # compare checksums, look into headers
    bint opening                         # open wrappers even if their head says the count
    bint keeping                         # visit compressed single messages as they are
    int64_t magic_head                   # bytes that the Jafka door puts in front of a payload
    int64_t inflated_left
    int depth_max
    int64_t entries_max                  # negative: all
    Visit visit                          # called for every message, members one by one; or NULL
    void* self
    int64_t origin                       # where the set starts in the data, for `top`
    int64_t top                          # where the entry under the walk starts
    int64_t messages
    int64_t entries
    int64_t bytes
    int64_t jafka_bytes
    int64_t largest
    bint wrapped
    bint exact
    bint listing                         # keep starts and counts
    int32_t* slots                       # pairs: where it starts, its messages; negative: so many like entries of one each
    int64_t listed                       # pairs that are used
    int64_t room

cdef bytes column(Walk* w, int which)
cdef int refuse(Walk* w, int64_t at, int reason, int depth) except -1 nogil
cdef int walk(Walk* w, const char* base, const char* end) except -1 nogil
cdef int prepare(Walk* w, Py_buffer* view, int dress, int64_t inflated_max, int depth_max) except -1
