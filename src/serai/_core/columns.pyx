# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Messages as columns: the buffers of Arrow arrays, filled without a Python object for a message.

    values    [body 0][body 1] ...       ends  0 ^ ^ ...    int32, one more than there are rows
    keys      [key 0][key 1] ...         key_ends, and key_bits: bit i says that row i has a key
    sends     int64                      send time in microseconds; send_bits as key_bits
    doors     int8                       the dress a message came in
    offsets, names   int64, int32        of a queue: the index entry, its producer
    headers   header_ends counts rows' headers; names and values are columns of their own

`Columns` takes messages from a queue's cursor (`take_from`) or from a set in one of the four dresses
(`unfold`), wrappers opened; of a set, only columns that were asked for are filled.  The bytes are copied once; where a run of messages can stay where it lies,
`Reader.read_batch` is the better way.  `fields` reads typed values, one list for each field.

Invariants
- all columns have the same number of rows after each call; after an error of `unfold` they are not to be used
- no column grows beyond 2 GiB: its ends are int32

Left to others: which limits are right, and making arrays of the buffers.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from serai._core.cursor cimport Cursor, View
from serai._core.dress import redress
from serai._core.entries cimport HOUSE, JAFKA, REAL, SEED, Entry
from serai._core.messages cimport Walk, prepare, walk
from serai._core.pack cimport Message
from serai._core.values cimport FIELDS_MAX, kind_of, take_value

cdef enum:
    COLUMN_MAX = 0x7FFFFFFF
    REDRESSED_MAX = 0x7FFFFFFF


@cython.final
cdef class Chunk:
    """Bytes that grow; others see them through the buffer protocol, and keep them alive."""
    cdef char* base
    cdef int64_t size
    cdef int64_t room

    def __dealloc__(self):
        free(self.base)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a column is read, not written")
        PyBuffer_FillInfo(view, self, self.base if self.base != NULL else <char*>"", self.size, 1, flags)

    cdef int grow(self, int64_t n) except -1 nogil:
        """Room for n bytes behind the last, and for more to come."""
        cdef int64_t room = self.room + (self.room >> 1) + 4096
        cdef char* bigger
        if room < self.size + n:
            room = self.size + n + 64
        bigger = <char*>realloc(self.base, room)
        if bigger == NULL:
            with gil:
                raise MemoryError
        self.base = bigger
        self.room = room
        return 0

    cdef inline int put(self, const void* p, int64_t n) except -1 nogil:
        if n > self.room - self.size:
            self.grow(n)
        memcpy(self.base + self.size, p, n)
        self.size += n
        return 0

    cdef inline int put_4(self, int32_t value) except -1 nogil:
        return self.put(&value, 4)

    cdef inline int put_8(self, int64_t value) except -1 nogil:
        return self.put(&value, 8)

    cdef inline int put_1(self, int8_t value) except -1 nogil:
        return self.put(&value, 1)

    cdef inline int put_text(self, Chunk ends, const char* p, int64_t n) except -1 nogil:
        """Bytes of one row and where they end."""
        if n > COLUMN_MAX - self.size:
            with gil:
                raise OverflowError(f"a column has at most {COLUMN_MAX} bytes; read fewer rows at once")
        if n:
            self.put(p, n)
        return ends.put_4(<int32_t>self.size)

    cdef inline int put_bit(self, int64_t row, bint value) except -1 nogil:
        if row & 7 == 0:
            self.put_1(0)
        if value:
            self.base[row >> 3] |= 1 << (row & 7)
        return 0


cdef int64_t TIME_MAX = 9223372036854775              # milliseconds that are microseconds too


cdef Chunk ends_chunk():
    cdef Chunk chunk = Chunk()
    chunk.put_4(0)
    return chunk


cdef struct Wish:                            # what a visit is told
    void* columns
    int64_t lead                             # messages to pass over
    int64_t left                             # messages to take
    int door


@cython.final
cdef class Columns:
    """Rows as they are gathered.  Arguments say which columns of a set are kept."""
    cdef readonly Chunk values, ends, keys, key_ends, key_bits, offsets, sends, send_bits, doors, names
    cdef readonly Chunk header_ends, header_names, header_name_ends, header_values, header_value_ends
    cdef readonly int64_t rows
    cdef bint with_values, with_keys, with_headers, with_sends, with_doors

    def __cinit__(self, *, bint values=True, bint keys=False, bint headers=False, bint sends=False, bint doors=False):
        self.with_values, self.with_keys, self.with_headers = values, keys, headers
        self.with_sends, self.with_doors = sends, doors
        self.values, self.ends = Chunk(), ends_chunk()
        self.offsets, self.names, self.doors = Chunk(), Chunk(), Chunk()
        self.sends, self.send_bits = Chunk(), Chunk()
        self.keys, self.key_ends, self.key_bits = Chunk(), ends_chunk(), Chunk()
        self.header_ends = ends_chunk()
        self.header_names, self.header_name_ends = Chunk(), ends_chunk()
        self.header_values, self.header_value_ends = Chunk(), ends_chunk()

    def __len__(self):
        return self.rows

    @property
    def nbytes(self):
        """Bytes of the values."""
        return self.values.size

    # ---- from a queue

    def take_from(self, Cursor cursor not None, *, int64_t stop, int64_t rows_max, int64_t bytes_max):
        """Messages from the cursor on, those with an offset below `stop`, within both limits; gives how many.

        At least one message is taken if there is one.  An error of the cursor comes out at once when it is
        the first thing that happens; else by the next call, and this one gives what it has.
        """
        cdef View view = cursor.view
        cdef int64_t size, taken = 0, start = self.values.size, at
        cdef int32_t name
        while taken < rows_max and cursor.offset < stop:
            if taken:
                size = cursor.peek()
                if size < 0 or self.values.size - start + size > bytes_max:
                    break
            at = cursor.offset
            try:
                if not cursor.step():
                    break
            except BaseException:
                if not taken:
                    raise
                cursor.seek(at)
                break
            self.values.put_text(self.ends, view.base, view.size)
            self.offsets.put_8(view.offset)
            name = <int32_t>view.name
            self.names.put_4(name)
            self.rows += 1
            taken += 1
        return taken

    # ---- from a set

    def unfold(self, data, int dress, *, int64_t lead, int64_t count, int64_t ordinal, int64_t inflated_max,
               int depth_max):
        """The messages of a set behind the first `lead`, `count` of them, opened; `ordinal` is for what goes wrong."""
        cdef Py_buffer view
        cdef Walk w
        cdef Wish wish
        cdef const char* base
        cdef int64_t before = self.rows
        cdef int door = dress
        if self.with_headers and (dress == SEED or dress == REAL):
            data = redress(data, dress, HOUSE, inflated_max=inflated_max, depth_max=depth_max, bytes_max=REDRESSED_MAX)
            dress = HOUSE
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            prepare(&w, &view, dress, inflated_max, depth_max)
            w.opening = True
            w.visit = visit
            w.self = &wish
            wish.columns = <void*>self
            wish.lead = lead
            wish.left = count
            wish.door = door
            base = <const char*>view.buf
            with nogil:
                walk(&w, base, base + view.len)
        finally:
            PyBuffer_Release(&view)
        if wish.left:
            raise ValueError(f"a set of {self.rows - before} messages was said to have {count}, from ordinal {ordinal} on")
        return self.rows - before

    cdef int add(self, Entry* e, const Wish* wish) except -1 nogil:
        cdef bint sent
        if self.with_values:
            self.values.put_text(self.ends, e.body, e.body_size)
        if self.with_keys:
            self.keys.put_text(self.key_ends, e.key, e.key_size)
            self.key_bits.put_bit(self.rows, e.key_size > 0)
        if self.with_sends:
            sent = wish.door != JAFKA and -TIME_MAX <= e.send_time <= TIME_MAX
            self.sends.put_8(e.send_time * 1000 if sent else 0)
            self.send_bits.put_bit(self.rows, sent)
        if self.with_doors:
            self.doors.put_1(<int8_t>wish.door)
        if self.with_headers:
            self.add_headers(e)
        self.rows += 1
        return 0

    cdef int add_headers(self, Entry* e) except -1 nogil:
        """Headers of a house message: count u16, then for each u16 length, name, u32 length, value."""
        cdef const char* p = e.notes
        cdef uint16_t left = 0, n
        cdef uint32_t m
        if e.dress == HOUSE and e.notes_size >= 2:
            memcpy(&left, p, 2)
            p += 2
        while left:
            memcpy(&n, p, 2)
            self.header_names.put_text(self.header_name_ends, p + 2, n)
            p += 2 + n
            memcpy(&m, p, 4)
            self.header_values.put_text(self.header_value_ends, p + 4, m)
            p += 4 + m
            left -= 1
        return self.header_ends.put_4(<int32_t>(self.header_value_ends.size // 4 - 1))


cdef int visit(void* told, Entry* e) except -1 nogil:
    cdef Wish* wish = <Wish*>told
    if wish.lead:
        wish.lead -= 1
        return 0
    if wish.left == 0:
        return 0
    (<Columns>wish.columns).add(e, wish)
    wish.left -= 1
    return 0


def fields(values, ends, kinds, *, bint java):
    """Typed values of each body: one list for each kind.  `ends` are int32s, one more than there are bodies.

    An error carries `row` and `field`, the numbers of the body and the kind it happened at; a body with
    bytes behind its last field is a ValueError.
    """
    cdef Py_buffer bodies, stops
    cdef Message m = Message(java)
    cdef const int32_t* end
    cdef int[FIELDS_MAX] kind
    cdef int i, count = len(kinds)
    cdef Py_ssize_t row
    cdef list columns
    if count > FIELDS_MAX:
        raise ValueError(f"a message has at most {FIELDS_MAX} fields, not {count}")
    for i in range(count):
        kind[i] = kind_of(kinds[i], i == count - 1)
    columns = [[] for _ in range(count)]
    PyObject_GetBuffer(values, &bodies, PyBUF_SIMPLE)
    PyObject_GetBuffer(ends, &stops, PyBUF_SIMPLE)
    row = i = 0
    try:
        end = <const int32_t*>stops.buf
        for row in range(stops.len // 4 - 1):
            if not 0 <= end[row] <= end[row + 1] <= bodies.len:
                raise IndexError(f"body {row} ends at {end[row + 1]} of {bodies.len} bytes")
            m.base = m.at = <const char*>bodies.buf + end[row]
            m.end = <const char*>bodies.buf + end[row + 1]
            m.size = end[row + 1] - end[row]
            m.offset = row
            for i in range(count):
                (<list>columns[i]).append(take_value(m, kind[i], java))
            if m.at != m.end:
                raise ValueError(f"{m.end - m.at} bytes are left behind the last field")
    except (EOFError, ValueError) as error:
        error.row, error.field = row, i
        raise
    finally:
        m.clear()
        PyBuffer_Release(&bodies)
        PyBuffer_Release(&stops)
    return columns
