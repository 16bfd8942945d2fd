"""serai: a message broker and an embedded queue that share one log.  The queue:

    import serai
    with serai.Queue("dir") as queue:
        queue.writer().append(b"hello")
        for message in queue.reader():
            print(message.offset, message.payload)

Names are loaded when they are first used, so that `import serai` costs nothing that is not needed.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if not sys.platform.startswith("linux") or os.uname().machine not in ("x86_64", "aarch64"):
    raise ImportError(f"serai runs on Linux on x86-64 and aarch64; this is {sys.platform} on {os.uname().machine}")

if TYPE_CHECKING:
    from serai._core.arrow import Batch as Batch
    from serai._core.pack import Message as Message
    from serai._core.pack import Writer as Writer
    from serai._core.reader import Reader as Reader
    from serai._core.template import Template as Template
    from serai.client import aio as aio
    from serai.client.sync import Client as Client
    from serai.errors import Backpressure as Backpressure
    from serai.errors import Closed as Closed
    from serai.errors import Corrupt as Corrupt
    from serai.errors import DeadProducer as DeadProducer
    from serai.errors import Denied as Denied
    from serai.errors import DiskFull as DiskFull
    from serai.errors import Locked as Locked
    from serai.errors import Misuse as Misuse
    from serai.errors import NotDurable as NotDurable
    from serai.errors import OutcomeUnknown as OutcomeUnknown
    from serai.errors import PeerError as PeerError
    from serai.errors import QueueFull as QueueFull
    from serai.errors import ReadOnly as ReadOnly
    from serai.errors import Refused as Refused
    from serai.errors import SeraiError as SeraiError
    from serai.errors import TooLarge as TooLarge
    from serai.errors import Unreachable as Unreachable
    from serai.log.follow import merge as merge
    from serai.log.follow import tail as tail
    from serai.log.follow import tail_async as tail_async
    from serai.log.queue import MultiQueue as MultiQueue
    from serai.log.queue import Queue as Queue
    from serai.log.queue import Stat as Stat

__version__ = "0.1.0"

_HOMES = {
    "serai.log.queue": ("Queue", "MultiQueue", "Stat"),
    "serai.log.follow": ("merge", "tail", "tail_async"),
    "serai._core.pack": ("Writer", "Message"),
    "serai._core.reader": ("Reader",),
    "serai._core.arrow": ("Batch",),
    "serai._core.template": ("Template",),
    "serai.client.sync": ("Client",),
    "serai.errors": (
        "SeraiError", "PeerError", "DeadProducer", "Refused", "DiskFull", "Locked", "QueueFull", "Corrupt", "Misuse",
        "ReadOnly", "Closed", "Backpressure", "Denied", "NotDurable", "OutcomeUnknown", "TooLarge", "Unreachable",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"aio": "serai.client.aio"}
__all__ = ["__version__", *_MODULES, *sorted(_HOME_OF)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOME_OF.get(name)
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif home is None:
        raise AttributeError(f"serai has no {name!r}")
    else:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
