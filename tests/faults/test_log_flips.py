"""A thousand flipped bits in logs that are closed: each is named by `verify`, none is delivered, the messages around it are.

One bit at a time, somewhere in what is live: records, slots, the record index. A reader goes through the whole log in spans, and
to the messages next to the bit one by one, which goes by their slots.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from serai._core.records import RECORD_BYTES
from serai.errors import Corrupt
from serai.log.audit import audit
from serai.log.view import View
from tests.log.test_audit import CUT, HEADLESS, PAGE_BYTES, flipped, make
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand

if TYPE_CHECKING:
    from serai._core.spans import Span

FLIPS = 1000
LOGS = ["p/whole", CUT, HEADLESS]


class Hit(NamedTuple):
    """A byte that is live, and the record it belongs to."""

    kind: str  # as `audit` calls it
    record: byhand.Record
    ordinal: int  # of the first message it touches
    file: Path
    byte: int
    position: int  # of what it is a part of, in the file


class Truth:
    """What is in a log, by hand, before anything is flipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mark = byhand.mark_of(path)
        self.records = byhand.read(path)
        self.entries: dict[int, tuple[int, bytes]] = {}  # first ordinal -> count, bytes
        for record in self.records:
            at, ordinal = 0, record.ordinal
            while at < len(record.payload):
                entry, size = oracle.decode_one(record.payload[at:], record.dress)
                count = len(oracle.flat(entry))
                self.entries[ordinal] = (count, record.payload[at : at + size])
                at, ordinal = at + size, ordinal + count

    def hit(self, dice: Random) -> Hit:
        number = dice.randrange(len(self.records))
        record = self.records[number]
        match dice.choice(("record",) * 4 + ("slot", "index")):
            case "record":
                page, byte = divmod(record.begin + dice.randrange(record.length), PAGE_BYTES)
                head = divmod(record.begin, PAGE_BYTES)
                return Hit("record", record, record.ordinal, self.path / f"{page}.qd", byte, head[1])
            case "slot":
                ordinal = record.ordinal + dice.randrange(record.count)
                page, byte = divmod(16 * ordinal, PAGE_BYTES)
                return Hit("slot", record, ordinal, self.path / f"{page}.qx", byte + dice.randrange(16), byte)
            case _:
                page, byte = divmod(self.mark.first_record + RECORD_BYTES * number, PAGE_BYTES)
                file = self.path / f"{page}.qr"
                return Hit("index", record, record.ordinal, file, byte + dice.randrange(RECORD_BYTES), byte)

    def around(self, ordinal: int) -> list[int]:
        """The entries next to a message, its own too."""
        starts = list(self.entries)
        at = max(place for place, start in enumerate(starts) if start <= ordinal)
        return starts[max(0, at - 2) : at + 3]

    def is_right(self, span: Span) -> bool:
        """Whether a span is made of what was appended under its ordinals."""
        ordinal, stop, expected = span.ordinal - span.lead, span.ordinal + span.count, b""
        while ordinal < stop:
            count, raw = self.entries[ordinal]
            ordinal += count
            expected += raw
        return ordinal == stop and bytes(span.data) == expected


def read(view: View, truth: Truth, own: set[int]) -> set[int]:
    """Everything from the first to the end, over what is damaged; the ordinals that did not come."""
    missing: set[int] = set()
    ordinal = view.first
    while ordinal < view.end:
        spans, damage = spans_or_damage(view, ordinal)
        if damage is not None:
            behind = damage.next_ordinal
            assert damage.ordinal in own
            assert behind is not None
            assert behind > ordinal
            missing.update(range(ordinal, behind))
            ordinal = behind
        for span in spans:
            assert span.ordinal == ordinal
            assert truth.is_right(span), f"{span} is not what was appended"
            ordinal += span.count
    return missing


def spans_or_damage(view: View, ordinal: int) -> tuple[list[Span], Corrupt | None]:
    try:
        return view.spans(ordinal, bytes_max=3000), None
    except Corrupt as error:
        return [], error


def one_by_one(view: View, truth: Truth, hit: Hit) -> set[int]:
    """The entries around the bit, each alone; the ordinals of those that did not come."""
    missing: set[int] = set()
    for ordinal in truth.around(hit.ordinal):
        count = truth.entries[ordinal][0]
        try:
            (span,) = view.spans(ordinal, bytes_max=1, messages_max=count)
        except Corrupt:
            missing.update(range(ordinal, ordinal + count))
        else:
            assert (span.ordinal, span.count) == (ordinal, count)
            assert truth.is_right(span), f"{span} is not what was appended"
    return missing


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("flips") / "data")


def test_a_thousand_flipped_bits_are_named_and_not_delivered(store: Path) -> None:
    dice, told, gone = Random(FLIPS), Counter[str](), Counter[str]()
    truths = [Truth(store / name) for name in LOGS]
    for _ in range(FLIPS):
        truth = dice.choice(truths)
        hit, bit = truth.hit(dice), dice.randrange(8)
        own = set(range(hit.record.ordinal, hit.record.ordinal + hit.record.count))
        flipped(hit.file, hit.byte, bit)
        (problem,) = audit(truth.path).problems
        assert (problem.kind, problem.log, problem.ordinal) == (hit.kind, truth.path.name, hit.ordinal), problem
        assert problem.position == hit.position
        with View(truth.path) as view:
            missing = read(view, truth, own) | one_by_one(view, truth, hit)
        flipped(hit.file, hit.byte, bit)
        assert missing == own if hit.kind == "record" else missing <= own, f"{hit}: {sorted(missing ^ own)}"
        told[hit.kind] += 1
        gone[hit.kind] += len(missing)
    print(
        f"\n{FLIPS} flips: {dict(told)} named; messages of their records that did not come: {dict(gone)}; all others did"
    )
    assert [read(View(truth.path), truth, set()) for truth in truths] == [set()] * len(truths)
