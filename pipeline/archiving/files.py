"""The data files of an archive: one file per partition and date, until small files are merged.

A merged file may have several partitions, but each of its row groups has only one.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topicfs.pipeline.archiving.iceberg import table_files
from topicfs.pipeline.archiving.listed import CHECKPOINT, COMMITTED, file_key, is_iceberg, listed_lines
from topicfs.pipeline.errors import NoArchiveError, PipelineError
from topicfs.storage.disk.native import NativeFileSystem

ROW_GROUP_BYTES = 32 << 20
"""Size before compression at which a file writes its buffered batches as a row group."""
BUFFERED_BYTES = 128 << 20
"""Buffered bytes of all files together. At this size, every file writes its batches as a row group."""
OPEN_FILES = 64
SMALL_BYTES = 32 << 20
SMALL_FILES = 10
"""Number of small files of a topic and date at which these files are merged."""
_DAY_US = 86_400_000_000
_DICTIONARIES = ["key", "topic", "partition", "timestampType"]


class _File:
    def __init__(self, folder: Path, schema: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"part-{uuid.uuid4().hex}.parquet"
        self._writer = pq.ParquetWriter(self.path, schema, use_dictionary=_DICTIONARIES)
        self._waiting: list[Any] = []
        self.size_bytes = 0
        """Bytes of the batches that are buffered for the next row group."""

    def add(self, batch: Any) -> None:
        self._waiting.append(batch)
        self.size_bytes += batch.nbytes
        if self.size_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._waiting, self.size_bytes = [], 0

    def close(self) -> Path:
        self.flush()
        self._writer.close()
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        NativeFileSystem().sync_directory(self.path.parent)
        return self.path


def write_batches(archive: Path, topic: str, batches: Iterable[Any], *, has_topic: bool) -> Iterator[Path]:
    """Write Arrow batches of one partition; yield the path of each file once it is complete. Raises OSError."""
    files: dict[int, _File] = {}
    for batch in batches:
        for day, part in _by_day(batch if has_topic else batch.drop_columns(["topic"])):
            if day not in files:
                if len(files) == OPEN_FILES:
                    yield from [file.close() for file in files.values()]
                    files.clear()
                files[day] = _File(archive / f"topic={topic}" / f"date={_date(day)}", part.schema)
            files[day].add(part)
        if sum(file.size_bytes for file in files.values()) >= BUFFERED_BYTES:
            for file in files.values():
                file.flush()
    yield from [file.close() for file in files.values()]


def archived_files(archive: Path) -> list[Path]:
    """Return the committed data files. Raises PipelineError if a data file, or the whole archive, does not exist."""
    listed = archive / COMMITTED
    if is_iceberg(archive):
        files = [archive.joinpath(*file_key(uri)) for uri in table_files(archive)]
    elif listed.is_dir():
        files = [archive.joinpath(*file_key(json.loads(line)["path"])) for line in listed_lines(listed)]
    else:
        files = sorted(archive.glob("topic=*/date=*/*.parquet"))
    if not files and not (archive / CHECKPOINT).is_dir():
        raise NoArchiveError(archive)
    for file in files:
        if not file.is_file():
            raise PipelineError(f"{file}: is in the archive's list of files, but does not exist")
    return files


def small_groups(archive: Path) -> list[list[Path]]:
    """Return the small files to merge, one list per folder."""
    found: dict[Path, list[Path]] = {}
    for file in archived_files(archive):
        if file.stat().st_size < SMALL_BYTES:
            found.setdefault(file.parent, []).append(file)
    return [files for files in found.values() if len(files) >= SMALL_FILES]


def merge(files: Sequence[Path], schema: Any) -> Path:
    """Merge several files of a folder into a new file. Raises OSError; ArrowInvalid for a damaged file."""
    merged: _File | None = None
    partition = None
    for row_group in _row_groups(files):
        table = row_group.select(schema.names).cast(schema)
        merged = merged or _File(files[0].parent, schema)
        if partition != (partition := table["partition"][0].as_py()):
            merged.flush()
        for batch in table.to_batches():
            merged.add(batch)
    assert merged is not None, "there are rows in each file"
    return merged.close()


class FileRows(NamedTuple):
    """The rows of one partition in a row group: the partition, the first offset, and the number of rows."""

    topic: str
    date: str
    partition: int
    first_offset: int
    records: int


def rows_of(file: Path) -> Iterator[FileRows]:
    """Yield the first offset and the number of rows of each partition in each row group.

    These values are read from the statistics in the footer or, without statistics, computed from the columns.
    """
    topic, date = (unquote(one).partition("=")[2] for one in file_key(str(file))[:2])
    found = pq.ParquetFile(file)
    names = found.schema_arrow.names
    for number in range(found.num_row_groups):
        group = found.metadata.row_group(number)
        spans = {
            column.path_in_schema: column.statistics
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema in {"partition", "offset"} and column.path_in_schema in names
        }
        known = [one.has_min_max for one in spans.values() if one is not None]
        if known == [True, True] and spans["partition"].min == spans["partition"].max:
            yield FileRows(topic, date, spans["partition"].min, spans["offset"].min, group.num_rows)
            continue
        rows = found.read_row_group(number, columns=["partition", "offset"]).group_by("partition")
        for row in rows.aggregate([("offset", "min"), ("offset", "count")]).to_pylist():
            yield FileRows(topic, date, row["partition"], row["offset_min"], row["offset_count"])


def _row_groups(files: Sequence[Path]) -> Iterator[Any]:
    """Yield the row groups of all files, sorted by the partition and offset of their first row."""
    found = []
    for file in files:
        opened = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        found += [(opened, number) for number in range(opened.num_row_groups)]

    def partition(group: tuple[Any, int]) -> tuple[int, int]:
        first = group[0].read_row_group(group[1], columns=["partition", "offset"]).slice(0, 1)
        return first["partition"][0].as_py(), first["offset"][0].as_py()

    for opened, number in sorted(found, key=partition):
        yield opened.read_row_group(number)


def _by_day(batch: Any) -> Iterator[tuple[int, Any]]:
    """Split a batch by the day (UTC) of its timestamps; the rows of a day keep their order."""
    days = np.floor_divide(pc.cast(batch["timestamp"], pa.int64()).to_numpy(), _DAY_US)
    if len(days) and (np.diff(days) < 0).any():
        order = np.argsort(days, kind="stable")
        batch, days = batch.take(pa.array(order)), days[order]
    cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in itertools.pairwise(cuts):
        if start < end:
            yield int(days[start]), batch.slice(start, end - start)


def _date(day: int) -> str:
    """Return a date as Spark writes it; `day` counts from 1970-01-01."""
    try:
        return dt.date.fromordinal(day + dt.date(1970, 1, 1).toordinal()).isoformat()
    except (ValueError, OverflowError):
        text = str(np.datetime64(day, "D"))
        return text if text.startswith("-") else f"+{text}"
