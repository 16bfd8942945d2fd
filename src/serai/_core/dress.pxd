"""For the other compiled modules: what a JMQ server sets, written into entries that were validated."""

from libc.stdint cimport int64_t

cdef struct Server:                      # what the server says of messages of its own dress
    int64_t partition
    int64_t index                        # of the first message
    int64_t term
    int64_t store_time
    const char* client                   # IPv4: 6 bytes, IPv6: 16 to 18; size 0 keeps what is there
    int64_t client_size

cdef int patch_entries(char* base, const char* end, int dress, Server* server) except -1 nogil
