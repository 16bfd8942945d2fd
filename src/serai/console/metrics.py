"""/metrics: what Prometheus wants to know, made when it asks.

Nothing is counted twice: each number is read from where it lives, in the broker, the gate or the log.  `prometheus_client` writes
the text; it is loaded at the first question, in a thread, since it brings a web server of its own along.  Files are measured
in a thread too: there may be ten thousand logs.

Invariant: at most `METRIC_TOPICS_MAX` topics have a label of their own, the rest are `other`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from serai import limits
from serai.console.asking import house

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from starlette.requests import Request

    from serai.console.house import House
    from serai.log.engine import Log

OTHER = "other"


async def metrics(request: Request) -> Response:
    """Every number, as text."""
    library = await asyncio.to_thread(_library)
    place = house(request)
    held = await asyncio.to_thread(held_bytes, list(logs_of(place)))
    text = library.generate_latest(Numbers(place, library, held))
    return Response(text, media_type=library.CONTENT_TYPE_LATEST)


def _library() -> Any:
    import prometheus_client
    import prometheus_client.core

    return prometheus_client


def logs_of(place: House) -> Iterator[tuple[str, Log]]:
    """The logs in use, each with the label of its topic."""
    for at, topic in enumerate(place.broker.topics.values()):
        name = topic.name if at < limits.METRIC_TOPICS_MAX else OTHER
        for partition in topic.opened.values():
            yield name, partition.log


def held_bytes(logs: Iterable[tuple[str, Log]]) -> Counter[str]:
    """What the files of logs take, by label."""
    held = Counter[str]()
    for name, log in logs:
        held[name] += log.disk_bytes()
    return held


class Numbers:
    """The numbers of one moment, as a collector; `held`: bytes on the disk by topic."""

    def __init__(self, place: House, library: Any, held: Mapping[str, int]) -> None:
        self._place = place
        self._held = held
        self._histogram = library.core.HistogramMetricFamily
        self._gauge = library.core.GaugeMetricFamily
        self._counter = library.core.CounterMetricFamily

    def collect(self) -> Iterator[Any]:
        """All families."""
        yield from self._of_the_broker()
        yield from self._of_the_port()
        yield from self._of_the_disk()
        yield from self._of_topics()
        yield from self._of_groups()

    def _of_the_broker(self) -> Iterator[Any]:
        counts = self._place.broker.counts
        for name, text, value in (
            ("serai_produced_messages", "Messages produced since the start", counts.produced_messages),
            ("serai_bytes_in", "Bytes of messages produced since the start", counts.produced_bytes),
            ("serai_delivered_messages", "Messages delivered with a lease since the start", counts.delivered),
            ("serai_acked_messages", "Messages acknowledged since the start", counts.acked),
            ("serai_redeliveries", "Messages delivered again since the start", counts.redelivered),
        ):
            yield self._counter(name, text, value=value)
        for name, text, level in (
            ("serai_waits", "Requests that are parked", counts.waits),
            ("serai_sessions", "Sessions of the broker", counts.sessions),
            ("serai_topics", "Topics", counts.topics),
            ("serai_epoch", "Starts of this data directory", self._place.broker.engine.epoch),
            (
                "serai_start_time_seconds",
                "When the server started, in seconds since 1970",
                self._place.started_ms / 1000,
            ),
        ):
            yield self._gauge(name, text, value=level)

    def _of_the_port(self) -> Iterator[Any]:
        state = self._place.state()
        connections = self._gauge("serai_connections", "Connections by door", labels=["door"])
        for door, count in state.connections.items():
            connections.add_metric([door], count)
        yield connections
        errors = self._counter(
            "serai_frame_errors",
            "Connections that were shown out: they broke the rules, or were silent, slow, idle, or left answers untaken",
            labels=["door", "reason"],
        )
        for (door, reason), count in state.shown_out.items():
            errors.add_metric([door, reason], count)
        yield errors
        yield self._histogram(
            "serai_produce_seconds",
            "From a request that waits for the disk being handled to its answer: the first, so the longest, of each turn",
            buckets=state.produce_times.steps(), sum_value=state.produce_times.total_s,
        )  # fmt: skip
        yield self._gauge("serai_inflight_bytes", "Answers that nobody has taken yet", value=state.untaken_bytes)
        yield self._gauge("serai_disk_free_bytes", "Free bytes where the data are", value=state.disk_free_bytes)

    def _of_the_disk(self) -> Iterator[Any]:
        condition = self._place.broker.engine.condition()
        yield self._histogram(
            "serai_flush_seconds", "Syncs of the thread that brings messages to the disk",
            buckets=condition.times.steps(), sum_value=condition.times.total_s,
        )  # fmt: skip
        yield self._counter(
            "serai_fsync_errors",
            "Logs that take nothing more since a sync failed, since the start",
            value=condition.failures,
        )
        yield self._counter(
            "serai_corrupt_records",
            "Records and index entries that were found damaged since the start",
            value=condition.damaged,
        )

    def _of_topics(self) -> Iterator[Any]:
        written, held, failed = Counter[str](), Counter[str](), 0
        for name, log in logs_of(self._place):
            written[name] += log.end
            held[name] += log.end - log.first
            failed += log.failed is not None
        family = self._counter(
            "serai_messages_in", "Messages ever stored, of topics in use since the start", labels=["topic"]
        )
        for name, count in written.items():
            family.add_metric([name], count)
        yield family
        family = self._gauge("serai_messages", "Messages held, of topics in use since the start", labels=["topic"])
        for name, count in held.items():
            family.add_metric([name], count)
        yield family
        family = self._gauge(
            "serai_log_bytes",
            "Bytes on the disk held by the log, reserved ones too, of topics in use",
            labels=["topic"],
        )
        for name, count in self._held.items():
            family.add_metric([name], count)
        yield family
        yield self._gauge(
            "serai_failed_partitions", "Partitions that can only be read since a flush failed", value=failed
        )

    def _of_groups(self) -> Iterator[Any]:
        out = self._counter("serai_messages_out", "Messages delivered since the start", labels=["topic", "group"])
        volume = self._counter(
            "serai_bytes_out",
            "Bytes of messages delivered since the start, as they lie in the log",
            labels=["topic", "group"],
        )
        lag = self._gauge("serai_group_lag", "Messages before the end", labels=["topic", "group", "partition"])
        for topic in list(self._place.broker.topics.values())[: limits.METRIC_TOPICS_MAX]:
            for group in topic.groups.values():
                out.add_metric([topic.name, group.name], group.delivered)
                volume.add_metric([topic.name, group.name], group.delivered_bytes)
                for number, share in group.shares.items():
                    log = share.partition.log
                    lag.add_metric(
                        [topic.name, group.name, str(number)], log.end - max(share.progress.position, log.first)
                    )
        yield out
        yield volume
        yield lag
