# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic, initializedcheck=False
"""Mapped pages, the cursor that writes them, and the one store that publishes a message.

Two endless streams, data and index, are cut into page files of one length.  An index entry (slot):

    byte   0..7   begin: int64, where the payload starts in the data stream
           8..11  size: int32
          12..14  producer name (several producers), or a 24-bit checksum, or zero
          15      0x7F = published

Invariants
- a slot is published by one release store of its upper half, after payload and begin are in memory
- a slot is published only when the slot behind it may be looked at: it is reserved, or on another page
- the cursor never leaves what the log has reserved: `put` writes below `stop`, the rest asks `supply`

`supply` is the log's side of the seam: it opens files, reserves blocks and locks.  This module knows
none of that; it sees addresses and integers.  Reading is in `cursor.pyx`.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, Py_buffer, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EINVAL, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy


from serai._core.crc cimport crc32c

cdef extern from "atomics.h" nogil:
    void* mmap(void* addr, size_t length, int prot, int flags, int fd, int64_t offset)
    int munmap(void* addr, size_t length)
    int madvise(void* addr, size_t length, int advice)
    void* MAP_FAILED
    int PROT_NONE, PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MAP_FIXED
    int MADV_POPULATE_WRITE, MADV_RANDOM, MADV_NORMAL, MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <linux/falloc.h>
    """
    int fallocate(int fd, int mode, int64_t offset, int64_t length) nogil
    int FALLOC_FL_ZERO_RANGE, FALLOC_FL_KEEP_SIZE

cdef extern from "unistd.h" nogil:
    int syncfs(int fd)
    int close(int fd)

# A run that is larger than what a cache would keep of it goes past the caches: an ordinary store first reads the line it
# overwrites.  On resident pages 6.5 ns for 100 bytes instead of 10.8, and read back at once 13 instead of 16; below half a
# MiB the reader loses more than the writer gains.  Such stores keep no order: the fence makes them come before the slots.
cdef extern from *:
    """
    #include <string.h>
    #if defined(__x86_64__)
    #include <emmintrin.h>
    static void copy_far(char *to, const char *from, size_t n) {
        size_t head = -(size_t)to & 63;
        memcpy(to, from, head);
        to += head, from += head, n -= head;
        for (; n >= 64; n -= 64, to += 64, from += 64) {
            __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16));
            __m128i c = _mm_loadu_si128((const __m128i *)(from + 32)), d = _mm_loadu_si128((const __m128i *)(from + 48));
            _mm_stream_si128((__m128i *)to, a), _mm_stream_si128((__m128i *)(to + 16), b);
            _mm_stream_si128((__m128i *)(to + 32), c), _mm_stream_si128((__m128i *)(to + 48), d);
        }
        memcpy(to, from, n);
        _mm_sfence();
    }
    #else
    static void copy_far(char *to, const char *from, size_t n) { memcpy(to, from, n); }
    #endif
    """
    void copy_far(char* target, const char* source, size_t n) nogil

SLOT_BYTES = SLOT
PUBLISHED = FLAG
cdef enum:
    MESSAGE_MAX = 0x7FFFFFFF
    CHUNK = 32 << 20                 # most bytes a bulk append asks to have reserved at once
    FAR = 512 << 10                  # bytes from which on a run is copied past the caches
    LARGE = 2 << 20                  # a large memory page


MESSAGE_BYTES_MAX = MESSAGE_MAX
LARGE_BYTES = LARGE


cdef void* map_aligned(size_t length, int prot, int flags, int fd) noexcept nogil:
    """mmap, at a multiple of 2 MiB if it is as long: only there one entry of the processor's tables serves so much."""
    cdef char* room
    cdef char* base
    cdef size_t before
    if length < LARGE:
        return mmap(NULL, length, prot, flags, fd, 0)
    room = <char*>mmap(NULL, length + LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if room == <char*>MAP_FAILED:
        return MAP_FAILED
    before = -<size_t>room & (LARGE - 1)
    base = <char*>mmap(room + before, length, prot, flags | MAP_FIXED, fd, 0)
    if base == <char*>MAP_FAILED:
        munmap(room, length + LARGE)
        return MAP_FAILED
    if before:
        munmap(room, before)
    munmap(base + ((length + 4095) & ~<size_t>4095), LARGE - before)
    return base


cdef uint32_t place_sum(uint32_t crc, int64_t offset, int64_t begin, int64_t size) noexcept nogil:
    """The 24-bit checksum of an entry: CRC-32C of its payload (`crc`), then of where it stands."""
    cdef char[20] place
    cdef int32_t short_size = <int32_t>size
    memcpy(place, &offset, 8)
    memcpy(place + 8, &begin, 8)
    memcpy(place + 16, &short_size, 4)
    return crc32c(crc, place, 20) & 0xFFFFFF


def entry_sum(crc, offset, begin, size):
    """The checksum of an entry whose payload has the CRC-32C `crc`."""
    return place_sum(crc, offset, begin, size)


def sync_file_system(int fd):
    """Brings everything that is dirty on the file system of `fd` to its disk.  Runs without the GIL."""
    cdef int failed
    with nogil:
        failed = syncfs(fd)
    if failed:
        PyErr_SetFromErrno(OSError)


def leave_range(int fd, int64_t start, int64_t stop):
    """Takes the bytes start..stop of a file out of memory, whatever they were: they are zeros from now on, their blocks stay
    reserved.  Runs without the GIL."""
    cdef int failed
    with nogil:
        failed = fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, start, stop - start)
    if failed:
        PyErr_SetFromErrno(OSError)


@cython.final
cdef class OpenPage:
    """A page file that is open for writing; closed when nobody uses it any more, also not a thread that flushes."""
    cdef readonly int fd
    cdef readonly int64_t number

    def __cinit__(self, int fd, int64_t number):
        self.fd = fd
        self.number = number

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)


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
            base = map_aligned(length, prot, flags, fd)
        if base == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.base = <char*>base
        self.length = length
        self.writable = writable
        self.shared = fd >= 0

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.length)

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("a page is written through a writer, not through a view")
        PyBuffer_FillInfo(view, self, self.base, self.length, 1, flags)

    def __len__(self):
        return self.length

    def populate(self, Py_ssize_t start, Py_ssize_t stop, *, bint large=False):
        """Makes the bytes start..stop present and writable; contents stay.  Runs without the GIL.

        `large` asks the kernel for memory in pieces of 2 MiB, which halves the cost of the first touch; whenever a byte of
        such a piece is written and synced, all of it goes to the disk.

        Where a plain store would end in a signal (no space, a failing disk) this is an OSError.
        """
        cdef char* p
        cdef Py_ssize_t first, last
        cdef int failed = 0
        if not (0 <= start <= stop <= self.length and self.writable):
            raise ValueError(f"populate {start}..{stop} of a page of {self.length} bytes")
        start &= ~4095
        with nogil:
            if large:
                first, last = (start + LARGE - 1) & ~(LARGE - 1), stop & ~(LARGE - 1)
                if first < last:
                    madvise(self.base + first, last - first, MADV_HUGEPAGE)
            if madvise(self.base + start, stop - start, MADV_POPULATE_WRITE):
                failed = errno
            if failed == EINVAL:                 # Linux before 5.14
                failed = 0
                p = self.base + start
                while p < self.base + stop:
                    touch(p)
                    p += 4096
        if failed:
            raise OSError(failed, "the file system cannot make these bytes writable")

    def leave(self):
        """Gives the memory of this mapping back; the bytes stay in the file, and come again if touched.  Runs without the GIL."""
        if not self.writable or not self.shared:
            raise ValueError("private zeros would lose what was written")
        with nogil:
            madvise(self.base, self.length, MADV_DONTNEED)

    def in_small(self):
        """From now on memory for this page comes in small pieces again, where none is there yet."""
        madvise(self.base, self.length, MADV_NOHUGEPAGE)

    def one_by_one(self):
        """From now on a touch brings in one memory page, not a run of them: as many as the disk reads ahead, often megabytes."""
        madvise(self.base, self.length, MADV_RANDOM)

    def in_runs(self):
        """The opposite, as it is in the beginning."""
        madvise(self.base, self.length, MADV_NORMAL)

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

    def load(self, Py_ssize_t position):
        """The number at `position`, which is a multiple of 8, with acquire order."""
        if position & 7 or not 0 <= position <= self.length - 8:
            raise ValueError(f"no number at {position} of a page of {self.length} bytes")
        return <int64_t>load_acquire(self.base + position)

    def store(self, Py_ssize_t position, int64_t value):
        """Stores a number with release order: whoever loads it sees all that was written before."""
        if not self.writable or position & 7 or not 0 <= position <= self.length - 8:
            raise ValueError(f"no number at {position} of a page of {self.length} bytes")
        store_release(self.base + position, <uint64_t>value)

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

    cdef int alone(self) except -1:
        """Refuses a second thread while the first one is inside a call."""
        if self.busy:
            raise RuntimeError("two threads use one writer at once; hold writer.lock around each message")
        return 0

    cdef int start(self) except -1:
        self.alone()
        if self.open:
            self.rollback()
        self.open = True
        return 0

    cdef int more(self, int64_t need) except -1:
        """Moves `stop` on, or turns to the next page; on return at least one byte can be written."""
        cdef int64_t offset = self.tell()
        cdef int64_t room = self.page_bytes - (offset & self.mask)
        cdef Page page
        self.alone()
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
        self.alone()
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
        """The 24-bit checksum of the open message."""
        cdef uint32_t crc = self.sum
        if self.at > self.sum_at:
            crc = crc32c(crc, self.sum_at, self.at - self.sum_at)
        return place_sum(crc, self.slot_offset, self.begin, size)

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
        cdef int64_t size, origin
        cdef uint64_t bits
        cdef int32_t begin, end
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
        self.busy = True                         # without the GIL another thread must find the door closed
        with nogil:
            if ends[low] - first >= FAR:
                copy_far(self.at, p + first, ends[low] - first)
            else:
                memcpy(self.at, p + first, ends[low] - first)
            slot = self.slot
            origin = self.begin - first
            bits = self.stamp_bits
            end = ends[0]
            for i in range(low):
                begin = end
                end = ends[i + 1]
                (<int64_t*>slot)[0] = origin + begin
                store_release(slot + 8, bits | <uint64_t>(end - begin))
                slot += SLOT
        self.busy = False
        size = ends[low] - first
        self.at += size
        self.begin += size
        self.slot = slot
        self.slot_offset += low * SLOT
        return low

    def discard(self):
        """Gives the open message up; its bytes are overwritten by the next one."""
        self.alone()
        self.rollback()

    def shut(self):
        """Stops the cursor where it stands: whatever comes next asks the log, which says 'closed'."""
        self.alone()
        self.rollback()
        self.stop = self.at
        self.slot_stop = self.slot_offset
