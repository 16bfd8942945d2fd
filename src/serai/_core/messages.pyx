# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Messages in the four dresses a partition keeps: walked, counted, validated and cut where they lie.

    [entry][entry] ...        an entry is a message or a wrapper: a batch, or compressed, or both; `entries`
                              knows their bytes

Invariants
- an error names the byte and the reason; nothing is returned for a part of a bad set, but a Jafka set may end
  inside an entry if a whole one stands before it
- what a wrapper holds is inflated within the caller's limit, counted over the whole call, and nesting has a depth

Left to others: which limits are right (the caller), other dresses (`dress`), codecs (`inflate`).
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from serai._core.entries cimport COUNT, CUT_SHORT, DEPTH, HOUSE, JAFKA, MAGIC_0_HEAD, ORDERED_BIT, SEED, SUM
from serai._core.entries cimport Entry, check, get_2, get_4, take, take_member, words
from serai._core.inflate cimport PLAIN, inflated

from collections import namedtuple

cdef enum:
    INT32_MAX = 0x7FFFFFFF
    DEPTH_LIMIT = 64                     # each level is some hundred bytes of C stack


# ---- wrappers --------------------------------------------------------------------------------------------

cdef int64_t members(Walk* w, Entry* outer, const char* base, int64_t size, int depth) except -1 nogil:
    """Visits what a wrapper holds, made plain; how many messages it is."""
    cdef const char* p = base
    cdef const char* end = base + size
    cdef Entry e
    cdef int64_t messages = 0
    cdef int reason
    if not outer.batch:
        e = outer[0]
        e.codec = PLAIN
        e.body = base
        e.body_size = size
        e.sum = -1
        return message(w, &e, depth)
    memset(&e, 0, sizeof(Entry))
    if outer.dress == SEED:                      # only the seed's batch says its length and count once more
        if size < 6 or get_4(p) != size or get_2(p + 4) != outer.count:
            refuse(w, 0, COUNT, depth)
        p += 6
    while p < end:
        reason = take_member(outer, p, end, &e)
        if reason:
            if outer.dress == JAFKA and reason == CUT_SHORT and (p > base or end - p < 4):
                break
            refuse(w, p - base, reason, depth)
        if w.sums:
            reason = check(&e)
            if reason:
                refuse(w, p - base, reason, depth)
        messages += message(w, &e, depth)
        p += e.size
        if 0 <= outer.count < messages:
            break
    if 0 <= outer.count and (messages != outer.count or p != end):
        refuse(w, p - base, COUNT, depth)
    return messages


cdef int64_t message(Walk* w, Entry* e, int depth) except -1 nogil:
    """Visits the messages of one entry; how many there are."""
    if e.codec or e.batch:
        w.wrapped = True
        if not w.opening and e.count >= 0:
            return e.count
        if w.keeping and not e.batch:
            w.visit(w.self, e)
            return 1
        if depth == w.depth_max:
            refuse(w, 0, DEPTH, depth)
        if e.codec:
            return unfolded(w, e, depth + 1)
        return members(w, e, e.body, e.body_size, depth + 1)
    w.jafka_bytes += w.magic_head + e.body_size
    if w.visit != NULL:
        w.visit(w.self, e)
    return 1


cdef int64_t unfolded(Walk* w, Entry* e, int depth) except -1 with gil:
    """As `members`, of a compressed body."""
    cdef bytes content
    cdef const char* p
    cdef int64_t size, messages
    try:
        content = inflated(e.body, e.body_size, e.codec, w.inflated_left)
    except ValueError as error:
        raise ValueError(f"byte {w.top}: {error}") from None
    size = len(content)
    w.inflated_left -= size
    p = PyBytes_AS_STRING(content)
    with nogil:
        messages = members(w, e, p, size, depth)
    return messages


# ---- whole sets ------------------------------------------------------------------------------------------

class WrongSum(ValueError):
    """A checksum is not that of its body."""


cdef int refuse(Walk* w, int64_t at, int reason, int depth) except -1 with gil:
    kind = WrongSum if reason == SUM else ValueError
    if depth:
        raise kind(f"byte {w.top}: its wrapper, at byte {at}: {words(reason)}")
    raise kind(f"byte {w.top}: {words(reason)}")


cdef int keep_room(Walk* w) except -1 nogil:
    cdef int32_t* more
    w.room = w.room * 2 + 64
    more = <int32_t*>realloc(w.slots, w.room * 8)
    if more == NULL:
        with gil:
            raise MemoryError
    w.slots = more
    return 0


cdef int keep_slot(Walk* w, int64_t start, int64_t count) except -1 nogil:
    """Notes where an entry starts and what it counts."""
    if w.listed >= w.room:
        keep_room(w)
    w.slots[2 * w.listed] = <int32_t>start
    w.slots[2 * w.listed + 1] = <int32_t>count
    w.listed += 1
    return 0


cdef int64_t alike(const char* p, const char* end, int64_t size) noexcept nogil:
    """How many entries behind the plain house message at p have its length and attributes.

    Loads at known distances do not wait for each other, so a run of like messages takes a tenth of the time of
    reading each length in turn (benchmarks/messages.py).
    """
    cdef uint64_t mask = 0xFFFFFFFFFF, want, found
    cdef int64_t count = 0
    memcpy(&want, p, 8)
    p += size
    while end - p >= size:
        memcpy(&found, p, 8)
        if (found ^ want) & mask:
            break
        p += size
        count += 1
    return count


cdef int64_t take_run(Walk* w, const char* p, const char* end, Entry* e) except -1 nogil:
    """Counts the run of like plain messages behind the one at p; how many it is."""
    cdef int64_t count = alike(p, end, e.size)
    if w.entries_max >= 0 and count > w.entries_max - w.entries:
        count = w.entries_max - w.entries
    if w.listing and count:
        w.slots[2 * w.listed - 1] = <int32_t>(-1 - count)
    w.jafka_bytes += count * (w.magic_head + e.body_size)
    w.messages += count
    w.entries += count
    return count


cdef int walk(Walk* w, const char* base, const char* end) except -1 nogil:
    """Goes over the whole entries, as the walk's flags say, and adds up."""
    cdef const char* p = base
    cdef Entry e
    cdef int64_t messages
    cdef int reason
    memset(&e, 0, sizeof(Entry))
    w.exact = True
    while p < end and w.entries != w.entries_max:
        w.top = w.origin + (p - base)
        reason = take(w.dress, p, end, &e)
        if reason:
            if w.dress == JAFKA and reason == CUT_SHORT and (w.entries or end - p < 4):
                break
            refuse(w, 0, reason, 0)
        if w.sums:
            reason = check(&e)
            if reason:
                refuse(w, 0, reason, 0)
        messages = message(w, &e, 0)
        if w.listing:
            keep_slot(w, p - base, messages)
        if not e.exact:
            w.exact = False
        if e.body_size > w.largest:
            w.largest = e.body_size
        w.messages += messages
        w.entries += 1
        if w.dress == HOUSE and w.visit == NULL and p[4] & ~ORDERED_BIT == 0:
            p += e.size * take_run(w, p, end, &e)
        p += e.size
    w.bytes = p - base
    if w.dress == JAFKA:
        w.jafka_bytes = w.bytes
    return 0


cdef bytes column(Walk* w, int which):
    """The starts (0) or the counts (1) as int32s in bytes."""
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, w.entries * 4)
    cdef int32_t* to = <int32_t*>PyBytes_AS_STRING(whole)
    cdef int64_t i, n, start, stop, count
    for i in range(w.listed):
        start, count = w.slots[2 * i], w.slots[2 * i + 1]
        if count >= 0:
            to[0] = <int32_t>(count if which else start)
            to += 1
            continue
        stop = w.slots[2 * i + 2] if i + 1 < w.listed else w.bytes
        for n in range(-count):
            to[n] = <int32_t>(1 if which else start + n * ((stop - start) // -count))
        to -= count
    return whole


cdef int prepare(Walk* w, Py_buffer* view, int dress, int64_t inflated_max, int depth_max) except -1:
    memset(w, 0, sizeof(Walk))
    if not HOUSE <= dress <= JAFKA:
        raise ValueError(f"dress must be 1 to 4, not {dress}")
    if view.len > INT32_MAX:
        raise ValueError(f"a set must be smaller than 2 GiB, not {view.len} bytes")
    if not 0 <= depth_max <= DEPTH_LIMIT:
        raise ValueError(f"depth_max must be 0 to {DEPTH_LIMIT}, not {depth_max}")
    w.dress = dress
    w.inflated_left = inflated_max
    w.depth_max = depth_max
    w.entries_max = -1
    return 0


@cython.final
cdef class Census:
    """What a set of messages holds; `census` makes it.

    `size`: bytes of the whole entries.  `exact`: all lengths are written as they are, so the bytes can be kept
    untouched.  `wrapped`: an entry is compressed or a batch.  `largest`: bytes of the largest body at the top.
    `starts` and `counts`: int32s, for each entry where it starts (from `start` on) and how many messages it is.
    """
    cdef readonly int64_t messages, entries, size, jafka_bytes, largest
    cdef readonly bint wrapped, exact
    cdef readonly object starts, counts

    def __repr__(self):
        return f"Census(messages={self.messages}, entries={self.entries}, size={self.size})"


def census(data, int dress, *, int64_t inflated_max, int depth_max, int jafka_magic=1, int64_t start=0,
           int64_t entries_max=-1):
    """Validates a whole set to its depth and counts it; ValueError says which byte is wrong, and why.

    jafka_bytes is the sum of 4 + length of the entries as the Jafka door shows them, magic `jafka_magic` for
    messages of the other dresses.  With entries_max it stops there, and `size` says where.
    """
    cdef Py_buffer view
    cdef Walk w
    cdef const char* base
    cdef const char* end
    cdef Census c = Census.__new__(Census)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    w.slots = NULL
    try:
        prepare(&w, &view, dress, inflated_max, depth_max)
        if not 0 <= start <= view.len or not 0 <= jafka_magic <= 1:
            raise ValueError(f"start must be within the data, jafka_magic 0 or 1; not {start} and {jafka_magic}")
        w.sums = w.opening = w.listing = True
        w.magic_head = MAGIC_0_HEAD + jafka_magic
        w.entries_max = entries_max
        w.origin = start
        base = <const char*>view.buf + start
        end = <const char*>view.buf + view.len
        with nogil:
            walk(&w, base, end)
        c.messages, c.entries, c.size, c.jafka_bytes = w.messages, w.entries, w.bytes, w.jafka_bytes
        c.largest, c.wrapped, c.exact = w.largest, w.wrapped, w.exact
        c.starts = column(&w, 0)
        c.counts = column(&w, 1)
        return c
    finally:
        free(w.slots)
        PyBuffer_Release(&view)


def layout(data, int dress, *, int64_t inflated_max, int depth_max):
    """Starts and counts of the entries, as `Census` has them, of bytes that were validated before."""
    cdef Py_buffer view
    cdef Walk w
    cdef const char* base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    w.slots = NULL
    try:
        prepare(&w, &view, dress, inflated_max, depth_max)
        w.listing = True
        base = <const char*>view.buf
        with nogil:
            walk(&w, base, base + view.len)
        return column(&w, 0), column(&w, 1)
    finally:
        free(w.slots)
        PyBuffer_Release(&view)


# ---- cutting ---------------------------------------------------------------------------------------------

Cut = namedtuple("Cut", "start stop entries messages lead", module="serai._core.messages")


cdef struct Piece:
    int64_t skip
    int64_t bytes_max
    int64_t messages_max
    int64_t start
    int64_t stop
    int64_t entries
    int64_t messages
    int64_t lead


cdef int cut_out(Walk* w, const char* base, const char* end, Piece* c) except -1 nogil:
    cdef const char* p = base
    cdef Entry e
    cdef int64_t messages, skip = c.skip
    cdef int reason
    memset(&e, 0, sizeof(Entry))
    while p < end:
        w.top = w.origin + (p - base)
        reason = take(w.dress, p, end, &e)
        if reason:
            if w.dress == JAFKA and reason == CUT_SHORT and (p > base or end - p < 4):
                break
            refuse(w, 0, reason, 0)
        messages = message(w, &e, 0)
        if skip > 0 and skip >= messages:
            skip -= messages
            c.start = p + e.size - base
            c.stop = c.start
        else:
            if skip:
                c.lead = skip
                messages -= skip
                skip = 0
            if c.messages + messages > c.messages_max or c.stop + e.size - c.start > c.bytes_max:
                break
            c.messages += messages
            c.entries += 1
            c.stop = p + e.size - base
        p += e.size
    return 0


def cut(data, int dress, *, int64_t skip, int64_t bytes_max, int64_t messages_max, int64_t inflated_max,
        int depth_max):
    """The longest run of whole entries behind the first `skip` messages that is within both limits.

    A wrapper is not divided: if `skip` ends inside one, it is the first entry of the run, and `lead` says how many
    of its messages come before the one asked for; `messages` does not count those.  The run may be empty.
    """
    cdef Py_buffer view
    cdef Walk w
    cdef Piece c
    cdef const char* base
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        prepare(&w, &view, dress, inflated_max, depth_max)
        memset(&c, 0, sizeof(Piece))
        c.skip = skip
        c.bytes_max = bytes_max
        c.messages_max = messages_max
        base = <const char*>view.buf
        with nogil:
            cut_out(&w, base, base + view.len, &c)
        return Cut(c.start, c.stop, c.entries, c.messages, c.lead)
    finally:
        PyBuffer_Release(&view)
