"""Whether a cluster answers at all: Kafka's clients themselves try for minutes before they say that it does not."""

from __future__ import annotations

import socket

from pipeline.errors import PipelineError
from pipeline.places.place import Place

TIMEOUT_S = 5.0
"""To wait for each of the brokers named."""


def require_reachable(place: Place) -> None:
    """Return when one of the brokers named takes a connection (PipelineError; blocking)."""
    reasons = []
    for server in (place.bootstrap_servers or "").split(","):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_S).close()
        except OSError as error:
            reasons.append(f"{server}: {error.strerror or error}")
        else:
            return
    raise PipelineError(f"{place}: no broker can be reached ({'; '.join(reasons)})")
