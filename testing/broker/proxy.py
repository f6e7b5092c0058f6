"""A port on loopback that leads to another one, and may be cut: to the two ends as if the wire between them was."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK_BYTES = 1 << 16


class Proxy:
    """The way. While it is cut connections stay open, new ones are taken, and no byte passes."""

    def __init__(self, target: int) -> None:
        """`target` is the port that it leads to; a connection to it is made with each that comes in."""
        self._target = target
        self._passable = threading.Event()
        self._passable.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._take, name=f"way to {target}", daemon=True).start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """A block in which nothing passes; what was sent meanwhile arrives afterwards."""
        self._passable.clear()
        try:
            yield
        finally:
            self._passable.set()

    def close(self) -> None:
        """Take no new connections; those there are end with either end."""
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
        """Pass bytes on in one direction until either end closes."""
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._passable.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
