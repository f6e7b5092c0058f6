"""Reads a partition from any offset and by time."""

from __future__ import annotations

from random import Random

from topicfs.storage.codec.columns import decode
from topicfs.storage.engine import Partition
from topicfs.storage.model import Isolation, Offset, Record, Timestamp


def read_from(partition: Partition, start: int, isolation: Isolation, max_bytes: int) -> list[Record]:
    """Return the records from `start` on, with reads of about `max_bytes`; the codec leaves out aborted records."""
    offset = Offset(start)
    found: list[Record] = []
    while len((fetched := partition.read(offset, max_bytes=max_bytes, isolation=isolation)).data):
        for columns in decode(fetched.data, aborted=fetched.aborted):
            found += [record for record in columns if record.offset >= start]
        assert fetched.next_offset > offset, f"a read at {offset} goes on at {fetched.next_offset}"
        offset = fetched.next_offset
    return found


def compare_times(
    partition: Partition, raw: list[Record], end: int, isolation: Isolation, chance: Random
) -> None:
    """Compare lookups by time with a search through all records; raises AssertionError."""
    times = sorted({record.timestamp for record in raw})
    asked = chance.sample(times, min(2, len(times)))
    for time in [*asked, *(one + 1 for one in asked if one < 2**63 - 1), 0]:
        expected = next((record for record in raw if record.timestamp >= time), None)
        if expected is not None and expected.offset >= end:
            expected = None
        found = partition.offset_for_timestamp(Timestamp(time), isolation=isolation)
        shown = None if found is None else (found.offset, found.timestamp)
        wanted = None if expected is None else (expected.offset, expected.timestamp)
        assert wanted == shown, (
            f"{partition.topic}-{partition.number}: {isolation.value} at time {time}: {wanted}, {shown}"
        )
