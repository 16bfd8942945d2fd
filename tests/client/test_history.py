"""The history checker: a history without fault has none, and one small change is found and named."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.client.history import Recorder, check
from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 12
Event = dict[str, Any]


def honest() -> list[Event]:
    """Two senders, two partitions, one group that receives everything in two halves and acknowledges the first."""
    file = io.StringIO()
    recorder = Recorder(file)
    places = {}
    ends = [0, 0]
    for number in range(COUNT):
        who, partition = f"p{number % 2}", number // 2 % 2
        recorder.note("send", who=who, number=number, sum=1000 + number)
        recorder.note("stored", who=who, number=number, partition=partition, index=ends[partition])
        places[number] = (who, partition, ends[partition])
        ends[partition] += 1
    for number, (who, partition, index) in places.items():
        recorder.note(
            "received", group="g", who=who, number=number, sum=1000 + number, partition=partition, index=index
        )
        if number < COUNT // 2:
            recorder.note("done", group="g", partition=partition, index=index, count=1)
    recorder.note("send", who="p0", number=COUNT, sum=1)
    recorder.note("unknown", who="p0", number=COUNT)
    recorder.note("end", group="g")
    return [json.loads(line) for line in file.getvalue().splitlines()]


def kinds(events: list[Event]) -> set[tuple[str, str]]:
    return {(each.kind, each.message) for each in check(map(json.dumps, events)).findings}


def receipts(events: list[Event]) -> list[int]:
    return [at for at, event in enumerate(events) if event["event"] == "received"]


def removed(events: list[Event], at: int) -> None:
    del events[at]


def altered(events: list[Event], at: int) -> None:
    events[at]["sum"] += 1


def doubled(events: list[Event], at: int) -> None:
    events.insert(len(events) - 1, events[at] | {"index": 99})


def moved(events: list[Event], at: int) -> None:
    events[at]["index"] = 99


def test_honest_history_has_no_finding() -> None:
    seen = check(map(json.dumps, honest()))
    assert (seen.findings, len(seen.stored), seen.unknown) == ([], COUNT, 1)


@given(
    st.integers(0, COUNT - 1),
    st.sampled_from([("lost", removed), ("altered", altered), ("doubled", doubled), ("moved", moved)]),
)
def test_one_message_removed_doubled_moved_or_altered_is_named(
    number: int, change: tuple[str, Callable[[list[Event], int], None]]
) -> None:
    events = honest()
    at = receipts(events)[number]
    name = f"{events[at]['who']}-{events[at]['number']}"
    change[1](events, at)
    found = kinds(events)
    assert (change[0], name) in found
    assert {message for _, message in found} == {name}


@given(st.integers(0, COUNT // 2 - 1))
def test_redelivery_is_forbidden_only_after_a_confirmed_acknowledgement(number: int) -> None:
    events = honest()
    got = [events[at] for at in receipts(events)]
    acknowledged, open_one = got[number], got[number + COUNT // 2]
    events[-1:-1] = [acknowledged, open_one]
    assert kinds(events) == {("doubled", f"{acknowledged['who']}-{acknowledged['number']}")}


def test_two_messages_that_changed_places_are_found() -> None:
    events = honest()
    stored = [event for event in events if event["event"] in ("stored", "received") and event["who"] == "p0"]
    pair = [event for event in stored if event["partition"] == 0][:2]
    first, second = pair[0]["number"], pair[1]["number"]
    places = {event["number"]: event["index"] for event in stored}
    for event in stored:
        if event["number"] in (first, second):
            event["index"] = places[second if event["number"] == first else first]
    assert ("moved", f"p0-{second}") in kinds(events) or ("moved", f"p0-{first}") in kinds(events)


def test_message_that_was_refused_and_came_nevertheless_is_found() -> None:
    events = honest()
    events.insert(0, {"event": "failed", "who": "p0", "number": 0})
    assert ("altered", "p0-0") in kinds(events)


def test_message_that_nobody_sent_is_found() -> None:
    events = [event for event in honest() if not (event["event"] == "send" and event["number"] == 3)]
    assert kinds(events) == {("altered", "p1-3")}


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"event": "sent"}', '{"event": "end"}', '{"event": "done", "group": "g"}']
)
def test_line_that_is_no_event_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(Misuse, match="line 2"):
        check([json.dumps({"event": "end", "group": "g"}), line])
