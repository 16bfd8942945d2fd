"""serai bench: how fast a running server takes messages, gives them, and passes them on.

    produce    clients send lists of messages, several on their way; the time of a request is from sending to its outcome
    consume    messages are stored first, then each client, a group of its own, receives and acknowledges all of them
    latency    one message at a time at a steady rate, received in a long poll; counted from when a message was due

Each client is a process.  Messages of level `receive` are compared with brokers that answer from memory, those of `commit` with
brokers that answer from the disk.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from serai.cli.parser import Parser, add_output, add_server, amount, seconds
from serai.cli.terminal import TIMED_OUT, USAGE, Failure, counted, sized, table

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from typing import Literal

OUTPUTS = ("table", "json")
TOPIC = "bench"
WINDOW = 32  # requests of a client on their way
FETCH = 20_000
STAMP_BYTES = 20
WAIT_S = 30.0


class Job(NamedTuple):
    """What one client does."""

    server: str
    topic: str
    number: int
    messages: int
    size: int
    batch: int
    ack: Literal["receive", "commit"]
    start: int = 0  # index of the first message, for those who receive
    rate: float = 0.0


class Done(NamedTuple):
    """What one client did: messages, from when to when, and how long requests took, in microseconds."""

    messages: int
    began_s: float
    ended_s: float
    times_us: list[float]


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the noun and its verbs."""
    verbs = nouns.add_parser("bench", help="measure a server", description="How fast a running server is.").nouns(
        "verb"
    )
    parser = _verb(verbs, "produce", bench_produce, text="measure sending", example="serai bench produce --count 20000")
    _add_load(parser)
    parser = _verb(verbs, "consume", bench_consume, text="measure receiving with acknowledgement",
                   example="serai bench consume --count 20000")  # fmt: skip
    _add_load(parser)
    parser = _verb(verbs, "latency", bench_latency, text="measure the time from sending to receiving",
                   example="serai bench latency --rate 200 --seconds 1")  # fmt: skip
    parser.add_argument("--rate", type=amount, default=1000, metavar="N", help="messages a second (default: 1,000)")
    parser.add_argument("--seconds", type=seconds, default=5.0, metavar="S", help="(default: 5)")


def _verb(
    verbs: _SubParsersAction[Parser], name: str, run: Callable[[Namespace], int], *, text: str, example: str
) -> Parser:
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", example=example)
    parser.add_argument("--topic", default=TOPIC, metavar="TOPIC", help=f"(default: {TOPIC})")
    parser.add_argument(
        "--size", type=amount, default=100, metavar="BYTES", help="bytes of each message (default: 100)"
    )
    parser.add_argument(
        "--ack", choices=("receive", "commit"), default="receive", help="what a stored message means (default: receive)"
    )
    add_output(parser, OUTPUTS)
    add_server(parser)
    parser.set_defaults(run=run, aim="measure with {topic}", dir="")
    return parser


def _add_load(parser: Parser) -> None:
    parser.add_argument("--clients", type=amount, default=1, metavar="N", help="processes (default: 1)")
    parser.add_argument(
        "--batch", type=amount, default=1000, metavar="N", help="messages of a request (default: 1,000)"
    )
    parser.add_argument(
        "--count", type=amount, default=1_000_000, metavar="N", help="messages of each client (default: 1,000,000)"
    )


# ---- the verbs ---------------------------------------------------------------------------------------------


def bench_produce(args: Namespace) -> int:
    """Send, and show rates and times."""
    return _show(args, "produce", _all(args, send, _jobs(args)))


def bench_consume(args: Namespace) -> int:
    """Fill a topic, then receive it."""
    from serai.client.sync import Client

    with Client(args.server) as client:
        reader = client.reader(args.topic, start="end")
        partition, start = next(iter(reader.positions.items()))
        producer = client.producer(args.topic, level="receive")
        body = b"." * args.size
        with args.talk.progress(f"storing {counted(args.count)}") as show:
            for done in range(0, args.count, args.batch):
                producer.send_many([body] * min(args.batch, args.count - done), partition=partition)
                show(done, args.count)
            producer.flush()
    return _show(args, "consume", _all(args, receive, _jobs(args, start=start)))


def bench_latency(args: Namespace) -> int:
    """Send at a rate to one who waits, and show how long messages took."""
    args.batch, args.clients, args.count = 1, 1, int(args.rate * args.seconds)
    args.size = max(args.size, STAMP_BYTES)
    job = _jobs(args, rate=float(args.rate))[0]
    from multiprocessing import get_context

    from serai.client.sync import Client

    with Client(args.server) as client:
        client.producer(args.topic)  # that nobody is there is said by this process
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    watcher = context.Process(target=stamped, args=(job, theirs), daemon=True)
    watcher.start()
    theirs.close()
    try:
        _heard(args, ours, WAIT_S)  # it is there, and its group stands at the end
        send_stamps(job)
        found = _heard(args, ours, WAIT_S)
    finally:
        watcher.join(1.0)
        watcher.kill()
    return _show(args, "latency", [found])


def _heard(args: Namespace, ours: Connection, wait_s: float) -> Any:
    what, hint = f"cannot measure with {args.topic}", "serai group list"
    if not ours.poll(wait_s):
        raise Failure(what, f"the receiver said nothing for {wait_s:.0f} s", hint, code=TIMED_OUT)
    try:
        return ours.recv()
    except EOFError:
        raise Failure(what, "the receiver ended; what it said stands above", hint) from None


def _jobs(args: Namespace, *, start: int = 0, rate: float = 0.0) -> list[Job]:
    for name in ("clients", "batch", "count"):
        if getattr(args, name) < 1:
            raise Failure("cannot measure nothing", f"--{name} is 0", f"{args.parser.prog} --help", code=USAGE)
    return [
        Job(args.server, args.topic, number, args.count, args.size, args.batch, args.ack, start, rate)
        for number in range(args.clients)
    ]


def _processes(count: int) -> Any:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


def _all(args: Namespace, work: Callable[[Job], Done], jobs: list[Job]) -> list[Done]:
    """Every job, each in a process of its own; one alone in this one."""
    args.talk.say(f"{counted(len(jobs), 'client')}, {counted(args.count)} of {args.size:,} bytes each")
    if len(jobs) == 1:
        return [work(jobs[0])]
    with _processes(len(jobs)) as pool:
        return list(pool.map(work, jobs))


def _show(args: Namespace, name: str, done: list[Done]) -> int:
    messages = sum(each.messages for each in done)
    spent_s = max(max(each.ended_s for each in done) - min(each.began_s for each in done), 1e-9)
    times = sorted(time_us for each in done for time_us in each.times_us)
    rate = messages / spent_s
    facts = {
        "bench": name, "messages": messages, "seconds": round(spent_s, 3), "messages_per_second": round(rate),
        "bytes_per_second": round(rate * args.size), "p50_us": _quantile(times, 0.5), "p99_us": _quantile(times, 0.99),
        "p99.9_us": _quantile(times, 0.999), "max_us": _quantile(times, 1.0),
        "settings": {key: value for key, value in _jobs(args)[0]._asdict().items() if key not in ("server", "number", "start")}
        | {"clients": len(done)},
    }  # fmt: skip
    if args.output == "json":
        import json

        print(json.dumps(facts, indent=2))
    else:
        heads = ("bench", "messages", "seconds", "a second", "bytes a second", "p50 us", "p99 us", "p99.9 us", "max us")
        row = (
            name, messages, f"{spent_s:.3f}", f"{rate:,.0f}", sized(int(rate * args.size)),
            *(f"{facts[key]:,}" for key in ("p50_us", "p99_us", "p99.9_us", "max_us")),
        )  # fmt: skip
        print(table(heads, [row]))
    args.talk.detail(f"the messages stay in topic {args.topic}: serai topic delete {args.topic}")
    return 0


def _quantile(times: list[float], part: float) -> float:
    return round(times[min(int(part * len(times)), len(times) - 1)], 1) if times else 0.0


# ---- the clients -------------------------------------------------------------------------------------------


def send(job: Job) -> Done:
    """Lists of messages, a window of them on their way."""
    from serai.client.sync import Client

    times: list[float] = []
    bodies = [b"." * job.size] * job.batch
    with Client(job.server) as client:
        producer = client.producer(job.topic, level=job.ack, linger_s=0.0)
        waiting = []
        began = time.perf_counter()
        for start in range(0, job.messages, job.batch):
            sent = producer.send_many(bodies[: job.messages - start])
            at = time.perf_counter()
            sent.when_done(partial(_note, times, at))
            waiting.append(sent)
            if len(waiting) > WINDOW:
                waiting.pop(0).result()
        for sent in waiting:
            sent.result()
        return Done(job.messages, began, time.perf_counter(), times)


def _note(times: list[float], since_s: float) -> None:
    times.append((time.perf_counter() - since_s) * 1e6)


def receive(job: Job) -> Done:
    """Everything from the start of the measurement on, acknowledged."""
    from serai.client.sync import Client

    times: list[float] = []
    group = f"{job.topic}-bench.{job.number}"
    with Client(job.server) as client:
        consumer = client.consumer(job.topic, group=group)
        consumer.seek(job.start)
        received = 0
        began = time.perf_counter()
        while received < job.messages:
            at = time.perf_counter()
            delivery = consumer.fetch_many(FETCH, timeout=WAIT_S)
            if delivery is None:
                break
            received += len(delivery.values)
            delivery.ack()
            times.append((time.perf_counter() - at) * 1e6)
        consumer.flush()
        return Done(received, began, time.perf_counter(), times)


def stamped(job: Job, theirs: Connection) -> None:
    """Messages that say when they were due; how long each took is told in the end."""
    from serai.client.sync import Client

    times: list[float] = []
    with Client(job.server) as client:
        consumer = client.consumer(job.topic, group=f"{job.topic}-latency")
        consumer.seek("end")
        theirs.send("ready")
        began = time.perf_counter()
        while len(times) < job.messages:
            delivery = consumer.fetch_many(1000, timeout=WAIT_S)
            if delivery is None:
                break
            now_ns = time.monotonic_ns()
            times += [(now_ns - int(value[:STAMP_BYTES])) / 1000 for value in delivery.values]
            delivery.ack()
        theirs.send(Done(len(times), began, time.perf_counter(), times))


def send_stamps(job: Job) -> None:
    """Messages at the rate; a late sender counts as the broker's lateness."""
    from serai.client.sync import Client

    with Client(job.server) as client:
        producer = client.producer(job.topic, level=job.ack, linger_s=0.0)
        rest = b"." * (job.size - STAMP_BYTES)
        due_ns = time.monotonic_ns()
        for _ in range(job.messages):
            due_ns += int(1e9 / job.rate)
            left_s = (due_ns - time.monotonic_ns()) / 1e9
            if left_s > 0:
                time.sleep(left_s)
            producer.send(b"%0*d" % (STAMP_BYTES, due_ns) + rest)
        producer.flush()
