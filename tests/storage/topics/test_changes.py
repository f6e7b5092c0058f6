"""Tests of creating, extending, altering and deleting topics: a change is made completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, listing
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import (
    InvalidConfigError,
    InvalidNameError,
    PartitionOfflineError,
    TopicExistsError,
    UnknownTopicError,
)
from topicfs.storage.manager import LogManager
from topicfs.storage.model import Offset
from topicfs.storage.topics.registry import PendingChange, TopicEntry


def test_topic_is_made_with_its_partitions(disk: SimulatedDisk, engine: LogManager) -> None:
    """A new topic has its directories, topic IDs and overrides."""
    topic = engine.create_topic("orders", partitions=2, overrides={"segment.ms": "5000"})
    assert [0, 1] == list(topic.partitions())
    assert {"retention.ms": "-1", "segment.ms": "5000"} == topic.overrides
    assert (-1, 5000) == (topic.config.retention_ms, topic.config.segment_ms)
    for name in ("orders-0", "orders-1"):
        metadata = disk.read_bytes(DATA / name / "partition.metadata")
        assert f"version: 0\ntopic_id: {topic.topic_id}".encode() == metadata
    assert topic is engine.topic("orders")
    assert not topic.internal


def test_kafkas_own_topics_are_made_as_kafka_makes_them(engine: LogManager) -> None:
    """Kafka's internal topics are compacted, unless the given overrides set another policy."""
    topic = engine.create_topic("__consumer_offsets", partitions=2, overrides={"segment.bytes": "2000000"})
    assert topic.internal
    assert {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "2000000",
    } == topic.overrides


def test_topic_is_made_with_a_given_id(disk: SimulatedDisk, engine: LogManager) -> None:
    """A topic can be created with a given ID, which stays after a restart."""
    topic = engine.create_topic("copy", topic_id="1EvPSKI_SvihSIy3lMKMvg")
    assert "1EvPSKI_SvihSIy3lMKMvg" == topic.topic_id
    assert b"topic_id: 1EvPSKI_SvihSIy3lMKMvg" in disk.read_bytes(DATA / "copy-0" / "partition.metadata")
    engine.close()
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine_on(disk).topic("copy").topic_id


@pytest.mark.parametrize(
    ("topic_id", "reason"),
    [
        ("short", "22 base64url characters"),
        ("AAAAAAAAAAAAAAAAAAAAAQ", "reserved"),
        ("1EvPSKI_SvihSIy3lMKMvg", "the topic first has this id"),
    ],
)
def test_ids_that_no_new_topic_can_have(disk: SimulatedDisk, topic_id: str, reason: str) -> None:
    """A malformed, reserved or used ID is refused, and nothing is created."""
    engine = engine_on(disk)
    engine.create_topic("first", topic_id="1EvPSKI_SvihSIy3lMKMvg")
    before = listing(disk)
    with pytest.raises(InvalidConfigError, match=reason):
        engine.create_topic("second", topic_id=topic_id)
    assert before == listing(disk)
    assert ["first"] == list(engine.topics())


def test_the_id_of_an_unfinished_attempt_is_not_replaced(engine: LogManager) -> None:
    """A topic whose creation is unfinished can be created only with the same ID."""
    registry = engine._registry
    registry.put({"orders": TopicEntry("1EvPSKI_SvihSIy3lMKMvg", {}, PendingChange.CREATE)})
    with pytest.raises(
        InvalidConfigError, match="a failed attempt to make it with the id 1EvPSKI_SvihSIy3lMKMvg"
    ):
        engine.create_topic("orders", topic_id="2EvPSKI_SvihSIy3lMKMvg")
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine.create_topic("orders").topic_id


def test_number_of_partitions_defaults_to_the_settings(disk: SimulatedDisk) -> None:
    """A topic that is created without a number of partitions gets num.partitions partitions."""
    engine = engine_on(disk, config=EngineConfig(num_partitions=3))
    assert 3 == len(engine.create_topic("t").partitions())


@pytest.mark.parametrize(
    ("name", "error"),
    [("a/b", InvalidNameError), ("", InvalidNameError), ("a.b", TopicExistsError), ("a_b", TopicExistsError)],
)
def test_bad_names_change_nothing(disk: SimulatedDisk, name: str, error: type[Exception]) -> None:
    """Illegal, existing and colliding names are refused before the disk is changed."""
    engine = engine_on(disk)
    engine.create_topic("a.b")
    before = disk.tree()
    with pytest.raises(error):
        engine.create_topic(name)
    assert before == disk.tree()


@pytest.mark.parametrize(
    ("partitions", "overrides"), [(0, {}), (10_001, {}), (1, {"nonsense": "1"}), (1, {"segment.bytes": "1"})]
)
def test_bad_settings_change_nothing(disk: SimulatedDisk, partitions: int, overrides: dict[str, str]) -> None:
    """Invalid counts, unknown names and invalid values are refused before the disk is changed."""
    engine = engine_on(disk)
    before = disk.tree()
    with pytest.raises(InvalidConfigError):
        engine.create_topic("t", partitions=partitions, overrides=overrides)
    assert before == disk.tree()
    assert {} == engine.topics()


def test_partitions_are_added(disk: SimulatedDisk, engine: LogManager) -> None:
    """Partitions are added up to the total, with the topic's ID and settings. A smaller total changes nothing."""
    topic = engine.create_topic("t", overrides={"max.message.bytes": "99"})
    append_lines(engine.partition("t", 0), "x\n")
    engine.add_partitions("t", total=3)
    engine.add_partitions("t", total=2)
    assert [0, 1, 2] == list(topic.partitions())
    assert 99 == engine.partition("t", 2).config.max_message_bytes
    assert topic.topic_id.encode() in disk.read_bytes(DATA / "t-2" / "partition.metadata")
    engine.close()
    assert [0, 1, 2] == list(engine_on(disk).topic("t").partitions())


def test_holes_among_partitions_are_filled(disk: SimulatedDisk, engine: LogManager) -> None:
    """Adding partitions also creates partitions whose numbers are missing."""
    engine.create_topic("t", partitions=3)
    engine.close()
    disk.rename(DATA / "t-1", Path("/elsewhere"))
    engine = engine_on(disk)
    assert [0, 2] == list(engine.topic("t").partitions())
    engine.add_partitions("t", total=3)
    assert [0, 1, 2] == list(engine.topic("t").partitions())


def test_settings_are_altered_all_or_nothing(disk: SimulatedDisk, engine: LogManager) -> None:
    """Valid changes take effect in all partitions and on disk. One invalid change refuses all changes."""
    topic = engine.create_topic("t", partitions=2)
    engine.alter_config("t", {"retention.ms": None, "max.message.bytes": "77"})
    assert {"max.message.bytes": "77"} == topic.overrides
    for changes in ({"segment.ms": "5", "max.message.bytes": "x"}, {"segment.ms": "5", "nonsense": None}):
        with pytest.raises(InvalidConfigError):
            engine.alter_config("t", changes)
    assert {"max.message.bytes": "77"} == topic.overrides
    assert [77, 77] == [one.config.max_message_bytes for one in topic.partitions().values()]
    assert TopicConfig().retention_ms == topic.config.retention_ms
    engine.close()
    assert {"max.message.bytes": "77"} == engine_on(disk).topic("t").overrides


def test_setting_that_cannot_be_written_has_no_effect(disk: SimulatedDisk, engine: LogManager) -> None:
    """If the settings cannot be written, they stay as they were, even in memory."""
    topic = engine.create_topic("t")
    disk.fail("write_bytes", suffix=".tmp")
    with pytest.raises(OSError, match="topicfs"):
        engine.alter_config("t", {"max.message.bytes": "77"})
    assert {"retention.ms": "-1"} == topic.overrides
    assert TopicConfig().max_message_bytes == engine.partition("t", 0).config.max_message_bytes


def test_deleted_topic_is_gone_at_once_and_its_files_later(disk: SimulatedDisk) -> None:
    """A deleted topic's directories are renamed at once, and removed after file.delete.delay.ms."""
    clock = ManualClock()
    engine = engine_on(disk, clock=clock)
    engine.create_topic("t", partitions=2, overrides={"file.delete.delay.ms": "5000"})
    engine.create_topic("u")
    old = engine.partition("t", 0)
    append_lines(old, "x\n")
    engine.delete_topic("t")
    with pytest.raises(UnknownTopicError):
        engine.topic("t")
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "y\n")
    marked = [name for name in listing(disk) if name.endswith("-delete")]
    assert ["t-0.", "t-1."] == [name[:4] for name in marked]
    clock.advance(4999)
    engine.maintenance(clock())
    assert marked == [name for name in listing(disk) if name.endswith("-delete")]
    clock.advance(1000)
    engine.maintenance(clock())
    assert [] == [name for name in listing(disk) if name.startswith("t-")]
    assert "u-0" in listing(disk)


def test_deleted_topic_leaves_no_lines_in_checkpoints(disk: SimulatedDisk, engine: LogManager) -> None:
    """A deleted topic's checkpoint lines are removed, so that a new topic does not start at the old offsets."""
    engine.create_topic("t")
    append_lines(engine.partition("t", 0), "1\n2\n3\n")
    engine.partition("t", 0).delete_records(Offset(2))
    engine.close()
    disk.write_bytes(DATA / "cleaner-offset-checkpoint", b"0\n1\nt 0 1\n")
    engine = engine_on(disk)
    engine.delete_topic("t")
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        assert b"0\n0\n" == disk.read_bytes(DATA / f"{name}-offset-checkpoint"), name
    again = engine.create_topic("t")
    assert 0 == again.partitions()[0].offsets().log_end_offset


def test_delete_left_overs_are_removed_after_a_restart(disk: SimulatedDisk) -> None:
    """The next owner removes directories that were waiting to be deleted."""
    clock = ManualClock()
    engine = engine_on(disk, clock=clock)
    engine.create_topic("t")
    engine.delete_topic("t")
    engine.close()
    engine = engine_on(disk, clock=clock)
    assert {} == engine.topics()
    clock.advance(60_000)
    engine.maintenance(clock())
    assert [] == [name for name in listing(disk) if name.endswith("-delete")]


def test_directory_that_cannot_be_removed_is_tried_again(disk: SimulatedDisk) -> None:
    """A directory that cannot be removed causes a warning, and the removal is retried."""
    clock = ManualClock()
    engine = engine_on(disk, clock=clock)
    engine.create_topic("t", overrides={"file.delete.delay.ms": "0"})
    engine.delete_topic("t")
    disk.fail("unlink", suffix=".log")
    engine.maintenance(clock())
    assert 1 == len(engine.warnings)
    clock.advance(60_000)
    engine.maintenance(clock())
    assert [] == [name for name in listing(disk) if name.endswith("-delete")]


def test_unknown_topics_and_partitions(engine: LogManager) -> None:
    """Each call for an unknown topic or partition raises UnknownTopicError."""
    engine.create_topic("t")
    for ask in (
        lambda: engine.topic("x"),
        lambda: engine.partition("x", 0),
        lambda: engine.partition("t", 1),
        lambda: engine.add_partitions("x", total=2),
        lambda: engine.delete_topic("x"),
        lambda: engine.alter_config("x", {}),
        lambda: engine.reopen_partition("t", 1),
    ):
        with pytest.raises(UnknownTopicError):
            ask()
