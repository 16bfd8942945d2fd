"""fold: balances to the cent, compared with Python's own Decimals; every message once, whoever is killed when."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import serai
from serai.cli import main
from serai.errors import Locked, Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.log.lock import alone
from serai.spark.pipes.fold import Fold, load
from serai.spark.pipes.frame import Asked, Outcome
from serai.spark.pipes.running import Failed, run
from serai.spark.pipes.taking import cut, read_each, read_take
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry
from tests.spark.test_faults import killed_when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ACCOUNTS = ("anna", "bert", "cleo", "dora")
FIELDS = "source:string, target:string, amount:decimal(38,2)"
EACH = "account = source, change = -amount where source <> ''; account = target, change = amount where target <> ''"
TAKE = "balance = sum(change), events = count(), biggest = max(change), first(change), note = last(change)"
BANK: dict[str, Any] = {"fields": FIELDS, "each": EACH, "by": "account", "take": TAKE}
Event = tuple[str, str, Decimal]


def events(low: int, high: int) -> Iterator[Event]:
    """Money is paid in, moved and paid out; amounts a float does not hold."""
    for number in range(low, high):
        source, target = ACCOUNTS[number % 4], ACCOUNTS[number * 7 % 3]
        amount = Decimal(number * 1013 % 99991) / 100 + (Decimal(10) ** 20 if number % 50 == 0 else 0)
        yield (
            ("", target, amount)
            if number % 5 == 0
            else (source, "", amount)
            if number % 11 == 0
            else (source, target, amount)
        )


def ledger(path: Path, found: Iterable[Event]) -> Path:
    with serai.Queue(path, page_size=None if path.exists() else 1 << 12) as queue:
        for source, target, amount in found:
            queue.new_message().pack_string(source).pack_string(target).pack_decimal(amount).write_message()
    return path


def folded(found: Iterable[Event]) -> dict[str, tuple[Decimal, int, Decimal, Decimal, Decimal]]:
    """What Python makes of the same events."""
    changes: defaultdict[str, list[Decimal]] = defaultdict(list)
    for source, target, amount in found:
        if source:
            changes[source].append(-amount)
        if target:
            changes[target].append(amount)
    return {
        name: (sum(given, Decimal()), len(given), max(given), given[0], given[-1]) for name, given in changes.items()
    }


def fold(data: Path, to: Path, *, checkpoint: Path | None = None, **settings: Any) -> Outcome:
    pipe = Fold(data=str(data), to=str(to), **settings)
    return run(pipe, Asked(checkpoint=checkpoint), lambda _progress: None, lambda _words: None)


def table(spark: SparkSession, to: Path) -> dict[Any, tuple[Any, ...]]:
    return {row[0]: tuple(row[1:]) for row in load(spark, str(to)).collect()}


def forget_commit(place: Path, batch: int) -> None:
    """As if the driver had been killed before Spark noted that a batch was through."""
    for path in (place / "spark" / "commits").glob(f"*{batch}*"):
        path.unlink()


def test_accounts_are_right_to_the_cent_over_runs(spark: SparkSession, tmp_path: Path) -> None:
    data, to = ledger(tmp_path / "ledger", events(0, 500)), tmp_path / "balances"
    told = fold(data, to, batch_rows=180, **BANK)
    assert table(spark, to) == folded(events(0, 500))
    assert [row["account"] for row in told.rows] == list(ACCOUNTS)
    assert [Decimal(row["balance"]) for row in told.rows] == [folded(events(0, 500))[name][0] for name in ACCOUNTS]
    ledger(data, events(500, 620))
    fold(data, to, **BANK)
    fold(data, to, **BANK)
    assert table(spark, to) == folded(events(0, 620))
    plain = spark.read.parquet(str(to / "current")).collect()
    assert {row["account"]: row["balance"] for row in plain} == {
        name: found[0] for name, found in folded(events(0, 620)).items()
    }
    assert len(list((to / "versions").iterdir())) == 2


def test_batch_that_comes_again_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    data, to = ledger(tmp_path / "ledger", events(0, 100)), tmp_path / "balances"
    place = to / "_serai" / "fold"
    fold(data, to, **BANK)
    forget_commit(place, 0)  # killed behind the rename: the batch is in the table
    ledger(data, events(100, 150))
    fold(data, to, **BANK)
    assert table(spark, to) == folded(events(0, 150))
    forget_commit(place, 1)  # killed before it: the batch is not, and half a version lies there
    (to / "current").unlink()
    (to / "current").symlink_to("versions/00000000")
    (to / "versions" / "00000001" / "_snapshot.json").unlink()
    fold(data, to, **BANK)
    assert table(spark, to) == folded(events(0, 150))


def test_new_checkpoint_goes_on_where_the_table_stands_and_an_old_one_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, to = ledger(tmp_path / "ledger", events(0, 60)), tmp_path / "balances"
    fold(data, to, checkpoint=tmp_path / "one", **BANK)
    ledger(data, events(60, 90))
    fold(data, to, checkpoint=tmp_path / "two", **BANK)
    assert table(spark, to) == folded(events(0, 90))
    ledger(data, events(90, 95))
    with pytest.raises(
        Failed, match=r"stands at .*90.* batch 1 begins at .*60.* another checkpoint was used meanwhile"
    ):
        fold(data, to, checkpoint=tmp_path / "one", **BANK)
    fold(data, to, checkpoint=tmp_path / "two", **BANK)
    assert table(spark, to) == folded(events(0, 95))


def test_killed_driver_loses_nothing_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    data, to = ledger(tmp_path / "ledger", events(0, 900)), tmp_path / "balances"
    settings = [f"--{name}={value}" for name, value in BANK.items()]
    words = ["pipe", "run", "fold", "--data", str(data), "--to", str(to), "--batch-rows", "100", *settings]
    command = [sys.executable, "-c", "from serai.cli import main; main()", *words, "--conf", "spark.driver.memory=700m"]
    half = to / "versions" / "00000002" / "_temporary"  # its tasks are at work
    told = killed_when(half.exists, command, tmp_path)
    assert (to / "versions" / "00000002").exists(), told
    assert (to / "current").readlink().name in ("00000001", "00000002")
    assert fold(data, to, **BANK).words.startswith(("700 rows", "600 rows"))
    assert table(spark, to) == folded(events(0, 900))


# ---- other events ------------------------------------------------------------------------------------------


def test_json_of_several_topics_by_time_and_key(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for topic, amounts in (("orders", ("0.1", "0.2", "1e3")), ("refunds", ("-0.30", "null"))):
            log = engine.open(topic)
            for at, amount in enumerate(amounts):
                body = b'{"amount": %s, "who": "w%d"}' % (amount.encode(), at)
                log.append(encoded([Entry(HOUSE, body, b"k")]), HOUSE, level=Level.RECEIVE, now_ms=1000 * at)
            log.commit()
    said: dict[str, Any] = {
        "decode": "json",
        "fields": "amount decimal(20,4), who string",
        "take": "sum(amount), count(amount), last(who)",
    }
    told = fold(tmp_path / "data", tmp_path / "to", by="key,topic", **said)
    assert [list(row.values()) for row in told.rows] == [
        ["k", "orders", "1000.3000", 3, "w2"], ["k", "refunds", "-0.3000", 1, "w1"]
    ]  # fmt: skip
    told = fold(tmp_path / "data", tmp_path / "late", by="topic", take="seen = max(timestamp), n = count()")
    assert [(row["seen"], row["n"]) for row in told.rows] == [("1970-01-01 00:00:02", 3), ("1970-01-01 00:00:01", 2)]


def test_fold_over_the_command_line(
    spark: SparkSession, tmp_path: Path, fill: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pipe", "run", "fold", "--data", str(fill([b"{}"] * 3)), "--to", str(tmp_path / "to"), "--output", "jsonl"]
    assert main([*words, "--by", "topic", "--take", "count()"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line) for line in shown.out.splitlines()] == [{"topic": "orders", "count": 3}]
    assert "fold: 3 rows in 1 batch," in shown.err
    assert main([*words, "--by", "topic", "--take", "sum(colour"]) == 2
    assert "its brackets do not go together" in capsys.readouterr().err


def test_empty_log_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    with serai.Queue(tmp_path / "ledger"):
        pass
    with pytest.raises(Misuse, match="has no table"):
        load(spark, str(tmp_path / "to"))
    told = fold(tmp_path / "ledger", tmp_path / "to", by="topic", take="count()")
    assert (told.words.partition("; ")[2], told.rows) == (f"0 keys in {tmp_path / 'to'}", [])
    assert load(spark, str(tmp_path / "to")).collect() == []


# ---- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"take": "sum(colour)"}, "do not fit the events: .*colour.* cannot be resolved"),
        ({"by": "colour"}, "do not fit the events: .*colour"),
        ({"each": "account = source, change = sum(amount)"}, "do not fit the events"),
        ({"take": "sum(account)"}, r"sum_account = sum\(account\), which is string: a sum is exact"),
        ({"take": "x = sum(cast(change as double))"}, "which is double: a sum is exact"),
        ({"take": "account = count()"}, "name the column 'account' twice"),
        ({"fields": "offset:long, source:string, target:string, amount:decimal(38,2)"}, "names 'offset'"),
        ({"fields": None}, "do not fit the events: .*source"),
    ],
)
def test_words_that_do_not_fit_are_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    data = ledger(tmp_path / "ledger", events(0, 1))
    with pytest.raises(Misuse, match=words):
        fold(data, tmp_path / "to", **(BANK | changed))
    assert not (tmp_path / "to" / "versions").exists()


def test_sum_that_does_not_fit_is_an_error_and_the_table_stays(spark: SparkSession, tmp_path: Path) -> None:
    most, to = Decimal("9" * 36 + ".99"), tmp_path / "balances"
    data = ledger(tmp_path / "ledger", [("", "anna", most), ("", "bert", most), ("", "bert", Decimal("-0.01"))])
    said: dict[str, Any] = {"fields": FIELDS, "by": "target", "take": "sum(amount)"}
    fold(data, to, **said)
    assert table(spark, to) == {"anna": (most,), "bert": (Decimal("9" * 36 + ".98"),)}
    ledger(data, [("", "anna", Decimal("0.01"))])
    with pytest.raises(Failed, match=r"batch 1: .*[Oo]verflow.*; the table in .* stays as it was"):
        fold(data, to, **said)
    assert table(spark, to)["anna"] == (most,)


def test_row_that_is_not_made_is_not_computed(spark: SparkSession, tmp_path: Path) -> None:
    data = ledger(tmp_path / "ledger", [("", "anna", Decimal(0)), ("", "bert", Decimal(4))])
    said: dict[str, Any] = {"fields": FIELDS, "by": "account", "take": "max(part)"}
    fold(data, tmp_path / "to", each="account = target, part = 1 / amount where amount > 0", **said)
    assert table(spark, tmp_path / "to") == {"bert": (Decimal("0.25"),)}


def test_body_that_cannot_be_read_is_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    data = ledger(tmp_path / "ledger", events(0, 20))
    with serai.Queue(data) as queue:
        queue.writer().append(b"torn")
    with pytest.raises(Failed, match="topic ledger partition 0 offset 20: the body cannot be read"):
        fold(data, tmp_path / "to", **BANK)
    fold(data, tmp_path / "to", on_corrupt="skip", **BANK)
    assert table(spark, tmp_path / "to") == folded(events(0, 20))


def test_other_words_for_the_same_table_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    data, to = ledger(tmp_path / "ledger", events(0, 5)), tmp_path / "balances"
    fold(data, to, **BANK)
    with pytest.raises(Misuse, match=r"folded with take 'balance.*now 'count\(\)': it cannot go on"):
        fold(data, to, checkpoint=tmp_path / "other", **(BANK | {"take": "count()"}))
    with alone(to, "work in"), pytest.raises(Locked, match="fold into"):
        fold(data, to, **BANK)


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        ("take", "", "expected name = sum"),
        ("take", "average(x)", "none of sum, count"),
        ("take", "sum()", "says nothing of what"),
        ("take", "sum(a + b)", r"needs a name in front, as x = sum\(a \+ b\)"),
        ("take", "x = sum(a), X = max(a)", "names 'x' twice"),
        ("take", "sum(a))", "brackets"),
        ("each", "a", "expected name = SQL, found 'a'"),
        ("each", "a = b; c = d", "its rows have a and c"),
        ("each", "a = b where", "one condition"),
    ],
)
def test_words_that_cannot_be_read_are_refused_with_what_is_wanted(setting: str, text: str, words: str) -> None:
    given = {"data": "x", "to": "y", "by": "a", "take": "count()"} | {setting: text}
    with pytest.raises(Misuse, match=words):
        Fold.of(given)


def test_text_is_cut_only_outside_of_brackets_and_quotes() -> None:
    assert cut("a(b, c), 'd, e', [f, g], `h, i`", ",") == ["a(b, c)", "'d, e'", "[f, g]", "`h, i`"]
    assert [(one.name, one.how, one.what) for one in read_take("x = sum(if(a = ',', b, c)), count()")] == [
        ("x", "sum", "if(a = ',', b, c)"), ("count", "count", ""),
    ]  # fmt: skip
    (row,) = read_each("a = b = ' where ', c = (d) where e = 'x;y'")
    assert (row.columns, row.where) == ((("a", "b = ' where '"), ("c", "(d)")), "e = 'x;y'")
