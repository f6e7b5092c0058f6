"""The listener: one thread accepts connections, and each connection has its own thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from topicfs.coordination.engine import Engine
from topicfs.listener.address import Endpoint, bound_socket
from topicfs.listener.broker import Broker
from topicfs.listener.connection import ClientConnection
from topicfs.listener.counts import ListenerCounts
from topicfs.listener.limits import ListenerLimits
from topicfs.listener.requests.table import import_handlers
from topicfs.listener.security.files import SecurityFiles
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.live_settings import reloaded_config
from topicfs.storage.errors import StorageError

_LOGGER = logging.getLogger("topicfs")

ANSWER_SECONDS = 5.0
"""Time for which `close` waits until the requests in progress are answered. After it, `close` cuts the connections."""
SHUTDOWN_TIMEOUT_SECONDS = 10.0
"""Longest time that `close` takes. A request that the disk delays for longer finds a closed engine."""

IMPORT_SECONDS = 5.0
"""Time from the start until the listener imports the code that no request has needed yet."""
SHOWN_CLIENTS = 10
"""Number of clients that `@status` shows."""


class ListenerOptions(NamedTuple):
    """The addresses of a listener, and who may connect."""

    endpoint: Endpoint
    advertised: Endpoint | None = None
    """The address that the listener names to clients (a broker's advertised.listeners). None: `endpoint`."""
    any_address: bool = False
    """True to accept connections from other machines even without TLS or without authentication."""
    security: SecurityFiles = SecurityFiles()
    remedy: str = "require TLS and users with --tls-certificate and --listen-users, or add --listen-any"
    """What an error suggests for an address that other machines can reach."""
    limits: ListenerLimits | None = None
    """The limits for clients. None: the limits of the settings."""


class Listener:
    """Serves an engine to Kafka clients. The constructor binds the port, and `serve` starts serving."""

    def __init__(self, options: ListenerOptions) -> None:
        """Read the certificate and the users, and bind the address. Raises ListenerError, NotAPlainFileError."""
        self._options = options
        self._security = options.security.read()
        any_address = options.any_address or options.security.keep_strangers_out
        self._socket = bound_socket(options.endpoint, any_address=any_address, remedy=options.remedy)
        self.endpoint = Endpoint(options.endpoint.host, self._socket.getsockname()[1])
        """The bound address, with its actual port."""
        self._connections: dict[ClientConnection, threading.Thread] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._broker: Broker | None = None
        self._thread = threading.Thread(target=self._accept, name="listener", daemon=True)
        self._importing = threading.Timer(IMPORT_SECONDS, import_handlers)
        self._importing.daemon = True

    def serve(self, engine: Engine, config: EngineConfig) -> None:
        """Start accepting connections, and return immediately."""
        advertised = self._options.advertised or self.endpoint
        limits = self._options.limits or ListenerLimits.of(config)
        self._broker = Broker(engine, advertised, config, limits)
        self._thread.start()
        self._importing.start()

    @property
    def counts(self) -> ListenerCounts | None:
        """The counts of the clients' requests; None before `serve`."""
        return None if self._broker is None else self._broker.counts

    @property
    def connections(self) -> tuple[int, int]:
        """The number of open connections, and its limit; two zeros before `serve`."""
        return (
            (0, 0) if self._broker is None else (len(self._connections), self._broker.limits.max_connections)
        )

    def status_lines(self) -> list[str]:
        """Return lines for `@status`: the address, the number of connections, and the clients that have the most."""
        opened, limit = self.connections
        clients = [] if self.counts is None else self.counts.clients().items()
        shown = sorted(clients, key=lambda one: (-one[1].connections, -one[1].requests, one[0]))
        return [
            f"listener {self.endpoint}",
            f"connections {opened} of {limit}",
            *(
                f"client connections {one.connections} requests {one.requests} errors {one.errors} received_bytes "
                f"{one.received_bytes} sent_bytes {one.sent_bytes} software {name.software or '-'} id {name.client}"
                for name, one in shown[:SHOWN_CLIENTS]
            ),
        ]

    def reconfigure(self, config: EngineConfig) -> None:
        """Use the settings of a reloaded engine, and read the certificate and the users again for new connections.

        The address and the limits do not change.
        """
        if self._broker is not None:
            self._broker.config = reloaded_config(self._broker.config, config)
        try:
            self._security = self._options.security.read()
        except StorageError as error:
            _LOGGER.warning("the listener keeps its certificate and users: %s", error)

    def close(self) -> None:
        """Answer the requests in progress and end all connections. Blocks for at most `SHUTDOWN_TIMEOUT_SECONDS`.

        The caller closes the engine afterwards.
        """
        self._importing.cancel()
        with self._lock:
            self._ended = True
            connections = dict(self._connections)
        with suppress(OSError):
            self._socket.shutdown(2)  # This ends `accept` in the other thread.
        self._socket.close()
        if self._broker is not None:
            self._broker.memory.end()
        begun = time.monotonic()
        for connection in connections:
            connection.end()
        threads = (self._thread, *connections.values())
        if not _ended(threads, begun + ANSWER_SECONDS):
            for connection in connections:
                connection.cut()
            if not _ended(threads, begun + SHUTDOWN_TIMEOUT_SECONDS):
                _LOGGER.warning(
                    "%s: requests are still running after %d s", self.endpoint, SHUTDOWN_TIMEOUT_SECONDS
                )
        if self._broker is not None:
            self._broker.close()

    def _accept(self) -> None:
        assert self._broker is not None
        while True:
            try:
                connected, place = self._socket.accept()
            except OSError as error:
                if self._ended:
                    return
                _LOGGER.warning(
                    "%s: %s", self.endpoint, error
                )  # No descriptor is free, or the client has disconnected.
                threading.Event().wait(0.1)
                continue
            connection = ClientConnection(self._broker, connected, str(place[0]), self._security)
            thread = threading.Thread(target=self._run, args=(connection,), name="connection", daemon=True)
            with self._lock:
                full = self._ended or self._is_full(connection.host)
                if not full:
                    self._connections[connection] = thread
            if full:
                connected.close()
                continue
            try:
                thread.start()
            except RuntimeError as error:  # The process may not start more threads.
                _LOGGER.warning("%s: connection closed: %s", place[0], error)
                with self._lock:
                    self._connections.pop(connection, None)
                connected.close()

    def _is_full(self, host: str) -> bool:
        """Return whether no further connection from `host` may be served; the caller holds the lock."""
        assert self._broker is not None
        limits = self._broker.limits
        from_host = sum(one.host == host for one in self._connections)
        return len(self._connections) >= limits.max_connections or from_host >= limits.max_connections_per_ip

    def _run(self, connection: ClientConnection) -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                self._connections.pop(connection, None)


def _ended(threads: Iterable[threading.Thread], deadline: float) -> bool:
    """Wait until `deadline` for `threads`, and return whether all of them ended.

    A thread that has not started yet is left out; it ends by itself.
    """
    begun = [thread for thread in threads if thread.ident is not None]
    for thread in begun:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in begun)
