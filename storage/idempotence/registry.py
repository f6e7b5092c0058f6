"""The named producers of a data directory: one JSON file beside the topics, replaced atomically.

    {"version": 1, "producers": {NAME: {"producer_id": …, "epoch": …, "inputs": {INPUT: {
        "position": …, "records": …, "tail_checksum": …, "partitions": {NUMBER: {"end_offset": …, "ahead": …}}}}}}}

INPUT names a target and a file. `position` is a byte of the file up to which everything is in the log and on disk,
`records` how many that were. Of each partition `ahead` records beyond the position are in the log too, all below
`end_offset`; what was appended after the file was written last is found by reading the log from there. A broker
ignores the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from storage.checkpoints.atomic import write_atomically
from storage.disk.filesystem import FileSystem
from storage.engine import Partition, batches_from
from storage.errors import CorruptionError, StorageError
from storage.model import Offset, ProducerId

REGISTRY_FILE = "topicfs.producers"
VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of an input in one partition."""

    end_offset: int = 0
    """The log end when this was noted: records of this producer at or above it are not in `ahead`."""
    ahead: int = 0
    """Records behind the input's position that this partition has already."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The progress of one input."""

    position: int = 0
    records: int = 0
    tail_checksum: int = 0
    """CRC-32C of the last bytes before the position: whether it is still the same file."""
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredProducer:
    """A named producer."""

    producer_id: ProducerId
    epoch: int = -1
    """Epoch of the last run; the next run takes the next one, which fences what is left of this one."""
    inputs: Mapping[str, InputProgress] = field(default_factory=dict)

    def with_input(self, name: str, progress: InputProgress) -> RegisteredProducer:
        return replace(self, inputs={**self.inputs, name: progress})


class ProducerRegistry:
    """The file. Its writer owns the data directory."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        """Read it where it is. Raises CorruptionError for a file that is none."""
        self._path = directory / REGISTRY_FILE
        self._files = files
        self._producers = self._read() if files.exists(self._path) else {}

    def get(self, name: str) -> RegisteredProducer | None:
        return self._producers.get(name)

    def put(self, name: str, producer: RegisteredProducer) -> None:
        """Store a producer; it is on disk when this returns (blocking, OSError)."""
        producers = {**self._producers, name: producer}
        content = {"version": VERSION, "producers": {each: asdict(one) for each, one in producers.items()}}
        write_atomically(self._files, self._path, json.dumps(content, indent=1).encode() + b"\n")
        self._producers = producers

    def _read(self) -> dict[str, RegisteredProducer]:
        try:
            content = json.loads(self._files.read_bytes(self._path))
            if content["version"] != VERSION:
                raise CorruptionError(self._path, 0, f"version {content['version']} is unknown")
            return {name: _producer(each) for name, each in content["producers"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(self._path, 0, f"not a list of producers: {error}") from error


def _producer(content: Mapping[str, Any]) -> RegisteredProducer:
    inputs = {name: _input(each) for name, each in content["inputs"].items()}
    return RegisteredProducer(ProducerId(int(content["producer_id"])), int(content["epoch"]), inputs)


def _input(content: Mapping[str, Any]) -> InputProgress:
    partitions = {int(number): PartitionProgress(**each) for number, each in content["partitions"].items()}
    return InputProgress(content["position"], content["records"], content["tail_checksum"], partitions)


class ProgressLostError(StorageError):
    """Records that would show how far a producer got were removed."""


def catch_up(
    partition: Partition, producer_id: ProducerId, known: PartitionProgress | None
) -> PartitionProgress:
    """Return the progress as it is now, after counting the producer's records from where the registry's knowledge ends.

    A partition that is new to the producer begins at its log end: nothing of this producer is in it.
    Raises ProgressLostError when retention removed records that had not been counted.
    """
    offsets = partition.offsets()
    if known is None:
        return PartitionProgress(offsets.log_end_offset, 0)
    if offsets.log_start_offset > known.end_offset:
        raise ProgressLostError(
            f"{partition.topic}-{partition.number}: offsets {known.end_offset} to {offsets.log_start_offset - 1} were "
            "deleted, so what a crashed run left there is unknown; go on under another --producer name"
        )
    count = _count_records(partition, producer_id, Offset(known.end_offset))
    return PartitionProgress(offsets.log_end_offset, known.ahead + count)


def _count_records(partition: Partition, producer_id: ProducerId, offset: Offset) -> int:
    return sum(
        batch.record_count
        for batch in batches_from(partition, offset)
        if batch.producer_id == producer_id and batch.base_offset >= offset
    )
