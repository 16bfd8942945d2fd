"""What commands do: dialogues with a real broker and its engine in memory, without a socket, in every dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.frame import HOUSE, REAL, SEED
from tests.doors.jmq.parlour import Parlour

if TYPE_CHECKING:
    from pathlib import Path

    from serai.wire.layout import Form

EACH = pytest.mark.parametrize("form", [SEED, REAL, HOUSE], ids=["seed", "real", "house"])


@EACH
def test_requests_of_one_read_are_stored_as_one_set(tmp_path: Path, form: Form) -> None:
    with Parlour(tmp_path) as parlour:
        guest = parlour.visitor(form)
        guest.ask(commands.FetchCluster(topics=["t", "u"], app="shop"))
        asked = [commands.ProduceMessage(topics=[guest.produced(topic, b"%d" % at)], app="shop")
                 for topic in ("t", "u") for at in range(50)]  # fmt: skip
        replies = guest.say(*asked)
        assert [guest.indexes(reply.body.data[0]) for reply in replies] == [[at] for at in range(50)] * 2  # type: ignore[union-attr]  # each is placed
        assert (parlour.broker.produced_sets, parlour.broker.produced_messages) == (2, 100)


@EACH
def test_what_is_produced_is_fetched_and_acknowledged_once(tmp_path: Path, form: Form) -> None:
    with Parlour(tmp_path) as parlour:
        guest = parlour.visitor(form)
        guest.ask(commands.FetchCluster(topics=["t"], app="shop"))
        placed = guest.produce("t", b"a", b"b", b"c")
        assert (placed.code, guest.indexes(placed)) == (0, [0, 1, 2])
        guest.ask(commands.AddConsumer(topics=["t"], app="shop", sequence=1))
        row = guest.fetch("t", count=2)
        assert (guest.bodies(row), guest.fetched(row)) == ([b"a", b"b"], [0, 1])
        assert guest.fetch("t").messages.count == 0  # the partition is held
        assert guest.ack("t", guest.fetched(row)) == 0
        assert guest.bodies(guest.fetch("t")) == [b"c"]
