"""The addresses that a listener binds, and the address that it advertises to clients."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from typing import NamedTuple

from topicfs.listener.errors import ListenerError
from topicfs.storage.messages import reason_of

_ADDRESS = re.compile(r"(?:[A-Z_]+://)?(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^:\[\]\s/,]*):(?P<port>[0-9]{1,5})")
MAX_PORT = 65535


class Endpoint(NamedTuple):
    """A host (name or IP address) and a port; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Parse `HOST:PORT` or `PLAINTEXT://HOST:PORT`, the form that brokers use. Raises ListenerError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not found["host"] or int(found["port"]) > MAX_PORT:
        raise ListenerError(f"{text}: not an address; name HOST:PORT, as in 127.0.0.1:9092")
    return Endpoint(found["host"].removeprefix("[").removesuffix("]"), int(found["port"]))


def bound_socket(endpoint: Endpoint, *, any_address: bool, remedy: str) -> socket.socket:
    """Return a socket that listens on `endpoint`. Raises ListenerError.

    `any_address` allows an address that other machines can reach; otherwise the error ends with `remedy`. The host name
    is resolved once, because a second lookup could return another address than the one that was checked.
    """
    # An IPv4 address is passed as bytes: to encode a text, Python would import tables of Unicode.
    host_name: str | bytes = endpoint.host if endpoint.host.strip("0123456789.") else endpoint.host.encode()
    try:
        found = socket.getaddrinfo(host_name, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenerError(f"{endpoint}: {reason_of(error)}") from None
    hosts = [(family, str(place[0])) for family, *_, place in found]
    if not any_address and not all(ip_address(host.partition("%")[0]).is_loopback for _, host in hosts):
        raise ListenerError(
            f"{endpoint}: other machines reach this address, and could read, write and delete every topic; listen at "
            f"127.0.0.1, or {remedy}"
        )
    family, host = hosts[0]
    try:
        return socket.create_server((host, endpoint.port), family=family, backlog=128)
    except OSError as error:
        raise ListenerError(f"{endpoint}: cannot listen there: {error.strerror or error}") from None
