"""The writing process that the kill tests start: it publishes in every shape, and says so after each call.

    python -m tests.faults.writing single DIR EPOCH PAGE_SIZE
    python -m tests.faults.writing several DIR EPOCH PAGE_SIZE NAME

A single producer numbers its messages by their offsets, so that a hole or a double would show.  One of several numbers
them from 0 in each epoch.  What it says through standard output is the number of the newest message that is published.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import serai
from tests.faults.kit import HEAD, READY, REPORT, TAIL, body, filler

if TYPE_CHECKING:
    from collections.abc import Callable


class Hand:
    """One writer and the shapes it writes in; `first` is the number of the next message."""

    def __init__(self, queue: serai.Queue | serai.MultiQueue, epoch: int, shelf: str) -> None:
        self.queue = queue
        self.epoch = epoch
        self.writer = queue.writer()
        self.template = self.writer.template("int", "long", "bytes")
        self.shelf = serai.Queue(shelf, page_size=1 << 20)
        self.shelf_reader = self.shelf.reader()

    def bodies(self, first: int, many: int) -> list[bytes]:
        return [body(self.epoch, number) for number in range(first, first + many)]

    def one(self, first: int) -> int:
        return self.writer.append(body(self.epoch, first))

    def buffer(self, first: int) -> int:
        return self.writer.append(bytearray(body(self.epoch, first)))

    def many(self, first: int, many: int) -> int:
        return self.writer.append_many(self.bodies(first, many))

    def chain(self, first: int) -> int:
        rest = body(self.epoch, first)[HEAD.size : -TAIL.size]
        message = self.queue.new_message().pack_int(self.epoch).pack_long(first)
        for at in range(0, len(rest), 1000):
            message.pack_bytes(rest[at : at + 1000])
        return message.pack_int(TAIL.unpack(body(self.epoch, first)[-4:])[0]).write_message()

    def given_up(self, first: int) -> int:
        self.writer.new_message().pack_bytes(filler(first, self.epoch) * 3)
        self.writer.discard()
        return self.chain(first)

    def row(self, first: int) -> int:
        return self.template.append((self.epoch, first, body(self.epoch, first)[HEAD.size :]))

    def rows(self, first: int, many: int) -> int:
        parts = ((self.epoch, n, body(self.epoch, n)[HEAD.size :]) for n in range(first, first + many))
        return self.template.append_many(parts)

    def column(self, first: int, many: int) -> int:
        """An Arrow column without Arrow: a batch of another queue gives its values as one."""
        self.shelf.writer().append_many(self.bodies(first, many))
        last = -1
        while len(batch := self.shelf_reader.read_batch(1 << 30)):
            last = self.writer.extend_arrow(batch.values)
        return last


def write(hand: Hand, first: int, report: Callable[[int], None], rest: float) -> None:
    """Publishes for ever, in shapes that a die chooses."""
    dice = Random(hand.epoch)
    singles = (hand.one, hand.buffer, hand.chain, hand.given_up, hand.row)
    many = (hand.many, hand.rows, hand.column)
    for turn in count():
        times = dice.randrange(1, 60) if dice.random() < 0.4 else 1
        last = dice.choice(many)(first, times) if times > 1 else dice.choice(singles)(first)
        assert last >= 0
        first += times
        report(first - 1)
        if turn % 8 == 0:
            time.sleep(rest * dice.random())


def main() -> None:
    kind, folder, epoch, page_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

    def report(number: int) -> None:
        os.write(1, REPORT.pack(number))

    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as shelf:
        os.write(1, READY)
        if kind == "single":
            single = Hand(serai.Queue(folder, page_size=page_size), epoch, shelf)
            write(single, single.writer.offset // 16, report, rest=0.002)
        else:
            write(
                Hand(serai.MultiQueue(folder, name=sys.argv[5], page_size=page_size), epoch, shelf),
                0,
                report,
                rest=0.01,
            )


if __name__ == "__main__":
    main()
