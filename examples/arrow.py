"""Batches as Arrow tables: to polars, DuckDB and pyarrow without a copy, and back into a queue.

    python examples/arrow.py [DIR]

serai needs none of the three: a batch speaks the Arrow PyCapsule interface.  What is not installed is
left out, and said.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import serai

MESSAGES = 10_000


def find(name: str) -> Any:
    """A package, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed; pip install {name}")
        return None


def main(path: Path) -> int:
    """Write, read one batch, hand it to whoever is there."""
    totals = {}
    with serai.Queue(path / "words") as queue:
        queue.writer().append_many([f"word {number}".encode() for number in range(MESSAGES)])
        batch = queue.reader().read_batch(1 << 30)
        print(f"one batch: {len(batch)} messages, {batch.nbytes} bytes, from offset {batch.first_offset} on")
        if polars := find("polars"):
            frame = polars.DataFrame(batch)
            totals["polars"] = (frame.height, int(frame["offset"].sum()))
            print(frame.head(3))
        if duckdb := find("duckdb"):
            totals["duckdb"] = duckdb.sql('select count(*), sum("offset")::bigint from batch').fetchall()[0]
        if pyarrow := find("pyarrow"):
            table = pyarrow.table(batch)
            totals["pyarrow"] = (table.num_rows, sum(table["offset"].to_pylist()))
            totals["a copied column"] = copy_back(pyarrow, table, path)
    print(totals)
    expected = (MESSAGES, sum(range(0, 16 * MESSAGES, 16)))
    return 0 if all(tuple(total) == expected for total in totals.values()) else 1


def copy_back(pyarrow: Any, table: Any, path: Path) -> tuple[int, int]:
    """A column becomes messages, columns become typed messages: neither makes a Python object for a row."""
    with serai.Queue(path / "rows") as queue:
        numbers = pyarrow.table({"n": pyarrow.array(range(3), pyarrow.int64()), "text": ["a", "b", "c"]})
        queue.writer().template("long", "string").extend_arrow(numbers)
        print("typed messages from columns:", list(queue.reader().rows("long", "string")))
    with serai.Queue(path / "copy") as queue:
        queue.writer().extend_arrow(table["value"])
        offsets = queue.reader().read_batch(1 << 30).offsets
    return len(offsets), sum(offsets)


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
