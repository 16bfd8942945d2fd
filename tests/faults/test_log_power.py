"""Replayed power cuts: whatever sectors were in flight, nothing committed is lost and no rubbish comes to light.

A story does everything a data directory is used for (sets of every dress and size, sets in parts, page rolls, marks,
commits, flush turns that appends overtake, retention with pages used again, truncation, state with its snapshots, dying
and opening again) on a disk that remembers what was in flight.  At random instants a power cut is drawn; each of the
folders it could leave is opened, read whole, written to, closed, and read again; some are cut once more while they are
opened for the first time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from serai import limits
from serai.errors import SeraiError
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.partition import open_partition
from serai.log.retention import Retention
from tests.faults.power import Disk, lay_out
from tests.oracle import messages as oracle
from tests.oracle import partition as byhand
from tests.oracle.messages import HOUSE, JAFKA, REAL, SEED, Entry, Server
from tests.oracle.partition import Model, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from serai.log.partition import Partition
    from serai.log.view import Reading

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CLIENT = b"\x39\x30\x0a\0\0\x07"
DRESSES = (HOUSE, SEED, REAL, JAFKA)
STEPS = 40
IMAGES_A_STORY = 25
ONE, STATE = "orders-0", "positions"
Values = dict[bytes, bytes]


@dataclass(frozen=True)
class Outcome:
    """One thing a log may be after the cut: a prefix of these entries, at least up to the floor."""

    entries: tuple[Stored, ...]
    floor: int


@dataclass
class Cut:
    """A folder that a power cut could leave, and what it may hold."""

    image: dict[str, bytes | None]
    outcomes: list[Outcome]
    firsts: set[int]  # may still grow while the step goes on that was cut
    states: list[Values]
    page_bytes: int
    magic: int
    where: str


@dataclass
class Tally:
    """What became of all cuts."""

    images: int = 0
    committed: int = 0
    more: int = 0
    states: int = 0
    torn: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.images} images ({self.again} of them cut again while they were opened): {self.committed} committed messages, "
            f"{self.kinds['lost']} lost; {self.more} more taken over, {self.kinds['rubbish']} rubbish; "
            f"{self.kinds['refused']} not opened; in {self.torn} the slots alone would have published rubbish; "
            f"{self.states} state logs, {self.kinds['state']} wrong"
        )

    def note(self, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        self.wrong.append(f"{kind}: {text}")


# ------------------------------------------------------------------------------------------------ a story


class Story:
    """One run of random steps on a data directory, and the cuts that were drawn meanwhile."""

    def __init__(self, folder: Path, seed: int, disk: Disk) -> None:
        self.dice = Random(seed)
        self.seed, self.disk = seed, disk
        self.path = folder / "data"
        self.page_bytes = self.dice.choice((4096, 4096, 16384))
        self.magic = self.dice.randrange(2)
        self.model = Model(self.magic)
        self.floor = 0
        self.before: list[Outcome] = []  # what may be there as well while a step takes something back
        self.firsts = {0}
        self.states: list[Values] = [{}]
        self.cuts: list[Cut] = []
        self.doing = "open"
        self.chance = IMAGES_A_STORY / 220
        disk.instant = self.instant
        self.engine = LocalEngine(self.path, page_bytes=self.page_bytes)
        self.log: Partition = self.engine.open(ONE, jafka_magic=self.magic)
        self.state = self.engine.state(STATE)

    def instant(self) -> None:
        while self.dice.random() < self.chance:
            outcomes = [Outcome(tuple(self.model.entries), self.floor), *self.before]
            where = f"seed {self.seed}, {self.doing}, instant {self.disk.instants}"
            image = self.disk.image(self.dice)
            states = list(self.states)
            self.cuts.append(Cut(image, outcomes, self.firsts, states, self.page_bytes, self.magic, where))

    def tell(self) -> list[Cut]:
        """The whole story."""
        steps: Sequence[Callable[[], None]] = (
            *[self.append] * 6, *[self.commit] * 3, self.mark, self.overtaken, self.truncate, self.retain, self.retain,
            *[self.put] * 3, self.die, self.end,
        )  # fmt: skip
        for number in range(STEPS):
            step = self.dice.choice(steps)
            self.doing = f"step {number} {step.__name__}"
            step()
            self.doing = f"behind step {number} {step.__name__}"
            self.disk.look()
        self.disk.instant = None
        self.engine.close()
        return self.cuts

    # ---- steps --------------------------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.dice.choice((1, 1, 1, 5))):
            dress = self.dice.choice(DRESSES)
            raw = b"".join(map(oracle.encode, self.entries(dress)))
            now_ms = self.model.time + self.dice.randrange(5)
            server = Server(3, 0, self.log.epoch, 0, CLIENT, b"shop", self.magic)
            self.model.append(raw, dress, server=server, now_ms=now_ms)
            self.log.append(
                raw, dress, level=Level.RECEIVE, now_ms=now_ms, client=CLIENT, app=b"shop", partition=3,
            )  # fmt: skip
            assert self.log.end == self.model.end

    def entries(self, dress: int) -> list[Entry]:
        dice = self.dice
        match dice.randrange(5):
            case 0:
                members = tuple(
                    Entry(dress, dice.randbytes(dice.randrange(1, 80))) for _ in range(dice.randrange(1, 4))
                )
                return [oracle.wrap(dress, members, dice.choice((0, 2)) if dress != JAFKA else oracle.GZIP)]
            case 1:
                return [Entry(dress, dice.randbytes(dice.choice((600, 3000, self.page_bytes + 700))))]
            case _:
                size = dice.choice((0, 9, 100, 300))
                return [Entry(dress, dice.randbytes(size)) for _ in range(dice.randrange(1, 12))]

    def commit(self) -> None:
        self.log.commit()
        self.floor = self.model.end
        self.state.log.commit()
        self.states = self.states[-1:]

    def mark(self) -> None:
        self.log.settle()
        self.floor = self.model.end
        self.state.log.settle()
        self.states = self.states[-1:]

    def overtaken(self) -> None:
        """A flush turn that began before the newest messages."""
        turn, covered = self.log.begin(), self.model.end
        self.append()
        self.log.finish(turn)
        self.floor = max(self.floor, covered)

    def truncate(self) -> None:
        cuts = [entry.ordinal for entry in self.model.entries]
        if not cuts:
            return
        ordinal = self.dice.choice(cuts[-12:])
        self.before = [Outcome(tuple(self.model.entries), self.floor)]
        self.floor = min(self.floor, ordinal)
        self.model.truncate(ordinal)
        self.before[0] = Outcome(self.before[0].entries, self.floor)
        self.log.truncate(ordinal)
        self.before, self.floor = [], self.model.end

    def retain(self) -> None:
        pages = self.dice.randrange(1, 6)
        first = self.log.retain(Retention(bytes_max=pages * self.page_bytes), now_ms=0)
        self.firsts.add(first)  # for the cuts of this step
        self.model.retain(first)
        self.firsts = {first}

    def put(self) -> None:
        pairs = [
            (
                b"group-%d" % self.dice.randrange(9),
                self.dice.choice((None, self.dice.randbytes(self.dice.randrange(200)))),
            )
            for _ in range(self.dice.randrange(1, 4))
        ]
        after = dict(self.states[-1])
        for key, value in pairs:
            after.pop(key, None)
            if value is not None:
                after[key] = value
        self.states.append(after)
        self.state.put_many(pairs, level=Level.RECEIVE)

    def die(self) -> None:
        """The process ends, the machine stays: what was appended is there."""
        self.log.abandon()
        self.log = self.engine.open(ONE)
        self.floor = self.model.end

    def end(self) -> None:
        self.engine.close()
        self.engine = LocalEngine(self.path, page_bytes=self.page_bytes)
        self.log = self.engine.open(ONE)
        self.state = self.engine.state(STATE)
        self.floor = self.model.end
        self.states = self.states[-1:]


# ------------------------------------------------------------------------------------------------ the judge


def content(log: Reading) -> list[tuple[int, bytes]]:
    """Everything that is delivered, as (dress, bytes) of neighbours together."""
    out: list[tuple[int, bytes]] = []
    ordinal = log.first
    while spans := log.spans(ordinal, bytes_max=5000):
        for span in spans:
            assert span.ordinal == ordinal, "ordinals are not dense"
            out.append((span.dress, bytes(span.data)))
            ordinal += span.count
    assert ordinal == log.end
    return joined(out)


def joined(pieces: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    out: list[tuple[int, list[bytes]]] = []
    for dress, raw in pieces:
        if not out or out[-1][0] != dress:
            out.append((dress, []))
        out[-1][1].append(raw)
    return [(dress, b"".join(raw)) for dress, raw in out]


def kept(outcome: Outcome, first: int, end: int) -> list[Stored]:
    return [entry for entry in outcome.entries if first <= entry.ordinal < end]


def whole_calls(outcome: Outcome, end: int) -> bool:
    """Whether a log may end here: a set is there as a whole or not at all."""
    here = [entry for entry in outcome.entries if entry.ordinal < end]
    next_ = [entry for entry in outcome.entries if entry.ordinal >= end]
    if here and here[-1].ordinal + here[-1].count != end:
        return False
    return not (here and next_ and here[-1].call == next_[0].call)


class Judge:
    """Opens what a cut left and says what became of it."""

    def __init__(self, tally: Tally, dice: Random, patch: pytest.MonkeyPatch) -> None:
        self.tally, self.dice, self.patch = tally, dice, patch

    def judge(self, cut: Cut, folder: Path, *, again: bool = False) -> None:
        lay_out(cut.image, folder)
        self.tally.images += 1
        self.tally.torn += slots_lie(folder / "data" / "p" / ONE, cut)
        later: list[dict[str, bytes | None]] = []
        try:
            if again:
                later = self.open_watched(cut, folder)
            with LocalEngine(folder / "data", page_bytes=cut.page_bytes) as engine:
                log = engine.open(ONE, jafka_magic=cut.magic)
                self.look(log, cut)
                self.look_at_state(dict(engine.state(STATE).items()), cut)
                self.go_on(log, cut)
            if (folder / "data").exists() and self.dice.random() < 0.1:
                byhand.read(folder / "data" / "p" / ONE)
        except SeraiError as error:
            self.tally.note("refused", f"{cut.where}: {error}")
        shutil.rmtree(folder)
        for image in later:
            self.tally.again += 1
            self.judge(Cut(image, cut.outcomes, cut.firsts, cut.states, cut.page_bytes, cut.magic, cut.where), folder)

    def open_watched(self, cut: Cut, folder: Path) -> list[dict[str, bytes | None]]:
        """Opens it on a disk that remembers, and cuts the power once more."""
        images: list[dict[str, bytes | None]] = []

        def instant() -> None:
            if self.dice.random() < 0.1:
                images.append(disk.image(self.dice))

        with Disk(folder) as disk, self.patch.context() as patch:
            disk.instant = instant
            disk.watch(patch)
            with LocalEngine(folder / "data", page_bytes=cut.page_bytes) as engine:
                engine.open(ONE, jafka_magic=cut.magic)
                engine.state(STATE)
        return images[:2]

    def look(self, log: Partition, cut: Cut) -> None:
        found, first, end = content(log), log.first, log.end
        fits = [
            outcome
            for outcome in cut.outcomes
            if found == joined([(entry.dress, entry.raw) for entry in kept(outcome, first, end)])
            and whole_calls(outcome, end)
        ]
        floor = min(outcome.floor for outcome in cut.outcomes)
        self.tally.committed += max(0, floor - first)
        if first not in cut.firsts:
            self.tally.note("lost", f"{cut.where}: begins at {first}, not at one of {cut.firsts}")
        elif not fits:
            self.tally.note("rubbish", f"{cut.where}: {first}..{end} is nothing that was appended")
        elif all(end < outcome.floor for outcome in fits):
            self.tally.note("lost", f"{cut.where}: ends at {end}, committed were {[one.floor for one in fits]}")
        else:
            self.tally.more += end - max(first, floor)
            self.look_closely(log, fits[0], cut)

    def look_closely(self, log: Partition, outcome: Outcome, cut: Cut) -> None:
        """Some messages one by one, which goes by their slots, and by their places."""
        entries = kept(outcome, log.first, log.end)
        for entry in self.dice.sample(entries, min(4, len(entries))):
            (span,) = log.spans(entry.ordinal, bytes_max=1, messages_max=1)
            if bytes(span.data) != entry.raw or log.place_of(entry.ordinal) != entry.place:
                self.tally.note("rubbish", f"{cut.where}: ordinal {entry.ordinal} alone is another one")

    def look_at_state(self, values: Values, cut: Cut) -> None:
        self.tally.states += 1
        if values not in cut.states:
            self.tally.note("state", f"{cut.where}: the state is none of the last {len(cut.states)}")

    def go_on(self, log: Partition, cut: Cut) -> None:
        """A log that was cut takes messages again, and keeps them; what was cut off behind them stays cut off."""
        before, end = content(log), log.end
        raw = self.in_place_of_what_was_cut(end, cut) or oracle.encode(
            Entry(HOUSE, b"goes on" * self.dice.randrange(300))
        )
        ticket = log.append(raw, HOUSE, level=Level.RECEIVE, now_ms=0)
        log.abandon() if self.dice.random() < 0.8 else log.close()
        with open_partition(log.folder.path) as again:
            if content(again) != joined([*before, (HOUSE, raw)]) or again.end != end + ticket.count:
                self.tally.note("rubbish", f"{cut.where}: {ticket} did not stay the newest after the next start")

    def in_place_of_what_was_cut(self, end: int, cut: Cut) -> bytes:
        """Messages that end where the first ones that were cut ended: the next of those may still lie there, whole."""
        later = [entry for entry in cut.outcomes[0].entries if entry.ordinal >= end]
        first = [entry for entry in later if entry.call == later[0].call]
        raw = b"".join(entry.raw for entry in first)
        plain = all(entry.dress == HOUSE and not oracle.decode_one(entry.raw, HOUSE)[0].codec for entry in first)
        return raw[:-1] + bytes([raw[-1] ^ 1]) if plain and raw and len(first[-1].raw) > 16 else b""


def slots_lie(folder: Path, cut: Cut) -> bool:
    """Whether the flags of the slots, taken at their word, would have published bytes nobody wrote: that cuts do tear."""
    right = {entry.ordinal: entry for outcome in cut.outcomes for entry in outcome.entries}
    for path in folder.glob("*.qx"):
        raw, base = path.read_bytes(), int(path.stem) * cut.page_bytes // 16
        for number, (begin, size, _name, flag) in enumerate(byhand.SLOT.iter_unpack(raw)):
            entry = right.get(base + number)
            if flag == 0x7F and entry is not None and stored(folder, begin, size, cut.page_bytes) != entry.raw:
                return True
    return False


def stored(folder: Path, begin: int, size: int, page_bytes: int) -> bytes:
    out = b""
    while len(out) < size:
        number, at = divmod(begin + len(out), page_bytes)
        try:
            page = (folder / f"{number}.qd").read_bytes()
        except FileNotFoundError:
            return out
        out += page[at : at + size - len(out)].ljust(min(size - len(out), page_bytes - at), b"\0")
    return out


# ------------------------------------------------------------------------------------------------ tests


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets in parts, snapshots and spares come often; nothing is flushed behind the story's back."""
    monkeypatch.setattr(limits, "PART_BYTES", 1500)
    monkeypatch.setattr(limits, "STATE_PAGE_BYTES", 4096)
    monkeypatch.setattr(limits, "FLUSH_EVERY_S", 3600.0)
    return monkeypatch


def replay(count: int, patch: pytest.MonkeyPatch, *, lying: bool = False, seed: int = 1) -> Tally:
    """Stories until so many images were judged."""
    tally, dice = Tally(), Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="serai-power-", dir=MEMORY))
    try:
        while tally.images < count:
            with Disk(make(folder / "told"), lying=lying) as disk, patch.context() as watched:
                disk.watch(watched)
                cuts = Story(folder / "told", seed, disk).tell()
            judge = Judge(tally, dice, patch)
            for number, cut in enumerate(cuts):
                judge.judge(cut, folder / "left", again=not lying and number % 5 == 0)
            shutil.rmtree(folder / "told")
            seed += 1
    finally:
        shutil.rmtree(folder)
    return tally


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("count", [pytest.param(400, id="400"), pytest.param(2000, id="2000", marks=pytest.mark.slow)])
def test_no_power_cut_loses_what_was_committed_or_publishes_rubbish(count: int, small: pytest.MonkeyPatch) -> None:
    tally = replay(count, small, seed=count)
    print(f"\n{tally}")
    assert "\n".join(tally.wrong[:30]) == ""
    assert tally.torn > tally.images // 20, "these cuts tear too little to prove anything"
    assert tally.committed > 10 * tally.images


def test_cuts_of_a_disk_whose_syncs_do_nothing_are_noticed(small: pytest.MonkeyPatch) -> None:
    """The control: what the other test would say if a sync were left out."""
    tally = replay(60, small, lying=True, seed=7)
    print(f"\n{tally}")
    assert tally.kinds["lost"] + tally.kinds["refused"] > tally.images // 3
