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
