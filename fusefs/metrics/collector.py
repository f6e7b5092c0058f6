"""The collector that Prometheus' library calls for each scrape, and its text output."""

from __future__ import annotations

import errno
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from topicfs.coordination.engine import Engine
from topicfs.fusefs.metrics import table
from topicfs.fusefs.metrics.engine import engine_families
from topicfs.fusefs.metrics.scrape import Pace, family, histogram, single
from topicfs.fusefs.metrics.table import Metric, MetricKind
from topicfs.fusefs.requests.request_counts import RequestCounts

if TYPE_CHECKING:
    from topicfs.listener.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMount:
    """The parts of a daemon that are measured besides its engine."""

    counts: RequestCounts
    gauges: Callable[[], Mapping[Metric, int]]
    started_ms: int
    """Start of the daemon, in milliseconds since 1970."""


class MetricsCollector(Collector):
    """The metrics of an engine, and of its mount and its listener if it has them. Scrapes run one after the other."""

    def __init__(
        self, engine: Engine, mount: WatchedMount | None = None, listener: Listener | None = None
    ) -> None:
        self._engine, self._mount, self._listener = engine, mount, listener
        self._turn = threading.Lock()

    def collect(self) -> Iterator[Family]:
        """Yield the families of one scrape."""
        with self._turn:
            pace = Pace()
            yield from pace.paced(self._families(pace))

    def describe(self) -> Iterable[Family]:
        """Return all families without samples: Prometheus' library needs their names, so that a scrape can select them."""
        return [
            histogram(one, ()) if one.kind is MetricKind.HISTOGRAM else family(one, ())
            for one in table.METRICS
        ]

    def _families(self, pace: Pace) -> Iterator[Family]:
        yield self._build()
        if self._mount is not None:
            yield single(table.START_TIME, self._mount.started_ms / 1000)
            yield from _mount_families(self._mount)
        if self._listener is not None:
            yield from _client_families(self._listener)
        yield from engine_families(self._engine, pace)

    def _build(self) -> Family:
        kind = "cluster" if self._engine.remote else "directory"
        labels = (version("topicfs"), platform.python_version(), kind)
        return family(table.BUILD, [(labels, 1)])

    def text(self) -> str:
        """Return all metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self).decode()


def _mount_families(mount: WatchedMount) -> Iterator[Family]:
    counts = mount.counts
    durations = counts.durations()
    yield histogram(
        table.REQUEST_DURATION, (((kind,), one.buckets, one.total_ns) for kind, one in durations.items())
    )
    errors = sorted(counts.errors().items())
    yield family(
        table.REQUEST_ERRORS,
        (((kind, errno.errorcode.get(number, str(number))), count) for (kind, number), count in errors),
    )
    yield single(table.READ_BYTES, counts.bytes_read)
    yield single(table.WRITTEN_BYTES, counts.bytes_written)
    for gauge, value in mount.gauges().items():
        yield single(gauge, value)


def _client_families(listener: Listener) -> Iterator[Family]:
    """Yield the listener's counters and gauges."""
    opened, limit = listener.connections
    yield single(table.CONNECTIONS, opened)
    yield single(table.MAX_CONNECTIONS, limit)
    counts = listener.counts
    if counts is None:
        return
    durations = counts.durations().items()
    yield histogram(
        table.CLIENT_REQUEST_DURATION, (((kind,), one.buckets, one.total_ns) for kind, one in durations)
    )
    yield family(table.ANSWERED_ERRORS, counts.errors().items())
    clients = counts.clients().items()
    yield family(table.CLIENT_CONNECTIONS, ((name, one.connections) for name, one in clients))
    yield family(table.CLIENT_REQUESTS, ((name, one.requests) for name, one in clients))
    yield family(table.CLIENT_ERRORS, ((name, one.errors) for name, one in clients))
    yield family(table.CLIENT_RECEIVED, ((name, one.received_bytes) for name, one in clients))
    yield family(table.CLIENT_SENT, ((name, one.sent_bytes) for name, one in clients))
