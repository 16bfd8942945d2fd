"""The files of an archive as a Delta table: a log beside the manifests that names the same files, once each.

    <lake>/_delta_log/00000000000000000003.json      what came and what went since the version before

The manifests stay the truth.  `follow` compares what they name with what the table names, and adds one version for the
difference; so whatever a run that died did not say is said by the next one, and a table can be asked for at any time.
Files that replace others with as many rows are marked as no change of data, so whoever streams the table sees no row again.

Invariants
- a version of the table names files that were there together in the archive
- a table that is right is not touched
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from serai.errors import Misuse
from serai.spark import columns
from serai.spark.options import read_options
from serai.spark.pipes.export import KEPT
from serai.spark.pipes.lake import NO_DAY

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from serai.spark.pipes.lake import File, Lake

FOLDERS = ["topic", "day"]


def need_delta() -> None:
    """An error with the line that cures it, before anything is done."""
    try:
        import deltalake  # noqa: F401 - only whether it is there
    except ImportError:
        raise Misuse(
            "a Delta table needs the package deltalake, which is not installed: pip install 'serai[lake]'"
        ) from None


def arrow_schema() -> pa.Schema:
    """The columns of an archive, those its folders say among them."""
    kept = columns.shape_of(read_options({"logDir": ".", "columns": KEPT})).schema
    return kept.append(pa.field("topic", pa.string())).append(pa.field("day", pa.date32()))


def follow(lake: Lake) -> int:
    """Brings the table to where the manifests are; how many files came and went."""
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

    root, schema = str(lake.root), Schema.from_arrow(arrow_schema())
    if not DeltaTable.is_deltatable(root):
        DeltaTable.create(root, schema, partition_by=FOLDERS, name="archive")
    table = DeltaTable(root)
    named = _named(table)
    wanted = {one.path: one for one in lake.files() if one.path}
    fresh = [one for path, one in wanted.items() if path not in named]
    gone = {path: row for path, row in named.items() if path not in wanted}
    if not fresh and not gone:
        return 0
    changed = sum(one.rows for one in fresh) != sum(row["num_records"] for row in gone.values())
    now_ms = time.time_ns() // 1_000_000
    added = [
        AddAction(one.path, one.bytes, _folders(one), now_ms, changed, json.dumps({"numRecords": one.rows}))
        for one in fresh
    ]
    removed = [RemoveAction(path, changed, now_ms, row["size_bytes"], row["folders"]) for path, row in gone.items()]
    table.create_write_transaction([*added, *removed], "append", schema, FOLDERS)
    return len(fresh) + len(gone)


def _named(table: DeltaTable) -> dict[str, dict[str, Any]]:
    """Files of the newest version, by their path."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for row in rows:
        day = row["partition.day"]
        row["folders"] = {"topic": row["partition.topic"], "day": None if day is None else day.isoformat()}
    return {row["path"]: row for row in rows}


def _folders(one: File) -> dict[str, str | None]:
    day = one.path.split("/")[1].removeprefix("day=")
    return {"topic": one.topic, "day": None if day == NO_DAY else day}
