"""The named producers of a data directory: one JSON file beside the topics, replaced atomically.

    {"version": 2, "producers": {NAME: {INPUT: {
        "producer_id": …, "epoch": …, "position": …, "records": …, "tail_checksum": …,
        "partitions": {NUMBER: {"end_offset": …, "ahead": …, "sequence": …}}}}}}

INPUT names a file and a target, `FILE > TOPIC/…@TOPIC_ID`: a topic that is created again is another target. Each input has
a producer id of its own. `position` is a byte of the file up to which everything is in the log and on disk, `records` how
many that were. Of each partition `ahead` records beyond the position are in the log too, all below `end_offset`, where
the run's next sequence number was `sequence`. Sequence numbers show what was appended after the file was written last
(`storage.producers.progress`). A broker ignores the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from storage.checkpoints.atomic import write_atomically
from storage.codec.headers import sequence_plus
from storage.disk.filesystem import FileSystem
from storage.engine import Partition
from storage.errors import CorruptionError
from storage.model import Offset, ProducerId
from storage.producers.progress import ProgressLostError, last_batch

REGISTRY_FILE = "topicfs.producers"
VERSION = 2
_REMEDY = "append the lines that are missing under another --producer name"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The progress of an input in one partition."""

    end_offset: int = 0
    """The log end when this was noted: records of this producer at or above it are not in `ahead`."""
    ahead: int = 0
    """Records behind the input's position that this partition has already."""
    sequence: int = 0
    """The next sequence number of the last run when this was noted."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The progress of one input, and its producer."""

    producer_id: ProducerId
    epoch: int
    """Epoch of the last run; the next run takes the next one, which fences what is left of this one."""
    position: int = 0
    records: int = 0
    tail_checksum: int = 0
    """CRC-32C of the last bytes before the position: whether it is still the same file."""
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)


class ProducerRegistry:
    """The file. Its writer owns the data directory."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        """Read it where it is. Raises CorruptionError for a file that is none."""
        self._path = directory / REGISTRY_FILE
        self._files = files
        self._producers = self._read() if files.exists(self._path) else {}

    def get(self, name: str, source: str) -> InputProgress | None:
        """Return the progress of a producer's input; None for a new one."""
        return self._producers.get(name, {}).get(source)

    def put(self, name: str, source: str, progress: InputProgress) -> None:
        """Store the progress of an input; it is on disk when this returns (blocking, OSError)."""
        target = source.rpartition("@")[0]
        # The progress in a deleted topic of this name is of no more use.
        others = {
            key: one for key, one in self._producers.get(name, {}).items() if key.rpartition("@")[0] != target
        }
        producers = {**self._producers, name: {**others, source: progress}}
        plain = {
            each: {key: asdict(one) for key, one in inputs.items()} for each, inputs in producers.items()
        }
        content = {"version": VERSION, "producers": plain}
        write_atomically(self._files, self._path, json.dumps(content, indent=1).encode() + b"\n")
        self._producers = producers

    def _read(self) -> dict[str, dict[str, InputProgress]]:
        try:
            content = json.loads(self._files.read_bytes(self._path))
            if content["version"] != VERSION:
                raise CorruptionError(
                    self._path,
                    0,
                    f"version {content['version']}, expected {VERSION}; remove the file, and {_REMEDY}",
                )
            producers = content["producers"].items()
            return {name: {key: _input(one) for key, one in inputs.items()} for name, inputs in producers}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(self._path, 0, f"not a list of producers: {error}") from error


def _input(content: Mapping[str, Any]) -> InputProgress:
    partitions = {int(number): PartitionProgress(**each) for number, each in content["partitions"].items()}
    return InputProgress(**{**content, "partitions": partitions})


def catch_up(partition: Partition, number: int, earlier: InputProgress) -> PartitionProgress:
    """Return the progress as it is now, with what the last run appended after it was noted (blocking).

    A partition that is new to the producer begins at its log end: nothing of this producer is in it.
    Raises ProgressLostError where nothing shows any more what was appended.
    """
    end_offset = partition.offsets().log_end_offset
    known = earlier.partitions.get(number, PartitionProgress(end_offset))
    if end_offset < known.end_offset:
        raise ProgressLostError(
            f"{partition.topic}-{partition.number}: ended at offset {known.end_offset} after an earlier run and ends at "
            f"{end_offset} now, so records of that run are lost; {_REMEDY}"
        )
    last = last_batch(
        partition, earlier.producer_id, earlier.epoch, since=Offset(known.end_offset), remedy=_REMEDY
    )
    added = 0 if last is None else sequence_plus(last.last_sequence, 1 - known.sequence)
    return PartitionProgress(end_offset, known.ahead + added)
