"""What a pipeline is: a class whose fields are its settings.

    @dataclass(frozen=True, kw_only=True)
    class Archive(Pipe):
        \"\"\"Copies a log into Parquet files ...\"\"\"             `serai pipe explain`

        name = "archive"
        does = "copy topics into Parquet, each message once"     `serai pipe list`

        data: str = setting("the log's directory", metavar="DIR")
        keep: int = setting("days to keep", kind=count, default=7)

        def run(self, job: Job) -> Outcome: ...                  `serai pipe run archive --data logs`

Flags of the command line, the text of its help, the tables of the guide and the check of a value all come from the fields.
Spark is imported inside `run` and below it, never beside a declaration.

Invariants
- a setting without a default has to be given
- whoever runs a pipeline again with the same settings and the same place goes on where it stood
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from serai.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from serai.spark.pipes.planned import Batch, Planned


@dataclass(frozen=True)
class Setting:
    """One setting of a pipeline, as a command line and a document need it."""

    name: str
    meaning: str
    kind: Callable[[str], Any]
    metavar: str
    default: Any
    needed: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def read(self, text: str) -> Any:
        """The value that was written; a wrong one is an error that repeats it."""
        try:
            return self.kind(text)
        except ValueError as error:
            raise Misuse(f"{self.flag} is {text!r}; {error}") from None


def setting(
    meaning: str,
    *,
    default: Any = dataclasses.MISSING,
    kind: Callable[[str], Any] = str,
    metavar: str = "TEXT",
) -> Any:
    """A field of a pipeline."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "kind": kind, "metavar": metavar})


def truth(text: str) -> bool:
    """A setting that is on or off."""
    if text.lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.lower() == "true"


def checked(read: Callable[[str], Any]) -> Callable[[str], str]:
    """A kind of setting that stays as it was written once it was found to be readable."""

    def kept(text: str) -> str:
        read(text)
        return text

    return kept


@dataclass(frozen=True)
class Progress:
    """How far a run is: messages, or whatever `unit` says."""

    done: int
    per_second: float
    behind: int | None  # what was seen to be there and is not done yet
    unit: str = "rows"

    @property
    def total(self) -> int:
        return self.done + (self.behind or 0)


@dataclass(frozen=True)
class Outcome:
    """What a run gives back: a sentence, and rows of a table."""

    words: str
    heads: tuple[str, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    failed: bool = False  # the work was done, and what it found is bad
    broken_off: bool = False  # by a signal, before it was through


@dataclass(frozen=True)
class Asked:
    """What a run is told beside the pipeline's settings."""

    master: str | None = None
    checkpoint: Path | None = None
    every_ms: int | None = None  # None: what is there now, then the end
    confs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Totals:
    """What a stream did in this run."""

    rows: int
    batches: int
    seconds: float
    stopped: bool  # by a signal, before it was through

    @property
    def sentence(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        end = "; stopped, the next run goes on from here" if self.stopped else ""
        return f"{self.rows:,} rows in {self.batches} {'batch' if self.batches == 1 else 'batches'}, {rate:,.0f} rows/s{end}"


class Job(Protocol):
    """What a pipeline is given to run with."""

    @property
    def spark(self) -> SparkSession: ...

    @property
    def place(self) -> Path:
        """The directory that remembers how far it is; made when there is none."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for the end."""
        ...

    def drive(self, writer: DataStreamWriter) -> Totals:
        """Starts a stream and goes along with it until it is through, or somebody says stop."""
        ...

    def batches(self, planned: Planned, work: Callable[[Batch], None]) -> Totals:
        """Goes through batches that no stream plans, until all is through or somebody says stop."""
        ...

    def watching(self) -> AbstractContextManager[None]:
        """Around work that is no stream: shows its tasks, and takes it back when somebody says stop."""
        ...

    def note(self, words: str) -> None:
        """Something to know about the run."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pipe:
    """What all pipelines have."""

    name: ClassVar[str]
    does: ClassVar[str]
    example: ClassVar[str]
    streams: ClassVar[bool] = True  # goes on where it stood; the others look at what is there, once
    fixed: ClassVar[tuple[str, ...]] = ()  # settings that must stay, or it could not go on where it stood

    def home(self) -> Path | None:
        """Where it remembers how far it is, when nobody says otherwise; None for one that does not stream."""
        return None

    def check(self) -> None:
        """Raises what can be seen to be wrong before its place is taken and Spark starts."""

    def run(self, job: Job) -> Outcome:
        raise AssertionError(f"{self.name} says nowhere what it does with {job}")

    @classmethod
    def settings(cls) -> list[Setting]:
        return list(_settings(cls))

    @classmethod
    def explanation(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "")

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Pipe:
        """The pipeline with these settings, as they were written."""
        known = {one.name: one for one in cls.settings()}
        strange = sorted(set(given) - set(known))
        if strange:
            raise Misuse(f"{cls.name} has no setting {strange[0]!r}; there are {', '.join(known)}")
        missing = [one.flag for one in known.values() if one.needed and one.name not in given]
        if missing:
            raise Misuse(f"{cls.name} needs {' and '.join(missing)}")
        return cls(**{name: known[name].read(text) for name, text in given.items()})

    def described(self) -> dict[str, Any]:
        """Its settings by name, for the place it remembers them in."""
        return {one.name: getattr(self, one.name) for one in self.settings()}


def _settings(kind: type[Pipe]) -> Iterator[Setting]:
    for field in dataclasses.fields(kind):
        needed = field.default is dataclasses.MISSING
        meta = field.metadata
        yield Setting(
            field.name, meta["meaning"], meta["kind"], meta["metavar"], None if needed else field.default, needed
        )
