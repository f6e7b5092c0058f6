"""Partitions made to measure: segments whose batches end and begin exactly where an example says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from storage.codec.batch import assign_offsets, scan
from storage.codec.records import encode
from storage.model import Offset, Record, Timestamp

TOPIC_ID = "1EvPSKI_SvihSIy3lMKMvg"
CREATED = Timestamp(1_700_000_000_000)


class BatchAt(NamedTuple):
    """A batch of one record an offset, and where the next one begins."""

    first_offset: int
    last_offset: int
    end_position: int


def segment_bytes(batches: Sequence[BatchAt]) -> bytes:
    """The log of a segment: its batches padded so that each ends where it is told to."""
    log = bytearray()
    for batch in batches:
        log += padded_batch(batch, batch.end_position - len(log))
    return bytes(log)


def padded_batch(batch: BatchAt, size: int) -> bytearray:
    """A batch of exactly `size` bytes: its last value is as long as that takes."""
    count = batch.last_offset - batch.first_offset + 1
    shortest = len(_batch(count, 0))
    # Longer values have longer length fields: a few bytes of the difference are theirs.
    for length in range(max(0, size - shortest - 8), size - shortest + 1):
        encoded = _batch(count, length)
        if len(encoded) == size:
            assign_offsets(encoded, 0, base_offset=batch.first_offset, leader_epoch=0)
            return encoded
    raise AssertionError(f"no batch of {count} records has {size} bytes")


def _batch(count: int, last_value_length: int) -> bytearray:
    values = [b"v"] * (count - 1) + [b"v" * last_value_length]
    return encode([Record(Offset(at), CREATED, None, value) for at, value in enumerate(values)])


def write_segment(directory: Path, base_offset: int, log: bytes, index: bytes = b"") -> None:
    """A segment's log and offset index as they would stand after a clean shutdown."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{base_offset:020d}"
    (directory / f"{name}.log").write_bytes(log)
    (directory / f"{name}.index").write_bytes(index)
    (directory / f"{name}.timeindex").write_bytes(_time_index(base_offset, log))
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _time_index(base_offset: int, log: bytes) -> bytes:
    """The entry that a segment gets when it is closed: the largest time, and the first batch that has it."""
    if not log:
        return b""
    first = scan(log, max_batches=1)[0]
    return CREATED.to_bytes(8, "big") + (first.last_offset - base_offset).to_bytes(4, "big")


def write_marks(data: Path, partition: str, end_offset: int) -> None:
    """What a clean shutdown leaves in the data directory; nothing is recovered then, indexes are taken as they are."""
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (data / "meta.properties").write_text("version=1\ncluster.id=_uqHDrtZRiWyQpGqbURDug\nnode.id=1\n")
    topic, _, number = partition.rpartition("-")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).write_text(f"0\n1\n{topic} {number} {end_offset}\n")
