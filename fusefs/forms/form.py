"""The protocols of a form: it renders columns of records as lines of text, and most forms also parse such lines."""

from __future__ import annotations

from array import array
from typing import Protocol

from topicfs.storage.codec.records import Columns
from topicfs.storage.model import Buffer, TopicPartition


class FormError(ValueError):
    """A line is not a valid record in its form. The whole text is refused, including its valid lines."""

    def __init__(self, line_number: int, reason: str) -> None:
        super().__init__(f"line {line_number}: {reason}")
        self.line_number = line_number
        """Number of the line in the text, from 1."""
        self.reason = reason


class Form(Protocol):
    """Renders records as lines."""

    @property
    def suffix(self) -> str:
        """File name suffix of the form, with its dot; empty for the plain form."""

    @property
    def outdated(self) -> bool:
        """True once a newly opened file may show the same records differently, and from then on. Never waits."""

    def render(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> bytes:
        """Return the lines of the records with start_offset <= offset < end_offset."""

    def render_one(self, columns: Columns, index: int, partition: TopicPartition) -> bytes:
        """Return the content of the file for a single record."""

    def measure(
        self, columns: Columns, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """Return the number of bytes that `render` makes of each batch in `columns.batches`."""


class LineParser(Protocol):
    """Parses lines into records."""

    @property
    def suffix(self) -> str:
        """The suffix of the lines' form."""

    @property
    def tells_times(self) -> bool:
        """True if a line may contain the record's timestamp; lines without one get the `timestamp` given to `parse`."""

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Encode whole LF-ended lines as v2 batches of base offset 0, each at most `max_batch_bytes`.

        An empty text gives no batch. A line without a timestamp gets `timestamp` (ms). Raises FormError for an invalid
        line, RecordTooLargeError for a record that exceeds a batch, ValueError if the last line has no LF.
        """


class WritableForm(Form, LineParser, Protocol):
    """A form that also parses its lines. `parse` restores all that `render` shows of a record."""
