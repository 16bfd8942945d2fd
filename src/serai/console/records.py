"""/api/v1/topics/{topic}/records: look at messages, and produce a few.

Looking takes nobody's place and no lease.  Messages of every dress are shown alike: they are changed into the house dress
(`docs/formats/messages.md`) by the core, and read from it here.  What is text is shown as text, all else as base64.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any

from serai import limits
from serai._core.dress import redress
from serai._core.entries import HOUSE
from serai.console.asking import Wish, answer, asked, bad, house, told
from serai.console.house import APP
from serai.log.engine import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.responses import Response

    from serai.broker import Delivery

HEAD = struct.Struct("<IBbHq")  # length, attributes, priority, flag, send time
KEYED, HEADED = 1 << 3, 1 << 4
NAME, VALUE = struct.Struct("<H"), struct.Struct("<I")
LEVELS = {"none": Level.NONE, "receive": Level.RECEIVE, "commit": Level.COMMIT}
FLUSH_WAIT_MS = 10_000


async def browse(request: Request) -> Response:
    """Messages from an ordinal on: partition, offset (start, end or an ordinal), count, wait_ms."""
    wish = asked(request, "partition", "offset", "count", "wait_ms")
    place = house(request)
    topic = request.path_params["topic"]
    number = wish.get("partition", int, 0)
    index = place.broker.index(topic, None, number)
    count = min(max(wish.get("count", int, 100), 1), limits.BROWSE_COUNT_MAX)
    text = wish.get("offset", str, "start")
    if text not in ("start", "end") and not text.lstrip("-").isdecimal():
        raise bad(f"offset is {text[:80]!r}; it is start, end, an ordinal, or -N for the last N")
    start = index.first if text == "start" else index.end if text == "end" else int(text)
    if start < 0:
        start = max(index.first, index.end + start)
    delivery = await place.done(
        place.broker.fetch_at(
            place.session(), topic, None, number, start, count=count, bytes_max=limits.ANSWER_BYTES,
            wait_ms=min(wish.get("wait_ms", int, 0), int(limits.BROWSE_WAIT_S_MAX * 1000)), now_ms=place.now_ms(),
        )
    )  # fmt: skip
    rows = list(_rows(delivery, count))
    following = rows[-1]["offset"] + 1 if rows else start
    now = place.broker.index(topic, None, number)
    return answer(
        {"topic": topic, "partition": number, "records": rows, "next": following, "first": now.first, "end": now.end}
    )


def _rows(delivery: Delivery, count: int) -> Iterator[dict[str, Any]]:
    left = count
    for span in delivery.spans:
        data = redress(
            span.data, span.dress, HOUSE, inflated_max=limits.INFLATED_MAX, depth_max=limits.NESTED_MAX,
            bytes_max=limits.INFLATED_MAX,
        )  # fmt: skip
        for at, message in enumerate(_messages(data)):
            if at < span.lead:
                continue
            if not left:
                return
            left -= 1
            yield {"offset": span.ordinal + at - span.lead, "time": span.time, **message}


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    while at < len(data):
        length, attributes, priority, flag, sent = HEAD.unpack_from(data, at)
        end, body = at + length, at + HEAD.size
        found: dict[str, Any] = {"sent": sent, "priority": priority, "flag": flag}
        if attributes & KEYED:
            (size,) = NAME.unpack_from(data, body)
            found |= _text("key", data[body + 2 : body + 2 + size])
            body += 2 + size
        if attributes & HEADED:
            (size,) = VALUE.unpack_from(data, body)
            found["headers"] = _headers(data[body + 4 : body + 4 + size])
            body += 4 + size
        yield found | _text("value", data[body:end])
        at = end


def _headers(data: bytes) -> list[dict[str, Any]]:
    (count,) = NAME.unpack_from(data, 0)
    at, rows = 2, []
    for _ in range(count):
        (size,) = NAME.unpack_from(data, at)
        name = data[at + 2 : at + 2 + size]
        at += 2 + size
        (size,) = VALUE.unpack_from(data, at)
        rows.append({**_text("name", name), **_text("value", data[at + 4 : at + 4 + size])})
        at += 4 + size
    return rows


def _text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


# ---- produce ----------------------------------------------------------------------------------------------


async def produce(request: Request) -> Response:
    """Store a few messages, all together: records [{value | value_base64, key, headers}], partition, level, app."""
    wish = await told(request, "records", "partition", "level", "app")
    place = house(request)
    topic, app = request.path_params["topic"], wish.get("app", str, APP)
    rows = wish.need("records", list)
    if not 1 <= len(rows) <= limits.BROWSE_COUNT_MAX:
        raise bad(f"records has {len(rows)} entries; it has 1 to {limits.BROWSE_COUNT_MAX}")
    data = b"".join([_packed(row, place.now_ms()) for row in rows])
    level = LEVELS.get(wish.get("level", str, "commit"))
    if level is None:
        raise bad(f"level is {wish.get('level', str, '')!r}; it is none, receive or commit")
    session = place.session()
    made = place.broker.ensure(session, [topic], app=app, produces=True, now_ms=place.now_ms())
    if made is not None:
        await place.finish(made)
    ticket = place.broker.produce(
        session, topic, data, HOUSE, app=app, now_ms=place.now_ms(), level=level,
        partition=wish.get("partition", int, -1), key=rows[0].get("key"),
    )  # fmt: skip
    if not ticket.done:
        await place.finish(place.broker.park(session, [ticket], deadline_ms=place.now_ms() + FLUSH_WAIT_MS))
        failure = place.broker.verdict(ticket)
        if failure is not None:
            raise failure
    return answer(
        {
            "topic": topic, "partition": place.broker.partition_of(ticket), "offset": ticket.ordinal, "count": ticket.count,
            "level": level.name.lower(),
        },
        201,
    )  # fmt: skip


def _packed(row: Any, now_ms: int) -> bytes:
    if not isinstance(row, dict):
        raise bad("a record is an object with value or value_base64, and perhaps key and headers")
    wish = Wish(row, ("value", "value_base64", "key", "headers"), is_text=False)
    body = wish.get("value", str, "").encode("utf-8", "surrogatepass")
    if wish.has("value_base64"):
        try:
            body = base64.b64decode(wish.get("value_base64", str, ""), validate=True)
        except binascii.Error as error:
            raise bad(f"value_base64 is no base64: {error}") from None
    key = wish.get("key", str, "").encode("utf-8", "surrogatepass")
    headers = wish.get("headers", dict, {})
    if len(key) > 0xFFFF or len(headers) > 0xFFFF:
        raise bad("a key has at most 65535 bytes, a record at most 65535 headers")
    front = NAME.pack(len(key)) + key if key else b""
    if headers:
        packed = b"".join([_packed_header(name, value) for name, value in headers.items()])
        front += VALUE.pack(len(packed) + 2) + NAME.pack(len(headers)) + packed
    attributes = (KEYED if key else 0) | (HEADED if headers else 0)
    return HEAD.pack(HEAD.size + len(front) + len(body), attributes, 0, 0, now_ms) + front + body


def _packed_header(name: str, value: Any) -> bytes:
    if not isinstance(value, str) or len(name.encode()) > 0xFFFF:
        raise bad(f"header {name[:40]!r} is no text, or its name is longer than 65535 bytes")
    first, second = name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")
    return NAME.pack(len(first)) + first + VALUE.pack(len(second)) + second
