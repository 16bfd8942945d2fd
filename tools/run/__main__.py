"""The acts one after the other, then what to try next."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

import serai
from tools.run import pipelines, queue, server
from tools.run.words import PLACE, say

DISK_BYTES = 2 << 30
PYTHON = """  in Python
      with serai.Client() as client, client.producer("greetings") as producer:
          print(producer.send(b"hello").result())
"""


def main() -> int:
    """Show all of it, or be the second process."""
    parser = argparse.ArgumentParser(prog="make run", description="See serai work on this machine.")
    parser.add_argument("--tail", metavar="DIR", help="be the second process: tail this queue and say what came")
    parser.add_argument("--without-spark", action="store_true", help="leave out the pipelines, and what they fetch")
    parser.add_argument(
        "--seconds", type=float, metavar="N", default=os.environ.get("DEMO_SECONDS") or None,
        help="keep the server up so long (default: until Ctrl-C on a terminal, else not at all)",
    )  # fmt: skip
    args = parser.parse_args()
    try:
        return queue.second_process(args.tail) if args.tail else show(args)
    except KeyboardInterrupt:
        if not args.tail:  # else the first process tells
            print(f"\nstopped; what was written until now is whole and lies in {PLACE}", file=sys.stderr)
        return 130
    except serai.SeraiError as error:
        print(f"\nserai: {error}", file=sys.stderr)
        return 1


def show(args: argparse.Namespace) -> int:
    """Three acts."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    free = shutil.disk_usage(PLACE).free
    if free < DISK_BYTES:
        print(f"serai: {PLACE.resolve()} has {free >> 20} MiB free and this needs {DISK_BYTES >> 20}", file=sys.stderr)
        return 1
    results = [queue.act()]
    with server.running() as address:
        results.append(server.act(address))
        if not args.without_spark:
            results.append(pipelines.act())
        say("\neverything that was written arrived" if all(results) else "\nNOT everything that was written arrived")
        stays = args.seconds is not None or sys.stdout.isatty()
        say(what_next(address if stays else None, lake=not args.without_spark))
        if stays:
            stay(address, args.seconds)
    return 0 if all(results) else 1


def stay(address: str, seconds: float | None) -> None:
    """Leave the server up for whoever watches."""
    span = "until Ctrl-C" if seconds is None else f"for {seconds:g} s"
    say(f"The server stays up {span}, and `ticks` gets ten messages a second.")
    try:
        count = server.trickle(address, seconds)
        say(f"{count} ticks sent; the server ends now")
    except KeyboardInterrupt:
        say("\nthe server ends now")


def what_next(address: str | None, *, lake: bool) -> str:
    """Commands that have something to look at; without an address the server is about to end."""
    again = f"serai server --data {server.DATA}"
    usual = f"127.0.0.1:{server.USUAL_PORT}"
    where = "" if (address or usual).endswith(f":{server.USUAL_PORT}") else f" --server {address}"
    served = [
        (f"serai tail ticks{where}", "what comes from now on"),
        (f"serai produce greetings hello{where}", "a message; then receive it:"),
        (f"serai consume greetings --group me{where}", ""),
        (f"serai topic list{where}", "topics; `serai group list`: who is how far"),
        (f"curl -s http://{address or usual}/metrics", "for Prometheus; /api/v1 is the HTTP API"),
    ]
    always = [
        (again, "the server again, over the same data"),
        (f"serai queue stat {PLACE}/lines", "what is in a queue"),
        (f"serai verify {server.DATA}", "every record checked"),
        *([("serai pipe list", "what else runs on Spark")] if lake else []),
        ("make bench-queue bench-broker", "both beside their peers"),
    ]
    width = max(len(command) for command, _ in served + always) + 2
    rows = [[f"      {command:<{width}}{gives}".rstrip() for command, gives in part] for part in (served, always)]
    up = "while the server is up" if address else f"with the server up again ({again})"
    lines = [f"  {up}", *rows[0], "  at any time", *rows[1]]
    return "\n".join(["\nTry next, with .venv/bin in PATH", *lines, PYTHON])


if __name__ == "__main__":
    sys.exit(main())
