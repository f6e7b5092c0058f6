"""The named producers: one JSON file, the same in every serving data directory, replaced atomically.

    {"version": 2, "producers": {NAME: {INPUT: {
        "producer_id": …, "epoch": …, "runs": …, "position": …, "records": …, "tail_checksum": …,
        "partitions": {NUMBER: {"end_offset": …, "ahead": …, "sequence": …}}}}}}

INPUT names a file and a target, `FILE > TOPIC/…@TOPIC_ID`: a topic that is created again is another target. Each
input has its own producer ID. All records before the byte `position` of the input file are in the log and on disk,
and `records` is their number. A partition may have further records of the input: `ahead` is their number. When the
entry was written, `end_offset` was the log end, and `sequence` the run's next sequence number. Sequence numbers show
what was appended after that time (`storage.producers.progress`). If copies of an entry differ, the copy with the most
runs counts. A broker ignores the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from topicfs.storage.checkpoints.copies import RecordCopies
from topicfs.storage.codec.headers import sequence_plus
from topicfs.storage.disk import names
from topicfs.storage.engine import Partition
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, ProducerId
from topicfs.storage.producers.progress import ProgressLostError, last_batch

VERSION = 2
_REMEDY = "append the lines that are missing under another --producer name"

_BITS = {"epoch": 15, "sequence": 31, "tail_checksum": 32}
"""Bits of a field's largest number; fields that are not listed have 63 bits."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    end_offset: int = 0
    """The log end when the entry was written: records of this producer at or above it are not counted in `ahead`."""
    ahead: int = 0
    """Number of records after the input's position that this partition already has."""
    sequence: int = 0
    """The sequence number that the last run would have used next, when the entry was written."""


@dataclass(frozen=True, slots=True)
class InputProgress:
    """The progress of one input, and its producer."""

    producer_id: ProducerId
    epoch: int
    """Epoch of the last run. The next run takes the next epoch, which fences a last run that still exists."""
    position: int = 0
    records: int = 0
    tail_checksum: int = 0
    """CRC-32C of the last bytes before the position, which shows whether the file is still the same."""
    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)
    runs: int = 0
    """Number of runs so far. It also grows when epochs begin again at 0 with another producer ID."""


class ProducerRegistry(RecordCopies[tuple[str, str], InputProgress]):
    """The file and its copies, with entries by name and INPUT. Only the owner of the data directories writes it."""

    file_name, age = names.PRODUCERS, attrgetter("runs", "position")

    def get(self, name: str, source: str) -> InputProgress | None:
        """Return the progress of a producer's input; None if the input is new. Raises CorruptionError, OSError."""
        return self.read().get((name, source))

    def put(self, name: str, source: str, progress: InputProgress) -> None:
        """Store an input's progress, on return in every serving directory. Blocks. Raises CorruptionError, OSError."""
        target = source.rpartition("@")[0]
        with self._lock:
            # A deleted topic's progress is useless for a new topic of this name.
            others = {
                key: one
                for key, one in self.read().items()
                if (key[0], key[1].rpartition("@")[0]) != (name, target)
            }
            self._write({**others, (name, source): progress}, self.directories())

    def _parse_file(self, data: bytes, path: Path, _prefix: str) -> dict[tuple[str, str], InputProgress]:
        try:
            content = json.loads(data)
            if content["version"] != VERSION:
                cause = f"version {content['version']}, expected {VERSION}; remove the file, and {_REMEDY}"
                raise CorruptionError(path, 0, cause)
            producers = content["producers"].items()
            return {(name, key): _input(one) for name, inputs in producers for key, one in inputs.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(path, 0, f"not a named-producers file: {error!r}") from None

    def _encoded(self, entries: Mapping[tuple[str, str], InputProgress]) -> bytes:
        plain: dict[str, dict[str, object]] = {}
        for (name, key), one in entries.items():
            plain.setdefault(name, {})[key] = asdict(one)
        return json.dumps({"version": VERSION, "producers": plain}, indent=1).encode() + b"\n"


def entry_line(name: str, source: str, progress: InputProgress) -> bytes:
    """Return the progress of an input as a line, to be sent to the owner of the data directories."""
    return json.dumps({"name": name, "input": source, **asdict(progress)}).encode() + b"\n"


def read_entry(line: bytes) -> tuple[str, str, InputProgress]:
    """Parse a line from `entry_line`. Raises ValueError, KeyError, TypeError, AttributeError."""
    content = json.loads(line)
    name, source = str(content.pop("name")), str(content.pop("input"))
    progress = _input(content)
    for each in (asdict(progress), *map(asdict, progress.partitions.values())):
        for field_name, one in each.items():
            bits = _BITS.get(field_name, 63)
            if field_name != "partitions" and not (type(one) is int and 0 <= one < 1 << bits):
                raise ValueError(f"{field_name} is not a number from 0 to 2^{bits} - 1")
    if json.loads(line) != json.loads(entry_line(name, source, progress)):
        raise ValueError("a field is missing, or has another type")
    return name, source, progress


def _input(content: Mapping[str, Any]) -> InputProgress:
    partitions = {int(number): PartitionProgress(**each) for number, each in content["partitions"].items()}
    return InputProgress(**{**content, "partitions": partitions})


def catch_up(partition: Partition, number: int, earlier: InputProgress) -> PartitionProgress:
    """Return a partition's progress, including appends after the registry was last written. Blocks.

    A partition that the registry does not have begins at its log end. Raises ProgressLostError.
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
