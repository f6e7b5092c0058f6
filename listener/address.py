"""Addresses at which a listener accepts connections, and which it tells clients."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import NamedTuple

from topicfs.listener.errors import ListenerError

_ADDRESS = re.compile(r"(?:[A-Z_]+://)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]\s/,]*):(?P<port>[0-9]{1,5})")
_MOST_PORT = 65535


class Endpoint(NamedTuple):
    """A host by its name or number, and a port; 0: any port that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read `HOST:PORT`, or a broker's `PLAINTEXT://HOST:PORT`. Raises ListenerError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not found["host"] or int(found["port"]) > _MOST_PORT:
        raise ListenerError(f"{text}: not an address; name HOST:PORT, as in 127.0.0.1:9092")
    return Endpoint(found["host"].removeprefix("[").removesuffix("]"), int(found["port"]))


def is_loopback(endpoint: Endpoint) -> bool:
    """Return whether only programs of this machine reach the address (ListenerError: no such host)."""
    return all(ip_address(str(place[0]).partition("%")[0]).is_loopback for *_, place in _places(endpoint))


def bound_socket(endpoint: Endpoint) -> socket.socket:
    """Return a socket that listens there (ListenerError)."""
    family, _, _, _, place = _places(endpoint)[0]
    try:
        return socket.create_server(place[:2], family=family, backlog=128)
    except OSError as error:
        raise ListenerError(f"{endpoint}: cannot listen there: {error.strerror or error}") from None


def _places(
    endpoint: Endpoint,
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
    try:
        return socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # type: ignore[return-value]
    except OSError as error:
        raise ListenerError(f"{endpoint}: {error.strerror or error}") from None
