"""Messages of several types in one queue, told apart by their first byte.

    python examples/type_byte.py [DIR]

serai stores no types: what a message holds is the program's own agreement.  One byte in front is the
cheapest one.
"""

import sys
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path

import serai

TRADE, ORDER = 1, 2


def write(queue: serai.Queue) -> None:
    """Orders, and a trade for every third."""
    writer = queue.writer()
    for number in range(300):
        price = Decimal("100.00") + Decimal(number) / 100
        writer.new_message().pack_byte(ORDER).pack_long(number).pack_string("SERAI").pack_decimal(price).write_message()
        if number % 3 == 0:
            writer.new_message().pack_byte(TRADE).pack_long(number).pack_int(100).pack_boolean(True).write_message()


def read_trade(message: serai.Message) -> str:
    """The values behind a trade's type byte."""
    order, shares, buy = message.unpack("long", "int", "boolean")
    return f"trade of order {order}: {shares} shares {'bought' if buy else 'sold'}"


def read_order(message: serai.Message) -> str:
    """The values behind an order's type byte."""
    number, symbol, price = message.unpack("long", "string", "decimal")
    return f"order {number}: {symbol} at {price}"


READERS = {TRADE: ("trades", read_trade), ORDER: ("orders", read_order)}


def main(path: Path) -> int:
    """Write both types, read them back by their first byte."""
    with serai.Queue(path) as queue:
        write(queue)
        seen: Counter[str] = Counter()
        for message in queue.reader():
            name, read = READERS[message.unpack_byte()]
            text = read(message)
            if seen[name] < 2:
                print(text)
            seen[name] += 1
    print(dict(seen))
    return 0 if seen == {"orders": 300, "trades": 100} else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:  # kept for a look; it must not be there yet
        Path(sys.argv[1]).mkdir(parents=True)
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(main(Path(folder)))
