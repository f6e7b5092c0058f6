"""Tests that a broker's topics opened for writing get the settings in its metadata log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles.records import batch
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.codec.records import encode
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.disk import names
from topicfs.storage.errors import CorruptionError
from topicfs.storage.manager import Machine, open_engine
from topicfs.storage.model import Offset, Record, Timestamp

ONE, OTHER = Path("/one"), Path("/other")
METADATA = OTHER / "__cluster_metadata-0"
LOG = METADATA / f"{0:020d}.log"
KEPT = {"retention.ms": "-1"}


def text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def metadata(topic_id: str, settings: Mapping[str, str]) -> bytes:
    """Return a metadata log with a TopicRecord and a ConfigRecord for each setting."""
    values = [bytes([1, 2, 0]) + text("orders") + decode_id(topic_id).bytes + b"\0"]
    values += [
        bytes([1, 4, 0, 2]) + text("orders") + text(name) + text(value) + b"\0"
        for name, value in settings.items()
    ]
    records = [Record(Offset(offset), Timestamp(0), None, value) for offset, value in enumerate(values)]
    return bytes(encode(records))


def overrides(disk: SimulatedDisk, *, max_opened_at_start: int = 1000, **changes: str) -> dict[str, str]:
    """Open the disk for writing, and return the overrides that the topic then has.

    Before the disk is closed, `changes` are applied to the topic.
    """
    with closing(
        open_engine([ONE, OTHER], machine=Machine(files=disk), max_opened_at_start=max_opened_at_start)
    ) as engine:
        found = dict(engine.topic("orders").overrides)
        if changes:
            engine.alter_config("orders", {name.replace("_", "."): value for name, value in changes.items()})
    return found


@pytest.fixture
def disk() -> SimulatedDisk:
    """Two directories as a broker leaves them; one has the metadata log, neither has settings of topicfs."""
    disk = SimulatedDisk()
    with closing(open_engine([ONE, OTHER], machine=Machine(files=disk))) as engine:
        engine.create_topic("orders", partitions=2)
    for directory in (ONE, OTHER):
        disk.unlink(directory / names.TOPIC_SETTINGS)
    disk.make_directory(METADATA)
    return disk


def topic_id(disk: SimulatedDisk) -> str:
    content = disk.read_bytes(ONE / "orders-0" / names.PARTITION_METADATA).decode()
    return content.partition("topic_id: ")[2].strip()


def test_a_topic_gets_the_settings_that_its_cluster_gave_it(disk: SimulatedDisk) -> None:
    """A topic gets the settings that its cluster gave it, in addition to the defaults for new topics.

    With these settings a broker can open the topic's indexes later.
    """
    disk.write_bytes(LOG, metadata(topic_id(disk), {"segment.index.bytes": "800"}))
    assert {**KEPT, "segment.index.bytes": "800"} == overrides(disk)
    with closing(open_engine([ONE, OTHER], machine=Machine(files=disk))) as engine:
        assert 800 == engine.topic("orders").config.segment_index_bytes


@pytest.mark.parametrize("max_opened_at_start", [0, 1000])
def test_what_the_cluster_changed_since_is_taken_too(disk: SimulatedDisk, max_opened_at_start: int) -> None:
    """If the cluster has changed or removed a topic's setting since the last start, a start applies the change.

    The change is applied even if the topic's partitions are not opened.
    """
    disk.write_bytes(LOG, metadata(topic_id(disk), {"segment.ms": "1000", "retention.ms": "5"}))
    assert {"segment.ms": "1000", "retention.ms": "5"} == overrides(disk)
    disk.write_bytes(LOG, metadata(topic_id(disk), {"segment.ms": "2000"}))
    assert {"segment.ms": "2000", "retention.ms": "-1"} == overrides(
        disk, max_opened_at_start=max_opened_at_start
    )


def test_what_was_set_here_stays_until_the_cluster_changes_the_topic(disk: SimulatedDisk) -> None:
    """Settings that were made with topicfs stay until the cluster changes the topic."""
    disk.write_bytes(LOG, metadata(topic_id(disk), {"segment.ms": "1000"}))
    overrides(disk, segment_ms="3000", max_message_bytes="7000")
    ours = {**KEPT, "segment.ms": "3000", "max.message.bytes": "7000"}
    assert [ours, ours] == [overrides(disk) for _ in range(2)]
    disk.write_bytes(LOG, metadata(topic_id(disk), {"segment.ms": "2000"}))
    assert {**ours, "segment.ms": "2000"} == overrides(disk)


def test_settings_of_another_topic_of_that_name_are_left(disk: SimulatedDisk) -> None:
    """Settings of a topic with the same name but another ID are ignored."""
    disk.write_bytes(LOG, metadata("AAAAAAAAAAAAAAAAAAAABw", {"segment.ms": "1000"}))
    assert KEPT == overrides(disk)


def test_a_metadata_log_that_cannot_be_read_is_an_error(disk: SimulatedDisk) -> None:
    """If the metadata log cannot be read, only a read-only engine opens the directories."""
    disk.write_bytes(LOG, bytes(batch(b"\xff" * 8)))
    before = disk.tree()
    with pytest.raises(CorruptionError, match="a metadata record that cannot be read"):
        overrides(disk)
    assert before == disk.tree()
    machine = Machine(files=disk.read_only_view())
    with closing(open_engine([ONE, OTHER], read_only=True, machine=machine, config=EngineConfig())) as engine:
        assert 2 == len(engine.topic("orders").partitions())
