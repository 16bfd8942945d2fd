"""A JMQ connection without I/O: bytes in, commands out; answers in, bytes out; both roles.

    server   receive(data) -> [Request | Run | Declined]     send(Answer | RunAnswer | Declined) -> pieces
    client   send(Call) -> pieces                            receive(data) -> [Reply]

    NEW ── ADD_CONNECTION ──► OPEN ── anything ──► OPEN             what is not in RULES is declined with 132;
     ▲                          │                                   bytes that are no frame end the connection
     └── REMOVE_CONNECTION, or an ADD_CONNECTION that was refused

The dialect is chosen by the bytes of the first ADD_CONNECTION and kept.  A **run** is produce requests that differ in nothing
but their messages, ids and times; it is handled and answered as one (`serai._core.frames`).

Invariants
- an answer has the version, the quality bits, the id and the time of its request, in the dialect of its connection
- a request whose quality says so is never answered, not even with an error
- a payload that cannot be read, or a type nobody knows, is declined; the connection goes on, its length still framed it
- a connection that raised is dead; commands that came before the fault are given out first, and `fault` is set
- views in what `receive` gave are of the data it was given: who uses that memory again does so after handling them

Left to others: what a command does (service), when to answer (the gate), ids and time-outs of calls (the client).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from serai import limits
from serai._core.frames import Run, split
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.commands import COMMANDS, HOUSE_COMMANDS, AddConnection, Command
from serai.doors.jmq.schema.frame import (
    DRESSES,
    HOUSE,
    MAGIC,
    NO_BODY,
    REAL,
    REQUEST_HEAD_BYTES,
    SEED,
    Head,
    Identity,
    Status,
)  # fmt: skip
from serai.doors.jmq.schema.numbers import ONE_WAY, Number
from serai.errors import Misuse, PeerError
from serai.wire.buffer import Inbox, flat, joined
from serai.wire.layout import Form, Layout, Malformed, codec, decode, encode

if TYPE_CHECKING:
    from serai.wire.buffer import Piece

ANY_FORM = SEED  # heads are the same in every form
_, read_head = codec(Head, ANY_FORM)
DONE = flat(encode(Status(status=0, error=""), ANY_FORM))


REAL_FORMS = [Form("real", version) for version in range(REAL.version)] + [REAL]


class Role(Enum):
    """Which end of the connection this is."""

    SERVER = "server"
    CLIENT = "client"


class State(Enum):
    """How far a connection is."""

    __hash__ = object.__hash__  # Enum's own is a call in Python, and `RULES` is asked for every frame

    NEW = "new"
    OPEN = "open"
    DEAD = "dead"


class Act(Enum):
    """What commands are to the state: who comes, who goes, and all the others."""

    __hash__ = object.__hash__

    COME = "ADD_CONNECTION"
    GO = "REMOVE_CONNECTION"
    WORK = "any other command"
    REFUSED = "an ADD_CONNECTION that was refused"


RULES = {
    (State.NEW, Act.COME): State.OPEN,
    (State.OPEN, Act.COME): State.OPEN,
    (State.OPEN, Act.WORK): State.OPEN,
    (State.OPEN, Act.GO): State.NEW,
    (State.OPEN, Act.REFUSED): State.NEW,
}
ACTS = {commands.AddConnection.code: Act.COME, commands.RemoveConnection.code: Act.GO}


# ---- what goes through -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A command that came to a server."""

    head: Head
    command: Command


@dataclass(frozen=True, slots=True)
class Declined:
    """A frame that is answered without being handled; the service gives it back to `send`."""

    head: Head
    status: int
    error: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says to a request: a payload, or a status that is not 0 and its words, or neither."""

    head: Head
    body: Layout | None = None
    status: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """What a server says to a run: where its first message stands, or a code."""

    run: Run
    partition: int
    index: int
    code: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A command that a client sends; `quality` is the header's."""

    command: Command
    request_id: int
    send_time_ms: int
    quality: int = 1


@dataclass(frozen=True, slots=True)
class Reply:
    """What came to a client; `body` is None in an answer without a payload, and in a failed one."""

    head: Head
    status: int
    error: str
    body: Layout | None


Received: TypeAlias = "Request | Run | Declined | Reply"
Sent: TypeAlias = "Answer | RunAnswer | Declined | Call"


# ---- the connection ------------------------------------------------------------------------------------------------


class Connection:
    """One end of a connection.

    `hello` is the client's ADD_CONNECTION, once it came; `form` is the dialect, and for a client the version it speaks.
    `fault` is set when the bytes behind the last command were no frame: what came before is answered, then it is closed.
    """

    def __init__(self, role: Role, *, form: Form | None = None) -> None:
        if (role is Role.CLIENT) != (form is not None):
            raise Misuse("a client says which form it speaks, a server is told by its client")
        self.role = role
        self.state = State.NEW
        self.hello: AddConnection | None = None
        self.fault: PeerError | None = None
        self.unfinished = False  # the beginning of a frame is there, and its end is not
        self._form = form
        self._inbox = Inbox(limits.FRAME_BYTES_MAX)
        self._awaited: dict[int, list[int]] = {}  # a client's open calls: id -> types, oldest first

    def space(self, count: int) -> memoryview | None:
        """Where the next so many bytes had best be read to, if that is not all the same."""
        return self._inbox.space(count)

    @property
    def form(self) -> Form:
        """The dialect, with the highest version of it."""
        if self._form is None:
            raise Misuse("the dialect is not known before ADD_CONNECTION")
        return self._form

    def receive(self, data: bytes | memoryview) -> list[Received]:
        """What the peer said with these bytes and those before; PeerError when it said nothing that can be meant."""
        if self.fault is not None:
            raise self.fault
        try:
            whole = self._inbox.joined(data)
            if whole is None:
                self.unfinished = True
                return []
            return self._divide(whole)
        except PeerError as error:
            self._die(error)
            raise

    def send(self, what: Sent) -> list[Piece]:
        """The bytes that say it; none for the answer to a request that wants no answer."""
        if isinstance(what, Answer):
            if what.status and what.head.type == AddConnection.code:
                self.state = RULES.get((self.state, Act.REFUSED), self.state)
            return self._answer(what.head, what.body, what.status, what.error)
        if isinstance(what, RunAnswer):
            return self.answer_run(what.run, partition=what.partition, index=what.index, code=what.code)
        if isinstance(what, Declined):
            return self._answer(what.head, None, what.status, what.error)
        return self._call(what)

    def answer_run(self, run: Run, *, partition: int, index: int, code: int = 0) -> list[Piece]:
        """As `send` of a `RunAnswer`, which a server with nothing but lone requests would make for every message."""
        if Identity(run.identity).quality == ONE_WAY[self.form.dialect]:
            return []
        return [run.answers(partition=partition, index=index, code=code)]

    # ---- server: what came

    def _divide(self, whole: memoryview) -> list[Received]:
        server, is_open = self.role is Role.SERVER, self.state is State.OPEN
        items, used, needed, fault = split(
            whole, dress=DRESSES[self._form.dialect] if server and is_open and self._form else 0,
            frame_max=limits.FRAME_BYTES_MAX, run_max=limits.RUN_BYTES_MAX,
            command_max=limits.COMMAND_BYTES_MAX if server else limits.FRAME_BYTES_MAX,
        )  # fmt: skip
        found: list[Received] = []
        try:
            for item in items:
                if isinstance(item, Run):
                    found += [item] if self.state is State.OPEN else map(unconnected, heads_of(item))
                else:
                    frame = whole[item[0] : item[1]]
                    found.append(self._request(frame) if server else self._reply(frame))
            if fault is not None:
                raise PeerError(f"this is no JMQ frame: {fault}")
            # a head is looked at with every byte of it: a wrong one does not wait for its frame
            left = len(whole) - used
            self.unfinished = left > 0
            self._inbox.keep(whole[used:], needed if left >= REQUEST_HEAD_BYTES else left + 1)
        except PeerError as error:
            self._die(error)
            if not found:
                raise
        return found

    def _die(self, error: PeerError) -> None:
        self.fault = error
        self.state = State.DEAD

    def _request(self, frame: memoryview) -> Request | Declined:
        head, at = read_head(frame, 0)
        if head.identity.response or head.version < 0:
            raise PeerError(
                f"a client sent an answer, or version {head.version}: type {head.type}, id {head.request_id}"
            )
        command = COMMANDS.get(head.type)
        if command is None or (head.type >= HOUSE_COMMANDS and self._form not in (None, HOUSE)):
            return Declined(head, Number.COMMAND_NOT_SUPPORTED, f"command {head.type} is not supported")
        state = RULES.get((self.state, ACTS.get(head.type, Act.WORK)))
        if state is None:
            return unconnected(head)
        try:
            body = self._hello(head, frame, at) if command is AddConnection else self._read(command, head, frame, at)
        except Malformed as error:
            chosen = self._form is not None or command is not AddConnection
            return Declined(head, Number.DECODE_ERROR if chosen else Number.PARAMETER_ERROR, str(error))
        self.state = state
        return Request(head, body)

    def _hello(self, head: Head, frame: memoryview, at: int) -> AddConnection:
        """Reads ADD_CONNECTION; the first one that can be read chooses the dialect."""
        forms = [self.form_of(head)] if self._form is not None else forms_of(head.version)
        for form in forms:
            try:
                hello, end = decode(AddConnection, frame, form, at)
            except Malformed:
                continue
            if hello.app and (len(forms) == 1 or end == len(frame)):
                self._form, self.hello = form, hello
                return hello
        raise Malformed(f"an ADD_CONNECTION that fits neither {' nor '.join(form.dialect for form in forms)}")

    def _read(self, command: type[Command], head: Head, frame: memoryview, at: int) -> Command:
        return decode(command, frame, self.form_of(head), at)[0]

    def form_of(self, head: Head) -> Form:
        """The connection's dialect in the version of a frame."""
        form = self.form
        return REAL_FORMS[min(max(head.version, 1), REAL.version)] if form.dialect == "real" else form

    # ---- server: what is answered

    def _answer(self, head: Head, body: Layout | None, status: int, error: str) -> list[Piece]:
        dialect = (self._form or forms_of(head.version)[0]).dialect
        if head.identity.quality == ONE_WAY[dialect]:
            return []
        front = Head(
            length=0, magic=MAGIC, version=head.version, request_id=head.request_id, send_time=head.send_time,
            type=NO_BODY if body is None or status else -head.type, identity=Identity(head.identity | 1),
        )  # fmt: skip
        said: list[Piece] = [DONE]
        if status or error:
            said = encode(Status(status=int(status), error=error[: limits.ERROR_CHARACTERS_MAX]), ANY_FORM)
        if body is not None and not status:
            said += encode(body, self.form_of(head))
        return framed(front, said)

    # ---- client

    def _call(self, call: Call) -> list[Piece]:
        state = RULES.get((self.state, ACTS.get(call.command.code, Act.WORK)))
        if state is None:
            raise Misuse(f"{type(call.command).__name__} cannot be sent by a connection that is {self.state.value}")
        self.state = state
        if call.quality != ONE_WAY[self.form.dialect]:
            self._awaited.setdefault(call.request_id, []).append(call.command.code)
        front = Head(
            length=0, magic=MAGIC, version=self.form.version, identity=Identity.of(quality=call.quality),
            request_id=call.request_id, type=call.command.code, send_time=call.send_time_ms,
        )  # fmt: skip
        return framed(front, encode(call.command, self.form))

    def _reply(self, frame: memoryview) -> Reply:
        head, at = read_head(frame, 0)
        said, at = decode(Status, frame, ANY_FORM, at)
        awaited = self._awaited.get(head.request_id)
        if not head.identity.response or awaited is None or head.type not in (-awaited[0], NO_BODY):
            raise PeerError(f"nobody asked for an answer of type {head.type} to request {head.request_id}")
        code = awaited.pop(0)
        if not awaited:
            del self._awaited[head.request_id]
        if code == AddConnection.code and said.status:
            self.state = RULES.get((self.state, Act.REFUSED), self.state)
        body = None
        layout = COMMANDS[code].reply
        if head.type != NO_BODY and said.status == 0 and layout is not None:
            body, _ = decode(layout, frame, self.form_of(head), at)
        return Reply(head, said.status, said.error, body)


def unconnected(head: Head) -> Declined:
    """What a command is told before ADD_CONNECTION, and after REMOVE_CONNECTION."""
    return Declined(head, Number.CONNECTION_UNKNOWN, "connection does not exist")


def heads_of(run: Run) -> list[Head]:
    """The heads of the requests in a run."""
    return [
        Head(
            length=0, magic=MAGIC, version=run.version, identity=Identity(run.identity), request_id=request_id,
            type=commands.ProduceMessage.code, send_time=sent,
        )
        for request_id, sent in zip(run.request_ids, run.send_times, strict=True)
    ]  # fmt: skip


def forms_of(version: int) -> list[Form]:
    """The forms that an ADD_CONNECTION of this version may have."""
    if version == HOUSE.version:
        return [HOUSE]
    return [REAL] if version >= 3 else [SEED, REAL]


def framed(front: Head, payload: list[Piece]) -> list[Piece]:
    """The head, with its length, before a payload."""
    front.length = REQUEST_HEAD_BYTES + sum(map(len, payload))
    if front.length > limits.FRAME_BYTES_MAX:
        raise Misuse(f"a frame of {front.length} bytes, the limit is {limits.FRAME_BYTES_MAX}")
    return joined([*encode(front, ANY_FORM), *payload])


def recognise(first_bytes: bytes | memoryview) -> bool | None:
    """Whether a connection that starts so speaks JMQ; None when more bytes are needed, 15 at most."""
    data = bytes(first_bytes[:15])
    magic = MAGIC.to_bytes(4, "big")
    if data[4:8] != magic[: len(data[4:8])]:
        return False
    if len(data) >= 4 and int.from_bytes(data[:4], "big", signed=True) < REQUEST_HEAD_BYTES:
        return False
    if any(byte >= 128 for byte in data[8:10]):
        return False
    if len(data) < 15:
        return None
    return data[14] in COMMANDS
