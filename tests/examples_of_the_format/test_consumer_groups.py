"""Tests of examples from articles: where a group's positions are stored, and which consumer reads which partitions."""

from __future__ import annotations

import pytest

from topicfs.coordination.records.assignors import SubscribedMember, assign_ranges
from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, write_versioned
from topicfs.coordination.records.group_records import (
    CommittedOffset,
    read_committed_offset,
    write_committed_offset,
    write_group,
)
from topicfs.inspection.dump.decoders import RecordDecoder
from topicfs.inspection.dump.files import dump
from topicfs.inspection.dump.log import DumpOptions
from topicfs.storage.codec.batch import assign_offsets
from topicfs.storage.codec.records import encode
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.model import Offset, Record, Timestamp, TopicPartition
from topicfs.storage.partitioning import coordinator_partition

NOW = Timestamp(1_700_000_000_000)
GROUP = "test-consumer-group"
CLIENT = "consumer-test-consumer-group-1"
MEMBER = f"{CLIENT}-9f58b7a6-0b3d-4c51-a2a4-5d1f0e7c9b33"


def stable_group() -> dict:
    """Return a group of one consumer with one partition of one topic."""
    subscription = {"topics": ["hello"], "ownedPartitions": []}
    assignment = {"assignedPartitions": [{"topic": "hello", "partitions": [0]}]}
    member = {
        "memberId": MEMBER,
        "clientId": CLIENT,
        "clientHost": "/172.17.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 10_000,
        "subscription": write_versioned(SUBSCRIPTION, subscription, 1),
        "assignment": write_versioned(ASSIGNMENT, assignment, 1),
    }
    return empty_group() | {"generation": 1, "protocol": "range", "leader": MEMBER, "members": [member]}


def empty_group() -> dict:
    return {
        "protocolType": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": NOW,
        "members": [],
    }


def test_the_group_test_consumer_group_lives_in_partition_31_of_50():
    """The partition is the Java hash code of the group's name modulo the partitions of __consumer_offsets."""
    assert 31 == coordinator_partition(GROUP, 50)


@pytest.mark.parametrize(
    ("state", "value_size", "batch_size"),
    [(stable_group(), 282, 375), (empty_group(), 32, 123)],
    ids=["one consumer", "empty"],
)
def test_a_group_metadata_record_as_dumped(tmp_path, state, value_size, batch_size):
    """A group record has 23 bytes of key and 282 bytes of value, in a batch of 375 bytes.

    The value of a group without members has 32 bytes, in a batch of 123 bytes.
    """
    key, value = write_group(GROUP, state)
    batch = encode([Record(Offset(0), NOW, key, value)])
    assign_offsets(batch, 0, base_offset=0, leader_epoch=0)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch)
    options = DumpOptions(decoder=RecordDecoder.OFFSETS)
    lines = [line.text for line in dump([str(segment)], options, NativeFileSystem(read_only=True))]
    assert f" position: 0 CreateTime: {NOW} size: {batch_size} magic: 2 compresscodec: none crc: " in lines[2]
    assert lines[3].startswith(
        f"| offset: 0 CreateTime: {NOW} keySize: 23 valueSize: {value_size} sequence: -1 headerKeys: [] "
        'key: {"type":"2","data":{"group":"test-consumer-group"}} '
        'payload: {"version":"3","data":{"protocolType":"consumer","generation":'
    )


def members(count: int) -> list[SubscribedMember]:
    return [SubscribedMember(member_id=f"c{number}", topics=frozenset({"t"})) for number in range(count)]


def test_group1_gets_every_record_and_each_of_group2_a_share():
    """A single consumer gets all three partitions, whereas three consumers get one each."""
    alone, shared = (assign_ranges(members(count), {"t": 3}) for count in (1, 3))
    every = [TopicPartition("t", number) for number in range(3)]
    assert {"c0": every} == alone
    assert {"c0": every[:1], "c1": every[1:2], "c2": every[2:]} == shared


def test_seven_partitions_over_three_consumers_are_3_2_and_2():
    """The range assignor gives 3, 2 and 2 partitions, rather than 3, 3 and 1."""
    assert [3, 2, 2] == [len(got) for got in assign_ranges(members(3), {"t": 7}).values()]


def test_both_groups_positions_are_kept_apart():
    """The key of a position has group, topic and partition, so a commit does not change other groups' positions."""
    table = {}
    for group, offset in (("group1", 10), ("group2", 4), ("group1", 12)):
        key, value = write_committed_offset(CommittedOffset(group, "t", 0, offset))
        table[key] = value
    found = [read_committed_offset(key, value) for key, value in table.items()]
    assert [("group1", 12), ("group2", 4)] == [(each.group, each.offset) for each in found if each]
