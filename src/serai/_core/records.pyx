# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Writing records: a set of messages, a head in front of it, a slot for each message, an entry in the record index.

    data      ... [head 72][entry][entry] ... [head 72][entry] ...      a record never crosses a page unless it is longer
    slots     one of 16 bytes for each message: where its entry lies; members of a wrapper share the wrapper's values
    records   one of 32 bytes for each record: first ordinal, place, begin of the head, store time

Everything a batch needs happens in one call: the set is walked and validated once, copied once, given what a JMQ
server sets, summed, and its slots are written.  `docs/formats/log.md` has the bytes.

Invariants
- nothing of a set that is refused stays: neither bytes that a reader could find, nor a step of a cursor
- what was appended can be read when `live` says so: its end is stored last, with release order
- a set longer than `part_bytes` is several records; the last one carries the last-part bit, and the end moves once

Left to others: pages and locks (the supply), which limits are right, when to flush, reading (`trail`).
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from serai._core.crc cimport crc32c
from serai._core.dress cimport Server, patch_entries
from serai._core.entries cimport JAFKA, MAGIC_0_HEAD, REAL, SEED
from serai._core.messages cimport Walk, column, prepare, walk
from serai._core.pages cimport FLAG, SLOT, Page, store_release

from serai._core.dress import redress

HEAD_BYTES = HEAD
RECORD_BYTES = RECORD
FLAG_LAST = LAST
FLAG_WRAPPED = WRAPPED

cdef enum:
    GIL_BYTES_MAX = 65536                # a longer set is walked and copied without the GIL
    RECORD_MAX = 0x7FFFFFFF
    PIECE = 8192

cdef enum:                               # numbers of the live area, 8 bytes each; format.py names them for Python
    END, RECORD_END, DATA_END, PLACE, TIME

assert sizeof(Head) == HEAD and sizeof(Record) == RECORD


@cython.final
cdef class Strip:
    """One stream as a writer sees it: a cursor, and what lies reserved ahead of it on its page."""
    cdef object ask                      # ask(offset, need) -> (page, position up to which it may be written)
    cdef Page page
    cdef char* at
    cdef char* stop
    cdef int64_t offset
    cdef int64_t mask

    cdef int ready(self, int64_t need) except -1:
        """From here on at least `need` bytes of this page may be written."""
        cdef int64_t position = self.offset & self.mask
        if self.stop - self.at >= need:
            return 0
        page, stop = self.ask(self.offset, need)
        self.page = page
        self.at = self.page.base + position
        self.stop = self.page.base + <int64_t>stop
        assert need <= self.stop - self.at and self.stop <= self.page.base + self.mask + 1
        return 0

    cdef inline void forward(self, int64_t count) noexcept:
        self.at += count
        self.offset += count

    cdef void move(self, int64_t offset) noexcept:
        """To another place; what lies ready there is not known."""
        self.offset = offset
        self.at = self.stop = NULL


cdef Strip strip_at(object ask, int64_t page_bytes, int64_t offset):
    cdef Strip strip = Strip.__new__(Strip)
    strip.ask = ask
    strip.mask = page_bytes - 1
    strip.move(offset)
    return strip


cdef struct Place:                       # where all cursors of a recorder stand
    int64_t data
    int64_t slots
    int64_t records
    int64_t place


@cython.final
cdef class Recorder:
    """The writing end of a partition; it belongs to one thread.

    `supply.data(offset, need)`, `supply.slots(offset, need)` and `supply.records(offset, need)` each give (page, stop).
    `live` is a page whose numbers other readers follow, `live_at` where they stand in it.
    """
    cdef Strip data, slots, records
    cdef Page live_page
    cdef int64_t* live
    cdef int64_t live_at
    cdef int64_t page_bytes
    cdef uint32_t identity
    cdef readonly int64_t place          # Jafka's, of the next message
    cdef readonly int64_t time           # store time of the newest record: it never falls
    cdef readonly int64_t count          # messages of the last append
    cdef uint32_t epoch
    cdef int magic
    cdef int64_t inflated_max, inflated_free, inflated_ratio, part_bytes
    cdef int depth_max
    cdef int32_t* listed                 # starts and counts of the last walk; kept from call to call
    cdef int64_t room

    def __cinit__(self, supply, *, Page live, int64_t live_at, int64_t page_bytes, int64_t data_offset, int64_t ordinal,
                  int64_t record_offset, int64_t place, int64_t time, uint32_t identity, uint32_t epoch, int jafka_magic,
                  int64_t inflated_max, int64_t inflated_free, int64_t inflated_ratio, int depth_max, int64_t part_bytes):
        if not live.writable or live_at & 7 or not 0 <= live_at <= live.length - 64:
            raise ValueError(f"no live area at {live_at} of a page of {live.length} bytes")
        if not 0 <= jafka_magic <= 1:
            raise ValueError(f"jafka_magic is 0 or 1, not {jafka_magic}")
        self.live_page = live
        self.live = <int64_t*>(live.base + live_at)
        self.live_at = live_at
        self.page_bytes = page_bytes
        self.data = strip_at(supply.data, page_bytes, data_offset)
        self.slots = strip_at(supply.slots, page_bytes, ordinal * SLOT)
        self.records = strip_at(supply.records, page_bytes, record_offset)
        self.place, self.time, self.identity, self.epoch = place, time, identity, epoch
        self.magic, self.inflated_max, self.depth_max = jafka_magic, inflated_max, depth_max
        self.inflated_free, self.inflated_ratio = inflated_free, inflated_ratio
        self.part_bytes = part_bytes

    def __dealloc__(self):
        free(self.listed)

    @property
    def end(self):
        """Ordinal of the next message."""
        return self.slots.offset // SLOT

    @property
    def data_end(self):
        """Data offset of the next record, unless it needs a new page."""
        return self.data.offset

    @property
    def record_end(self):
        """Record index offset of the next record."""
        return self.records.offset

    def append(self, data, int dress, int64_t now_ms, bytes client=b"", bytes app=b"", int64_t partition=0,
               uint64_t producer=0, uint32_t sequence=0, uint64_t transaction=0):
        """Stores a set of messages; the ordinal of the first.  ValueError: the set is wrong, and why."""
        cdef Py_buffer view
        cdef Walk w
        cdef Server server
        cdef Head head
        cdef Place before
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.survey(&w, &view, dress)
            if not w.exact:
                data = redress(data, dress, dress, inflated_max=self.inflated_max, depth_max=self.depth_max,
                               bytes_max=RECORD_MAX, partition=partition, index=self.slots.offset // SLOT, app=app)
                PyBuffer_Release(&view)
                PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
                self.survey(&w, &view, dress)
            if now_ms > self.time:
                self.time = now_ms
            before = self.stand()
            self.count = w.messages
            if w.entries == 0:
                return before.slots // SLOT
            server.partition, server.term, server.store_time = partition, self.epoch, self.time
            server.client, server.client_size = PyBytes_AS_STRING(client), PyBytes_GET_SIZE(client)
            memset(&head, 0, HEAD)
            head.version, head.dress, head.epoch, head.time = VERSION_1, dress, self.epoch, self.time
            head.producer, head.sequence, head.transaction = producer, sequence, transaction
            try:
                if w.bytes <= self.part_bytes or w.entries == 1:
                    head.flags = LAST
                    self.put_part(&w, <const char*>view.buf, &head, &server)
                else:
                    self.put_parts(&w, <const char*>view.buf, &head, &server)
            except BaseException:
                self.back_to(&before)
                raise
            self.publish()
            return before.slots // SLOT
        finally:
            PyBuffer_Release(&view)

    cdef int survey(self, Walk* w, Py_buffer* view, int dress) except -1:
        """Walks the whole set, validates it, and lists its entries; one that swells out of all proportion is refused."""
        cdef const char* base = <const char*>view.buf
        cdef int64_t inflated = max(self.inflated_free, self.inflated_ratio * view.len)
        prepare(w, view, dress, min(self.inflated_max, inflated), self.depth_max)
        w.sums = w.opening = w.listing = True
        w.magic_head = MAGIC_0_HEAD + self.magic
        return self.listing(w, base, base + view.len)

    cdef int listing(self, Walk* w, const char* base, const char* end) except -1:
        """The walk, with the room for its list kept from the last one."""
        w.slots, w.room = self.listed, self.room
        try:
            if end - base > GIL_BYTES_MAX:
                with nogil:
                    walk(w, base, end)
            else:
                walk(w, base, end)
        finally:
            self.listed, self.room = w.slots, w.room
        return 0

    cdef int put_parts(self, Walk* w, const char* base, Head* head, Server* server) except -1:
        """Stores a long set as several records, each as many entries as fit `part_bytes`."""
        cdef Walk part
        cdef int64_t entries = w.entries, start = 0, stop, i = 0
        cdef bytes kept = column(w, 0)
        cdef int32_t* starts = <int32_t*>PyBytes_AS_STRING(kept)
        while i < entries:
            i += 1
            while i < entries and (starts[i + 1] if i + 1 < entries else w.bytes) - start <= self.part_bytes:
                i += 1
            stop = starts[i] if i < entries else w.bytes
            part = w[0]
            part.sums = False
            part.messages = part.entries = part.jafka_bytes = part.largest = part.listed = 0
            part.wrapped = False
            part.inflated_left = self.inflated_max
            self.listing(&part, base + start, base + stop)
            head.flags = LAST if i == entries else 0
            self.put_part(&part, base + start, head, server)
            head.part += 1
            start = stop
        return 0

    cdef int put_part(self, Walk* w, const char* base, Head* head, Server* server) except -1:
        """Stores one record; its bytes, its slots and its place in the record index."""
        cdef int64_t length = HEAD + w.bytes, begin
        if length > RECORD_MAX:
            raise OverflowError(f"a record has at most {RECORD_MAX} bytes, this one has {length}")
        if length > self.page_bytes - (self.data.offset & self.data.mask):
            self.turn_page()
        head.length, head.count = <uint32_t>length, <uint32_t>w.messages
        head.ordinal, head.place, head.place_length = self.slots.offset // SLOT, self.place, <uint32_t>w.jafka_bytes
        if w.wrapped:
            head.flags |= WRAPPED
        server.index = head.ordinal
        begin = self.data.offset
        if length <= self.page_bytes:
            self.data.ready(length)
            self.records.ready(RECORD)
            self.copy_in(self.data.at, base, w, head, server)
            self.data.forward(length)
        else:
            self.copy_long(base, w, head, server)
        self.put_slots(begin + HEAD, w)
        self.put_record(begin, head)
        self.place += w.jafka_bytes
        return 0

    cdef int turn_page(self) except -1:
        """Leaves the rest of this page empty, and says so."""
        cdef int64_t rest = self.page_bytes - (self.data.offset & self.data.mask)
        cdef uint32_t pad = PAD
        if rest == self.page_bytes:
            return 0
        if rest >= 4:
            self.data.ready(4)
            memcpy(self.data.at, &pad, 4)
        self.data.move(self.data.offset + rest)
        return 0

    cdef int copy_in(self, char* to, const char* base, Walk* w, Head* head, Server* server) except -1:
        """Head and messages to where they stay."""
        if w.bytes > GIL_BYTES_MAX:
            with nogil:
                write_record(to, base, w, head, server, self.identity)
        else:
            write_record(to, base, w, head, server, self.identity)
        return 0

    cdef int copy_long(self, const char* base, Walk* w, Head* head, Server* server) except -1:
        """A record longer than a page: made whole elsewhere, then put down page by page."""
        cdef int64_t length = HEAD + w.bytes, piece
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, length)
        cdef const char* p = PyBytes_AS_STRING(whole)
        self.copy_in(PyBytes_AS_STRING(whole), base, w, head, server)
        while length > 0:
            piece = min(length, self.page_bytes - (self.data.offset & self.data.mask))
            self.data.ready(piece)
            memcpy(self.data.at, p, piece)
            self.data.forward(piece)
            p += piece
            length -= piece
        return 0

    cdef int put_slots(self, int64_t origin, Walk* w) except -1:
        """A slot for each message, in order; flags with release order."""
        cdef int64_t i, start, stop, count
        for i in range(w.listed):
            start, count = self.listed[2 * i], self.listed[2 * i + 1]
            stop = self.listed[2 * i + 2] if i + 1 < w.listed else w.bytes
            if count >= 0:                       # one entry; the messages of a wrapper have the same values
                self.put_run(origin + start, stop - start, count, 0)
            else:
                self.put_run(origin + start, (stop - start) // -count, -count, (stop - start) // -count)
        return 0

    cdef int put_run(self, int64_t begin, int64_t size, int64_t count, int64_t step) except -1:
        """Slots of one size, each `step` further on."""
        cdef uint64_t stamp = <uint64_t>FLAG << 56 | <uint64_t>size
        cdef int64_t ready
        while count > 0:
            if self.slots.stop - self.slots.at < SLOT:
                self.slots.ready(SLOT)
            ready = min(count, (self.slots.stop - self.slots.at) // SLOT)
            write_slots(self.slots.at, begin, stamp, ready, step)
            self.slots.forward(ready * SLOT)
            begin += ready * step
            count -= ready
        return 0

    cdef int put_record(self, int64_t begin, Head* head) except -1:
        cdef Record record
        record.ordinal, record.place, record.begin, record.time = head.ordinal, head.place, begin, head.time
        self.records.ready(RECORD)
        memcpy(self.records.at, &record, RECORD)
        self.records.forward(RECORD)
        return 0

    cdef void publish(self) noexcept:
        """From here on readers of every process find what was appended."""
        self.live[DATA_END] = self.data.offset
        self.live[PLACE] = self.place
        self.live[TIME] = self.time
        store_release(self.live + RECORD_END, self.records.offset)
        store_release(self.live + END, self.slots.offset // SLOT)

    cdef Place stand(self) noexcept:
        cdef Place p
        p.data, p.slots, p.records, p.place = self.data.offset, self.slots.offset, self.records.offset, self.place
        return p

    cdef int back_to(self, Place* before) except -1:
        """Undoes the steps of a call that failed; slots that were stored are free again."""
        cdef int64_t reached = self.slots.offset
        self.data.move(before.data)
        self.records.move(before.records)
        self.place = before.place
        self.slots.move(before.slots)
        while self.slots.offset < reached:
            self.slots.ready(SLOT)
            memset(self.slots.at, 0, SLOT)
            self.slots.forward(SLOT)
        self.slots.move(before.slots)
        return 0

    def adopt(self, payload, int dress, *, int64_t begin, int64_t length, int64_t time, int64_t place_length):
        """Takes a record over that lies in the data already: its slots and its index entry are written again."""
        cdef Py_buffer view
        cdef Walk w
        cdef Head head
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            prepare(&w, &view, dress, self.inflated_max, self.depth_max)
            w.listing = True
            self.listing(&w, <const char*>view.buf, <const char*>view.buf + view.len)
            memset(&head, 0, HEAD)
            head.ordinal, head.place, head.time = self.slots.offset // SLOT, self.place, time
            self.put_slots(begin + HEAD, &w)
            self.put_record(begin, &head)
            self.place += place_length
            self.time = max(self.time, time)
            self.data.move(begin + length)
            self.count = w.messages
        finally:
            PyBuffer_Release(&view)

    def move(self, *, int64_t data_offset, int64_t ordinal, int64_t record_offset, int64_t place, int64_t time):
        """Puts all cursors elsewhere: behind what a recovery or a truncation keeps."""
        self.data.move(data_offset)
        self.slots.move(ordinal * SLOT)
        self.records.move(record_offset)
        self.place, self.time = place, time

    def show(self):
        """Stores where the cursors stand in the live area."""
        self.publish()

    def ask_again(self):
        """What lay ready for data is not ready any more."""
        self.data.move(self.data.offset)

    def let_go(self, Page instead):
        """Lets all pages go; numbers go to a page that nobody else sees."""
        self.live_page = instead
        self.live = <int64_t*>(instead.base + self.live_at)
        self.data.move(self.data.offset)
        self.slots.move(self.slots.offset)
        self.records.move(self.records.offset)
        self.data.page = self.slots.page = self.records.page = None


cdef void write_slots(char* to, int64_t begin, uint64_t stamp, int64_t count, int64_t step) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        (<int64_t*>to)[0] = begin
        store_release(to + 8, stamp)
        begin += step
        to += SLOT


cdef int write_record(char* to, const char* base, Walk* w, Head* head, Server* server, uint32_t identity) except -1 nogil:
    cdef int64_t at = 0, size
    memcpy(to, head, HEAD)
    if head.dress == SEED or head.dress == REAL:
        memcpy(to + HEAD, base, w.bytes)
        patch_entries(to + HEAD, to + HEAD + w.bytes, head.dress, server)
        head.sum = crc32c(identity, to + SUMMED, HEAD - SUMMED + w.bytes)
    else:                                # summed piece by piece while it is copied, as stores wait for memory anyway
        head.sum = crc32c(identity, to + SUMMED, HEAD - SUMMED)
        while at < w.bytes:
            size = min(w.bytes - at, <int64_t>PIECE)
            head.sum = crc32c(head.sum, base + at, size)
            memcpy(to + HEAD + at, base + at, size)
            at += size
    memcpy(to + 4, &head.sum, 4)
    return 0
