"""meta.properties: the cluster and the node to which a data directory belongs.

    #
    #Sat Nov 21 04:03:27 UTC 2026
    node.id=1
    directory.id=MMIwBAUIVlUP3MeynQaJLA
    version=1
    cluster.id=_uqHDrtZRiWyQpGqbURDug

Version 0, from the time of ZooKeeper, has broker.id instead of node.id, and all its lines are optional
(kafka-storage.md#meta-properties). A directory with replicas has `topicfs.set`, the ID of its set of directories,
which a broker ignores. If such a directory has no file `topicfs.replicas`, that file was lost.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.config.properties import PropertiesError, format_properties, parse_properties
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Timestamp

VERSION = 1


class MetaProperties(NamedTuple):
    """The file's content; a field that a version 0 file lacks is None."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    version: int = VERSION
    set_id: str | None = None
    """ID of the set of replica directories to which the directory belongs."""


def encode_meta_properties(meta: MetaProperties, *, written_at: Timestamp) -> bytes:
    values = {
        "node.id": None if meta.node_id is None else str(meta.node_id),
        "directory.id": meta.directory_id,
        "version": str(VERSION),
        "cluster.id": meta.cluster_id,
        "topicfs.set": meta.set_id,
    }
    present = {name: value for name, value in values.items() if value is not None}
    return format_properties(present, comment="", written_at=written_at)


def decode_meta_properties(data: bytes, *, file: Path) -> MetaProperties:
    """Parse the file's bytes. Raises CorruptionError."""
    try:
        values = parse_properties(data)
    except PropertiesError as error:
        raise CorruptionError(file, 0, str(error)) from None
    version = _number(values, "version", file)
    if version not in (0, VERSION):
        raise CorruptionError(file, 0, f"version {version}, expected 0 or {VERSION}")
    if version == VERSION:
        missing = [name for name in ("cluster.id", "node.id") if name not in values]
        if missing:
            raise CorruptionError(file, 0, f"{' and '.join(missing)} missing")
    return MetaProperties(
        cluster_id=values.get("cluster.id"),
        node_id=_number(values, "broker.id" if version == 0 else "node.id", file),
        directory_id=values.get("directory.id"),
        version=version,
        set_id=values.get("topicfs.set"),
    )


def read_meta_properties(files: FileSystem, directory: Path) -> MetaProperties | None:
    """Read a data directory's meta.properties; None if it is missing. Raises CorruptionError, OSError."""
    path = directory / names.META_PROPERTIES
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    return decode_meta_properties(data, file=path)


def write_meta_properties(
    files: FileSystem, directory: Path, meta: MetaProperties, *, written_at: Timestamp
) -> None:
    """Replace a data directory's meta.properties atomically. Blocks. Raises OSError."""
    write_atomically(
        files, directory / names.META_PROPERTIES, encode_meta_properties(meta, written_at=written_at)
    )


def has_replicas(files: FileSystem, directory: Path) -> bool:
    """Return whether a directory belongs to a set of replicas, even without `topicfs.replicas`. Raises OSError."""
    with suppress(CorruptionError):
        meta = read_meta_properties(files, directory)
        if meta is not None and meta.set_id:
            return True
    return files.exists(directory / names.REPLICAS)


def _number(values: dict[str, str], name: str, file: Path) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CorruptionError(file, 0, f"{name}={text[:30]} is not a number") from None
