"""The topic `_schemas`, in which a registry stores all of its state.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":"orders-value","version":1,"id":7,"schemaType":"PROTOBUF","references":[…],"schema":"…","deleted":false}

The keytypes CONFIG, MODE, NOOP and CLEAR_SUBJECT have no schemas. The value {"subject":…,"version":…} of a
DELETE_SUBJECT deletes all versions up to the given one. A deleted schema can still be found by its id, as in the
registry, until its record is compacted away. Memory holds only the offsets of records; a schema is read from the log
when it is needed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from topicfs.schemas.schema import (
    MAX_SCHEMA_BYTES,
    PayloadSchema,
    SchemaError,
    SchemaId,
    SchemaReference,
    context_of,
    is_number,
    of_contexts,
    schema_of,
)
from topicfs.storage.codec.batch import read_header
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.engine import LogEngine, Partition
from topicfs.storage.errors import CorruptBatchError, StorageError, UnknownTopicError
from topicfs.storage.model import Isolation, Offset, Record


@dataclass(slots=True)
class KeptSchemas:
    """Schemas in memory, by ids and versions. See `SchemaSource`."""

    by_ids: dict[SchemaId, dict[str, PayloadSchema]] = field(default_factory=dict)
    """Schemas by id, and then by context."""
    by_versions: dict[tuple[str, int], PayloadSchema] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)

    def add(
        self, version: tuple[str, int], schema: PayloadSchema, guid: UUID | None, *, deleted: bool
    ) -> None:
        """Add a version of a subject, which can then also be found by its ids."""
        self.by_versions[version] = schema
        for schema_id in (schema.number, guid):
            if schema_id is not None:
                context = context_of(version[0]) if isinstance(schema_id, int) else ""
                self.by_ids.setdefault(schema_id, {})[context] = schema
        if deleted:
            self.deleted.add(version)

    def stamp(self) -> Hashable:
        """See `SchemaSource`: the schemas do not change."""
        return None

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        def has(name: str) -> bool:
            return any(one.number == schema_id for place, one in self.by_versions.items() if place[0] == name)

        return of_contexts(self.by_ids.get(schema_id, {}), subject, has)

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        return self.by_versions.get((reference.subject, reference.version))

    def newest(self, subject: str) -> PayloadSchema | None:
        versions = [place for place in self.by_versions if place[0] == subject and place not in self.deleted]
        return self.by_versions[max(versions)] if versions else None


SCHEMAS_TOPIC = "_schemas"
"""Default name of the topic, as in the registry's setting kafkastore.topic."""
SCHEMA_READ_BYTES = 2**20
MAX_KEY_BYTES = 4096
MAX_VERSIONS = 500_000

_LOGGER = logging.getLogger("topicfs")


class _Version(NamedTuple):
    """Where a version of a subject is stored."""

    offset: Offset
    schema_id: SchemaId
    deleted: bool = False


class SchemasTopic:
    """The schemas of the topic `_schemas` of an engine. See `SchemaSource`."""

    def __init__(self, engine: LogEngine, topic: str = SCHEMAS_TOPIC) -> None:
        self._engine = engine
        self._topic = topic
        self._lock = threading.Lock()
        self._partition: Partition | None = None
        self._begun_at: Hashable = None
        """State of the partition when it was last read from its start."""
        self._begin()

    def _begin(self) -> None:
        self._next = Offset(0)
        self._rewrites = 0 if self._partition is None else self._partition.rewrites
        self._numbers: dict[int, dict[str, Offset]] = {}
        """Offsets of schemas by id and context."""
        self._guids: dict[UUID, Offset] = {}
        self._subjects: dict[str, dict[int, _Version]] = {}
        self._versions = 0

    def stamp(self) -> Hashable:
        try:
            partition = self._engine.partition(self._topic, 0)
        except UnknownTopicError:
            return None
        return id(partition), partition.visible_end(Isolation.READ_COMMITTED), partition.rewrites

    def by_id(self, schema_id: SchemaId, subject: str = "") -> PayloadSchema | None:
        def has(name: str) -> bool:
            return any(one.schema_id == schema_id for one in self._subjects.get(name, {}).values())

        def find() -> _Version | None:
            if isinstance(schema_id, int):
                offset = of_contexts(self._numbers.get(schema_id, {}), subject, has)
            else:
                offset = self._guids.get(schema_id)
            return None if offset is None else _Version(offset, schema_id)

        return self._schema(find)

    def referenced(self, reference: SchemaReference) -> PayloadSchema | None:
        return self._schema(lambda: self._subjects.get(reference.subject, {}).get(reference.version))

    def newest(self, subject: str) -> PayloadSchema | None:
        def last() -> _Version | None:
            versions = self._subjects.get(subject, {})
            return next((one for _, one in sorted(versions.items(), reverse=True) if not one.deleted), None)

        return self._schema(last)

    def kept(self) -> KeptSchemas:
        """Read all current schemas, and skip invalid schemas (blocking)."""
        kept = KeptSchemas()
        with self._lock:
            partition, values = self._found(), dict[int, bytes | None]()
            self._begin()
            for record in () if partition is None else self._records(partition):
                self._take(record)
                values[record.offset] = record.value
            for subject, versions in self._subjects.items():
                for number, version in versions.items():
                    fields = _object(values[version.offset], 4 * MAX_SCHEMA_BYTES) or {}
                    with contextlib.suppress(SchemaError):
                        kept.add((subject, number), schema_of(fields), _guid(fields), deleted=version.deleted)
        return kept

    def _schema(self, find: Callable[[], _Version | None]) -> PayloadSchema | None:
        """Return the schema of the version that `find` returns; None if `find` returns None.

        If compaction has moved the version's record, read the whole topic again, and call `find` once more.
        """
        with self._lock:
            for again in (False, True):
                self._catch_up(again=again)
                version = find()
                if version is None:
                    return None
                fields = self._value_at(version.offset)
                if fields is not None and version.schema_id in (fields.get("id"), _guid(fields)):
                    return schema_of(fields)
        return None

    def _found(self) -> Partition | None:
        try:
            partition = self._engine.partition(self._topic, 0)
        except UnknownTopicError:
            return None
        if self._partition is not partition:
            self._partition = partition
            partition.listen(lambda: None)  # Makes a remote engine follow the partition's end.
            self._next = Offset(-1)
        return partition

    def _catch_up(self, *, again: bool) -> None:
        """Read new records. With `again`, or if compaction has rewritten the log, read all records."""
        partition = self._found()
        if partition is None:
            self._begin()
            return
        place = id(partition), partition.visible_end(Isolation.READ_COMMITTED), partition.rewrites
        if again and place == self._begun_at:
            return  # The whole log has already been read.
        if again or self._next < 0 or partition.rewrites != self._rewrites:
            self._begin()
            self._begun_at = place
        for record in self._records(partition):
            self._take(record)

    def _records(self, partition: Partition) -> Iterator[Record]:
        """Yield the records not read yet; skip a damaged batch, and stop at a record that is not available."""
        while self._next < partition.visible_end(Isolation.READ_COMMITTED):
            offset = max(self._next, partition.log_start_offset)
            fetched = partition.read(offset, max_bytes=SCHEMA_READ_BYTES)
            if not fetched.data:
                return
            try:
                for columns in decode_each(fetched.data, aborted=fetched.aborted):
                    yield from (columns.record(index) for index in range(columns.find(offset), len(columns)))
                    offset = columns.batches[-1].end_offset
                self._next = fetched.next_offset
            except CorruptBatchError as error:
                _LOGGER.warning("%s: skipped a damaged batch at offset %d: %s", self._topic, offset, error)
                self._next = read_header(partition.read(offset, max_bytes=1).data).end_offset

    def _take(self, record: Record) -> None:
        key = _object(record.key, MAX_KEY_BYTES)
        if key is None:
            return
        if key.get("keytype") == "SCHEMA":
            self._take_version(key, record)
        elif key.get("keytype") == "DELETE_SUBJECT":
            value = _object(record.value, MAX_KEY_BYTES) or {}
            versions = self._subjects.get(str(value.get("subject")), {})
            last = value.get("version")
            for number, version in versions.items():
                if type(last) is int and number <= last:
                    versions[number] = version._replace(deleted=True)

    def _take_version(self, key: dict[str, Any], record: Record) -> None:
        subject, number = key.get("subject"), key.get("version")
        if not isinstance(subject, str) or type(number) is not int:
            return
        versions = self._subjects.setdefault(subject, {})
        value = _object(record.value, 4 * MAX_SCHEMA_BYTES)
        offset = Offset(record.offset)
        if value is None:
            if record.value is None:
                self._versions -= versions.pop(number, None) is not None
            return
        schema_id = value.get("id")
        if not is_number(schema_id) or self._versions >= MAX_VERSIONS:
            return
        self._versions += number not in versions
        versions[number] = _Version(offset, schema_id, value.get("deleted") is True)
        self._numbers.setdefault(schema_id, {})[context_of(subject)] = offset
        guid = _guid(value)
        if guid is not None:
            self._guids[guid] = offset

    def _value_at(self, offset: Offset) -> dict[str, Any] | None:
        """Read the value of a record again; None if it is gone or cannot be read."""
        assert self._partition is not None
        try:
            fetched = self._partition.read(offset, max_bytes=1)
            for columns in decode_each(fetched.data, aborted=fetched.aborted):
                index = columns.find(offset)
                if index < len(columns) and columns.offsets[index] == offset:
                    return _object(columns.value(index), 4 * MAX_SCHEMA_BYTES)
        except StorageError:
            pass
        return None


def _guid(fields: dict[str, Any]) -> UUID | None:
    try:
        return UUID(str(fields["guid"])) if fields.get("guid") else None
    except ValueError:
        return None


def _object(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Parse a JSON object; None if `data` is not an object or has more than `most` bytes."""
    if data is None or len(data) > most:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
