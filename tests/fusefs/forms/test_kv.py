"""The form KV: key, TAB, value."""

from __future__ import annotations

import pytest

from topicfs.fusefs.forms import KV, FormError
from topicfs.storage.codec.records import decode, encode
from topicfs.storage.model import Record, TopicPartition

WHERE = {"partition": TopicPartition("t", 0)}
EVERYTHING = {"start_offset": 0, "end_offset": 2**63 - 1}


def pairs_of(text):
    """Return the keys and values of the records that this text is parsed to."""
    batches = KV.parse(text, timestamp=0, max_batch_bytes=10_000)
    return [(record.key, record.value) for batch in batches for record in decode(batch)[0]]


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        (b"k", b"v", b"k\tv\n"),
        (None, b"v", b"\\N\tv\n"),
        (b"k", None, b"k\t\\N\n"),
        (None, None, b"\\N\t\\N\n"),
        (b"", b"", b"\t\n"),
        (b"a\tb", b"c\td", b"a\\tb\tc\\td\n"),
        (b"\n\r\\", b"\\N", b"\\n\\r\\\\\t\\\\N\n"),
        (b"\xff\0", b"\x80", b"\xff\0\t\x80\n"),
    ],
)
def test_a_record_and_its_line(key, value, line):
    r"""Null is \N; TAB, LF, CR and backslash are escaped; all other bytes are shown unchanged."""
    (columns,) = decode(encode([Record(0, 0, key, value)]))
    assert line == KV.render(columns, **WHERE, **EVERYTHING)
    assert [(key, value)] == pairs_of(line)


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        (b"only a value\n", (None, b"only a value")),
        (b"\\N\n", (None, None)),
        (b"\n", (None, b"")),
        (b"k\ta\tb\n", (b"k", b"a\tb")),
        (b"k\tdos\r\n", (b"k", b"dos\r")),
        (b"\tv\n", (b"", b"v")),
    ],
)
def test_lines_that_people_write(line, pair):
    """A line without a TAB is a value; after the first TAB, further TABs belong to the value."""
    assert [pair] == pairs_of(line)


@pytest.mark.parametrize("field", [b"a\\x", b"\\", b"\\NN", b"x\\N", b"a\\"])
def test_an_unknown_escape_names_the_line(field):
    r"""After a backslash only t, n, r and a backslash are valid; \N is valid only as a whole field."""
    with pytest.raises(FormError, match=r"line 2: .* value ") as caught:
        KV.parse(b"k\tv\nk\t" + field + b"\n", timestamp=0, max_batch_bytes=1000)
    assert 2 == caught.value.line_number

    with pytest.raises(FormError, match=r"line 1: .* key "):
        KV.parse(field + b"\tv\n", timestamp=0, max_batch_bytes=1000)
