"""Every reason for a refusal is a word of one table, and every word of it is used or prepared."""

from __future__ import annotations

import re

import pytest

from serai import errors
from tests.laws.tree import SOURCES

CODES = re.compile(r"""code="([a-z-]+)\"""")


def kinds() -> list[type[errors.Refused]]:
    found = [errors.Refused]
    for kind in found:
        found += kind.__subclasses__()
    return found


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_of_refusal_has_a_word_of_the_table(kind: type[errors.Refused]) -> None:
    assert kind.code in errors.REFUSALS


def test_every_code_of_a_refusal_is_in_the_table() -> None:
    sources = [path for room in ("broker", "doors", "log") for path in (SOURCES / room).rglob("*.py")]
    used = {code for path in sources for code in CODES.findall(path.read_text(encoding="utf-8"))}
    assert used <= set(errors.REFUSALS), f"errors.REFUSALS lacks {used - set(errors.REFUSALS)}"


def test_outcome_unknown_is_no_refusal() -> None:
    assert not issubclass(errors.OutcomeUnknown, errors.Refused)
    assert errors.OutcomeUnknown.code not in errors.REFUSALS
