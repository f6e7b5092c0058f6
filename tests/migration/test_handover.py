"""A handover: its messages, what it creates in the cluster, and the cases in which it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.handover import (
    DATA,
    LOG_DIR,
    SETTINGS,
    OwnCluster,
    contents,
    given,
    numbered,
    prepared_disk,
    served,
)
from topicfs.migration.handover import Handover
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_lines
from topicfs.storage.disk import names
from topicfs.storage.errors import ClusterError, StorageError
from topicfs.storage.model import TopicPartition

pytestmark = pytest.mark.slow


def test_each_step_prints_a_line() -> None:
    """Each step of a handover prints one line; after the last step the broker serves the moved records."""
    disk, _ = prepared_disk(DATA)
    told: list[str] = []
    handover = Handover([DATA], [LOG_DIR], report=told.append, files=disk)
    cluster = OwnCluster(disk)
    assert (False, False) == (handover.prepared, handover.placed)
    handover.prepare(cluster)
    assert (True, False) == (handover.prepared, handover.placed)
    handover.place()
    assert (True, True) == (handover.prepared, handover.placed)
    handover.verify(cluster)
    topic_id = cluster.find_topic("orders").topic_id
    assert f"orders: created in the cluster, 2 partitions, topic id {topic_id}" == told[0]
    assert [
        "orders-0: put into /log/orders-0, offsets 0 to 16",
        "orders-1: put into /log/orders-1, offsets 0 to 16",
        "trimmed-0: put into /log/trimmed-0, offsets 7 to 15",
        "orders: served, offsets as here (32 in 2 partitions)",
        "trimmed: served, offsets as here (8 in 1 partition)",
    ] == told[2:]


def test_checkpoints_say_what_was_put_there() -> None:
    """After the files are placed, a partition's recovery point and high watermark are the log's end.

    A log start inside a segment is written to the checkpoint of log starts.
    """
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    given(disk).place()
    lines = {
        name: read_offsets(disk, LOG_DIR / name)
        for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_START_OFFSETS)
    }
    ends = {
        TopicPartition("orders", 0): 16,
        TopicPartition("orders", 1): 16,
        TopicPartition("trimmed", 0): 15,
    }
    assert {
        names.RECOVERY_POINTS: ends,
        names.HIGH_WATERMARKS: ends,
        names.LOG_START_OFFSETS: {TopicPartition("trimmed", 0): 7},
    } == lines


def test_topics_added_later_are_asked_for_too() -> None:
    """Files are placed only if all present topics were prepared.

    If a topic was added after a preparation, another preparation is needed.
    """
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    engine = served(disk, DATA)
    engine.create_topic("later")
    engine.close()
    assert not given(disk).prepared
    given(disk).prepare(cluster)
    assert given(disk).prepared
    given(disk).place()
    assert contents(disk, DATA) == contents(disk, LOG_DIR)


def test_the_settings_go_along() -> None:
    """The cluster gets each topic's own settings, whether the topic is created or an empty one exists."""
    disk, _ = prepared_disk(DATA)
    engine = served(disk, LOG_DIR)
    engine.create_topic("orders", partitions=2)
    engine.close()
    given(disk).prepare(OwnCluster(disk))
    engine = served(disk, LOG_DIR)
    found = {name: dict(topic.overrides) for name, topic in engine.topics().items()}
    engine.close()
    assert {"orders": SETTINGS, "trimmed": SETTINGS} == found


@pytest.mark.parametrize(
    ("partitions", "records", "message"),
    [
        (2, 1, "orders: the cluster has a topic of that name with records of its own"),
        (3, 0, "orders: 3 partitions in the cluster, 2 partitions here"),
    ],
)
def test_a_topic_in_the_way_is_refused(partitions: int, records: int, message: str) -> None:
    """An existing topic with other records or partitions stays unchanged, and the error says what is in the way."""
    disk, _ = prepared_disk(DATA)
    engine = served(disk, LOG_DIR)
    topic = engine.create_topic("orders", partitions=partitions)
    if records:
        topic.partitions()[1].append(numbered(0, records))
    engine.close()
    before = contents(disk, LOG_DIR)
    with pytest.raises(StorageError, match=message):
        given(disk).prepare(OwnCluster(disk))
    assert before == contents(disk, LOG_DIR)


def test_another_cluster_is_refused() -> None:
    """A handover is refused if the address belongs to another cluster than the log directory."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    cluster.cluster_id = lambda: "another"
    with pytest.raises(ClusterError, match="but the cluster that answers is another"):
        given(disk).prepare(cluster)


def test_records_written_meanwhile_are_not_overwritten() -> None:
    """Records produced to the new topic before its files are placed are not overwritten."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    engine = served(disk, LOG_DIR)
    engine.partition("orders", 1).append(numbered(100, 1))
    engine.close()
    with pytest.raises(StorageError, match="/log/orders-1: has other records"):
        given(disk).place()
    assert 1 == len(contents(disk, LOG_DIR)["orders", 1])


def test_a_topic_created_again_in_the_cluster_is_noticed() -> None:
    """A topic recreated between two phases has another id, so nothing is placed until a new preparation."""
    disk, records = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    engine = served(disk, LOG_DIR)
    engine.delete_topic("orders")
    engine.create_topic("orders", partitions=2)
    engine.close()
    with pytest.raises(StorageError, match="but the cluster reported"):
        given(disk).place()
    given(disk).prepare(cluster)
    given(disk).place()
    assert records == contents(disk, LOG_DIR)


def test_a_partition_kept_elsewhere_is_named() -> None:
    """A broker with several log.dirs may keep a partition in any of them, so the user must name all of them."""
    disk, _ = prepared_disk(DATA)
    given(disk).prepare(OwnCluster(disk))
    for entry in disk.list_directory(LOG_DIR / "orders-1"):
        disk.unlink(LOG_DIR / "orders-1" / entry.name)
    disk.remove_directory(LOG_DIR / "orders-1")
    with pytest.raises(StorageError, match="orders-1: in none of /log; name every directory"):
        given(disk).place()


def test_a_directory_of_no_broker_is_refused() -> None:
    """A directory without meta.properties is refused, because its owner is unknown."""
    disk, _ = prepared_disk(DATA)
    disk.make_directory(Path("/other"))
    with pytest.raises(StorageError, match=r"/other: no meta.properties of a broker;"):
        Handover([DATA], [Path("/other")], report=print, files=disk)


def test_a_damaged_journal_is_refused() -> None:
    """A handover with an unreadable journal is refused instead of guessing the journal's content."""
    disk, _ = prepared_disk(DATA)
    disk.write_bytes(DATA / names.HANDOVER, b'{"version": 2}')
    with pytest.raises(StorageError, match=r"/data/topicfs.handover: .*version 2, expected 1"):
        given(disk)


def test_a_broker_that_serves_from_another_start_is_reported() -> None:
    """A log start at the broker that differs from ours is reported, because deleted records must not come back."""
    disk, _ = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    given(disk).place()
    given(disk).verify(cluster)
    write_lines(disk, LOG_DIR, TopicPartition("trimmed", 0), {names.LOG_START_OFFSETS: None})
    with pytest.raises(
        StorageError, match="trimmed-0: the broker serves offsets 0 to 15, here they are 7 to 15"
    ):
        given(disk).verify(cluster)
