"""An event log: write the event first, change memory after it; after a crash, replay.

    python examples/event_log.py [DIR]

A child process moves money between accounts and is killed with SIGKILL in the middle.  What it had
published is in the files, whole: replaying gives the same balances as the child's own account of what it
did, to the cent.  (A crash of the machine is another matter: see `force` in the guide.)
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import serai

START = Decimal("1000.00")
ACCOUNTS = ("anna", "bert", "cleo")


class Bank:
    """Balances in memory, and the log that can rebuild them."""

    def __init__(self, path: Path, mode: str = "rw") -> None:
        self.queue = serai.Queue(path, mode)
        self.balances: defaultdict[str, Decimal] = defaultdict(lambda: START)
        self.events = 0
        for message in self.queue.reader():  # whatever was logged before is applied first
            self.apply(*message.unpack("string", "string", "decimal"))

    def apply(self, source: str, target: str, amount: Decimal) -> None:
        """Change memory; the same for a new event and a replayed one."""
        self.balances[source] -= amount
        self.balances[target] += amount
        self.events += 1

    def move(self, source: str, target: str, amount: Decimal) -> None:
        """Write the event; only then change memory."""
        self.queue.new_message().pack_string(source).pack_string(target).pack_decimal(amount).write_message()
        self.apply(source, target, amount)


def work(path: Path) -> None:
    """Move money until the end of this process."""
    bank = Bank(path)
    while True:
        number = bank.events
        bank.move(ACCOUNTS[number % 3], ACCOUNTS[(number + 1) % 3], Decimal(number % 997) / 100)


def expected_after(events: int) -> dict[str, Decimal]:
    """The balances after so many events, counted without the log."""
    balances = dict.fromkeys(ACCOUNTS, START)
    for number in range(events):
        amount = Decimal(number % 997) / 100
        balances[ACCOUNTS[number % 3]] -= amount
        balances[ACCOUNTS[(number + 1) % 3]] += amount
    return balances


def main(path: Path) -> int:
    """Let the child work and kill it, twice; each time the log goes on where it was."""
    spawn = multiprocessing.get_context("spawn")
    before = 0
    for life in (1, 2):
        child = spawn.Process(target=work, args=(path,))
        child.start()
        wait_for_events(path, more_than=before + 500)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        bank = Bank(path, "r")
        print(f"life {life}: killed after {bank.events} events; replayed: {dict(bank.balances)}")
        if bank.events <= before or bank.balances != expected_after(bank.events):
            print("the replayed balances are wrong")
            return 1
        before = bank.events
    if sum(bank.balances.values()) != START * len(ACCOUNTS):
        return 1
    print("every balance is right to the cent, and no money was made or lost")
    return 0


def wait_for_events(path: Path, *, more_than: int) -> None:
    """Look until the log has grown."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        last = serai.Queue(path, "r").last() if path.is_dir() else None
        if last is not None and last.offset // 16 > more_than:
            return
        time.sleep(0.005)
    raise SystemExit("the child writes nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
