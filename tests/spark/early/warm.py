"""A Python that has imported everything and forks a runner of a streaming source for each who asks at its socket.

    python -m tests.spark.early.warm ADDRESS        until its standard input ends

A wish is the standard streams of whoever asks, and its environment.  The connection closes when the runner has ended; a
runner whose Spark is gone ends as it always does, because the socket between them is closed.
"""

import json
import os
import select
import signal
import socket
import sys

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
STREAMS = (0, 1, 2)


def stand_in(address: str) -> None:
    """Have a runner forked, and end with it."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        socket.send_fds(line, [b"+"], STREAMS)
        line.sendall(json.dumps(dict(os.environ)).encode())
        line.shutdown(socket.SHUT_WR)
        line.recv(1)
    os._exit(0)


def main() -> None:
    """Serve until nobody wants it any more."""
    import pyspark.sql.streaming.python_streaming_source_runner as runner  # noqa: F401

    import serai.spark.source  # noqa: F401 - loaded once, for all who are forked

    del sys.modules[RUNNER]  # only what it needs: it is run by its name
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    listener.close()
                    become(line)


def become(line: socket.socket) -> None:
    """Be the runner that was asked for."""
    import runpy

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(line, 1, len(STREAMS))
    for stream, number in zip(streams, STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    words = b"".join(iter(lambda: line.recv(1 << 16), b""))
    os.environ.clear()
    os.environ.update(json.loads(words))
    sys.argv[:] = [RUNNER]
    status = 1
    try:
        runpy.run_module(RUNNER, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
