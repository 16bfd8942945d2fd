"""What stands around and inside every command of JMQ: frames, messages, and the three dialects as forms.

    frame     | length INT | ca fe be be | version | identity | request id INT | type | send time LONG | ...
    request   ... payload                             answer   ... status | error STRING | payload

An answer without a payload has type -128, which is also the answer to any command that failed as a whole.
"""

from __future__ import annotations

from typing import Annotated

from serai._core import entries
from serai.wire.layout import (
    INT16,
    INT32,
    TEXT8,
    TEXT16,
    TEXT32,
    Bits,
    By,
    Bytes32,
    Fixed,
    Flags,
    Form,
    Int8,
    Int16,
    Int32,
    Int64,
    Layout,
    Only,
    Text16,
    Uint8,
    Uint16,
)  # fmt: skip
from serai.wire.sets import MessageKind, Messages

MAGIC = 0xCAFEBEBE
REQUEST_HEAD_BYTES = 23
MESSAGE_MAGIC = 0x1234
NO_BODY = -128  # the type of answers that are a head alone

SEED = Form("seed", 2)
REAL = Form("real", 4)
HOUSE = Form("house", 16)
DRESSES = {"seed": entries.SEED, "real": entries.REAL, "house": entries.HOUSE}
IN_SEED, IN_REAL, IN_HOUSE = Only("seed"), Only("real"), Only("house")

Name = Annotated[str, By(seed=TEXT16, real=TEXT8, house=TEXT16)]  # real clients say some lengths in one byte
MessageSet = Annotated[
    Messages,
    By(
        seed=MessageKind("ARRAY of MESSAGE", INT16, entries.SEED, counted=True),
        real=MessageKind("ARRAY of MESSAGE", INT16, entries.REAL, counted=True),
        house=MessageKind("BYTES, messages end to end", INT32, entries.HOUSE, counted=False),
    ),
]


class Identity(Flags, bits=8):
    """What kind of frame it is."""

    reserved: Annotated[int, Bits(5)]  #: zero
    quality: Annotated[int, Bits(2)]  #: qosLevel: seed and house 2, real 0 want no answer
    response: Annotated[int, Bits(1)]  #: 0 request, 1 answer


class Head(Layout):
    """In front of every frame."""

    length: Int32  #: the whole frame, these four bytes included
    magic: Annotated[int, Fixed("INT", "I")]  #: `ca fe be be`
    version: Int8  #: 1 to 4, or 16 for the house dialect; an answer has that of its request
    identity: Identity  #: bit 0: answer; bits 1 and 2: qosLevel
    request_id: Int32  #: comes back as it is
    type: Int8  #: the command
    send_time: Int64  #: milliseconds; comes back as it is


class Status(Layout):
    """Behind the head of an answer."""

    status: Uint8  #: 0, or why the command failed as a whole
    error: Text16  #: the same in words


# ---- messages --------------------------------------------------------------------------------------------------------


class SystemCode(Flags, bits=16):
    """What a message is."""

    reserved: Annotated[int, Bits(3)]  #: zero
    batch: Annotated[int, Bits(1)]  #: `flag` messages in one
    version: Annotated[int, Bits(4)]  #: 1; real: 0 from old writers
    address: Annotated[int, Bits(1)]  #: seed: 1 is IPv6; real: 1 is IPv4
    compression: Annotated[int, Bits(3)]  #: seed: 0 snappy, 1 zip, 2 zlib; real: 0 none, 1 zip, 2 zlib, 3 snappy
    source: Annotated[int, Bits(2)]  #: 0 jmq, 1 kafka, 2 mqtt, 3 joyqueue
    ordered: Annotated[int, Bits(1)]  #: order by business id is wanted
    compressed: Annotated[int, Bits(1)]  #: the body is compressed


class Message(Layout):
    """A message of the seed's or the real layout; house messages have a page of their own."""

    length: Int32  #: the whole message, these four bytes included; -1 is seen
    partition: Int16  #: in a request -1: the server chooses
    index: Int64  #: set by the server
    term: Int32  #: set by the server: epoch of the partition's owner
    magic: Annotated[Uint16, IN_REAL] = MESSAGE_MAGIC  #: `12 34`
    system_code: SystemCode = SystemCode(0)  #: what the message is
    priority: Int8 = 0  #: 0 to 9 by convention
    client_ip: Annotated[bytes, Fixed("16 bytes", "16s"), IN_REAL] = bytes(
        16
    )  #: port, low byte first, then the address
    send_time: Int64 = 0  #: milliseconds, set by the client
    store_time: Int32 = 0  #: set by the server: store time less send time
    body_crc: Int64 = 0  #: CRC-32 of the body as it stands; -1 and 0 say nothing
    flag: Int16 = 0  #: of a batch its count, else the user's
    body: Bytes32 = b""  #: what is sent
    business_id: Name = ""  #: the key
    attributes: Text16 = ""  #: Java properties text
    extension: Bytes32 = b""  #: opaque
    app: Name = ""  #: who sent it


class Member(Layout):
    """A message inside a batch; what is missing here is said by the batch."""

    length: Int32  #: the whole member, these four bytes included
    priority: Int8  #: as in a message
    flag: Int16  #: the user's
    body: Bytes32  #: what is sent
    business_id: Annotated[str, By(seed=TEXT32, real=TEXT8, house=TEXT16)]  #: the key
    attributes: Text16  #: Java properties text


class BatchHead(Layout):
    """In front of the members of a batch of the seed; the real layout has none."""

    length: Int32  #: the whole body, these four bytes included
    count: Int16  #: members
