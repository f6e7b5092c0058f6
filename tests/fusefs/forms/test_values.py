"""The form VALUES: one value per line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topicfs.fusefs.forms import VALUES
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.model import Record, TopicPartition

WHERE = {"partition": TopicPartition("t", 0)}
EVERYTHING = {"start_offset": 0, "end_offset": 2**63 - 1}


@pytest.mark.parametrize(
    ("value", "line", "alone"),
    [(b"hello", b"hello\n", b"hello"), (b"", b"\n", b""), (None, b"\n", b""), (b"a\nb", b"a\nb\n", b"a\nb")],
)
def test_a_value_and_its_line(value, line, alone):
    """A tombstone is an empty line. An LF inside a value stays. No LF is added to a single record."""
    (columns,) = decode(encode([Record(0, 0, b"key", value)]))

    assert line == VALUES.render(columns, **WHERE, **EVERYTHING)
    assert alone == VALUES.render_one(columns, 0, **WHERE)


@given(st.lists(st.binary(max_size=50).map(lambda line: line.replace(b"\n", b" ")), min_size=1))
def test_lines_in_are_lines_out(lines):
    """Appended lines are read back byte for byte."""
    text = b"".join(line + b"\n" for line in lines)

    batches = VALUES.parse(text, timestamp=7, max_batch_bytes=500)

    shown = [VALUES.render(columns, **WHERE, **EVERYTHING) for batch in batches for columns in decode(batch)]
    assert text == b"".join(shown)


def test_records_of_lines_have_no_key_and_the_given_time():
    """A line's record has no key and the given timestamp; CR, TAB and NUL are part of its value."""
    (batch,) = VALUES.parse(b"a\r\t\0\n", timestamp=1700000000000, max_batch_bytes=1000)

    assert [Record(0, 1700000000000, None, b"a\r\t\0")] == list(decode(batch)[0])
