"""A partition's numbers as a row of the job's DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from topicfs.pipeline.report.histograms import SizeHistogram, TimeHistogram, bin_start
from topicfs.pipeline.report.numbers import COUNTS, PartitionNumbers


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


def _row_of(numbers: PartitionNumbers) -> dict[str, Any]:
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


def table_of(numbers: Iterable[PartitionNumbers]) -> Any:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([_row_of(one) for one in numbers], SCHEMA)


def _times_row(times: TimeHistogram) -> dict[str, Any]:
    width = times.width_ms
    buckets = [
        {"start": number * width, **amount._asdict()} for number, amount in sorted(times.buckets.items())
    ]
    return {"width_ms": width, "buckets": buckets}


def _sizes_row(sizes: SizeHistogram) -> dict[str, Any]:
    bins = [{"start": bin_start(number), "count": count} for number, count in sorted(sizes.bins.items())]
    return {**asdict(sizes), "bins": bins}
