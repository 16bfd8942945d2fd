"""Bodies as columns: exact values, and what is bad is an error, left out or null, and counted."""

from __future__ import annotations

import datetime as dt
import json
import logging
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import serai
from serai.errors import Corrupt, Misuse
from serai.spark.columns import batches, shape_of
from serai.spark.options import read_options
from serai.spark.slices import Slice
from tests.spark.kit import only_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSON_FIELDS = (
    "id bigint, name string, price decimal(10,2), tags array<string>, at timestamp, inner struct<a: int>, yes boolean"
)


def decoded(path: Path, **options: str) -> list[dict[str, Any]]:
    """Rows without the columns that are the same for all."""
    log = only_log(path, **options)
    chosen = read_options({"logDir": str(path), **options})
    shape = shape_of(chosen)
    piece = Slice(log.topic, 0, str(path), 0, log.end(committed=True))
    rows = [row for batch in batches(log, piece, shape, chosen) for row in batch.to_pylist()]
    plain = {"key", "topic", "partition", "timestamp", "timestampType"}
    return [{name: value for name, value in row.items() if name not in plain} for row in rows]


def test_text_in_charsets(fill: Callable[..., Path]) -> None:
    words = ["plain", "客栈 serai", ""]
    for charset in ("UTF-8", "GBK", "GB18030", "UTF-16LE"):
        path = fill([word.encode(charset) for word in words], name=charset)
        assert [row["value"] for row in decoded(path, decode="text", charset=charset)] == words


def test_bytes_that_are_no_text(fill: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    path = fill([b"one", b"\xff\xfe", b"three", b"\xff"])
    with pytest.raises(Corrupt, match="topic orders partition 0 offset 1: the body cannot be read: 'utf-8' codec"):
        decoded(path, decode="text")
    with caplog.at_level(logging.WARNING, "serai.spark"):
        assert decoded(path, decode="text", onCorrupt="skip") == [
            {"value": "one", "offset": 0}, {"value": "three", "offset": 2},
        ]  # fmt: skip
    assert "positions 0 to 4: 2 messages could not be read; the first: topic orders partition 0 offset 1" in caplog.text
    assert [row["value"] for row in decoded(path, decode="text", onCorrupt="null")] == ["one", None, "three", None]


def test_ascii_refuses_what_is_more(fill: Callable[..., Path]) -> None:
    path = fill([b"one", "zwölf".encode()])
    assert [row["value"] for row in decoded(path, decode="text", charset="ASCII", onCorrupt="null")] == ["one", None]


def test_json_gives_a_column_for_each_field(fill: Callable[..., Path]) -> None:
    full = {
        "id": 1,
        "name": "客",
        "price": "1.25",
        "tags": ["a", "b"],
        "at": "2026-01-02T03:04:05Z",
        "inner": {"a": 7},
        "yes": True,
    }
    path = fill([json.dumps(full).encode(), b'{"id": 2, "more": [1, {}]}', json.dumps(full, indent=1).encode()])
    first, second, third = decoded(path, decode="json", fields=JSON_FIELDS)
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert first == {**full, "price": Decimal("1.25"), "at": at, "offset": 0}
    assert second == dict.fromkeys(full) | {"id": 2, "offset": 1}
    assert third == first | {"offset": 2}


NOT_JSON = [
    b"",
    b"{",
    b"null",
    b"[1]",
    b"1",
    b'{"id": 1}{"id": 2}',
    b'{"id": "x"}',
    b'1},{"v":{"id":3}',
    b'{}}{"v":{}',
    b"\xff",
]


@pytest.mark.parametrize("bad", NOT_JSON)
def test_bodies_that_are_no_json_object_do_not_move_the_others(fill: Callable[..., Path], bad: bytes) -> None:
    path = fill([b'{"id": 1}', bad, b'{"id": 3}', bad, b'{"id": 5}'])
    with pytest.raises(Corrupt, match="offset 1: the body cannot be read"):
        decoded(path, decode="json", fields="id bigint")
    assert decoded(path, decode="json", fields="id bigint", onCorrupt="skip") == [
        {"id": 1, "offset": 0}, {"id": 3, "offset": 2}, {"id": 5, "offset": 4},
    ]  # fmt: skip
    assert [row["id"] for row in decoded(path, decode="json", fields="id bigint", onCorrupt="null")] == [
        1,
        None,
        3,
        None,
        5,
    ]


def test_one_bad_body_does_not_change_how_the_good_ones_are_read(fill: Callable[..., Path]) -> None:
    full = {
        "id": 1,
        "name": "x",
        "price": "1.25",
        "tags": ["a"],
        "at": "2026-01-02T03:04:05Z",
        "inner": {"a": 7},
        "yes": True,
    }
    good = [json.dumps(full).encode(), b'{"id": 2}']
    together = decoded(fill(good, name="good"), decode="json", fields=JSON_FIELDS)
    alone = decoded(fill([*good, b"bad"], name="bad"), decode="json", fields=JSON_FIELDS, onCorrupt="skip")
    assert together == alone


def test_json_in_another_charset(fill: Callable[..., Path]) -> None:
    path = fill(['{"name": "客栈"}'.encode("gbk")])
    assert decoded(path, decode="json", fields="name string", charset="GBK") == [{"name": "客栈", "offset": 0}]


def test_xml_gives_elements_attributes_and_arrays(fill: Callable[..., Path]) -> None:
    body = '<o id="7"><name>客</name><price> 1.50 </price><tag>a</tag><tag>b</tag><who><first>X</first></who></o>'
    path = fill([body.encode(), b"<o/>"])
    fields = "_id bigint, name string, price decimal(8,2), tag array<string>, who struct<first: string>"
    assert decoded(path, decode="xml", fields=fields) == [
        {"_id": 7, "name": "客", "price": Decimal("1.50"), "tag": ["a", "b"], "who": {"first": "X"}, "offset": 0},
        {"_id": None, "name": None, "price": None, "tag": [], "who": None, "offset": 1},
    ]


@pytest.mark.parametrize("bad", [b"", b"<a>", b"<o><n>x</n></o>", b"<o><n>1</n><n>2</n></o>", b'{"n": 1}'])
def test_bodies_that_are_no_such_xml(fill: Callable[..., Path], bad: bytes) -> None:
    path = fill([b"<o><n>1</n></o>", bad])
    with pytest.raises(Corrupt, match="offset 1: the body cannot be read"):
        decoded(path, decode="xml", fields="n int")
    assert [row["n"] for row in decoded(path, decode="xml", fields="n int", onCorrupt="null")] == [1, None]


# ---- typed fields ----------------------------------------------------------------------------------------------------


def typed(tmp_path: Path, rows: list[tuple[Any, ...]], *kinds: str, dialect: str = "seed") -> Path:
    path = tmp_path / "orders"
    with serai.Queue(path, page_size=1 << 12, dialect=dialect) as queue:
        queue.writer().template(*kinds).append_many(rows)
    return path


@pytest.mark.parametrize("dialect", ["seed", "java"])
def test_fields_are_unpacked_with_their_types(tmp_path: Path, dialect: str) -> None:
    rows = [(number, Decimal(number).scaleb(-2), f"s{number}", number % 2 == 0, "客") for number in range(-3, 300)]
    path = typed(tmp_path, rows, "long", "decimal", "string", "boolean", "unicode", dialect=dialect)
    fields = "id:long, amount:decimal(38,4), name:string, even:boolean, word:unicode"
    found = decoded(path, decode="fields", fields=fields, dialect=dialect)
    assert [tuple(row.values())[:5] for row in found] == rows
    assert found[0]["amount"].as_tuple().exponent == -4


def test_decimal_without_a_scale_is_text_with_its_own(tmp_path: Path) -> None:
    path = typed(tmp_path, [(Decimal("1.50"),), (Decimal("-1E-30"),), (Decimal("1E+3"),)], "decimal")
    found = decoded(path, decode="fields", fields="amount:decimal")
    assert [row["amount"] for row in found] == ["1.50", "-0." + "0" * 29 + "1", "1000"]


def test_decimal_that_does_not_fit_is_never_rounded(tmp_path: Path) -> None:
    path = typed(tmp_path, [(Decimal("1.5"),), (Decimal("1.255"),)], "decimal")
    with pytest.raises(Corrupt, match=r"offset 1: .*amount is 1.255, which decimal128\(38, 2\) does not hold"):
        decoded(path, decode="fields", fields="amount:decimal(38,2)")


def test_body_with_other_fields_names_the_field(fill: Callable[..., Path]) -> None:
    path = fill([b"\1\0\0\0ok\0", b"\1\0\0\0never ends", b"\1\0\0\0ok\0more"])
    with pytest.raises(Corrupt, match=r"offset 1: the body cannot be read: field 2, name:string: .*no closing zero"):
        decoded(path, decode="fields", fields="id:int, name:string")
    found = decoded(path, decode="fields", fields="id:int, name:string", onCorrupt="skip")
    assert found == [{"id": 1, "name": "ok", "offset": 0}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            "id:int, amount:money",
            r"field 2 at character 7 \(amount\): no kind is called 'money'; there are byte, boolean",
        ),
        ("id:int amount:decimal", r"field 1 at character 0 \(id\): expected a comma behind it, found 'a'"),
        ("id:int, :int", r"field 2 at character 7: expected name:kind, found ' :int'"),
        ("a:decimal(40,2)", r"field 1 at character 0 \(a\): decimal\(40,2\) cannot be"),
        ("a:int(3)", r"int\(3,0\) cannot be"),
        ("a:int, a:long", "names 'a' twice"),
        ("", "decode=fields needs option fields"),
    ],
)
def test_wrong_field_list_names_field_and_place(fields: str, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        shape_of(read_options({"logDir": "x", "decode": "fields", "fields": fields}))


def test_only_columns_that_are_named_are_made(fill: Callable[..., Path]) -> None:
    path = fill([b"\1\0\0\0ok\0"])
    found = decoded(path, decode="fields", fields="id:int, name:string", columns="name,offset")
    assert found == [{"name": "ok", "offset": 0}]
    with pytest.raises(Misuse, match="option columns names 'nome'; there are key, id, name, topic"):
        decoded(path, decode="fields", fields="id:int, name:string", columns="nome")
