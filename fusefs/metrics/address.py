"""The address for serving metrics: `HOST:PORT`, `:PORT` or `PORT`."""

from __future__ import annotations

from topicfs.listener.address import MAX_PORT, Endpoint, parse_endpoint
from topicfs.listener.errors import ListenerError
from topicfs.storage.errors import InvalidConfigError

LOOPBACK = "127.0.0.1"
"""The default host: metrics contain names of topics and groups, which should not be public."""


def parse_metrics_address(text: str) -> Endpoint:
    """Parse an address. Raises InvalidConfigError."""
    host, _, port = text.rpartition(":")
    try:
        return parse_endpoint(f"{host or LOOPBACK}:{port}")
    except ListenerError:
        raise InvalidConfigError(
            f"{text}: not an address to listen at; write HOST:PORT, or PORT (0 to {MAX_PORT}) for this machine alone"
        ) from None
