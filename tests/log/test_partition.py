"""The partition log against a list: whatever is done to it, both hold the same, and so does the directory read by hand.

- sets of every dress and shape go in, and come out byte for byte, in the order they came
- spans, ordinals, places and times are those of the list, from this process's log and from a view of it
- commit, closing, dying, truncation and retention change what they should and nothing else
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from serai import limits
from serai.errors import BadMessages, Misuse, OutOfRange
from serai.log.engine import Level
from serai.log.partition import open_partition
from serai.log.retention import Retention
from serai.log.view import View
from tests.core.dressing import DRESSES, encoded, sets
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry, Server
from tests.oracle.partition import Model

if TYPE_CHECKING:
    from collections.abc import Iterable

    from serai._core.spans import Span
    from serai.log.view import Reading

CLIENT = b"\x39\x30\x0a\0\0\x07"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # syncs cost nothing there
NO_LENGTH = b"\xff\xff\xff\xff"
LENGTHS = [0, 1, 30, 72, 100, 300, 5000, 1 << 20, 1 << 40]


def filled(dress: int) -> st.SearchStrategy[list[Entry]]:
    """Sets without entries that hold no message."""
    return sets(dress).map(lambda found: [entry for entry in found if oracle.flat(entry)])


def joined(spans: Iterable[Span]) -> list[tuple[int, bytes]]:
    """Dress and bytes, neighbours of one dress together."""
    out: list[tuple[int, bytes]] = []
    for span in spans:
        if out and out[-1][0] == span.dress:
            out[-1] = (span.dress, out[-1][1] + bytes(span.data))
        else:
            out.append((span.dress, bytes(span.data)))
    return out


def expected(entries: list[byhand.Stored]) -> list[tuple[int, bytes]]:
    out: list[tuple[int, bytes]] = []
    for entry in entries:
        if out and out[-1][0] == entry.dress:
            out[-1] = (entry.dress, out[-1][1] + entry.raw)
        else:
            out.append((entry.dress, entry.raw))
    return out


class LogMachine(RuleBasedStateMachine):
    """One partition, one view of it, and the list."""

    part_bytes = limits.PART_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="serai-log-", dir=MEMORY))
        self.kept, limits.PART_BYTES = limits.PART_BYTES, self.part_bytes
        self.dice = Random(1)

    @initialize(page_bytes=st.sampled_from([4096, 8192, 65536]), magic=st.integers(0, 1))
    def begin(self, page_bytes: int, magic: int) -> None:
        self.page_bytes = page_bytes
        self.model = Model(magic)
        self.path = self.folder / "one"
        self.log = open_partition(self.path, page_bytes=page_bytes, jafka_magic=magic)
        self.view = View(self.path)
        self.committed = 0
        self.committed_place = 0

    def teardown(self) -> None:
        limits.PART_BYTES = self.kept
        if hasattr(self, "log"):
            self.view.close()
            self.log.close()
        shutil.rmtree(self.folder)

    # ---- what is done to it -------------------------------------------------------------------------------

    def append(self, raw: bytes, dress: int, now_ms: int, transaction: int = 0, given: bytes | None = None) -> None:
        if not raw:  # nothing to store; its time may be forgotten
            return
        partition = self.dice.randrange(8)
        start = self.log.end
        ticket = self.log.append(
            given or raw, dress, level=Level.RECEIVE, now_ms=now_ms, client=CLIENT, app=b"shop", partition=partition,
            producer=7, sequence=self.model.calls, transaction=transaction,
        )  # fmt: skip
        server = Server(partition, 0, self.log.epoch, 0, CLIENT, b"shop", self.model.magic)
        assert self.model.append(raw, dress, server=server, now_ms=now_ms, transaction=transaction) == start
        assert (ticket.ordinal, ticket.count, ticket.done) == (start, self.model.end - start, True)

    @rule(data=st.data(), dress=st.sampled_from(DRESSES), now_ms=st.integers(0, 1 << 40), transaction=st.integers(0, 2))
    def append_a_set(self, data: st.DataObject, dress: int, now_ms: int, transaction: int) -> None:
        self.append(encoded(data.draw(filled(dress))), dress, now_ms, transaction)

    @rule(
        dress=st.sampled_from(DRESSES),
        count=st.integers(1, 60),
        size=st.integers(0, 200),
        now_ms=st.integers(0, 1 << 40),
    )
    def append_a_batch(self, dress: int, count: int, size: int, now_ms: int) -> None:
        self.append(encoded([Entry(dress, self.dice.randbytes(size)) for _ in range(count)]), dress, now_ms)

    @rule(dress=st.sampled_from(DRESSES), size=st.integers(3900, 20_000))
    def append_a_long_message(self, dress: int, size: int) -> None:
        self.append(oracle.encode(Entry(dress, self.dice.randbytes(size))), dress, self.model.time + 1)

    @rule(dress=st.sampled_from([SEED, REAL]), count=st.integers(1, 5))
    def append_without_lengths_in_front(self, dress: int, count: int) -> None:
        messages = [oracle.encode(Entry(dress, self.dice.randbytes(40), sum=-1)) for _ in range(count)]
        given = b"".join(NO_LENGTH + message[4:] for message in messages)
        self.append(b"".join(messages), dress, self.model.time, given=given)

    @rule(data=st.data(), dress=st.sampled_from(DRESSES))
    def append_what_is_wrong(self, data: st.DataObject, dress: int) -> None:
        raw = encoded([Entry(dress, b"good"), *data.draw(filled(dress)), Entry(dress, b"not good")])
        wrong = raw[:-3] + b"x" + raw[-2:] if dress == JAFKA else raw[:-3]
        with pytest.raises(BadMessages, match=r"log one: byte .* nothing of these messages was stored"):
            self.log.append(NO_LENGTH + wrong[4:] if dress == HOUSE else wrong, dress, level=Level.RECEIVE, now_ms=1)

    @rule()
    def commit(self) -> None:
        self.log.commit()
        self.all_is_committed()

    def all_is_committed(self) -> None:
        self.committed, self.committed_place = self.model.end, self.model.end_place

    @rule(orderly=st.booleans())
    def open_again(self, orderly: bool) -> None:
        epoch = self.log.epoch
        if orderly:
            self.log.close()
            assert byhand.mark_of(self.path).clean == 1
        else:
            self.log.abandon()
        self.log = open_partition(self.path)
        assert self.log.epoch >= epoch
        self.all_is_committed()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        ordinal = data.draw(st.integers(self.model.first, self.model.end))
        if any(entry.ordinal < ordinal < entry.ordinal + entry.count for entry in self.model.entries):
            with pytest.raises(Misuse, match="in the middle of a batch"):
                self.log.truncate(ordinal)
            self.all_is_committed()
        elif ordinal < self.model.end:
            self.log.truncate(ordinal)
            self.model.truncate(ordinal)
            self.all_is_committed()

    @rule(pages=st.integers(0, 6), unconsumed=st.one_of(st.none(), st.integers(0, 500)))
    def retain(self, pages: int, unconsumed: int | None) -> None:
        first = self.log.retain(Retention(bytes_max=pages * self.page_bytes), now_ms=0, unconsumed_from=unconsumed)
        assert self.model.first <= first <= self.model.end
        if first > self.model.first:
            assert unconsumed is None or first <= unconsumed
            self.all_is_committed()
            self.model.retain(first)

    # ---- what has to hold ---------------------------------------------------------------------------------

    @property
    def readers(self) -> list[Reading]:
        return [self.log, self.view]

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def all_agree_where_it_stands(self) -> None:
        model = self.model
        for reader in self.readers:
            assert (reader.first, reader.end, reader.committed) == (model.first, model.end, self.committed)
            assert reader.places() == (model.first_place, model.end_place, self.committed_place)

    @rule()
    def the_directory_holds_what_the_list_holds(self) -> None:
        records = byhand.read(self.path)
        assert b"".join(record.payload for record in records) == b"".join(entry.raw for entry in self.model.entries)
        assert sum(record.count for record in records) == self.model.end - self.model.first

    @rule(data=st.data(), oversize=st.booleans(), committed=st.booleans(), bytes_max=st.sampled_from(LENGTHS))
    def spans_are_the_longest_run(self, data: st.DataObject, oversize: bool, committed: bool, bytes_max: int) -> None:
        model = self.model
        ordinal = data.draw(st.integers(model.first, model.end))
        messages_max = data.draw(st.sampled_from([0, 1, 2, 5, 1000]))
        limit = self.committed if committed else model.end
        run, lead = model.run(ordinal, bytes_max=bytes_max, messages_max=messages_max, limit=limit, oversize=oversize)
        for reader in self.readers:
            spans = reader.spans(
                ordinal, bytes_max=bytes_max, messages_max=messages_max, committed=committed, oversize=oversize
            )
            assert joined(spans) == expected(run)
            self.spans_say_where_they_are(spans, run, ordinal, lead)

    def spans_say_where_they_are(self, spans: list[Span], run: list[byhand.Stored], ordinal: int, lead: int) -> None:
        for span in spans:
            first = next(entry for entry in run if entry.ordinal <= ordinal < entry.ordinal + entry.count)
            inside = [entry for entry in run if first.ordinal <= entry.ordinal < span.ordinal + span.count]
            assert (span.ordinal, span.lead, span.dress) == (ordinal, lead, first.dress)
            assert span.count == sum(entry.count for entry in inside) - lead
            assert span.wrapped or len(inside) == span.count
            assert {entry.transaction for entry in inside} == {span.transaction}
            assert span.time in {entry.time for entry in inside}
            if span.dress == JAFKA:
                assert span.place == first.place
            ordinal, lead = span.ordinal + span.count, 0

    @rule(data=st.data())
    def places_and_times_lead_to_messages(self, data: st.DataObject) -> None:
        model = self.model
        place = data.draw(st.integers(model.first_place, model.end_place))
        at = [at for entry in model.entries for at in entry.places]
        holder = model.end
        if place < model.end_place:
            best = max(one for one in at if one <= place)
            holder = model.first + at.index(best)
        ms = data.draw(st.integers(0, model.time + 1))
        by_time = next((entry.ordinal for entry in model.entries if entry.time >= ms), model.end)
        ordinal = data.draw(st.integers(model.first, model.end))
        for reader in self.readers:
            assert reader.ordinal_at_place(place) == holder
            assert reader.ordinal_at_time(ms) == by_time
            assert reader.place_of(ordinal) == [*at, model.end_place][ordinal - model.first]

    @rule(data=st.data(), size=st.sampled_from([0, 1, 17, 300, 1 << 20]), committed=st.booleans())
    def the_jafka_log_is_one_run_of_bytes(self, data: st.DataObject, size: int, committed: bool) -> None:
        model = self.model
        end = self.committed_place if committed else model.end_place
        place = data.draw(st.integers(model.first_place, end))
        shown = model.jafka_bytes()[place - model.first_place : end - model.first_place][:size]
        for reader in self.readers:
            pieces = reader.spans_at_place(place, bytes_max=size, committed=committed)
            assert b"".join(map(bytes, pieces)) == shown

    @rule(away=st.integers(1, 1000))
    def nothing_is_there_before_and_behind(self, away: int) -> None:
        for reader in self.readers:
            for ordinal in (self.model.first - away, self.model.end + away):
                with pytest.raises(OutOfRange, match="holds the ordinals") as caught:
                    reader.spans(ordinal, bytes_max=100)
                assert (caught.value.first, caught.value.end) == (self.model.first, self.model.end)


class PartsMachine(LogMachine):
    """The same with sets in many parts."""

    part_bytes = 500


ORDINARY = settings(max_examples=10, stateful_step_count=20, deadline=None)
TestLog = LogMachine.TestCase
TestLog.settings = ORDINARY
TestParts = PartsMachine.TestCase
TestParts.settings = ORDINARY


@pytest.mark.parametrize("plain", [limits.INFLATED_FREE, limits.INFLATED_FREE + 4096])
def test_body_that_swells_out_of_proportion_is_refused_and_one_of_a_single_letter_is_not(
    plain: int, tmp_path: Path
) -> None:
    packed = zlib.compress(bytes(plain), 9)
    assert len(packed) * limits.INFLATED_RATIO < plain
    with open_partition(tmp_path / "log") as log:
        bomb = encoded([Entry(REAL, packed, codec=oracle.ZLIB, flag=2)])
        if plain == limits.INFLATED_FREE:
            assert log.append(bomb, REAL, level=Level.RECEIVE, now_ms=1).ordinal == 0
        else:
            with pytest.raises(BadMessages, match=f"more than the limit of {limits.INFLATED_FREE} bytes"):
                log.append(bomb, REAL, level=Level.RECEIVE, now_ms=1)
        assert log.end == (plain == limits.INFLATED_FREE)
