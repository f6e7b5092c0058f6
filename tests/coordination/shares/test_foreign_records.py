"""Tests of records of other kinds or versions, and of garbage, in the topics of queues."""

from __future__ import annotations

import pytest

from tests.doubles.engines import append_lines, engine_on
from tests.doubles.manual_clock import ManualClock
from tests.doubles.records import read_records
from tests.doubles.simulated_disk import SimulatedDisk
from topicfs.coordination.share_groups import Acknowledgement
from topicfs.coordination.shares.coordinator_topic import TopicRecord, append
from topicfs.replication import EmbeddedEngine
from topicfs.storage.errors import CorruptionError

TOPICS = ("__consumer_offsets", "__share_group_state")


def prepared(disk: SimulatedDisk, topic: str, record: TopicRecord) -> EmbeddedEngine:
    """Return an engine with `record`, which topicfs did not write, in `topic`."""
    engine = engine_on(disk)
    for internal in TOPICS:
        engine.create_topic(internal, partitions=1)
    append_lines(engine.create_topic("orders", partitions=1).partitions()[0], "a job\n")
    append(engine.partition(topic, 0), [record], ManualClock()())
    return engine


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("key", ["7fff000167", "0018000167"])
def test_records_of_types_that_are_not_known_stay_as_they_are(topic: str, key: str):
    """Records of a newer broker's types are skipped and kept."""
    disk = SimulatedDisk()
    engine = prepared(disk, topic, TopicRecord(bytes.fromhex(key), b"whatever"))
    session = engine.share_groups.group("g").open(["orders"], holder="")
    leased = session.take()
    assert leased is not None
    session.acknowledge({leased.record_name: Acknowledgement.ACCEPT})
    engine.close()
    engine = engine_on(disk)

    assert engine.share_groups.group("g").open(["orders"], holder="").take() is None
    assert b"whatever" == read_records(engine.partition(topic, 0))[0].value


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("__consumer_offsets", "000b000167"),
        ("__share_group_state", "0000000167" + "00" * 20),
    ],
)
@pytest.mark.parametrize("value", ["0007", "0000", "ff"])
def test_a_record_that_cannot_be_read_is_reported_with_its_file(topic: str, key: str, value: str):
    """A truncated record, or one of another version, raises an error that names the file, and prevents writes."""
    engine = prepared(SimulatedDisk(), topic, TopicRecord(bytes.fromhex(key), bytes.fromhex(value)))
    before = engine.partition(topic, 0).offsets().log_end_offset
    with pytest.raises(CorruptionError, match=f"{topic}-0/0000"):
        engine.share_groups.group("g").open(["orders"], holder="")

    assert before == engine.partition(topic, 0).offsets().log_end_offset
