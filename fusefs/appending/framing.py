"""Splits bytes that arrive in arbitrary pieces into lines or record batches, with pure functions.

A line is a record. The bytes after the last newline wait for the rest of the line. If the beginning of a line was
refused, the remainder of that line is refused too, so that no part of a line becomes a record. A batch contains its
own length. After a batch was refused, the start of the next batch is unknown, so nothing more is accepted.
"""

from __future__ import annotations

from typing import NamedTuple

from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import CODEC_MASK, CURRENT_MAGIC
from topicfs.storage.codec.binary.frame import FRAME_SIZE, size_at
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError


class FramingState(NamedTuple):
    """The state that an open file keeps between two writes."""

    tail: bytes = b""
    """The beginning of an incomplete line."""
    refused: Exception | None = None
    """Why the beginning of the current line was refused. If set, the rest of the line is refused too."""


NOTHING = FramingState()


class Framed(NamedTuple):
    """The data of a write, split into lines or batches."""

    lines: bytes
    """Whole lines, each with its newline, or whole batches; empty if no line or batch is complete."""
    waiting: FramingState
    """The state to use if this write is accepted."""

    @property
    def is_empty(self) -> bool:
        """True if the write contained only the remainder of a refused line."""
        return not self.lines and not self.waiting.tail


def frame(waiting: FramingState, data: bytes) -> Framed:
    """Split `data`, which follows `waiting`, after its last newline."""
    if waiting.refused is not None:
        line_end = data.find(b"\n") + 1
        if not line_end:
            return Framed(b"", waiting)
        waiting, data = NOTHING, data[line_end:]
    cut = data.rfind(b"\n") + 1
    if not cut:
        return Framed(b"", FramingState(waiting.tail + data))
    if cut == len(data):
        return Framed(waiting.tail + data if waiting.tail else data, NOTHING)
    # Avoid a second copy of up to 1 MiB.
    return Framed(waiting.tail + memoryview(data)[:cut], FramingState(data[cut:]))


SPREAD_BYTES = 4096
"""Largest size of lines that the event loop's thread distributes to many partitions, in a few milliseconds."""

PARSED_BYTES = 16384
"""Largest size of JSON lines that the event loop's thread parses, in a few milliseconds."""


class Framing:
    """Splits a file's bytes into records. In this base class, a record is a line.

    A line ends with a newline or at the end of the file.
    """

    lingers = True
    """True if acks=0 may combine the lines of several writers in a batch."""
    asks_elsewhere = False
    """True if appending may send a request to a schema registry, for which the event loop's thread must not wait."""

    def __init__(self, inline_bytes: int | None = None) -> None:
        """`inline_bytes` is the most that the event loop's thread appends at a time; None: no limit."""
        self._inline_bytes = inline_bytes
        self.may_take_long = inline_bytes is not None
        """True if `takes_long` may return True."""

    def takes_long(self, framed: bytes) -> bool:
        """Return whether appending `framed` takes too long for the event loop's thread."""
        return self._inline_bytes is not None and len(framed) > self._inline_bytes

    def is_whole(self, data: bytes) -> bool:
        """Return whether `data` certainly consists of whole records, if no incomplete record precedes `data`."""
        return data.endswith(b"\n")

    def frame(self, waiting: FramingState, data: bytes, limit: int) -> Framed:
        """Split `data`, which follows `waiting`, after the last whole record; at most `limit` bytes may wait.

        Raises RecordTooLargeError, InvalidRecordError.
        """
        framed = frame(waiting, data)
        if framed.waiting is not NOTHING and len(framed.waiting.tail) > limit:
            raise RecordTooLargeError(f"a line is longer than max.message.bytes={limit}")
        return framed

    def after_refusal(self, data: bytes, error: Exception) -> FramingState:
        """Return the state after `data` was refused with `error`."""
        return NOTHING if data.endswith(b"\n") else FramingState(refused=error)

    def ended(self, tail: bytes) -> bytes:
        """Return the text to append for an incomplete record when its file is closed. Raises InvalidRecordError."""
        return tail + b"\n"


class SchemaLineFraming(Framing):
    """Lines of JSON that are encoded with a schema, perhaps from a registry."""

    lingers = False
    asks_elsewhere = True


class BatchFraming(Framing):
    """Record batches, which contain their own length; only whole batches are appended."""

    lingers = False
    """Batches are large, and a refused batch must not affect the batches of other writers."""

    def takes_long(self, framed: bytes) -> bool:
        """Return whether checking `framed` may take long, because a batch is compressed or has an old format."""
        scanned = scan(framed)
        plain = zip(scanned.column("magic"), scanned.column("attributes"), strict=True)
        return any(magic != CURRENT_MAGIC or attributes & CODEC_MASK for magic, attributes in plain)

    def is_whole(self, data: bytes) -> bool:
        return False

    def frame(self, waiting: FramingState, data: bytes, limit: int) -> Framed:
        if waiting.refused is not None:
            raise InvalidRecordError(
                "an earlier batch was refused, so the start of this one is unknown; open the file again"
            )
        data = waiting.tail + data if waiting.tail else data
        cut = _end_of_batches(data, limit)
        return Framed(data[:cut], FramingState(data[cut:]))

    def after_refusal(self, data: bytes, error: Exception) -> FramingState:
        return FramingState(refused=error)

    def ended(self, tail: bytes) -> bytes:
        raise InvalidRecordError(f"the last batch is incomplete: only {len(tail)} bytes of it were written")


LINES = Framing()
PARTITIONED_LINES = Framing(SPREAD_BYTES)
JSON_LINES = Framing(PARSED_BYTES)
SCHEMA_LINES = SchemaLineFraming()
BATCHES = BatchFraming(0)


def _end_of_batches(data: bytes, limit: int) -> int:
    """Return the position after the last whole batch.

    Raises RecordTooLargeError for a batch above `limit`, and InvalidRecordError for bytes that are not a batch.
    """
    at = 0
    while len(data) - at >= FRAME_SIZE:
        size = size_at(data, at)
        if size is None:
            raise InvalidRecordError(f"no record batch at byte {at} of the written data")
        if size > limit:
            raise RecordTooLargeError(f"a batch of {size} bytes exceeds max.message.bytes={limit}")
        if at + size > len(data):
            break
        at += size
    return at
