"""The inbox and spans: what is copied, what is kept, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import PeerError
from serai.wire.buffer import Inbox, Span, flat, joined


def test_a_read_of_whole_frames_is_not_copied() -> None:
    inbox, data = Inbox(100), b"whole"
    view = inbox.joined(data)
    assert view is not None
    assert view.obj is data
    inbox.keep(view[5:], 4)
    assert len(inbox) == 0


def test_a_view_stays_as_it_was_when_more_comes() -> None:
    inbox = Inbox(100)
    inbox.keep(memoryview(b"ab"), 4)
    assert inbox.joined(b"c") is None
    view = inbox.joined(b"de")
    assert view is not None
    assert bytes(view) == b"abcde"
    inbox.keep(view[4:], 2)
    assert bytes(inbox.joined(b"f") or b"") == b"ef"
    assert bytes(view) == b"abcde"


def test_a_frame_beyond_the_limit_is_the_peers_fault() -> None:
    inbox = Inbox(100)
    inbox.keep(memoryview(b"ab"), 100)
    inbox = Inbox(100)
    with pytest.raises(PeerError, match="101 bytes"):
        inbox.keep(memoryview(b"ab"), 101)


def test_what_is_read_into_the_space_behind_what_is_held_is_not_copied() -> None:
    inbox = Inbox(100)
    inbox.keep(memoryview(b"ab"), 4)
    space = inbox.space(8)
    assert space is not None
    space[:3] = b"cde"
    view = inbox.joined(space[:3])
    assert view is not None
    assert bytes(view) == b"abcde"
    assert view.obj is space.obj
    inbox.keep(view[4:], 2)
    assert bytes(inbox.joined(b"f") or b"") == b"ef"
    assert bytes(view) == b"abcde"


def test_space_is_at_most_four_times_what_came() -> None:
    inbox = Inbox(1 << 30)
    assert inbox.space(1) is None
    inbox.keep(memoryview(bytes(1000)), 1 << 29)
    assert inbox.space(4001) is None
    space = inbox.space(4000)
    assert space is not None
    assert memoryview(space.obj).nbytes == 5000


def test_two_stores_take_turns_when_nobody_looks_at_them_any_more() -> None:
    inbox = Inbox(100)
    inbox.keep(memoryview(b"a"), 4)
    seen = []
    for _ in range(6):
        view = inbox.joined(b"bcda")
        assert view is not None
        assert bytes(view) == b"abcda"
        seen.append(view.obj)
        inbox.keep(view[4:], 4)
        del view
    assert len(set(map(id, seen[1:]))) == 2


def test_a_large_store_is_used_again_by_another_inbox_once_nobody_looks_at_it() -> None:
    size = 1 << 17
    one, other = Inbox(1 << 20), Inbox(1 << 20)
    one.keep(memoryview(bytes(size)), size + 4)
    view = one.joined(b"last")
    assert view is not None
    store = view.obj
    one.keep(view[len(view) :], 4)
    other.keep(memoryview(b"x" * size), 1 << 18)
    assert bytes(view[:size]) == bytes(size)  # somebody looks at it: it was left alone
    del view
    third = Inbox(1 << 20)
    third.keep(memoryview(b"y" * size), size + 4)
    view = third.joined(b"more")
    assert view is not None
    assert view.obj is store


@given(reads=st.lists(st.binary(max_size=9)), size=st.integers(1, 12))
def test_frames_come_out_as_they_went_in(reads: list[bytes], size: int) -> None:
    """Frames of one size, cut anywhere."""
    inbox, found = Inbox(100), b""
    for read in reads:
        view = inbox.joined(read)
        if view is not None:
            whole = len(view) // size * size
            found += view[:whole]
            inbox.keep(view[whole:], size)
    sent = b"".join(reads)
    assert found == sent[: len(sent) // size * size]


def test_small_pieces_are_joined_and_spans_stay() -> None:
    span = Span(memoryview(b"page"))
    assert joined([b"a", b"b", span, b"c", b"", b"d"]) == [b"ab", span, b"cd"]
    assert flat([b"a", span, b"c"]) == b"apagec"
    assert len(span) == 4
    assert joined([]) == []
