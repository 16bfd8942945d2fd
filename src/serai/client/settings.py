"""What a program says when it makes a client, a producer or a consumer, and what holds when it says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from serai import config, limits
from serai.client.line import Address, Line
from serai.doors.jmq.schema.commands import AddConsumer, AddProducer

if TYPE_CHECKING:
    from serai.client.line import Who


class Sending(TypedDict, total=False):
    """How a producer sends."""

    level: Literal["commit", "receive", "none"]  #: what an outcome means: on the disk, in the log, nothing
    batch_count: int  #: messages after which a request is sent
    batch_bytes: int  #: bytes after which it is
    linger_s: float  #: how long it waits for more; 0: every call is a request
    window_bytes: int  #: what may be without an outcome before `send` waits
    compression: Literal["zlib"] | None  #: of requests as a whole
    timeout_s: float  #: from `send` to the outcome


MANNER: dict[str, Any] = {
    "level": "commit", "batch_count": 10_000, "batch_bytes": 256 * limits.KIB, "linger_s": 0.005,
    "window_bytes": 8 * limits.MIB, "compression": None, "timeout_s": 30.0,
}  # fmt: skip


def address_of(server: str | None) -> Address:
    """HOST:PORT as an address, the default's when nothing is said."""
    return Address(*config.address_of(config.server_default() if server is None else server))


def registered_producer(address: Address, who: Who, topic: str) -> Line:
    """A line for messages to a topic."""
    return Line(
        address, who, topics=[topic], app=who.app, register=AddProducer(topics=[topic], app=who.app, sequence=0)
    )


def registered_consumer(address: Address, who: Who, topic: str, group: str) -> Line:
    """A line for messages from a topic; the application is the one the group belongs to."""
    who = replace(who, app=group.partition(".")[0])
    return Line(address, who, topics=[topic], app=group, register=AddConsumer(topics=[topic], app=group, sequence=0))
