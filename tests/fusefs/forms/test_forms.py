"""Properties of all forms: suffixes, ranges, measures and single records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.codec.strategies import record_lists
from topicfs.fusefs.forms import BATCH, FORMS, JSON, KV, VALUES, by_suffix
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.errors import RecordTooLargeError
from topicfs.storage.model import Header, Record, TopicPartition

WHERE = {"partition": TopicPartition("orders", 3)}
EVERYTHING = {"start_offset": 0, "end_offset": 2**63 - 1}


def columns_of(*batches):
    """Return columns with one batch for each list of records in `batches`."""
    (columns,) = decode(b"".join(encode(records) for records in batches))
    return columns


@pytest.mark.parametrize(("suffix", "form"), [("", VALUES), (".kv", KV), (".json", JSON), (".batch", BATCH)])
def test_forms_by_suffix(suffix, form):
    """Each suffix of a file name selects its form."""
    assert form is by_suffix(suffix)
    assert suffix == form.suffix


@pytest.mark.parametrize("suffix", [".batches", "json", ".JSON", "."])
def test_other_suffixes_are_no_form(suffix):
    """An unknown suffix raises KeyError."""
    with pytest.raises(KeyError):
        by_suffix(suffix)


@pytest.mark.parametrize("form", FORMS)
@given(
    first=record_lists(),
    second=record_lists(),
    bounds=st.tuples(st.integers(0, 2**24), st.integers(0, 2**24)),
)
def test_a_range_is_its_records_rendered_one_by_one(form, first, second, bounds):
    """`render` joins the lines of the records from start up to, but not including, end; `measure` returns the sizes."""
    start, end = bounds
    second = [record._replace(offset=record.offset + first[-1].offset + 1) for record in second]
    columns = columns_of(first, second)
    kept = [index for index, offset in enumerate(columns.offsets) if start <= offset < end]

    text = form.render(columns, **WHERE, start_offset=start, end_offset=end)
    sizes = form.measure(columns, **WHERE, start_offset=start, end_offset=end)

    line_end = b"" if form.suffix else b"\n"
    assert b"".join(form.render_one(columns, index, **WHERE) + line_end for index in kept) == text
    assert 2 == len(sizes)
    assert len(text) == sum(sizes)
    first_text = form.render(columns, **WHERE, start_offset=start, end_offset=min(end, first[-1].offset + 1))
    assert len(first_text) == sizes[0]


@pytest.mark.parametrize("form", FORMS)
def test_batches_without_records_measure_nothing(form):
    """`measure` returns 0 for each batch without records."""
    data = (
        encode([Record(0, 0, None, b"a")])
        + encode([Record(1, 0, b"\0\0\0\1", b"")], BatchStamp(transactional=True, control=True))
        + encode([], base_offset=2, last_offset=5)
        + encode([Record(6, 0, None, b"b")])
    )
    (columns,) = decode(data)

    sizes = form.measure(columns, **WHERE, **EVERYTHING)
    text = form.render(columns, **WHERE, **EVERYTHING)

    assert [0, 0] == list(sizes[1:3])
    assert len(text) == sum(sizes)
    assert 2 == text.count(b"\n")


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_text_is_no_batch(form):
    """An empty text makes no batches; a text that does not end with LF raises ValueError."""
    assert [] == form.parse(b"", timestamp=0, max_batch_bytes=1000)
    with pytest.raises(ValueError, match="no LF"):
        form.parse(b'{"payload":"x"}', timestamp=0, max_batch_bytes=1000)


@pytest.mark.parametrize(
    ("form", "before", "line"),
    [
        (VALUES, b"a", b"%b"),
        (KV, b"a\tb", b"k\t%b"),
        (JSON, b'{"payload":"a"}', b'{"payload":"%b"}'),
    ],
    ids=["values", "kv", "json"],
)
def test_a_line_too_long_is_named(form, before, line):
    """If the record of a line exceeds the largest batch, RecordTooLargeError has the line's number."""
    with pytest.raises(RecordTooLargeError, match="line 2 "):
        form.parse(before + b"\n" + line % (b"b" * 100) + b"\n", timestamp=0, max_batch_bytes=100)


@pytest.mark.parametrize("form", [KV, JSON])
@pytest.mark.parametrize("index", [-1, 1])
def test_render_one_refuses_an_index_outside_the_columns(form, index):
    """`render_one` raises IndexError for an index outside the columns."""
    with pytest.raises(IndexError):
        form.render_one(columns_of([Record(0, 0, None, b"")]), index, **WHERE)


@pytest.mark.parametrize("form", [KV, JSON])
@given(records=record_lists())
def test_what_is_printed_is_accepted(form, records):
    """Parsing a rendered line returns the same record, in all fields that the form shows."""
    text = form.render(columns_of(records), **WHERE, **EVERYTHING)

    batches = form.parse(text, timestamp=5, max_batch_bytes=2**31 - 1)

    (columns,) = decode(batches[0])
    shown = [
        Record(index, record.timestamp, record.key, record.value, record.headers)
        if form is JSON
        else Record(index, 5, record.key, record.value)
        for index, record in enumerate(records)
    ]
    assert shown == list(columns)
    assert text.count(b"\n") == len(records)


def test_headers_are_shown_in_json_alone():
    """Headers are shown in `.json`, and not in `log` and `log.kv`."""
    columns = columns_of([Record(0, 0, b"k", b"v", (Header(b"h", b"x"),))])

    assert b"v\n" == VALUES.render(columns, **WHERE, **EVERYTHING)
    assert b"k\tv\n" == KV.render(columns, **WHERE, **EVERYTHING)
    assert b'"headers":["h","x"]' in JSON.render(columns, **WHERE, **EVERYTHING)
