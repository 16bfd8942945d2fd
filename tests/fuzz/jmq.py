"""What the JMQ fuzz targets share: servers that listen to anything, and the originals' frames to start from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai._core.frames import Run
from serai.doors.jmq.connection import Answer, Call, Connection, Declined, Request, Role, RunAnswer
from serai.doors.jmq.schema.commands import AddConnection
from serai.doors.jmq.schema.frame import MAGIC
from serai.errors import PeerError
from serai.wire.buffer import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai.wire.layout import Form

VECTORS = Path(__file__).parents[1] / "vectors" / "jmq"
HELLO = AddConnection(
    username="", password="", app="fuzz", token="", region="", namespace="", version="1", ip="", time=0, sequence=0
)


def answer(server: Connection, seen: Any) -> int:
    """Says something to everything; how many requests it was."""
    if isinstance(seen, Run):
        server.send(RunAnswer(seen, 0, 7))
        return seen.frames
    assert isinstance(seen, Request | Declined)
    server.send(Answer(seen.head) if isinstance(seen, Request) else seen)
    return 1


def listen(reads: Sequence[bytes]) -> tuple[int, bool]:
    """How many requests a new server hears, and whether it ended the connection."""
    server, heard = Connection(Role.SERVER), 0
    try:
        for read in reads:
            for seen in server.receive(read):
                heard += answer(server, seen)
    except PeerError:
        return heard, True
    return heard, server.fault is not None


def served(form: Form, code: int, body: bytes) -> None:
    """A payload as a whole frame to a server, and a heartbeat behind it, which is heard."""
    server = Connection(Role.SERVER)
    server.receive(flat(Connection(Role.CLIENT, form=form).send(Call(HELLO, 1, 1))))
    front = MAGIC.to_bytes(4, "big") + bytes([form.version, 2]) + (5).to_bytes(4, "big")
    frame = (23 + len(body)).to_bytes(4, "big") + front + bytes([code]) + bytes(8) + body
    beat = (23).to_bytes(4, "big") + front + b"\x07" + bytes(8)
    heard = sum(answer(server, seen) for seen in server.receive(frame + beat))
    assert heard == 2


def cases() -> list[dict[str, Any]]:
    return [case for path in sorted(VECTORS.glob("*.json")) for case in json.loads(path.read_text(encoding="utf-8"))]


def folder(arguments: list[str]) -> Path | None:
    """The corpus directory of the command line, if it is empty."""
    found = [Path(one) for one in arguments[1:] if not one.startswith("-") and Path(one).is_dir()]
    return found[0] if found and not any(found[0].iterdir()) else None


def frames(arguments: list[str]) -> None:
    """The originals' requests, each behind an ADD_CONNECTION of its dialect."""
    into, known = folder(arguments), cases()
    greetings = {case["dialect"]: case["hex"] for case in known if case["header"]["type"] == 1}
    for at, case in enumerate(known if into is not None else []):
        assert into is not None
        (into / f"frame{at:03}").write_bytes(b"\x07" + bytes.fromhex(greetings[case["dialect"]] + case["hex"]))


def payloads(arguments: list[str], forms: Sequence[Form], layouts: Sequence[type]) -> None:
    """The originals' payloads, with the two bytes that choose in front."""
    into = folder(arguments)
    for at, case in enumerate(cases() if into is not None else []):
        code, raw = case["header"]["type"], bytes.fromhex(case["hex"])
        answering = case["header"]["direction"] == "response"
        for number, layout in enumerate(layouts):
            if getattr(layout, "code", None) == code and not answering:
                dialect = {"joyqueue": "real"}.get(case["dialect"], case["dialect"])
                chosen = next(place for place, form in enumerate(forms) if form.dialect == dialect)
                assert into is not None
                (into / f"body{at:03}").write_bytes(bytes([chosen, number]) + raw[23:])
