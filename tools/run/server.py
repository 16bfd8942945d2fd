"""The second act: a server of our own on one port; messages go in through it and come out again, each acknowledged.

The server is the ordinary `serai server`, a process beside this one, with its data below `.serai-run` and its words in
`server.log` there.  It takes serai's usual port if that is free.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import serai
from tools.run.words import PLACE, arrived, batches, meter, progress, rate, say

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = PLACE / "data"
LOG = PLACE / "server.log"
USUAL_PORT = 15555
ORDERS = 400_000
PAYMENTS = 20_000
BATCH = 1_000
CUSTOMERS = 5
START_S = 20.0
END_S = 15.0
READY = re.compile(r"ready on (\S+:\d+)")


@contextmanager
def running() -> Iterator[str]:
    """A server while this lasts; its address."""
    command = [str(Path(sys.executable).with_name("serai")), "server", "--data", str(DATA), "--port", str(port())]
    with LOG.open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield address_of(process)
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def port() -> int:
    """serai's usual port, or 0 for a free one if somebody has it."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


def address_of(process: subprocess.Popen[bytes]) -> str:
    """What the server says when it is ready."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        if found := READY.search(LOG.read_text()):
            return found[1]
        time.sleep(0.02)
    raise serai.SeraiError(f"the server did not start; its last words are in {LOG}:\n{LOG.read_text()[-2000:]}")


def act(address: str) -> bool:
    """In and out, in lists and one by one; whether everything arrived."""
    say(f"\nTHE SERVER: one port for every door, at {address}, data in {DATA}\n")
    with serai.Client(address) as client:
        return all([in_lists(client), with_keys(client)])


def in_lists(client: serai.Client) -> bool:
    """Lists of a thousand, acknowledged when they are in the log; a group reads them back."""
    say(f"4. {ORDERS:,} orders of 100 bytes, a thousand at a time")
    orders = [
        b'{"order": %06d, "cents": %06d, "note": "%s"}' % (number, number % 999_983, b"." * 57)
        for number in range(ORDERS)
    ]
    started = time.perf_counter()
    with client.producer("orders", level="receive") as producer:
        for batch in progress(batches(orders, BATCH), ORDERS // BATCH):
            producer.send_many(batch)
    rate("sent", ORDERS, time.perf_counter() - started, 100 * ORDERS)
    return received(client, orders)


def received(client: serai.Client, orders: list[bytes]) -> bool:
    """Read what was sent as the group `billing`, acknowledge it, compare it."""
    seen, right, started = 0, True, time.perf_counter()
    with client.consumer("orders", group="billing") as consumer:
        while seen < len(orders) and (delivery := consumer.fetch_many(10_000, timeout=10)):
            right = right and delivery.values == orders[seen : seen + len(delivery)]
            seen += len(delivery)
            delivery.ack()
            meter(seen / len(orders))
    meter(None)
    rate("received, acked", seen, time.perf_counter() - started, 100 * seen)
    return arrived(seen == len(orders) and right, f"{seen:,} of {len(orders):,}, each compared with what was sent")


def with_keys(client: serai.Client) -> bool:
    """Single messages with keys, acknowledged when they are on the disk."""
    say(f"\n5. {PAYMENTS:,} payments one by one, each with its customer as key, on the disk before they count")
    started = time.perf_counter()
    with client.producer("payments", level="commit") as producer:
        sent = [
            producer.send(b"%d" % number, key=f"customer-{number % CUSTOMERS}")
            for number in progress(range(PAYMENTS), PAYMENTS)
        ]
    counted = sum(one.done() and one.result().partition >= 0 for one in sent)
    rate("sent", counted, time.perf_counter() - started)
    with client.consumer("payments", group="ledger", auto_ack=True) as consumer:
        came = [(message.key, message.value) for message in islice(consumer.messages(timeout=10), PAYMENTS)]
    wanted = [(b"customer-%d" % (number % CUSTOMERS), b"%d" % number) for number in range(PAYMENTS)]
    return arrived(came == wanted, f"{len(came):,} of {PAYMENTS:,}, in order, with their keys")


def trickle(address: str, seconds: float | None) -> int:
    """Ten messages a second until Ctrl-C, or for so many seconds, so that there is something to watch; how many."""
    until = float("inf") if seconds is None else time.monotonic() + seconds
    count = 0
    with serai.Client(address) as client, client.producer("ticks", level="receive") as producer:
        while time.monotonic() < until:
            producer.send(b'{"tick": %d}' % count).result()
            count += 1
            time.sleep(0.1)
    return count
