"""Segments whose batches begin and end exactly at the positions of an example."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.doubles.records import batch
from topicfs.storage.codec.batch import scan
from topicfs.storage.model import Timestamp

TOPIC_ID = "1EvPSKI_SvihSIy3lMKMvg"
CREATED = Timestamp(1_700_000_000_000)


class BatchAt(NamedTuple):
    """A batch of records with consecutive offsets, and the position where the next batch begins."""

    first_offset: int
    last_offset: int
    end_position: int


def segment_bytes(batches: Sequence[BatchAt]) -> bytes:
    """Return a segment's log, with batches padded so that each ends at its given position."""
    log = bytearray()
    for at in batches:
        log += padded_batch(at, at.end_position - len(log))
    return bytes(log)


def padded_batch(at: BatchAt, size: int) -> bytearray:
    """Return a batch of exactly `size` bytes, with a last value of the length that is needed."""
    shortest = len(_batch(at, 0))
    # A longer value also needs longer length fields, which take up a few bytes of the difference.
    for length in range(max(0, size - shortest - 8), size - shortest + 1):
        encoded = _batch(at, length)
        if len(encoded) == size:
            return encoded
    raise AssertionError(f"{at} cannot have {size} bytes")


def _batch(at: BatchAt, last_value_length: int) -> bytearray:
    values = [b"v"] * (at.last_offset - at.first_offset) + [b"v" * last_value_length]
    return batch(*values, timestamp=CREATED, offset=at.first_offset)


def write_segment(directory: Path, base_offset: int, log: bytes, index: bytes = b"") -> None:
    """Write a segment's log and its indexes as they are after a clean shutdown."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{base_offset:020d}"
    (directory / f"{name}.log").write_bytes(log)
    (directory / f"{name}.index").write_bytes(index)
    (directory / f"{name}.timeindex").write_bytes(_time_index(base_offset, log))
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _time_index(base_offset: int, log: bytes) -> bytes:
    """Return a closed segment's time index entry: the largest time, and the first batch with that time."""
    if not log:
        return b""
    first = scan(log, max_batches=1)[0]
    return CREATED.to_bytes(8, "big") + (first.last_offset - base_offset).to_bytes(4, "big")


def write_marks(data: Path, partition: str, end_offset: int) -> None:
    """Write the files that a clean shutdown leaves, so that the start skips recovery and trusts the indexes."""
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (data / "meta.properties").write_text("version=1\ncluster.id=_uqHDrtZRiWyQpGqbURDug\nnode.id=1\n")
    topic, _, number = partition.rpartition("-")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).write_text(f"0\n1\n{topic} {number} {end_offset}\n")
