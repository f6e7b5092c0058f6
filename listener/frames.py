"""Frames of a connection: receives requests and sends answers.

request int32 size | int16 key, int16 version, int32 correlation id, string client id, tags | the request's fields
answer int32 size | int32 correlation id, tags | the answer's fields
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from topicfs.listener.errors import BadRequestError
from topicfs.listener.file_piece import FilePiece, Piece, is_encrypted
from topicfs.protocol.messages import API_VERSIONS
from topicfs.protocol.notation import Api
from topicfs.storage.model import Buffer

SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
_JOINED_BYTES = 64 << 10
"""Pieces of an answer are joined up to this many bytes, and sent in one call."""
_MORE = getattr(socket, "MSG_MORE", 0)
"""The flag MSG_MORE, which tells the kernel that more data follows. It is 0 on systems that do not have the flag."""


class Head(NamedTuple):
    """The header of a request."""

    key: int
    version: int
    correlation: int
    client_id: str
    size: int
    """Size in bytes of the header's part before the tagged fields."""


def read_head(frame: memoryview) -> Head:
    """Parse a request's header up to its tagged fields. Raises BadRequestError."""
    if len(frame) < _HEAD.size:
        raise BadRequestError(f"a request of {len(frame)} bytes is shorter than its header")
    key, version, correlation, length = _HEAD.unpack_from(frame)
    end = _HEAD.size + max(length, 0)
    if length < -1 or end > len(frame):
        raise BadRequestError(f"a request of {len(frame)} bytes has a client id of {length} bytes")
    return Head(key, version, correlation, bytes(frame[_HEAD.size : end]).decode(errors="replace"), end)


def pass_tags(frame: memoryview, at: int) -> int:
    """Skip the header's tagged fields, which are not used, and return the position after them.

    Raises BadRequestError.
    """
    try:
        count, at = _varint(frame, at)
        for _ in range(count):
            _, at = _varint(frame, at)
            size, at = _varint(frame, at)
            at += size
            if at > len(frame):
                break
    except IndexError:
        at = len(frame) + 1
    if at > len(frame):
        raise BadRequestError("a request ends within its header")
    return at


def _varint(frame: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadRequestError("a varint is longer than five bytes")


def head_of_answer(api: Api, version: int, correlation: int) -> bytes:
    """Return an answer's header.

    The header for ApiVersions has no tags, because the client may not understand tags yet.
    """
    tags = b"\0" if api.is_flexible(version) and api.key != API_VERSIONS.key else b""
    return SIZE.pack(correlation) + tags


def receive(connection: socket.socket, size: int, seconds: float) -> memoryview | None:
    """Receive `size` bytes within `seconds`; None if the client closed the connection. Raises OSError, TimeoutError."""
    deadline = time.monotonic() + seconds
    frame = memoryview(bytearray(size))
    at = 0
    while at < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        received = connection.recv_into(frame[at:])
        if not received:
            return None
        at += received
    return frame


def send(connection: socket.socket, pieces: Sequence[Piece]) -> None:
    """Send the size of an answer, and the answer. Raises OSError."""
    more = 0 if is_encrypted(connection) else _MORE
    pending: list[Buffer] = [SIZE.pack(sum(len(piece) for piece in pieces))]
    pending_bytes = 0
    for piece in pieces:
        if isinstance(piece, FilePiece) or len(piece) > _JOINED_BYTES:
            connection.sendall(b"".join(pending), more)
            pending, pending_bytes = [], 0
            if isinstance(piece, FilePiece):
                piece.send_to(connection)
            else:
                connection.sendall(piece)
            continue
        pending.append(piece)
        pending_bytes += len(piece)
        if pending_bytes > _JOINED_BYTES:
            connection.sendall(b"".join(pending))
            pending, pending_bytes = [], 0
    if pending:
        connection.sendall(b"".join(pending))
