"""A port on loopback that forwards to another port, and can be cut like a network cable."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

RELAY_BYTES = 1 << 16


class Proxy:
    """A proxy. While it is cut, connections stay open, new connections are accepted, and no byte is forwarded."""

    def __init__(self, target: int) -> None:
        """`target` is the port to which each incoming connection is forwarded, over a connection of its own."""
        self._target = target
        self._passable = threading.Event()
        self._passable.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._take, name=f"way to {target}", daemon=True).start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Cut the proxy during a `with` block. Bytes that are sent meanwhile arrive after the block."""
        self._passable.clear()
        try:
            yield
        finally:
            self._passable.set()

    def close(self) -> None:
        """Accept no new connections. An existing connection ends when its client or its server closes it."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _take(self) -> None:
        while True:
            try:
                came, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(came,), daemon=True).start()

    def _lead(self, came: socket.socket) -> None:
        self._passable.wait()
        with came, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as on:
            back = threading.Thread(target=self._pass, args=(on, came), daemon=True)
            back.start()
            self._pass(came, on)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        """Forward bytes in one direction until the client or the server closes the connection."""
        with suppress(OSError):
            while data := source.recv(RELAY_BYTES):
                self._passable.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
