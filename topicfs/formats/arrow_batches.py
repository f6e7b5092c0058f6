"""Arrow (streaming format) and Parquet with the columns of `format("topicfs")` and of archives, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

from topicfs.formats.records import RecordRange, RecordSlice, record_slices
from topicfs.storage.model import Isolation, TopicPartition

Arrow: TypeAlias = Any
"""An object of pyarrow, which has no type annotations."""

ARROW_GROUP_BYTES = 32 * 2**20
"""Bytes of records that are written at a time, in Parquet as a row group. Memory use is about twice this number."""
GROUP_ROWS = 2**17
ARROW_READ_BYTES, READ_ROWS = 8 * 2**20, 2**15
"""A reader returns a batch when it has this many bytes or rows. A program holds several batches at a time."""


class ArrowMissingError(Exception):
    """The extra with pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__("pyarrow is not installed here; get it with: pip install 'topicfs[arrow]'")


class ArrowBatches:
    """Writes slices of records; `end` completes the file."""

    def __init__(self, output: BinaryIO, make: Callable[[BinaryIO, Arrow], Arrow]) -> None:
        from topicfs.pipeline.source.arrow import SCHEMA

        self._schema = SCHEMA
        self._writer = make(output, self._schema)
        self._held: list[Arrow] = []
        self._bytes = self._rows = 0

    def add(self, records: RecordSlice) -> None:
        batch = _batch([records], self._schema)
        self._held.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._bytes >= ARROW_GROUP_BYTES or self._rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema).combine_chunks())
            self._held.clear()
            self._bytes = self._rows = 0

    def end(self) -> None:
        """Write the buffered records, and complete the file."""
        self.flush()
        self._writer.close()


def batch_reader(ranges: Sequence[RecordRange], isolation: Isolation) -> Arrow:
    """Return a `pyarrow.RecordBatchReader` of the ranges, one after the other. Raises ArrowMissingError."""
    pa = _arrow()
    from topicfs.pipeline.source.arrow import SCHEMA

    batches = (batch for wanted in ranges for batch in _batches(wanted, isolation, SCHEMA))
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def _batches(wanted: RecordRange, isolation: Isolation, schema: Arrow) -> Iterator[Arrow]:
    """Yield the records of a range; small batches of the partition are combined."""
    held: list[RecordSlice] = []
    held_bytes = rows = 0
    for records in record_slices(wanted, isolation):
        held.append(records)
        held_bytes += records.columns.size_bytes
        rows += records.end - records.start
        if held_bytes >= ARROW_READ_BYTES or rows >= READ_ROWS:
            yield _batch(held, schema)
            held, held_bytes, rows = [], 0, 0
    if held:
        yield _batch(held, schema)


def _batch(held: Sequence[RecordSlice], schema: Arrow) -> Arrow:
    from topicfs.pipeline.source.arrow import record_batch
    from topicfs.pipeline.source.arrow_buffers import ColumnRange

    partition = TopicPartition(held[0].partition.topic, held[0].partition.number)
    parts = [ColumnRange(records.columns, records.start, records.end) for records in held]
    return record_batch(parts, partition=partition, schema=schema)


def arrow_stream(output: BinaryIO) -> ArrowBatches:
    """Return a writer of Arrow's streaming format. Raises ArrowMissingError."""
    pa = _arrow()
    return ArrowBatches(output, pa.ipc.new_stream)


def parquet(output: BinaryIO) -> ArrowBatches:
    """Return a writer of a Parquet file. Raises ArrowMissingError."""
    pa = _arrow()
    import pyarrow.parquet as pq

    def make(sink: BinaryIO, schema: Arrow) -> Arrow:
        return pq.ParquetWriter(pa.PythonFile(_Counted(sink), mode="w"), schema, compression="zstd")

    return ArrowBatches(output, make)


class _Counted:
    """A file that counts its position, because a pipe has no position."""

    closed = False

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._position = 0

    def write(self, data: bytes) -> int:
        self._output.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._output.flush()

    def close(self) -> None:
        """Do nothing: the caller owns the output."""


def _arrow() -> Arrow:
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        raise ArrowMissingError from None
    return pa
