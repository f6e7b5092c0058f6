"""Tests of opening and closing a data directory: what is created, found, refused and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doubles.engines import DATA, append_lines, engine_on, listing, read_lines
from tests.doubles.manual_clock import ManualClock
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.engine import Engine
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.checkpoints.meta_properties import read_meta_properties
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.errors import CorruptionError, NotALogDirectoryError, StorageError
from topicfs.storage.manager import LogManager, Machine, open_engine
from topicfs.storage.model import Offset


def test_new_directory_is_a_kafka_data_directory(disk: SimulatedDisk) -> None:
    """A new directory gets IDs in Kafka's format, which stay after restarts. A clean close writes the marker."""
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
    """A missing directory ID is added to meta.properties, as by a broker. All other fields stay."""
    disk.make_directory(DATA)
    disk.write_bytes(DATA / "meta.properties", b"version=1\nnode.id=3\ncluster.id=abc\n")
    engine_on(disk).close()
    meta = read_meta_properties(disk, DATA)
    assert meta is not None
    assert (3, "abc") == (meta.node_id, meta.cluster_id)
    decode_id(meta.directory_id or "")


def test_records_and_settings_survive_a_restart(disk: SimulatedDisk, engine: LogManager) -> None:
    """Records, settings and topic ID are the same after a restart."""
    topic = engine.create_topic("orders", partitions=2, overrides={"max.message.bytes": "2000"})
    append_lines(engine.partition("orders", 1), "one\ntwo\n")
    engine.close()
    again = engine_on(disk)
    assert ["one", "two"] == read_lines(again.partition("orders", 1))
    assert topic.topic_id == again.topic("orders").topic_id
    assert topic.overrides == again.topic("orders").overrides
    assert 2000 == again.partition("orders", 1).config.max_message_bytes
    assert () == again.warnings


def test_unclean_stop_loses_nothing_that_was_written(disk: SimulatedDisk, engine: LogManager) -> None:
    """After a kill the next start recovers all records that were written."""
    engine.create_topic("orders")
    append_lines(engine.partition("orders", 0), "one\ntwo\n")
    again = engine_on(disk)
    assert ["one", "two"] == read_lines(again.partition("orders", 0))
    assert 0 == again.partition("orders", 0).offsets().recovery_point


def test_clean_marker_is_taken_at_the_start(disk: SimulatedDisk) -> None:
    """Row 32: the marker is removed while the directory is open, so that the next start notices a kill."""
    engine_on(disk).close()
    assert ".kafka_cleanshutdown" in listing(disk)
    engine = engine_on(disk)
    assert ".kafka_cleanshutdown" not in listing(disk)
    engine.close()
    engine.close()
    assert ".kafka_cleanshutdown" in listing(disk)


def test_checkpoints_are_written_at_the_close(disk: SimulatedDisk, engine: LogManager) -> None:
    """A close writes recovery points, high watermarks, and log starts inside a segment."""
    engine.create_topic("a")
    engine.create_topic("b")
    append_lines(engine.partition("a", 0), "1\n2\n3\n")
    engine.partition("a", 0).delete_records(Offset(2))
    engine.close()
    assert b"0\n2\na 0 3\nb 0 0\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")
    assert b"0\n2\na 0 3\nb 0 0\n" == disk.read_bytes(DATA / "replication-offset-checkpoint")
    assert b"0\n1\na 0 2\n" == disk.read_bytes(DATA / "log-start-offset-checkpoint")
    assert ["3"] == read_lines(engine_on(disk).partition("a", 0))


def test_stray_and_future_directories_are_kept_not_served(disk: SimulatedDisk) -> None:
    """A broker's stray and future directories are kept, not served, and a warning names them."""
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
    """A directory with entries that are not Kafka's is refused and not changed."""
    disk.make_directory(DATA)
    disk.make_directory(DATA / name)
    disk.write_bytes(DATA / ".kafka_cleanshutdown", b"{}")
    before = disk.tree()
    with pytest.raises(NotALogDirectoryError, match=name.replace("+", r"\+")):
        engine_on(disk)
    assert before == disk.tree()


def test_a_folder_of_foreign_files_is_refused_before_any_directory_is_made(disk: SimulatedDisk) -> None:
    """If one of several directories has foreign files, the opening creates no directory."""
    disk.make_directory(DATA)
    disk.write_bytes(DATA / "letter.txt", b"mine")
    before = disk.tree()
    with pytest.raises(NotALogDirectoryError, match="it holds letter.txt"):
        open_engine([Path("/new"), DATA], machine=Machine(files=disk))
    assert before == disk.tree()


def test_topics_made_by_a_broker_are_adopted(disk: SimulatedDisk) -> None:
    """A broker's topics get retention.ms=-1, because the broker's settings are unknown."""
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


def test_settings_of_a_topic_created_again_by_someone_else_are_dropped(disk: SimulatedDisk) -> None:
    """Stored settings are dropped if the directory has another topic ID."""
    engine = engine_on(disk)
    engine.create_topic("t", overrides={"max.message.bytes": "77"})
    engine.close()
    disk.write_bytes(DATA / "t-0" / "partition.metadata", b"version: 0\ntopic_id: 1EvPSKI_SvihSIy3lMKMvg")
    engine = engine_on(disk)
    assert "1EvPSKI_SvihSIy3lMKMvg" == engine.topic("t").topic_id
    assert {"retention.ms": "-1"} == engine.topic("t").overrides
    assert "created again" in engine.warnings[0]


def test_settings_of_a_vanished_topic_are_dropped(disk: SimulatedDisk, engine: LogManager) -> None:
    """If all directories of a topic were removed, its settings are dropped with a warning."""
    engine.create_topic("t")
    engine.close()
    disk.rename(DATA / "t-0", Path("/elsewhere"))
    engine = engine_on(disk)
    assert {} == engine.topics()
    assert "no directory any more" in engine.warnings[0]
    assert {} == json.loads(disk.read_bytes(DATA / "topicfs.topics"))["topics"]


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication", "cleaner"])
def test_malformed_checkpoints_count_as_empty(disk: SimulatedDisk, engine: LogManager, name: str) -> None:
    """A malformed checkpoint counts as empty, with a warning, as in a broker."""
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
    """Checkpoint lines of missing partitions are dropped, so that later topics do not inherit them."""
    disk.make_directory(DATA)
    disk.write_bytes(DATA / "recovery-point-offset-checkpoint", b"0\n1\nghost 0 500\n")
    engine = engine_on(disk)
    assert () == engine.warnings
    assert b"0\n0\n" == disk.read_bytes(DATA / "recovery-point-offset-checkpoint")


@pytest.mark.parametrize("name", ["topicfs.topics", "meta.properties"])
def test_damaged_own_files_refuse_the_opening(disk: SimulatedDisk, name: str) -> None:
    """A damaged settings or ID file refuses the opening. The error names the file, and nothing is changed."""
    engine_on(disk).close()
    disk.write_bytes(DATA / name, b"rubbish")
    before = disk.tree()
    with pytest.raises(CorruptionError, match=name):
        engine_on(disk)
    assert before == disk.tree()


def test_kept_settings_that_are_not_valid_are_reported(disk: SimulatedDisk, engine: LogManager) -> None:
    """An invalid setting stays in the settings file, a warning names the setting, and the topic is opened."""
    engine.create_topic("t")
    engine.close()
    registry = disk.read_bytes(DATA / "topicfs.topics")
    disk.write_bytes(DATA / "topicfs.topics", registry.replace(b'"-1"', b'"never"'))
    engine = engine_on(disk)
    assert {"retention.ms": "never"} == engine.topic("t").overrides
    assert TopicConfig().retention_ms == engine.topic("t").config.retention_ms
    assert "retention.ms=never" in engine.warnings[0]


def test_closed_engine_changes_nothing(disk: SimulatedDisk, engine: LogManager) -> None:
    """A call on a closed engine raises an error, and maintenance does nothing."""
    engine.create_topic("t")
    engine.close()
    before = disk.tree()
    with pytest.raises(StorageError, match="closed"):
        engine.create_topic("u")
    engine.maintenance(ManualClock(2_000_000_000_000)())
    assert before == disk.tree()
