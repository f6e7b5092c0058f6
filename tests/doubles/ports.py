"""Ports that stay free until a test takes them."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port_of_nobody() -> int:
    """Return a free port of this machine below those that the system gives to whoever asks for any."""
    first, most = 10_000, max(int(RANGE.read_text().split()[0]), 20_000)
    while True:
        port = first + secrets.randbelow(most - first)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
