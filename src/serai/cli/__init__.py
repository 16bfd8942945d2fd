"""serai <noun> <verb>: the command line.

    serai server                                   a server process
    serai produce|consume|tail TOPIC               messages to and from it
    serai topic list|create|describe|alter|delete  and what it holds
    serai subscription list|set|remove
    serai group list|describe|lag|reset
    serai queue put|get|tail|stat|bench|compress|expand DIR      a queue and its messages
    serai dump DIR        its entries, as they lie in the index; of a data directory its logs, records, messages
    serai pipe run|list|explain|status             pipelines on Spark
    serai verify DIR      what is wrong with it, and what can be cut off
    serai bench produce|consume|latency            how fast a server is
    serai check history FILE                       what clients saw, judged

Manners
- stdout is data, stderr is talk; colour and bars only on a terminal (NO_COLOR and FORCE_COLOR are obeyed)
- an error is one sentence what, one why, one command that helps
- exit codes: 0 done, 1 failed, 2 wrong use, 3 no server there, 4 not allowed, 5 timed out, 130 interrupted
- Ctrl-C ends cleanly with a summary; a reader that goes away (`| head`) is no error
- starting is quick: a module here imports argparse at most, everything else waits inside the command
"""

import errno
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

from serai.cli.admin import add as add_admin
from serai.cli.consume import add as add_consume
from serai.cli.dump import add as add_dump
from serai.cli.judge import add as add_judge
from serai.cli.load import add as add_load
from serai.cli.parser import Parser
from serai.cli.pipe import add as add_pipe
from serai.cli.produce import add as add_produce
from serai.cli.queue import add as add_queue
from serai.cli.server import add as add_server
from serai.cli.tail import add as add_tail
from serai.cli.terminal import FAILED, INTERRUPTED, NOT_ALLOWED, TIMED_OUT, UNREACHABLE, USAGE, Failure, Talk
from serai.cli.verify import add as add_verify

SOON = "Run `serai NOUN --help`, `serai NOUN VERB --help`: each ends with an example."


def build() -> Parser:
    """The whole command line, without loading what it needs to run."""
    parser = Parser(
        prog="serai", description="A message broker and an embedded queue that share one log.", epilog=SOON, talk=True
    )
    parser.add_argument("--version", action="store_true", help="say the version and the instructions in use, and end")
    nouns = parser.nouns("noun")
    add_server(nouns)
    add_produce(nouns)
    add_consume(nouns)
    add_tail(nouns)
    add_admin(nouns)
    add_queue(nouns)
    add_dump(nouns)
    add_verify(nouns)
    add_pipe(nouns)
    add_load(nouns)
    add_judge(nouns)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code."""
    parser = build()
    try:
        args = parser.parse(argv)
        if args.version:
            args.run, args.aim, args.dir, args.parser = say_version, "say the version", ".", parser
        if "run" not in args:
            args.parser.print_help(sys.stderr)
            return USAGE
    except SystemExit as ended:  # argparse has said why
        return ended.code if isinstance(ended.code, int) else FAILED
    args.talk = Talk(quiet=args.quiet, verbose=args.verbose)
    if "server" in args and args.server is None:
        from serai.config import server_default

        args.server = server_default()
    return run(args)


def say_version(_args: Namespace) -> int:
    """Which serai this is, and which Python and processor it runs on."""
    import platform

    import serai
    from serai._core.crc import KIND

    print(f"serai {serai.__version__} (Python {platform.python_version()}, {platform.machine()}, CRC-32C by {KIND})")
    return 0


def run(args: Namespace) -> int:
    """Runs the chosen verb, and turns whatever went wrong into words and a code."""
    try:
        if sys.stdout is None:
            raise Failure("cannot write the output", "standard output is closed", f"{args.parser.prog} ... > file")
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return 0
    except KeyboardInterrupt:
        args.talk.interrupted()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last stop: words instead of a traceback
        if args.verbose:
            import traceback

            traceback.print_exc()
        failure = explain(error, args)
        args.talk.fail(failure)
        return failure.code
    return code


def drop_output() -> None:
    """Nobody takes what is left: it goes nowhere, so that the end of the program does not try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: Exception, args: Namespace) -> Failure:
    """An error as what, why and a hint."""
    from serai import errors

    if isinstance(error, Failure):
        return error
    what = f"cannot {args.aim.format(**vars(args))}"
    why = "; ".join([str(error), *getattr(error, "__notes__", [])])
    if isinstance(error, PermissionError):
        return Failure(
            what, f"{error.filename}: {error.strerror}", f"ls -ld {args.dir or error.filename}", code=NOT_ALLOWED
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # a full disk of the queue is `DiskFull`
        drop_output()
        return Failure("cannot write the output", str(error), "df -h, and write it where there is space")
    if isinstance(error, (errors.OutcomeUnknown, TimeoutError)):
        return Failure(what, why, "look before you repeat it: what was asked may have been done", code=TIMED_OUT)
    if isinstance(error, OSError):
        return Failure(what, str(error), f"ls -l {args.dir or error.filename or '.'}")
    if isinstance(error, errors.ReadOnly):
        return Failure(what, str(error), f"ls -ld {args.dir}", code=NOT_ALLOWED)
    hints = {
        errors.Corrupt: f"serai verify {args.dir}",
        errors.NewerFormat: "serai --version, then use the version that wrote it or a later one",
        errors.DiskFull: f"df -h {args.dir}",
        errors.Locked: f"end the other writer, or look on: serai queue stat {args.dir}",
        errors.QueueFull: "start a new queue in another directory",
        errors.Misuse: f"{args.parser.prog} --help",
        errors.Unreachable: "serai server, or --server HOST:PORT",
        errors.Denied: "serai subscription list",
        errors.Refused: "serai topic list",
    }
    codes = {errors.Misuse: USAGE, errors.Unreachable: UNREACHABLE, errors.Denied: NOT_ALLOWED}
    for kind, hint in hints.items():
        if isinstance(error, kind):
            return Failure(what, why, hint, code=codes.get(kind, FAILED))
    return Failure(what, f"{type(error).__name__}: {error}", "run it again with --verbose and report what it shows")
