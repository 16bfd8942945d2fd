"""How several processes share the suite: what is on Spark stays together, everything else goes to whoever is free.

    pipes    most files of pipelines                       first, one after the other in one process, which has one Spark
    spark    the other files that need one                 the same in another process
    (test)   everything else, what takes long at first     the next process that is free

A Spark costs 10 seconds of processor to start, and as much again until it is quick: so there are no more than two, and they
have about the same to do.

pytest 9.2 keeps the names of tests where the groups of pytest-xdist 3.8 no longer reach them; this does without those.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # xdist ships no types

ROOT = Path(__file__).resolve().parents[1]
NEEDS = "spark: SparkSession"  # in the source of a file
LONG = (  # half a minute or more, and on no Spark of others; those with one of their own first, so that all Spark ends soon
    "test_archive_on_a_cluster_has_every_row_once_though_a_worker_dies",
    "test_declarative_pipelines_go_on_in_a_second_run",
    "test_spark_of_the_readme_shows_what_its_client_sent",
    "test_nothing_acknowledged_is_lost_doubled_moved_or_altered_by_sixty_kills",
    "test_many_random_directories_need_little_memory_and_time",
    "test_killed_at_any_call_of_the_system_every_row_is_there_once",
)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # nor is this known as a class
    """Units of work; those of many tests are given away first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def rank(nodeid: str) -> int:
    """Where a test stands among those that had best begin at once; the others are behind them."""
    name = nodeid.rpartition("::")[2].partition("[")[0]
    return LONG.index(name) if name in LONG else len(LONG)


def unit_of(nodeid: str) -> str:
    """What is done together with a test."""
    return nodeid if rank(nodeid) < len(LONG) else spark_of(nodeid.partition("::")[0]) or nodeid


@cache
def spark_of(name: str) -> str:
    """The Spark that the tests of a file share; empty when they need none."""
    path = ROOT / name
    if path.parent.name != "spark" or NEEDS not in path.read_text(encoding="utf-8"):
        return ""
    return "pipes" if path.stem.startswith("test_pipe") and path.stem != "test_pipe_fold" else "spark"
