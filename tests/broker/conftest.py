"""One broker for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.kit import House

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "data") as opened:
        yield opened
