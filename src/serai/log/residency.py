"""Makes pages resident ahead of busy writers: one thread of the process, asleep until it is asked.

The first touch of a page costs more than all else a writer does (benchmarks/queue.py prints it), so a
writer that has shown to be busy asks for the stretch it will reach next.  The thread works without the
GIL, never calls anybody, and an idle or small queue never starts it.

Invariant: populating changes no byte, so it may run beside the writer and be late or lost.
"""

import os
import queue
import threading
from contextlib import suppress

from serai._core.pages import Page

_asks: queue.SimpleQueue[tuple[Page, int, int]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_start = threading.Lock()


def _forget() -> None:
    """A forked child has no helper thread: the next ask starts one."""
    global _thread, _asks, _start
    _thread, _asks, _start = None, queue.SimpleQueue(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


def ask(page: Page, *, start: int, stop: int) -> None:
    """Asks for the bytes start..stop of a page; returns at once."""
    global _thread
    _asks.put((page, start, stop))
    if _thread is None:
        with _start:
            if _thread is None:
                _thread = threading.Thread(target=_work, name="serai-residency", daemon=True)
                _thread.start()


def _work() -> None:
    asks = _asks
    while True:
        page, start, stop = asks.get()
        with suppress(OSError):  # only a hint: the writer's own touch says what is wrong
            page.populate(start, stop)
        del page  # a sleeping thread keeps no page mapped
