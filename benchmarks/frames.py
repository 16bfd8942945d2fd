"""Millions of messages a CPU second through a JMQ connection, without sockets: `python -m benchmarks.frames [BODY_BYTES]`.

One read brings plain produce requests, back to back; `receive` makes runs of them, `send` answers them.  Nothing is stored
and nothing checked: this is what the door adds to a message before and after the log.

    reads     1 MiB, so a run is about that long
    requests  of 1, 10 and 200 messages, in each dialect
    answered  the answers' bytes are made too

Each number is the best of several rounds.
"""

import sys
import time

from serai._core.dress import redress
from serai._core.entries import HOUSE as HOUSE_DRESS
from serai._core.frames import Run
from serai.doors.jmq.connection import Call, Connection, Role, RunAnswer
from serai.doors.jmq.schema.commands import AddConnection, Produced, ProduceMessage
from serai.doors.jmq.schema.frame import DRESSES, HOUSE, REAL, SEED
from serai.wire.buffer import Span, flat
from serai.wire.layout import Form
from serai.wire.sets import Messages

READ_BYTES = 1 << 20
ROUNDS, ROUND_SECONDS = 7, 0.1
NOW_MS = 1_700_000_000_000


def messages(form: Form, count: int, body_bytes: int) -> Messages:
    head = (16 + body_bytes).to_bytes(4, "little") + bytes(4) + NOW_MS.to_bytes(8, "little")
    raw, dress = (head + bytes(body_bytes)) * count, DRESSES[form.dialect]
    if dress != HOUSE_DRESS:
        raw = redress(raw, HOUSE_DRESS, dress, inflated_max=1 << 26, depth_max=8, bytes_max=1 << 30)
    return Messages([Span(memoryview(raw))], count, dress)


def opened(form: Form) -> tuple[Connection, Connection]:
    client, server = Connection(Role.CLIENT, form=form), Connection(Role.SERVER)
    hello = AddConnection(
        username="", password="", app="bench", token="", region="", namespace="", version="1", ip="", time=0, sequence=0
    )
    server.receive(flat(client.send(Call(hello, 0, NOW_MS))))
    return client, server


def rates(form: Form, count: int, body_bytes: int) -> tuple[float, float]:
    """Messages, and frames, a CPU second."""
    client, server = opened(form)
    topic = Produced(topic="orders", tx_id="", timeout=0, qos_level=1, messages=messages(form, count, body_bytes))
    frame = flat(client.send(Call(ProduceMessage(topics=[topic], app="bench"), 1, NOW_MS)))
    frames = max(1, READ_BYTES // len(frame))
    read = frame * frames
    best = 1e9
    for _ in range(ROUNDS):
        times, started = 0, time.process_time()
        while time.process_time() - started < ROUND_SECONDS:
            for run in server.receive(read):
                assert isinstance(run, Run)
                server.send(RunAnswer(run, 0, 1000))
            times += 1
        best = min(best, (time.process_time() - started) / times)
    return count * frames / best, frames / best


def main() -> None:
    body_bytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    print(f"messages of {body_bytes} bytes; millions a CPU second, received and answered\n")
    print(f"{'dialect':8}{'messages':>10}{'messages':>12}{'frames':>12}")
    print(f"{'':8}{'a frame':>10}{'':>12}{'':>12}")
    for form in (SEED, REAL, HOUSE):
        for count in (1, 10, 200):
            done, frames = rates(form, count, body_bytes)
            print(f"{form.dialect:8}{count:>10}{done / 1e6:>12.2f}{frames / 1e6:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
