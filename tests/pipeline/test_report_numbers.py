"""Tests of a report's counts: any division into parts counts every record, and lags are as exact as logs allow."""

from __future__ import annotations

import contextlib
import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.records import record
from topicfs.pipeline.places.place import place_of
from topicfs.replication import open_engine
from topicfs.storage.codec.binary.fields import HEADER_SIZE
from topicfs.storage.codec.headers import Codec
from topicfs.storage.codec.records import BatchStamp, decode, encode
from topicfs.storage.model import Header, TimestampType, TopicPartition

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from topicfs.pipeline.report import histograms
from topicfs.pipeline.report.collector import Counter, bytes_of, collect, find_parts
from topicfs.pipeline.report.numbers import PartitionNumbers, StoredBytes, merged

NEW_YEAR = 1_767_225_600_000
PARTITION = TopicPartition("t", 0)


def integers(*values):
    return np.array(values, np.int64)


def counted(*batches):
    """Return the `PartitionNumbers` of batches; decode each batch separately."""
    numbers = PartitionNumbers(PARTITION)
    found = (columns for batch in batches for columns in decode(batch, create_times=True))
    Counter(numbers).count((columns, 0, len(columns)) for columns in found)
    return numbers


def records(*rows):
    """Make records from tuples (timestamp, key, value)."""
    return [record(at, key, value, time) for at, (time, key, value) in enumerate(rows)]


@given(st.lists(st.integers(0, 2**40)))
def test_a_size_lies_in_its_bin(sizes):
    """A size is in a bin that starts at or below the size and ends at most a quarter above it."""
    for size, number in zip(sizes, histograms.bins_of(integers(*sizes)).tolist(), strict=True):
        assert histograms.bin_start(number) <= size < histograms.bin_start(number + 1)
        assert histograms.bin_start(number + 1) - histograms.bin_start(number) <= max(
            1, histograms.bin_start(number) / 4
        )


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), min_size=1), min_size=1), st.randoms())
def test_parts_add_up_to_the_same_in_any_order(parts, random):
    """Parts merged in any order give equal buckets, and no record is lost."""

    def of(times):
        histogram = histograms.TimeHistogram()
        histogram.count(integers(*times), integers(*[7] * len(times)))
        return histogram

    def merged_times(parts):
        total = histograms.TimeHistogram()
        for part in parts:
            total.merge(of(part))
        return total

    together = merged_times(parts)
    assert together == merged_times(random.sample(parts, len(parts)))
    assert together == of([time for part in parts for time in part])
    count = sum(map(len, parts))
    assert (count, 7 * count) == tuple(map(sum, zip(*together.buckets.values(), strict=True)))


def test_a_histogram_has_a_limited_number_of_buckets():
    """A histogram that would get too many buckets switches to wider buckets.

    Each possible width is a multiple of the next smaller width.
    """
    histogram = histograms.TimeHistogram()
    times = NEW_YEAR + np.arange(histograms.MAX_HISTOGRAM_BUCKETS, dtype=np.int64) * 1000
    histogram.count(times, np.zeros_like(times))
    assert (1, histograms.MAX_HISTOGRAM_BUCKETS) == (histogram.width_ms, len(histogram.buckets))
    histogram.count(times + 1, np.zeros_like(times))
    assert (10, histograms.MAX_HISTOGRAM_BUCKETS) == (histogram.width_ms, len(histogram.buckets))
    histogram.count(times + 1000 * histograms.MAX_HISTOGRAM_BUCKETS, np.zeros_like(times))
    assert (5000, 400) == (histogram.width_ms, len(histogram.buckets))
    assert all(wide % narrow == 0 for narrow, wide in itertools.pairwise(histograms.WIDTHS))


def test_quantiles_are_reached_by_their_share():
    """At least half of all sizes are at most the median, and the median is at most the largest size."""
    histogram = histograms.SizeHistogram()
    assert histogram.quantile(0.5) is None
    histogram.add(integers(1, 2, 3, 100))
    histogram.add(integers())
    assert (2, 100, 4, 106, 100) == (
        histogram.quantile(0.5),
        histogram.quantile(0.99),
        histogram.count,
        histogram.total,
        histogram.largest,
    )


def test_nulls_and_records_without_a_time_are_told_apart():
    """A null has no size, an empty value has size 0, and -1 is not a time."""
    numbers = counted(
        encode(records((NEW_YEAR, None, b""), (NEW_YEAR + 5, b"key", None), (-1, b"", b"value")))
    )
    assert (3, 0) == (numbers.records, numbers.stamped_records)
    assert (1, {3: 1, 0: 1}) == (numbers.null_keys, numbers.keys.bins)
    assert (1, {0: 1, 5: 1}) == (numbers.null_values, numbers.values.bins)
    assert (NEW_YEAR, NEW_YEAR + 5) == (numbers.first_time, numbers.last_time)
    assert [(1, 0), (1, 3)] == [tuple(amount) for _, amount in sorted(numbers.times.buckets.items())]


def test_the_brokers_stamp_tells_each_records_lag():
    """In a batch that the broker stamped, all records count at the batch's append time.

    A record's lag is the append time minus the time that the producer set.
    """
    stamp = BatchStamp(timestamp_type=TimestampType.LOG_APPEND_TIME)
    rows = [
        (NEW_YEAR, None, b"a"),
        (NEW_YEAR + 900, None, b"b"),
        (NEW_YEAR + 1005, None, b"c"),
        (-1, None, b"d"),
    ]
    stamped = encode(records(*rows), stamp, max_timestamp=NEW_YEAR + 1000)
    plain = encode(records((NEW_YEAR + 7, None, b"e")))
    numbers = counted(stamped, plain, stamped + plain)
    assert (10, 8, 2) == (numbers.records, numbers.stamped_records, numbers.early_records)
    assert (4, 2200, 1000) == (
        numbers.lags.count,
        numbers.lags.total,
        numbers.lags.largest,
    )
    assert {NEW_YEAR + 7: 2, NEW_YEAR + 1000: 8} == {
        number: amount.records for number, amount in numbers.times.buckets.items()
    }


@pytest.mark.parametrize("codec", list(Codec))
def test_uncompressed_is_what_batches_would_take(codec):
    """The uncompressed size of the same records is the same for every codec."""
    rows = records(*[(NEW_YEAR, b"key", b"value" * 20)] * 50)
    plain, packed = encode(rows), encode(rows, BatchStamp(codec=codec))
    assert {codec.label: StoredBytes(2 * len(packed), 2 * len(plain))} == counted(packed, packed).codecs
    assert HEADER_SIZE < len(packed)


@pytest.fixture
def data(tmp_path):
    """Make `orders` of one partition with two segments, `empty`, and one of Kafka's internal topics."""
    with contextlib.closing(open_engine(tmp_path / "data")) as engine:
        partition = engine.create_topic("orders", overrides={"internal.segment.bytes": "300"}).partitions()[0]
        for first in (0, 4):
            rows = [(NEW_YEAR + first + at, b"k", b"v" * 40) for at in range(4)]
            partition.append(encode([one._replace(headers=(Header(b"h", b""),)) for one in records(*rows)]))
        engine.create_topic("empty")
    os.mkdir(tmp_path / "data" / "__consumer_offsets-0")
    return tmp_path / "data"


def logs(data):
    return sorted((data / "orders-0").glob("*.log"))


def test_segments_are_read_with_their_lags(data):
    """A segment's lag is the time from its largest timestamp to its file's mtime. Internal topics are left out."""
    for at, log in enumerate(logs(data)):
        os.utime(log, ns=(0, (NEW_YEAR + 1000 + at) * 1_000_000))
    partitions, pieces = find_parts(place_of(str(data)), None)
    assert [TopicPartition("empty", 0), TopicPartition("orders", 0)] == partitions
    (numbers,) = collect(place_of(str(data)), pieces)
    assert (2, 8, sum(log.stat().st_size for log in logs(data))) == (
        numbers.segments,
        numbers.records,
        numbers.log_bytes,
    )
    assert numbers.log_bytes == sum(map(bytes_of, pieces)) == numbers.stored.bytes
    assert [994, 997] == numbers.segment_lags
    parts = [one for piece in reversed(pieces) for one in collect(place_of(str(data)), [piece])]
    assert [numbers] == merged(parts)


def test_what_is_damaged_or_goes_away_is_counted_and_left_out(data):
    """Damaged batches and removed segments are counted, and left out of all other numbers."""
    _, pieces = find_parts(place_of(str(data)), ["orders"])
    first, second = logs(data)
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    second.unlink()
    (numbers,) = collect(place_of(str(data)), pieces)
    assert (0, 1, 1, 1) == (
        numbers.records,
        numbers.segments,
        numbers.damaged_batches,
        numbers.changed_segments,
    )
