"""Makes pages resident ahead of busy writers, and tidies behind them: one thread of the process, asleep until it is asked.

The first touch of a page costs more than all else a writer does (benchmarks/queue.py prints it), so a
writer that has shown to be busy asks for the stretch it will reach next.  The thread works without the
GIL, never calls anybody, and an idle or small queue never starts it.

Invariants
- populating changes no byte, so it may run beside the writer and be late or lost
- `done` only grows, and what lies below it is present and writable
"""

import os
import queue
import threading
from collections.abc import Callable

from serai._core.pages import LARGE_BYTES, Page


class Ask:
    """A stretch of a page that is being made resident, and how far that has come."""

    def __init__(self, page: Page, *, start: int, stop: int, large: bool) -> None:
        self._page: Page | None = page
        self._large = large
        self.stop = stop
        self.done = start

    def end(self) -> None:
        """Nobody will use what is not done yet; the piece at hand may still come."""
        self.stop = self.done

    def work(self) -> None:
        """Runs in the helper thread; a failure ends it, and the writer's own touch says what is wrong."""
        page = self._page
        assert page is not None
        try:
            while self.done < self.stop:
                step = min(
                    (self.done // LARGE_BYTES + 1) * LARGE_BYTES, self.stop
                )  # the writer may use each as it is done
                page.populate(self.done, step, large=self._large)
                self.done = step
        except OSError:
            self.stop = self.done
        self._page = None


_asks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_start = threading.Lock()


def _forget() -> None:
    """A forked child has no helper thread: the next ask starts one."""
    global _thread, _asks, _start
    _thread, _asks, _start = None, queue.SimpleQueue(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


def ask(page: Page, *, start: int, stop: int, large: bool) -> Ask:
    """Asks for the bytes start..stop of a page; returns at once."""
    wish = Ask(page, start=start, stop=stop, large=large)
    later(wish.work)
    return wish


def later(work: Callable[[], None]) -> None:
    """Has something done that would hold a writer up, and that it need not know the end of; it must not raise."""
    global _thread
    _asks.put(work)
    if _thread is None:
        with _start:
            if _thread is None:
                _thread = threading.Thread(target=_work, name="serai-residency", daemon=True)
                _thread.start()


def _work() -> None:
    asks = _asks
    while True:
        asks.get()()
