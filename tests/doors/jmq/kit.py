"""What the JMQ tests share: vectors read as values, values as vectors write them, pairs of connections."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from serai.doors.jmq.connection import Call, Connection, Declined, Reply, Request, Role
from serai.doors.jmq.schema.commands import COMMANDS, AddConnection, Command, Parameter, Weight
from serai.doors.jmq.schema.frame import DRESSES, HOUSE, NO_BODY, REAL, SEED, Head, Message, Status
from serai.wire.buffer import Span, flat
from serai.wire.describe import strategy
from serai.wire.layout import Form, Kind, Layout, decode, parts
from serai.wire.sets import MessageKind, Messages
from tests.core.dressing import NAMES, encoded, sets
from tests.oracle import messages as oracle

FOLDER = Path(__file__).parents[2] / "vectors" / "jmq"
FORMS = [SEED, REAL, HOUSE, *(Form("real", version) for version in (1, 2, 3))]
IDS = [f"{form.dialect}-{form.version}" for form in FORMS]


@dataclass
class Vector:
    """One frame of the originals."""

    name: str
    source: str
    form: Form
    raw: bytes
    header: dict[str, Any]
    payload: Any
    expanded: Any

    @property
    def layout(self) -> type[Layout] | None:
        code = self.header["type"]
        if self.header["direction"] == "request":
            return COMMANDS[code]
        return None if code == NO_BODY else COMMANDS[-code].reply


def vectors() -> list[Vector]:
    """All of them, in the order of their files."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            version = case["header"]["version"]
            form = {"seed": SEED, "joyqueue": Form("real", version), "house": HOUSE}[case["dialect"]]
            raw = bytes.fromhex(case["hex"])
            expanded = case.get("expanded")
            found.append(Vector(case["name"], case["source"], form, raw, case["header"], case["payload"], expanded))
    return found


def opened(vector: Vector) -> tuple[Head, Status | None, Layout | None, int]:
    """A frame taken apart, and where its payload ends."""
    head, at = decode(Head, vector.raw, SEED)
    status = None
    if head.identity.response:
        status, at = decode(Status, vector.raw, SEED, at)
    body = None
    if vector.layout is not None:
        body, at = decode(vector.layout, vector.raw, vector.form, at)
    return head, status, body, at


# ---- values as the vectors write them ------------------------------------------------------------------------------

SPECIAL = {"body_crc": "bodyCRC"}


def camel(name: str) -> str:
    return SPECIAL.get(name) or re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def plain(value: Any, form: Form) -> Any:
    """A decoded value with the names and the types of the vectors; an empty text is null there."""
    match value:
        case Messages():
            return (
                flat(value.pieces).hex() if form == HOUSE else [plain_message(one, form) for one in messages_of(value)]
            )
        case Layout():
            return {camel(part.name): plain(getattr(value, part.name), form) for part in parts(type(value), form)}
        case [Weight(), *_] | [Parameter(), *_]:
            return dict(tuple(vars(one).values()) for one in value)
        case list():
            return in_order([plain(one, form) for one in value])
        case bytes():
            return value.hex() or None
        case "":
            return None
        case _:
            return value


def messages_of(value: Messages) -> list[Message]:
    """The messages of a set, one by one, in the layout they came in."""
    form = {number: name for name, number in DRESSES.items()}[value.dress]
    data, at, found = flat(value.pieces), 0, []
    while at < len(data):
        one, at = decode(Message, data, SEED if form == "seed" else REAL, at)
        found.append(one)
    return found


def plain_message(one: Message, form: Form) -> dict[str, Any]:
    code = one.system_code
    said = {camel(name): plain(field, form) for name, field in vars(one).items()}
    said["attributes"] = dict(oracle_headers(one.attributes)) or None
    short = form.dialect == "real" and (code.address == 1 or code.version == 0)
    said["clientIp"] = one.client_ip[: 6 if short else 16].hex()
    said |= {"compressed": bool(code.compressed), "ordered": bool(code.ordered), "source": code.source}
    said |= {"batch": bool(code.batch), "compressionType": code.compression, "systemCode": int(code)}
    said |= {"addressType": code.address, "messageVersion": code.version}
    return said


def oracle_headers(text: str) -> list[tuple[str, str]]:
    return [(name.decode(), value.decode()) for name, value in oracle.headers_of(text.encode())]


def in_order(rows: list[Any]) -> list[Any]:
    """Rows by what names them: Java writes them in the order of its hash tables."""
    if rows and isinstance(rows[0], dict):
        names = ("topic", "topicCode", "partition", "id", "index")
        return sorted(rows, key=lambda row: [str(row.get(name)) for name in names])
    return rows


def expected(value: Any) -> Any:
    """A vector's value in the same order, empty texts as null."""
    if isinstance(value, dict):
        return {name: expected(one) for name, one in value.items()}
    if isinstance(value, list):
        return in_order([expected(one) for one in value])
    return None if value == "" else value


def agrees(ours: Any, theirs: Any) -> bool:
    """All that the vector says is so; a message has more to say than a vector repeats."""
    if theirs and isinstance(theirs, dict) and isinstance(ours, dict):
        return all(agrees(ours.get(name), one) for name, one in theirs.items() if name != "expanded")
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    return bool(ours == theirs or (theirs in (None, [], {}) and ours in (None, [], {})))


# ---- values that hypothesis draws -------------------------------------------------------------------------------------


def message_sets(kind: Kind) -> st.SearchStrategy[Messages] | None:
    """Sets of messages, from the entries the message tests draw."""
    if not isinstance(kind, MessageKind):
        return None
    return sets(kind.dress, 3).map(
        lambda found: Messages([Span(memoryview(encoded(found)))], len(found), kind.dress),
    )


STRATEGIES: dict[tuple[type[Layout], Form], st.SearchStrategy[Any]] = {}


def values(layout: type[Layout], form: Form) -> st.SearchStrategy[Any]:
    if (layout, form) not in STRATEGIES:
        STRATEGIES[layout, form] = strategy(layout, form, message_sets)
    return STRATEGIES[layout, form]


# ---- pairs ----------------------------------------------------------------------------------------------------------------


def hello(**changes: Any) -> AddConnection:
    said: dict[str, Any] = {
        "username": "", "password": "", "app": "shop", "token": "t-1", "region": "bj", "namespace": "", "version": "1",
        "ip": "10.0.0.7", "time": 1, "sequence": 2,
    }  # fmt: skip
    return AddConnection(**(said | changes))


def heard(end: Connection, data: bytes | bytearray) -> list[Any]:
    """What an end receives; the test knows what it is."""
    return list(end.receive(bytes(data)))


class Pair:
    """A client and a server with a wire between them; the client has said who it is."""

    def __init__(self, form: Form, *, step: int = 1 << 30) -> None:
        self.form, self.step = form, step
        self.client, self.server = Connection(Role.CLIENT, form=form), Connection(Role.SERVER)
        self.number = 0

    def __repr__(self) -> str:
        return f"Pair({NAMES[DRESSES[self.form.dialect]]})"

    def call(self, command: Command, *, quality: int = 1) -> list[Any]:
        """What the server sees of a command."""
        self.number += 1
        return self.carry(flat(self.client.send(Call(command, self.number, 1000 + self.number, quality))), self.server)

    def carry(self, data: bytes, to: Connection) -> list[Any]:
        """Bytes to one end, so many at a time."""
        found: list[Any] = []
        for at in range(0, len(data), self.step):
            found += heard(to, data[at : at + self.step])
        return found

    def ask(self, command: Command) -> Request | Declined:
        (seen,) = self.call(command)
        assert isinstance(seen, Request | Declined)
        return seen

    def tell(self, what: Any) -> Reply:
        """What the client sees of an answer."""
        (seen,) = self.carry(flat(self.server.send(what)), self.client)
        assert isinstance(seen, Reply)
        return seen
