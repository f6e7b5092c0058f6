"""The engine over a data directory: topics, settings, reopening, what is on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.checkpoints.identifiers import decode_id
from storage.checkpoints.meta_properties import read_meta_properties
from storage.config.broker import EngineConfig
from storage.config.topic import TopicConfig
from storage.engine import Engine
from storage.errors import (
    CorruptionError,
    InvalidConfigError,
    InvalidNameError,
    NotALogDirectoryError,
    PartitionGoneError,
    PartitionOfflineError,
    ReadOnlyError,
    SegmentDeletedError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from storage.manager import open_engine
from storage.model import Offset, Timestamp
from tests.doubles.engines import DATA, append_lines, engine_on, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def listing(disk: SimulatedDisk, path: Path = DATA) -> list[str]:
    return [entry.name for entry in disk.list_directory(path)]


def test_new_directory_is_a_kafka_data_directory(disk: SimulatedDisk) -> None:
    """It gets ids in Kafka's form, kept over restarts, and after a clean close the marker."""
    engine: Engine = engine_on(disk, config=EngineConfig(node_id=7))
    assert (False, False, {}) == (engine.read_only, engine.foreign, dict(engine.topics()))
    engine.close()
    meta = read_meta_properties(disk, DATA)
    assert meta is not None
    assert (7, 1) == (meta.node_id, meta.version)
    assert decode_id(meta.cluster_id or "") != decode_id(meta.directory_id or "")
    assert [".kafka_cleanshutdown", "meta.properties", "topicfs.reserve"] == listing(disk)
    engine_on(disk).close()
    assert meta == read_meta_properties(disk, DATA)


def test_missing_directory_id_is_added(disk: SimulatedDisk) -> None:
    """A broker adds it to an older file; everything else stays."""
    disk.make_directory(DATA)
    disk.write_bytes(DATA / "meta.properties", b"version=1\nnode.id=3\ncluster.id=abc\n")
    engine_on(disk).close()
    meta = read_meta_properties(disk, DATA)
    assert meta is not None
    assert (3, "abc") == (meta.node_id, meta.cluster_id)
    decode_id(meta.directory_id or "")


def test_topic_is_made_with_its_partitions(disk: SimulatedDisk) -> None:
    """Directories, topic ids in them, and the overrides of a topic made here."""
    engine = engine_on(disk)
    topic = engine.create_topic("orders", partitions=2, overrides={"segment.ms": "5000"})
    assert [0, 1] == list(topic.partitions())
    assert {"retention.ms": "-1", "segment.ms": "5000"} == topic.overrides
    assert (-1, 5000) == (topic.config.retention_ms, topic.config.segment_ms)
    for name in ("orders-0", "orders-1"):
        metadata = disk.read_bytes(DATA / name / "partition.metadata")
        assert f"version: 0\ntopic_id: {topic.topic_id}".encode() == metadata
    assert topic is engine.topic("orders")
    assert not topic.internal


def test_kafkas_own_topics_are_made_as_kafka_makes_them(disk: SimulatedDisk) -> None:
    """They are compacted, not kept forever; what the maker says goes before."""
    engine = engine_on(disk)
    topic = engine.create_topic("__consumer_offsets", partitions=2, overrides={"segment.bytes": "2000000"})
    assert topic.internal
    assert {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "2000000",
    } == topic.overrides


def test_number_of_partitions_defaults_to_the_settings(disk: SimulatedDisk) -> None:
    """num.partitions counts where nobody says how many."""
    engine = engine_on(disk, config=EngineConfig(num_partitions=3))
    assert 3 == len(engine.create_topic("t").partitions())


def test_records_and_settings_survive_a_restart(disk: SimulatedDisk) -> None:
    """What was appended and set is there again, under the same topic id."""
    engine = engine_on(disk)
    topic = engine.create_topic("orders", partitions=2, overrides={"max.message.bytes": "2000"})
    append_lines(engine.partition("orders", 1), "one\ntwo\n")
    engine.close()
    again = engine_on(disk)
    assert ["one", "two"] == read_lines(again.partition("orders", 1))
    assert topic.topic_id == again.topic("orders").topic_id
    assert topic.overrides == again.topic("orders").overrides
    assert 2000 == again.partition("orders", 1).config.max_message_bytes
    assert () == again.warnings


def test_unclean_stop_loses_nothing_that_was_written(disk: SimulatedDisk) -> None:
    """A killed process leaves its writes to the system: the next start recovers and finds them."""
    engine = engine_on(disk)
    engine.create_topic("orders")
    append_lines(engine.partition("orders", 0), "one\ntwo\n")
    again = engine_on(disk)
    assert ["one", "two"] == read_lines(again.partition("orders", 0))
    assert 0 == again.partition("orders", 0).offsets().recovery_point


def test_clean_marker_is_taken_at_the_start(disk: SimulatedDisk) -> None:
    """Row 32: while the directory is open it is not marked, so that a kill makes the next start unclean."""
    engine_on(disk).close()
    assert ".kafka_cleanshutdown" in listing(disk)
    engine = engine_on(disk)
    assert ".kafka_cleanshutdown" not in listing(disk)
    engine.close()
    engine.close()
    assert ".kafka_cleanshutdown" in listing(disk)


def test_checkpoints_are_written_at_the_close(disk: SimulatedDisk) -> None:
    """Recovery points, high watermarks, and log starts inside a segment."""
    engine = engine_on(disk)
    engine.create_topic("a")
    engine.create_topic("b")
    append_lines(engine.partition("a", 0), "1\n2\n3\n")
    engine.partition("a", 0).delete_records(Offset(2))
    engine.close()
    assert b"0\n2\na 0 3\nb 0 0\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
    assert b"0\n2\na 0 3\nb 0 0\n" == disk.read_bytes(DATA / "replication-offset-checkpoint")
    assert b"0\n1\na 0 2\n" == disk.read_bytes(DATA / "log-start-offset-checkpoint")
    assert ["3"] == read_lines(engine_on(disk).partition("a", 0))


@pytest.mark.parametrize(
    ("name", "error"),
    [("a/b", InvalidNameError), ("", InvalidNameError), ("a.b", TopicExistsError), ("a_b", TopicExistsError)],
)
def test_bad_names_change_nothing(disk: SimulatedDisk, name: str, error: type[Exception]) -> None:
    """Illegal, existing and colliding names are refused before the disk is touched."""
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
    """Counts out of bounds, unknown names and bad values are refused before the disk is touched."""
    engine = engine_on(disk)
    before = disk.tree()
    with pytest.raises(InvalidConfigError):
        engine.create_topic("t", partitions=partitions, overrides=overrides)
    assert before == disk.tree()
    assert {} == engine.topics()


def test_partitions_are_added(disk: SimulatedDisk) -> None:
    """What is missing up to the total is made, under the topic's id and settings; fewer is no change."""
    engine = engine_on(disk)
    topic = engine.create_topic("t", overrides={"max.message.bytes": "99"})
    append_lines(engine.partition("t", 0), "x\n")
    engine.add_partitions("t", total=3)
    engine.add_partitions("t", total=2)
    assert [0, 1, 2] == list(topic.partitions())
    assert 99 == engine.partition("t", 2).config.max_message_bytes
    assert topic.topic_id.encode() in disk.read_bytes(DATA / "t-2" / "partition.metadata")
    engine.close()
    assert [0, 1, 2] == list(engine_on(disk).topic("t").partitions())


def test_holes_among_partitions_are_filled(disk: SimulatedDisk) -> None:
    """A foreign directory may lack some numbers; adding makes those that are missing."""
    engine = engine_on(disk)
    engine.create_topic("t", partitions=3)
    engine.close()
    disk.rename(DATA / "t-1", Path("/elsewhere"))
    engine = engine_on(disk)
    assert [0, 2] == list(engine.topic("t").partitions())
    engine.add_partitions("t", total=3)
    assert [0, 1, 2] == list(engine.topic("t").partitions())


def test_settings_are_altered_all_or_nothing(disk: SimulatedDisk) -> None:
    """Valid changes take effect in every partition and on disk; one bad one refuses all."""
    engine = engine_on(disk)
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


def test_setting_that_cannot_be_written_has_no_effect(disk: SimulatedDisk) -> None:
    """A full disk leaves settings as they were, in memory too."""
    engine = engine_on(disk)
    topic = engine.create_topic("t")
    disk.fail("write_bytes", suffix=".tmp")
    with pytest.raises(OSError, match="topicfs"):
        engine.alter_config("t", {"max.message.bytes": "77"})
    assert {"retention.ms": "-1"} == topic.overrides
    assert TopicConfig().max_message_bytes == engine.partition("t", 0).config.max_message_bytes


def test_deleted_topic_is_gone_at_once_and_its_files_later(disk: SimulatedDisk) -> None:
    """Directories are renamed with the delete mark, then removed after file.delete.delay.ms."""
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


def test_deleted_topic_leaves_no_lines_in_checkpoints(disk: SimulatedDisk) -> None:
    """A new topic of the same name would else be taken for flushed, and begin where the old one did."""
    engine = engine_on(disk)
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
    """A directory that was waiting for its end gets it from the next owner."""
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
    """One failure is a warning, not the end of it."""
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


def test_stray_and_future_directories_are_kept_not_served(disk: SimulatedDisk) -> None:
    """They are a broker's affair; the owner is told."""
    unique = "0" * 32
    disk.make_directory(DATA)
    for mark in ("stray", "future"):
        disk.make_directory(DATA / f"t-0.{unique}-{mark}")
    disk.make_directory(DATA / "__cluster_metadata-0")
    disk.write_bytes(DATA / "notes.txt", b"mine")
    engine = engine_on(disk)
    assert {} == engine.topics()
    assert 2 == len(engine.warnings)
    engine.close()
    assert b"mine" == disk.read_bytes(DATA / "notes.txt")
    assert 2 == len([name for name in listing(disk) if name.startswith("t-0.")])


@pytest.mark.parametrize("name", ["lost+found", "photos", "t-01"])
def test_someone_elses_directory_is_refused_untouched(disk: SimulatedDisk, name: str) -> None:
    """Nothing is made or changed in a directory that holds something other than Kafka's own entries."""
    disk.make_directory(DATA)
    disk.make_directory(DATA / name)
    disk.write_bytes(DATA / ".kafka_cleanshutdown", b"{}")
    before = disk.tree()
    with pytest.raises(NotALogDirectoryError, match=name.replace("+", r"\+")):
        engine_on(disk)
    assert before == disk.tree()


def test_topics_made_by_a_broker_are_adopted(disk: SimulatedDisk) -> None:
    """Without settings of their own they keep their records, for a broker's settings are out of sight."""
    disk.make_directory(DATA)
    for name in ("t-0", "__consumer_offsets-0"):
        disk.make_directory(DATA / name)
        disk.write_bytes(DATA / name / "partition.metadata", b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")
    engine = engine_on(disk)
    assert {"retention.ms": "-1"} == engine.topic("t").overrides
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine.topic("t").topic_id
    assert engine.topic("__consumer_offsets").internal
    assert engine.topic("__consumer_offsets").config.compacts
    assert {"t", "__consumer_offsets"} == set(json.loads(disk.read_bytes(DATA / "topicfs.topics"))["topics"])


def test_settings_of_a_topic_made_anew_by_someone_else_are_dropped(disk: SimulatedDisk) -> None:
    """The topic id tells that the directory is not that of the topic the settings were for."""
    engine = engine_on(disk)
    engine.create_topic("t", overrides={"max.message.bytes": "77"})
    engine.close()
    disk.write_bytes(DATA / "t-0" / "partition.metadata", b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")
    engine = engine_on(disk)
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine.topic("t").topic_id
    assert {"retention.ms": "-1"} == engine.topic("t").overrides
    assert "created again" in engine.warnings[0]


def test_settings_of_a_vanished_topic_are_dropped(disk: SimulatedDisk) -> None:
    """Someone removed the directories: the topic is gone, and the owner is told."""
    engine = engine_on(disk)
    engine.create_topic("t")
    engine.close()
    disk.rename(DATA / "t-0", Path("/elsewhere"))
    engine = engine_on(disk)
    assert {} == engine.topics()
    assert "no directory any more" in engine.warnings[0]
    assert {} == json.loads(disk.read_bytes(DATA / "topicfs.topics"))["topics"]


def test_partition_of_another_topic_is_offline(disk: SimulatedDisk) -> None:
    """Row 64: two ids in one topic: the topic's own partitions are served, the other is refused with the reason."""
    engine = engine_on(disk)
    engine.create_topic("t", partitions=2)
    engine.close()
    disk.write_bytes(DATA / "t-1" / "partition.metadata", b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")
    engine = engine_on(disk)
    append_lines(engine.partition("t", 0), "x\n")
    assert (
        engine.partition("t", 1).status().state.startswith("offline: its topic id is 1EvPSKI_SvihSIy3lMKMvg")
    )
    with pytest.raises(PartitionOfflineError, match="t-1"):
        append_lines(engine.partition("t", 1), "x\n")


def test_damaged_partition_does_not_keep_others_from_opening(disk: SimulatedDisk) -> None:
    """Row 32: it is offline until it is repaired and reopened; its checkpoint lines stay, the close is unclean."""
    engine = engine_on(disk)
    engine.create_topic("t", partitions=2)
    for number in (0, 1):
        append_lines(engine.partition("t", number), "x\ny\n")
    engine.close()
    disk.write_bytes(DATA / "t-1" / "leader-epoch-checkpoint", b"rubbish\n")
    engine = engine_on(disk)
    assert "t-1: offline" in engine.warnings[0]
    assert ["x", "y"] == read_lines(engine.partition("t", 0))
    offline = engine.partition("t", 1)
    for refused in (
        lambda: offline.read(Offset(0), max_bytes=1),
        offline.sync,
        lambda: offline.delete_records(Offset(0)),
        lambda: offline.open_segment_file("x"),
        lambda: offline.offset_for_timestamp(0),  # type: ignore[arg-type]
    ):
        with pytest.raises(PartitionOfflineError, match="leader-epoch-checkpoint"):
            refused()
    engine.close()
    assert ".kafka_cleanshutdown" not in listing(disk)
    assert b"t 1 2\n" in disk.read_bytes(DATA / "recovery-point-offset-checkpoint")

    engine = engine_on(disk)
    with pytest.raises(CorruptionError):
        engine.reopen_partition("t", 1)
    disk.write_bytes(DATA / "t-1" / "leader-epoch-checkpoint", b"0\n1\n0 0\n")
    assert ["x", "y"] == read_lines(engine.reopen_partition("t", 1))
    assert "online" == engine.partition("t", 1).status().state


def test_partition_whose_flush_failed_is_opened_anew(disk: SimulatedDisk) -> None:
    """It takes no more writes until then; afterwards it goes on from its recovery point."""
    engine = engine_on(disk)
    engine.create_topic("t")
    old = engine.partition("t", 0)
    append_lines(old, "x\n")
    disk.fail("sync", suffix=".log")
    with pytest.raises(OSError, match="log"):
        old.sync()
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "y\n")
    assert engine.partition("t", 0).status().state.startswith("offline")
    again = engine.reopen_partition("t", 0)
    append_lines(again, "z\n")
    assert ["x", "z"] == read_lines(engine.partition("t", 0))
    with pytest.raises(PartitionOfflineError):
        append_lines(old, "y\n")


def test_a_log_in_whose_place_another_one_serves_is_read_no_more(disk: SimulatedDisk) -> None:
    """Its files may be others by then. One that could not be opened again is read as before."""
    engine = engine_on(disk)
    engine.create_topic("t")
    old = engine.partition("t", 0)
    append_lines(old, "x\n")
    epochs = DATA / "t-0" / "leader-epoch-checkpoint"
    sound = disk.read_bytes(epochs)
    disk.write_bytes(epochs, b"rubbish\n")
    with pytest.raises(CorruptionError):
        engine.reopen_partition("t", 0)
    assert ["x"] == read_lines(old)
    with pytest.raises(PartitionOfflineError) as caught:
        append_lines(old, "y\n")
    assert not isinstance(caught.value, PartitionGoneError)
    disk.write_bytes(epochs, sound)
    assert ["x"] == read_lines(engine.reopen_partition("t", 0))
    for refused in (
        lambda: old.read(Offset(0), max_bytes=1),
        lambda: old.open_segment_file("00000000000000000000.log"),
        lambda: old.offset_for_timestamp(Timestamp(0)),
    ):
        with pytest.raises(SegmentDeletedError, match="t-0: it was opened again"):
            refused()
    with pytest.raises(PartitionGoneError):
        append_lines(old, "y\n")


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_malformed_checkpoints_count_as_empty(disk: SimulatedDisk, name: str) -> None:
    """As in a broker: a warning, and recovery from the start."""
    engine = engine_on(disk)
    engine.create_topic("t")
    append_lines(engine.partition("t", 0), "x\n")
    engine.close()
    disk.write_bytes(DATA / f"{name}-offset-checkpoint", b"0\n7\nt 0 1\n")
    engine = engine_on(disk)
    assert ["x"] == read_lines(engine.partition("t", 0))
    assert f"{name}-offset-checkpoint" in engine.warnings[0]
    engine.close()
    assert () == engine_on(disk).warnings


def test_checkpoints_that_name_missing_partitions_are_tolerated(disk: SimulatedDisk) -> None:
    """Their lines go, so that a later topic of that name does not inherit them."""
    disk.make_directory(DATA)
    disk.write_bytes(DATA / "recovery-point-offset-checkpoint", b"0\n1\nghost 0 500\n")
    engine = engine_on(disk)
    assert () == engine.warnings
    assert b"0\n0\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")


@pytest.mark.parametrize("name", ["topicfs.topics", "meta.properties"])
def test_damaged_own_files_refuse_the_opening(disk: SimulatedDisk, name: str) -> None:
    """Guessing at settings or ids could cost records; the error names the file, and nothing is changed."""
    engine_on(disk).close()
    disk.write_bytes(DATA / name, b"rubbish")
    before = disk.tree()
    with pytest.raises(CorruptionError, match=name):
        engine_on(disk)
    assert before == disk.tree()


def test_kept_settings_that_are_not_valid_are_told(disk: SimulatedDisk) -> None:
    """A file edited by hand does not keep the topic from opening, and loses no line."""
    engine = engine_on(disk)
    engine.create_topic("t")
    engine.close()
    registry = disk.read_bytes(DATA / "topicfs.topics")
    disk.write_bytes(DATA / "topicfs.topics", registry.replace(b'"-1"', b'"never"'))
    engine = engine_on(disk)
    assert {"retention.ms": "never"} == engine.topic("t").overrides
    assert TopicConfig().retention_ms == engine.topic("t").config.retention_ms
    assert "retention.ms=never" in engine.warnings[0]


def test_listeners_hear_of_topics_and_partitions(disk: SimulatedDisk) -> None:
    """After each change, not of settings, and no more once cancelled; the change is there when they hear."""
    engine = engine_on(disk)
    heard: list[list[str]] = []
    cancel = engine.listen(
        lambda: heard.append([f"{name}:{len(topic.partitions())}" for name, topic in engine.topics().items()])
    )
    engine.create_topic("t")
    engine.alter_config("t", {"retention.ms": "5"})
    engine.add_partitions("t", total=2)
    engine.add_partitions("t", total=2)
    engine.delete_topic("t")
    cancel()
    cancel()
    engine.create_topic("u")
    assert [["t:1"], ["t:2"], []] == heard


def test_whoever_waits_for_a_deleted_partition_is_woken(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """When it hears, the topic is gone already; a deletion that was asked for is no error in the log."""
    engine = engine_on(disk)
    engine.create_topic("t", partitions=2)
    heard: list[list[str]] = []
    for partition in engine.topic("t").partitions().values():
        partition.listen(lambda: heard.append(list(engine.topics())))
    engine.delete_topic("t")
    assert [[], []] == heard
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def test_whoever_waits_for_a_reopened_partition_is_woken(disk: SimulatedDisk) -> None:
    """When it hears, the engine gives the new one."""
    engine = engine_on(disk)
    engine.create_topic("t")
    old = engine.partition("t", 0)
    heard = []
    old.listen(lambda: heard.append(engine.partition("t", 0) is not old))
    engine.reopen_partition("t", 0)
    assert [True] == heard


def test_unknown_topics_and_partitions(disk: SimulatedDisk) -> None:
    """Every question about them is the same error."""
    engine = engine_on(disk)
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


def test_closed_engine_changes_nothing(disk: SimulatedDisk) -> None:
    """A late call is an error, late maintenance nothing at all."""
    engine = engine_on(disk)
    engine.create_topic("t")
    engine.close()
    before = disk.tree()
    with pytest.raises(StorageError, match="closed"):
        engine.create_topic("u")
    engine.maintenance(ManualClock(2_000_000_000_000)())
    assert before == disk.tree()


def test_read_only_must_fit_the_disk(disk: SimulatedDisk) -> None:
    """A writable disk under a read-only engine would be a promise that nobody keeps."""
    disk.make_directory(DATA)
    with pytest.raises(ValueError, match="read_only"):
        open_engine(DATA, read_only=True, files=disk)


def test_read_only_engine_refuses_every_change(disk: SimulatedDisk) -> None:
    """Topics are shown with their settings; nothing is written, at the close neither."""
    engine = engine_on(disk)
    engine.create_topic("t", overrides={"max.message.bytes": "77"})
    append_lines(engine.partition("t", 0), "x\n")
    before = disk.tree()
    looking = engine_on(disk.read_only_view())
    assert (True, False) == (looking.read_only, looking.foreign)
    assert 77 == looking.topic("t").config.max_message_bytes
    assert ["x"] == read_lines(looking.partition("t", 0))
    for change in (
        lambda: looking.create_topic("u"),
        lambda: looking.add_partitions("t", total=2),
        lambda: looking.delete_topic("t"),
        lambda: looking.alter_config("t", {}),
        lambda: looking.reopen_partition("t", 0),
        lambda: append_lines(looking.partition("t", 0), "y\n"),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    looking.maintenance(ManualClock(2_000_000_000_000)())
    looking.close()
    assert before == disk.tree()


def test_looking_at_an_interrupted_change(disk: SimulatedDisk) -> None:
    """A topic whose deletion began is gone, one whose making began shows what is there; it stays so."""
    engine = engine_on(disk)
    for name in ("dying", "growing"):
        engine.create_topic(name, partitions=2)
    engine.close()
    registry = json.loads(disk.read_bytes(DATA / "topicfs.topics"))
    registry["topics"]["dying"]["pending"] = "delete"
    registry["topics"]["growing"] |= {"pending": "create", "partitions": 3}
    disk.write_bytes(DATA / "topicfs.topics", json.dumps(registry).encode())
    before = disk.tree()
    looking = engine_on(disk.read_only_view())
    assert {"growing": [0, 1]} == {name: list(topic.partitions()) for name, topic in looking.topics().items()}
    looking.close()
    assert before == disk.tree()
    finished = engine_on(disk)
    assert {"growing": [0, 1, 2]} == {
        name: list(topic.partitions()) for name, topic in finished.topics().items()
    }


def test_a_listener_that_was_added_twice_is_ended_once():
    """Each addition has its own end: who shares a callable with somebody else is told as long as one of them listens."""
    engine = engine_on(SimulatedDisk())
    told = []

    def listener() -> None:
        told.append(len(engine.topics()))

    ends = [engine.listen(listener), engine.listen(listener)]
    engine.create_topic("first")
    ends[0]()
    ends[0]()
    engine.create_topic("second")
    ends[1]()
    engine.create_topic("third")
    assert [1, 1, 2] == told
