"""A partition's numbers as an Arrow row and back: the rows of tasks, and of the job's DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from topicfs.pipeline.report.histograms import (
    WIDTHS,
    Amount,
    SizeHistogram,
    TimeHistogram,
    bin_start,
    bins_of,
)
from topicfs.pipeline.report.numbers import COUNTS, GroupLag, PartitionNumbers, SegmentLag, StoredBytes
from topicfs.storage.model import TopicPartition


def _struct(*names: str, **others: Any) -> Any:
    return pa.struct([*((name, pa.int64()) for name in names), *others.items()])


_SIZES = _struct("count", "total", "smallest", "largest", bins=pa.list_(_struct("start", "count")))
_PLAIN = (*COUNTS, "first_time", "last_time")
_STORED = ("batches", "batch_bytes", "uncompressed_bytes")
"""Sums over all codecs; damaged batches, and those without records, are in `log_bytes` alone."""
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in (*_STORED, *_PLAIN)),
        ("codecs", pa.list_(_struct("batches", "bytes", "uncompressed_bytes", codec=pa.string()))),
        ("times", _struct("width_ms", buckets=pa.list_(_struct("start", "records", "bytes")))),
        ("keys", _SIZES),
        ("values", _SIZES),
        ("lags", _SIZES),
        ("segment_lags", pa.list_(_struct("last_append_ms", "lag_ms"))),
        ("groups", pa.list_(_struct("position", "lag", group=pa.string()))),
    ]
)
"""See `pipeline.report.numbers`; times are milliseconds since the epoch, which any record may claim."""


def row_of(numbers: PartitionNumbers) -> dict[str, Any]:
    """Return the row, as Python values."""
    return {
        **numbers.partition._asdict(),
        **dict(zip(_STORED, numbers.stored, strict=True)),
        **{name: getattr(numbers, name) for name in _PLAIN},
        "codecs": [{"codec": codec, **stored._asdict()} for codec, stored in sorted(numbers.codecs.items())],
        "times": _times_row(numbers.times),
        "keys": _sizes_row(numbers.keys),
        "values": _sizes_row(numbers.values),
        "lags": _sizes_row(numbers.lags),
        "segment_lags": [one._asdict() for one in numbers.segment_lags],
        "groups": [one._asdict() for one in numbers.groups],
    }


def numbers_of(row: Mapping[str, Any]) -> PartitionNumbers:
    """Read a row."""
    return PartitionNumbers(
        partition=TopicPartition(row["topic"], row["partition"]),
        **{name: row[name] for name in _PLAIN},
        codecs={
            one["codec"]: StoredBytes(one["batches"], one["bytes"], one["uncompressed_bytes"])
            for one in row["codecs"]
        },
        times=_times_of(row["times"]),
        keys=_sizes_of(row["keys"]),
        values=_sizes_of(row["values"]),
        lags=_sizes_of(row["lags"]),
        segment_lags=[SegmentLag(one["last_append_ms"], one["lag_ms"]) for one in row["segment_lags"]],
        groups=tuple(GroupLag(one["group"], one["position"], one["lag"]) for one in row["groups"]),
    )


def table_of(numbers: Iterable[PartitionNumbers]) -> Any:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([row_of(one) for one in numbers], SCHEMA)


def batch_of(numbers: Iterable[PartitionNumbers]) -> Any:
    """Return the rows as an Arrow batch."""
    return pa.RecordBatch.from_pylist([row_of(one) for one in numbers], SCHEMA)


def _times_row(times: TimeHistogram) -> dict[str, Any]:
    width = times.width_ms
    buckets = [
        {"start": number * width, **amount._asdict()} for number, amount in sorted(times.buckets.items())
    ]
    return {"width_ms": width, "buckets": buckets}


def _times_of(row: Mapping[str, Any]) -> TimeHistogram:
    width = row["width_ms"]
    buckets = {one["start"] // width: Amount(one["records"], one["bytes"]) for one in row["buckets"]}
    return TimeHistogram(WIDTHS.index(width), buckets)


def _sizes_row(sizes: SizeHistogram) -> dict[str, Any]:
    bins = [{"start": bin_start(number), "count": count} for number, count in sorted(sizes.bins.items())]
    return {**asdict(sizes), "bins": bins}


def _sizes_of(row: Mapping[str, Any]) -> SizeHistogram:
    starts = np.array([one["start"] for one in row["bins"]], np.int64)
    bins = dict(zip(bins_of(starts).tolist(), (one["count"] for one in row["bins"]), strict=True))
    return SizeHistogram(row["count"], row["total"], row["smallest"], row["largest"], bins)
