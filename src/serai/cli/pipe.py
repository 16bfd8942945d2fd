"""serai pipe run|list|explain|status: the pipelines that run on Spark.

What there is to say about a pipeline, its flags among it, is said by its declaration in `serai.spark.pipes`; those
load no Spark.  `run NAME` reads the words behind NAME with the flags of that pipeline.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai.cli.admin import show
from serai.cli.parser import Parser, add_output, nearest
from serai.cli.terminal import FAILED, INTERRUPTED, USAGE, Failure

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction
    from collections.abc import Callable

    from serai.cli.terminal import Talk
    from serai.spark.pipes.frame import Asked, Pipe, Progress

    Verbs = _SubParsersAction[Parser]

OUTPUTS = ("table", "json", "jsonl")
SAY_EVERY_S = 60.0


def add(nouns: Verbs) -> None:
    """Adds the noun."""
    parser = nouns.add_parser("pipe", help="pipelines on Spark", description="Pipelines over the log, run by Spark.")
    verbs = parser.nouns("verb")
    listing = verbs.add_parser("list", help="say which pipelines there are", description="Say which pipelines there are.",
                               example="serai pipe list")  # fmt: skip
    listing.set_defaults(run=list_pipes, aim="list pipelines", dir="")
    add_output(listing, OUTPUTS)
    parser = verbs.add_parser("explain", help="say what a pipeline does", description="Say what a pipeline does.",
                              example="serai pipe explain archive")  # fmt: skip
    parser.add_argument("name", metavar="NAME")
    parser.set_defaults(run=explain, aim="explain {name}", dir="")
    parser = verbs.add_parser("run", help="run a pipeline", description="Run a pipeline; `serai pipe run NAME --help` has "
                              "its flags.", example="serai pipe run archive --data serai-data --to lake")  # fmt: skip
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="settings of that pipeline")
    parser.set_defaults(run=start, aim="run {name}", dir="")
    parser = verbs.add_parser("status", help="say how far pipelines are", description="Say how far pipelines are.",
                              example="serai pipe status lake")  # fmt: skip
    parser.add_argument("dir", metavar="DIR", help="where they remember it, or a directory above")
    parser.set_defaults(run=status, aim="say how far the pipelines in {dir} are")
    add_output(parser, OUTPUTS)


def list_pipes(args: Namespace) -> int:
    """All of them."""
    from serai.spark.pipes import all_pipes

    rows = [{"name": one.name, "does": one.does} for one in all_pipes()]
    return show(args, ("name", "does"), rows, rows)


def explain(args: Namespace) -> int:
    """What it is, its settings, an example."""
    kind = find(args.name)
    lines = [f"{kind.name}: {kind.does}", "", kind.explanation(), "", "settings:"]
    for one in kind.settings():
        default = "needed" if one.needed else f"default: {said(one.default)}"
        lines.append(f"  {one.flag} {one.metavar}   {one.meaning} ({default})")
    print("\n".join([*lines, "", f"example:\n  {kind.example}"]))
    return 0


def find(name: str) -> type[Pipe]:
    from serai.spark.pipes import MODULES
    from serai.spark.pipes import find as look_up

    kind = look_up(name)
    if kind is None:
        why = f"there is no such pipeline{nearest(name, MODULES)}; there are {', '.join(MODULES)}"
        raise Failure(f"cannot find the pipeline {name}", why, "serai pipe list", code=USAGE)
    return kind


def said(default: Any) -> str:
    """A default as a command line would give it."""
    return "none" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


# ---- a run -------------------------------------------------------------------------------------------------


def start(args: Namespace) -> int:
    """Runs a pipeline until it is through, or a signal comes."""
    kind = find(args.name)
    try:
        asked = _flags(kind).parse(args.words)
        run = _asked(asked)
    except SystemExit as ended:  # argparse has said why, or what the flags are
        return ended.code if isinstance(ended.code, int) else FAILED
    args.parser, args.output, args.talk.quiet = (
        asked.parser,
        asked.output,
        args.talk.quiet or bool(getattr(asked, "quiet", False)),
    )
    pipe = kind.of({one.name: text for one in kind.settings() if (text := getattr(asked, one.name)) is not None})
    need_spark(args)
    from serai.spark.pipes.running import Failed
    from serai.spark.pipes.running import run as run_pipe

    with args.talk.progress(args.name) as bar:
        watch = watcher(bar, args.talk, endless=run.every_ms is not None)
        try:
            outcome = run_pipe(pipe, run, watch, args.talk.detail)
        except Failed as error:
            raise Failure(f"cannot run {args.name}", str(error), f"serai pipe run {args.name} --help") from error
    if outcome.heads:
        show(args, outcome.heads, [dict(row) for row in outcome.rows], outcome.rows)
    args.talk.say(f"{args.name}: {outcome.words}")
    return INTERRUPTED if outcome.broken_off else FAILED if outcome.failed else 0


def watcher(bar: Callable[..., None], talk: Talk, *, endless: bool) -> Callable[[Progress], None]:
    """Shows progress: as the bar does, or for a run without end a line a minute where nobody draws."""
    said = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal said
        behind = "" if progress.behind is None else f", {progress.behind:,} behind"
        words = f"{progress.done:,} {progress.unit}, {progress.per_second:,.0f}/s{behind}"
        if not endless or sys.stderr.isatty():
            bar(progress.done, progress.total, words)
        elif time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            talk.say(words)

    return watch


def need_spark(args: Namespace) -> None:
    """An error with the line that cures it, before anything is loaded."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        why = f"it runs on Spark, and this Python lacks {', '.join(missing)}"
        raise Failure(f"cannot run {args.name}", why, "pip install 'serai[spark]'  (456 MB to fetch)")


def _flags(kind: type[Pipe]) -> Parser:
    parser = Parser(
        prog=f"serai pipe run {kind.name}", description=f"{kind.does[0].upper()}{kind.does[1:]}.", example=kind.example
    )
    own = parser.add_argument_group("settings")
    for one in kind.settings():
        default = "" if one.needed or one.default is None else f" (default: {said(one.default)})"
        own.add_argument(one.flag, dest=one.name, metavar=one.metavar, required=one.needed, help=one.meaning + default)
    every = parser.add_argument_group("of every pipeline")
    every.add_argument("--master", metavar="URL", help="a Spark master (default: this machine, all cores)")
    if kind.streams:
        every.add_argument("--checkpoint", metavar="DIR", help="where it remembers how far it is")
        every.add_argument(
            "--every", metavar="SPAN", help="go on until a signal, a batch every 10s, 1m ... (default: once)"
        )
    every.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    add_output(parser, OUTPUTS)
    return parser


def _asked(args: Namespace) -> Asked:
    """What the flags of every pipeline say."""
    from serai.spark.options import duration_ms
    from serai.spark.pipes.frame import Asked

    try:
        every = duration_ms(args.every) if getattr(args, "every", None) else None
    except ValueError as error:
        args.parser.error(f"--every is {args.every!r}; {error}")
    strange = [word for word in args.conf if "=" not in word]
    if strange:
        args.parser.error(f"--conf is {strange[0]!r}; it is KEY=VALUE, as spark.driver.memory=2g")
    checkpoint = getattr(args, "checkpoint", None)
    confs = dict(word.split("=", 1) for word in args.conf)
    return Asked(args.master, Path(checkpoint) if checkpoint else None, every, confs)


# ---- status ------------------------------------------------------------------------------------------------


def status(args: Namespace) -> int:
    """Every place below a directory."""
    from serai.spark.pipes.place import look

    found = look(Path(args.dir))
    if not found:
        why = "no pipeline has run there: none of its folders has a pipe.json"
        raise Failure(f"cannot say how far the pipelines in {args.dir} are", why, "serai pipe list")
    for one in found:
        one["age_s"] = max(int(time.time() - one.get("updated_ms", one["started_ms"]) / 1000), 0)
    return show(args, ("pipe", "state", "rows", "batches", "behind", "age s", "place"), found, found)
