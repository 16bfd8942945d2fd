"""serai server: one server process, from its settings to its exit code."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from serai.cli.parser import size, whole
from serai.cli.terminal import USAGE, Failure

if TYPE_CHECKING:
    from argparse import Namespace, _SubParsersAction

    from serai.cli.parser import Parser
    from serai.cli.terminal import Talk
    from serai.config import Settings
    from serai.gate.server import Server

FLAGS = ("data", "host", "port", "ack", "log_config", "insecure", "page_bytes")


def add(nouns: _SubParsersAction[Parser]) -> None:
    """Adds the noun, which is its own verb."""
    parser = nouns.add_parser(
        "server", help="run a server", description="Run a server until Ctrl-C or SIGTERM.",
        example="serai server --data serai-data --port 0",
    )  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="data directory, made when missing (default: serai-data)")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=whole, metavar="N", help="port for every door, 0 takes a free one (default: 15555)"
    )
    parser.add_argument(
        "--ack", choices=("receive", "commit"), help="when a produce is answered that does not say (default: commit)"
    )
    parser.add_argument(
        "--insecure", action="store_true", default=None, help="listen beyond this machine without any tokens"
    )
    parser.add_argument(
        "--page-size", dest="page_bytes", type=size, metavar="SIZE", help="length of page files (default: 64M)"
    )
    parser.add_argument("--log-config", metavar="FILE", help="TOML or JSON for Python's logging")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    parser.add_argument(
        "--set", dest="words", action="append", default=[], metavar="KEY=VALUE", help="any setting; may be repeated"
    )
    parser.set_defaults(run=serve, aim="run a server", dir="")


def serve(args: Namespace) -> int:
    """Run until a signal says otherwise."""
    from serai import config

    settings = config.load(file=args.config, flags={key: getattr(args, key) for key in FLAGS}, words=args.words)
    args.dir, args.aim = settings.data, "run a server on {dir}"
    check_exposure(settings, args.parser.prog)
    from serai.errors import Locked
    from serai.gate import logs
    from serai.gate.loop import run
    from serai.gate.server import Taken

    logs.set_up(file=settings.log_config, level=settings.log_level)
    try:
        run(settings, lambda server: announce(server, args.talk))
    except Taken as error:
        busy = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        other = f"end that one, or: {args.parser.prog} --port 0" if busy else f"{args.parser.prog} --host 127.0.0.1"
        raise Failure("cannot start the server", str(error), other) from error
    except Locked as error:
        raise Failure("cannot start the server", str(error), f"{args.parser.prog} --data another-directory") from error
    return 0


def check_exposure(settings: Settings, prog: str) -> None:
    """Refuse to listen beyond this machine unless that was asked for in so many words."""
    from serai.config import is_loopback

    if not is_loopback(settings.host) and not settings.insecure:
        raise Failure(
            f"cannot listen on {settings.host}",
            "everybody who reaches that address could read and write everything, since guests do not have to say who they are",
            f"{prog} --host 127.0.0.1, or --insecure behind a firewall of your own",
            code=USAGE,
        )


def announce(server: Server, talk: Talk) -> None:
    """The one line that says it is ready."""
    settings = server.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    talk.say(f"serai: ready on {host}:{server.port}, data in {settings.data}")
    if sys.stderr.isatty():
        talk.say(
            f"  http://{host}:{server.port}/healthz   serai topic list --server {host}:{server.port}   Ctrl-C ends it"
        )
