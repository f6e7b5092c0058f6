"""A handover: its messages, what it creates in the cluster, and changes between its steps."""

from __future__ import annotations

import pytest

from tests.doubles.handover import (
    DATA,
    LOG_DIR,
    SETTINGS,
    OwnCluster,
    contents,
    given,
    prepared_disk,
    served,
)
from topicfs.migration.handover import Handover
from topicfs.storage.checkpoints.offset_checkpoint import read_offsets, write_lines
from topicfs.storage.disk import names
from topicfs.storage.errors import StorageError
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
    with served(disk, DATA) as engine:
        engine.create_topic("later")
    assert not given(disk).prepared
    given(disk).prepare(cluster)
    assert given(disk).prepared
    given(disk).place()
    assert contents(disk, DATA) == contents(disk, LOG_DIR)


def test_the_settings_go_along() -> None:
    """The cluster gets each topic's own settings, whether the topic is created or an empty one exists."""
    disk, _ = prepared_disk(DATA)
    with served(disk, LOG_DIR) as engine:
        engine.create_topic("orders", partitions=2)
    given(disk).prepare(OwnCluster(disk))
    with served(disk, LOG_DIR) as engine:
        found = {name: dict(topic.overrides) for name, topic in engine.topics().items()}
    assert {"orders": SETTINGS, "trimmed": SETTINGS} == found


def test_a_topic_created_again_in_the_cluster_is_noticed() -> None:
    """A topic recreated between two phases has another id, so nothing is placed until a new preparation."""
    disk, records = prepared_disk(DATA)
    cluster = OwnCluster(disk)
    given(disk).prepare(cluster)
    with served(disk, LOG_DIR) as engine:
        engine.delete_topic("orders")
        engine.create_topic("orders", partitions=2)
    with pytest.raises(StorageError, match="but the cluster reported"):
        given(disk).place()
    given(disk).prepare(cluster)
    given(disk).place()
    assert records == contents(disk, LOG_DIR)


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
