"""serai verify: what is wrong with a queue, a data directory or one of its logs, and repairing what can be repaired."""

import sys
from argparse import Namespace, _SubParsersAction
from pathlib import Path
from typing import TYPE_CHECKING

from serai.cli.parser import Parser, add_checksum, add_output, verb
from serai.cli.terminal import FAILED, Failure, ask, counted, paint, sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai.log import audit
    from serai.log.verify import Problem, Report


def add(nouns: "_SubParsersAction[Parser]") -> None:
    parser = verb(nouns, "verify", verify, text="look at every page, record and checksum of a queue or a data directory",
                  aim="verify {dir}", example="serai verify orders")  # fmt: skip
    add_checksum(parser, "say too how many messages have none (those that have one are compared anyway)")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="of a queue: cut off everything behind the first entry readers cannot pass; "
        "of a log: write slots, index and marks again from its records",
    )
    parser.add_argument("--dry-run", action="store_true", help="with --repair: say what would be lost, change nothing")
    parser.add_argument("--yes", action="store_true", help="with --repair: do not ask")
    add_output(parser, ("table", "json", "jsonl"))


def verify(args: Namespace) -> int:
    """Names every problem on stdout; the exit code is 1 when there is one left."""
    from serai.cli.opening import need_directory
    from serai.log.audit import kind_of

    need_directory(args)
    if kind_of(args.dir):
        return _verify_logs(args)
    if args.repair:
        _repair(args)
        if args.dry_run:
            return 0
    report = _look(args)
    _show(report, [_sentence(problem) for problem in report.problems], args)
    for note in report.notes:
        args.talk.say(f"note: {note}")
    found = len(report.problems) + report.unnamed
    verdict = f"{counted(found, 'problem')}" if found else "no problem"
    sums = f", {report.checksums:,} checksums compared" if report.checksums else ""
    args.talk.say(f"{counted(report.messages)}, {sized(report.bytes)} in {report.path}: {verdict}{sums}")
    return FAILED if found else 0


def _verify_logs(args: Namespace) -> int:
    """The same for a data directory, or one partition or state log of it."""
    from serai.log.audit import audit

    if args.repair:
        _rebuild(args)
        if args.dry_run:
            return 0
    with args.talk.progress(f"verifying {args.dir}") as show:
        report = audit(args.dir, progress=show)
    _show(report, [_log_sentence(problem) for problem in report.problems], args)
    for note in report.notes:
        args.talk.say(f"note: {note}")
    found = len(report.problems) + report.unnamed
    verdict = f"{counted(found, 'problem')}" if found else "no problem"
    what = f"{counted(report.messages)} in {counted(report.records, 'record')} of {counted(report.logs, 'log')}"
    args.talk.say(f"{what}, {sized(report.bytes)} in {report.path}: {verdict}, every checksum compared")
    return FAILED if found else 0


def _rebuild(args: Namespace) -> None:
    """Makes slots, index and marks of logs again where they are wrong; messages are never taken away."""
    from serai.log.audit import audit, logs_of
    from serai.log.rebuild import plan, rebuild

    wrong = {problem.log for problem in audit(args.dir).problems if problem.kind in ("index", "marks", "page", "slot")}
    logs = {
        name: path for name, path in logs_of(Path(args.dir)).items() if name in wrong and (path / "format").exists()
    }
    for name, path in logs.items():
        found = plan(path)
        lost = sum(end - first for first, end in found.missing)
        left = f"; {counted(lost)} cannot be read any more and stay away" if lost else ""
        end = ", and both marks, which were lost: the log ends behind its last whole record" if found.marks_lost else ""
        args.talk.say(
            f"{name}: slots and index of {counted(len(found.records), 'record')} can be written again{end}{left}"
        )
    if not logs:
        args.talk.say(f"nothing to write again in {args.dir}: marks, slots and index are as they should be")
    if args.dry_run or not logs:
        return
    if not (args.yes or ask("go on?")):
        why = "it writes files of the log, and nobody said yes"
        raise Failure(f"{args.dir} was not repaired", why, f"serai verify {args.dir} --repair --yes")
    for path in logs.values():
        rebuild(path)


def _log_sentence(problem: "audit.Problem") -> str:
    log = f" log {problem.log}" if problem.log else ""
    which = "" if problem.ordinal is None else f" ordinal {problem.ordinal}"
    where = "" if problem.position is None else f" byte {problem.position}"
    return f"{paint(problem.kind, 'red', sys.stdout)}:{log}{which}: {problem.file}{where}: {problem.text}"


def _look(args: Namespace) -> "Report":
    from serai.log.verify import verify as look

    with args.talk.progress(f"verifying {args.dir}") as show:
        return look(args.dir, checksum=args.checksum, progress=show)


def _show(report: "Report | audit.Report", sentences: "Sequence[str]", args: Namespace) -> None:
    import json
    from dataclasses import asdict

    if args.output == "json":
        print(json.dumps(asdict(report), indent=2))
        return
    problems: Sequence[Problem | audit.Problem] = report.problems
    for problem, sentence in zip(problems, sentences, strict=True):
        print(json.dumps(asdict(problem)) if args.output == "jsonl" else sentence)
    if report.unnamed:
        args.talk.warn(f"{report.unnamed:,} more problems are not listed")


def _sentence(problem: "Problem") -> str:
    kind = paint(problem.kind, "red", sys.stdout)
    where = "" if problem.position is None else f" byte {problem.position}"
    which = "" if problem.offset is None else f" (offset {problem.offset})"
    return f"{kind}: {problem.file}{where}{which}: {problem.text}"


def _repair(args: Namespace) -> None:
    """Says what will be lost, asks, and cuts."""
    from serai.log.verify import cut, repair

    plan = cut(args.dir)
    if not plan.needed:
        args.talk.say(f"nothing to cut in {args.dir}: readers reach every published message")
        return
    loss = f"everything from offset {plan.offset} on: {counted(plan.messages)} published there will be lost"
    if args.dry_run:
        args.talk.say(f"repair would cut {loss}; nothing was changed")
        return
    args.talk.say(f"repair cuts {loss}")
    if not (args.yes or ask("go on?")):
        why = "it takes messages away for good, and nobody said yes"
        raise Failure(f"{args.dir} was not repaired", why, f"serai verify {args.dir} --repair --yes")
    lost = repair(args.dir)
    args.talk.say(f"{counted(lost)} cut off; {args.dir} now ends before offset {plan.offset}")
