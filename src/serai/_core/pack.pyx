# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Messages as users build and read them: chains of pack calls, chains of unpack calls.

A writer opens one message at a time and publishes it; a message is a view that the reader moves on.  How
each kind of value stands in bytes is in `values.pyx`.
"""
cimport cython
from libc.stdint cimport int8_t, int64_t, uint16_t

from serai._core.cursor cimport View
from serai._core.pages cimport Appender
from serai._core.values cimport (INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, kind_of, put_1, put_2, put_4, put_8, put_big,
                                 put_boolean, put_buffer, put_char, put_decimal, put_double, put_float, put_scaled,
                                 put_string, put_unicode, real, take, take_2, take_4, take_8, take_big, take_decimal,
                                 take_double, take_float, take_raw, take_string, take_unicode, take_value, whole)

cdef extern from "Python.h":
    object PyUnicode_FromOrdinal(int code)


@cython.final
cdef class Writer(Appender):
    """Builds messages by a chain of pack calls, or takes them whole.  One message is open at a time.

    Not for several threads at once: hold `lock` around each message when threads share a writer.
    """
    def __cinit__(self, supply, *, page_bytes, data_offset, slot_offset, summed=False, state=None, name=0,
                  bint java=False):
        self.java = java

    @property
    def dialect(self):
        return "java" if self.java else "seed"

    @property
    def lock(self):
        """A lock for threads that share this writer; made when first asked for."""
        if self._lock is None:
            import threading
            self._lock = threading.RLock()
        return self._lock

    def new_message(self):
        """Opens a message; an unfinished one is given up."""
        self.start()
        return self

    def write_message(self):
        """Publishes the open message; gives its offset."""
        self.fit()
        return self.publish()

    cdef int fit(self) except -1:
        if self.busy:
            self.alone()
        if not self.open:
            raise RuntimeError("no message is open: call new_message() first")
        return 0

    def pack_byte(self, value):
        self.fit()
        put_1(self, whole(value, -128, 127, "byte"))
        return self

    def pack_boolean(self, value):
        self.fit()
        put_boolean(self, value)
        return self

    def pack_short(self, value):
        self.fit()
        put_2(self, whole(value, -32768, 32767, "short"))
        return self

    def pack_char(self, value):
        """One character of the basic plane, or a UTF-16 code unit."""
        self.fit()
        put_char(self, value)
        return self

    def pack_int(self, value):
        self.fit()
        put_4(self, whole(value, INT32_MIN, INT32_MAX, "int"))
        return self

    def pack_long(self, value):
        self.fit()
        put_8(self, whole(value, INT64_MIN, INT64_MAX, "long"))
        return self

    def pack_float(self, value):
        self.fit()
        put_float(self, real(value, "float"))
        return self

    def pack_double(self, value):
        self.fit()
        put_double(self, real(value, "double"))
        return self

    def pack_string(self, value):
        """ASCII text and a zero byte; a NUL inside cuts the text when it is read."""
        self.fit()
        put_string(self, value)
        return self

    def pack_unicode(self, value):
        self.fit()
        put_unicode(self, value)
        return self

    def pack_decimal(self, value, scale=None):
        """A Decimal, or the unscaled integer and its scale: value = unscaled / 10 ** scale."""
        self.fit()
        if scale is None:
            put_decimal(self, value, self.java)
        else:
            put_scaled(self, value, scale, self.java)
        return self

    def pack_big_integer(self, value):
        self.fit()
        put_big(self, value)
        return self

    def pack_bytes(self, value):
        """Raw bytes without a length: the reader must know how many."""
        self.fit()
        put_buffer(self, value, False)
        return self

    def pack_sized_bytes(self, value):
        self.fit()
        put_buffer(self, value, True)
        return self

    def extend_arrow(self, column):
        """Writes every value of a binary or text column as one message; gives the offset of the last, -1 if none."""
        from serai._core.template import extend_column
        return extend_column(self, column)

    def template(self, *kinds):
        """Compiles field kinds, so that one call writes a whole message."""
        from serai._core.template import Template
        return Template(self, kinds)

    def force(self):
        """Brings everything written so far to the disk."""
        self.supply.force()

    def close(self):
        """Gives up an open message and lets the next writer in."""
        self.shut()
        self.supply.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


@cython.final
cdef class Message(View):
    """The message a reader stands on: one view, moved on by the reader's next call.

    Unpack calls read one value after the other and raise EOFError at the message end.
    """
    def __cinit__(self, bint java=False):
        self.java = java

    @property
    def remaining(self):
        return self.end - self.at

    @property
    def position(self):
        """Bytes from the message start to the next value."""
        return self.at - self.base

    @position.setter
    def position(self, int64_t value):
        if not 0 <= value <= self.end - self.base:
            raise ValueError(f"position {value} is outside the message at offset {self.offset}, which has {self.size} bytes")
        self.at = self.base + value

    def skip(self, Py_ssize_t count):
        """Goes over `count` bytes (back, when it is negative)."""
        self.position = self.at - self.base + count
        return self

    def unpack(self, *kinds):
        """Reads several values at once: unpack("int", "string")."""
        return tuple([take_value(self, kind_of(kind, True), self.java) for kind in kinds])

    def unpack_byte(self):
        return <int8_t>take(self, 1, "byte")[0]

    def unpack_boolean(self):
        return take(self, 1, "boolean")[0] == 1

    def unpack_short(self):
        return take_2(self, "short")

    def unpack_char(self):
        return PyUnicode_FromOrdinal(<uint16_t>take_2(self, "char"))

    def unpack_int(self):
        return take_4(self, "int")

    def unpack_long(self):
        return take_8(self, "long")

    def unpack_float(self):
        return take_float(self)

    def unpack_double(self):
        return take_double(self)

    def unpack_string(self):
        return take_string(self)

    def unpack_unicode(self):
        return take_unicode(self)

    def unpack_decimal(self):
        return take_decimal(self, self.java)

    def unpack_big_integer(self):
        return take_big(self)

    def unpack_bytes(self, Py_ssize_t count):
        """`count` raw bytes: a message does not say how many there are."""
        return take_raw(self, count, "bytes")

    def unpack_sized_bytes(self):
        return take_raw(self, take_4(self, "sized_bytes"), "sized_bytes")

    def __repr__(self):
        return f"<Message offset={self.offset} begin={self.begin} size={self.size}>"
