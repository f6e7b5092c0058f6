"""Lines that are appended once, whatever crashes: their partitions must come out the same in every run.

A key goes where its hash says, as always. A line without a key goes around by its number in the file, for a partition
chosen at random would be another one the next time.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusefs.appending.targets import Encoder, key_values
from storage.engine import Partition
from storage.partitioning.murmur2 import partition_of_key


class OnceLines:
    """Lines of one form, as `storage.idempotence` asks for them."""

    def __init__(self, encoder: Encoder, any_partition: Partition) -> None:
        self._encoder = encoder
        self._any_partition = any_partition

    def encode(self, lines: bytes, partition: Partition) -> list[bytearray]:
        return self._encoder.appends(lines, partition)

    def choose(self, lines: Sequence[bytes], first_record: int, partitions: int) -> list[int]:
        if partitions == 1:
            return [0] * len(lines)
        if not self._encoder.form.suffix:  # Values alone carry no keys.
            return [(first_record + number) % partitions for number in range(len(lines))]
        records = key_values(self._encoder.appends(b"".join(lines), self._any_partition))
        return [
            (first_record + number) % partitions
            if record.key is None
            else partition_of_key(record.key, partitions)
            for number, record in enumerate(records)
        ]
