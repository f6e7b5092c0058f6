"""The metadata log of a stopped cluster: its topics, their IDs and their settings.

    __cluster_metadata-0/<20 digits>.log                     batches as in any log
    __cluster_metadata-0/<20 digits>-<10 digits>.checkpoint  a snapshot of everything below that offset, as batches

A record's value begins with three unsigned varints: the version of the frame, which is 1; the record's type; and the
version of this type. The fields follow, in the flexible form of Kafka's messages. Kafka has some thirty types; three
of them are read here, and the others are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from topicfs.storage.checkpoints.identifiers import encode_id
from topicfs.storage.codec.columns import decode_each
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.names import SegmentFileKind, SegmentFileState
from topicfs.storage.errors import CorruptBatchError, CorruptionError
from topicfs.storage.model import Offset
from topicfs.storage.segment.scan import windows
from topicfs.storage.wire import NEWEST, Schema, parse_fields

DIRECTORY = f"{names.CLUSTER_METADATA_TOPIC}-0"

_FRAME_VERSION = 1
_TOPIC_RESOURCE = 2
"""ConfigRecord's resource type for a topic; 4 means a broker."""
_SNAPSHOT = re.compile(r"(?P<end>[0-9]{20})-[0-9]{10}\.checkpoint")

_LONGEST_VARINT = 5


def _schema(name: str, fields: str) -> Schema:
    return Schema(name=name, fields=parse_fields(fields), versions=range(NEWEST), flexible_since=0)


_TOPIC = _schema("TopicRecord", "name string, topicId uuid")
_REMOVE_TOPIC = _schema("RemoveTopicRecord", "topicId uuid")
_CONFIG = _schema("ConfigRecord", "resourceType int8, resourceName string, name string, value string?")
_TYPES = {2: _TOPIC, 9: _REMOVE_TOPIC, 4: _CONFIG}


@dataclass(slots=True)
class ClusterImage:
    """The state of the cluster after all records of the metadata log."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, value: bytes) -> None:
        """Apply one record. Raises CorruptBatchError if the record cannot be read."""
        frame_version, at = _unsigned(value, 0)
        number, at = _unsigned(value, at)
        version, at = _unsigned(value, at)
        schema = _TYPES.get(number)
        if frame_version != _FRAME_VERSION or schema is None:
            return
        fields = schema.read(value[at:], version)
        if schema is _TOPIC:
            self.topic_ids[fields["name"]] = encode_id(fields["topicId"])
        elif schema is _REMOVE_TOPIC:
            topic_id = encode_id(fields["topicId"])
            for name in [name for name, found in self.topic_ids.items() if found == topic_id]:
                del self.topic_ids[name]
                self.settings.pop(name, None)
        elif fields["resourceType"] == _TOPIC_RESOURCE:
            settings = self.settings.setdefault(fields["resourceName"], {})
            if fields["value"] is None:
                settings.pop(fields["name"], None)
            else:
                settings[fields["name"]] = fields["value"]


def find_cluster_metadata(files: FileSystem, directories: Iterable[Path]) -> ClusterImage | None:
    """Return the metadata log from the one directory that has it, or None. Raises CorruptionError, OSError."""
    found = (directory / DIRECTORY for directory in directories if files.exists(directory / DIRECTORY))
    directory = next(found, None)
    return None if directory is None else read_cluster_metadata(files, directory)


def read_cluster_metadata(files: FileSystem, directory: Path) -> ClusterImage:
    """Read the newest snapshot, and the log after it up to a torn end. Raises CorruptionError, OSError."""
    file_names = [entry.name for entry in files.list_directory(directory)]
    snapshots = sorted(name for name in file_names if _SNAPSHOT.fullmatch(name))
    image = ClusterImage()
    end_offset = Offset(0)
    if snapshots:
        end_offset = Offset(int(snapshots[-1].partition("-")[0]))
        _apply_file(files, directory / snapshots[-1], image, Offset(0))
    for name in sorted(file_names):
        file = names.parse_segment_file(name)
        if file is not None and file == (file.base_offset, SegmentFileKind.LOG, SegmentFileState.LIVE):
            _apply_file(files, directory / name, image, end_offset)
    return image


def _apply_file(files: FileSystem, path: Path, image: ClusterImage, start_offset: Offset) -> None:
    for value, position in _values(files, path, start_offset):
        try:
            image.apply(value)
        except CorruptBatchError as error:
            raise CorruptionError(path, position, f"a metadata record that cannot be read: {error}") from None


def _values(files: FileSystem, path: Path, start_offset: Offset) -> Iterator[tuple[bytes, int]]:
    file = files.open(path, read_only=True)
    for window in windows(file, 0, file.size()):
        if window.batches and window.batches[-1].last_offset < start_offset:
            continue
        for columns in decode_each(window.data, 0, window.batches.stop):
            for index, offset in enumerate(columns.offsets):
                value = columns.value(index)
                if offset >= start_offset and value is not None:
                    yield value, window.position
    file.close()


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at`, and the position after it."""
    value = shift = 0
    for position in range(at, min(at + _LONGEST_VARINT, len(data))):
        value |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            return value, position + 1
        shift += 7
    raise CorruptBatchError(at, "a number has no end")
