"""Tests of transaction markers: golden bytes, and invalid keys and values."""

from __future__ import annotations

import pytest

from topicfs.storage.codec import control
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.records import decode
from topicfs.storage.errors import InvalidRecordError
from topicfs.storage.model import Record

COMMIT = bytes.fromhex(
    "0000000000000032000000420000000402cc367bda0030000000000000018bcfe568000000018bcfe568"
    "0000000000000030390002ffffffff000000012000000008000000010c00000000000600"
)


def test_golden_commit_marker():
    """Row 139: the commit marker is encoded to the golden 78 bytes, and these bytes are decoded again."""
    marker = control.EndTransactionMarker(control.ControlType.COMMIT, 6)

    written = control.encode_marker(
        marker,
        timestamp=1700000000000,
        producer_id=12345,
        producer_epoch=2,
        base_offset=50,
        leader_epoch=4,
    )

    assert COMMIT == written
    header = read_header(written)
    assert header.is_control
    assert header.is_transactional
    assert (78, 1, -1) == (header.size_bytes, header.record_count, header.base_sequence)
    assert marker == control.read_marker(decode(written, control=True)[0].record(0))


@pytest.mark.parametrize("kind", [control.ControlType.ABORT, control.ControlType.COMMIT])
def test_markers_round_trip(kind):
    """Commit and abort markers are decoded as they were encoded, even with the largest coordinator epoch."""
    marker = control.EndTransactionMarker(kind, 2**31 - 1)
    written = control.encode_marker(marker, timestamp=-1, producer_id=0, producer_epoch=0)

    assert marker == control.read_marker(decode(written, control=True)[0].record(0))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"\0\0\0\0", control.ControlType.ABORT),
        (b"\0\0\0\1", control.ControlType.COMMIT),
        (b"\0\0\0\2", control.ControlType.LEADER_CHANGE),
        (b"\0\0\0\6", control.ControlType.KRAFT_VOTERS),
        (b"\0\0\0\7", control.ControlType.UNKNOWN),
        (b"\0\0\xff\xff", control.ControlType.UNKNOWN),
        (b"\0\x09\0\1 and more", control.ControlType.COMMIT),
    ],
)
def test_types_of_control_records(key, expected):
    """The key of a control record is read even if its version is newer than the versions that topicfs knows.

    A record of an unknown type becomes UNKNOWN.
    """
    assert expected is control.control_type(key)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_invalid_keys_of_control_records(key):
    """A key that is null, too short or of a negative version is refused."""
    with pytest.raises(InvalidRecordError, match="key"):
        control.control_type(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\2", b"\0\0\0\0\0\0"),
        (b"\0\0\0\7", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_records_that_end_no_transaction(key, value):
    """A record of another type or with an invalid value is not a marker."""
    with pytest.raises(InvalidRecordError):
        control.read_marker(Record(0, 0, key, value))
