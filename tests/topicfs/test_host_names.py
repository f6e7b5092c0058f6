"""Tests of names that no host can have: an error of each kind of address says so in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topicfs.cluster.place import Server
from topicfs.cluster.protocol.connection import Connection
from topicfs.fusefs.metrics.server import MetricsServer
from topicfs.listener.address import Endpoint
from topicfs.listener.listener import Listener, ListenerOptions
from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import place_of, require_reachable
from topicfs.storage.errors import StorageError

ADDRESSES: dict[str, Callable[[str], object]] = {
    "listener": lambda host: Listener(ListenerOptions(endpoint=Endpoint(host, 0))),
    "metrics": lambda host: MetricsServer(Endpoint(host, 0)),
    "client": lambda host: Connection(Server(host, 9092)),
    "Spark": lambda host: require_reachable(place_of(f"kafka://{host}:9092")),
}


@pytest.mark.parametrize("use", ADDRESSES.values(), ids=ADDRESSES)
@pytest.mark.parametrize("host", ["a" * 64, "ü" * 64, "a..b"])
def test_a_name_that_no_host_can_have(use: Callable[[str], object], host: str) -> None:
    """A name with an empty part or a part of more than 63 characters is named in the error."""
    with pytest.raises((StorageError, PipelineError), match=f"{host}.*: not a host name"):
        use(host)
