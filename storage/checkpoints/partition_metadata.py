"""partition.metadata: the ID of the topic to which a partition directory belongs.

    version: 0
    topic_id: 1EvPSKI_SvihSIy3lMKMvg            no line end after it (43 bytes in all)

Later versions are read in the same way, and unknown lines are ignored (kafka-storage.md#partition-metadata).
"""

from __future__ import annotations

import re
import reprlib
from pathlib import Path

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError

VERSION = 0


def encode_partition_metadata(topic_id: str) -> bytes:
    """Return the file's bytes. Raises ValueError if `topic_id` is not an ID."""
    decode_id(topic_id)
    return f"version: {VERSION}\ntopic_id: {topic_id}".encode()


def decode_partition_metadata(data: bytes, *, file: Path) -> str:
    """Return the topic ID. Raises CorruptionError."""
    fields = {}
    for line in data.decode(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            raise CorruptionError(file, 0, f"{reprlib.repr(line)} is not `name: value`")
        fields[name.strip()] = value.strip()
    if not re.fullmatch(r"\d{1,9}", fields.get("version", ""), re.ASCII):
        raise CorruptionError(file, 0, f"version {fields.get('version')}, expected {VERSION} or a later one")
    try:
        topic_id = fields["topic_id"]
        decode_id(topic_id)
    except KeyError:
        raise CorruptionError(file, 0, "no topic_id") from None
    except ValueError as error:
        raise CorruptionError(file, 0, str(error)) from None
    return topic_id


def read_topic_id(files: FileSystem, directory: Path) -> str | None:
    """Read the topic ID of a partition directory; None if the file is missing. Raises CorruptionError, OSError."""
    path = directory / names.PARTITION_METADATA
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode_partition_metadata(data, file=path)


def topic_id_of(directory: Path, files: FileSystem) -> str | None:
    """Read the topic ID of a partition directory; None if the file is missing or damaged. Raises OSError."""
    try:
        return read_topic_id(files, directory)
    except CorruptionError:
        return None


def write_topic_id(files: FileSystem, directory: Path, topic_id: str) -> None:
    """Write a partition's topic ID. Blocks. Raises OSError; CorruptionError if the directory has another topic ID."""
    present = read_topic_id(files, directory)
    if present == topic_id:
        return
    if present is not None:
        raise CorruptionError(
            directory / names.PARTITION_METADATA, 0, f"topic id {present}, expected {topic_id}"
        )
    write_topic_id_again(files, directory, topic_id)


def write_topic_id_again(files: FileSystem, directory: Path, topic_id: str) -> None:
    """Write a partition's topic ID, replacing any other. Blocks. Raises OSError."""
    write_atomically(files, directory / names.PARTITION_METADATA, encode_partition_metadata(topic_id))
