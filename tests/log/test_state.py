"""A state log against a dict: the last value wins, also after a start, and the log stays as long as its content."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from serai import limits
from serai.errors import Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.state import contents, message, pairs
from serai.log.view import View

KEYS = st.binary(min_size=1, max_size=8)
VALUES = st.one_of(st.none(), st.binary(max_size=300))


class StateMachine(RuleBasedStateMachine):
    """One state log, and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="serai-state-"))
        self.kept, limits.STATE_PAGE_BYTES = limits.STATE_PAGE_BYTES, 4096
        self.engine = LocalEngine(self.folder / "data")
        self.values: dict[bytes, bytes] = {}

    def teardown(self) -> None:
        limits.STATE_PAGE_BYTES = self.kept
        self.engine.close()
        shutil.rmtree(self.folder)

    @rule(found=st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=30))
    def put(self, found: list[tuple[bytes, bytes | None]]) -> None:
        self.engine.state("one").put_many(found, level=Level.RECEIVE)
        for key, value in found:
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value

    @rule()
    def start_again(self) -> None:
        self.engine.close()
        self.engine = LocalEngine(self.folder / "data")

    @rule()
    def die(self) -> None:
        self.engine.state("one").log.abandon()
        self.engine.close()
        self.engine = LocalEngine(self.folder / "data")

    @rule()
    def look_from_outside(self) -> None:
        with View(self.engine.state("one").log.folder.path) as view:
            assert contents(view) == self.values

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        state = self.engine.state("one")
        assert (dict(state.items()), len(state)) == (self.values, len(self.values))
        assert all(state.get(key) == value for key, value in self.values.items())
        assert state.get(b"\xff" * 9) is None


TestState = StateMachine.TestCase
TestState.settings = settings(max_examples=8, stateful_step_count=15, deadline=None)


def test_log_stays_as_long_as_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATE_PAGE_BYTES", 16384)
    with LocalEngine(tmp_path / "data") as engine:
        state = engine.state("positions")
        for at in range(3000):
            state.put(b"group-%d" % (at % 20), b"%d" % at, level=Level.RECEIVE)
        assert state.log.first > 2000, "pages before the newest snapshot are given up"
        assert len(list(state.log.folder.path.glob("*.qd"))) <= 2
    with LocalEngine(tmp_path / "data") as engine:
        assert engine.state("positions").get(b"group-19") == b"2999"


def test_removed_key_is_not_an_empty_value() -> None:
    raw = message(b"a", b"") + message(b"b", None)
    assert list(pairs(raw)) == [(b"a", b""), (b"b", None)]


@pytest.mark.parametrize("key", [b"", b"x" * 65536])
def test_key_has_a_byte_at_least_and_65535_at_most(key: bytes) -> None:
    with pytest.raises(Misuse, match="1 to 65535 bytes"):
        message(key, b"")
    assert list(pairs(message(b"x" * 65535, b"v"))) == [(b"x" * 65535, b"v")]


def test_put_of_level_commit_is_a_ticket_like_any_other(tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        ticket = engine.catalogue().put(b"topic/1", b"{}", level=Level.COMMIT)
        ticket.log.commit()
        assert ticket.done
        assert engine.catalogue() is engine.state("catalogue")
