# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""The reader: messages one by one, as tuples, as bytes, or as batches.

All four shapes move the one cursor of `pages.Cursor`, so they can take turns on the same reader.  A
batch is zero-copy while messages lie behind each other on one page; a message over a page end, and the
messages of several producers, are copied together.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t, uint64_t


from serai._core.arrow cimport Batch
from serai._core.crc cimport crc32c
from serai._core.pack cimport Message
from serai._core.cursor cimport Cursor, View
from serai._core.pages cimport SLOT, place_sum
from serai._core.values cimport FIELDS_MAX, kind_of, take_value

cdef enum:
    BATCH_MAX = 0x7FFFFFFF
    MANY = 1 << 16                   # messages of several producers that one batch takes at most


@cython.final
cdef class Reader(Cursor):
    """Reads a queue from any offset; an iterator that ends at the tail and can be taken up again.

    One reader belongs to one thread.  The message it gives is one view, valid until the next call.
    """
    cdef Message message
    cdef object __weakref__

    def __cinit__(self, supply, *, offset, known, shared, summed, checked, bint java):
        self.message = Message(java)
        self.view = self.message

    def __iter__(self):
        return self

    def __next__(self):
        if self.step():
            return self.message
        raise StopIteration

    def next(self):
        """The next message, or None when there is none yet.  Never waits."""
        return self.message if self.step() else None

    def set_offset(self, int64_t offset):
        """Reads the message at `offset` (None when there is none); the one after it comes next."""
        if offset < 0:
            return None
        self.seek(offset)
        return self.message if self.step() else None

    def last(self):
        """The newest message, or None in an empty queue; what comes after it is read next."""
        cdef int64_t offset = self.supply.last()
        if offset > self.known:
            self.known = offset
        return self.set_offset(offset)

    def payloads(self):
        """An iterator over the bytes of each message, up to the tail."""
        return Payloads(self)

    def rows(self, *kinds):
        """An iterator over tuples: the values of each message, read as these kinds."""
        return Rows(self, kinds)

    def read_batch(self, int64_t max_bytes=1 << 20):
        """Messages up to `max_bytes` together, at least one if there is one; empty at the tail."""
        cdef Py_ssize_t more
        cdef View view = self.view
        if max_bytes < 1:
            raise ValueError(f"a batch has at least one byte, not {max_bytes}")
        if max_bytes > BATCH_MAX:
            max_bytes = BATCH_MAX
        if self.shared:
            return self.gathered(max_bytes)
        if not self.step():
            return Batch.make(self.offset, 0, "", None, b"\0\0\0\0", None)
        more = self.run_on(max_bytes - view.size)
        return self.adjacent(more)

    cdef Batch adjacent(self, Py_ssize_t more):
        """The current message and the `more` ones behind it, where they lie."""
        cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (more + 2))
        cdef int32_t* end = <int32_t*>PyBytes_AS_STRING(ends)
        cdef View view = self.view
        cdef char* slot = self.slot
        cdef int64_t first = view.offset
        cdef Py_ssize_t i
        cdef int32_t total = <int32_t>view.size
        end[0] = 0
        end[1] = total
        for i in range(more):
            if self.summed and not self.sound(slot, first + (i + 1) * SLOT, view.base + total):
                more = i                     # the next step says what is wrong with it
                break
            total += (<int32_t*>(slot + 8))[0]
            end[i + 2] = total
            slot += SLOT
        self.forward(more)
        return Batch.make(first, more + 1, view.base, view.owner, ends, None)

    cdef bint sound(self, const char* slot, int64_t offset, const char* body):
        """Whether an entry's 24-bit checksum fits its bytes."""
        cdef uint64_t stamp = (<const uint64_t*>slot)[1]
        cdef uint64_t want = (stamp >> 32) & 0xFFFFFF
        cdef int32_t size = <int32_t>stamp
        return want == 0 or place_sum(crc32c(0, body, size), offset, (<const int64_t*>slot)[0], size) == want

    cdef Batch gathered(self, int64_t max_bytes):
        """Messages of several producers, copied together in their order."""
        cdef list bodies = []
        cdef list places = []
        cdef int64_t total = 0, size
        cdef View view = self.view
        while len(bodies) < MANY:
            if bodies:
                size = self.peek()
                if size < 0 or total + size > max_bytes:
                    break
            try:
                if not self.step():
                    break
            except BaseException:
                if not bodies:
                    raise
                self.seek(view.offset)       # said by the next call; this one gives what it has
                break
            bodies.append(PyBytes_FromStringAndSize(view.base, view.size))
            places.append(view.offset)
            total += view.size
        return joined(bodies, places)

    def close(self):
        """Ends the reader; the last message and all batches stay valid."""
        self.shut()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


cdef Batch joined(list bodies, list places):
    cdef bytes whole = b"".join(bodies)
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * (len(bodies) + 1))
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, 8 * len(bodies))
    cdef int32_t* end = <int32_t*>PyBytes_AS_STRING(ends)
    cdef int64_t* offset = <int64_t*>PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t i
    end[0] = 0
    for i in range(len(bodies)):
        end[i + 1] = end[i] + <int32_t>len(bodies[i])
        offset[i] = places[i]
    return Batch.make(places[0] if places else 0, len(bodies), PyBytes_AS_STRING(whole), whole, ends, offsets)


@cython.final
cdef class Payloads:
    """The bytes of one message after the other."""
    cdef Reader reader

    def __cinit__(self, Reader reader not None):
        self.reader = reader

    def __iter__(self):
        return self

    def __next__(self):
        cdef Reader reader = self.reader
        if reader.step():
            return PyBytes_FromStringAndSize(reader.view.base, reader.view.size)
        raise StopIteration


@cython.final
cdef class Rows:
    """The values of one message after the other, as tuples."""
    cdef Reader reader
    cdef int[FIELDS_MAX] kinds
    cdef int count

    def __cinit__(self, Reader reader not None, kinds):
        if len(kinds) > FIELDS_MAX:
            raise ValueError(f"a row has at most {FIELDS_MAX} fields, not {len(kinds)}")
        self.reader = reader
        self.count = len(kinds)
        for i, kind in enumerate(kinds):
            self.kinds[i] = kind_of(kind, i == self.count - 1)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Reader reader = self.reader
        cdef View view = reader.view
        cdef bint java = reader.message.java
        cdef tuple row
        cdef int i
        if not reader.step():
            raise StopIteration
        row = PyTuple_New(self.count)
        for i in range(self.count):
            value = take_value(view, self.kinds[i], java)
            Py_INCREF(value)
            PyTuple_SET_ITEM(row, i, value)
        return row
