"""Tests that a topic's id is on disk before the topic's first record."""

from __future__ import annotations

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.manager import LogManager

METADATA = DATA / "t-0" / "partition.metadata"


@pytest.mark.parametrize("seed", range(8))
def test_a_record_that_survives_has_its_topics_id(seed: int) -> None:
    """Row 64: if a record of a new topic survives a crash, the topic's ID survives as well."""
    disk = SimulatedDisk(seed=seed)
    engine = engine_on(disk)
    partition = engine.create_topic("t").partitions()[0]
    append_lines(partition, "first\n")
    if seed % 2:
        partition.sync()
    topic_id = disk.read_bytes(METADATA)
    disk.crash()
    assert topic_id == disk.read_bytes(METADATA)
    decode_id(topic_id.decode().rpartition(" ")[2])
    reopened = engine_on(disk)
    assert read_lines(reopened.partition("t", 0)) in (["first"], *([[]] if not seed % 2 else []))


def test_the_id_is_written_before_the_log_is(disk: SimulatedDisk, engine: LogManager) -> None:
    """Row 64: the ID is renamed into place and synced before the first byte of a segment is written."""
    append_lines(engine.create_topic("t").partitions()[0], "first\n")
    first_write = next(
        at for at, (call, path) in enumerate(disk.calls) if call == "pwrite" and path.endswith(".log")
    )
    before = disk.calls[:first_write]
    renamed = max(
        at for at, (call, path) in enumerate(before) if call == "rename" and "partition.metadata" in path
    )
    assert any(call == "sync_directory" for call, _ in before[renamed:])
