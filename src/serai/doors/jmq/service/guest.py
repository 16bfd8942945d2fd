"""One JMQ connection at the gate: commands are handled in their order, answers leave in the order of their requests.

    bytes -> connection -> todo [run][fetch][ack]...     -> what each does -> line [said][known][?][known] -> bytes
                             held back while a topic is being made,             what is behind one that waits for the
                             or while nobody takes the answers                  disk is kept until that one is known

A long poll does not stand in the line: the client matches answers by their ids, and asks other things meanwhile.  The one
client that does not, JoyQueue's for Python, gets all its answers in the order of its requests.

Invariants
- messages of one connection are stored in the order in which they came
- a run of requests is stored as one record; if that cannot be, as one for each request
- what is held back, and what is kept in the line, is bounded; while something is held back nothing more is read
- bytes that are no frame end the connection, but not before everything in front of them was answered

Left to others: what commands do (produce, consume, describe), sockets and turns (gate).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from serai import limits
from serai._core.frames import Run
from serai.broker.names import app_of
from serai.doors.jmq.connection import Answer, Connection, Declined, Request, Role, RunAnswer, heads_of
from serai.doors.jmq.schema import commands
from serai.doors.jmq.schema.commands import AddConnection, Command, RemoveConnection
from serai.doors.jmq.schema.numbers import Number
from serai.doors.jmq.service import consume, describe, produce
from serai.doors.jmq.service.visit import FAILURES, Later, Visit, number_of
from serai.errors import BadMessages, PeerError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from serai.broker import Broker, Session, Wait
    from serai.doors.jmq.connection import Received
    from serai.doors.jmq.schema.frame import Head
    from serai.doors.jmq.service.visit import Said
    from serai.log.engine import Ticket
    from serai.wire.buffer import Piece
    from serai.wire.layout import Layout

WORK: dict[type[Command], Callable[[Visit, Any], Said]] = {
    commands.AddConsumer: describe.add_consumer,
    commands.RemoveConsumer: describe.remove_consumer,
    commands.AddProducer: describe.add_producer,
    commands.RemoveProducer: describe.remove_producer,
    commands.Heartbeat: describe.heartbeat,
    commands.FetchHealth: describe.health,
    commands.FetchCluster: describe.cluster,
    commands.FindCoordinator: describe.find_coordinator,
    commands.FetchAssignedPartition: describe.assigned,
    commands.FetchTopicMessage: consume.fetch_topics,
    commands.FetchPartitionMessage: consume.fetch_partitions,
    commands.CommitAck: consume.acknowledge,
    commands.CommitAckIndex: consume.seek,
    commands.FetchAckIndex: consume.ack_indexes,
    commands.FetchIndex: consume.indexes,
    commands.ProduceMessage: produce.produce,
    commands.ProduceMessagePrepare: produce.prepare,
    commands.ProduceMessageCommit: produce.commit,
    commands.ProduceMessageRollback: produce.rollback,
    commands.FetchProduceFeedback: produce.feedback,
    commands.FetchIndexByTime: consume.indexes_by_time,
    commands.Release: consume.release,
    commands.Renew: consume.renew,
}
FIRST_USES: dict[type[Command], dict[str, bool]] = {  # what makes topics and subscriptions, if the server allows it
    commands.FetchCluster: {"produces": True, "consumes": True},
    commands.AddProducer: {"produces": True},
    commands.AddConsumer: {"consumes": True},
    commands.ProduceMessage: {"produces": True},
}
LANGUAGES = ("java", "c", "c++", "python", "ruby", ".net", "erlang", "go", "other")
PRODUCING = (commands.ProduceMessage, commands.ProduceMessagePrepare, commands.AddProducer)


class Place:
    """Where an answer stands in the line; None while it is not known."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Piece] | None = None


class Service:
    """The guest behind one JMQ connection."""

    def __init__(self, broker: Broker, *, address: str, client: bytes) -> None:
        self.session: Session | None = None
        self.backlog = False
        self.closing = False
        self._broker = broker
        self._address = address.rpartition(":")[0]
        self._client = client
        self._connection = Connection(Role.SERVER)
        self._todo: deque[Received] = deque()
        self._making: Wait[None] | None = None  # a topic that the next command needs
        self._line: deque[Place] = deque()
        self._kept = 0  # bytes in the line
        self._out: list[Piece] = []
        self._said = 0  # bytes of it
        self._app = ""
        self._in_order = False
        self._answer_bytes = limits.ANSWER_BYTES

    # ---- what the gate asks -------------------------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """Whether the end of a frame is missing."""
        return self._connection.unfinished

    def space(self, count: int) -> memoryview | None:
        """Where the next read goes, if not into the buffer of all."""
        return self._connection.space(count)

    @property
    def waits_for_room(self) -> bool:
        """Whether commands are held back only until answers are taken."""
        return bool(self._todo) and self._making is None and not self._line

    def receive(self, data: memoryview, now_ms: int) -> list[Piece]:
        """Handle what a read brought."""
        try:
            self._todo += self._connection.receive(data)
        except PeerError:
            if not self._line:
                raise
        return self._work(now_ms)

    def proceed(self, now_ms: int) -> list[Piece]:
        """The peer takes answers again."""
        return self._work(now_ms)

    def resume(self, wait: Wait[Any], now_ms: int) -> list[Piece]:
        """Something that was awaited is there."""
        _, finish = wait.token
        finish()
        return self._work(now_ms)

    def leave(self, now_ms: int) -> None:  # noqa: ARG002 - the same for every door
        """The connection is gone."""
        self._todo.clear()
        self._line.clear()
        if self.session is not None:
            self._broker.leave(self.session)
            self.session = None

    # ---- commands in their order --------------------------------------------------------------------

    def _work(self, now_ms: int) -> list[Piece]:
        """Handle commands as long as there is room for their answers."""
        todo = self._todo
        while todo and self._making is None and self._has_room():
            item = todo.popleft()
            done = self._run(item, now_ms) if isinstance(item, Run) else self._one(item, now_ms)
            if not done:
                todo.appendleft(item)
                break
        fault = self._connection.fault
        self.closing = fault is not None and not todo and not self._line
        self.backlog = bool(todo) or fault is not None
        out, self._out, self._said = self._out, [], 0
        return out

    def _has_room(self) -> bool:
        return self._said + self._kept < limits.ANSWER_BYTES and len(self._line) < limits.ANSWERS_AWAITED_MAX

    def _one(self, item: Received, now_ms: int) -> bool:
        """Handle one command; False: not yet."""
        if isinstance(item, Declined):
            self._say(self._connection.send(item))
            return True
        assert isinstance(item, Request)
        head, command = item.head, item.command
        if isinstance(command, RemoveConnection) and self._line:
            return False  # what was asked before is answered first
        try:
            if isinstance(command, AddConnection):
                said: Said = self._come(head, command, now_ms)
            elif isinstance(command, RemoveConnection):
                self._go()
                said = None
            elif self._first_use(command, now_ms):
                return False
            else:
                said = WORK[type(command)](self._visit(head, command, now_ms), command)
        except FAILURES as error:
            self._decline(head, command, error)
        else:
            self._answer(head, command, said)
        return True

    def _visit(self, head: Head, command: Command, now_ms: int) -> Visit:
        """What the command needs."""
        session = self._session_of(getattr(command, "app", self._app))
        return Visit(self._broker, session, self._connection.form_of(head), self._answer_bytes, now_ms)

    def _session_of(self, app: str) -> Session:
        """The session, if this connection may act for an application."""
        if self.session is None:
            raise Unconnected("connection does not exist")
        if app != self._app and app_of(app) != self._app:
            raise Unconnected(f"this connection is of application {self._app!r}, not of {app_of(app)!r}")
        return self.session

    def _first_use(self, command: Command, now_ms: int) -> bool:
        """Whether something has to be made first; the command is tried again then."""
        uses = FIRST_USES.get(type(command))
        if uses is None:
            return False
        names: Iterable[Any] = command.topics  # type: ignore[attr-defined]  # every command of the table has topics
        if isinstance(command, commands.ProduceMessage):
            names = [each.topic for each in command.topics]
        app: str = command.app  # type: ignore[attr-defined]  # and an application
        session = self._session_of(app)
        return self._makes(self._broker.ensure(session, names, app=app, now_ms=now_ms, **uses))

    def _makes(self, wait: Wait[None] | None) -> bool:
        """Hold everything back until a topic is made."""
        if wait is None:
            return False
        self._making = wait
        wait.token = (self, self._made)
        return True

    def _made(self) -> None:
        """A topic is made, or cannot be."""
        wait, self._making = self._making, None
        assert wait is not None
        try:
            wait.result()
        except FAILURES as error:
            item = self._todo.popleft()
            if isinstance(item, Run):
                self._refuse_run(item, error)
            else:
                assert isinstance(item, Request)
                self._decline(item.head, item.command, error)

    # ---- coming and going ---------------------------------------------------------------------------

    def _come(self, head: Head, hello: AddConnection, now_ms: int) -> Layout:
        """ADD_CONNECTION; a second one is told the same."""
        if self.session is None:
            form = self._connection.form_of(head)
            self._app = app_of(hello.app)
            self.session = self._broker.enter(
                self._app, now_ms=now_ms, address=self._address, client=self._client, region=hello.region,
                version=hello.version,
                language=LANGUAGES[hello.language] if form.dialect == "real" and 0 <= hello.language < 9 else "",
            )  # fmt: skip
            # JoyQueue's client for Python: it takes answers as they come, and none that is longer than it reads at once
            self._in_order = form.dialect == "real" and form.version < 3
            if self._in_order and hello.language != LANGUAGES.index("java"):
                self._answer_bytes = limits.SMALL_ANSWER_BYTES
        return commands.AddConnectionAck(connection_id=self.session.id, notification="")

    def _go(self) -> None:
        """REMOVE_CONNECTION."""
        if self.session is not None:
            self._broker.leave(self.session)
            self.session = None

    # ---- runs of produce requests -------------------------------------------------------------------

    def _run(self, run: Run, now_ms: int) -> bool:
        """Store a run as one record; False: not yet."""
        try:
            session = self._session_of(run.app)
            if not self._broker.may_produce(session, run.topic, run.app) and self._makes(
                self._broker.ensure(session, (run.topic,), app=run.app, now_ms=now_ms, produces=True)
            ):
                return False
            ticket = self._broker.produce(
                session, run.topic, run.set.data, run.set.dress, app=run.app, now_ms=now_ms, partition=run.partition,
                level=produce.level_of(self._connection.form.dialect, run.level),
            )  # fmt: skip
        except BadMessages as error:
            if run.frames > 1:  # one of them is bad, and only that one is refused
                self._todo.extendleft(reversed(run.singles()))
            else:
                self._refuse_run(run, error)
        except FAILURES as error:
            self._refuse_run(run, error)
        else:
            self._stored(session, run, ticket, now_ms)
        return True

    def _stored(self, session: Session, run: Run, ticket: Ticket, now_ms: int) -> None:
        """Answer a run, now or when the disk has it."""
        partition = self._broker.partition_of(ticket)
        if ticket.done:
            self._say(self._connection.send(RunAnswer(run, partition, ticket.ordinal)))
            return
        wait = self._broker.park(session, [ticket], deadline_ms=now_ms + produce.wait_ms(run.timeout))
        run.release()

        def pieces() -> list[Piece]:
            error = self._broker.verdict(ticket)
            if error is None:
                return self._connection.send(RunAnswer(run, partition, ticket.ordinal))
            return self._connection.send(RunAnswer(run, -1, -1, self._number(error)))

        self._await(wait, pieces, polls=False)

    def _refuse_run(self, run: Run, error: Exception) -> None:
        if isinstance(error, Unconnected):
            for head in heads_of(run):
                self._say(self._connection.send(Declined(head, Number.CONNECTION_UNKNOWN, str(error))))
        else:
            self._say(self._connection.send(RunAnswer(run, -1, -1, self._number(error))))

    def _number(self, error: Any) -> int:
        return number_of(error, self._connection.form, producing=True)

    # ---- answers in their order ---------------------------------------------------------------------

    def _answer(self, head: Head, command: Command, said: Said) -> None:
        """Say what a command is told, now or later."""
        if not isinstance(said, Later):
            self._say(self._connection.send(Answer(head, said)))
            return

        def pieces() -> list[Piece]:
            try:
                return self._connection.send(Answer(head, said.finish()))
            except FAILURES as error:
                return self._declined(head, command, error)

        self._await(said.wait, pieces, polls=said.polls)

    def _decline(self, head: Head, command: Command, error: Exception) -> None:
        self._say(self._declined(head, command, error))

    def _declined(self, head: Head, command: Command, error: Any) -> list[Piece]:
        """A command that fails as a whole."""
        if isinstance(error, Unconnected):
            status = int(Number.CONNECTION_UNKNOWN)
        else:
            status = number_of(error, self._connection.form_of(head), producing=isinstance(command, PRODUCING))
        return self._connection.send(Answer(head, None, status, str(error)))

    def _say(self, pieces: list[Piece]) -> None:
        """An answer that is known, behind those that are not."""
        if self._line:
            place = Place()
            self._line.append(place)
            self._put(place, pieces)
        else:
            self._leave_with(pieces)

    def _await(self, wait: Wait[Any], pieces: Callable[[], list[Piece]], *, polls: bool) -> None:
        """An answer that is not known yet."""
        if polls and not self._in_order:
            wait.token = (self, lambda: self._leave_with(pieces()))
            return
        place = Place()
        self._line.append(place)
        wait.token = (self, lambda: self._put(place, pieces()))

    def _put(self, place: Place, pieces: list[Piece]) -> None:
        """An answer of the line is known: whatever nobody is in front of may leave."""
        place.pieces = pieces
        self._kept += sum(map(len, pieces))
        while self._line and self._line[0].pieces is not None:
            known = self._line.popleft().pieces or []
            self._kept -= sum(map(len, known))
            self._leave_with(known)

    def _leave_with(self, pieces: list[Piece]) -> None:
        self._out += pieces
        self._said += sum(map(len, pieces))


class Unconnected(Refused):
    """A command of somebody who is not connected, or not as that application."""
