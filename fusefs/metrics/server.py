"""Serves the metrics over HTTP, in its own threads, so that a slow scraper does not block anything else.

A few scrapes are answered at a time, each within a time limit; further scrapers are asked to try again.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from contextlib import suppress
from io import StringIO
from socketserver import ThreadingMixIn
from typing import Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.exposition import make_wsgi_app
from prometheus_client.registry import Collector, CollectorRegistry

from topicfs.listener.address import Endpoint
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of

MAX_CONCURRENT_SCRAPES = 4
"""Number of scrapes that are answered at a time."""
CLIENT_TIMEOUT_SECONDS = 10.0
"""Time limit for a scraper to send its request and to receive the answer."""
BREATHER_SECONDS = 0.1
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
_REMEDIES = {
    errno.EADDRINUSE: "; another program uses this port: choose another one",
    errno.EACCES: "; only root may use ports below 1024: choose a higher one",
    errno.EADDRNOTAVAIL: "; this machine has no such address",
}


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_SECONDS
    wbufsize = -1
    """Send headers and body together. If a kill came between them, some clients would see an empty answer."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing: scrapes are not worth an entry."""

    def get_stderr(self) -> TextIO:
        """Discard the tracebacks that the library writes for unreadable headers, which anybody may send."""
        return StringIO()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        self._answering: dict[socket.socket, float] = {}
        """Connections being answered and their start times, the oldest first."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without a DNS lookup of this machine's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _NOTHING_LEFT:  # Accepting the connection is tried again immediately.
                time.sleep(BREATHER_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._answering) >= MAX_CONCURRENT_SCRAPES:
            self._end_oldest()
            with suppress(OSError):
                request.settimeout(0)
                request.send(_BUSY)
            self.shutdown_request(request)
            return
        self._answering[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # The thread could not be started.
            self._answering.pop(request, None)
            raise

    def _end_oldest(self) -> None:
        """Close the oldest connection if its time is up. A client that sends single bytes could use it for ever."""
        for request, began in list(self._answering.items())[:1]:
            if time.monotonic() - began > CLIENT_TIMEOUT_SECONDS:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._answering.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore scrapers that disconnect or are too slow."""


class MetricsServer:
    """An HTTP server for metrics. It listens as soon as it is constructed; `serve` starts answering."""

    def __init__(self, asked: Endpoint) -> None:
        """Listen on `asked`. Raises StorageError with the remedy if that fails."""
        try:
            found = socket.getaddrinfo(
                asked.host, asked.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            self._server = _Server(family, address)
        except (OSError, UnicodeError) as error:
            remedy = _REMEDIES.get(error.errno or 0, "") if isinstance(error, OSError) else ""
            raise StorageError(f"--metrics {asked}: {reason_of(error)}{remedy}") from None
        self.address = Endpoint(str(self._server.server_address[0]), int(self._server.server_port))
        """The address; if port 0 was requested, with the port that the system chose."""
        self._thread: threading.Thread | None = None
        self._closed = False

    def serve(self, collector: Collector) -> None:
        """Answer scrapes, in threads."""
        registry = CollectorRegistry()
        registry.register(collector)
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self._server.handle_request()

    def close(self) -> None:
        """Stop answering; running answers finish unless the process ends. May be called more than once."""
        self._closed = True
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # Wakes the thread that waits for a connection.
        if self._thread is not None:
            self._thread.join(CLIENT_TIMEOUT_SECONDS)
        self._server.server_close()
