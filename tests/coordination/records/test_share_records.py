"""Tests of the records of share groups, byte for byte as Kafka's classes write them."""

from __future__ import annotations

import uuid

import pytest

from topicfs.coordination.records import share_state_records
from topicfs.coordination.records.share_group_records import (
    GroupRecord,
    GroupRecordKey,
    GroupTopic,
    GroupTopics,
    read_epoch,
    read_group_key,
    read_topics,
    write_epoch,
    write_group_key,
    write_topics,
)
from topicfs.coordination.shares.coordinator_topic import TopicRecord
from topicfs.coordination.shares.memberships import GroupRecords
from topicfs.coordination.shares.state.store import coordinator_name
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.model import Offset
from topicfs.storage.partitioning import coordinator_partition

T = 1_700_000_000_000
TOPIC_ID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
KEY = share_state_records.SharePartitionKey("g", TOPIC_ID, 0)
BATCHES = (share_state_records.StateBatch(10, 14, 2, 1), share_state_records.StateBatch(15, 15, 0, 2))
BATCH_BYTES = (
    "03000000000000000a000000000000000e02000100000000000000000f000000000000000f0000020001000400000005"
)


def test_the_key_of_a_state():
    """The key of a state has group, topic id and partition. Keys of snapshots and of updates differ in their type."""
    rest = "0001670102030405060708090a0b0c0d0e0f1000000000"
    assert (
        "0000" + rest
        == share_state_records.write_state_key(KEY, share_state_records.RecordType.SNAPSHOT).hex()
    )
    assert (
        "0001" + rest == share_state_records.write_state_key(KEY, share_state_records.RecordType.UPDATE).hex()
    )
    assert (share_state_records.RecordType.UPDATE, KEY) == share_state_records.read_state_key(
        bytes.fromhex("0001" + rest)
    )


def test_the_partition_of_a_state():
    """The partition of a state is the hash of group, topic id and partition."""
    assert "g:AQIDBAUGBwgJCgsMDQ4PEA:0" == coordinator_name(KEY)
    assert 46 == coordinator_partition(coordinator_name(KEY))


def test_a_snapshot():
    """A snapshot has three epochs, a start offset, two batches, and a tagged field: the number of completed records."""
    state = share_state_records.ShareState(1, 2, 3, 10, T, T, BATCHES, 5)
    expected = "0000000000010000000200000003000000000000000a0000018bcfe568000000018bcfe56800" + BATCH_BYTES

    assert expected == share_state_records.write_snapshot(state).hex()
    assert state == share_state_records.read_snapshot(bytes.fromhex(expected))


def test_an_update():
    """An update has the fields of a snapshot, except the state epoch and the times."""
    update = share_state_records.ShareUpdate(1, 3, 10, BATCHES, 5)
    expected = "00000000000100000003000000000000000a" + BATCH_BYTES

    assert expected == share_state_records.write_update(update).hex()
    assert update == share_state_records.read_update(bytes.fromhex(expected))


def test_a_count_that_is_not_known_is_left_out():
    """If the number of completed records is unknown, its field has the default -1 and is not written."""
    update = share_state_records.ShareUpdate(0, 0, -1)

    assert "0000" + "00000000" * 2 + "ff" * 8 + "0100" == share_state_records.write_update(update).hex()
    assert update == share_state_records.read_update(share_state_records.write_update(update))


@pytest.mark.parametrize("key", ["0002000167", "0010000167"])
def test_keys_of_other_types_are_passed_over(key):
    """Newer brokers may write other key types, which are skipped."""
    assert share_state_records.read_state_key(bytes.fromhex(key)) is None
    assert read_group_key(bytes.fromhex(key)) is None


def test_values_of_another_version_are_refused():
    """A value of an unknown version is refused, because its fields are unknown."""
    for read in (share_state_records.read_snapshot, share_state_records.read_update, read_epoch, read_topics):
        with pytest.raises(CorruptBatchError, match="version 1 is unknown"):
            read(bytes.fromhex("0001") + bytes(40))


def test_the_records_of_a_group():
    """The records of a group are its epoch, and its topics by id."""
    topics = GroupTopics({}, {TOPIC_ID: GroupTopic("orders", frozenset({1, 0}))}, {})

    assert "000b000167" == write_group_key(GroupRecordKey(GroupRecord.EPOCH, "g")).hex()
    assert "000f000167" == write_group_key(GroupRecordKey(GroupRecord.TOPICS, "g")).hex()
    assert "000000000003000000000000000000" == write_epoch(3, 0).hex()
    expected = "000001020102030405060708090a0b0c0d0e0f10076f7264657273030000000000000001000100"
    assert expected == write_topics(topics).hex()
    assert (3, 0) == read_epoch(write_epoch(3, 0))
    assert topics == read_topics(write_topics(topics))


def test_the_records_of_a_groups_members():
    """The keys of members' records name the member."""
    key = GroupRecordKey(GroupRecord.MEMBER_CURRENT, "g", "m")

    assert "000e00016700016d" == write_group_key(key).hex()
    assert key == read_group_key(write_group_key(key))


@pytest.mark.parametrize(
    ("key", "group", "is_other"),
    [
        ("0002000167", "g", True),
        ("00010002676700017400000003", "gg", True),
        ("0003000167", "g", True),
        ("000b000167", "g", False),
        ("0010000167", "g", False),
    ],
)
def test_names_of_other_groups_are_known(key, group, is_other):
    """A record of a consumer group shows that a share group cannot have this name.

    Such a record holds a position or the state of the group.
    """
    records, key = GroupRecords(), bytes.fromhex(key)
    records.replay(TopicRecord(key, write_epoch(3, 0)), Offset(0))

    assert is_other == records.is_other(group)

    records.replay(TopicRecord(key, None), Offset(1))

    assert not records.is_other(group)
