"""Servers on the loopback address that pass each connection to a function."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeAlias

from topicfs.cluster.place import Server

Serve: TypeAlias = Callable[[socket.socket], None]
Start: TypeAlias = Callable[[Serve], Server]


@contextmanager
def servers() -> Iterator[Start]:
    """Yield a function that starts a server. A connection ends when the server's function returns."""
    with ExitStack() as stack:

        def start(serve: Serve) -> Server:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            # A thread that still waits for a connection would keep the port open after the close.
            stack.callback(lambda: _shut_down(listening))

            def attend(connection: socket.socket) -> None:
                with (
                    connection,
                    suppress(OSError, struct.error),
                ):  # Such an error only means that the connection has ended.
                    serve(connection)

            def accept() -> None:
                with suppress(OSError):
                    while True:
                        connection, _ = listening.accept()
                        threading.Thread(target=attend, args=(connection,), daemon=True).start()

            threading.Thread(target=accept, daemon=True).start()
            return Server(*listening.getsockname())

        yield start


@contextmanager
def nobody_listens() -> Iterator[Server]:
    """Yield an address that refuses connections; no other process can listen there during the block."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield Server(*bound.getsockname())


def _shut_down(listening: socket.socket) -> None:
    with suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
