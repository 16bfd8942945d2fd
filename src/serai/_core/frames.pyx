# cython: language_level=3, binding=False, boundscheck=False, wraparound=False, cdivision=True
# cython: auto_pickle=False, embedsignature=True, embedsignature.format=clinic
"""JMQ frames: what one read brought, divided; produce requests that are alike, gathered and answered together.

    | length INT | ca fe be be | version | identity | request id INT | type | send time LONG | payload ...
      0            4             8         9          10               14     15               23

    split      [heartbeat][produce][produce][produce]...[fetch][half]  ->  (0, 23), Run of n, (a, b), and where half starts
    Entries    the messages of one request where they lie: how many, which partition, sent when
    Run        n requests that differ in their id, their time and their messages only; the messages end to end
    answers    n answers in one piece of bytes, each with the id and the time of its request

A run is what a plain producer sends: one topic, no transaction, one partition for all messages.  Whatever is not, or is
wrong in any way, is left as a frame for the door, which has the words.  Frame and payload are those of the JMQ door's
schema; they stand here once more because this loop is below it, and a test compares both.

Invariants
- nothing is allocated for a length or a count that a frame claims, only for what was found
- a run has the order of its frames; its first message is the first of the first frame
- an answer is, byte for byte, what the door's schema makes of the same values

Left to others: checksums and wrappers (the log, when it appends), what an answer says (the door).
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from serai._core.entries cimport CUT_SHORT, HOUSE, REAL, SEED
from serai._core.entries cimport Entry, get_2, get_4, get_8, put_2, put_4, put_8, take, words

cdef enum:
    HEAD = 23
    ANSWER_HEAD = 26                     # with the status, and no error text
    TYPE_AT = 14
    PRODUCE = 50
    ROW = 18                             # partition SHORT, index LONG, start time LONG
    HOUSE_ROW = 22                       # and how many messages, INT
    NO_PARTITION = -1                    # the server chooses

cdef const char* MAGIC = b"\xca\xfe\xbe\xbe"


# ---- the messages of one request -------------------------------------------------------------------------

cdef struct Note:                        # what an answer says of one entry
    int64_t sent
    int64_t count


@cython.final
cdef class Entries:
    """A set of messages as it stands in a request; `entries_of` makes it.

    `data`: the bytes.  `entries`, `messages`: a batch is one entry of several messages.  `partition`: what the first
    says; `mixed`: others say something else.  `ordered`: one asks for order by key.  `exact`: all lengths are written as
    they are.
    """
    cdef readonly object data
    cdef readonly int dress, partition
    cdef readonly int64_t entries, messages
    cdef readonly bint exact, ordered, mixed
    cdef Note* notes
    cdef int64_t room

    def __dealloc__(self):
        free(self.notes)

    def __repr__(self):
        return f"Entries(dress={self.dress}, entries={self.entries}, messages={self.messages})"

    @property
    def counts(self):
        """How many messages each entry is."""
        return [self.notes[at].count for at in range(self.entries)]

    @property
    def sent(self):
        """The send time of each entry."""
        return [self.notes[at].sent for at in range(self.entries)]

    def rows(self, *, int partition, int64_t index, int code):
        """The answer's array of results, count included; a negative index says that there is none."""
        cdef bytes whole = PyBytes_FromStringAndSize(NULL, 2 + rows_size(self.dress, self.entries))
        put_rows(PyBytes_AS_STRING(whole), self, 0, self.entries, partition, index, code)
        return whole


cdef Entries empty_set(int dress):
    cdef Entries s = Entries.__new__(Entries)
    s.dress = dress
    s.exact = True
    s.partition = NO_PARTITION
    return s


cdef int keep_note(Entries s, int64_t sent, int64_t count) except -1:
    cdef Note* more
    if s.entries == s.room:
        more = <Note*>realloc(s.notes, (2 * s.room + 16) * sizeof(Note))
        if more == NULL:
            raise MemoryError
        s.room = 2 * s.room + 16
        s.notes = more
    s.notes[s.entries].sent = sent
    s.notes[s.entries].count = count
    s.entries += 1
    s.messages += count
    return 0


cdef int64_t add_entries(Entries s, const char* base, const char* end, int64_t entries_max, int* reason) except -1:
    """Walks so many entries (negative: all) and notes them; how many bytes they are."""
    cdef const char* p = base
    cdef int64_t left = entries_max
    cdef Entry e
    cdef int partition
    memset(&e, 0, sizeof(Entry))
    reason[0] = 0
    while left != 0 and (p < end or left > 0):
        reason[0] = take(s.dress, p, end, &e)
        if reason[0]:
            break
        if s.dress != HOUSE:
            partition = <int16_t>get_2(p + 4)
            if s.entries == 0:
                s.partition = partition
            elif partition != s.partition:
                s.mixed = True
        s.exact = s.exact and e.exact
        s.ordered = s.ordered or e.ordered
        keep_note(s, e.send_time, e.count)
        p += e.size
        left -= 1
    return p - base


cdef int layout_at(const char* p, const char* end, int dress) noexcept nogil:
    """Which of the two JMQ layouts the message at p has; the given one if it says neither."""
    if dress == HOUSE or end - p < 22:
        return dress
    if get_2(p + 18) == 0x1234:
        return REAL
    if get_2(p + 18) & 0x0F00 == 0x0100:
        return SEED
    return dress


def entries_of(data, int dress, *, int64_t start=0, int64_t entries=-1):
    """Walks the messages that start at a byte, so many entries or all to the end; a pair with where they end.

    A JMQ message says itself which of the two layouts it has, so the first one may overrule `dress`.  ValueError says which
    byte is wrong, and why; EOFError that the bytes end inside a message.
    """
    cdef Py_buffer view
    cdef Entries s
    cdef int64_t size
    cdef int reason
    cdef const char* base
    if not HOUSE <= dress <= REAL:
        raise ValueError(f"dress must be 1 to 3, not {dress}")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= view.len:
            raise ValueError(f"start must be within {view.len} bytes, not {start}")
        base = <const char*>view.buf + start
        s = empty_set(layout_at(base, <const char*>view.buf + view.len, dress))
        size = add_entries(s, base, <const char*>view.buf + view.len, entries, &reason)
        if reason:
            raise (EOFError if reason == CUT_SHORT else ValueError)(f"byte {start + size}: {words(reason)}")
    finally:
        PyBuffer_Release(&view)
    s.data = memoryview(data)[start:start + size]
    return s, start + size


cdef inline int64_t rows_size(int dress, int64_t entries) noexcept nogil:
    return HOUSE_ROW if dress == HOUSE else ROW * entries


cdef char* put_rows(char* at, Entries s, int64_t first, int64_t count, int partition, int64_t index, int code) noexcept:
    """Writes the count of rows and the rows: one for each entry, in the house dialect one for all."""
    cdef int64_t i, messages = 0
    if s.dress == HOUSE:
        for i in range(first, first + count):
            messages += s.notes[i].count
        put_2(at, 1)
        put_2(at + 2, partition)
        put_8(at + 4, index)
        put_8(at + 12, -1 if code else s.notes[first].sent)
        put_4(at + 20, <uint32_t>messages)
        return at + 2 + HOUSE_ROW
    put_2(at, count)
    at += 2
    for i in range(first, first + count):
        put_2(at, partition)
        put_8(at + 2, index)
        put_8(at + 10, -1 if code else s.notes[i].sent)
        if index >= 0:
            index += s.notes[i].count
        at += ROW
    return at


# ---- many requests as one --------------------------------------------------------------------------------

cdef struct Frame:
    int64_t sent
    int64_t start                        # of its messages, in what `split` was given
    int64_t size
    int32_t id
    int32_t entries


cdef struct Request:                     # a produce frame taken apart
    const char* prefix                   # from the count of topics to what is said of the topic
    int64_t prefix_size
    const char* topic
    int64_t topic_size
    const char* messages
    const char* messages_end             # the frame's end where only a walk can tell
    int64_t entries                      # negative: all that is there
    int32_t timeout
    int level
    int partition


@cython.final
cdef class Run:
    """Produce requests that are alike, one or more; `split` makes it.  `set` has their messages end to end."""
    cdef readonly Entries set
    cdef readonly int frames, version, identity, level, timeout, partition
    cdef readonly str topic, app
    cdef bytes prefix, suffix
    cdef int64_t size
    cdef Frame* table
    cdef int64_t room

    def __dealloc__(self):
        free(self.table)

    def __repr__(self):
        return f"Run(topic={self.topic!r}, frames={self.frames}, messages={self.set.messages})"

    @property
    def request_ids(self):
        return [self.table[at].id for at in range(self.frames)]

    @property
    def send_times(self):
        """What the frames' heads say; the messages' own times are those of `set`."""
        return [self.table[at].sent for at in range(self.frames)]

    def singles(self):
        """The same requests as runs of one: for when they cannot be handled together."""
        cdef list found = []
        cdef int64_t i, entry = 0, start = 0
        for i in range(self.frames):
            found.append(single(self, i, entry, start))
            entry += self.table[i].entries
            start += self.table[i].size
        return found

    def release(self):
        """Lets go of the messages' bytes; answering does not need them."""
        self.set.data = None

    def answers(self, *, int partition, int64_t index, int code):
        """An answer for each frame: its messages follow those of the frame before, the first of all is `index`."""
        cdef bytes topic = self.topic.encode()
        cdef int64_t topic_size = len(topic), size = 0, entry = 0, i, j
        cdef bytes whole
        cdef char* at
        cdef char* frame
        for i in range(self.frames):
            size += ANSWER_HEAD + 10 + topic_size + rows_size(self.set.dress, self.table[i].entries)
        whole = PyBytes_FromStringAndSize(NULL, size)
        at = PyBytes_AS_STRING(whole)
        for i in range(self.frames):
            frame = at
            memcpy(at + 4, MAGIC, 4)
            at[8] = <char>self.version
            at[9] = <char>(self.identity | 1)
            put_4(at + 10, self.table[i].id)
            at[TYPE_AT] = <char>(-PRODUCE)
            put_8(at + 15, self.table[i].sent)
            memset(at + HEAD, 0, 3)
            put_2(at + 26, 1)
            put_2(at + 28, topic_size)
            memcpy(at + 30, PyBytes_AS_STRING(topic), topic_size)
            put_4(at + 30 + topic_size, code)
            at = put_rows(at + 34 + topic_size, self.set, entry, self.table[i].entries, partition, index, code)
            put_4(frame, at - frame)
            if index >= 0:
                for j in range(entry, entry + self.table[i].entries):
                    index += self.set.notes[j].count
            entry += self.table[i].entries
        return whole


cdef bint take_apart(const char* frame, const char* end, int dress, Request* r) noexcept nogil:
    """Where things stand in a produce frame; False if it is not a plain one."""
    cdef const char* at = frame + HEAD
    cdef int64_t n
    r.prefix = at
    if end - at < 4 or get_2(at) != 1:
        return False
    n = <int16_t>get_2(at + 2)
    at += 4
    if n <= 0 or end - at < n + 13:
        return False
    r.topic = at
    r.topic_size = n
    at += n
    if <int16_t>get_2(at) > 0:                   # a transaction
        return False
    r.timeout = <int32_t>get_4(at + 2)
    r.level = <int8_t>at[6]
    at += 7
    r.partition = NO_PARTITION
    if dress == HOUSE:
        r.partition = <int16_t>get_2(at)
        at += 2
        r.prefix_size = at - r.prefix
        n = <int32_t>get_4(at)
        r.messages = at + 4
        r.entries = -1
        if n <= 0 or n > end - r.messages:
            return False
        r.messages_end = r.messages + n
        return True
    r.prefix_size = at - r.prefix
    r.entries = <int16_t>get_2(at)
    r.messages = at + 2
    r.messages_end = end
    return r.entries > 0


cdef Run new_run(const char* frame, int dress, Request* r):
    cdef Run run = Run.__new__(Run)
    run.set = empty_set(dress)
    run.version = <int8_t>frame[8]
    run.identity = <uint8_t>frame[9]
    run.level = r.level
    run.timeout = r.timeout
    run.topic = r.topic[:r.topic_size].decode("utf-8")
    run.prefix = r.prefix[:r.prefix_size]
    return run


cdef Run single(Run run, int64_t at, int64_t entry, int64_t start):
    """One frame of a run, whose messages begin with an entry and a byte of the run's."""
    cdef Run one = Run.__new__(Run)
    cdef int64_t i
    one.set = empty_set(run.set.dress)
    one.version, one.identity, one.level, one.timeout = run.version, run.identity, run.level, run.timeout
    one.topic, one.app, one.partition = run.topic, run.app, run.partition
    for i in range(entry, entry + run.table[at].entries):
        keep_note(one.set, run.set.notes[i].sent, run.set.notes[i].count)
    one.set.exact, one.set.ordered, one.set.partition = run.set.exact, run.set.ordered, run.set.partition
    one.set.data = memoryview(run.set.data)[start:start + run.table[at].size]
    add_row(one, &run.table[at])
    return one


cdef int add_row(Run run, Frame* row) except -1:
    cdef Frame* more
    if run.frames == run.room:
        more = <Frame*>realloc(run.table, (2 * run.room + 4) * sizeof(Frame))
        if more == NULL:
            raise MemoryError
        run.room = 2 * run.room + 4
        run.table = more
    run.table[run.frames] = row[0]
    run.frames += 1
    run.size += row.size
    return 0


cdef bint is_alike(Run run, const char* frame, Request* r, int64_t size, int64_t run_max):
    return (
        run.version == <int8_t>frame[8] and run.identity == <uint8_t>frame[9]
        and len(run.prefix) == r.prefix_size
        and memcmp(PyBytes_AS_STRING(run.prefix), r.prefix, r.prefix_size) == 0
        and run.size + size <= run_max
    )


cdef int keep_frame(Run run, const char* base, const char* frame, Request* r, int64_t size, int64_t entries) except -1:
    cdef Frame row
    row.id = <int32_t>get_4(frame + 10)
    row.sent = <int64_t>get_8(frame + 15)
    row.start = r.messages - base
    row.size = size
    row.entries = entries
    return add_row(run, &row)


cdef bint add_frame(Run run, const char* base, const char* frame, const char* end, Request* r) except -1:
    """Puts a frame's messages behind those of the run; False, and nothing has changed, if they do not belong there."""
    cdef Entries s = run.set
    cdef int64_t entries = s.entries, messages = s.messages, size, rest
    cdef bint exact = s.exact, ordered = s.ordered
    cdef int partition = s.partition, reason
    cdef const char* app
    size = add_entries(s, r.messages, r.messages_end, r.entries, &reason)
    app = r.messages + size
    rest = end - app
    if s.dress == HOUSE:
        s.partition = r.partition
    if (
        reason == 0 and not s.mixed and rest >= 2 and is_app(run, app, rest)
        and not (s.ordered and s.partition == NO_PARTITION)
    ):
        run.partition = s.partition
        keep_frame(run, base, frame, r, size, s.entries - entries)
        return True
    s.entries, s.messages, s.exact, s.ordered, s.partition = entries, messages, exact, ordered, partition
    s.mixed = False
    return False


cdef bint is_app(Run run, const char* app, int64_t size):
    """The frame ends with the application's name, the same as in the run's first frame."""
    cdef int64_t n = <int16_t>get_2(app)
    if size != 2 + (n if n > 0 else 0):
        return False
    if run.suffix is None:
        run.suffix = app[:size]
        run.app = app[2:size].decode("utf-8", "replace")
        return "\ufffd" not in run.app
    return len(run.suffix) == size and memcmp(PyBytes_AS_STRING(run.suffix), app, size) == 0


cdef int close_run(Run run, object data, const char* base) except -1:
    """Brings the messages end to end; those of a single frame stay where they lie."""
    cdef bytes whole
    cdef char* to
    cdef int64_t i
    if run.frames == 1:
        run.set.data = memoryview(data)[run.table[0].start:run.table[0].start + run.table[0].size]
        return 0
    whole = PyBytes_FromStringAndSize(NULL, run.size)
    to = PyBytes_AS_STRING(whole)
    for i in range(run.frames):
        memcpy(to, base + run.table[i].start, run.table[i].size)
        to += run.table[i].size
    run.set.data = whole
    return 0


# ---- what one read brought -------------------------------------------------------------------------------

@cython.final
cdef class _Reading:
    """One call of `split`."""
    cdef object data
    cdef const char* base
    cdef int64_t run_max
    cdef int dress
    cdef list items
    cdef Run run

    cdef int end_run(self) except -1:
        if self.run is not None:
            close_run(self.run, self.data, self.base)
            self.run = None
        return 0

    cdef bint gather(self, const char* frame, const char* end) except -1:
        """The frame goes into a run, the last or a new one; False if it is nothing for a run."""
        cdef Request r
        cdef Run run
        if not take_apart(frame, end, self.dress, &r):
            return False
        if self.run is not None and is_alike(self.run, frame, &r, r.messages_end - r.messages, self.run_max):
            if add_frame(self.run, self.base, frame, end, &r):
                return True
        try:
            run = new_run(frame, self.dress, &r)
        except UnicodeDecodeError:
            return False
        if not add_frame(run, self.base, frame, end, &r):
            return False
        self.end_run()
        self.run = run
        self.items.append(run)
        return True


cdef str unlike_a_frame(const char* p, int64_t left, int64_t frame_max, int64_t command_max):
    """Why no frame can start here, or None."""
    cdef int64_t length = <int32_t>get_4(p)
    if length < HEAD:
        return f"a frame of {length} bytes; a head alone has {HEAD}"
    if left > 4 and memcmp(p + 4, MAGIC, left - 4 if left < 8 else 4):
        return f"the magic is {p[4:8 if left > 8 else left].hex()}, not {MAGIC[:4].hex()}"
    if length > frame_max:
        return f"a frame of {length} bytes, the limit is {frame_max}"
    if left > TYPE_AT and p[TYPE_AT] != PRODUCE and length > command_max:
        return f"a frame of type {<int8_t>p[TYPE_AT]} and {length} bytes, the limit of its kind is {command_max}"
    return None


def split(data, *, int dress, int64_t frame_max, int64_t command_max, int64_t run_max):
    """Divides bytes into whole frames: a list of (start, stop) pairs and runs, where the rest starts, how many bytes
    it needs to go on, and why the rest can be no frame (or None).

    `dress` 0 gathers no runs.  Frames other than produce requests may have `command_max` bytes.  `run_max` bounds the
    messages' bytes of a run of more than one frame.
    """
    cdef Py_buffer view
    cdef _Reading reading = _Reading.__new__(_Reading)
    cdef const char* p
    cdef const char* end
    cdef int64_t needed = 4
    cdef str fault = None
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        reading.data, reading.dress, reading.run_max, reading.items = data, dress, run_max, []
        reading.base = p = <const char*>view.buf
        end = p + view.len
        while end - p >= 4:
            fault = unlike_a_frame(p, end - p, frame_max, command_max)
            if fault is not None:
                fault = f"byte {p - reading.base}: {fault}"
                break
            needed = <int32_t>get_4(p)
            if end - p < needed:
                needed = 8 if end - p < 8 else TYPE_AT + 1 if end - p <= TYPE_AT else needed
                break
            if not (dress and p[TYPE_AT] == PRODUCE and not p[9] & 1 and reading.gather(p, p + needed)):
                reading.end_run()
                reading.items.append((p - reading.base, p - reading.base + needed))
            p += needed
            needed = 4
        reading.end_run()
        return reading.items, p - reading.base, needed, fault
    finally:
        PyBuffer_Release(&view)
