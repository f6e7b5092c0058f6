"""The address of a cluster: `kafka://host:9092`, or several brokers separated by commas."""

import re
from typing import NamedTuple

from topicfs.storage.errors import StorageError

SCHEME = "kafka://"
EXAMPLE = "kafka://host:9092, or kafka://one:9092,two:9092"
MAX_PORT = 65_535
_SERVER = r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]*)(:(?P<port>[^:/]*))?"


class AddressError(StorageError):
    """Raised for a text that is not a cluster's address."""


class Server(NamedTuple):
    """One broker's host and port. An IPv6 address has no brackets here."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ClusterAddress(NamedTuple):
    """Some brokers of a cluster. The client learns the addresses of the other brokers from them."""

    servers: tuple[Server, ...]

    @property
    def bootstrap_servers(self) -> str:
        """The brokers as Kafka's setting bootstrap.servers."""
        return ",".join(map(str, self.servers))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bootstrap_servers}"


def is_cluster(text: str) -> bool:
    """Return whether a text is meant to be the address of a cluster."""
    return text[: len(SCHEME)].lower() == SCHEME


def cluster_address(text: str) -> ClusterAddress:
    """Parse an address. Raises AddressError."""
    if not is_cluster(text):
        raise AddressError(f"{text}: is not a cluster; expected {EXAMPLE}")
    servers = text[len(SCHEME) :].removesuffix("/").split(",")
    return ClusterAddress(tuple(_server(server.strip(), text) for server in servers))


def _server(server: str, text: str) -> Server:
    match = re.fullmatch(_SERVER, server)
    if match is None:
        raise AddressError(f"{text}: {server!r} is not host:port; expected {EXAMPLE}")
    host, port = match["host"], match["port"]
    if not host:
        raise AddressError(f"{text}: no host; expected {EXAMPLE}")
    if not port:
        raise AddressError(f"{text}: {host} has no port; expected {EXAMPLE}")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= MAX_PORT):
        raise AddressError(f"{text}: {port!r} is not a port (1 to {MAX_PORT})")
    return Server(host.strip("[]"), int(port))
