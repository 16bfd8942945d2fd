# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Whole messages in one call: rows of Python values, and columns of Arrow values.

A template is a list of kinds.  One message is one row; a batch of rows is one call; columns need no
Python object for each value.  What an Arrow column must be for each kind:

    byte c   short s   char S   int i   long l   float f   double g   boolean b (bits)
    decimal d:p,s (128 bits)    big_integer l or d:p,0
    string, unicode: u U vu     bytes, sized_bytes: z Z vz u U vu w:n

Nulls are refused: a message has no way to say one.  An error in row i leaves rows 0..i-1 published and
says so.
"""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


from serai._core.arrow cimport ArrowArray, ArrowSchema, Source
from serai._core.pack cimport Writer
from serai._core.values cimport (BIG_INTEGER, DECIMAL, FIELDS_MAX, SIZED_BYTES, STRING, UNICODE, kind_of, put_big, put_big_unscaled,
                                 put_unicode, put_unscaled, put_value)

cdef enum:
    BLOCK = 4096                     # messages of a 64-bit column that are handed on together


cdef enum Form:                      # how a column's values lie
    FIXED, BITS, DECIMAL128, RANGES32, RANGES64, VIEWS, EQUAL

cdef struct Column:
    int kind
    int form
    int width
    int64_t scale
    int64_t start                    # Arrow's offset of the array
    const char* values               # fixed values, ranges, or views
    const char* bytes                # what ranges point into
    const void** more                # what views point into

cdef struct Piece:
    const char* p
    int64_t n


# ---- reading Arrow columns -------------------------------------------------------------------------

cdef int form_of(Column* column, str format) except -1:
    """Reads an Arrow format string; -1 with an error when no kind can hold it."""
    widths = {"c": 1, "s": 2, "S": 2, "i": 4, "l": 8, "f": 4, "g": 8}
    if format in widths:
        column.form = FIXED
        column.width = widths[format]
    elif format == "b":
        column.form = BITS
    elif format in ("u", "z"):
        column.form = RANGES32
    elif format in ("U", "Z"):
        column.form = RANGES64
    elif format in ("vu", "vz"):
        column.form = VIEWS
    elif format.startswith("w:"):
        column.form = EQUAL
        column.width = int(format[2:])
    elif format.startswith("d:") and format.count(",") == 1:
        column.form = DECIMAL128
        column.scale = int(format.split(",")[1])
    else:
        raise ValueError(f"Arrow format {format!r} has no message form; see the table of serai._core.template")
    return 0

cdef int check_valid(const ArrowArray* array, int64_t start, int64_t rows, str what) except -1:
    """Refuses the first null of some rows; null_count may be -1, which says nothing."""
    cdef const uint8_t* valid = <const uint8_t*>array.buffers[0] if array.n_buffers > 0 else NULL
    cdef int64_t i
    if array.null_count == 0 or valid == NULL:
        return 0
    for i in range(start, start + rows):
        if not valid[i >> 3] >> (i & 7) & 1:
            raise ValueError(f"{what} {i - start} is null and a message cannot say null; fill or drop it")
    return 0

cdef int load(Column* column, ArrowSchema* schema, ArrowArray* array, int64_t start, int64_t rows) except -1:
    """Points a column at some rows of an Arrow array, after a look at everything the loops rely on."""
    column.start = array.offset + start
    form_of(column, schema.format.decode())
    if array.dictionary != NULL:
        raise ValueError("a dictionary-encoded column cannot be written as messages; decode it first")
    if array.n_buffers < 2 or array.length < start + rows:
        raise ValueError(f"an Arrow array of format {schema.format.decode()!r} has {array.n_buffers} buffers "
                         f"and {array.length} values")
    check_valid(array, column.start, rows, "value")
    column.values = <const char*>array.buffers[1]
    column.bytes = <const char*>array.buffers[2] if array.n_buffers > 2 else NULL
    column.more = array.buffers + 2
    return 0

cdef inline Piece piece(Column* column, int64_t row) noexcept nogil:
    """Where the bytes of a text or binary value lie."""
    cdef Piece found
    cdef int64_t i = column.start + row
    cdef const int32_t* short_ends
    cdef const int64_t* long_ends
    cdef const char* view
    if column.form == RANGES32:
        short_ends = <const int32_t*>column.values + i
        found.p = column.bytes + short_ends[0]
        found.n = short_ends[1] - short_ends[0]
    elif column.form == RANGES64:
        long_ends = <const int64_t*>column.values + i
        found.p = column.bytes + long_ends[0]
        found.n = long_ends[1] - long_ends[0]
    elif column.form == EQUAL:
        found.n = column.width
        found.p = column.values + i * column.width
    else:
        view = column.values + i * 16
        found.n = (<const int32_t*>view)[0]
        found.p = view + 4
        if found.n > 12:
            found.p = <const char*>column.more[(<const int32_t*>view)[2]] + (<const int32_t*>view)[3]
    return found

cdef ArrowArray* value_column(Source source, ArrowSchema** schema) except NULL:
    """The column of messages: the array itself, or the one child (of several: the one named value)."""
    cdef int64_t i
    schema[0] = source.schema
    if source.schema.format.decode() != "+s":
        return source.array
    check_valid(source.array, source.array.offset, source.array.length, "row")
    for i in range(source.schema.n_children):
        if source.schema.n_children == 1 or source.schema.children[i].name == b"value":
            schema[0] = source.schema.children[i]
            return source.array.children[i]
    raise ValueError("a table needs one column, or one named 'value', to be written as messages")


# ---- one column, one message for each value --------------------------------------------------------

cdef int64_t extend_ranges(Writer w, Column* column, int64_t rows, int64_t* written) except -2:
    """Contiguous values in blocks: one copy and a loop over the slots for each."""
    cdef int32_t[BLOCK + 1] ends
    cdef const int32_t* all_ends = <const int32_t*>column.values + column.start
    cdef const int64_t* long_ends = <const int64_t*>column.values + column.start
    cdef int64_t row = 0, n, i, done, step
    cdef Piece first
    while row < rows:
        if column.form == RANGES32:
            step = w.append_run(column.bytes, all_ends + row, rows - row)
            row += step
            written[0] += step
            continue
        first = piece(column, row)
        ends[0] = 0
        n = 0
        while n < BLOCK and row + n < rows:
            i = (long_ends[row + n + 1] - long_ends[row]) if column.form == RANGES64 else (n + 1) * column.width
            if i > 0x7FFFFFFF:
                break
            n += 1
            ends[n] = <int32_t>i
        if n == 0:
            w.append_bytes(first.p, first.n)
            row += 1
            written[0] += 1
            continue
        done = 0
        while done < n:
            step = w.append_run(first.p, ends + done, n - done)
            done += step
            written[0] += step
        row += n
    return w.slot_offset - 16 if rows else -1

cdef bint short_ends_fall(const int32_t* ends, int64_t rows) noexcept nogil:
    """Whether one of the ends is below the one before it; without a way out, so that it is done many at a time."""
    cdef int falls = 0
    cdef int64_t row
    for row in range(rows):
        falls |= ends[row + 1] < ends[row]
    return falls

cdef bint long_ends_fall(const int64_t* ends, int64_t rows) noexcept nogil:
    cdef int falls = 0
    cdef int64_t row
    for row in range(rows):
        falls |= ends[row + 1] < ends[row]
    return falls

cdef int check_ranges(Column* column, int64_t rows) except -1:
    """Ends that never fall: the copy loops trust them."""
    cdef const int32_t* short_ends = <const int32_t*>column.values + column.start
    cdef const int64_t* long_ends = <const int64_t*>column.values + column.start
    cdef int64_t row = 0
    cdef bint falls = False
    if rows and column.values == NULL and not (column.form == EQUAL and column.width == 0):
        raise ValueError(f"the Arrow column has {rows} values and no buffer for them")
    with nogil:
        if column.form == RANGES32:
            falls = short_ends_fall(short_ends, rows)
        elif column.form == RANGES64:
            falls = long_ends_fall(long_ends, rows)
    if falls:
        while not (short_ends_fall(short_ends + row, 1) if column.form == RANGES32 else long_ends_fall(long_ends + row, 1)):
            row += 1
        raise ValueError(f"the ends of the Arrow column fall at value {row}")
    return 0

def extend_column(Writer w, data):
    """Writes every value of a binary or text column as one message; gives the offset of the last, -1 if none."""
    cdef Source source = Source(data)
    cdef ArrowSchema* schema
    cdef ArrowArray* array
    cdef Column column
    cdef int64_t row, count, last = -1, rows = 0
    cdef Piece found
    try:
        while source.step():
            array = value_column(source, &schema)
            count = source.array.length
            memset(&column, 0, sizeof(column))
            load(&column, schema, array, 0 if array == source.array else source.array.offset, count)
            if column.form not in (RANGES32, RANGES64, EQUAL, VIEWS):
                raise ValueError(f"messages are bytes or text; this column has the Arrow format {schema.format.decode()!r}")
            check_ranges(&column, count)
            if column.form == VIEWS:
                for row in range(count):
                    found = piece(&column, row)
                    last = w.append_bytes(found.p, found.n)
                    rows += 1
            elif count:
                last = extend_ranges(w, &column, count, &rows)
    except BaseException as error:
        error.add_note(f"{rows} messages of this call were written before")
        raise
    return last


# ---- a template ------------------------------------------------------------------------------------

@cython.final
cdef class Template:
    """Kinds compiled for one writer: a call writes a whole message, or thousands."""
    cdef Writer writer
    cdef readonly tuple kinds
    cdef int[FIELDS_MAX] numbers
    cdef int count

    def __cinit__(self, Writer writer not None, kinds):
        if not 1 <= len(kinds) <= FIELDS_MAX:
            raise ValueError(f"a template has 1 to {FIELDS_MAX} fields, not {len(kinds)}")
        self.writer = writer
        self.kinds = tuple(kinds)
        self.count = len(kinds)
        for i, kind in enumerate(kinds):
            self.numbers[i] = kind_of(kind, i == len(kinds) - 1)

    cdef int64_t put_row(self, tuple row) except -1:
        """Writes one row; on an error the message is still open and the caller gives it up."""
        cdef Writer w = self.writer
        cdef int i
        if len(row) != self.count:
            raise ValueError(f"the template has {self.count} fields ({', '.join(self.kinds)}), the row {len(row)}")
        if w.open or w.busy:
            w.start()
        w.open = True
        for i in range(self.count):
            put_value(w, self.numbers[i], <object>PyTuple_GET_ITEM(row, i), w.java)
        return w.publish()

    def append(self, row):
        """Writes one message from a sequence of values; gives its offset."""
        try:
            return self.put_row(row if type(row) is tuple else tuple(row))
        except BaseException:
            self.writer.abandon()
            raise

    def append_many(self, rows):
        """Writes each row as one message; gives the offset of the last, -1 if there was none."""
        cdef int64_t last = -1
        cdef Py_ssize_t done = 0
        try:
            for row in rows:
                last = self.put_row(row if type(row) is tuple else tuple(row))
                done += 1
        except BaseException as error:
            self.writer.abandon()
            error.add_note(f"{done} messages of this call were written before")
            raise
        return last

    def extend_arrow(self, data):
        """Writes each row of a table (record batch, table, struct array, frame) as one message."""
        cdef Source source = Source(data)
        cdef int64_t last = -1, rows = 0
        try:
            while source.step():
                if source.array.length:
                    last = self.put_columns(source, &rows)
        except BaseException as error:
            self.writer.abandon()
            error.add_note(f"{rows} messages of this call were written before")
            raise
        return last

    cdef int64_t put_columns(self, Source source, int64_t* rows) except -2:
        cdef Column* columns = <Column*>PyMem_Malloc(self.count * sizeof(Column))
        cdef int i
        if columns == NULL:
            raise MemoryError
        try:
            if source.schema.format.decode() != "+s" or source.schema.n_children != self.count:
                raise ValueError(f"the template has {self.count} fields, the Arrow data {source.schema.n_children} columns")
            check_valid(source.array, source.array.offset, source.array.length, "row")
            memset(columns, 0, self.count * sizeof(Column))
            for i in range(self.count):
                columns[i].kind = self.numbers[i]
                load(&columns[i], source.schema.children[i], source.array.children[i], source.array.offset,
                     source.array.length)
                check_ranges(&columns[i], source.array.length)
                self.check_form(&columns[i], i, source.schema.children[i].format.decode())
            return self.put_rows(columns, source.array.length, rows)
        finally:
            PyMem_Free(columns)

    cdef int check_form(self, Column* column, int i, str format) except -1:
        fits = {"byte": "c", "short": "s", "char": "S", "int": "i", "long": "l", "float": "f", "double": "g",
                "boolean": "b", "string": "u U vu", "unicode": "u U vu", "bytes": "z Z vz u U vu w",
                "sized_bytes": "z Z vz u U vu w", "decimal": "d", "big_integer": "l d"}[self.kinds[i]].split()
        if format.split(":")[0] not in fits or (self.kinds[i] == "big_integer" and column.scale):
            raise ValueError(f"field {i} is {self.kinds[i]}, which takes the Arrow formats {', '.join(fits)}, not {format!r}")
        return 0

    cdef int64_t put_rows(self, Column* columns, int64_t n, int64_t* rows) except -2:
        cdef Writer w = self.writer
        cdef int64_t row, last = -1
        cdef int i
        for row in range(n):
            if w.open or w.busy:
                w.start()
            w.open = True
            for i in range(self.count):
                put_cell(w, &columns[i], row)
            last = w.publish()
            rows[0] += 1
        return last


cdef int put_cell(Writer w, Column* column, int64_t row) except -1:
    """One value of a column into the open message."""
    cdef int64_t i = column.start + row
    cdef char bit
    cdef Piece found
    cdef int32_t size
    if column.form == FIXED:
        if column.kind == BIG_INTEGER:
            return put_big(w, (<const int64_t*>column.values)[i])
        if column.width == 4 and w.stop - w.at >= 4:
            memcpy(w.at, column.values + i * 4, 4)
            w.at += 4
            return 0
        if column.width == 8 and w.stop - w.at >= 8:
            memcpy(w.at, column.values + i * 8, 8)
            w.at += 8
            return 0
        return w.put(column.values + i * column.width, column.width)
    if column.form == BITS:
        bit = (<const uint8_t*>column.values)[i >> 3] >> (i & 7) & 1
        if w.at < w.stop:
            w.at[0] = bit
            w.at += 1
            return 0
        return w.put(&bit, 1)
    if column.form == DECIMAL128:
        return put_decimal128(w, column, i)
    found = piece(column, row)
    if column.kind == STRING:
        return put_ascii(w, found, row)
    if column.kind == UNICODE:
        return put_unicode(w, PyUnicode_DecodeUTF8(found.p, found.n, "strict"))
    if column.kind == SIZED_BYTES:
        if found.n > 0x7FFFFFFF:
            raise OverflowError(f"row {row} has {found.n} bytes; a length is an int32")
        size = <int32_t>found.n
        w.put(<const char*>&size, 4)
    return w.put(found.p, found.n)

cdef int put_ascii(Writer w, Piece text, int64_t row) except -1:
    cdef uint8_t seen = 0
    cdef int64_t i
    cdef char zero = 0
    cdef char* at = w.at
    if text.n <= 15 and w.stop - at >= 16:
        for i in range(text.n):
            seen |= <uint8_t>text.p[i]
            at[i] = text.p[i]
        if seen & 0x80:
            raise ValueError(f"row {row} has a string that is not ASCII; the kind 'unicode' takes all characters")
        at[text.n] = 0
        w.at = at + text.n + 1
        return 0
    for i in range(text.n):
        seen |= <uint8_t>text.p[i]
    if seen & 0x80:
        raise ValueError(f"row {row} has a string that is not ASCII; the kind 'unicode' takes all characters")
    if text.n + 1 <= w.stop - w.at:
        memcpy(w.at, text.p, text.n)
        w.at[text.n] = 0
        w.at += text.n + 1
        return 0
    w.put(text.p, text.n)
    return w.put(&zero, 1)

cdef int put_decimal128(Writer w, Column* column, int64_t i) except -1:
    cdef const int64_t* halves = <const int64_t*>(column.values + i * 16)
    cdef int64_t low = halves[0], high = halves[1]
    if column.kind == DECIMAL and high == low >> 63:
        return put_unscaled(w, low, column.scale, w.java)
    number = int.from_bytes(PyBytes_FromStringAndSize(<const char*>halves, 16), "little", signed=True)
    if column.kind == BIG_INTEGER:
        return put_big(w, number)
    return put_big_unscaled(w, number, column.scale, w.java)
