"""Every bound in one table: what serai refuses, and how far it reaches at once.

Sizes are bytes unless the name says otherwise.  A bound that protects somebody has a test at the limit
and one beyond it.
"""

KIB = 1 << 10
MIB = 1 << 20

PAGE_BYTES_MIN = 16  # one index entry
PAGE_BYTES_MAX = 1 << 30  # the format's page size is a Java int
PAGE_BYTES_DEFAULT = 1 << 30
PAGE_NUMBER_MAX = (1 << 31) - 1  # a page number is a Java int

# How far ahead of the cursor blocks are reserved: a new queue takes two first windows, a busy one doubles.
DATA_WINDOW_FIRST = 256 * KIB
DATA_WINDOW_MAX = 32 * MIB
SLOT_WINDOW_FIRST = 64 * KIB
SLOT_WINDOW_MAX = 4 * MIB
RESIDENT_WINDOW_MIN = 2 * MIB  # from this window on the pages ahead are made resident by the helper thread

PREPARED_BYTES = 8 * MIB  # of the next page of a busy writer, made ready before it is wanted
TOUCH_FIRST = 16 * KIB  # bytes a quiet writer makes writable at a time; doubles
TOUCH_MAX = 1 * MIB
DISK_FREE_SCARCE = 64 * MIB  # below this a writer reserves little at a time

PAGES_MAPPED_MAX = 64  # pages of one stream a queue keeps mapped for its readers
TAIL_CUT_MAX = 1024  # damaged entries a writer cuts from the tail by itself; more needs `serai verify --repair`
HALF_MADE_AGE_S = 60  # a half-made page of the common index is nobody's after this long
DEAD_AFTER_MS = 1  # a claimed entry is looked into after this long

FRAME_BYTES = 128 * KIB  # content of one frame of a compressed page
SPIN_LOOKS = 2000  # looks at the tail before a follower gives the processor away
IDLE_SLEEP_MAX_S = 0.001  # longest sleep of a follower that backs off

# The partition log.
LOG_PAGE_BYTES_DEFAULT = 64 * MIB
LOG_PAGE_BYTES_MIN = 4 * KIB
STATE_PAGE_BYTES = 1 * MIB  # a state log writes a snapshot of itself whenever a page of this length is full
RECORD_WINDOW_FIRST = 32 * KIB
PART_BYTES = 1 * MIB  # a longer set of messages is stored as several records, cut between messages
INFLATED_MAX = 64 * MIB  # what the wrappers of one request may hold altogether
INFLATED_RATIO = 200  # and what they may hold for each byte that came,
INFLATED_FREE = 4 * MIB  # as far as it is more than this: one message of a single letter is no attack
NESTED_MAX = 8  # wrappers within wrappers
DAMAGED_KEPT_MAX = 10_000  # damaged places of one log that are told apart when they are counted
FLUSH_EVERY_S = 1.0  # what was only received reaches the disk within this time
MARK_EVERY_S = 10.0  # a mark is written when this much time
MARK_EVERY_BYTES = 16 * MIB  # or so many bytes went by since the last one: recovery reads what lies above it
SYNC_TOGETHER = 32  # from so many partitions on one turn asks the file system to sync as a whole
SPARES_MAX = 2  # data pages of a partition that wait to be used again

# The doors.
FRAME_BYTES_MAX = 100 * MIB  # one frame of a binary door
COMMAND_BYTES_MAX = 4 * MIB  # one that carries no messages
RUN_BYTES_MAX = 1 * MIB  # messages of like requests that are handled as one; a larger request stands alone
SMALL_ANSWER_BYTES = 4 * KIB  # messages in an answer to a client that takes no more
ANSWERS_AWAITED_MAX = 1024  # answers of one connection that stand in line behind one that is not known yet
PRODUCE_WAIT_MS = 3000  # for the disk, if the request does not say how long
ERROR_CHARACTERS_MAX = 1000  # of what a peer is told

# The broker.
NAME_BYTES_MAX = 255  # of a topic, an application, a group
TOPICS_MAX = 100_000
PARTITIONS_MAX = 1024  # of one topic
POLICY_WORDS_MAX = 256  # entries of one list or table in a policy
POLICY_WORD_BYTES_MAX = 1024
FETCH_BYTES_MAX = 8 * MIB  # of one answer; one larger message still passes
FETCH_COUNT_MAX = 1_000_000  # indexes of one answer
LEASE_MS_MAX = 24 * 3600 * 1000
LONG_POLL_MS_MAX = 10 * 60 * 1000
DELAY_MS_MAX = 365 * 24 * 3600 * 1000
WAITS_MAX = 100_000  # parked requests
WAITS_SESSION_MAX = 8192  # of one connection
ACKED_RANGES_MAX = 1024  # acknowledged ranges in front of a position
PLAN_TOPICS_MAX = 1024  # topics one request may make
GROUPS_MAX = 10_000  # of one topic
REGISTERED_MAX = 10_000  # consumers of one connection, and as many producers and routes

# The port.
READ_BYTES = 256 * KIB  # most that one read takes in
ANSWER_BYTES = 1 * MIB  # answers waiting to be taken above which nothing more is read from a guest
OUTBOX_BYTES_MAX = 8 * MIB  # answers a guest may leave untaken; one that lets more come in is shown out
GATHER_BYTES = 16 * KIB  # answers up to this are sent as one piece, larger ones from where they lie
CONNECTIONS_MAX = 10_000
FDS_RESERVED = 64  # descriptors kept for the log when connections are counted against RLIMIT_NOFILE
ACCEPT_AT_ONCE = 64
ACCEPT_PAUSE_S = 0.25
FIRST_WORD_S = 10.0  # to say enough for the sniffer, and for a head to be complete
FRAME_RATE_MIN = 1024  # bytes a second that a frame must grow by after its first FIRST_WORD_S
STUCK_S = 60.0  # a guest that takes nothing of what it asked for is shown out after this long
IDLE_S = 3600.0  # nothing said and nothing awaited
KEEP_ALIVE_S = 75.0  # the same for HTTP
LINGER_S = 1.0  # a guest that was shown out may still read what it was told
WARM_AFTER_S = 0.1  # after a server is ready it loads what its first guests will need
SWITCH_S = 0.0005  # how long another thread may keep the interpreter while the loop wants it; Python's own 5 ms is p99
SWEEP_S = 1.0  # how often deadlines of guests are looked at, and one topic forgets what it may
DRAIN_S = 5.0  # answers under way at the end have this long
HTTP_HEAD_BYTES_MAX = 64 * KIB
HTTP_HEADERS_MAX = 100
HTTP_BODY_BYTES_MAX = 8 * MIB
HTTP_PIPELINE_MAX = 64  # requests of one guest that wait for their turn
BROWSE_COUNT_MAX = 1000  # messages of one look through the HTTP API
BROWSE_WAIT_S_MAX = 30.0
METRIC_TOPICS_MAX = 2000  # topics with a label of their own, the rest are `other`
TIME_BOUNDS_S = (  # of the histograms
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
