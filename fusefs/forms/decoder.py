"""Decoders of forms: from batches to columns of records, or to the batches themselves.

The line of a record can be longer than the record itself, in JSON eight times. If a line would exceed the limit for
decoded content (`storage.codec.compression.bounds`), the record cannot be shown in that form, and its batch counts as
unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from topicfs.fusefs.forms.batches import BATCH, find_batches
from topicfs.fusefs.forms.form import Form
from topicfs.fusefs.forms.values import VALUES
from topicfs.storage.codec.columns import Columns, decode_each
from topicfs.storage.codec.compression.bounds import MAX_CONTENT_BYTES
from topicfs.storage.errors import OversizeBatchError
from topicfs.storage.model import Buffer, TopicPartition

Decode: TypeAlias = Callable[..., Iterator[Columns]]
"""A function like `storage.codec.columns.decode_each`, with the options `aborted` and `max_content_bytes`."""

_WIDE_BYTES = MAX_CONTENT_BYTES // 8
"""If a record is smaller than this, its line never exceeds the limit."""


def decoder_of(form: Form) -> Decode:
    """Return the function that decodes batches into the columns that a form renders."""
    if form is BATCH:
        return find_batches
    return decode_each if form is VALUES else partial(_decode_lines, form)


def _decode_lines(form: Form, data: Buffer, *bounds: Any, **options: Any) -> Iterator[Columns]:
    for columns in decode_each(data, *bounds, **options):
        if len(columns.data) > _WIDE_BYTES:
            _check_lines(form, columns)
        yield columns


def _check_lines(form: Form, columns: Columns) -> None:
    """Raise OversizeBatchError if a line would be too long."""
    first = 0
    while first < len(columns):
        last = columns.within(first, _WIDE_BYTES)
        if last == first + 1:  # A single record may be large.
            check_line(form, columns, first)
        first = last


def check_line(form: Form, columns: Columns, index: int) -> None:
    """Raise OversizeBatchError with the position of the batch if the record's line would exceed the limit."""
    offset = columns.offsets[index]
    if columns.within(index, _WIDE_BYTES) > index + 1 or len(columns.data) <= _WIDE_BYTES:
        return
    size = sum(form.measure(columns, TopicPartition("", 0), offset, offset + 1))
    if size > MAX_CONTENT_BYTES:
        batch = next(batch for batch in columns.batches if batch.record_end > index)
        raise OversizeBatchError(
            batch.position,
            f"the line of offset {offset} in log{form.suffix} would have {size} bytes; the limit is {MAX_CONTENT_BYTES}",
        )
