"""Histograms: every time between its two bounds, and the steps as Prometheus wants them."""

from __future__ import annotations

import pytest

from serai import limits
from serai.log.times import Times

BOUNDS = limits.TIME_BOUNDS_S


def test_bounds_grow() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert BOUNDS[0] > 0


def test_a_time_counts_at_every_bound_that_is_not_below_it() -> None:
    times = Times()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], BOUNDS[-1] + 1):
        times.add(seconds)
    steps = dict(times.steps())
    assert [steps[str(bound)] for bound in (BOUNDS[0], BOUNDS[1], BOUNDS[-1])] == [2, 3, 4]
    assert steps["+Inf"] == 5
    assert times.total_s == pytest.approx(BOUNDS[0] * 2.01 + BOUNDS[-1] * 2 + 1)


def test_steps_never_fall() -> None:
    times = Times()
    for number in range(200):
        times.add(number * number * 1e-4)
    counts = [count for _, count in times.steps()]
    assert counts == sorted(counts)
    assert counts[-1] == 200
