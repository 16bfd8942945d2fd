/* blast: what stands on the other side of a broker while it is measured.  One process, one thread, C.
 *
 *   blast load KEY=VALUE ...     sends one prepared blob again and again and reads the answers
 *   blast sink | echo            a server that reads and drops, or sends back; prints its port, ends with its parent
 *   blast sync FILE COUNT BYTES  writes so many bytes and waits for the disk, COUNT times
 *
 * The load, for each of `connections` (1):
 *
 *   setup=FILE ──► answers ──► request=FILE ──► request ──► request ...      at most `window` messages unanswered
 *                              (stands for `messages` messages in `frames` frames)      until `total` are answered
 *
 *   answers=jmq:ROW     produce answers; rows of ROW bytes: 18 seed and real, 22 house
 *   answers=fetch:D     answers with messages, D house or counted; `patch` is where the index stands in the request
 *   answers=text:TEXT   each occurrence of TEXT answers a message
 *   answers=amqp        publisher confirms
 *   answers=bytes:N     each N bytes answer a request
 *   answers=none        nothing is awaited
 *
 * - JMQ answers are checked: length, magic, id, type, status, code, how many messages, and that indexes go on without a
 *   gap on one connection, and come to the total over several.  Every message of a fetch is walked.
 * - "@@" in a blob becomes the connection's number, two digits.
 * - The time of a request is from its first byte to its last answer; `times=FILE` gets all of them, doubles, seconds.
 * - One line of JSON comes out; what is wrong is said on stderr, with exit code 3.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20, ROOM = 12 << 20, LINKS_MAX = 64, TIMES_MAX = 4 << 20, HEAD = 23, QUIET_S = 20 };
enum kind { JMQ, FETCH, TEXT, AMQP, BYTES, NONE };

struct blob { unsigned char *data; size_t length; };

struct link {
    int fd, number;
    struct blob setup, request;
    size_t at;                     /* sent of the request under way */
    long sent, answered;           /* messages */
    double *begun;                 /* a ring: when the requests without an answer began */
    long first, next;              /* of that ring */
    unsigned char *in;
    size_t have;
    uint32_t id;                   /* of the next answer, counted within a blob */
    int64_t index;                 /* of the next message */
};

static struct {
    int port, connections, setup_answers, is_house;
    long messages, frames, total, window, row, patch, size;
    enum kind kind;
    const char *text, *setup, *request, *times;
} set = {.connections = 1, .messages = 1, .frames = 1, .total = 1, .window = 1};

static double *times;
static long timed, answered, sent_all;
static int64_t end_index;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noreturn, format(printf, 1, 2))) static void stop(const char *words, ...) {
    va_list list;
    va_start(list, words);
    fprintf(stderr, "blast: ");
    vfprintf(stderr, words, list);
    fprintf(stderr, "\n");
    exit(3);
}

static int16_t be16(const unsigned char *p) { return (int16_t)(p[0] << 8 | p[1]); }
static int32_t be32(const unsigned char *p) { return (int32_t)((uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]); }
static int64_t be64(const unsigned char *p) { return (int64_t)((uint64_t)(uint32_t)be32(p) << 32 | (uint32_t)be32(p + 4)); }
static uint32_t le32(const unsigned char *p) { return (uint32_t)p[3] << 24 | p[2] << 16 | p[1] << 8 | p[0]; }

static void put64(unsigned char *p, int64_t value) {
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)((uint64_t)value >> (56 - 8 * i));
}

/* ---- JMQ: a whole frame stands at q, its end at e ----------------------------------------------------------- */

static const unsigned char *payload(struct link *l, const unsigned char *q, const unsigned char *e, int type) {
    if (e - q < HEAD + 3 || (uint32_t)be32(q + 4) != 0xCAFEBEBEu || !(q[9] & 1)) stop("this is no answer of JMQ");
    int said = q[HEAD], words = be16(q + HEAD + 1);
    if (said || (signed char)q[14] != type)
        stop("an answer of type %d with status %d: %.*s", (signed char)q[14], said, words, q + HEAD + 3);
    uint32_t id = (uint32_t)be32(q + 10);
    if (type != -1 && id != l->id + 1) stop("an answer to request %u where one to %u was expected", id, l->id + 1);
    return q + HEAD + 3 + words;
}

static const unsigned char *behind_topic(const unsigned char *p) {
    if (be16(p) != 1) stop("an answer about %d topics, one was asked for", be16(p));
    return p + 4 + be16(p + 2);
}

static void come(struct link *l, int64_t index, long count) {
    if (set.connections == 1 ? index != l->index : index < l->index)
        stop("index %lld where %lld was expected", (long long)index, (long long)l->index);
    l->index = index + count;
    if (l->index > end_index) end_index = l->index;
}

static long produced(struct link *l, const unsigned char *q, const unsigned char *e) {
    const unsigned char *p = behind_topic(payload(l, q, e, -50));
    int code = be32(p), rows = be16(p + 4);
    if (code) stop("a produce request was answered with code %d", code);
    if (p + 6 + rows * set.row != e) stop("%d rows of %ld bytes do not fill the answer", rows, set.row);
    long count = 0;
    for (p += 6; p < e; p += set.row) {
        long more = set.row == 22 ? be32(p + 18) : 1;
        come(l, be64(p + 2), more);
        count += more;
    }
    if (count != set.messages / set.frames) stop("%ld messages answered, %ld were sent", count, set.messages / set.frames);
    return count;
}

static long fetched(struct link *l, const unsigned char *q, const unsigned char *e) {
    const unsigned char *p = behind_topic(payload(l, q, e, -31)), *end;
    long count = 0, claimed;
    if (be16(p) != 1) stop("%d partitions in an answer, one was asked for", be16(p));
    p += 4;
    if (set.is_house) {
        if (be64(p) != l->index) stop("messages from %lld on, asked for %lld", (long long)be64(p), (long long)l->index);
        claimed = be32(p + 12);
        end = p + 20 + be32(p + 16);
        for (p += 20; p < end; p += le32(p)) count++;
    } else {
        claimed = be16(p);
        for (p += 2; count < claimed && p < e; p += be32(p), count++)
            if (!count && be64(p + 6) != l->index) stop("messages from %lld on, asked for %lld", (long long)be64(p + 6), (long long)l->index);
        end = p;
    }
    if (p != end || end + 4 != e) stop("the messages do not fill their answer");
    if (be32(p)) stop("a fetch was answered with code %d", be32(p));
    if (count != claimed || count != set.messages) stop("%ld messages came, %ld said, %ld asked for", count, claimed, set.messages);
    l->index += count;
    return count;
}

/* ---- answers: how many messages the bytes answer, and how many bytes were used ------------------------------- */

static size_t count_jmq(struct link *l, long *count) {
    size_t used = 0;
    while (l->have - used >= 4) {
        const unsigned char *q = l->in + used;
        size_t length = (uint32_t)be32(q);
        if (length < HEAD || length > ROOM - READ_BYTES) stop("an answer of %zu bytes", length);
        if (l->have - used < length) break;
        *count += set.kind == JMQ ? produced(l, q, q + length) : fetched(l, q, q + length);
        l->id = (l->id + 1) % (uint32_t)set.frames;
        used += length;
    }
    return used;
}

static size_t count_text(struct link *l, long *count) {
    size_t length = strlen(set.text);
    unsigned char *q = l->in, *e = l->in + l->have, *found;
    while ((found = memmem(q, (size_t)(e - q), set.text, length))) { ++*count; q = found + length; }
    if ((size_t)(e - q) > length - 1) q = e - (length - 1);
    return (size_t)(q - l->in);
}

static size_t count_amqp(struct link *l, long *count) {
    size_t used = 0;
    while (l->have - used >= 8) {
        unsigned char *q = l->in + used;
        size_t length = (size_t)(uint32_t)be32(q + 3) + 8;
        if (l->have - used < length) break;
        if (q[0] == 1 && be16(q + 7) == 60 && be16(q + 9) == 80) {
            long tag = (long)be64(q + 11), before = l->answered + *count;
            *count += q[19] & 1 ? (tag > before ? tag - before : 0) : 1;
        } else if (q[0] == 1 && be16(q + 7) == 20 && be16(q + 9) == 40) stop("the channel was closed: %.*s", (int)q[13], q + 14);
        used += length;
    }
    return used;
}

static void take_answers(struct link *l) {
    long count = 0;
    size_t used = l->have;
    if (set.kind == JMQ || set.kind == FETCH) used = count_jmq(l, &count);
    else if (set.kind == TEXT) used = count_text(l, &count);
    else if (set.kind == AMQP) used = count_amqp(l, &count);
    else if (set.kind == BYTES) { used = l->have / set.size * set.size; count = (long)used / set.size * set.messages; }
    memmove(l->in, l->in + used, l->have - used);
    l->have -= used;
    if (!count) return;
    l->answered += count;
    answered += count;
    double t = now();
    long slots = set.window / set.messages + 1;
    while (l->first < l->next && (l->first + 1) * set.messages <= l->answered) {
        if (timed < TIMES_MAX) times[timed++] = t - l->begun[l->first % slots];
        l->first++;
    }
}

/* ---- a connection -------------------------------------------------------------------------------------------- */

static struct blob slurp(const char *path, int number) {
    struct blob b = {0};
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END)) stop("%s: %s", path, strerror(errno));
    b.length = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.length + 1);
    if (fread(b.data, 1, b.length, f) != b.length) stop("%s: %s", path, strerror(errno));
    fclose(f);
    char text[2] = {(char)('0' + number / 10), (char)('0' + number % 10)};
    for (unsigned char *p = b.data; (p = memmem(p, b.length - (size_t)(p - b.data), "@@", 2)); p += 2) memcpy(p, text, sizeof text);
    return b;
}

static ssize_t receive(struct link *l) {
    if (l->have + READ_BYTES > ROOM) stop("answers of %zu bytes without an end", l->have);
    ssize_t got = read(l->fd, l->in + l->have, READ_BYTES);
    if (got == 0) stop("the server closed connection %d after %ld of %ld messages", l->number, answered, set.total);
    if (got < 0 && errno != EAGAIN) stop("connection %d: %s", l->number, strerror(errno));
    if (got > 0) l->have += (size_t)got;
    return got;
}

/* Send the setup; wait for so many JMQ answers, or else until nothing has come for 0.2 s. */
static void set_up(struct link *l) {
    int left = set.setup_answers;
    double quiet = now() + (left ? 10 : 0.2);
    for (size_t at = 0; at < l->setup.length;) {
        ssize_t put = write(l->fd, l->setup.data + at, l->setup.length - at);
        if (put > 0) at += (size_t)put;
    }
    while (set.setup_answers ? left > 0 : now() < quiet) {
        struct pollfd p = {l->fd, POLLIN, 0};
        if (poll(&p, 1, 20) > 0) {
            receive(l);
            if (!left) { l->have = 0; quiet = now() + 0.2; }
        }
        if (left && now() > quiet) stop("the setup was not answered in 10 s");
        while (left && l->have >= HEAD + 3 && l->have >= (size_t)be32(l->in)) {
            size_t length = (size_t)be32(l->in);
            if (l->in[HEAD]) stop("the setup was answered with status %d: %.*s", l->in[HEAD], be16(l->in + HEAD + 1), l->in + HEAD + 3);
            memmove(l->in, l->in + length, l->have -= length);
            left--;
        }
    }
}

static void open_link(struct link *l, int number) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)set.port)};
    int one = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    l->number = number;
    l->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(l->fd, (void *)&a, sizeof a)) stop("port %d: %s", set.port, strerror(errno));
    setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(l->fd, F_SETFL, O_NONBLOCK);
    l->request = slurp(set.request, number);
    l->in = malloc(ROOM);
    l->begun = calloc((size_t)(set.window / set.messages + 1), sizeof *l->begun);
    if (set.setup) {
        l->setup = slurp(set.setup, number);
        set_up(l);
    }
}

static int may_send(struct link *l) {
    return l->at || (sent_all < set.total && (set.kind == NONE || l->sent - l->answered + set.messages <= set.window));
}

static void send_some(struct link *l) {
    while (may_send(l)) {
        if (!l->at) {
            if (set.kind == FETCH) put64(l->request.data + set.patch, l->sent);
            if (set.kind != NONE) l->begun[l->next++ % (set.window / set.messages + 1)] = now();
        }
        ssize_t put = write(l->fd, l->request.data + l->at, l->request.length - l->at);
        if (put < 0 && errno == EAGAIN) {
            if (!l->at && set.kind != NONE) l->next--;
            return;
        }
        if (put < 0) stop("connection %d: %s", l->number, strerror(errno));
        if (!l->at) { l->sent += set.messages; sent_all += set.messages; }
        l->at += (size_t)put;
        if (l->at == l->request.length) l->at = 0;
    }
}

/* ---- the load ------------------------------------------------------------------------------------------------- */

static void run(struct link *links) {
    struct pollfd polled[LINKS_MAX];
    double heard = now();
    while (set.kind == NONE ? sent_all < set.total || links[0].at : answered < set.total) {
        for (int i = 0; i < set.connections; i++) {
            polled[i].fd = links[i].fd;
            polled[i].events = (short)((set.kind == NONE ? 0 : POLLIN) | (may_send(&links[i]) ? POLLOUT : 0));
        }
        if (poll(polled, (nfds_t)set.connections, 1000) == 0 && now() - heard > QUIET_S)
            stop("nothing came for %d s after %ld of %ld messages", QUIET_S, answered, set.total);
        for (int i = 0; i < set.connections; i++) {
            if (polled[i].revents & POLLOUT) send_some(&links[i]);
            if (polled[i].revents & (POLLIN | POLLHUP | POLLERR) && receive(&links[i]) > 0) {
                heard = now();
                take_answers(&links[i]);
                send_some(&links[i]);
            }
        }
    }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double part) { return timed ? times[(long)(part * (double)(timed - 1))] * 1e6 : 0; }

static void report(double seconds) {
    if (set.times) {
        FILE *f = fopen(set.times, "wb");
        if (!f || fwrite(times, sizeof *times, (size_t)timed, f) != (size_t)timed || fclose(f)) stop("%s: %s", set.times, strerror(errno));
    }
    qsort(times, (size_t)timed, sizeof *times, by_size);
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f}\n",
           set.kind == NONE ? sent_all : answered, seconds, quantile(0.5), quantile(0.99), quantile(1));
}

static void read_setting(char *word) {
    char *value = strchr(word, '=');
    if (!value) stop("%s is not KEY=VALUE", word);
    *value++ = 0;
    struct { const char *key; long *where; } numbers[] = {
        {"messages", &set.messages}, {"frames", &set.frames}, {"total", &set.total}, {"window", &set.window}, {"patch", &set.patch}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(word, numbers[i].key)) { *numbers[i].where = atol(value); return; }
    if (!strcmp(word, "port")) set.port = atoi(value);
    else if (!strcmp(word, "connections")) set.connections = atoi(value);
    else if (!strcmp(word, "setup_answers")) set.setup_answers = atoi(value);
    else if (!strcmp(word, "setup")) set.setup = value;
    else if (!strcmp(word, "request")) set.request = value;
    else if (!strcmp(word, "times")) set.times = value;
    else if (strcmp(word, "answers")) stop("there is no setting %s", word);
    else if (!strncmp(value, "jmq:", 4)) { set.kind = JMQ; set.row = atol(value + 4); }
    else if (!strncmp(value, "fetch:", 6)) { set.kind = FETCH; set.is_house = !strcmp(value + 6, "house"); }
    else if (!strncmp(value, "text:", 5)) { set.kind = TEXT; set.text = value + 5; }
    else if (!strncmp(value, "bytes:", 6)) { set.kind = BYTES; set.size = atol(value + 6); }
    else if (!strcmp(value, "amqp")) set.kind = AMQP;
    else if (!strcmp(value, "none")) set.kind = NONE;
    else stop("there are no answers %s", value);
}

static int load(int count, char **words) {
    static struct link links[LINKS_MAX];
    for (int i = 0; i < count; i++) read_setting(words[i]);
    if (!set.request || set.connections < 1 || set.connections > LINKS_MAX || set.messages < 1 || set.window < set.messages)
        stop("a request, 1 to %d connections, and a window of at least a request's messages are needed", LINKS_MAX);
    set.total = (set.total + set.messages - 1) / set.messages * set.messages;
    times = malloc(sizeof *times * TIMES_MAX);
    for (int i = 0; i < set.connections; i++) open_link(&links[i], i);
    double begun = now();
    run(links);
    double seconds = now() - begun;
    if (set.kind == JMQ && end_index != set.total)
        stop("indexes ended at %lld after %ld messages", (long long)end_index, set.total);
    report(seconds);
    return 0;
}

/* ---- what it is compared with ----------------------------------------------------------------------------------- */

static int serve(int echoes) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t length = sizeof a;
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    unsigned char *data = malloc(READ_BYTES);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(door, (void *)&a, sizeof a) || listen(door, 8) || getsockname(door, (void *)&a, &length)) stop("%s", strerror(errno));
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    for (;;) {
        int fd = accept(door, 0, 0);
        ssize_t got;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while ((got = read(fd, data, READ_BYTES)) > 0)
            for (ssize_t at = 0, put; echoes && at < got; at += put)
                if ((put = write(fd, data + at, (size_t)(got - at))) <= 0) break;
        close(fd);
    }
}

static int sync_often(const char *path, long count, long bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *data = calloc(1, (size_t)bytes);
    times = malloc(sizeof *times * (size_t)count);
    if (fd < 0 || posix_fallocate(fd, 0, count * bytes + 4096) || fsync(fd)) stop("%s: %s", path, strerror(errno));
    double begun = now();
    for (long i = 0; i < count; i++) {
        double t = now();
        if (pwrite(fd, data, (size_t)bytes, i * bytes) != bytes || fdatasync(fd)) stop("%s: %s", path, strerror(errno));
        times[timed++] = now() - t;
    }
    set.kind = NONE;
    sent_all = count;
    report(now() - begun);
    unlink(path);
    return 0;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc > 2 && !strcmp(argv[1], "load")) return load(argc - 2, argv + 2);
    if (argc == 2 && (!strcmp(argv[1], "sink") || !strcmp(argv[1], "echo"))) return serve(!strcmp(argv[1], "echo"));
    if (argc == 5 && !strcmp(argv[1], "sync")) return sync_often(argv[2], atol(argv[3]), atol(argv[4]));
    stop("say load KEY=VALUE ..., sink, echo, or sync FILE COUNT BYTES");
}
