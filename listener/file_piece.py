"""Pieces of an answer that are sent directly from a segment's file."""

from __future__ import annotations

import os
import socket
from typing import TypeAlias

from topicfs.storage.model import Buffer, FileSpan

_COPIED_BYTES = 64 << 10
"""How much of a piece is read into memory at a time, to be sent over TLS."""
_TRUNCATED = "a segment was truncated while it was sent"


def is_encrypted(connection: socket.socket) -> bool:
    """Return whether the connection uses TLS. Needs no `ssl`, whose import would delay the start of every server."""
    return type(connection) is not socket.socket


class FilePiece:
    """A part of an answer that is in a file. The file stays open until the part is sent, even if it is deleted."""

    def __init__(self, span: FileSpan) -> None:
        self.fileno = span.file.fileno  # This bound method refers to the file, so the file stays open.
        self._at, self._size = int(span.position), span.size

    def __len__(self) -> int:
        return self._size

    def send_to(self, connection: socket.socket) -> None:
        """Send the piece with sendfile(2), without copying it into this process; over TLS, copy it. Raises OSError."""
        if is_encrypted(connection):
            self._send_encrypted(connection)
        elif connection.sendfile(self, self._at, self._size) < self._size:
            raise OSError(_TRUNCATED)

    def _send_encrypted(self, connection: socket.socket) -> None:
        self.seek(self._at)
        while left := self._at + self._size - self._read_at:
            data = self.read(min(left, _COPIED_BYTES))
            if not data:
                raise OSError(_TRUNCATED)
            connection.sendall(data)

    # `socket.sendfile` also calls these methods of a file. On systems without sendfile(2), it reads the file
    # with them.

    def seek(self, position: int) -> None:
        self._read_at = position

    def read(self, size: int) -> bytes:
        data = os.pread(self.fileno(), size, self._read_at)
        self._read_at += len(data)
        return data


Piece: TypeAlias = Buffer | FilePiece
"""A piece of an answer."""
