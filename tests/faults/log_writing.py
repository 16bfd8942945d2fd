"""The process that writes to a data directory until it is killed, and says what it was promised.

    python -m tests.faults.log_writing FOLDER EPOCH PAGE_BYTES

Each message has the number of its ordinal, so that a hole, a double or a foreign one would show; every put of the state
gives all its keys the same number.  What it says is one number of 8 bytes: which log, which level, up to which ordinal.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from random import Random

from serai.log.engine import Level, Ticket
from serai.log.local import LocalEngine
from serai.log.retention import Retention
from tests.faults.kit import READY, REPORT, body
from tests.oracle import messages as oracle
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry

LOGS = ("whole-0", "short-1", "mixed-2")  # the second forgets, so that its pages are used again
STATE = "groups"
KEYS = [b"key-%d" % number for number in range(5)]
STATE_LOG = len(LOGS)
LEVELS = (Level.RECEIVE, Level.COMMIT)


def report_of(log: int, level: int, end: int) -> bytes:
    return REPORT.pack(log << 56 | level << 48 | end)


def taken_apart(report: int) -> tuple[int, int, int]:
    """Log, level and end of a report."""
    return report >> 56, report >> 48 & 255, report & (1 << 48) - 1


class Pen:
    """One engine, its logs, and the promises that are still open."""

    def __init__(self, folder: str, epoch: int, page_bytes: int) -> None:
        self.epoch = epoch
        self.dice = Random(epoch)
        self.engine = LocalEngine(folder, page_bytes=page_bytes)
        self.logs = [self.engine.open(name) for name in LOGS]
        self.state = self.engine.state(STATE)
        self.put = max((int.from_bytes(value[:8], "little") for _key, value in self.state.items()), default=0)
        self.open: deque[tuple[int, Ticket, int]] = deque()

    def append(self, which: int) -> None:
        dice, log = self.dice, self.logs[which]
        count = dice.choice((1, 1, 1, 7, 40))
        dress = dice.choice((HOUSE, SEED, REAL, JAFKA))
        members = tuple(Entry(dress, body(self.epoch, log.end + number)) for number in range(count))
        entries = (oracle.wrap(dress, members, oracle.GZIP if dress in (HOUSE, JAFKA) else 2),)
        raw = b"".join(map(oracle.encode, members if dice.random() < 0.7 else entries))
        level = dice.choice(LEVELS)
        self.promised(which, log.append(raw, dress, level=level, now_ms=int(time.time() * 1000)), log.end)

    def put_all(self) -> None:
        self.put += 1
        value = self.put.to_bytes(8, "little") + self.dice.randbytes(self.dice.randrange(3000))
        ticket = self.state.put_many([(key, value) for key in KEYS], level=self.dice.choice(LEVELS))
        self.promised(STATE_LOG, ticket, self.put)

    def promised(self, which: int, ticket: Ticket, end: int) -> None:
        if ticket.done:
            os.write(1, report_of(which, ticket.level, end))
        else:
            self.open.append((which, ticket, end))

    def complete(self) -> None:
        """Says which promises came true; each log's do so in order."""
        self.engine.moved()
        waiting = list(self.open)
        self.open.clear()
        for which, ticket, end in waiting:
            assert ticket.failed is None
            self.promised(which, ticket, end)

    def write(self) -> None:
        """For ever."""
        dice = self.dice
        while True:
            self.append(dice.randrange(len(LOGS)))
            if dice.random() < 0.1:
                self.put_all()
            if dice.random() < 0.05:
                self.logs[1].retain(Retention(bytes_max=4 * self.logs[1].folder.page_bytes), now_ms=0)
            if dice.random() < 0.02:
                dice.choice(self.logs).settle()
            if dice.random() < 0.3:
                time.sleep(0.002 * dice.random())
            self.complete()


def main() -> None:
    os.write(1, READY)
    Pen(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).write()


if __name__ == "__main__":
    main()
