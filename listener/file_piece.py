"""Pieces of an answer that stay in a segment's file until they are sent."""

from __future__ import annotations

import os
import socket
from typing import TypeAlias

from topicfs.storage.model import Buffer, FileSpan


class FilePiece:
    """A piece of an answer that is in a file. It stays open until this is sent, whatever happens to its name."""

    def __init__(self, span: FileSpan) -> None:
        self.fileno = span.file.fileno  # Keeps it open.
        self._at, self._size = int(span.position), span.size

    def __len__(self) -> int:
        return self._size

    def send_to(self, connection: socket.socket) -> None:
        """Have the kernel send the file's pages, without a copy in this process (OSError)."""
        if connection.sendfile(self, self._at, self._size) < self._size:
            raise OSError("a segment was cut while it was sent")

    # What `socket.sendfile` uses of a file, beside `fileno`; it reads where the kernel cannot send.

    def seek(self, position: int) -> None:
        self._read_at = position

    def read(self, size: int) -> bytes:
        data = os.pread(self.fileno(), size, self._read_at)
        self._read_at += len(data)
        return data


Piece: TypeAlias = Buffer | FilePiece
"""A piece of an answer."""
