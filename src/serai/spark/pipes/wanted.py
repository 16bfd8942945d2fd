"""Which messages are meant: some topics, a span of store times; and which files of an archive can have such.  No Spark.

Times are read once: `now-10m` is the same moment for a log and its archive.  A message without a store time, as those of
bare queues, is in no span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from serai.spark.pipes.lake import File


@dataclass(frozen=True)
class Wanted:
    """Topics, None for all, and the store times from `since_us` on and before `until_us`."""

    topics: tuple[str, ...] | None = None
    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def of(cls, topics: tuple[str, ...] | None, since: str | None, until: str | None) -> Wanted:
        """As settings have them."""
        from serai.spark.offsets import now_ms, read_time

        now = now_ms()
        begin = None if since is None else read_time(since, name="since", now=now) * 1000
        end = None if until is None else read_time(until, name="until", now=now) * 1000
        return cls(topics, begin, end)

    @property
    def timed(self) -> bool:
        return self.since_us is not None or self.until_us is not None

    def has(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def may_be_in(self, one: File) -> bool:
        """Whether a file of an archive can have such messages."""
        if not (one.path and self.has(one.topic)):
            return False
        if not self.timed:
            return True
        if one.min_us is None or one.max_us is None:
            return False
        return (self.since_us is None or one.max_us >= self.since_us) and (
            self.until_us is None or one.min_us < self.until_us
        )

    def check(self, there: Iterable[str], where: str) -> None:
        """An error when a topic was asked for that is nowhere."""
        found = set(there)
        missing = [one for one in self.topics or () if one not in found]
        if missing:
            raise Misuse(f"{where} has no topic {', '.join(missing)}; it has {', '.join(sorted(found)) or 'none'}")
