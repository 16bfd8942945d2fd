"""What a topic forgets, and what holds it back."""

from __future__ import annotations

from tests.broker.kit import PAGE_BYTES, House, words

HOUR_MS = 3_600_000
BODY = b"x" * 10_000
PAGES = 4


def fill(house: House) -> int:
    """Four pages of messages; how many."""
    guest = house.guest()
    count = PAGES * PAGE_BYTES // len(BODY)
    for _ in range(count // 20):
        house.produce(guest, [BODY] * 20)
    return count // 20 * 20


def test_topic_forgets_what_is_old(house: House) -> None:
    house.topic(policy={"retention_ms": HOUR_MS})
    house.topic("kept")
    fill(house)
    assert house.broker.tidy(house.now_ms) == "orders"
    assert house.broker.index("orders", None, 0).first == 0
    house.now_ms += HOUR_MS + 1
    house.produce(house.guest(), words(1))
    assert house.broker.tidy(house.now_ms) == "orders"
    assert house.broker.index("orders", None, 0).first > 0


def test_topic_forgets_what_is_too_much(house: House) -> None:
    house.topic(policy={"retention_bytes": 2 * PAGE_BYTES})
    count = fill(house)
    house.broker.tidy(house.now_ms)
    assert 0 < house.broker.index("orders", None, 0).first < count


def test_what_a_group_has_still_to_get_is_kept(house: House) -> None:
    house.topic(policy={"retention_bytes": PAGE_BYTES})
    fill(house)
    guest = house.guest()
    slow, quick = house.consumer(guest, group="app.slow"), house.consumer(guest, group="app.quick")
    house.ack(house.fetch(slow, count=150), "app.slow")
    while (delivery := house.fetch(quick, count=100)).count:
        house.ack(delivery, "app.quick")
    house.broker.tidy(house.now_ms)
    first = house.broker.index("orders", None, 0).first
    assert 0 < first <= house.broker.index("orders", "app.slow", 0).position
    house.broker.remove_group("orders", "app.slow")
    house.broker.tidy(house.now_ms)
    assert house.broker.index("orders", None, 0).first > first


def test_group_whose_messages_went_begins_at_the_oldest(house: House) -> None:
    house.topic(policy={"retention_bytes": PAGE_BYTES})
    fill(house)
    house.broker.tidy(house.now_ms)
    first = house.broker.index("orders", None, 0).first
    assert house.broker.index("orders", "app", 0).position == first
    assert house.fetch(house.consumer(house.guest())).ordinal == first


def test_topics_without_a_policy_are_never_visited(house: House) -> None:
    house.topic()
    assert house.broker.tidy(house.now_ms) == ""
    assert house.broker.find("orders").opened == {}


def test_topics_that_forget_are_visited_in_turn(house: House) -> None:
    for name in "abc":
        house.topic(name, policy={"retention_ms": HOUR_MS})
    assert sorted(house.broker.tidy(house.now_ms) for _ in range(6)) == ["a", "a", "b", "b", "c", "c"]
