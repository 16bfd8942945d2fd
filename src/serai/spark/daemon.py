"""The process that Spark forks its Python workers from, with workers that acknowledge at once what they are sent.

A task is talked over in several short pieces, and the kernel holds one back until the one before it is acknowledged, which
whoever has nothing to say does after 40 ms: half of the work on a small batch of a stream.  Before each task the worker
asks the kernel to be prompt; its own short pieces do not wait either.

This module is loaded before the fork, so it imports nothing that starts a thread.
"""

import socket

from pyspark import daemon

spark_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - Spark's signature
    """One task, as Spark has it done."""
    if sock.family != socket.AF_UNIX and hasattr(socket, "TCP_QUICKACK"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return spark_worker(sock, authenticated)


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
