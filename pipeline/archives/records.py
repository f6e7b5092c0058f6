"""The records of an archive by their offsets: what a scrub makes damaged batches of again (`storage.scrub.archive`).

The statistics of Parquet's row groups say which of them may have an offset; few are read, and the last ones are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from topicfs.pipeline.archives.files import archived_files
from topicfs.pipeline.errors import ParquetMissingError, PipelineError
from topicfs.storage.model import Header, Offset, Record, Timestamp, TopicPartition
from topicfs.storage.scrub.archive import ArchivedRecord

Arrow: TypeAlias = Any
"""pyarrow comes without types."""

COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
_KEPT_GROUPS = 2


class ArchivedRecords:
    """Implements storage.scrub.archive.RecordArchive; for one thread."""

    def __init__(self, archive: Path) -> None:
        """Look up its files. Raises NoArchiveError, PipelineError, ParquetMissingError, OSError."""
        self._parquet = _parquet()
        self._archive = archive
        self._files: dict[str, list[Path]] = {}
        for file in archived_files(archive):
            topic = unquote(file.parent.parent.name.removeprefix("topic="))
            self._files.setdefault(topic, []).append(file)
        self._groups: dict[str, list[_Group]] = {}
        self._rows_of = lru_cache(maxsize=_KEPT_GROUPS)(self._read)

    @property
    def name(self) -> str:
        return str(self._archive)

    def records(
        self, partition: TopicPartition, start_offset: int, end_offset: int, /
    ) -> Sequence[ArchivedRecord]:
        """Return what it has of a range, ascending by offset.

        Raises PipelineError where it cannot be read, or has two different records of an offset.
        """
        found: dict[int, ArchivedRecord] = {}
        for group in self._groups_of(partition.topic):
            if group.may_have(partition.partition, start_offset, end_offset):
                for one in self._rows_of(group).within(partition.partition, start_offset, end_offset):
                    if found.setdefault(one.record.offset, one) != one:
                        raise PipelineError(
                            f"{self._archive}: has two different records of {partition} at offset {one.record.offset}"
                        )
        return [found[offset] for offset in sorted(found)]

    def _groups_of(self, topic: str) -> list[_Group]:
        if topic not in self._groups:
            self._groups[topic] = [
                group for file in self._files.get(topic, ()) for group in self._list_groups(file)
            ]
        return self._groups[topic]

    def _list_groups(self, file: Path) -> Iterator[_Group]:
        metadata = self._asked(file, lambda: self._parquet.read_metadata(file))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            columns = {group.column(index).path_in_schema: index for index in range(group.num_columns)}
            spans = []
            for name in ("partition", "offset"):
                if name not in columns:
                    raise PipelineError(f"{file}: no file of an archive: no column {name}")
                statistics = group.column(columns[name]).statistics
                known = statistics is not None and statistics.has_min_max
                spans.append((statistics.min, statistics.max) if known else (0, 2**63))
            yield _Group(file, number, *spans)

    def _read(self, group: _Group) -> _Rows:
        def read() -> Arrow:
            # Spark's own type of times, of twelve bytes, is read as nanoseconds otherwise, which end in the year 2262.
            file = self._parquet.ParquetFile(group.file, coerce_int96_timestamp_unit="us")
            return file.read_row_group(group.number, columns=list(COLUMNS))

        table = self._asked(group.file, read)
        missing = set(COLUMNS) - {name.partition(".")[0] for name in table.column_names}
        if missing:
            raise PipelineError(
                f"{group.file}: no file of an archive: no column {', '.join(sorted(missing))}"
            )
        return _Rows(table)

    @staticmethod
    def _asked(file: Path, ask: Any) -> Arrow:
        """Return what pyarrow answers. PipelineError where the file is damaged, OSError where it cannot be read."""
        import pyarrow as pa

        try:
            return ask()
        except pa.ArrowInvalid as error:
            raise PipelineError(f"{file}: no Parquet, or damaged: {error}") from None


class _Group(NamedTuple):
    """A row group, and what its statistics say: smallest and greatest values."""

    file: Path
    number: int
    partitions: tuple[int, int]
    offsets: tuple[int, int]

    def may_have(self, partition: int, start_offset: int, end_offset: int) -> bool:
        return (
            self.partitions[0] <= partition <= self.partitions[1]
            and self.offsets[0] < end_offset
            and start_offset <= self.offsets[1]
        )


class _Rows:
    """The rows of a group, found by partition and offset."""

    def __init__(self, table: Arrow) -> None:
        import pyarrow as pa

        times = table.column("timestamp").cast(pa.timestamp("us")).cast(pa.int64())
        self._table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)

    def within(self, partition: int, start_offset: int, end_offset: int) -> Iterator[ArchivedRecord]:
        """Yield the records of a range of offsets."""
        import pyarrow.compute as pc

        offsets = self._table.column("offset")
        wanted = pc.and_(
            pc.equal(self._table.column("partition"), partition),
            pc.and_(pc.greater_equal(offsets, start_offset), pc.less(offsets, end_offset)),
        )
        for row in self._table.filter(wanted).to_pylist():
            yield _archived(row)


def _archived(row: Mapping[str, Any]) -> ArchivedRecord:
    headers = tuple(Header(one["key"].encode(), one["value"]) for one in row["headers"] or ())
    time = Timestamp(row["timestamp"] // 1000)
    return ArchivedRecord(
        Record(Offset(row["offset"]), time, row["key"], row["value"], headers), row["timestampType"]
    )


def _parquet() -> Arrow:
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        raise ParquetMissingError from None
    return pq
