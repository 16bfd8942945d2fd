# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Batches of messages, and the Arrow C data interface on both sides of them.

A batch is a run of messages whose payloads lie one behind the other:

    base  [payload 0][payload 1][payload 2] ...      in the mapped page, or in a copy
    ends   0 ^        ^          ^                   int32, ends[i]..ends[i + 1] is message i

which is an Arrow binary array as it stands: nothing is copied, the exported array holds the page.
To Arrow a batch is struct<offset: int64, value: binary>; `values` is the binary column alone.
`Source` reads the other way: whatever speaks the PyCapsule interface, array or stream.

Invariants
- every exported structure owns what its pointers need and is released exactly once, by its consumer
- a capsule that was not consumed releases its structure when it dies
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset


from serai._core.pages cimport Page

cdef enum:
    MAX_BUFFERS = 3
    MAX_CHILDREN = 2
    EIO = 5

cdef struct Held:                        # what one exported structure owns
    PyObject* owner
    const void* buffers[MAX_BUFFERS]
    void* children[MAX_CHILDREN]


# ---- going out -------------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema* schema) noexcept with gil:
    cdef Held* held = <Held*>schema.private_data
    cdef ArrowSchema* child
    cdef int i
    for i in range(schema.n_children):
        child = <ArrowSchema*>held.children[i]
        if child.release != NULL:
            child.release(child)
        PyMem_RawFree(child)
    PyMem_RawFree(held)
    schema.release = NULL

cdef void release_array(ArrowArray* array) noexcept with gil:
    cdef Held* held = <Held*>array.private_data
    cdef ArrowArray* child
    cdef int i
    for i in range(array.n_children):
        child = <ArrowArray*>held.children[i]
        if child.release != NULL:
            child.release(child)
        PyMem_RawFree(child)
    if held.owner != NULL:
        Py_DECREF(<object>held.owner)
    PyMem_RawFree(held)
    array.release = NULL

cdef int fill_schema(ArrowSchema* schema, const char* format, const char* name, int children) except -1:
    cdef Held* held = <Held*>PyMem_RawCalloc(1, sizeof(Held))
    cdef int i
    if held == NULL:
        raise MemoryError
    memset(schema, 0, sizeof(ArrowSchema))
    schema.format = format
    schema.name = name
    schema.private_data = held
    schema.release = release_schema
    schema.n_children = children
    schema.children = <ArrowSchema**>held.children
    for i in range(children):
        held.children[i] = PyMem_RawCalloc(1, sizeof(ArrowSchema))
        if held.children[i] == NULL:
            schema.n_children = i
            raise MemoryError
    return 0

cdef int fill_array(ArrowArray* array, object owner, int64_t length, int buffers, int children) except -1:
    cdef Held* held = <Held*>PyMem_RawCalloc(1, sizeof(Held))
    cdef int i
    if held == NULL:
        raise MemoryError
    memset(array, 0, sizeof(ArrowArray))
    array.length = length
    array.n_buffers = buffers
    array.buffers = held.buffers
    array.private_data = held
    array.release = release_array
    Py_INCREF(owner)
    held.owner = <PyObject*>owner
    array.n_children = children
    array.children = <ArrowArray**>held.children
    for i in range(children):
        held.children[i] = PyMem_RawCalloc(1, sizeof(ArrowArray))
        if held.children[i] == NULL:
            array.n_children = i
            raise MemoryError
    return 0

cdef int fill_values(ArrowArray* array, Batch batch) except -1:
    fill_array(array, batch, batch.count, 3, 0)
    array.buffers[1] = PyBytes_AS_STRING(batch.ends)
    array.buffers[2] = batch.base
    return 0

cdef int fill_table(ArrowArray* array, Batch batch) except -1:
    cdef bytes offsets = batch.offset_bytes()
    fill_array(array, batch, batch.count, 1, 2)
    fill_array(array.children[0], offsets, batch.count, 2, 0)
    array.children[0].buffers[1] = PyBytes_AS_STRING(offsets)
    fill_values(array.children[1], batch)
    return 0

cdef int fill_table_schema(ArrowSchema* schema) except -1:
    fill_schema(schema, b"+s", b"", 2)
    fill_schema(schema.children[0], b"l", b"offset", 0)
    fill_schema(schema.children[1], b"z", b"value", 0)
    return 0

cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    PyMem_RawFree(schema)

cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    PyMem_RawFree(array)

cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    PyMem_RawFree(stream)

cdef void* room(size_t n) except NULL:
    cdef void* p = PyMem_RawCalloc(1, n)
    if p == NULL:
        raise MemoryError
    return p

cdef object schema_capsule(bint table):
    cdef ArrowSchema* schema = <ArrowSchema*>room(sizeof(ArrowSchema))
    capsule = PyCapsule_New(schema, "arrow_schema", drop_schema)
    if table:
        fill_table_schema(schema)
    else:
        fill_schema(schema, b"z", b"value", 0)
    return capsule

cdef object array_capsule(Batch batch, bint table):
    cdef ArrowArray* array = <ArrowArray*>room(sizeof(ArrowArray))
    capsule = PyCapsule_New(array, "arrow_array", drop_array)
    if table:
        fill_table(array, batch)
    else:
        fill_values(array, batch)
    return capsule

# A stream of one batch: its private data is the tuple (batch, as a table?, what is left to give).

cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    cdef tuple held = <tuple>stream.private_data
    try:
        if held[1]:
            fill_table_schema(out)
        else:
            fill_schema(out, b"z", b"value", 0)
    except BaseException:
        return EIO
    return 0

cdef int stream_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef tuple held = <tuple>stream.private_data
    cdef list left = held[2]
    memset(out, 0, sizeof(ArrowArray))
    if not left:
        return 0                             # a released array ends the stream
    try:
        left.pop()
        if held[1]:
            fill_table(out, <Batch>held[0])
        else:
            fill_values(out, <Batch>held[0])
    except BaseException:
        return EIO
    return 0

cdef const char* stream_error(ArrowArrayStream* stream) noexcept:
    return "out of memory"

cdef void stream_release(ArrowArrayStream* stream) noexcept with gil:
    Py_DECREF(<object>stream.private_data)
    stream.release = NULL

cdef object stream_capsule(Batch batch, bint table):
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>room(sizeof(ArrowArrayStream))
    capsule = PyCapsule_New(stream, "arrow_array_stream", drop_stream)
    held = (batch, table, [True] if batch.count else [])
    Py_INCREF(held)
    stream.private_data = <void*>held
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = stream_release
    return capsule


@cython.final
cdef class Values:
    """The payloads of a batch as one Arrow binary column."""
    cdef Batch batch

    def __cinit__(self, Batch batch not None):
        self.batch = batch

    def __len__(self):
        return self.batch.count

    def __arrow_c_schema__(self):
        return schema_capsule(False)

    def __arrow_c_array__(self, requested_schema=None):
        return schema_capsule(False), array_capsule(self.batch, False)

    def __arrow_c_stream__(self, requested_schema=None):
        return stream_capsule(self.batch, False)


@cython.final
cdef class Batch:
    """Messages read together: a sequence of memoryviews, and an Arrow table of offset and value.

    It holds the page its bytes lie in, so it stays valid for as long as it is kept.
    """
    @staticmethod
    cdef Batch make(int64_t first_offset, Py_ssize_t count, const char* base, object owner, bytes ends, bytes places):
        cdef Batch batch = Batch.__new__(Batch)
        batch.first_offset = first_offset
        batch.count = count
        batch.base = base
        batch.owner = owner
        batch.ends = ends
        batch.places = places
        return batch

    def __cinit__(self):
        self.base = ""
        self.ends = b"\0\0\0\0"

    cdef bytes offset_bytes(self):
        cdef bytes raw
        cdef int64_t* to
        cdef Py_ssize_t i
        if self.places is not None:
            return self.places
        raw = PyBytes_FromStringAndSize(NULL, self.count * 8)
        to = <int64_t*>PyBytes_AS_STRING(raw)
        for i in range(self.count):
            to[i] = self.first_offset + 16 * i
        return raw

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        return (<const int32_t*>PyBytes_AS_STRING(self.ends))[self.count]

    @property
    def offsets(self):
        """The offset of each message."""
        return memoryview(self.offset_bytes()).cast("q").tolist()

    @property
    def values(self):
        """The payloads as one Arrow binary column."""
        return Values(self)

    @property
    def data(self):
        """All payloads, one behind the other, where they lie."""
        return self.part(0, self.nbytes)

    def part(self, Py_ssize_t start, Py_ssize_t stop):
        """The payload bytes start..stop, where they lie."""
        cdef Py_ssize_t at = 0
        if not 0 <= start <= stop <= self.nbytes:
            raise IndexError(f"bytes {start}..{stop} of a batch of {self.nbytes}")
        if self.owner is None or start == stop:
            return memoryview(b"")
        if isinstance(self.owner, Page):
            at = self.base - (<Page>self.owner).base
        return memoryview(self.owner)[at + start:at + stop]

    def __getitem__(self, Py_ssize_t index):
        cdef const int32_t* ends = <const int32_t*>PyBytes_AS_STRING(self.ends)
        if index < 0:
            index += self.count
        if not 0 <= index < self.count:
            raise IndexError(f"message {index} of a batch of {self.count}")
        return self.part(ends[index], ends[index + 1])

    def __iter__(self):
        return map(self.__getitem__, range(self.count))

    def to_list(self):
        """Every payload as bytes."""
        cdef const int32_t* ends = <const int32_t*>PyBytes_AS_STRING(self.ends)
        cdef list bodies = [None] * self.count
        cdef Py_ssize_t i
        for i in range(self.count):
            bodies[i] = PyBytes_FromStringAndSize(self.base + ends[i], ends[i + 1] - ends[i])
        return bodies

    def __arrow_c_schema__(self):
        return schema_capsule(True)

    def __arrow_c_array__(self, requested_schema=None):
        return schema_capsule(True), array_capsule(self, True)

    def __arrow_c_stream__(self, requested_schema=None):
        return stream_capsule(self, True)


# ---- coming in -------------------------------------------------------------------------------------

@cython.final
cdef class Source:
    """The chunks of an Arrow column or table, whoever made it."""
    def __cinit__(self, data):
        if hasattr(data, "__arrow_c_array__"):
            self.capsules = data.__arrow_c_array__()
            self.schema = <ArrowSchema*>PyCapsule_GetPointer(self.capsules[0], "arrow_schema")
            self.array = <ArrowArray*>PyCapsule_GetPointer(self.capsules[1], "arrow_array")
        elif hasattr(data, "__arrow_c_stream__"):
            self.capsules = data.__arrow_c_stream__()
            self.stream = <ArrowArrayStream*>PyCapsule_GetPointer(self.capsules, "arrow_array_stream")
            if self.stream.get_schema(self.stream, &self.own_schema):
                raise ValueError(f"the Arrow stream gives no schema: {self.trouble()}")
            self.schema = &self.own_schema
            self.array = &self.own_array
        else:
            raise TypeError(f"{type(data).__name__} does not speak the Arrow PyCapsule interface "
                            "(__arrow_c_array__ or __arrow_c_stream__)")

    def __dealloc__(self):
        if self.own_array.release != NULL:
            self.own_array.release(&self.own_array)
        if self.own_schema.release != NULL:
            self.own_schema.release(&self.own_schema)

    def trouble(self):
        cdef const char* text = self.stream.get_last_error(self.stream)
        return "no reason given" if text == NULL else text.decode("utf-8", "replace")

    cdef bint step(self) except -1:
        """The next chunk is in `array`; 0 at the end."""
        if self.stream == NULL:
            if self.done:
                return False
            self.done = True
            return True
        if self.own_array.release != NULL:
            self.own_array.release(&self.own_array)
        memset(&self.own_array, 0, sizeof(ArrowArray))
        if self.stream.get_next(self.stream, &self.own_array):
            raise ValueError(f"the Arrow stream broke off: {self.trouble()}")
        return self.own_array.release != NULL
