"""A data directory as a broker may have written it. The fields of its records have extreme values."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.records import NOW, record
from topicfs.storage.codec.records import BatchStamp, encode
from topicfs.storage.disk.names import SegmentFileKind, segment_file
from topicfs.storage.model import LATEST_TIMESTAMP, MAX_OFFSET, Offset, ProducerId

MICROSECONDS = NOW * 1000
"""A time in microseconds. Producers often send such times by mistake, because Kafka expects milliseconds."""

TIMES = (-(2**63), -5, -1, 0, NOW, MICROSECONDS, LATEST_TIMESTAMP)
PRODUCERS = ((0, 0, 0), (2**63 - 1, 2**15 - 1, 2**31 - 1), (2**63 - 1, 0, 0), (-(2**63), -(2**15), -(2**31)))
"""Producer ids, each with an epoch and a sequence number."""


def one(offset: int, *, timestamp: int = NOW, **stamp: int) -> bytes:
    """Return a batch of one record."""
    kept = BatchStamp(**{name: ProducerId(value) for name, value in stamp.items()})
    return bytes(encode([record(offset, b"k", b"v", timestamp)], kept))


def logs() -> dict[str, tuple[int, list[bytes]]]:
    """Return for each topic, by name, the base offset of its only segment and the batches in the segment."""
    found = {
        f"time{timestamp:+d}": (0, [one(0, timestamp=timestamp), one(1), one(2, timestamp=timestamp)])
        for timestamp in TIMES
    }
    found |= {
        f"producer{number}": (
            0,
            [one(0, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)],
        )
        for number, (producer, epoch, sequence) in enumerate(PRODUCERS)
    }
    found |= {f"epoch{epoch:+d}": (0, [one(0, leader_epoch=epoch)]) for epoch in (-(2**31), 2**31 - 1)}
    found["offset-last"] = (MAX_OFFSET, [one(MAX_OFFSET)])
    found["offset-span"] = (0, [one(0), one(2**31 - 1)])
    return {name.replace("+", "p"): log for name, log in found.items()}


def write_logs(directory: Path) -> list[str]:
    """Write the segments of all topics below `directory`; return the topics' names."""
    for name, (base_offset, batches) in logs().items():
        partition = directory / f"{name}-0"
        partition.mkdir(parents=True)
        (partition / segment_file(Offset(base_offset), SegmentFileKind.LOG)).write_bytes(b"".join(batches))
    return list(logs())
