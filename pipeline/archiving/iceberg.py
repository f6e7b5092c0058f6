"""Commits of an archive that is an Iceberg table: a snapshot has the files of a round and the round's end offsets.

A table property has the same offsets, in case all snapshots with offsets expire. One commit writes the snapshot and
the property.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from topicfs.pipeline.archiving.listed import CATALOG, CHECKPOINT, file_key, missing_list_error
from topicfs.pipeline.errors import IcebergMissingError, PipelineError, needing
from topicfs.pipeline.source.query.offsets import StreamState, decode_stream_offset, encode_stream_offset

NAME = "topicfs.records"
OFFSETS = "topicfs.offsets"
NUMBER = "topicfs.commit"
_NO_RETRIES = {"commit.retry.num-retries": "0"}
"""Forbids retries. If another run has committed meanwhile, a retry would append the same records a second time."""


class IcebergCommits:
    """The commits of an Iceberg table, with the methods of `parquet.ParquetCommits`."""

    has_topic = True

    def __init__(self, archive: Path) -> None:
        """Open the table, or create it. Raises IcebergMissingError, OSError."""
        self._archive = archive
        self._catalog = _open_catalog(archive, make=True)
        self._catalog.create_namespace_if_not_exists(NAME.partition(".")[0])
        self._table = _opened(self._catalog, _address(archive))

    def close(self) -> None:
        self._catalog.close()

    def last(self) -> tuple[int, StreamState | None]:
        self._table.refresh()
        if not _NO_RETRIES.items() <= self._table.properties.items():
            with self._table.transaction() as transaction:
                transaction.set_properties(_NO_RETRIES)
        snapshot = self._table.current_snapshot()
        while snapshot is not None and OFFSETS not in snapshot.summary.additional_properties:
            # The snapshot is from another program, for example one that compacted files.
            snapshot = self._table.snapshot_by_id(snapshot.parent_snapshot_id or -1)
        found = self._table.properties if snapshot is None else snapshot.summary.additional_properties
        if OFFSETS in found:
            return int(found[NUMBER]), decode_stream_offset(json.loads(found[OFFSETS]))
        if self._table.current_snapshot() is not None:
            raise missing_list_error(self._archive, OFFSETS)
        return -1, None

    def plan(self, number: int, state: StreamState) -> StreamState:
        """Return `state` and record nothing. If two runs write the same records, only one of the runs can commit."""
        del number
        return state

    def planned(self, number: int) -> None:
        del number

    def merges(self, number: int) -> bool:
        del number
        return True

    def commit(
        self, number: int, state: StreamState, added: Collection[Path], replaced: Collection[Path]
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        if not added:
            return
        noted = {OFFSETS: json.dumps(encode_stream_offset(state)), NUMBER: str(number)}
        gone = {file_key(str(file)) for file in replaced}
        table = self._table
        listed = [one.file for one in table.scan().plan_files()] if gone else []
        # The table may list these files under another path of this directory.
        old = [one for one in listed if file_key(one.file_path) in gone]
        try:
            with table.transaction() as transaction:
                transaction.set_properties(noted)
                update = transaction.update_snapshot(snapshot_properties=noted)
                with update.overwrite() if old else update.fast_append() as snapshot:
                    for file in old:
                        snapshot.delete_data_file(file)
                    names = map(_address, added)
                    for file in parquet_files_to_data_files(table.io, table.metadata, names):
                        snapshot.append_data_file(file)
        except CommitFailedException as error:
            raise PipelineError(f"{self._archive}: another run archived meanwhile; run it again") from error


def table_files(archive: Path) -> list[str]:
    """Return the URIs of the table's files; none if a killed run left no table. Raises IcebergMissingError."""
    catalog = _open_catalog(archive)
    from pyiceberg.exceptions import NoSuchTableError

    try:
        table = catalog.load_table(NAME)
        return [one.file.file_path for one in table.scan().plan_files()]
    except NoSuchTableError:
        return []
    finally:
        catalog.close()


def _open_catalog(archive: Path, *, make: bool = False) -> Any:
    """Open an archive's catalog; with `make`, first create the archive's directory. Raises IcebergMissingError."""
    with needing(IcebergMissingError, "pyiceberg", "sqlalchemy"):
        from pyiceberg.catalog.sql import SqlCatalog
    if make:  # Create it first: even a run that is killed early then leaves an archive.
        (archive / CHECKPOINT).mkdir(parents=True, exist_ok=True)
    return SqlCatalog(
        "topicfs", uri=f"sqlite:///{archive.absolute() / CATALOG}", warehouse=_address(archive.absolute())
    )


def _opened(catalog: Any, location: str) -> Any:
    from pyiceberg import types as kinds
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import DayTransform, IdentityTransform

    field, text, octets = kinds.NestedField, kinds.StringType(), kinds.BinaryType()
    header = kinds.StructType(field(10, "key", text), field(11, "value", octets))
    schema = Schema(
        field(1, "key", octets),
        field(2, "value", octets),
        field(3, "topic", text),
        field(4, "partition", kinds.IntegerType()),
        field(5, "offset", kinds.LongType()),
        field(6, "timestamp", kinds.TimestamptzType()),
        field(7, "timestampType", kinds.IntegerType()),
        field(8, "headers", kinds.ListType(9, header, element_required=False)),
    )
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "topic"), PartitionField(6, 1001, DayTransform(), "date")
    )
    properties = {**_NO_RETRIES, "schema.name-mapping.default": schema.name_mapping.model_dump_json()}
    return catalog.create_table_if_not_exists(NAME, schema, location, spec, properties=properties)


def _address(path: Path) -> str:
    """Return a file's URI as Iceberg writes it, without escapes."""
    return f"file://{path}"
