"""Records of coordinators' topics are printed as JSON.

The expected texts are output of kafka-dump-log, unless a test says otherwise.
"""

from __future__ import annotations

import struct
import uuid

import pytest

from tests.doubles.records import write_transaction
from topicfs.coordination.records.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, write_versioned
from topicfs.coordination.records.group_records import (
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    with_number,
    write_group,
    write_offset_key,
)
from topicfs.inspection.dump.decoders import DecodedRecord, RecordDecoder, decode_record
from topicfs.main import run
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.model import Offset, Record, Timestamp

NOW = 1_700_000_000_000
KEY = write_offset_key("g", "t", 3)
KEY_TEXT = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
MEMBER_FIELDS = '"clientId":"c","clientHost":"/127.0.0.1",'


SUBSCRIPTION_3 = (
    '{"topics":["a"],"userData":"//4A","ownedPartitions":[{"topic":"a","partitions":[0,1]}],'
    '"generationId":-1,"rackId":null}'
)
NULL_GROUP = (
    "Error at offset 7, skipping. Could not read record with version 1 from key's buffer due to: "
    "non-nullable field group was serialized as null."
)


def decoded(key, value, decoder=RecordDecoder.OFFSETS) -> DecodedRecord:
    return decode_record(Record(Offset(7), Timestamp(NOW), key, value), decoder)


def position_value(version, **fields):
    return with_number(version, OFFSET_COMMIT_VALUE.write({"commitTimestamp": NOW, **fields}, version))


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (0, '"offset":42,"metadata":"m\\"\\u0001/é<>&","commitTimestamp":1700000000000'),
        (
            1,
            '"offset":42,"metadata":"m\\"\\u0001/é<>&","commitTimestamp":1700000000000,"expireTimestamp":1700000000001',
        ),
        (2, '"offset":42,"metadata":"m\\"\\u0001/é<>&","commitTimestamp":1700000000000'),
        (3, '"offset":42,"leaderEpoch":5,"metadata":"m\\"\\u0001/é<>&","commitTimestamp":1700000000000'),
        (4, '"offset":42,"leaderEpoch":5,"metadata":"m\\"\\u0001/é<>&","commitTimestamp":1700000000000'),
    ],
)
def test_positions_show_the_fields_of_their_version(version, fields):
    """A position prints the fields of its version, but no unset topic id; only what JSON requires is escaped."""
    value = position_value(
        version,
        offset=42,
        leaderEpoch=5,
        metadata='m"\x01/é<>&',
        expireTimestamp=NOW + 1 if version == 1 else -1,
    )
    assert (KEY_TEXT, f'{{"version":"{version}","data":{{{fields}}}}}') == decoded(KEY, value)


def test_a_topic_id_shows_as_base64url():
    """A topic id prints as 22 characters of base64url without padding."""
    value = position_value(4, topicId=uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF))
    payload = decoded(KEY, value).payload
    assert payload is not None
    assert payload.endswith('"topicId":"EjRWeJCrze8SNFZ4kKvN7w"}}')


def test_control_characters_are_upper_case_escapes():
    r"""Escapes are upper case, like Jackson's \\u001F; a backslash before a u is escaped like any other."""
    key, _ = write_group('g"\x1f\\u00ff\n\x7f€𝄞', {})
    assert '{"type":"2","data":{"group":"g\\"\\u001F\\\\u00ff\\n\x7f€𝄞"}}' == decoded(key, None).key


def test_a_tombstone_is_a_deletion():
    """The null value of a tombstone prints as a deletion, because it has no version."""
    assert (KEY_TEXT, "<DELETE>") == decoded(KEY, None)


def test_the_oldest_keys_go_with_the_oldest_values():
    """Keys of type 0 have values of one version only."""
    key = with_number(0, OFFSET_COMMIT_KEY.write({"group": "g", "topic": "t", "partition": 0}, 0))
    assert (
        "Error at offset 7, skipping. Found an unknown record version 3 for 0 type"
        == decoded(key, position_value(3)).key
    )
    assert (
        '{"type":"0","data":{"group":"g","topic":"t","partition":0}}' == decoded(key, position_value(0)).key
    )


def group(version, protocol_type, *members):
    state = {
        "protocolType": protocol_type,
        "generation": 3,
        "protocol": "range",
        "leader": "m-1",
        "currentStateTimestamp": NOW,
        "members": [
            {"memberId": "m-1", "clientId": "c", "clientHost": "/127.0.0.1", "rebalanceTimeout": 1}
            | {"sessionTimeout": 2, "subscription": subscription, "assignment": assignment}
            for subscription, assignment in members
        ],
    }
    return write_group("g", state, version)


def subscription(version):
    fields = {"topics": ["a"], "userData": b"\xff\xfe\0"}
    if version >= 1:
        fields["ownedPartitions"] = [{"topic": "a", "partitions": [0, 1]}]
    return write_versioned(SUBSCRIPTION, fields, version)


ASSIGNED = {"assignedPartitions": [{"topic": "a", "partitions": [0]}], "userData": b"xyz"}


@pytest.mark.parametrize(
    ("version", "start", "member", "read"),
    [
        (0, "", '{"memberId":"m-1",' + MEMBER_FIELDS, '{"topics":["a"],"userData":"//4A"}'),
        (
            1,
            "",
            '{"memberId":"m-1",' + MEMBER_FIELDS + '"rebalanceTimeout":1,',
            '{"topics":["a"],"userData":"//4A","ownedPartitions":[{"topic":"a","partitions":[0,1]}]}',
        ),
        (
            2,
            '"currentStateTimestamp":1700000000000,',
            '{"memberId":"m-1",' + MEMBER_FIELDS + '"rebalanceTimeout":1,',
            '{"topics":["a"],"userData":"//4A","ownedPartitions":[{"topic":"a","partitions":[0,1]}],"generationId":-1}',
        ),
        (
            3,
            '"currentStateTimestamp":1700000000000,',
            '{"memberId":"m-1","groupInstanceId":null,' + MEMBER_FIELDS + '"rebalanceTimeout":1,',
            SUBSCRIPTION_3,
        ),
    ],
)
def test_groups_of_consumers_show_what_their_members_said(version, start, member, read):
    """Subscription and assignment are decoded by their own versions; undecodable bytes print as base64."""
    key, value = group(version, "consumer", (subscription(version), write_versioned(ASSIGNMENT, ASSIGNED)))
    assert (
        f'{{"version":"{version}","data":{{"protocolType":"consumer","generation":3,"protocol":"range","leader":"m-1",'
        f'{start}"members":[{member}"sessionTimeout":2,"subscription":{read},'
        '"assignment":{"assignedPartitions":[{"topic":"a","partitions":[0]}],"userData":"eHl6"}}]}}'
    ) == decoded(key, value).payload


@pytest.mark.parametrize(
    ("protocol_type", "data", "shown"),
    [
        ("connect", subscription(0), '"AAAAAAABAAFhAAAAA//+AA=="'),
        ("consumer", b"", '""'),
        ("consumer", b"\0\0\0", '"AAAA"'),
        ("consumer", b"\0\x09" + subscription(0)[2:], '"AAkAAAABAAFhAAAAA//+AA=="'),
        ("consumer", b"\xff\xff" + subscription(0)[2:], '{"topics":["a"],"userData":"//4A"}'),
        ("consumer", subscription(0) + b"more", '{"topics":["a"],"userData":"//4A"}'),
    ],
)
def test_a_members_bytes_that_are_no_subscription_stay_bytes(protocol_type, data, shown):
    """If a member's bytes are not a subscription that we know, they are printed as base64.

    This holds for other protocols, and for empty, truncated or newer data. A negative version is read as the first
    version.
    """
    key, value = group(3, protocol_type, (data, write_versioned(ASSIGNMENT, ASSIGNED)))
    payload = decoded(key, value).payload
    assert payload is not None
    assert f'"subscription":{shown},' in payload


def test_a_transactions_state():
    """A tagged field of a transaction's state is printed only if it is set.

    If a state has no partitions, null is printed in their place.
    """
    state = {"producerId": 7, "producerEpoch": 2, "transactionTimeoutMs": 60000, "transactionStatus": 4}
    state |= {"transactionPartitions": [{"topic": "a", "partitionIds": [0, 1]}]}
    state |= {"transactionLastUpdateTimestampMs": NOW, "transactionStartTimestampMs": NOW - 1}
    key, value = write_transaction("t\x1b", state, 0)
    shown = decoded(key, value, RecordDecoder.TRANSACTIONS)
    assert '{"type":"0","data":{"transactionalId":"t\\u001B"}}' == shown.key
    assert (
        '{"version":"0","data":{"producerId":7,"producerEpoch":2,"transactionTimeoutMs":60000,'
        '"transactionStatus":"CompleteCommit","transactionPartitions":[{"topic":"a","partitionIds":[0,1]}],'
        '"transactionLastUpdateTimestampMs":1700000000000,"transactionStartTimestampMs":1699999999999}}'
    ) == shown.payload
    tagged = {
        "previousProducerId": 5,
        "nextProducerId": 6,
        "nextProducerEpoch": 1,
        "clientTransactionVersion": 2,
    }
    key, value = write_transaction("t", state | tagged | {"transactionPartitions": None}, 1)
    assert (
        '{"version":"1","data":{"producerId":7,"previousProducerId":5,"nextProducerId":6,"producerEpoch":2,'
        '"nextProducerEpoch":1,"transactionTimeoutMs":60000,"transactionStatus":"CompleteCommit",'
        '"transactionPartitions":null,"transactionLastUpdateTimestampMs":1700000000000,'
        '"transactionStartTimestampMs":1699999999999,"clientTransactionVersion":2}}'
    ) == decoded(key, value, RecordDecoder.TRANSACTIONS).payload
    assert "<DELETE>" == decoded(key, None, RecordDecoder.TRANSACTIONS).payload


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (struct.pack(">h", 77) + b"\0\1g", b"x", "Unknown record type 77 at offset 7, skipping."),
        (struct.pack(">h", -1) + b"\0\1g", b"x", "Unknown record type -1 at offset 7, skipping."),
        (b"\0", b"x", "Error at offset 7, skipping. Could not read version from key's buffer."),
        (b"", b"x", "Error at offset 7, skipping. Could not read version from key's buffer."),
        (KEY, b"", "Error at offset 7, skipping. Could not read version from value's buffer."),
        (KEY, b"\0\x09aaa", "Error at offset 7, skipping. Found an unknown record version 9 for 1 type"),
        (
            KEY[:2] + b"\xff\xff" + KEY[5:],
            position_value(3),
            NULL_GROUP,
        ),
    ],
)
def test_a_message_replaces_an_unreadable_record(key, value, told):
    """For an unreadable record the dump prints Kafka's message, and continues with the next record."""
    assert (told, None) == decoded(key, value)


@pytest.mark.parametrize(
    ("key", "value", "part"), [(KEY[:-1], None, "key"), (KEY, position_value(3)[:-3], "value")]
)
def test_a_record_that_ends_too_early_is_reported(key, value, part):
    """A record that ends too early prints our own message, because Kafka has none for this case."""
    told = decoded(key, value).key
    assert "Error at offset 7, skipping. Could not read record with version " in told
    assert f" from {part}'s buffer due to: " in told


def test_trailing_bytes_and_invalid_utf8_are_ignored():
    """Extra bytes after a record, and text that is not UTF-8, are ignored, as by Kafka's reader."""
    assert KEY_TEXT == decoded(KEY + b"zz", position_value(3) + b"yy").key
    assert '"group":"\ufffd"' in decoded(KEY[:2] + b"\0\1\xff" + KEY[5:], None).key


def test_a_record_without_a_key_ends_the_dump():
    """A record without a key ends the dump, because every valid record of these topics has a key."""
    with pytest.raises(InvalidRecordError, match="message had a missing key"):
        decoded(None, b"x")


def test_the_command_knows_both_decoders(tmp_path, capsys):
    """Either decoder flag alone prints contents; both flags together are refused."""
    assert 2 == run(["dump", "--offsets-decoder", "--transaction-log-decoder", str(tmp_path / "x.log")])
    assert "choose one decoder" in capsys.readouterr().err
