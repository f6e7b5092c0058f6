"""The address for serving metrics: `HOST:PORT`, `:PORT` or `PORT`."""

from __future__ import annotations

import re
from typing import NamedTuple

LOOPBACK = "127.0.0.1"
"""The default host: metrics contain names of topics and groups, which should not be public."""

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]\s/]*):)?(?P<port>[0-9]{1,5})")
MAX_PORT = 65535


class MetricsAddressError(ValueError):
    """The text is not an address to listen on."""


class MetricsAddress(NamedTuple):
    """A host name or IP address, and a port; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_metrics_address(text: str) -> MetricsAddress:
    """Parse an address. Raises MetricsAddressError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > MAX_PORT:
        raise MetricsAddressError(
            f"{text}: not an address to listen at; name HOST:PORT, or a PORT from 0 to {MAX_PORT} of this machine alone"
        )
    host = (found["host"] or LOOPBACK).removeprefix("[").removesuffix("]")
    return MetricsAddress(host, int(found["port"]))
