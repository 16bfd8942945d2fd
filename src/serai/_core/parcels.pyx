# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""House messages for those who send and receive them: many at a time, no object for each unless one is asked for.

    Parcel     messages on their way out, end to end: bytes are copied once, from the caller's object
    Delivery   messages that came, found where they lie; batches are opened, what is compressed is inflated
    Message    one of them, made when somebody looks at it

A delivery also knows what of it is acknowledged.  Mostly that is one count that grows; what is acknowledged out of order waits
in a set.  `settled` gives ranges that were not given out before, and `keeper.complete` is called when nothing is left.

    | acknowledged, told | acknowledged | . . . x . x x . . . |
    0                    told           done                  count

Invariants
- nobody can add to a parcel while its bytes are looked at
- a list goes in whole or not at all
- what is taken out of a delivery is a copy: it stays when the delivery goes

Left to others: frames, compressing (the client), what the acknowledgement of a message means (the keeper).
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from serai._core.entries cimport HEADERS_BIT, HOUSE, HOUSE_HEAD, KEY_BIT, ORDERED_BIT
from serai._core.entries cimport Entry, check, take, take_member, words
from serai._core.inflate cimport inflated

cdef enum:
    MESSAGE_MAX = 0x7FFFFFFF
    KEY_MAX = 0xFFFF


# ---- going out ---------------------------------------------------------------------------------------------

@cython.final
cdef class Parcel:
    """House messages end to end; a buffer of them.  `size`: bytes, `count`: messages."""
    cdef char* base
    cdef int64_t room
    cdef readonly int64_t size, count
    cdef int views

    def __dealloc__(self):
        free(self.base)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.base if self.base != NULL else <char*>b"", self.size, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1

    cdef int widen(self, int64_t need) except -1:
        cdef int64_t room = 2 * self.room if 2 * self.room > self.size + need else self.size + need
        cdef char* base
        if self.views:
            raise BufferError("a parcel that is on its way takes nothing more")
        base = <char*>realloc(self.base, room if room > 512 else 512)
        if base == NULL:
            raise MemoryError
        self.base, self.room = base, room if room > 512 else 512
        return 0

    cdef char* head(self, int64_t body, int64_t time) except NULL:
        """Room for a message of so many bytes behind its head, which is written."""
        cdef uint32_t length
        cdef char* to
        if body > MESSAGE_MAX - HOUSE_HEAD:
            raise ValueError(f"a message of {body} bytes; the most is {MESSAGE_MAX - HOUSE_HEAD}")
        if self.room - self.size < body + HOUSE_HEAD or self.views:
            self.widen(body + HOUSE_HEAD)
        length = <uint32_t>(body + HOUSE_HEAD)
        to = self.base + self.size
        memcpy(to, &length, 4)
        memset(to + 4, 0, 4)
        memcpy(to + 8, &time, 8)
        return to + HOUSE_HEAD

    def add(self, value, int64_t time, *, bytes key=None, bytes notes=None, int priority=0, int flag=0, bint ordered=False):
        """One message; `notes` are its headers as they stand in a message, without their length."""
        cdef Py_buffer view
        cdef int64_t body
        cdef int64_t key_size = 0 if key is None else PyBytes_GET_SIZE(key)
        cdef int64_t notes_size = 0 if notes is None else PyBytes_GET_SIZE(notes)
        cdef char* to
        cdef char* bits
        cdef uint16_t short
        cdef uint32_t long
        if key_size > KEY_MAX:
            raise ValueError(f"a key of {key_size} bytes; the most is {KEY_MAX}")
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            body = view.len + (2 + key_size if key is not None else 0) + (4 + notes_size if notes_size else 0)
            to = self.head(body, time)
            bits = to - HOUSE_HEAD + 4
            bits[0] = ORDERED_BIT if ordered else 0
            bits[1] = <char>priority
            short = <uint16_t>flag
            memcpy(bits + 2, &short, 2)
            if key is not None:
                bits[0] |= KEY_BIT
                short = <uint16_t>key_size
                memcpy(to, &short, 2)
                memcpy(to + 2, PyBytes_AS_STRING(key), key_size)
                to += 2 + key_size
            if notes_size:
                bits[0] |= HEADERS_BIT
                long = <uint32_t>notes_size
                memcpy(to, &long, 4)
                memcpy(to + 4, PyBytes_AS_STRING(notes), notes_size)
                to += 4 + notes_size
            memcpy(to, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        self.size += body + HOUSE_HEAD
        self.count += 1

    def add_many(self, values, int64_t time):
        """Messages that are bodies alone; how many."""
        cdef int64_t size = self.size, count = self.count, n
        cdef Py_buffer view
        try:
            for value in values:
                if PyBytes_Check(value):
                    n = PyBytes_GET_SIZE(value)
                    memcpy(self.head(n, time), PyBytes_AS_STRING(value), n)
                else:
                    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
                    try:
                        n = view.len
                        memcpy(self.head(n, time), view.buf, n)
                    finally:
                        PyBuffer_Release(&view)
                self.size += n + HOUSE_HEAD
                self.count += 1
        except BaseException:
            self.size, self.count = size, count
            raise
        return self.count - count


# ---- coming in ---------------------------------------------------------------------------------------------

cdef struct Place:                       # one message
    const char* entry
    const char* body                     # inflated, if it was compressed
    int64_t size


@cython.final
cdef class Delivery:
    """Messages of one partition, the first of them at `index`, as they came in one answer."""
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int64_t index
    cdef readonly int64_t count
    cdef readonly int64_t done           # so many from the first on are acknowledged
    cdef readonly int64_t told
    cdef public object keeper
    cdef set early                       # acknowledged behind `done`
    cdef set said                        # those of them that were told
    cdef list inner                      # inflated bodies
    cdef Py_buffer data
    cdef Place* places
    cdef int64_t room

    def __cinit__(self, data, *, str topic, int partition, int64_t index, int64_t lead, int64_t count, int64_t inflated_max):
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.topic, self.partition, self.index = topic, partition, index
        self.inner = []
        find(self, lead, count, inflated_max)
        if self.count < count:
            raise ValueError(f"{count} messages were announced, {self.count} came")

    def __dealloc__(self):
        free(self.places)
        PyBuffer_Release(&self.data)

    def __repr__(self):
        return f"Delivery(topic={self.topic!r}, partition={self.partition}, index={self.index}, count={self.count})"

    def __len__(self):
        return self.count

    def __getitem__(self, int64_t at):
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError(f"message {at} of {self.count}")
        return message_at(self, at)

    def __iter__(self):
        return Messages.__new__(Messages, self)

    @property
    def next_index(self):
        """Of the message behind the last one."""
        return self.index + self.count

    @property
    def nbytes(self):
        """Of all values."""
        cdef int64_t i, total = 0
        for i in range(self.count):
            total += self.places[i].size
        return total

    @property
    def values(self):
        """The values as a list of bytes."""
        cdef int64_t i
        return [PyBytes_FromStringAndSize(self.places[i].body, self.places[i].size) for i in range(self.count)]

    def packed(self):
        """All values end to end, and int32s that say where each begins and the last one ends: a column of Arrow."""
        cdef int64_t i, total = self.nbytes
        cdef bytes whole, ends
        cdef char* to
        cdef int32_t* stop
        if total > MESSAGE_MAX:
            raise OverflowError(f"the values have {total} bytes; int32s reach {MESSAGE_MAX}")
        whole = PyBytes_FromStringAndSize(NULL, total)
        ends = PyBytes_FromStringAndSize(NULL, 4 * (self.count + 1))
        to, stop = PyBytes_AS_STRING(whole), <int32_t*>PyBytes_AS_STRING(ends)
        stop[0] = 0
        for i in range(self.count):
            memcpy(to, self.places[i].body, self.places[i].size)
            to += self.places[i].size
            stop[i + 1] = stop[i] + <int32_t>self.places[i].size
        return whole, ends

    # ---- what of it is acknowledged

    def ack(self):
        """All of it is done."""
        if self.done < self.count:
            self.done = self.count
            self.early = None
            self.finish()

    def nack(self, delay_s=0.0):
        """What is not acknowledged comes again, after so many seconds."""
        if self.keeper is not None:
            self.keeper.give_back(self, delay_s)

    cdef int settle(self, int64_t at) except -1:
        if at == self.done:
            self.done += 1
            if self.early is not None:
                self.catch_up()
            if self.done == self.count:
                self.finish()
        elif at > self.done:
            if self.early is None:
                self.early = set()
            self.early.add(at)
        return 0

    cdef int catch_up(self) except -1:
        while self.done in self.early:
            self.early.discard(self.done)
            self.done += 1
        if not self.early:
            self.early = None
        return 0

    cdef int finish(self) except -1:
        if self.keeper is not None:
            self.keeper.complete(self)
        return 0

    def settled(self):
        """Ranges (index, count) that are acknowledged and were not given out before."""
        cdef list found = []
        cdef int64_t at, start, stop
        if self.done > self.told:
            found.append((self.index + self.told, self.done - self.told))
            self.told = self.done
        if self.early is not None:
            start = stop = -1
            for at in sorted(self.early - self.said if self.said else self.early):
                if at != stop:
                    if start >= 0:
                        found.append((self.index + start, stop - start))
                    start = at
                stop = at + 1
            if start >= 0:
                found.append((self.index + start, stop - start))
            self.said = set(self.early)
        return found


@cython.final
cdef class Messages:
    """The messages of a delivery, one after the other."""
    cdef Delivery home
    cdef int64_t at

    def __cinit__(self, Delivery home):
        self.home = home

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == self.home.count:
            raise StopIteration
        self.at += 1
        return message_at(self.home, self.at - 1)


@cython.final
@cython.freelist(64)
cdef class Message:
    """A message that was received."""
    cdef Delivery home
    cdef int64_t at
    cdef readonly bytes value

    def __repr__(self):
        return f"Message(topic={self.topic!r}, partition={self.partition}, index={self.index}, value={self.value!r})"

    @property
    def topic(self):
        return self.home.topic

    @property
    def partition(self):
        return self.home.partition

    @property
    def index(self):
        """Where it stands in its partition."""
        return self.home.index + self.at

    @property
    def key(self):
        """Its key, or None."""
        cdef Entry e
        look(self, &e)
        return None if e.key == NULL else PyBytes_FromStringAndSize(e.key, e.key_size)

    @property
    def headers(self):
        """Its headers: pairs of a name and a value, in their order."""
        cdef Entry e
        look(self, &e)
        return [] if e.notes_size == 0 else pairs(e.notes)

    @property
    def time_ms(self):
        """When it was sent, by the sender's clock."""
        cdef Entry e
        look(self, &e)
        return e.send_time

    @property
    def priority(self):
        cdef Entry e
        look(self, &e)
        return e.priority

    @property
    def flag(self):
        cdef Entry e
        look(self, &e)
        return e.flag

    def ack(self):
        """It is done, and will not be delivered to this group again."""
        self.home.settle(self.at)

    def nack(self, delay_s=0.0):
        """It and what came with it and is not acknowledged comes again, after so many seconds."""
        self.home.nack(delay_s)


cdef inline Message message_at(Delivery home, int64_t at):
    cdef Message message = Message.__new__(Message)
    message.home = home
    message.at = at
    message.value = PyBytes_FromStringAndSize(home.places[at].body, home.places[at].size)
    return message


cdef int look(Message message, Entry* e) except -1:
    """Its entry once more; that it can be taken apart was found out before."""
    memset(e, 0, sizeof(Entry))
    take(HOUSE, message.home.places[message.at].entry, message.home.places[message.at].entry + MESSAGE_MAX, e)
    return 0


cdef list pairs(const char* p):
    cdef uint16_t left, name
    cdef uint32_t size
    cdef list found = []
    memcpy(&left, p, 2)
    p += 2
    while left:
        memcpy(&name, p, 2)
        memcpy(&size, p + 2 + name, 4)
        found.append((p[2:2 + name], PyBytes_FromStringAndSize(p + 6 + name, size)))
        p += 6 + name + <int64_t>size
        left -= 1
    return found


cdef int keep(Delivery d, const char* entry, const char* body, int64_t size) except -1:
    cdef Place* more
    if d.count == d.room:
        more = <Place*>realloc(d.places, (2 * d.room + 64) * sizeof(Place))
        if more == NULL:
            raise MemoryError
        d.room = 2 * d.room + 64
        d.places = more
    d.places[d.count].entry = entry
    d.places[d.count].body = body
    d.places[d.count].size = size
    d.count += 1
    return 0


cdef bytes opened(Delivery d, Entry* e, int64_t* left):
    """The body of a compressed entry, kept with the delivery."""
    cdef bytes plain = inflated(e.body, e.body_size, e.codec, left[0])
    left[0] -= len(plain)
    d.inner.append(plain)
    return plain


cdef int find(Delivery d, int64_t lead, int64_t count, int64_t inflated_max) except -1:
    """Finds so many messages behind the lead."""
    cdef const char* p = <const char*>d.data.buf
    cdef const char* end = p + d.data.len
    cdef int64_t left = inflated_max
    cdef Entry e
    cdef bytes plain
    cdef int reason
    memset(&e, 0, sizeof(Entry))
    while d.count < count and p < end:
        reason = take(HOUSE, p, end, &e) or check(&e)
        if reason:
            raise ValueError(f"byte {p - <const char*>d.data.buf}: {words(reason)}")
        p += e.size
        if not e.batch and lead > 0:
            lead -= 1
        elif not e.batch:
            if e.codec:
                plain = opened(d, &e, &left)
                keep(d, e.start, PyBytes_AS_STRING(plain), len(plain))
            else:
                keep(d, e.start, e.body, e.body_size)
        else:
            lead = find_members(d, &e, lead, count, &left)
    return 0


cdef int64_t find_members(Delivery d, Entry* outer, int64_t lead, int64_t count, int64_t* left) except -1:
    """The messages of a batch; what is left of the lead."""
    cdef const char* p = outer.body
    cdef const char* end = p + outer.body_size
    cdef bytes plain
    cdef Entry e
    cdef int reason
    if outer.codec:
        plain = opened(d, outer, left)
        p = PyBytes_AS_STRING(plain)
        end = p + len(plain)
    memset(&e, 0, sizeof(Entry))
    while d.count < count and p < end:
        reason = take_member(outer, p, end, &e) or check(&e)
        if reason:
            raise ValueError(f"byte {outer.start - <const char*>d.data.buf}, inside a batch: {words(reason)}")
        p += e.size
        if lead > 0:
            lead -= 1
        else:
            keep(d, e.start, e.body, e.body_size)
    return lead
