"""An archive's records by their offsets, of files as Spark and others write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from topicfs.pipeline.archives.records import ArchivedRecords
from topicfs.pipeline.errors import NoArchiveError, PipelineError
from topicfs.storage.model import Header, Offset, Record, Timestamp, TopicPartition
from topicfs.storage.scrub.archive import ArchivedRecord

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ORDERS = TopicPartition("orders", 0)
EPOCH = datetime.fromtimestamp(0, UTC)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": HEADERS,
    }
)


def row(offset: int, *, partition: int = 0, time: int = 1_700_000_000_123, **given: Any) -> dict[str, Any]:
    plain = {"key": b"k", "value": b"v%d" % offset, "timestampType": 0, "headers": None}
    moment = EPOCH + timedelta(milliseconds=time)
    return {**plain, "partition": partition, "offset": offset, "timestamp": moment, **given}


def put(archive: Path, rows: list[dict[str, Any]], name: str = "part-0", **options: Any) -> None:
    folder = archive / "topic=orders" / "date=2026-01-01"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / f"{name}.parquet", **options)


def offsets(archive: Path, start: int, end: int, partition: TopicPartition = ORDERS) -> list[int]:
    return [one.record.offset for one in ArchivedRecords(archive).records(partition, start, end)]


@pytest.mark.parametrize("old_times", [False, True])
def test_a_record_is_as_it_was(tmp_path, old_times):
    """Nulls, headers, times before 1970, none (-1) and far away; in Spark's own type of times, too."""
    times = [-1, -62_000_000_000_000, 0, 1_700_000_000_123, 32_503_680_000_001]
    rows = [row(n, time=time) for n, time in enumerate(times)]
    rows[1] |= {"key": None, "value": None, "timestampType": 1}
    rows[2]["headers"] = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    put(tmp_path, rows, use_deprecated_int96_timestamps=old_times)
    found = ArchivedRecords(tmp_path).records(ORDERS, 0, 5)
    assert times == [one.record.timestamp for one in found]
    assert ArchivedRecord(Record(Offset(1), Timestamp(times[1]), None, None), 1) == found[1]
    assert (Header(b"a", b"1"), Header(b"b", None)) == found[2].record.headers


def test_a_range_is_found_wherever_its_records_are(tmp_path):
    """In several files and row groups, in any order; of that topic and partition alone."""
    put(tmp_path, [row(n) for n in (5, 3, 4, 9)], row_group_size=2)
    put(tmp_path, [row(n, partition=n % 2) for n in range(10, 20)], "part-1", row_group_size=3)
    assert [3, 4, 5] == offsets(tmp_path, 0, 9)
    assert [9, 10, 12] == offsets(tmp_path, 9, 14)
    assert [11, 13] == offsets(tmp_path, 9, 14, TopicPartition("orders", 1))
    assert [] == offsets(tmp_path, 0, 100, TopicPartition("other", 0))


def test_a_record_that_is_there_twice_counts_once_and_two_that_differ_are_an_error(tmp_path):
    """Of an offset there was one record."""
    put(tmp_path, [row(1), row(2)])
    put(tmp_path, [row(2), row(3)], "part-1")
    assert [1, 2, 3] == offsets(tmp_path, 0, 9)
    put(tmp_path, [row(2, key=b"other")], "part-2")
    with pytest.raises(PipelineError, match="two different records of orders-0 at offset 2"):
        offsets(tmp_path, 0, 9)


def test_what_is_no_archive_is_told(tmp_path):
    """An empty directory, a file that is no Parquet, and Parquet of something else."""
    with pytest.raises(NoArchiveError):
        ArchivedRecords(tmp_path)
    put(tmp_path, [row(1)])
    file = tmp_path / "topic=orders/date=2026-01-01/part-0.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(PipelineError, match="part-0.parquet: no Parquet, or damaged"):
        offsets(tmp_path, 0, 9)
    pq.write_table(pa.table({"a": [1]}), file)
    with pytest.raises(PipelineError, match="part-0.parquet: no file of an archive: no column partition"):
        offsets(tmp_path, 0, 9)
