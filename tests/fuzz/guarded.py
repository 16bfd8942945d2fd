"""Many random directories in a process that may take neither much memory nor much time.

    python -m tests.fuzz.guarded FIRST_SEED COUNT

A loop without end ends it by a signal, a wait without end too, and memory beyond its bound by a MemoryError.  The bound on
time is one of the processor: on a busy machine everybody waits for his turn.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys

from tests.fuzz.exercise import Dice, draw, exercise

MEMORY_BYTES = 256 << 20  # above what the process has when it starts
SECONDS_EACH = 5  # of the processor
WAIT_EACH_S = 60


def main() -> None:
    logging.disable()  # cutting a torn tail is said once for each, which are thousands here
    os.environ["SERAI_PAGE_SIZE"] = "256"  # of a directory without any page
    first, count = int(sys.argv[1]), int(sys.argv[2])
    exercise(draw(Dice(first)))  # everything that is loaded late is loaded now
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, now + MEMORY_BYTES))
    for seed in range(first, first + count):
        signal.setitimer(signal.ITIMER_PROF, SECONDS_EACH)  # both end the process: a hang cannot be missed
        signal.alarm(WAIT_EACH_S)
        try:
            exercise(draw(Dice(seed)))
        except BaseException as error:
            error.add_note(f"seed {seed}: {draw(Dice(seed))}")
            raise
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    print(count)


if __name__ == "__main__":
    main()
