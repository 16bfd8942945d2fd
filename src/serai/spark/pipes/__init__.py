"""Pipelines serai ships, each declared once: `serai pipe list`.

    frame      what a pipeline is: name, settings, what a run gives back.  No Spark
    place      the directory a pipeline goes on from: who runs there, how far it is.  No Spark
    running    a session, a query that is watched and stopped, progress

    archive    a log -> Parquet files        planned: its batches;  export: written inside the tasks;  lake: which files
                                         count;  compact: small ones become large;  delta: the same files as a Delta table
    metrics    a log -> counts and delays    rows: what all of these read, and show
    fold       events -> a table by key      taking: its words;  snapshot: a table replaced whole;  batches: their positions
    audit      a log, files -> findings      looking: what the tasks look at;  shelves: the files of an archive
    search     log and archive -> messages   wanted: topics and times, and which files have them
    replay     an archive -> a log           lakestream: an archive as a stream
    merge      queues -> one topic by id     queues: what of each is ready

A module named in `MODULES` declares a pipeline and imports Spark only when it runs, so that lists, help and
documents are made of the declarations without it.
"""

from serai.spark.pipes.frame import Pipe

MODULES = {
    "archive": "Archive",
    "metrics": "Metrics",
    "fold": "Fold",
    "audit": "Audit",
    "search": "Search",
    "replay": "Replay",
    "merge": "Merge",
}


def find(name: str) -> type[Pipe] | None:
    """A pipeline by its name."""
    from importlib import import_module

    if name not in MODULES:
        return None
    found: type[Pipe] = getattr(import_module(f"{__name__}.{name}"), MODULES[name])
    assert found.name == name, found
    return found


def all_pipes() -> list[type[Pipe]]:
    """Every pipeline, in the order of the list above."""
    return [found for name in MODULES if (found := find(name)) is not None]
