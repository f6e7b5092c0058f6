"""The samples of the listener: its connections, the requests of Kafka clients, and the clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric as Family

from topicfs.fusefs.metrics import table
from topicfs.fusefs.metrics.scrape import family, histogram, single

if TYPE_CHECKING:
    from topicfs.listener.listener import Listener


def client_families(listener: Listener) -> Iterator[Family]:
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
