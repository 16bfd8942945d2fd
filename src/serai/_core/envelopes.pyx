# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Columns as a set of house messages: the way back from `columns`.

    values, ends    bodies, one behind the other, and int32s that say where each ends
    keys ...        the same, with a bit for each row that has a key
    notes ...       header blocks as a house message has them (count u16, names, values); an empty one is none
    times           int64 milliseconds, the send time

`rows` picks rows and gives their order, as int32s; without it all are taken.  `spread` says which of so many
partitions a key belongs to.

Invariant: what comes out is a valid set; sizes are added up before a byte is written.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from serai._core.crc cimport crc32c
from serai._core.entries cimport HEADERS_BIT, HOUSE_HEAD, KEY_BIT

cdef enum:
    SET_MAX = 0x7FFFFFFF
    KEY_MAX = 0xFFFF
    VIEWS = 10                               # the most buffers of a call


cdef struct Texts:                           # one column
    const char* base
    const int32_t* ends
    const uint8_t* bits                      # NULL: every row has one
    int64_t shift                            # of the first row's bit
    int64_t count


@cython.final
cdef class Held:
    """The buffers of a call, let go together."""
    cdef Py_buffer* views
    cdef int count

    def __cinit__(self):
        self.views = <Py_buffer*>calloc(VIEWS, sizeof(Py_buffer))
        if self.views == NULL:
            raise MemoryError

    cdef Py_buffer* hold(self, data) except NULL:
        cdef Py_buffer* view = &self.views[self.count]
        PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
        self.count += 1
        return view

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])
        free(self.views)

    cdef int column(self, Texts* texts, data, ends, bits, int64_t shift) except -1:
        """A column whose ends lie within its bytes."""
        cdef Py_buffer* body = self.hold(data)
        cdef Py_buffer* stops = self.hold(ends)
        cdef int64_t i
        texts.base = <const char*>body.buf
        texts.ends = <const int32_t*>stops.buf
        texts.count = stops.len // 4 - 1
        texts.bits = NULL
        texts.shift = shift
        if bits is not None:
            texts.bits = <const uint8_t*>self.hold(bits).buf
        if texts.count < 0 or texts.ends[0] < 0 or texts.ends[texts.count] > body.len:
            raise ValueError("a column has an end for each row, within its bytes")
        for i in range(texts.count):
            if texts.ends[i] > texts.ends[i + 1]:
                raise ValueError(f"row {i} ends before it begins")
        return 0


cdef inline int64_t size_of(const Texts* texts, int64_t row) noexcept nogil:
    """Bytes of a row, -1 when it has none."""
    cdef int64_t bit = row + texts.shift
    if texts.bits != NULL and not texts.bits[bit >> 3] >> (bit & 7) & 1:
        return -1
    return texts.ends[row + 1] - texts.ends[row]


cdef struct Frame:                           # what a set is made of
    Texts values
    Texts keys
    Texts notes
    const int64_t* times
    bint with_keys
    bint with_notes


cdef inline int64_t message_size(const Frame* f, int64_t row) noexcept nogil:
    cdef int64_t size = HOUSE_HEAD + size_of(&f.values, row), n
    if f.with_keys and size_of(&f.keys, row) > 0:
        size += 2 + size_of(&f.keys, row)
    if f.with_notes and size_of(&f.notes, row) > 0:
        size += 4 + size_of(&f.notes, row)
    return size


cdef char* put_message(const Frame* f, int64_t row, char* to) noexcept nogil:
    cdef uint32_t length = <uint32_t>message_size(f, row), notes
    cdef uint16_t key
    cdef int64_t n = size_of(&f.values, row)
    cdef char* head = to
    memset(head, 0, HOUSE_HEAD)
    memcpy(head, &length, 4)
    if f.times != NULL:
        memcpy(head + 8, &f.times[row], 8)
    to += HOUSE_HEAD
    if f.with_keys and size_of(&f.keys, row) > 0:
        head[4] |= KEY_BIT
        key = <uint16_t>size_of(&f.keys, row)
        memcpy(to, &key, 2)
        memcpy(to + 2, f.keys.base + f.keys.ends[row], key)
        to += 2 + key
    if f.with_notes and size_of(&f.notes, row) > 0:
        head[4] |= HEADERS_BIT
        notes = <uint32_t>size_of(&f.notes, row)
        memcpy(to, &notes, 4)
        memcpy(to + 4, f.notes.base + f.notes.ends[row], notes)
        to += 4 + notes
    memcpy(to, f.values.base + f.values.ends[row], n)
    return to + n


cdef int64_t measure(const Frame* f, const int32_t* rows, int64_t count) except -1:
    """Bytes of the set; refuses rows that cannot be."""
    cdef int64_t i, row, total = 0
    for i in range(count):
        row = rows[i] if rows != NULL else i
        if not 0 <= row < f.values.count:
            raise IndexError(f"row {row} of {f.values.count}")
        if f.with_keys and size_of(&f.keys, row) > KEY_MAX:
            raise ValueError(f"the key of row {row} has {size_of(&f.keys, row)} bytes; a key has at most {KEY_MAX}")
        total += message_size(f, row)
        if total > SET_MAX:
            raise ValueError(f"these {count} messages are more than {SET_MAX} bytes; write fewer at once")
    return total


def envelopes(values, ends, *, rows=None, keys=None, key_ends=None, key_bits=None, int64_t key_shift=0, notes=None,
              note_ends=None, times=None):
    """The set of house messages of these columns."""
    cdef Frame f
    cdef Held held = Held()
    cdef Py_buffer* view
    cdef const int32_t* chosen = NULL
    cdef int64_t count, i, total
    cdef bytes whole
    cdef char* to
    memset(&f, 0, sizeof(Frame))
    held.column(&f.values, values, ends, None, 0)
    f.with_keys, f.with_notes = keys is not None, notes is not None
    if f.with_keys:
        held.column(&f.keys, keys, key_ends, key_bits, key_shift)
    if f.with_notes:
        held.column(&f.notes, notes, note_ends, None, 0)
    count = f.values.count
    if (f.with_keys and f.keys.count != count) or (f.with_notes and f.notes.count != count):
        raise ValueError("columns of one set have the same number of rows")
    if times is not None:
        view = held.hold(times)
        if view.len != 8 * count:
            raise ValueError(f"{count} rows have {count} times, not {view.len // 8}")
        f.times = <const int64_t*>view.buf
    if rows is not None:
        view = held.hold(rows)
        chosen = <const int32_t*>view.buf
        count = view.len // 4
    total = measure(&f, chosen, count)
    whole = PyBytes_FromStringAndSize(NULL, total)
    to = PyBytes_AS_STRING(whole)
    with nogil:
        for i in range(count):
            to = put_message(&f, chosen[i] if chosen != NULL else i, to)
    return whole


def spread(keys, key_ends, *, key_bits=None, int64_t key_shift=0, int32_t partitions, int32_t keyless):
    """For each key the partition it belongs to, as int32s in bytes; rows without a key go to `keyless`."""
    cdef Texts texts
    cdef Held held = Held()
    cdef bytes whole
    cdef int32_t* to
    cdef int64_t i, size
    if partitions < 1:
        raise ValueError(f"there is at least one partition, not {partitions}")
    held.column(&texts, keys, key_ends, key_bits, key_shift)
    whole = PyBytes_FromStringAndSize(NULL, 4 * texts.count)
    to = <int32_t*>PyBytes_AS_STRING(whole)
    with nogil:
        for i in range(texts.count):
            size = size_of(&texts, i)
            to[i] = keyless if size <= 0 else <int32_t>(crc32c(0, texts.base + texts.ends[i], size) % <uint32_t>partitions)
    return whole
