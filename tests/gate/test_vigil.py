"""Staying awake: only while it is worth it."""

import asyncio

from serai.gate.vigil import AWAKE_NS, CREDIT_MAX, TURNS_A_TRIAL, Vigil

LONGER_S = 20 * AWAKE_NS / 1e9


class Counting:
    """A loop that counts how often it is kept from sleeping."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.asked = 0

    def call_soon(self, callback):  # type: ignore[no-untyped-def]  # as the loop's
        self.asked += 1
        return self.loop.call_soon(callback)


def test_loop_stays_awake_for_a_moment_after_a_turn() -> None:
    async def play() -> tuple[int, int]:
        loop = Counting(asyncio.get_running_loop())
        vigil = Vigil(loop)  # type: ignore[arg-type]  # what a vigil uses of a loop is counted
        vigil.keep()
        for _ in range(3):
            await asyncio.sleep(0)
        during = loop.asked
        await asyncio.sleep(LONGER_S)
        after = loop.asked
        await asyncio.sleep(LONGER_S)
        assert loop.asked == after, "the vigil is over, and the loop sleeps"
        return during, after

    during, after = asyncio.run(play())
    assert 1 < during <= after


def test_vigils_in_vain_become_rare() -> None:
    async def play() -> list[int]:
        loop, kept = Counting(asyncio.get_running_loop()), []
        vigil = Vigil(loop)  # type: ignore[arg-type]  # what a vigil uses of a loop is counted
        for _ in range(CREDIT_MAX + 3 * TURNS_A_TRIAL):
            before = loop.asked
            vigil.keep()
            kept.append(int(loop.asked > before))
            await asyncio.sleep(LONGER_S)  # nobody speaks in time
        return kept

    kept = asyncio.run(play())
    assert sum(kept[:CREDIT_MAX]) == CREDIT_MAX
    assert sum(kept[CREDIT_MAX:]) == 3, "one trial in so many turns"


def test_vigil_that_was_worth_it_is_kept_again() -> None:
    async def play() -> bool:
        loop = Counting(asyncio.get_running_loop())
        vigil = Vigil(loop)  # type: ignore[arg-type]  # what a vigil uses of a loop is counted
        for _ in range(CREDIT_MAX):  # all of it is spent
            vigil.keep()
            await asyncio.sleep(LONGER_S)
        for _ in range(TURNS_A_TRIAL):
            vigil.keep()
        for _ in range(3):  # in the trial somebody speaks in time
            await asyncio.sleep(0)
            vigil.keep()
        await asyncio.sleep(LONGER_S)
        before = loop.asked
        vigil.keep()
        return loop.asked > before

    assert asyncio.run(play())


def test_vigil_that_is_ended_costs_no_credit() -> None:
    async def play() -> bool:
        loop = Counting(asyncio.get_running_loop())
        vigil = Vigil(loop)  # type: ignore[arg-type]  # what a vigil uses of a loop is counted
        for _ in range(2 * CREDIT_MAX):
            vigil.keep()
            vigil.end()
            asked = loop.asked
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert loop.asked == asked, "the loop sleeps at once"
        vigil.keep()
        return loop.asked > asked

    assert asyncio.run(play())
