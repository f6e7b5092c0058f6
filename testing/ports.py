"""Ports of 127.0.0.1 for servers that bind them seconds later, or again after a restart.

The kernel may at any moment reuse a port that it assigned (bind to port 0) for the local end of a connection. That
may even be the connection of a client that keeps trying to reach the server: the client then connects to itself. So
these ports are below the kernel's ephemeral range, and an abstract Unix socket for each port keeps other test
processes from using it.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

FIRST_PORT = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVATIONS: list[int] = []
"""File descriptors of the sockets that reserve ports. They stay open until this process ends.

They are not socket objects, because Python prints a warning for each socket object that is still open at its exit.
"""


class NoPortError(Exception):
    """No free port was found below the kernel's ephemeral range."""


def reserve_ports(count: int) -> list[int]:
    """Return free ports that belong to this process until it ends. Raises NoPortError."""
    first_of_kernel = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    chance = random.Random(f"{os.getpid()} {len(_RESERVATIONS)}")
    candidates = chance.sample(range(FIRST_PORT, first_of_kernel), first_of_kernel - FIRST_PORT)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            return ports
        if _reserve(port):
            ports.append(port)
    raise NoPortError(f"fewer than {count} ports are free between {FIRST_PORT} and {first_of_kernel}")


def _reserve(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0topicfs-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _RESERVATIONS.append(claim.detach())
    return True
