"""`topicfs cat --format` prints records with kcat's tokens, as CSV, Arrow or Parquet."""

from __future__ import annotations

import csv
import io
import json
import struct
from datetime import UTC, datetime

import pytest

from tests.topicfs.conftest import Ran

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

pytestmark = pytest.mark.slow

TIME = 1_700_000_000_000
RECORDS = [
    {"key": "k", "payload": "one", "ts": TIME},
    {"key": None, "payload": None, "ts": TIME + 2},
    {"key": "", "payload": 'a,"b"\nc', "headers": ["h", "v", "h", None], "ts": TIME + 4},
]


@pytest.fixture
def clicks(topicfs):
    """A topic of two partitions, with nulls, a header, text that CSV must quote, and alternating timestamps."""
    topicfs("topics", "create", "clicks", "--partitions", "2")
    for number, records in ((0, RECORDS), (1, [{"payload": "other", "ts": TIME + 1}])):
        lines = "".join(json.dumps(record) + "\n" for record in records).encode()
        assert 0 == topicfs("append", f"clicks/{number}/log.json", stdin=lines).status
    return topicfs


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%o %k %s\n", b'0 k one\n1  \n2  a,"b"\nc\n'),
        (r"%S,%K;", b"3,1;-1,-1;7,0;"),
        ("%t-%p@%T|", b"clicks-0@%d|clicks-0@%d|clicks-0@%d|" % (TIME, TIME + 2, TIME + 4)),
        (r"%h\t", b"\t\th=v,h=NULL\t"),
        ("%R", struct.pack(">iii", 3, -1, 7)),
        (r"%o%%\x41\x0a\\\r", b"0%A\n\\\r1%A\n\\\r2%A\n\\\r"),
        ("é%o", "é0é1é2".encode()),
    ],
)
def test_a_text_is_printed_for_each_record(clicks, template, expected):
    """The tokens and escapes of a format are those of kcat. Null is printed as an empty text, and its length as -1."""
    assert Ran(0, expected, b"") == clicks("cat", "clicks/0", "--format", template)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("clicks/0/1", b"0:1 "),
        ("clicks/0/0-1", b"0:0 0:1 "),
        ("clicks/0/1-", b"0:1 0:2 "),
        ("clicks/0/-1", b"0:2 "),
        ("clicks/0/earliest", b"0:0 "),
        ("clicks/0/latest", b"0:2 "),
        (f"clicks/0/@{TIME + 1}", b"0:1 "),
        (f"clicks/0/@{TIME}-@{TIME + 3}", b"0:0 0:1 "),
        ("clicks/0/@1m-", b""),
        ("clicks", b"0:0 1:0 0:1 0:2 "),
        ("clicks/log", b"0:0 1:0 0:1 0:2 "),
        (f"clicks/@{TIME + 1}-", b"1:0 0:1 0:2 "),
        (f"clicks/@{TIME + 1}-@{TIME + 3}", b"1:0 0:1 "),
    ],
)
def test_a_path_means_the_records_that_it_means_on_a_mount(clicks, path, expected):
    """With --format a path selects the same records as on a mount; records of a whole topic are merged by timestamp."""
    assert Ran(0, expected, b"") == clicks("cat", path, "-F", "%p:%o ")


def test_csv_is_read_back_by_a_spreadsheet(clicks):
    """CSV has one header line for all paths, calendar times, and headers formatted as in `log.json`."""
    printed = clicks("cat", "clicks/0", "clicks/1/0", "--format", "csv").output.decode()
    names, *rows = csv.reader(io.StringIO(printed, newline=""))
    assert ["topic", "partition", "offset", "timestamp", "key", "value", "headers"] == names
    assert [
        ["clicks", "0", "0", "2023-11-14T22:13:20.000Z", "k", "one", ""],
        ["clicks", "0", "1", "2023-11-14T22:13:20.002Z", "", "", ""],
        ["clicks", "0", "2", "2023-11-14T22:13:20.004Z", "", 'a,"b"\nc', '["h","v","h",null]'],
        ["clicks", "1", "0", "2023-11-14T22:13:20.001Z", "", "other", ""],
    ] == rows


def test_bytes_that_are_no_text_pass_through_csv(topicfs):
    """Bytes that are not UTF-8 are written to CSV unchanged."""
    topicfs("topics", "create", "raw")
    topicfs("append", "raw/0", stdin=b"\xff\xfe\n")
    assert b",\xff\xfe,\n" in topicfs("cat", "raw/0", "--format", "csv").output


@pytest.mark.parametrize("shown_as", ["arrow", "parquet"])
def test_columns_are_those_of_sparks_kafka_source(clicks, shown_as):
    """Arrow and Parquet have the columns of Spark's Kafka source.

    The partitions of a topic are written one after another.
    """
    output = clicks("cat", "clicks/log", "--format", shown_as).output
    table = (
        pa.ipc.open_stream(output).read_all()
        if shown_as == "arrow"
        else parquet.read_table(io.BytesIO(output))
    )
    assert [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ] == table.column_names
    moments = [datetime.fromtimestamp(TIME / 1000, UTC).replace(microsecond=n * 1000) for n in (0, 2, 4, 1)]
    assert moments == table["timestamp"].to_pylist()
    assert [b"k", None, b"", None] == table["key"].to_pylist()
    assert [b"one", None, b'a,"b"\nc', b"other"] == table["value"].to_pylist()
    assert [0, 0, 0, 1] == table["partition"].to_pylist()
    assert [0, 1, 2, 0] == table["offset"].to_pylist()
    headers = [{"key": "h", "value": b"v"}, {"key": "h", "value": None}]
    assert [None, None, headers, None] == table["headers"].to_pylist()


def test_many_records_make_few_groups(topicfs, monkeypatch):
    """Records are written in groups of bounded size, whatever the sizes of the batches."""
    monkeypatch.setattr("topicfs.formats.arrow_batches.GROUP_ROWS", 1000)
    monkeypatch.setattr("topicfs.formats.records.RECORD_FETCH_BYTES", 1)
    topicfs("topics", "create", "many")
    for _ in range(5):
        topicfs("append", "many/0", stdin=b"".join(b"%d\n" % n for n in range(500)))
    output = topicfs("cat", "many/0", "--format", "parquet").output
    assert [1000, 1000, 500] == [
        parquet.ParquetFile(io.BytesIO(output)).metadata.row_group(n).num_rows for n in range(3)
    ]


def test_an_empty_partition_is_an_empty_file_of_its_format(topicfs):
    """An empty partition is printed as an empty file of the format, with the names of the columns."""
    topicfs("topics", "create", "empty")
    assert b"" == topicfs("cat", "empty/0", "--format", "%s").output
    assert 1 == topicfs("cat", "empty/0", "--format", "csv").output.count(b"\n")
    assert 0 == parquet.read_table(io.BytesIO(topicfs("cat", "empty", "--format", "parquet").output)).num_rows


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (("clicks/0", "--format", "%o %"), 2, "%: not a token"),
        (("clicks/0", "--format", "%o\\q"), 2, "\\q: not a token"),
        (("clicks/0/log.json", "--format", "csv"), 1, "clicks/0/log.json: a format replaces the suffix"),
        (("clicks/0/9", "--format", "csv"), 1, "no offset 9; offsets 0 to 2 exist"),
        (("clicks/0/status", "--format", "csv"), 1, "status: not a selector"),
        (("clicks/9/log", "--format", "csv"), 1, "clicks/9: no such partition"),
        (("clicks/0-1", "--format", "csv"), 1, "a whole topic only has log, @TIME-@TIME and @TIME-"),
        (("clicks/0", "--format", "parquet", "--follow"), 2, "use --format arrow"),
        (("clicks/log", "--format", "csv", "--group", "g"), 2, "--group cannot be combined with --format"),
    ],
)
def test_an_invalid_format_or_path_prints_valid_values(clicks, words, status, error):
    """For an invalid format or path, one line with the valid values is printed."""
    ran = clicks("cat", *words)
    assert status == ran.status
    assert error in ran.errors.decode()


def test_without_pyarrow_the_extra_is_named(clicks, monkeypatch):
    """If pyarrow is not installed, Arrow and Parquet fail and name the extra to install; text formats work."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    ran = clicks("cat", "clicks/0", "--format", "parquet")
    assert (1, b"") == ran[:2]
    assert b"pip install 'topicfs[arrow]'" in ran.errors
    assert b"0\n1\n2\n" == clicks("cat", "clicks/0", "--format", r"%o\n").output


def test_the_records_before_a_damaged_batch_are_printed(orders, directory):
    """`cat --format` prints the records before a damaged batch and then the error; its status is 1."""
    orders("append", "orders/0", stdin=b"damaged\n")
    segment = directory / "orders-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    content[-3] ^= 1
    segment.write_bytes(content)
    ran = orders("cat", "orders/0", "--format", "%s.")
    assert (1, b"one.two.three.") == ran[:2]
    assert b"00000000000000000000.log" in ran.errors
