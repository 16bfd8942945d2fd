"""/healthz and /readyz: is the process alive, and should it be sent work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import serai
from serai import limits
from serai.console.asking import answer, house

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def healthz(request: Request) -> Response:
    """Alive."""
    place = house(request)
    return answer({"status": "ok", "version": serai.__version__, "up_s": (place.now_ms() - place.started_ms) // 1000})


async def readyz(request: Request) -> Response:
    """Recovered, disk fine, not on the way out; 503 with the reasons otherwise."""
    place = house(request)
    state = place.state()
    failed = [
        f"partition {partition.number} of topic {topic.name} can only be read: {partition.log.failed}"
        for topic in place.broker.topics.values()
        for partition in topic.opened.values()
        if partition.log.failed is not None
    ]
    if state.disk_free_bytes < limits.DISK_FREE_SCARCE:
        failed.append(f"the disk has {state.disk_free_bytes} bytes free, fewer than {limits.DISK_FREE_SCARCE}")
    if state.is_ending:
        failed.append("the server is ending")
    return answer({"status": "failed" if failed else "ready", "reasons": failed}, 503 if failed else 200)
