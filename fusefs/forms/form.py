"""The protocol of a form: from columns of records to lines of text, and back."""

from __future__ import annotations

from array import array
from typing import Protocol

from topicfs.storage.codec.records import Columns
from topicfs.storage.model import Buffer, TopicPartition


class FormError(ValueError):
    """A line that is no record in its form; the text it stands in is refused as a whole."""

    def __init__(self, line_number: int, reason: str) -> None:
        super().__init__(f"line {line_number}: {reason}")
        self.line_number = line_number
        """From 1, in the text given."""
        self.reason = reason


class Form(Protocol):
    """A rendering of records, one line each, and its reverse.

    What `render` prints of a record, `parse` takes back as the same record, as far as the form shows it.
    """

    @property
    def suffix(self) -> str:
        """Suffix of the names of files in this form: empty, or with its dot."""

    @property
    def tells_times(self) -> bool:
        """True if a line may tell its record's time; that of others is the `timestamp` that `parse` is given."""

    @property
    def outdated(self) -> bool:
        """True, from then on, if the same records may show otherwise in files that are opened from now on. Never waits."""

    def render(self, columns: Columns, place: TopicPartition, start_offset: int, end_offset: int) -> bytes:
        """The lines of the records with start_offset <= offset < end_offset."""

    def render_one(self, columns: Columns, index: int, place: TopicPartition) -> bytes:
        """The content of a file that holds this one record alone."""

    def measure(
        self, columns: Columns, place: TopicPartition, start_offset: int, end_offset: int
    ) -> array[int]:
        """Return the number of bytes that `render` makes of each batch in `columns.batches`, in their order."""

    def parse(self, text: Buffer, *, timestamp: int, max_batch_bytes: int) -> list[bytearray]:
        """Encode whole LF-ended lines as v2 batches of base offset 0, each at most `max_batch_bytes`.

        An empty text makes no batch. `timestamp` (ms) is that of records whose line tells none. Raises FormError for a line that cannot be
        parsed, RecordTooLargeError for one that does not fit a batch, ValueError if the last line has no LF.
        """
