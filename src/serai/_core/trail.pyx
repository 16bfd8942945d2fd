# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""Reading records: from an ordinal, a place or a time to the record, and from the record to spans of messages.

    ordinal --(slots: arithmetic)--> entry        ordinal, place, time --(records: binary search)--> head

A span is a stretch of whole entries of one dress: a view of the mapped page, or for small ones bytes that were
gathered.  A record's checksum is compared when it is read for the first time; what this process appended itself
lies above `sure_from` and needs none.

Invariants
- a span never goes beyond the limit that the caller gives, and never starts inside an entry
- bytes whose checksum does not fit are never given
- slots and record index have no checksum: an entry of the index is compared with the head it leads to, and the slots
  of a record with its messages before a piece of it is cut out for the first time
- nothing is read that the file system cannot deliver: pages are asked for before they are touched

Left to others: how far may be read and which records are there (the caller), the words for damage (the supply).
"""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from serai._core.crc cimport crc32c
from serai._core.cursor cimport Lane
from serai._core.pages cimport FLAG, SLOT, Page
from serai._core.records cimport HEAD, RECORD, SUMMED, VERSION_1, WRAPPED, Head as HeadBytes, Record
from serai._core.spans cimport GATHER_BELOW, GATHER_MAX, Gather, Piece, span_of

from collections import namedtuple

from serai._core.messages import layout

cdef extern from "atomics.h" nogil:
    int MADV_POPULATE_READ
cdef extern from "sys/mman.h" nogil:
    int madvise(void* base, size_t length, int advice)
cdef extern from "errno.h" nogil:
    int errno, EFAULT, EHWPOISON

cdef enum:
    ASTRAY_MAX = 8                       # record index entries in the way of a search that may be damaged
    MEMORY_PAGE = 4096

Head = namedtuple("Head", "length dress flags messages ordinal place place_length epoch time producer sequence transaction "
                          "part begin", module="serai._core.trail")


cdef inline bint bit_of(object bits, int64_t i) noexcept:
    return (<uint8_t*>PyByteArray_AS_STRING(bits))[i >> 3] >> (i & 7) & 1


cdef inline void set_bit(object bits, int64_t i) noexcept:
    (<uint8_t*>PyByteArray_AS_STRING(bits))[i >> 3] |= 1 << (i & 7)


@cython.final
cdef class Trail:
    """The reading end of a partition; it belongs to one thread.

    `supply.data(offset, need)`, `.slots`, `.records` give (page, start of it) or None while the page is not there;
    `supply.damage(record, begin, ordinal, text)` makes the error for bytes that cannot be right.
    """
    cdef object supply
    cdef Lane data, slots, records
    cdef int64_t mask
    cdef uint32_t identity
    cdef public int64_t sure_from        # record index offset; records from here on were checked
    cdef public bint unread              # the disk did not give something; stays until somebody takes it back
    cdef dict sure                       # page of the record index -> a bit for each record below that
    cdef dict fitting                    # the same: records whose slots were compared with their messages
    cdef dict reached                    # page of an index -> a bit for each memory page that the disk gave
    cdef int64_t reached_last
    cdef int64_t hint                    # record that was found last
    cdef int64_t inflated_max
    cdef int depth_max

    def __cinit__(self, supply, *, int64_t page_bytes, uint32_t identity, int64_t sure_from, int64_t inflated_max,
                  int depth_max):
        self.supply = supply
        self.mask = page_bytes - 1
        self.data = Lane(supply.data, page_bytes=page_bytes)
        self.slots = Lane(supply.slots, page_bytes=page_bytes)
        self.records = Lane(supply.records, page_bytes=page_bytes)
        self.identity = identity
        self.sure_from = sure_from
        self.sure = {}
        self.fitting = {}
        self.reached = {}
        self.hint = self.reached_last = -1
        self.inflated_max, self.depth_max = inflated_max, depth_max

    def forget(self):
        """Lets all mapped pages go: some of them are no longer there, or are used again."""
        self.data = Lane(self.supply.data, page_bytes=self.mask + 1)
        self.slots = Lane(self.supply.slots, page_bytes=self.mask + 1)
        self.records = Lane(self.supply.records, page_bytes=self.mask + 1)
        self.reached = {}
        self.hint = self.reached_last = -1

    # ---- finding ------------------------------------------------------------------------------------------

    cdef Record* record_at(self, int64_t offset) except NULL:
        cdef char* p = self.records.locate(offset, RECORD)
        if p == NULL:
            raise self.supply.damage(offset, -1, -1, "the page of this record index entry is missing")
        if not self.reachable(p, offset, 1):
            raise self.supply.damage(offset, -1, -1, "the disk does not give this record index entry back")
        return <Record*>p

    cdef bint reachable(self, char* p, int64_t offset, int stream):
        """Whether an entry of an index can be had; asked once for each memory page."""
        cdef int64_t block = (offset // MEMORY_PAGE) * 2 + stream, page = offset // (self.mask + 1) * 2 + stream
        cdef int64_t i = (offset & self.mask) // MEMORY_PAGE
        cdef object bits
        if block == self.reached_last:
            return True
        bits = self.reached.get(page)
        if bits is None:
            bits = self.reached[page] = bytearray((self.mask + 1) // MEMORY_PAGE // 8 + 1)
        if not bit_of(bits, i):
            if not self.deliverable(p, 1):
                return False
            set_bit(bits, i)
        self.reached_last = block
        return True

    cdef int64_t search(self, int64_t low, int64_t high, int field, int64_t value) except -1:
        """Offset of the first entry in low..high whose field is above the value."""
        cdef int64_t middle
        while low < high:
            middle = (low + high) // (2 * RECORD) * RECORD
            if (<int64_t*>self.record_at(middle))[field] <= value:
                low = middle + RECORD
            else:
                high = middle
        return low

    def find(self, int64_t ordinal, *, int64_t first, int64_t end):
        """Record index offset of the record that holds the ordinal, among the entries first..end."""
        return self.found(ordinal, first, end)

    cdef int64_t found(self, int64_t ordinal, int64_t first, int64_t end) except -1:
        cdef int64_t at = self.hint
        if first <= at < end and self.record_at(at).ordinal <= ordinal:     # reading goes on where it was, or behind
            if at + RECORD >= end or self.record_at(at + RECORD).ordinal > ordinal:
                return at
            if at + 2 * RECORD >= end or self.record_at(at + 2 * RECORD).ordinal > ordinal:
                self.hint = at + RECORD
                return at + RECORD
        at = self.search(first, end, 0, ordinal) - RECORD
        if at < first:
            raise ValueError(f"no record before ordinal {ordinal}")
        self.hint = at
        return at

    def holder(self, int64_t ordinal, *, int64_t first, int64_t end):
        """As `find`, and the record was looked at: it does hold the ordinal."""
        cdef HeadBytes head
        return self.seek(ordinal, first, end, &head)

    cdef int64_t seek(self, int64_t ordinal, int64_t first, int64_t end, HeadBytes* head) except -1:
        """The record that holds an ordinal, also where a damaged entry leads the search astray."""
        cdef int64_t at = -1
        cdef object trouble = None
        try:
            at = self.found(ordinal, first, end)
            self.head_of(at, head)
            if head.ordinal <= ordinal < head.ordinal + head.count:
                return at
        except Exception as error:
            trouble = error
        tried = {at}
        while len(tried) <= ASTRAY_MAX:
            at = self.below(ordinal, first, end, tried)
            if at < 0:
                break
            tried.add(at)
            try:
                self.head_of(at, head)
            except Exception as error:
                trouble = trouble or error
                continue
            if head.ordinal <= ordinal < head.ordinal + head.count:
                self.hint = at
                return at
        self.hint = -1
        if trouble is None:
            trouble = self.supply.damage(max(at, first), -1, ordinal, "the record index has no record of this ordinal")
        raise trouble

    cdef int64_t below(self, int64_t ordinal, int64_t first, int64_t end, set tried) except? -2:
        """The entry with the highest ordinal that is not above this one, by looking at all that are there; -1 for none."""
        cdef int64_t at = first, one, best = -1, best_ordinal = -1
        while at < end:
            try:
                one = self.record_at(at).ordinal
            except Exception:                    # the disk does not give it: nor what else is on this memory page
                at = (at | MEMORY_PAGE - 1) + 1
                continue
            if best_ordinal <= one <= ordinal and at not in tried:
                best, best_ordinal = at, one
            at += RECORD
        return best

    def find_place(self, int64_t place, *, int64_t first, int64_t end):
        """As `find`, of the record that holds a place."""
        return self.search(first, end, 1, place) - RECORD

    def find_time(self, int64_t ms, *, int64_t first, int64_t end):
        """Offset of the first record that was stored at or after the time; `end` when there is none."""
        return self.search(first, end, 3, ms - 1)

    def find_begin(self, int64_t begin, *, int64_t first, int64_t end):
        """Offset of the first record whose head lies at or behind a data offset."""
        return self.search(first, end, 2, begin - 1)

    def record(self, int64_t offset):
        """(ordinal, place, begin, time) of a record index entry."""
        cdef Record* r = self.record_at(offset)
        return r.ordinal, r.place, r.begin, r.time

    def times(self, int64_t ordinal, int64_t count, *, int64_t first, int64_t end):
        """The store time of each of `count` messages, int64 milliseconds in bytes: spans of small records keep only one."""
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, 8 * count)
        cdef int64_t* to = <int64_t*>PyBytes_AS_STRING(whole)
        cdef HeadBytes head
        cdef int64_t at = self.seek(ordinal, first, end, &head), behind, time, stop = ordinal + count
        while ordinal < stop:
            time = self.record_at(at).time
            behind = stop
            if at + RECORD < end:
                try:
                    behind = min(self.record_at(at + RECORD).ordinal, stop)
                except Exception:                # no message that was read lies behind what the disk does not give
                    behind = stop
                at += RECORD
            while ordinal < behind:
                to[0] = time
                to += 1
                ordinal += 1
        return whole

    def slot(self, int64_t ordinal):
        """(begin, size) of a message's entry."""
        cdef int64_t* slot = self.slot_at(ordinal)
        return slot[0], (<int32_t*>slot)[2]

    cdef int64_t* slot_at(self, int64_t ordinal) except NULL:
        cdef char* p = self.slots.locate(ordinal * SLOT, SLOT)
        if p == NULL or not self.reachable(p, ordinal * SLOT, 0) or p[15] != FLAG:
            raise self.supply.damage(-1, -1, ordinal, "its slot is missing or empty")
        return <int64_t*>p

    # ---- one record ---------------------------------------------------------------------------------------

    cdef bint is_sure(self, int64_t offset) noexcept:
        cdef object bits
        if offset >= self.sure_from:
            return True
        bits = self.sure.get(offset // (self.mask + 1))
        return bits is not None and bit_of(bits, (offset & self.mask) // RECORD)

    cdef int make_sure(self, dict which, int64_t offset) except -1:
        cdef int64_t page = offset // (self.mask + 1)
        bits = which.get(page)
        if bits is None:
            bits = which[page] = bytearray(((self.mask + 1) // RECORD + 7) // 8)
        set_bit(bits, (offset & self.mask) // RECORD)
        return 0

    cdef int check_slots(self, int64_t offset, HeadBytes* head, int64_t begin) except -1:
        """Compares a record's slots with its messages, once: a slot has no checksum, and would cut at a wrong byte."""
        cdef object bits
        if offset >= self.sure_from:
            return 0
        bits = self.fitting.get(offset // (self.mask + 1))
        if bits is not None and bit_of(bits, (offset & self.mask) // RECORD):
            return 0
        self.slots_against(head, begin)
        return self.make_sure(self.fitting, offset)

    cdef int slots_against(self, HeadBytes* head, int64_t begin) except -1:
        cdef bytes starts, counts
        cdef const int32_t* start
        cdef const int32_t* count
        cdef int64_t* slot
        cdef int64_t i, n, entries, at, size, ordinal = head.ordinal
        starts, counts = layout(self.piece(begin, 0, head.length - HEAD), head.dress, inflated_max=self.inflated_max,
                                depth_max=self.depth_max)
        start, count = <const int32_t*>PyBytes_AS_STRING(starts), <const int32_t*>PyBytes_AS_STRING(counts)
        entries = len(starts) // 4
        for i in range(entries):
            at = begin + HEAD + start[i]
            size = (start[i + 1] if i + 1 < entries else head.length - HEAD) - start[i]
            for n in range(count[i]):
                slot = self.slot_at(ordinal)
                if slot[0] != at or slot[1] != (<int64_t>FLAG << 56 | size):
                    raise self.supply.damage(-1, -1, ordinal, f"its slot leads to {(<int32_t*>slot)[2]} bytes at {slot[0]}, "
                                                              f"the message has {size} at {at}")
                ordinal += 1
        return 0

    def compare_slots(self, int64_t begin):
        """Compares the slots of the record at a data offset with its messages; raises what does not fit."""
        cdef HeadBytes head
        text = self.check(begin, &head)
        if text is not None:
            raise self.supply.damage(-1, begin, -1, text)
        self.slots_against(&head, begin)

    cdef int head_of(self, int64_t offset, HeadBytes* head) except -1:
        """The head of a record, its checksum compared if nobody did before."""
        cdef Record* record = self.record_at(offset)
        cdef int64_t begin = record.begin, ordinal = record.ordinal
        cdef char* p
        if self.is_sure(offset):
            p = self.data.locate(begin, HEAD)
            if p == NULL:
                raise self.supply.damage(offset, begin, ordinal, "its page is missing")
            memcpy(head, p, HEAD)
            return 0
        text = self.check(begin, head)
        if text is not None:
            raise self.supply.damage(offset, begin, ordinal, text)
        if head.ordinal != ordinal or head.place != record.place or head.time != record.time:
            raise self.supply.damage(offset, -1, -1, f"the record index leads to the record of ordinal {head.ordinal}, place "
                                                     f"{head.place}, time {head.time}, and says {ordinal}, {record.place}, "
                                                     f"{record.time}")
        return self.make_sure(self.sure, offset)

    cdef object check(self, int64_t begin, HeadBytes* head):
        """None, or why the bytes at a data offset are no record of this log."""
        cdef char* p
        cdef int64_t room
        cdef uint32_t sum
        cdef bytes whole
        if begin < 0:
            return "its begin is negative"
        room = self.mask + 1 - (begin & self.mask)
        if room < HEAD:
            return "a head does not fit there"
        p = self.data.locate(begin, HEAD)
        if p == NULL:
            return "its page is missing"
        if not self.deliverable(p, HEAD):
            return "the disk does not give its bytes back"
        memcpy(head, p, HEAD)
        if head.version != VERSION_1 or head.length < HEAD or head.length > 0x7FFFFFFF:
            return "there is no head of a record"
        if head.length <= room:
            p = self.data.locate(begin, head.length)
            if p == NULL:
                return "its page is missing"
            if not self.deliverable(p, head.length):
                return "the disk does not give its bytes back"
            sum = crc32c(self.identity, p + SUMMED, head.length - SUMMED)
        else:
            if begin & self.mask:
                return "its length leaves the page"
            whole = self.whole(begin, head.length)
            if whole is None:
                return "its last page is missing"
            sum = crc32c(self.identity, PyBytes_AS_STRING(whole) + SUMMED, head.length - SUMMED)
        if sum != head.sum:
            return f"its checksum is {head.sum:08x}, its bytes have {sum:08x}"
        return None

    cdef bint deliverable(self, char* p, int64_t size) noexcept:
        """Whether these bytes can be had: a disk that fails, or a file cut short, would be a signal later."""
        cdef uint64_t start = <uint64_t>p & ~<uint64_t>(MEMORY_PAGE - 1)
        if madvise(<void*>start, <uint64_t>p + size - start, MADV_POPULATE_READ):
            if errno == EFAULT or errno == EHWPOISON:              # other errors: an older kernel does not know it
                self.unread = True
                return False
        return True

    cdef bytes whole(self, int64_t begin, int64_t size):
        """A record longer than a page, copied together; None when a page of it is missing."""
        cdef int64_t at = begin, piece, left = size
        cdef char* p
        if self.data.locate((begin + size - 1) & ~self.mask, 1) == NULL:       # absurd lengths are not allocated
            return None
        while left > 0:
            piece = min(left, self.mask + 1 - (at & self.mask))
            p = self.data.locate(at, piece)
            if p == NULL or not self.deliverable(p, piece):
                return None
            at += piece
            left -= piece
        return self.data.gather(begin, size)

    def head(self, int64_t offset):
        """The head of the record at a record index offset."""
        cdef HeadBytes h
        self.head_of(offset, &h)
        return named(&h, self.record_at(offset).begin)

    def scan(self, int64_t begin):
        """The head of the record at a data offset, checked, or the reason why there is none."""
        cdef HeadBytes h
        text = self.check(begin, &h)
        return named(&h, begin) if text is None else text

    def payload(self, int64_t begin, int64_t length):
        """The messages of a record at a data offset, `length` with its head."""
        return self.piece(begin, 0, length - HEAD)

    cdef object piece(self, int64_t begin, int64_t start, int64_t stop):
        """Bytes behind a record's head, where they lie if they lie on one page."""
        cdef int64_t at = begin + HEAD + start, size = stop - start
        cdef char* p
        cdef Page page
        if size == 0:
            return b""
        if self.mask + 1 - (at & self.mask) < size:
            whole = self.data.gather(at, size)
            if whole is None:
                raise self.supply.damage(-1, begin, -1, "a page of it is missing")
            return whole
        p = self.data.locate(at, size)
        if p == NULL:
            raise self.supply.damage(-1, begin, -1, "its page is missing")
        page = self.data.page
        return memoryview(page)[p - page.base:p - page.base + size]

    def message_at(self, int64_t at, int64_t byte):
        """Ordinal of the entry that holds a byte of the messages of the record at an index offset; a wrapper's first."""
        cdef HeadBytes head
        cdef int64_t begin, low, high, middle, reached
        self.head_of(at, &head)
        begin = self.record_at(at).begin
        self.check_slots(at, &head, begin)
        reached = begin + HEAD + byte
        for _ in range(2):                       # the last message that begins no later, then the first one there
            low, high = head.ordinal, head.ordinal + head.count
            while low < high:
                middle = (low + high) >> 1
                if self.slot_at(middle)[0] <= reached:
                    low = middle + 1
                else:
                    high = middle
            if low == head.ordinal:
                break
            reached = self.slot_at(low - 1)[0] - 1
        return low

    # ---- spans --------------------------------------------------------------------------------------------

    cdef int whole_wrappers(self, HeadBytes* head, int64_t ordinal, Piece* piece) except -1:
        """Cuts a piece back so that it ends behind a wrapper, not inside one."""
        cdef int64_t begin
        while piece.count and ordinal + piece.count < head.ordinal + head.count:
            begin = self.slot_at(ordinal + piece.count)[0]
            if self.slot_at(ordinal + piece.count - 1)[0] != begin:
                break
            piece.count -= 1
        return 0

    cdef int cut(self, HeadBytes* head, int64_t at, int64_t begin, int64_t ordinal, int64_t limit, int64_t bytes_max,
                 int64_t messages_max, bint oversize, Piece* piece) except -1:
        """The longest run of whole entries of this record from `ordinal` on, within the limits."""
        cdef int64_t skip = ordinal - head.ordinal
        cdef int64_t here = min(<int64_t>head.count - skip, limit - ordinal)
        cdef int64_t size = head.length - HEAD, low, high, middle
        cdef int64_t* slot
        piece.lead = 0
        if skip == 0 and here == head.count and here <= messages_max and size <= bytes_max:
            piece.start, piece.stop, piece.count = 0, size, here
            return 0
        self.check_slots(at, head, begin)
        slot = self.slot_at(ordinal)
        piece.start = slot[0] - begin - HEAD
        if head.flags & WRAPPED:
            while piece.lead < skip and self.slot_at(ordinal - piece.lead - 1)[0] - begin - HEAD == piece.start:
                piece.lead += 1
        low, high = 0, min(here, messages_max)
        while low < high:                        # the most messages whose entries are within bytes_max
            middle = (low + high + 1) >> 1
            slot = self.slot_at(ordinal + middle - 1)
            if slot[0] + (<int32_t*>slot)[2] - begin - HEAD - piece.start <= bytes_max:
                low = middle
            else:
                high = middle - 1
        piece.count = low
        if head.flags & WRAPPED:
            self.whole_wrappers(head, ordinal, piece)
        if piece.count == 0 and oversize:
            piece.count = 1
            while (head.flags & WRAPPED and piece.count < here
                   and self.slot_at(ordinal + piece.count)[0] - begin - HEAD == piece.start):
                piece.count += 1
        if piece.count:
            slot = self.slot_at(ordinal + piece.count - 1)
            piece.stop = slot[0] + (<int32_t*>slot)[2] - begin - HEAD
        return 0

    def spans(self, int64_t ordinal, *, int64_t first, int64_t end, int64_t limit, int64_t bytes_max, int64_t messages_max,
              bint oversize):
        """The messages from `ordinal` to below `limit`, as far as both limits go; first..end are the records there."""
        cdef list out = []
        cdef HeadBytes head
        cdef Piece piece
        cdef Gather small
        cdef int64_t at, begin, size
        if ordinal >= limit or messages_max <= 0:
            return out
        at = self.seek(ordinal, first, end, &head)
        small = Gather.__new__(Gather)
        while at < end and ordinal < limit:
            try:
                self.head_of(at, &head)
                begin = self.record_at(at).begin
                if head.count and not head.ordinal <= ordinal < head.ordinal + head.count:
                    raise self.supply.damage(at, -1, ordinal, f"this record begins with ordinal {head.ordinal}")
                if head.count:
                    self.cut(&head, at, begin, ordinal, limit, bytes_max, messages_max, oversize and not out and small.size == 0,
                             &piece)
            except Exception:
                if out or small.size:            # what lies before the damage first; the next call says it
                    break
                raise
            if head.count:
                if piece.count <= 0:
                    break
                size = piece.stop - piece.start
                if size < GATHER_BELOW and self.mask + 1 - (begin + HEAD + piece.start & self.mask) >= size:
                    if small.size and (small.dress != head.dress or small.size + size > GATHER_MAX
                                       or small.span.transaction != head.transaction):
                        out.append(small.done())
                    if self.data.locate(begin + HEAD + piece.start, size) == NULL:
                        if out or small.size:
                            break
                        raise self.supply.damage(at, begin, head.ordinal, "its page is missing")
                    small.take(self.data.locate(begin + HEAD + piece.start, size), size, &head, ordinal, &piece)
                else:
                    if small.size:
                        out.append(small.done())
                    out.append(span_of(self.piece(begin, piece.start, piece.stop), &head, ordinal, &piece, piece.count))
                ordinal += piece.count
                messages_max -= piece.count
                bytes_max -= size
                self.hint = at
                if ordinal < head.ordinal + head.count:
                    break                        # cut inside this record: a limit was reached
            at += RECORD
        if small.size:
            out.append(small.done())
        return out


cdef object named(HeadBytes* h, int64_t begin):
    return Head(h.length, h.dress, h.flags, h.count, h.ordinal, h.place, h.place_length, h.epoch, h.time, h.producer,
                h.sequence, h.transaction, h.part, begin)
