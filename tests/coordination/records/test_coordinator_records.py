"""Tests of the records of Kafka's internal topics, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import write_transaction
from topicfs.coordination.records import consumer_protocol, group_records, transaction_records
from topicfs.coordination.records.group_records import CommittedOffset
from topicfs.storage.errors import CorruptBatchError
from topicfs.storage.partitioning import coordinator_partition, java_string_hash

KEY = bytes.fromhex("000100016700017400000003")
VALUE_V4 = bytes.fromhex("0004000000000000002a00000005026d0000018bcfe5680000")
VALUE_V3 = bytes.fromhex("0003000000000000002a0000000500016d0000018bcfe56800")
POSITION = CommittedOffset("g", "t", 3, 42, 5, "m", 1_700_000_000_000)


def test_a_committed_position_has_kafkas_bytes():
    """A committed position has a key of type 1 and a value of version 4. Brokers since 4.1 write these types."""
    assert (KEY, VALUE_V4) == group_records.write_committed_offset(POSITION)


@pytest.mark.parametrize("value", [VALUE_V3, VALUE_V4])
def test_positions_of_both_newer_versions_are_read(value):
    """A value of version 3, which brokers up to 4.0 write, has the same fields as version 4."""
    assert POSITION == group_records.read_committed_offset(KEY, value)


def test_a_position_that_expires_is_written_in_version_1():
    """A position that expires is written in version 1, the only version with an expiry."""
    position = POSITION._replace(expire_timestamp=7, leader_epoch=-1)
    key, value = group_records.write_committed_offset(position)
    assert b"\0\1" == value[:2]
    assert group_records.read_committed_offset(key, value) == position


def test_keys_of_old_files_are_the_same():
    """A key of type 0, as in old files, names a committed position, just as a key of type 1 does."""
    assert (0, {"group": "g", "topic": "t", "partition": 3}) == group_records.read_key(b"\0\0" + KEY[2:])


def test_records_of_newer_group_protocols_are_left_alone():
    """A key of type 3 or above is skipped without an error."""
    assert group_records.read_key(b"\0\3\0\1g") is None


GROUP = {
    "protocolType": "consumer",
    "generation": 2,
    "protocol": None,
    "leader": None,
    "currentStateTimestamp": 1_700_000_000_000,
    "members": [],
}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_groups_state_round_trips_in_every_version(version):
    """A group with one member is decoded as it was encoded, with the fields of each version."""
    member = {
        "memberId": "m-1",
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "sessionTimeout": 45000,
        "subscription": b"\0\1",
        "assignment": b"",
    }
    if version >= 1:
        member["rebalanceTimeout"] = 300000
    if version >= 3:
        member["groupInstanceId"] = "static"
    state = {**GROUP, "members": [member]}
    if version < 2:
        del state["currentStateTimestamp"]
    key, value = group_records.write_group("g", state, version)
    assert (2, {"group": "g"}) == group_records.read_key(key)
    read_version, fields = group_records.read_value(2, value)
    order = list(fields["members"][0])
    assert (read_version, fields) == (version, state)
    assert "memberId" == order[0]


@pytest.mark.parametrize("version", [0, 1])
def test_a_transactions_state_round_trips(version):
    """A transaction's state is decoded as it was encoded, in both versions. The newer version has tagged fields."""
    state = {
        "producerId": 7,
        "producerEpoch": 1,
        "transactionTimeoutMs": 60000,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "tx", "partitionIds": [0, 2]}],
        "transactionLastUpdateTimestampMs": 5,
        "transactionStartTimestampMs": 4,
    }
    if version == 1:
        state |= {
            "previousProducerId": 6,
            "nextProducerId": 8,
            "clientTransactionVersion": 2,
            "nextProducerEpoch": 3,
        }
    key, value = write_transaction("tx", state, version)
    assert (0, {"transactionalId": "tx"}) == (key[1], transaction_records.TRANSACTION_KEY.read(key[2:], 0))
    assert (version, state) == (value[1], transaction_records.TRANSACTION_VALUE.read(value[2:], version))


def test_an_unset_tagged_field_takes_no_byte():
    """If a tagged field is unset, a value of the flexible version ends with an empty tag section."""
    _, value = write_transaction("tx", {"transactionPartitions": None}, 1)
    assert 0 == value[-1]
    assert -1 == transaction_records.TRANSACTION_VALUE.read(value[2:], 1)["previousProducerId"]


def test_unknown_tags_are_skipped():
    """An unknown field of a newer broker is skipped without an error."""
    value = VALUE_V4[:-1] + bytes.fromhex("01630199")
    assert POSITION == group_records.read_committed_offset(KEY, value)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        (b"\0", "two bytes"),
        (b"\0\x09", "version 9 is unknown"),
        (VALUE_V3[:-1], "ends too early"),
        (VALUE_V3 + b"x", "left over"),
        (VALUE_V3[:14] + b"\x7f\xff" + VALUE_V3[16:], "overruns"),
        (VALUE_V3[:16] + b"\xff" + VALUE_V3[17:], "UTF-8"),
    ],
)
def test_bytes_that_are_no_position_are_refused_with_the_cause(value, cause):
    """Invalid bytes give an error with the cause, never a wrong position."""
    with pytest.raises(CorruptBatchError, match=cause):
        group_records.read_committed_offset(KEY, value)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    """Any bytes are decoded or raise CorruptBatchError. No other error is raised."""
    for read in (
        lambda: group_records.read_key(data),
        lambda: group_records.read_value(1, data),
        lambda: group_records.read_value(2, data),
        lambda: transaction_records.TRANSACTION_VALUE.read(data, 1),
    ):
        try:
            read()
        except CorruptBatchError:
            continue


@given(
    st.builds(
        CommittedOffset,
        group=st.text(max_size=20),
        topic=st.text(max_size=20),
        partition=st.integers(0, 2**31 - 1),
        offset=st.integers(0, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.text(max_size=20),
        commit_timestamp=st.just(1),
        expire_timestamp=st.just(-1),
        topic_id=st.uuids(),
    )
)
def test_every_position_round_trips(position):
    """A position is decoded as it was encoded."""
    assert group_records.read_committed_offset(*group_records.write_committed_offset(position)) == position


def test_a_name_that_the_schema_lacks_is_a_mistake():
    """An unknown field name raises an error, so that a misspelled field is noticed."""
    with pytest.raises(KeyError, match="no field offsets"):
        group_records.OFFSET_COMMIT_VALUE.write({"offsets": 1}, 4)


def test_null_where_the_version_has_none_is_a_mistake():
    """Null metadata raise an error, because the version has no null: metadata can only be empty."""
    with pytest.raises(ValueError, match="metadata may not be null"):
        group_records.OFFSET_COMMIT_VALUE.write({"metadata": None}, 4)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_round_trips(version):
    """A subscription is decoded as it was encoded. Each version adds a field at the end."""
    fields = {"topics": ["a", "b"], "userData": None}
    if version >= 1:
        fields["ownedPartitions"] = [{"topic": "a", "partitions": [0]}]
    if version >= 2:
        fields["generationId"] = 3
    if version >= 3:
        fields["rackId"] = "r1"
    data = consumer_protocol.write_versioned(consumer_protocol.SUBSCRIPTION, fields, version)
    assert consumer_protocol.read_versioned(consumer_protocol.SUBSCRIPTION, data) == fields


@pytest.mark.parametrize(("group", "partition"), [("my-group", 12), ("test-consumer-group", 31)])
def test_a_groups_partition_of_fifty(group, partition):
    """A group belongs to the partition given by its name's hash code modulo 50."""
    assert coordinator_partition(group) == partition


def test_hash_codes_are_javas():
    """The hash code of a name is Java's: computed over UTF-16 units, and signed, with 32 bits.

    A name whose hash is the lowest 32-bit number belongs to partition 0.
    """
    assert 0 == java_string_hash("")
    assert -(2**31) == java_string_hash("polygenelubricants")
    assert 0 == coordinator_partition("polygenelubricants")
    assert 31 * 0xD83D + 0xDE00 == java_string_hash("\U0001f600")
