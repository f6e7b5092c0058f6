"""Lines, or record batches, out of bytes that arrive in arbitrary pieces, as pure functions.

A record is a line. The bytes after the last newline wait. When the beginning of a line was refused, its rest is
refused too, up to its newline, so that no part of a line becomes a record. A batch says how long it is; after a refusal
nobody knows where the next one begins, so that nothing more is taken.
"""

from __future__ import annotations

from typing import NamedTuple

from topicfs.storage.codec.batch import scan
from topicfs.storage.codec.binary.fields import CODEC_MASK, CURRENT_MAGIC
from topicfs.storage.codec.binary.frame import FRAME_SIZE, size_at
from topicfs.storage.errors import InvalidRecordError, RecordTooLargeError


class Waiting(NamedTuple):
    """The state that an open file keeps between two writes."""

    tail: bytes = b""
    """The begun line."""
    refused: Exception | None = None
    """The error for which the beginning of the present line was not kept: its rest, up to the next newline, is not kept either."""


NOTHING = Waiting()


class Framed(NamedTuple):
    """One write, divided into lines or batches."""

    lines: bytes
    """Whole lines, each with its newline, or whole batches; empty when none was completed."""
    waiting: Waiting
    """The state that follows when this write is accepted."""

    @property
    def is_empty(self) -> bool:
        """True if the write brought nothing but the rest of a refused line."""
        return not self.lines and not self.waiting.tail


def frame(waiting: Waiting, data: bytes) -> Framed:
    """Cut `data`, which follows `waiting`, after its last newline."""
    if waiting.refused is not None:
        line_end = data.find(b"\n") + 1
        if not line_end:
            return Framed(b"", waiting)
        waiting, data = NOTHING, data[line_end:]
    cut = data.rfind(b"\n") + 1
    if not cut:
        return Framed(b"", Waiting(waiting.tail + data))
    if cut == len(data):
        return Framed(waiting.tail + data if waiting.tail else data, NOTHING)
    # One copy of what may be a MiB.
    return Framed(waiting.tail + memoryview(data)[:cut], Waiting(data[cut:]))


SPREAD_BYTES = 4096
"""Most bytes of lines that go to many partitions in the event loop's thread: a few milliseconds' worth."""

PARSED_BYTES = 16384
"""Most bytes of lines of JSON that are taken apart in the event loop's thread: a few milliseconds' worth."""


class Framing:
    """The rules by which a file's bytes are cut into records: lines, here. A line ends with its newline, or with its file."""

    lingers = True
    """True if acks=0 may put together what several writers wrote."""
    asks_elsewhere = False
    """True if what is appended may have to be asked for elsewhere: in the event loop's thread it never is."""
    may_take_long = False
    """True if `takes_long` is ever true."""

    def takes_long(self, framed: bytes) -> bool:
        """Return whether appending what was framed takes too long for the event loop's thread."""
        return False

    def is_whole(self, data: bytes) -> bool:
        """Return whether `frame` would certainly find nothing but whole records in `data`, if nothing waits before it."""
        return data.endswith(b"\n")

    def frame(self, waiting: Waiting, data: bytes, limit: int) -> Framed:
        """Cut `data`, which follows `waiting`, behind the last whole record; what waits has at most `limit` bytes.

        Raises RecordTooLargeError, InvalidRecordError.
        """
        framed = frame(waiting, data)
        if framed.waiting is not NOTHING and len(framed.waiting.tail) > limit:
            raise RecordTooLargeError(f"a line longer than max.message.bytes={limit}")
        return framed

    def after_refusal(self, data: bytes, error: Exception) -> Waiting:
        """Return the state after `data`, of which nothing was kept because of `error`."""
        return NOTHING if data.endswith(b"\n") else Waiting(refused=error)

    def ended(self, tail: bytes) -> bytes:
        """Return the part of a begun record that is appended when its file is closed. Raises InvalidRecordError."""
        return tail + b"\n"


class SpreadLines(Framing):
    """Lines that go to many partitions: each of those is an append of its own."""

    may_take_long = True

    def takes_long(self, framed: bytes) -> bool:
        return len(framed) > SPREAD_BYTES


class ParsedLines(Framing):
    """Lines of JSON, each of which is taken apart by itself: many of them take tens of milliseconds."""

    may_take_long = True

    def takes_long(self, framed: bytes) -> bool:
        return len(framed) > PARSED_BYTES


class SchemaLines(ParsedLines):
    """Lines of JSON that are encoded by a schema, which a registry may have."""

    lingers = False
    asks_elsewhere = True

    def takes_long(self, framed: bytes) -> bool:
        return True


class RecordBatches(Framing):
    """A batch says itself how long it is; only whole ones are appended."""

    lingers = False
    """They are large by themselves, and one that is refused shall not take others' with it."""
    may_take_long = True

    def takes_long(self, framed: bytes) -> bool:
        """Return whether some of the whole batches are compressed, or of an old format: a few bytes may have to be looked into for long."""
        scanned = scan(framed)
        plain = zip(scanned.column("magic"), scanned.column("attributes"), strict=True)
        return any(magic != CURRENT_MAGIC or attributes & CODEC_MASK for magic, attributes in plain)

    def is_whole(self, data: bytes) -> bool:
        return False

    def frame(self, waiting: Waiting, data: bytes, limit: int) -> Framed:
        if waiting.refused is not None:
            raise InvalidRecordError(
                "a batch before this one was refused, and nobody knows where the next one begins; open the file again"
            )
        data = waiting.tail + data if waiting.tail else data
        cut = _end_of_batches(data, limit)
        return Framed(data[:cut], Waiting(data[cut:]))

    def after_refusal(self, data: bytes, error: Exception) -> Waiting:
        return Waiting(refused=error)

    def ended(self, tail: bytes) -> bytes:
        raise InvalidRecordError(f"the last batch is torn: {len(tail)} bytes of it came, and not its end")


LINES = Framing()
SPREAD_LINES = SpreadLines()
PARSED_LINES = ParsedLines()
SCHEMA_LINES = SchemaLines()
BATCHES = RecordBatches()


def _end_of_batches(data: bytes, limit: int) -> int:
    """Position behind the last whole batch. Raises for one too large as soon as it says so, and for what is none."""
    at = 0
    while len(data) - at >= FRAME_SIZE:
        size = size_at(data, at)
        if size is None:
            raise InvalidRecordError(f"no record batch at byte {at} of what was written")
        if size > limit:
            raise RecordTooLargeError(f"batch of {size} bytes, max.message.bytes is {limit}")
        if at + size > len(data):
            break
        at += size
    return at
