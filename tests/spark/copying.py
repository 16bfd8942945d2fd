"""A query that copies a queue into a topic and comes to harm on the way; a program of its own, so that it can be killed.

    python -m tests.spark.copying QUEUE DATA CHECKPOINT NOTES

Row 150 kills every Python worker of its task, once.  Row 350 writes NOTES/asleep and sleeps: whoever waits for that
file kills this process and its JVM in the middle of batch 3.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class Harm:
    """What happens to the task that meets one of the two rows."""

    def __init__(self, notes: str) -> None:
        self.notes = notes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            positions = set(batch.column("offset").to_pylist())
            if 150 in positions and not (died := Path(self.notes) / "died").exists():
                died.touch()
                self.kill_workers()
            if 350 in positions:
                (Path(self.notes) / "asleep").touch()
                time.sleep(600)
            yield batch

    def kill_workers(self) -> None:
        """The reader's, the writer's, and this one: all are children of Spark's daemon."""
        daemon = os.getppid()
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(path.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            pid = int(path.parent.name)
            if parent == daemon and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Runs until it is killed."""
    from serai.spark.session import session

    queue, data, checkpoint, notes = sys.argv[1:]
    confs = {"spark.driver.memory": "700m"}
    spark = session(name="copying", master="local[2,4]", work_dir=tempfile.mkdtemp(dir=notes), confs=confs)
    options = {"logDir": queue, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100", "columns": "offset,value"}
    frame = spark.readStream.format("serai").options(**options).load()
    query = (
        frame.mapInArrow(Harm(notes), frame.schema).select("value").writeStream.format("serai")
        .options(logDir=data, topic="copy", checkpointLocation=checkpoint).start()
    )  # fmt: skip
    query.awaitTermination()


if __name__ == "__main__":
    main()
