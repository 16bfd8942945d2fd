"""A client of the door on a real socket to a real server process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from tests.doors.jmq.kit import hello
from tests.doors.jmq.voice import Voice

if TYPE_CHECKING:
    from serai.doors.jmq.connection import Reply
    from serai.doors.jmq.schema.commands import Command
    from serai.wire.layout import Form
    from tests.gate.kit import Running

ANSWER_S = 20.0


class Caller(Voice):
    """Says in one write what it is given, and reads until every call has its answer."""

    def __init__(self, server: Running, form: Form, *, connects: bool = True, **words: Any) -> None:
        super().__init__(form)
        self.sock = server.knock(timeout_s=ANSWER_S)
        if connects:
            assert self.ask(hello(**words)).status == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Go without a word, as clients do that crash."""
        self.sock.close()

    def say(self, *said: bytes | Command) -> list[Reply]:
        self.tell(*said)
        while self.client._awaited:
            self.listen()
        return self.heard()

    def tell(self, *said: bytes | Command) -> None:
        """Send it and do not wait."""
        self.sock.sendall(self.joined(said))

    def listen(self) -> None:
        """Take what comes next."""
        data = self.sock.recv(1 << 20)
        assert data, "the server closed the connection"
        self.hear(data)

    def waits_s(self) -> float:
        """Seconds until the next answer is there."""
        started = time.monotonic()
        while not self.replies:
            self.listen()
        return time.monotonic() - started
