"""The thread that brings partitions to the disk: one for an engine, asleep until somebody waits or a second is over.

    want    a message of level commit was appended: sync this partition's data now
    note    something was appended: sync it within a second, and write a mark now and then

While one turn is at the disk, wishes of the next gather: whoever asked meanwhile shares one sync.  A turn with many
partitions asks the file system to sync as a whole, which costs one journal commit and one flush of the disk instead
of one for each file (benchmarks/log.py).

Invariants
- the thread calls nobody: it moves positions and rings an eventfd
- a sync that fails ends the promises of every partition it was for; it is never tried again
- many that wait are completed by this one thread
- a partition whose mark says all there is to say, or that was closed, is forgotten here
- each sync of a turn is timed, each partition that failed counted once
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from serai import limits
from serai._core.pages import sync_file_system
from serai.log.times import Times

if TYPE_CHECKING:
    from pathlib import Path

    from serai.log.partition import Partition, Turn

log = logging.getLogger("serai.log")


class FlushThread:
    """Starts with the first wish; `stop` ends it after everything was synced by who owns the partitions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wanted: deque[Partition] = deque()
        self._noted: deque[Partition] = deque()
        self._moved: deque[Partition] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._asleep = False
        self.times = Times()  # of the syncs
        self.failures = 0

    def want(self, partition: Partition) -> None:
        self._wanted.append(partition)
        self._start()
        if self._asleep:
            os.eventfd_write(self._wake, 1)

    def note(self, partition: Partition) -> None:
        self._noted.append(partition)
        self._start()

    def count_failure(self) -> None:
        """The disk did not keep what a partition gave it."""
        self.failures += 1

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="serai-flush", daemon=True)
            self._thread.start()

    def moved(self) -> list[Partition]:
        """Partitions whose committed position moved, or that failed, since the last call."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.bell)
        return _drain(self._moved)

    def stop(self) -> None:
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        if self._thread is not None:
            self._thread.join()
        for fd in (self.bell, self._wake):
            os.close(fd)

    def _work(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        due = time.monotonic() + limits.FLUSH_EVERY_S
        while not self._stopping:
            self._asleep = True
            if not self._wanted:
                poll.poll(max(0.0, due - time.monotonic()) * 1000 if self._noted else limits.FLUSH_EVERY_S * 1000)
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._asleep = False
            wanted = _drain(self._wanted)
            if wanted:
                self._turn(wanted)
            if time.monotonic() >= due:
                self._background()
                due = time.monotonic() + limits.FLUSH_EVERY_S

    def _background(self) -> None:
        partitions = _drain(self._noted)
        behind = [partition for partition in partitions if partition.committed < partition.end]
        if behind:
            self._turn(behind)
        for partition in partitions:
            if not partition.mark_is_behind():
                continue
            if partition.mark_is_due():
                with suppress(OSError):  # no descriptor left: a second later there may be one
                    partition.settle()
            if partition.mark_is_behind():
                self._noted.append(partition)  # until its mark is written
            elif partition.failed is not None:
                self._ring([partition])

    def _turn(self, partitions: list[Partition]) -> None:
        """One sync for all of them."""
        for partition in partitions:
            partition.flush_lock.acquire()
        try:
            turns = [(partition, turn) for partition in partitions if (turn := self._begin(partition))]
            if len(turns) >= limits.SYNC_TOGETHER:
                self._sync_together(turns)
            else:
                for partition, turn in turns:
                    began = time.perf_counter()
                    partition.finish(turn)
                    self.times.add(time.perf_counter() - began)
        finally:
            for partition in partitions:
                partition.flush_lock.release()
        self._ring(partitions)

    def _ring(self, partitions: list[Partition]) -> None:
        self._moved.extend(partitions)
        os.eventfd_write(self.bell, 1)

    def _begin(self, partition: Partition) -> Turn | None:
        """What this turn covers; None when there is no descriptor left, so that it has to wait for the next second."""
        try:
            return partition.begin()
        except OSError as error:
            log.warning(
                "%s: nothing could be synced (%s); it is tried again within a second", partition.folder.path, error
            )
            self._noted.append(partition)
            return None

    def _sync_together(self, turns: list[tuple[Partition, Turn]]) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        began = time.perf_counter()
        try:
            sync_file_system(fd)
        except OSError as error:
            for partition, _turn in turns:
                partition.fail(error)
        else:
            for partition, turn in turns:
                partition.covered(turn)
        finally:
            self.times.add(time.perf_counter() - began)
            os.close(fd)


def _drain(wishes: deque[Partition]) -> list[Partition]:
    """Takes all that is there, each once, in order."""
    taken = [wishes.popleft() for _ in range(len(wishes))]
    return list(dict.fromkeys(taken))
