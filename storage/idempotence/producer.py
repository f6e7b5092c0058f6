"""Appends a file as a named producer: each line is appended once, despite crashes and repeated runs.

Every run takes the next epoch, which fences earlier runs. Sequence numbers in the log show which appended records are
not in the registry yet. If the file has grown, a run continues where the last run ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, NamedTuple, Protocol

from topicfs.storage.codec.batch import scan, set_producer
from topicfs.storage.codec.binary.crc import crc32c
from topicfs.storage.codec.headers import sequence_plus
from topicfs.storage.engine import Partition
from topicfs.storage.errors import StorageError
from topicfs.storage.idempotence.registry import InputProgress, PartitionProgress, ProducerRegistry, catch_up
from topicfs.storage.model import ProducerId
from topicfs.storage.producers.entry import next_run

TAIL_BYTES = 65_536
"""Number of bytes before the position at which a run continues. A run refuses a file whose bytes there have changed."""

SAVE_EVERY_BYTES = 16 << 20
"""Bytes of input after which the log and the registry are flushed."""


class InputChangedError(StorageError):
    """The input file differs from the one that an earlier run read."""


class LineEncoder(Protocol):
    """Converts lines to records; the caller knows the form and the partitioner."""

    def encode(self, lines: bytes, partition: Partition) -> list[bytearray]:
        """Return whole lines, each ending in LF, as v2 batches at base offset 0. An invalid line raises an error."""

    def choose(self, lines: Sequence[bytes], first_record: int, partitions: int) -> list[int]:
        """Return each line's partition, the same in every run. The first of `lines` is record number `first_record`."""


class AppendOutcome(NamedTuple):
    appended: int
    passed_over: int
    """Number of records that earlier, interrupted runs had appended already."""
    producer_id: ProducerId
    epoch: int
    position: int


class NamedProducer:
    """One run of one producer over one input."""

    def __init__(
        self, registry: ProducerRegistry, name: str, input_name: str, partitions: Mapping[int, Partition]
    ) -> None:
        """Begin a run, and store its epoch on disk. Blocks. Raises ProgressLostError, CorruptionError, OSError."""
        self._registry = registry
        self._name = name
        self._input_name = input_name
        self._partitions = partitions
        known = registry.get(name, input_name)
        producer_id, epoch = next_run((known.producer_id, known.epoch) if known else None)
        earlier = known or InputProgress(producer_id, epoch)
        for partition in partitions.values():
            # Flush what a killed run left: records that are noted as appended must not vanish in a crash.
            partition.sync()
        caught_up = {number: catch_up(partition, number, earlier) for number, partition in partitions.items()}
        if any(each.ahead for each in caught_up.values()):
            # The partition of a line depends on the number of partitions. With the partitions that were added
            # since the last run, other lines would be skipped.
            caught_up = {number: each for number, each in caught_up.items() if number in earlier.partitions}
            self._partitions = {number: partitions[number] for number in caught_up}
        self._progress = replace(
            earlier, producer_id=producer_id, epoch=epoch, partitions=caught_up, runs=earlier.runs + 1
        )
        self._ahead = {number: each.ahead for number, each in caught_up.items()}
        self._sequences = dict.fromkeys(partitions, 0)
        self._appended = self._passed_over = 0
        registry.put(name, input_name, self._progress)

    def append_file(
        self, stream: IO[bytes], lines: LineEncoder, blocks: Callable[[IO[bytes]], Iterable[bytes]]
    ) -> AppendOutcome:
        """Append the part of the file that the log does not have yet. Blocks. After an error, the next run continues.

        The function `blocks` cuts a stream into pieces of whole lines. Raises InputChangedError, and the errors of
        `Partition.append` and of `lines`.
        """
        self._check_same_file(stream)
        position = saved = self._progress.position
        records = self._progress.records
        tail = self._tail(stream, position)
        for block in blocks(stream):
            records += self._append_block(block, lines, records)
            position += len(block)
            tail = (tail + block)[-TAIL_BYTES:]
            if position - saved >= SAVE_EVERY_BYTES:
                self._save(position, records, tail)
                saved = position
        # If the last line has no line end, `blocks` added one, so the position is taken from the stream.
        end = stream.tell()
        self._save(end, records, self._tail(stream, end))
        return AppendOutcome(
            self._appended, self._passed_over, self._progress.producer_id, self._progress.epoch, end
        )

    def _append_block(self, block: bytes, lines: LineEncoder, first_record: int) -> int:
        each = [line + b"\n" for line in block[:-1].split(b"\n")]
        numbers = sorted(self._partitions)
        shares: dict[int, list[bytes]] = {}
        for index, line in zip(lines.choose(each, first_record, len(numbers)), each, strict=True):
            shares.setdefault(numbers[index], []).append(line)
        encoded = [(number, self._encoded(share, number, lines)) for number, share in shares.items()]
        for number, batches in encoded:
            for adjacent in batches:
                self._append_batches(adjacent, number)
        return len(each)

    def _encoded(self, share: list[bytes], number: int, lines: LineEncoder) -> list[bytearray]:
        """Return the batches of a partition's lines, leaving out lines that the log already has."""
        skipped = min(self._ahead[number], len(share))
        self._ahead[number] -= skipped
        self._passed_over += skipped
        fresh = share[skipped:]
        return lines.encode(b"".join(fresh), self._partitions[number]) if fresh else []

    def _append_batches(self, batches: bytearray, number: int) -> None:
        """Append adjacent batches in one call, with sequence numbers that continue those of the earlier batches."""
        sequence, records = self._sequences[number], 0
        for header in scan(batches):
            set_producer(
                batches,
                header.position,
                producer_id=self._progress.producer_id,
                producer_epoch=self._progress.epoch,
                base_sequence=sequence_plus(sequence, records),
            )
            records += header.record_count
        self._partitions[number].append(batches)
        self._sequences[number] = sequence_plus(sequence, records)
        self._appended += records

    def _save(self, position: int, records: int, tail: bytes) -> None:
        """Flush the logs, and then write the registry, which must not claim more than the logs have."""
        for partition in self._partitions.values():
            partition.sync()
        partitions = {
            number: PartitionProgress(
                partition.offsets().log_end_offset, self._ahead[number], self._sequences[number]
            )
            for number, partition in self._partitions.items()
        }
        self._progress = replace(
            self._progress,
            position=position,
            records=records,
            tail_checksum=crc32c(tail),
            partitions=partitions,
        )
        self._registry.put(self._name, self._input_name, self._progress)

    def _check_same_file(self, stream: IO[bytes]) -> None:
        position = self._progress.position
        size = stream.seek(0, 2)
        if size < position or (
            position and crc32c(self._tail(stream, position)) != self._progress.tail_checksum
        ):
            raise InputChangedError(
                f"{self._input_name}: not the file that producer {self._name} read up to byte {position}; "
                "append a new file under another --producer name"
            )
        stream.seek(position)

    def _tail(self, stream: IO[bytes], position: int) -> bytes:
        """Return at most TAIL_BYTES bytes before `position`, and leave the stream at `position`."""
        start = max(0, position - TAIL_BYTES)
        stream.seek(start)
        return stream.read(position - start)


def whole_lines(stream: IO[bytes], block_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield a stream's lines in blocks; if the last line has no line end, add one."""
    rest = b""
    while data := stream.read(block_bytes):
        lines, newline, rest_of_data = (rest + data).rpartition(b"\n")
        rest = rest_of_data
        if newline:
            yield lines + newline
    if rest:
        yield rest + b"\n"
