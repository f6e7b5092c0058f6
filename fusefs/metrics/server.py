"""The metrics over HTTP, in threads of their own: who scrapes slowly, or not at all, keeps nobody else waiting.

Few are answered at the same time, each within a bound of time; whoever comes beyond is told to come again.
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

from topicfs.fusefs.metrics.address import MetricsAddress
from topicfs.storage.errors import StorageError
from topicfs.storage.messages import reason_of

MAX_CONCURRENT_SCRAPES = 4
"""Scrapes that are answered at the same time."""
CLIENT_TIMEOUT_SECONDS = 10.0
"""How long a scraper may take to ask, and to take what it is answered."""
BREATHER_SECONDS = 0.1
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
_REMEDIES = {
    errno.EADDRINUSE: "; another program listens there: name another port",
    errno.EACCES: "; ports below 1024 are root's: name a higher one",
    errno.EADDRNOTAVAIL: "; this machine has no such address",
}


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT_SECONDS
    wbufsize = -1
    """Headers and what follows go together: half of the headers, where the process ends, is an empty answer to some clients."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing: a scrape is no news."""

    def get_stderr(self) -> TextIO:
        """Return where the library writes a traceback for each header that it cannot read: nowhere, for anybody may send one."""
        return StringIO()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        self._answering: dict[socket.socket, float] = {}
        """The connections that are being answered, and since when, the oldest first."""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without asking the network how this machine is called."""
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
            if error.errno in _NOTHING_LEFT:  # It comes again at once.
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
        except BaseException:  # No thread could be begun.
            self._answering.pop(request, None)
            raise

    def _end_oldest(self) -> None:
        """End the connection that takes longest, if it had its time: one that sends a byte now and then would never end."""
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
        """Say nothing of a scraper that went away, or was too slow."""


class MetricsServer:
    """Listens from its making on; `serve` begins to answer."""

    def __init__(self, asked: MetricsAddress) -> None:
        """Listen. Raises StorageError where that is not possible, with the remedy."""
        try:
            found = socket.getaddrinfo(
                asked.host, asked.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, _, _, _, address = found[0]
            self._server = _Server(family, address)
        except OSError as error:
            cause = error.strerror or reason_of(error)
            remedy = _REMEDIES.get(error.errno or 0, "")
            raise StorageError(f"--metrics {asked}: {cause}{remedy}") from None
        self.address = MetricsAddress(str(self._server.server_address[0]), int(self._server.server_port))
        """The address, with the port that was free where any might be."""
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
        """Answer no more; who is being answered gets the rest, or the end of the process. Idempotent."""
        self._closed = True
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # Wakes who waits for the next one.
        if self._thread is not None:
            self._thread.join(CLIENT_TIMEOUT_SECONDS)
        self._server.server_close()
