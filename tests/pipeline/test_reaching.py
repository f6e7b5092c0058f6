"""Tests that an unreachable cluster gives an error immediately."""

from __future__ import annotations

import socket

import pytest

from topicfs.pipeline.errors import PipelineError
from topicfs.pipeline.places.place import place_of, require_reachable


@pytest.fixture
def closed_ports():
    """Reserve two ports on which nobody listens."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        yield first.getsockname()[1], second.getsockname()[1]


def test_one_broker_of_several_is_enough(closed_ports):
    """One reachable broker of several is enough, because Kafka's clients learn the other brokers from it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        open_port = listener.getsockname()[1]
        require_reachable(place_of(f"kafka://127.0.0.1:{closed_ports[0]},127.0.0.1:{open_port}"))


def test_an_unreachable_cluster_is_reported_with_every_reason(closed_ports):
    """If no broker is reachable, the error has the reason for each."""
    first, second = closed_ports
    with pytest.raises(PipelineError) as caught:
        require_reachable(place_of(f"kafka://127.0.0.1:{first},127.0.0.1:{second}"))
    assert (
        f"kafka://127.0.0.1:{first},127.0.0.1:{second}: no broker can be reached "
        f"(127.0.0.1:{first}: Connection refused; 127.0.0.1:{second}: Connection refused)"
    ) == str(caught.value)


def test_an_unknown_host_is_reported():
    """The error for an unknown host has its name."""
    with pytest.raises(PipelineError, match=r"no broker can be reached \(no-such-host.invalid:9092: "):
        require_reachable(place_of("kafka://no-such-host.invalid:9092"))
