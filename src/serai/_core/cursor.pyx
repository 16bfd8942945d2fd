# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Reading: where messages lie, and the cursor that walks over them.

    Cursor ── slots: Lane over the index ── Window: mapped bytes of one page
       │
       └── one Lane for each data stream; the View stands on the bytes of one message

Invariants
- a reader looks at no slot above `known`, the first entry nobody has told it about: what lies behind may
  have no block on disk yet
- begin and size are believed only when the bytes they name are mapped
- a view keeps its page mapped for as long as anybody holds it; after an error it stands on nothing
- an error is raised with the cursor already behind the entry, or the missing page: said once, then skipped

`supply` is the log's side: it maps pages, finds out who is alive, and names what is damaged.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from serai._core.crc cimport crc32c
from serai._core.pages cimport FLAG, SLOT, Page, load_acquire, place_sum, relax

cdef enum:
    TABLE = 64                       # windows a lane remembers
    OVER_READ = 4096                 # bytes behind a copied message that an unchecked reader may run into
cdef const char* NOTHING = ""


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
    published(), up to where entries are known to be used; last(), the newest entry's offset or -1;
    resume(offset), where to go on after a missing page; stalled(offset, name), an exception
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
        try:
            slot = self.slots.locate(self.offset, SLOT)
        except Exception:                        # said once: the next call goes on at the next page there is
            self.offset = self.supply.resume(self.offset)
            raise
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
            self.known = self.supply.published()
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
        if (begin & self.mask) + size <= self.mask + 1:
            base = lane.locate(begin, size)
            if base == NULL and size == 0:       # an empty message right behind the last page
                return 0
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
        cdef uint32_t want = (stamp >> 32) & 0xFFFFFF, got
        if want == 0:
            return 0
        got = place_sum(crc32c(0, view.base, view.size), view.offset, view.begin, view.size)
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
            if not self.shared and self.offset <= self.known and (self.slot != self.slot_end or self.turn()):
                slot = self.slot
                end = self.slot_end
                if (end - slot) // SLOT > left:
                    end = slot + left * SLOT
                with nogil:
                    while slot < end and load_acquire(slot + 8) >> 56 == FLAG:
                        slot += SLOT
                left -= (slot - self.slot) // SLOT
                self.forward((slot - self.slot) // SLOT)
                if slot == end:
                    continue
            if not self.step():                  # the end; or the step says what is wrong with the entry
                break
            left -= 1
        return count - left

    def wait(self, int64_t spins):
        """Looks up to `spins` times, without the GIL, whether a message is there."""
        cdef char* slot
        cdef bint ready = False
        if self.offset > self.known:
            self.known = self.supply.published()
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
        if offset < 0 or offset & 15:
            raise ValueError(f"{offset} is not an offset: an entry has 16 bytes, so offsets are multiples of 16; "
                             f"the nearest below is {offset & ~15 if offset > 0 else 0}")
        self.offset = offset
        self.slot = self.slot_end = NULL
        self.slot_page = None

    def shut(self):
        """Ends the cursor; the message it stands on stays readable."""
        self.closed = True
        self.slot = self.slot_end = NULL
        self.known = self.offset
