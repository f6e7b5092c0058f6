"""The counter that makes a partition's numbers of decoded columns, without an object a record.

Small batches make small columns: they are put aside until there are enough for whole arrays to be worth their calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from topicfs.pipeline.report.histograms import Integers
from topicfs.pipeline.report.numbers import PartitionNumbers, StoredBytes
from topicfs.storage.codec.binary.fields import CODEC_MASK, HEADER_SIZE, ROW_SIZE, TIMESTAMP_TYPE_MASK
from topicfs.storage.codec.columns import Columns
from topicfs.storage.codec.headers import BatchHeader, Codec

ENOUGH_RECORDS = 1 << 16
_TIMESTAMPS, _KEY_LENGTHS, _VALUE_LENGTHS = 1, 3, 5
"""Numbers of some of the eight columns of `Columns.block`."""
_SIZE, _ATTRIBUTES, _MAX_TIMESTAMP, _RECORD_END = map(
    BatchHeader._fields.index, ("size_bytes", "attributes", "max_timestamp", "record_end")
)
_NO_TIME = -1


class Counter:
    """Counts records and batches into `numbers`."""

    def __init__(self, numbers: PartitionNumbers) -> None:
        self._numbers = numbers
        self._waiting: list[tuple[Integers, Integers, Integers, Integers]] = []
        """For each of the columns: create times, times of append (-1: not stamped), lengths of keys and of values."""
        self._records = 0

    def count(self, found: Iterable[tuple[Columns, int, int]]) -> None:
        """Count records [start, end) of columns that were decoded with `create_times`, and their batches."""
        for columns, start, end in found:
            self._add(columns, start, end)
        self._flush()

    def _add(self, columns: Columns, start: int, end: int) -> None:
        block = np.frombuffer(columns.block, np.int64).reshape(8, len(columns))
        batches = np.frombuffer(columns.batches.rows, np.int64).reshape(-1, ROW_SIZE)
        self._count_batches(columns, batches)
        self._waiting.append(
            (
                block[_TIMESTAMPS, start:end],
                _times_of_append(batches)[start:end],
                block[_KEY_LENGTHS, start:end],
                block[_VALUE_LENGTHS, start:end],
            )
        )
        self._records += end - start
        if self._records >= ENOUGH_RECORDS:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        created, appended, keys, values = (
            np.concatenate(parts) for parts in zip(*self._waiting, strict=True)
        )
        self._waiting, self._records = [], 0
        numbers, stamped = self._numbers, appended != _NO_TIME
        numbers.records += len(created)
        numbers.stamped_records += int(stamped.sum())
        numbers.count_times(np.where(stamped, appended, created), np.maximum(keys, 0) + np.maximum(values, 0))
        numbers.count_sizes(keys, values)
        both = stamped & (created != _NO_TIME)
        numbers.count_lags(appended[both] - created[both])

    def _count_batches(self, columns: Columns, batches: npt.NDArray[np.int64]) -> None:
        codec = Codec(int(batches[0, _ATTRIBUTES]) & CODEC_MASK)
        size = int(batches[:, _SIZE].sum())
        # A compressed batch has columns of its own, over its inflated records.
        uncompressed = size if codec is Codec.NONE else HEADER_SIZE + len(columns.data)
        self._numbers.store(codec.label, StoredBytes(size, uncompressed))


def _times_of_append(batches: npt.NDArray[np.int64]) -> Integers:
    """Return the broker's timestamp of each record of these batches, -1 where there is none."""
    stamps = np.where(batches[:, _ATTRIBUTES] & TIMESTAMP_TYPE_MASK, batches[:, _MAX_TIMESTAMP], _NO_TIME)
    if len(stamps) == 1:
        return np.full(int(batches[0, _RECORD_END]), stamps[0])
    return np.repeat(stamps, np.diff(batches[:, _RECORD_END], prepend=0))
