# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Mapped pages, the cursors that walk them, and the one store that publishes a message.

Two endless streams, data and index, are cut into page files of one length.  An index entry (slot):

    byte   0..7   begin: int64, where the payload starts in the data stream
           8..11  size: int32
          12..14  producer name (several producers), or a 24-bit checksum, or zero
          15      0x7F = published

Invariants
- a slot is published by one release store of its upper half, after payload and begin are in memory
- a slot is published only when the slot behind it may be looked at: it is reserved, or on another page
- the cursor never leaves what the log has reserved: `put` writes below `stop`, the rest asks `supply`
- a reader looks at no slot above `known`, the first entry nobody has told it about
- a view keeps its page mapped for as long as anybody holds it

`supply` is the log's side of the seam: it opens files, reserves blocks, finds out who is alive, and
names what is damaged.  This module knows none of that; it sees addresses and integers.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.errno cimport EINVAL, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy


from serai._core.crc cimport crc32c

cdef extern from "atomics.h" nogil:
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, int64_t offset)
    int munmap(void* addr, size_t length)
    int madvise(void* addr, size_t length, int advice)
    void* MAP_FAILED
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
    int MADV_POPULATE_WRITE

SLOT_BYTES = SLOT
PUBLISHED = FLAG
MESSAGE_BYTES_MAX = 0x7FFFFFFF
cdef enum:
    MESSAGE_MAX = 0x7FFFFFFF
    TABLE = 64                       # windows a lane remembers
    OVER_READ = 4096                 # bytes behind a copied message that an unchecked reader may run into
    CHUNK = 32 << 20                 # most bytes a bulk append asks to have reserved at once
cdef const char* NOTHING = ""


@cython.final
cdef class Page:
    """One page file mapped into memory, or private zeros when `fd` is -1.

    The mapping lives until the last view of it is gone; there is no close.
    """
    def __cinit__(self, int fd, Py_ssize_t length, bint writable):
        cdef int flags = MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        cdef int prot = PROT_READ | PROT_WRITE if writable else PROT_READ
        cdef void* base
        if length <= 0:
            raise ValueError(f"a page has at least one byte, not {length}")
        with nogil:
            base = mmap(NULL, length, prot, flags, fd, 0)
        if base == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.base = <char*>base
        self.length = length
        self.writable = writable

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.length)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a page is written through a writer, not through a view")
        PyBuffer_FillInfo(view, self, self.base, self.length, 1, flags)

    def __len__(self):
        return self.length

    def populate(self, Py_ssize_t start, Py_ssize_t stop):
        """Makes the bytes start..stop present and writable; contents stay.  Runs without the GIL."""
        cdef char* p
        cdef int failed
        if not (0 <= start <= stop <= self.length and self.writable):
            raise ValueError(f"populate {start}..{stop} of a page of {self.length} bytes")
        start &= ~4095
        with nogil:
            failed = madvise(self.base + start, stop - start, MADV_POPULATE_WRITE)
            if failed and errno == EINVAL:       # Linux before 5.14
                p = self.base + start
                while p < self.base + stop:
                    touch(p)
                    p += 4096

    def write(self, Py_ssize_t position, data):
        """Copies bytes into the page; for pages the log fills itself, never for published ones."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not (self.writable and 0 <= position <= self.length - view.len):
                raise ValueError(f"{view.len} bytes do not fit at {position} of a page of {self.length} bytes")
            memcpy(self.base + position, view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def finish(self, Py_ssize_t position, int64_t begin):
        """Completes a claimed entry: begin first, then the flag."""
        if not self.writable or position & 15 or not 0 <= position <= self.length - SLOT:
            raise ValueError(f"no entry at {position} of a page of {self.length} bytes")
        (<int64_t*>(self.base + position))[0] = begin
        store_flag(self.base + position + 15, FLAG)


cdef class Appender:
    """The writing end of a queue: a data cursor, an index cursor, and the publication of messages.

    `supply.data(offset, need)` gives (page, stop) for a data offset, reserved from there to `stop` in
    the page; `supply.slots(offset)` the same for the index.  With a `state` page (32 bytes, the .qm
    file) entries are claimed by compare-and-swap, as several processes write into one index.
    """
    def __cinit__(self, supply, *, int64_t page_bytes, int64_t data_offset, int64_t slot_offset,
                  bint summed=False, Page state=None, uint32_t name=0, bint java=False):
        self.supply = supply
        self.page_bytes = page_bytes
        self.mask = page_bytes - 1
        self.base_offset = self.begin = data_offset
        self.slot_offset = self.slot_stop = slot_offset
        self.stamp_bits = <uint64_t>FLAG << 56
        self.summed = summed
        if state is not None:
            self.state_page = state
            self.state = <int64_t*>state.base
            self.state_turn = 0 if self.state[0] < self.state[1] else 1
            self.stamp_bits |= <uint64_t>name << 32

    @property
    def offset(self):
        """Offset the next message will get (several producers: the earliest it can get)."""
        return self.slot_offset

    @property
    def data_end(self):
        """Data offset behind the last message of this writer."""
        return self.begin

    cdef int start(self) except -1:
        if self.busy:
            raise RuntimeError("two threads use one writer at once; hold writer.lock around each message")
        if self.open:
            self.rollback()
        self.open = True
        return 0

    cdef int more(self, int64_t need) except -1:
        """Moves `stop` on, or turns to the next page; on return at least one byte can be written."""
        cdef int64_t offset = self.tell()
        cdef int64_t room = self.page_bytes - (offset & self.mask)
        cdef Page page
        if self.busy:
            raise RuntimeError("two threads use one writer at once; hold writer.lock around each message")
        if need > MESSAGE_MAX - (offset - self.begin):
            raise OverflowError(f"a message has at most {MESSAGE_MAX} bytes; this one has "
                                f"{offset - self.begin} and {need} more were given")
        self.busy = True
        try:
            page, stop = self.supply.data(offset, min(need, room))
        finally:
            self.busy = False
        if self.summed and self.open and page is not self.data_page and self.data_page is not None:
            self.sum = crc32c(self.sum, self.sum_at, self.at - self.sum_at)
            self.sum_at = NULL
        self.data_page = page
        self.base = page.base
        self.base_offset = offset & ~self.mask
        self.at = page.base + (offset & self.mask)
        self.stop = page.base + <int64_t>stop
        if self.sum_at == NULL or not self.open:
            self.sum_at = self.at
        assert self.at < self.stop <= page.base + self.page_bytes
        return 0

    cdef int more_slots(self) except -1:
        cdef Page page
        if self.busy:
            raise RuntimeError("two threads use one writer at once; hold writer.lock around each message")
        self.busy = True
        try:
            page, stop = self.supply.slots(self.slot_offset)
        finally:
            self.busy = False
        self.slot_page = page
        self.slot = page.base + (self.slot_offset & self.mask)
        self.slot_stop = (self.slot_offset & ~self.mask) + <int64_t>stop
        assert self.slot_offset < self.slot_stop
        return 0

    cdef int put_over(self, const char* p, Py_ssize_t n) except -1:
        """Puts what does not fit below `stop`, over as many pages as it takes."""
        cdef Py_ssize_t room
        try:
            while n > 0:
                room = self.stop - self.at
                if room == 0:
                    self.more(n)
                    room = self.stop - self.at
                if room > n:
                    room = n
                memcpy(self.at, p, room)
                self.at += room
                p += room
                n -= room
        except BaseException:                    # half a value is in: the message cannot be published any more
            self.abandon()
            raise
        return 0

    cdef int rollback(self) except -1:
        """Gives the open message up: the cursor goes back to its begin."""
        self.open = False
        self.sum = 0
        if self.data_page is not None and self.begin >= self.base_offset:
            self.at = self.base + (self.begin - self.base_offset)
            self.sum_at = self.at
        else:                                    # it began on an earlier page: map that again when needed
            self.data_page = None
            self.base = self.at = self.stop = self.sum_at = NULL
            self.base_offset = self.begin
        return 0

    cdef int abandon(self) except -1:
        """Gives up the message a failed call left open, unless another thread's call is still at work."""
        if self.open and not self.busy:
            self.rollback()
        return 0

    cdef uint32_t total(self, int64_t size):
        """The 24-bit checksum of the open message: payload, then where it stands."""
        cdef char[20] place
        cdef int32_t short_size = <int32_t>size
        cdef uint32_t crc = self.sum
        if self.at > self.sum_at:
            crc = crc32c(crc, self.sum_at, self.at - self.sum_at)
        memcpy(place, &self.slot_offset, 8)
        memcpy(place + 8, &self.begin, 8)
        memcpy(place + 16, &short_size, 4)
        return crc32c(crc, place, 20) & 0xFFFFFF

    cdef int64_t publish(self) except -1:
        """Publishes the open message.

        Memory order: the payload and begin are plain stores; the upper half of the slot, which carries
        the flag, is a release store.  A reader that loads it with acquire sees everything before it.
        """
        cdef int64_t size = self.tell() - self.begin
        cdef int64_t offset
        cdef uint64_t stamp
        if size > MESSAGE_MAX:
            raise OverflowError(f"a message has at most {MESSAGE_MAX} bytes, this one has {size}")
        if self.slot_offset >= self.slot_stop:
            self.more_slots()
        if self.state != NULL:
            return self.publish_shared(size)
        stamp = self.stamp_bits | <uint64_t>size
        if self.summed:
            stamp |= <uint64_t>self.total(size) << 32
            self.sum = 0
            self.sum_at = self.at
        (<int64_t*>self.slot)[0] = self.begin
        store_release(self.slot + 8, stamp)
        offset = self.slot_offset
        self.slot += SLOT
        self.slot_offset += SLOT
        self.begin += size
        self.open = False
        return offset

    cdef int64_t publish_shared(self, int64_t size) except -1:
        """Publishes among several producers: state, claim, last index, begin, flag, in that order.

        The two ends in the state take turns; the one that is not the newest message's end is overwritten.
        Whatever instant the process dies at, the state file and the entry together tell where the
        message lies, so that the producer can finish it when it comes back.
        """
        cdef int64_t offset
        cdef uint64_t claim = (self.stamp_bits << 8 >> 8) | <uint64_t>size
        store_release(self.state + self.state_turn, self.begin + size)
        while not claim_zero(self.slot + 8, claim):
            self.slot += SLOT
            self.slot_offset += SLOT
            if self.slot_offset >= self.slot_stop:
                self.more_slots()
        self.state_turn = not self.state_turn
        store_release(self.state + 2, self.slot_offset)
        store_release(self.slot, self.begin)
        store_flag(self.slot + 15, FLAG)
        offset = self.slot_offset
        self.slot += SLOT
        self.slot_offset += SLOT
        self.begin += size
        self.open = False
        return offset

    cdef int64_t append_bytes(self, const char* p, Py_ssize_t n) except -1:
        if self.open or self.busy:
            self.start()
        if n <= self.stop - self.at and self.slot_offset < self.slot_stop and self.state == NULL:
            memcpy(self.at, p, n)
            self.at += n
            return self.publish()
        return self.append_slow(p, n)

    cdef int64_t append_slow(self, const char* p, Py_ssize_t n) except -1:
        self.start()
        try:
            self.put(p, n)
            return self.publish()
        except BaseException:
            self.abandon()
            raise

    def append(self, body):
        """Writes one message and publishes it; gives its offset."""
        cdef Py_buffer view
        if type(body) is bytes:
            return self.append_bytes(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            return self.append_bytes(<const char*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def append_many(self, bodies):
        """Writes each item as one message; gives the offset of the last, -1 if there was none.

        When an item fails, those before it are published and the error says how many they were.
        """
        cdef list items = bodies if type(bodies) is list else list(bodies)
        cdef Py_ssize_t i = 0
        cdef int64_t offset = -1
        cdef object item
        try:
            while i < len(items):
                item = items[i]
                if type(item) is bytes:
                    offset = self.append_bytes(PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))
                else:
                    offset = self.append(item)
                i += 1
        except BaseException as error:
            error.add_note(f"{i} of the {len(items)} messages of this call were written before")
            raise
        return offset

    cdef Py_ssize_t append_run(self, const char* p, const int32_t* ends, Py_ssize_t n) except -1:
        """Appends up to n messages that lie one behind the other; gives how many, at least one.

        ends[0] is where the first starts and ends[i + 1] where message i ends, all counted from `p`.
        One copy for all of them, then a loop over the slots.
        """
        cdef int64_t first = ends[0]
        cdef int64_t size
        cdef Py_ssize_t i, low = 0, high, middle
        cdef char* slot
        if self.open or self.busy:
            self.start()
            self.open = False
        if ends[n] - first > self.stop - self.at:
            size = ends[n] - first
            if self.stop < self.base + self.page_bytes or self.at == self.stop:
                self.more(size if size < CHUNK else CHUNK)
        if self.slot_offset >= self.slot_stop:
            self.more_slots()
        high = (self.slot_stop - self.slot_offset) >> 4
        if high > n:
            high = n
        while low < high:                        # the most messages that fit in the room
            middle = (low + high + 1) >> 1
            if ends[middle] - first <= self.stop - self.at:
                low = middle
            else:
                high = middle - 1
        if low == 0 or self.state != NULL or self.summed:
            self.append_bytes(p + first, ends[1] - first)
            return 1
        with nogil:
            memcpy(self.at, p + first, ends[low] - first)
            slot = self.slot
            for i in range(low):
                size = ends[i + 1] - ends[i]
                (<int64_t*>slot)[0] = self.begin + (ends[i] - first)
                store_release(slot + 8, self.stamp_bits | <uint64_t>size)
                slot += SLOT
        size = ends[low] - first
        self.at += size
        self.begin += size
        self.slot = slot
        self.slot_offset += low * SLOT
        return low

    def discard(self):
        """Gives the open message up; its bytes are overwritten by the next one."""
        self.rollback()

    def shut(self):
        """Stops the cursor where it stands: whatever comes next asks the log, which says 'closed'."""
        self.rollback()
        self.stop = self.at
        self.slot_stop = self.slot_offset


cdef class View:
    """Where a message lies: its entry, its bytes, and a cursor over them."""

    @property
    def producer(self):
        """Name of the producer, "" in a single-producer queue."""
        if self.name == 0:
            return ""
        return (chr(self.name >> 16 & 0xFF) + chr(self.name >> 8 & 0xFF) + chr(self.name & 0xFF))

    @property
    def payload(self):
        """The message's bytes, copied."""
        return PyBytes_FromStringAndSize(self.base, self.size)

    def view(self):
        """The message's bytes where they lie; the page stays mapped as long as the view lives."""
        cdef Py_ssize_t start
        if self.owner is None:
            return memoryview(b"")
        if isinstance(self.owner, Page):
            start = self.base - (<Page>self.owner).base
            return memoryview(self.owner)[start:start + self.size]
        return memoryview(self.owner)[:self.size]

    cdef void clear(self) noexcept:
        """Stands on nothing."""
        self.base = self.at = self.end = NOTHING
        self.size = 0
        self.owner = None

    def __len__(self):
        return self.size

    def __bool__(self):
        """A message is there, also an empty one: `while message := reader.next()` reads them all."""
        return True


@cython.final
cdef class Window:
    pass


@cython.final
cdef class Lane:
    """One stream as a reader sees it: the window under the cursor, and 64 more it has seen.

    `fetch(offset, need)` gives (page, start): mapped bytes and the stream offset of the first of them,
    which hold at least `need` bytes from `offset` on; or None while they are not there.  A window never
    goes over a page end; it may be less than a page, as where pages are compressed.
    """
    def __cinit__(self, fetch, *, int64_t page_bytes, uint32_t name=0):
        self.fetch = fetch
        self.name = name
        self.mask = page_bytes - 1
        while (<int64_t>1 << self.shift) < page_bytes:
            self.shift += 1
        self.lo = 0
        self.hi = -1
        self.table = [None] * TABLE

    cdef char* locate(self, int64_t offset, int64_t size) except? NULL:
        """Address of `size` bytes that lie on one page; NULL while the page is not there."""
        cdef int64_t number = offset >> self.shift
        cdef Window window
        if offset >= self.lo and self.hi - offset >= size:
            return self.base + (offset - self.lo)
        window = <object>PyList_GET_ITEM(self.table, number & (TABLE - 1))
        if window is None or window.number != number or offset < window.lo or window.hi - offset < size:
            found = self.fetch(offset, size)
            if found is None:
                return NULL
            window = Window.__new__(Window)
            window.page, start = found
            window.number = number
            window.base = window.page.base
            window.lo = start
            window.hi = window.lo + window.page.length
            assert window.lo <= offset and window.hi - offset >= size
            assert window.lo >= offset & ~self.mask and window.hi <= (offset | self.mask) + 1
            self.table[number & (TABLE - 1)] = window
        self.page = window.page
        self.base = window.base
        self.lo = window.lo
        self.hi = window.hi
        return self.base + (offset - self.lo)

    cdef bytes gather(self, int64_t offset, int64_t size):
        """Bytes that lie over a page end, copied together; None when a page of them is missing."""
        cdef bytes whole
        cdef char* to
        cdef const char* part
        cdef int64_t room
        if self.locate(offset + size - 1, 1) == NULL or self.locate(offset, 1) == NULL:
            return None
        whole = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(whole)
        while size > 0:
            room = self.mask + 1 - (offset & self.mask)
            if room > size:
                room = size
            part = self.locate(offset, room)
            if part == NULL:
                return None
            memcpy(to, part, room)
            to += room
            offset += room
            size -= room
        return whole


cdef class Cursor:
    """The reading end of a queue: walks the index and places a view on each message.

    `supply` answers: slots(offset, need) and data(name)(offset, need) as `Lane.fetch`;
    published(offset), up to where entries are known to be used; stalled(offset, name), an exception
    when the claimed entry's producer is dead; damage(offset, begin, size, name, text), the exception
    for an entry that cannot be right; closed(), the exception for use after close; page_bytes(), which
    is 0 until somebody made the first page.
    """
    def __cinit__(self, supply, *, int64_t offset, int64_t known, bint shared, bint summed, bint checked, bint java):
        self.supply = supply
        self.view = View()
        self.mask = -1
        self.offset = offset
        self.known = known
        self.shared = shared
        self.summed = summed
        self.checked = checked

    cdef bint measure(self) except -1:
        """Learns the page size, as soon as there is one."""
        cdef int64_t page_bytes = self.supply.page_bytes()
        if page_bytes == 0:
            return False
        self.slots = Lane(self.supply.slots, page_bytes=page_bytes)
        self.lanes = []
        if not self.shared:
            self.lane = Lane(self.supply.data(0), page_bytes=page_bytes)
        self.mask = page_bytes - 1
        return True

    cdef int turn(self) except -1:
        """Finds the page of the entry at `offset`: 1, or 0 while there is none."""
        cdef char* slot
        if self.closed:
            raise self.supply.closed()
        if self.mask < 0 and not self.measure():
            return 0
        slot = self.slots.locate(self.offset, SLOT)
        if slot == NULL:
            return 0
        self.slot_page = self.slots.page
        self.slot = slot
        self.slot_end = slot + (self.mask + 1 - (self.offset & self.mask))
        return 1

    cdef int step(self) except -1:
        """Takes the next message: 1 and the view is on it, 0 when there is none yet.

        On an error the cursor is already behind the entry, so that it is said once and then skipped.
        """
        cdef uint64_t stamp
        cdef int64_t begin, size
        cdef Lane lane
        cdef View view = self.view
        if self.offset > self.known:
            self.known = self.supply.published(self.offset)
            if self.offset > self.known:
                return 0
        if self.slot == self.slot_end and not self.turn():
            return 0
        stamp = load_acquire(self.slot + 8)
        if stamp >> 56 != FLAG:
            if not self.unready(stamp):
                return 0
            stamp = load_acquire(self.slot + 8)
        begin = (<int64_t*>self.slot)[0]
        size = <int32_t>stamp
        view.offset = self.offset
        view.begin = begin
        self.forward(1)
        lane = self.lane
        if self.shared:
            view.name = (stamp >> 32) & 0xFFFFFF
            if lane is None or view.name != lane.name:
                view.clear()
                lane = self.lane_of(view.name)
        if begin >= lane.lo and size >= 0 and lane.hi - begin >= size:
            view.base = lane.base + (begin - lane.lo)
            view.end = view.base + size if self.checked else lane.base + (lane.hi - lane.lo)
            if view.owner is not lane.page:
                view.owner = lane.page
        else:
            view.clear()                         # an error leaves an empty view, not one of other bytes
            self.place(lane, begin, size)
        view.size = size
        view.at = view.base
        if self.summed:
            self.check_sum(stamp)
        return 1

    cdef void forward(self, Py_ssize_t count) noexcept:
        self.slot += count * SLOT
        self.offset += count * SLOT
        if self.offset > self.known:
            self.known = self.offset

    cdef int unready(self, uint64_t stamp) except -1:
        """An entry without its flag: 0 to stay, 1 when it was published meanwhile."""
        if not self.shared:
            if self.summed and stamp != 0:
                self.view.offset = self.offset
                self.view.begin = (<int64_t*>self.slot)[0]
                self.forward(1)
                self.damaged(<int32_t>stamp, f"an entry that is in use has {stamp >> 56:#04x} for its end flag")
            return 0
        if stamp >> 32 & 0xFF == 0:
            return 0
        error = self.supply.stalled(self.offset, stamp >> 32 & 0xFFFFFF)
        if error is None:
            return load_acquire(self.slot + 8) >> 56 == FLAG
        if load_acquire(self.slot + 8) >> 56 == FLAG:   # it was finished, then its producer left
            return 1
        self.forward(1)
        raise error

    cdef int place(self, Lane lane, int64_t begin, int64_t size) except -1:
        """Puts the view on bytes that are not in the lane's window."""
        cdef View view = self.view
        cdef const char* base
        cdef bytes whole
        cdef int64_t tail = 0
        if size < 0 or begin < 0 or begin > (<int64_t>1 << 62):
            self.damaged(size, "begin and size cannot be right")
        if size == 0:
            view.base = view.end = NOTHING
            view.owner = None
            return 0
        if (begin & self.mask) + size <= self.mask + 1:
            base = lane.locate(begin, size)
            if base == NULL:
                self.damaged(size, "its data page is not there")
            view.base = base
            view.end = base + size if self.checked else lane.base + (lane.hi - lane.lo)
            view.owner = lane.page
            return 0
        if not self.checked:                     # over-reading goes on for a while, at most to the page end
            tail = (self.mask + 1 - ((begin + size) & self.mask)) & self.mask
            if tail > OVER_READ:
                tail = OVER_READ
        whole = lane.gather(begin, size + tail)
        if whole is None:
            self.damaged(size, "one of its data pages is not there")
        view.base = PyBytes_AS_STRING(whole)
        view.end = view.base + size + tail
        view.owner = whole
        return 0

    cdef int check_sum(self, uint64_t stamp) except -1:
        cdef View view = self.view
        cdef char[20] place
        cdef int32_t size = <int32_t>view.size
        cdef uint32_t want = (stamp >> 32) & 0xFFFFFF, got
        if want == 0:
            return 0
        memcpy(place, &view.offset, 8)
        memcpy(place + 8, &view.begin, 8)
        memcpy(place + 16, &size, 4)
        got = crc32c(crc32c(0, view.base, view.size), place, 20) & 0xFFFFFF
        if got != want:
            self.damaged(view.size, f"its checksum is {want:06x}, its bytes have {got:06x}")
        return 0

    cdef Lane lane_of(self, uint32_t name):
        cdef Lane lane
        for lane in self.lanes:
            if lane.name == name:
                self.lane = lane
                return lane
        lane = Lane(self.supply.data(name), page_bytes=self.mask + 1, name=name)
        self.lanes.append(lane)
        self.lane = lane
        return lane

    cdef int damaged(self, int64_t size, str text) except -1:
        cdef View view = self.view
        view.clear()
        raise self.supply.damage(view.offset, view.begin, size, view.name, text)

    cdef int64_t peek(self) except -2:
        """Size of the next message, -1 when the next entry is not plainly there."""
        cdef uint64_t stamp
        if self.offset > self.known or (self.slot == self.slot_end and not self.turn()):
            return -1
        stamp = load_acquire(self.slot + 8)
        return <int32_t>stamp if stamp >> 56 == FLAG else -1

    cdef Py_ssize_t run_on(self, int64_t room) except -1:
        """How many further messages lie right behind the current one, in its window and within `room` bytes."""
        cdef View view = self.view
        cdef int64_t expected = view.begin + view.size, size
        cdef char* slot = self.slot
        cdef char* end = self.slot_end
        cdef uint64_t stamp
        if self.shared or view.owner is not self.lane.page:
            return 0
        if room > self.lane.hi - expected:
            room = self.lane.hi - expected
        with nogil:
            while slot < end:
                stamp = load_acquire(slot + 8)
                size = <int32_t>stamp
                if stamp >> 56 != FLAG or size < 0 or size > room or (<int64_t*>slot)[0] != expected:
                    break
                expected += size
                room -= size
                slot += SLOT
        return (slot - self.slot) // SLOT

    def skip(self, int64_t count):
        """Goes over up to `count` messages without looking at their bytes; gives how many there were."""
        cdef int64_t left = count
        cdef char* slot
        cdef char* end
        while left > 0:
            if self.shared or self.slot == self.slot_end or self.offset > self.known:
                if not self.step():
                    break
                left -= 1
                continue
            slot = self.slot
            end = self.slot_end
            if (end - slot) // SLOT > left:
                end = slot + left * SLOT
            with nogil:
                while slot < end and load_acquire(slot + 8) >> 56 == FLAG:
                    slot += SLOT
            left -= (slot - self.slot) // SLOT
            self.forward((slot - self.slot) // SLOT)
            if slot < end:
                if not self.step():              # also says what is wrong with the entry
                    break
                left -= 1
        return count - left

    def wait(self, int64_t spins):
        """Looks up to `spins` times, without the GIL, whether a message is there."""
        cdef char* slot
        cdef bint ready = False
        if self.offset > self.known:
            self.known = self.supply.published(self.offset)
            if self.offset > self.known:
                return False
        if self.slot == self.slot_end and not self.turn():
            return False
        slot = self.slot
        page = self.slot_page                    # keeps the page mapped while the GIL is away
        with nogil:
            while spins > 0:
                if load_acquire(slot + 8) >> 56 == FLAG:
                    ready = True
                    break
                relax()
                spins -= 1
        return ready

    def seek(self, int64_t offset):
        """Puts the cursor on an entry; the next step reads it."""
        self.offset = offset
        self.slot = self.slot_end = NULL
        self.slot_page = None

    def shut(self):
        """Ends the cursor; the message it stands on stays readable."""
        self.closed = True
        self.slot = self.slot_end = NULL
        self.known = self.offset
