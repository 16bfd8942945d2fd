"""merge: exact rows in the exact order, compared with Python's own sort; each once, whoever is killed when."""

from __future__ import annotations

import json
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

import serai
from serai.cli import main
from serai.errors import Misuse
from serai.log.engine import Level
from serai.log.local import LocalEngine
from serai.spark.pipes.fold import Fold
from serai.spark.pipes.fold import load as load_fold
from serai.spark.pipes.frame import Asked, Outcome
from serai.spark.pipes.merge import Merge
from serai.spark.pipes.running import Failed, run
from tests.core.dressing import encoded
from tests.oracle.messages import HOUSE, Entry
from tests.spark.kit import load, rows_of
from tests.spark.test_faults import killed_when

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

FIELDS = "id:long, text:string"
Message = tuple[int, str]


def queue(path: Path, found: Sequence[Message]) -> Path:
    with serai.Queue(path, page_size=None if path.exists() else 1 << 12) as one:
        for number, text in found:
            one.new_message().pack_long(number).pack_string(text).write_message()
    return path


def merge(paths: Sequence[Path], to: Path, *, checkpoint: Path | None = None, **settings: Any) -> Outcome:
    given = {"fields": FIELDS, "by": "id"} | settings
    pipe = Merge(data=",".join(map(str, paths)), to=str(to), **given)
    return run(pipe, Asked(checkpoint=checkpoint), lambda _progress: None, lambda _words: None)


def merged(spark: SparkSession, to: Path, topic: str = "merged") -> list[Message]:
    rows = rows_of(load(spark, to, subscribe=topic, decode="fields", fields=FIELDS, columns="offset,id,text"))
    assert [row[0] for row in rows] == list(range(len(rows)))
    return [row[1:] for row in rows]


def dealt(low: int, high: int, *, seed: int) -> list[list[Message]]:
    """Ids dealt to three queues, each in its order; some ids stand in two of them."""
    pick = random.Random(seed)
    hands: list[list[Message]] = [[], [], []]
    for number in range(low, high):
        for hand in sorted(pick.sample(range(3), 2 if number % 10 == 0 else 1)):
            hands[hand].append((number, f"from {hand}"))
    return hands


def in_order(hands: Sequence[Sequence[Message]]) -> list[Message]:
    """What a stable sort makes of them: equal ids in the order of the queues."""
    return sorted((one for hand in hands for one in hand), key=lambda one: one[0])


def ready(hands: Sequence[Sequence[Message]]) -> list[Message]:
    """What is below the least of the last ids."""
    bound = min(hand[-1][0] for hand in hands)
    return [one for one in in_order(hands) if one[0] < bound]


def forget_commit(place: Path, batch: int) -> None:
    """As if the driver had been killed before Spark noted that a batch was through."""
    for path in (place / "spark" / "commits").glob(f"*{batch}*"):
        path.unlink()


def test_queues_become_one_topic_in_the_order_of_ids_over_runs(spark: SparkSession, tmp_path: Path) -> None:
    hands, to = dealt(0, 900, seed=7), tmp_path / "to"
    paths = [queue(tmp_path / f"q{at}", hand[:150]) for at, hand in enumerate(hands)]
    told = merge(paths, to)
    first = ready([hand[:150] for hand in hands])
    assert merged(spark, to) == first
    assert sum(row["merged"] for row in told.rows) == len(first)
    assert sum(row["waiting"] for row in told.rows) == 450 - len(first)
    assert [row["queue"] for row in told.rows] == [str(path) for path in paths]
    for path, hand in zip(paths, hands, strict=True):
        queue(path, hand[150:])
    merge(paths, to, batch_rows=100)
    assert merged(spark, to) == ready(hands)
    told = merge(paths, to, final=True)
    assert merged(spark, to) == in_order(hands)
    assert "wait" not in told.words


def test_round_that_comes_again_goes_out_once(spark: SparkSession, tmp_path: Path) -> None:
    hands, to = dealt(0, 200, seed=3), tmp_path / "to"
    place = to / ".pipes" / "merge-merged"
    paths = [queue(tmp_path / f"q{at}", hand) for at, hand in enumerate(hands)]
    merge(paths, to)
    state = json.loads((place / "merged.json").read_text())
    assert (state["round"], state["written"]) == (0, True)
    forget_commit(place, 0)  # killed behind the sink's commit, before it was noted that the round is out
    (place / "merged.json").write_text(json.dumps(state | {"written": False}))
    merge(paths, to)
    assert merged(spark, to) == ready(hands)
    later = dealt(200, 300, seed=4)
    for path, hand in zip(paths, later, strict=True):
        queue(path, hand)
    both = [before + after for before, after in zip(hands, later, strict=True)]
    merge(paths, to)
    assert merged(spark, to) == ready(both)


def test_killed_driver_loses_nothing_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    hands, to = dealt(0, 600, seed=5), tmp_path / "to"
    paths = [queue(tmp_path / f"q{at}", hand) for at, hand in enumerate(hands)]
    data = ",".join(map(str, paths))
    words = [
        "pipe",
        "run",
        "merge",
        "--data",
        data,
        "--to",
        str(to),
        "--by",
        "id",
        "--fields",
        FIELDS,
        "--batch-rows",
        "60",
    ]
    code = "from serai.cli import main; main()"
    state = to / ".pipes" / "merge-merged" / "merged.json"

    def second() -> bool:  # decided, and on its way into the topic
        said = json.loads(state.read_text()) if state.exists() else {"round": -1, "written": True}
        return bool(said["round"] >= 1 and not said["written"])

    told = killed_when(second, [sys.executable, "-c", code, *words, "--conf", "spark.driver.memory=700m"], tmp_path)
    assert json.loads(state.read_text())["round"] in (1, 2), told
    merge(paths, to)
    assert merged(spark, to) == ready(hands)
    assert len(ready(hands)) > 600


# ---- topics, ties, what is late ----------------------------------------------------------------------------


def test_topics_keep_keys_times_and_headers_and_mix_with_queues(spark: SparkSession, tmp_path: Path) -> None:
    with LocalEngine(tmp_path / "data") as engine:
        for topic, low in (("b", 0), ("a", 1)):
            log = engine.open(topic)
            for number in (low, low + 3, 6):
                body = json.dumps({"id": f"{number}.5", "from": topic}).encode()
                one = Entry(HOUSE, body, topic.encode(), send_time=1000 + number, headers=((b"h", b"%d" % number),))
                log.append(encoded([one]), HOUSE, level=Level.RECEIVE, now_ms=9000)
            log.commit()
    with serai.Queue(tmp_path / "q") as bare:
        bare.writer().append_many([b'{"id": 2.25}', b'{"id": 6.5}'])
    told = merge(
        [tmp_path / "q", tmp_path / "data"], tmp_path / "to", decode="json", fields="id decimal(9,2)", topics="b,a",
        final=True, topic="all",
    )  # fmt: skip
    frame = load(spark, tmp_path / "to", subscribe="all", columns="offset,key,value,sendTime,headers")
    rows = [(row["key"], row["value"], row["headers"]) for row in frame.orderBy("offset").collect()]
    found = [(json.loads(value)["id"], key and bytes(key).decode()) for key, value, _headers in rows]
    assert found == [
        ("0.5", "b"),
        ("1.5", "a"),
        (2.25, None),
        ("3.5", "b"),
        ("4.5", "a"),
        (6.5, None),
        ("6.5", "b"),
        ("6.5", "a"),
    ]
    assert [(row.key, bytes(row.value)) for row in rows[3][2]] == [("h", b"3")]
    times = frame.selectExpr("offset", "unix_millis(sendTime)").collect()
    assert {at: ms for at, ms in times if at in (0, 4)} == {0: 1000, 4: 1004}
    assert [row["queue"].removeprefix(str(tmp_path)) for row in told.rows] == [
        "/q", "/data topic b partition 0", "/data topic a partition 0"
    ]  # fmt: skip


def test_equal_ids_are_kept_dropped_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    paths = [
        queue(tmp_path / "q0", [(1, "a"), (3, "b"), (3, "c")]),
        queue(tmp_path / "q1", [(1, "d"), (2, "e"), (3, "f")]),
    ]
    merge(paths, tmp_path / "keep", final=True)
    assert merged(spark, tmp_path / "keep") == [(1, "a"), (1, "d"), (2, "e"), (3, "b"), (3, "c"), (3, "f")]
    told = merge(paths, tmp_path / "drop", final=True, duplicates="drop")
    assert merged(spark, tmp_path / "drop") == [(1, "a"), (2, "e"), (3, "b")]
    assert told.words.endswith("; 3 messages into topic merged of %s, 3 left out" % (tmp_path / "drop"))
    with pytest.raises(Failed, match=r"id 1 stands twice: \S+q0, offset 0 and \S+q1, offset 0; --duplicates drop"):
        merge(paths, tmp_path / "fail", final=True, duplicates="fail")
    assert not (tmp_path / "fail" / "p").exists()


def test_what_is_late_is_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    paths = [queue(tmp_path / "q0", [(1, "a"), (9, "b")]), queue(tmp_path / "q1", [(5, "c")])]
    for late in ("fail", "drop"):
        merge(paths, tmp_path / late, final=True, late=late)
    queue(paths[1], [(8, "d"), (9, "e"), (12, "f")])
    queue(paths[0], [(20, "g")])
    with pytest.raises(Failed, match=r"q1, offset 1: id 8 is late, ids up to 9 are merged already; --late drop"):
        merge(paths, tmp_path / "fail")
    told = merge(paths, tmp_path / "drop", late="drop", final=True)
    assert merged(spark, tmp_path / "drop") == [(1, "a"), (5, "c"), (9, "b"), (12, "f"), (20, "g")]
    assert told.words.endswith(", 2 left out")


def test_queue_that_has_nothing_holds_back_the_others(spark: SparkSession, tmp_path: Path) -> None:
    paths = [queue(tmp_path / "q0", [(1, "a"), (2, "b")]), queue(tmp_path / "q1", [])]
    assert "2 wait for a greater id in every queue" in merge(paths, tmp_path / "to").words
    queue(paths[1], [(2, "c")])
    merge(paths, tmp_path / "to")
    assert merged(spark, tmp_path / "to") == [(1, "a")]


def test_merged_topic_folds_as_one_log(spark: SparkSession, tmp_path: Path) -> None:
    hands = dealt(0, 60, seed=1)
    merge([queue(tmp_path / f"q{at}", hand) for at, hand in enumerate(hands)], tmp_path / "to", final=True)
    pipe = Fold(
        data=str(tmp_path / "to"), to=str(tmp_path / "table"), by="text", fields=FIELDS, take="sum(id), last(id)"
    )
    run(pipe, Asked(), lambda _progress: None, lambda _words: None)
    expected = {(f"from {at}", sum(one[0] for one in hand), hand[-1][0]) for at, hand in enumerate(hands)}
    assert {tuple(row) for row in load_fold(spark, str(tmp_path / "table")).collect()} == expected


# ---- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"by": "colour"}, "--by is 'colour', and a message has no such column; it has key, id, text"),
        ({"fields": "id:double, text:string"}, "which is double: an id is a whole number"),
        ({"fields": "id:long, value:string"}, "--fields names 'value'"),
        ({"to": "q0", "topic": "q0"}, "is a bare queue|merged into itself"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    path = queue(tmp_path / "q0", [(1, "a")])
    to = tmp_path / settings.pop("to", "to")
    with pytest.raises(Misuse, match=words):
        merge([path], to, checkpoint=tmp_path / "check", **settings)


def test_queue_out_of_order_and_id_that_is_null_are_told_with_their_place(spark: SparkSession, tmp_path: Path) -> None:
    paths = [queue(tmp_path / "q0", [(1, "a"), (2, "b")]), queue(tmp_path / "q1", [(5, "c"), (7, "d"), (6, "e")])]
    with pytest.raises(
        Failed, match=r"q1, offset 2: id 6 comes behind 7; a queue that is merged is in the order of its ids"
    ):
        merge(paths, tmp_path / "to")
    with serai.Queue(tmp_path / "json") as one:
        one.writer().append_many([b'{"id": 1}', b'{"ID": 2}'])
    with pytest.raises(Failed, match=r"json, offset 1: the message has no id \(null\)"):
        merge([tmp_path / "json"], tmp_path / "null", decode="json", fields="id long", final=True)


def test_merge_anew_into_what_is_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path, to = queue(tmp_path / "q0", [(1, "a"), (2, "b")]), tmp_path / "to"
    merge([path], to)
    with pytest.raises(Misuse, match="has 1 messages in topic merged, and no run that could go on from there"):
        merge([path], to, checkpoint=tmp_path / "other")


def test_merge_over_the_command_line(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ",".join(str(queue(tmp_path / name, [(number, name)])) for number, name in enumerate(("q0", "q1")))
    words = ["pipe", "run", "merge", "--data", data, "--to", str(tmp_path / "to"), "--by", "id", "--fields", FIELDS]
    assert main([*words, "--final", "true", "--output", "jsonl"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["merged"] for line in shown.out.splitlines()] == [1, 1]
    assert "2 messages into topic merged" in shown.err
    assert main([*words, "--final", "true"]) == 0
    assert "0 messages into topic merged" in capsys.readouterr().err
    assert merged(spark, tmp_path / "to") == [(0, "q0"), (1, "q1")]
    assert main(["verify", str(tmp_path / "to")]) == 0
