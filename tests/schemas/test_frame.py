"""Tests of the frames of payloads, by Confluent's documentation of the wire format."""

from __future__ import annotations

from uuid import UUID

import pytest

from topicfs.schemas.frame import FramedMessage, frame_of, framed, read_path

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def test_a_payload_begins_with_a_zero_and_the_id():
    """A frame is a zero and the id, four bytes in big-endian order."""
    assert FramedMessage(258, b"message") == frame_of(b"\x00\x00\x00\x01\x02message", None)
    assert FramedMessage(2**32 - 1, b"") == frame_of(b"\x00\xff\xff\xff\xff", None)
    assert b"\x00\x00\x00\x01\x02message" == framed(258, b"message")


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"\x00\x00\x00\x01", b"hello", b"\x01" + GUID.bytes + b"x"]
)
def test_anything_else_has_no_frame(payload):
    """A payload that is too short or begins with another byte has no frame. A GUID can only be in a header."""
    assert frame_of(payload, None) is None


def test_a_header_can_have_the_frame():
    """A header can have the id or the GUID. The payload is then the message alone, even if it begins with a zero."""
    message = b"\x00\x00\x00\x00\x09 as it is"
    assert FramedMessage(7, message, b"") == frame_of(message, b"\x00\x00\x00\x00\x07")
    assert FramedMessage(GUID, message, b"\x02\x02") == frame_of(message, b"\x01" + GUID.bytes + b"\x02\x02")


@pytest.mark.parametrize("header", [b"", b"\x00", b"\x01" + GUID.bytes[:15], b"\x02" + GUID.bytes])
def test_a_header_without_a_frame_is_ignored(header):
    """A header without a frame is ignored, and the payload is parsed instead."""
    assert FramedMessage(7, b"x") == frame_of(b"\x00\x00\x00\x00\x07x", header)
    assert frame_of(b"x", header) is None


@pytest.mark.parametrize(
    ("data", "path", "end"),
    [
        (b"\x00message", (0,), 1),
        (b"\x02\x00message", (0,), 2),
        (b"\x04\x02\x04message", (1, 2), 3),
        (b"\x02\x80\x01", (64,), 3),
    ],
)
def test_the_path_to_a_type_is_zigzag_varints(data, path, end):
    """A path is a list of zigzag varints after their count. An empty list means the first type of the file."""
    assert (path, end) == read_path(data, 64)


TORN = [b"", b"\x02", b"\x04\x00", b"\x01", b"\xff\x7f"]
TOO_LONG = [b"\xff\xff\xff\xff\xff\xff\x01", b"\x02" + b"\x80" * 9 + b"\x01"]


@pytest.mark.parametrize("data", TORN + TOO_LONG)
def test_a_path_that_is_torn_or_too_long_is_refused(data):
    """A path that is truncated or too long is refused.

    The reader does not read beyond the payload's end, and does not build a list of a billion steps.
    """
    with pytest.raises(ValueError):
        read_path(data, 64)
