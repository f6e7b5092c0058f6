"""The form JSON: one object per line, as kcat prints it, and lines that are parsed."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.codec.strategies import record_lists
from topicfs.fusefs.forms import JSON, FormError
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.model import Header, Record, TimestampType, TopicPartition

WHERE = {"partition": TopicPartition("orders", 3)}
EVERYTHING = {"start_offset": 0, "end_offset": 2**63 - 1}
HEAD = '{"topic":"orders","partition":3,"offset":'


def line_of(record, stamp=None):
    """Return the rendered line of one record."""
    (columns,) = decode(encode([record], stamp or BatchStamp()))
    return JSON.render(columns, **WHERE, **EVERYTHING).decode()


def record_of(line):
    """Parse one line that arrives at time 99, and return its record."""
    (batch,) = JSON.parse(line.strip("\n").encode() + b"\n", timestamp=99, max_batch_bytes=100_000)
    (record,) = decode(batch)[0]
    return record


@pytest.mark.parametrize(
    ("record", "rest"),
    [
        (
            Record(7, 1700000000000, b"k", b"v"),
            '7,"tstype":"create","ts":1700000000000,"key":"k","payload":"v"}',
        ),
        (Record(0, -1, None, None), '0,"tstype":"create","ts":-1,"key":null,"payload":null}'),
        (
            Record(2**62, -(2**63), b"", b""),
            '4611686018427387904,"tstype":"create","ts":-9223372036854775808,"key":"","payload":""}',
        ),
        (
            Record(1, 5, None, b"", (Header(b"a", b"x"), Header(b"b", None), Header(b"a", b""))),
            '1,"tstype":"create","ts":5,"headers":["a","x","b",null,"a",""],"key":null,"payload":""}',
        ),
        (
            Record(
                1,
                5,
                b"\xff\xfe\xfd",
                b"\x80",
                (Header(b"a", b"x"), Header(b"b", b"\xc0"), Header(b"c", None)),
            ),
            (
                '1,"tstype":"create","ts":5,"headers_base64":["a","eA==","b","wA==","c",null],'
                '"key_base64":"//79","payload_base64":"gA=="}'
            ),
        ),
    ],
)
def test_fields_in_kcats_order(record, rest):
    """Fields have kcat's order. Headers are shown only if there are any; values that are not UTF-8 are base64."""
    assert HEAD + rest + "\n" == line_of(record)


def test_append_time_is_shown():
    """A record with LogAppendTime shows `"tstype":"logappend"`, as kcat does, and the time of its batch."""
    line = line_of(Record(0, 5, None, b"x"), BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME))

    assert ("logappend", 5) == (json.loads(line)["tstype"], json.loads(line)["ts"])


def test_records_of_the_oldest_format_have_no_time():
    """Records of the oldest format have no timestamp, so `tstype` and `ts` are omitted, as in kcat."""
    entry = bytes.fromhex("000000000000000a000000101fecd70a0000000000016b0000000176")

    line = JSON.render(decode(entry)[0], **WHERE, **EVERYTHING).decode()

    assert HEAD + '10,"key":"k","payload":"v"}\n' == line


def test_what_is_escaped():
    """Quotes, backslashes and control characters are escaped, but DEL and the slash are not."""
    value = bytes(range(0x20)) + b'"\\/\x7f' + "é€😀\u2028".encode()

    shown = line_of(Record(0, 0, None, value)).partition('"payload":')[2]

    assert (
        '"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000B\\f\\r\\u000E\\u000F'
        "\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001A\\u001B\\u001C\\u001D\\u001E\\u001F"
        '\\"\\\\/\x7fé€😀\u2028"}\n'
    ) == shown


@given(st.binary(max_size=60), st.integers(0, 40))
def test_a_value_is_text_if_python_decodes_it(value, padding):
    """A value is shown as text if Python decodes it as UTF-8, whatever its length; otherwise as base64."""
    value = b"x" * padding + value
    fields = json.loads(line_of(Record(0, 0, None, value)))

    try:
        assert value.decode() == fields["payload"]
    except UnicodeDecodeError:
        assert base64.b64encode(value).decode() == fields["payload_base64"]


@pytest.mark.parametrize(
    "value",
    [
        "\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x20", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xe2\x82",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xff", "\xe2\x82\x2e", "\xf0\x9f\x98",
    ],
)  # fmt: skip
def test_sequences_that_are_no_utf8(value):
    """Invalid UTF-8 is shown as base64: overlong forms, surrogates, code points above U+10FFFF, cut or stray bytes."""
    assert '"payload_base64"' in line_of(Record(0, 0, None, value.encode("latin-1")))


@given(record_lists())
def test_every_line_is_json_with_the_fields_of_its_record(records):
    """Each line is JSON with the place and the time of its record."""
    (columns,) = decode(encode(records))

    lines = JSON.render(columns, **WHERE, **EVERYTHING).decode().removesuffix("\n").split("\n")

    for record, line in zip(records, lines, strict=True):
        fields = json.loads(line)
        place = ("orders", 3, record.offset, record.timestamp)
        assert place == (fields["topic"], fields["partition"], fields["offset"], fields["ts"])


def test_odd_bytes_in_a_header_name_come_back():
    """Invalid bytes in a header's name are shown as lone surrogates, which are parsed to the same bytes."""
    record = Record(0, 0, None, b"v", (Header(b"\xff\xc3\xa9\xed\xa0\x80", b"x"),))
    line = line_of(record)

    assert '"headers":["\\uDCFFé\\uDCED\\uDCA0\\uDC80","x"]' in line
    assert record == record_of(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"payload":"v"}', Record(0, 99, None, b"v")),
        ('{"payload":null,"key":"k"}', Record(0, 99, b"k", None)),
        ('{"payload":"v","ts":-5}', Record(0, -5, None, b"v")),
        ('{"payload_base64":"AP8=","key_base64":""}', Record(0, 99, b"", b"\0\xff")),
        ('{"payload_base64":null,"key_base64":null}', Record(0, 99, None, None)),
        ('{"payload":"v","headers":[]}', Record(0, 99, None, b"v")),
        ('{"payload":"v","headers":["a",null,"a","b"]}', Record(0, 99, None, b"v", ((b"a", None), (b"a", b"b")))),
        ('{"payload":"v","headers_base64":["a","/w==","b",null]}',
         Record(0, 99, None, b"v", ((b"a", b"\xff"), (b"b", None)))),
        ('{"topic":1,"partition":[],"offset":{},"tstype":null,"broker":-1,"payload":"\\u00e9\\n"}',
         Record(0, 99, None, b"\xc3\xa9\n")),
        (' { "payload" : "v" } ', Record(0, 99, None, b"v")),
        ('{"payload":"\\ud83d\\ude00"}', Record(0, 99, None, "😀".encode())),
    ],
)  # fmt: skip
def test_lines_that_people_write(line, expected):
    """A line needs only a payload; fields that the parser ignores may have any value."""
    assert expected == record_of(line)


BAD_LINES = {
    "not JSON": [
        *("", "hello", '{"payload":"v"} x', '{"payload":"v"', "{'payload':'v'}"),
        *('{"payload":"v","ts":NaN}', '{"payload":"v","offset":Infinity}'),
        '{"payload":"v","offset":' + "1" * 5000 + "}",
    ],
    "nested too deeply": ['{"payload":"v","topic":' + "[" * 100_000],
    "not a JSON object": ["[]", '"x"'],
    "payload is missing": ["{}", '{"key":"k"}'],
    "payload is not a string": ['{"payload":5}', '{"payload":{"a":1}}', '{"payload":true}'],
    "key is not a string": ['{"payload":"v","key":1}'],
    "unknown field 'pay'": ['{"payload":"v","pay":"x"}'],
    "unknown field 'value'": ['{"payload":"v","value":"x"}'],
    "payload is present twice": ['{"payload":"v","payload_base64":"dg=="}'],
    "key is present twice": ['{"payload":"v","key":"a","key_base64":"dg=="}'],
    "headers are present twice": ['{"payload":"v","headers":[],"headers_base64":[]}'],
    "payload_base64 is not base64": [f'{{"payload_base64":"{text}"}}' for text in ("dg=", "d g==", "é")],
    "payload_base64 is not a string": ['{"payload_base64":7}'],
    "ts is not a 64-bit integer": [
        f'{{"payload":"v","ts":{time}}}' for time in ('"5"', "5.0", "true", "null", "9223372036854775808")
    ],
    "headers is not an array": [
        f'{{"payload":"v","headers":{headers}}}' for headers in ('{"a":"b"}', "null", '["a"]')
    ],
    "name is not a string": ['{"payload":"v","headers":[null,"b"]}'],
    "value of headers is not a string": ['{"payload":"v","headers":["a",1]}'],
    "value of headers_base64 is not base64": ['{"payload":"v","headers_base64":["a","?"]}'],
    "half a surrogate pair": ['{"payload":"\\ud800"}', '{"payload":"v","headers":["\\ud800","x"]}'],
}


@pytest.mark.parametrize(
    ("line", "reason"), [(line, reason) for reason, lines in BAD_LINES.items() for line in lines]
)
def test_a_bad_line_is_named_with_its_reason(line, reason):
    """A bad line raises FormError with the line's number and the reason, and no line of the text is used."""
    text = ('{"payload":"a"}\n' * 2 + line + "\n").encode()

    with pytest.raises(FormError, match=reason) as caught:
        JSON.parse(text, timestamp=0, max_batch_bytes=100_000)

    assert 3 == caught.value.line_number
    assert str(caught.value).startswith("line 3: ")


@pytest.mark.parametrize("line", [b'{"payload":"\xff"}', b'\xef\xbb\xbf{"payload":"v"}'])
def test_a_line_that_is_no_plain_utf8(line):
    """A line that is not UTF-8, or has a byte order mark, is refused."""
    with pytest.raises(FormError, match="line 1: not "):
        JSON.parse(line + b"\n", timestamp=0, max_batch_bytes=1000)


def test_topic_names_are_strings_like_any_other():
    """The name of a topic is escaped like any other string."""
    (columns,) = decode(encode([Record(0, 0, None, b"")]))

    line = JSON.render(columns, TopicPartition('a"b', 0), **EVERYTHING)

    assert 'a"b' == json.loads(line)["topic"]
