"""The loop a server runs on: uvloop, or asyncio's own where uvloop is missing.

Both drive the same sockets: nothing but speed depends on the choice.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from serai import limits
from serai.gate.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from serai.config import Settings


def run(settings: Settings, ready: Callable[[Server], None]) -> None:
    """Serve until a signal ends it."""
    server = Server(settings)
    sys.setswitchinterval(limits.SWITCH_S)
    with asyncio.Runner(loop_factory=_factory()) as runner:
        runner.run(server.serve(ready))


def _factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
