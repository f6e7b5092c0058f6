"""The identity of data directories: the meta.properties of each, and whether they belong together."""

from __future__ import annotations

from topicfs.storage.checkpoints.identifiers import new_id
from topicfs.storage.checkpoints.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from topicfs.storage.directories.directories import Directories, OpenDirectory
from topicfs.storage.errors import StorageError


def write_missing_meta_properties(directories: Directories) -> None:
    """Write the IDs of new directories, and add the directory ID that an old directory lacks.

    Raises StorageError unless all directories belong to the same cluster and node, and have different directory IDs.
    Raises CorruptionError, OSError.
    """
    found: dict[OpenDirectory, MetaProperties] = {}
    new: list[OpenDirectory] = []

    def read(directory: OpenDirectory) -> None:
        present = read_meta_properties(directory.data.files, directory.data.path)
        if present is None:
            new.append(directory)
        else:
            found[directory] = present

    directories.attempt_each(read)
    _check_together(found)
    node_id = next((meta.node_id for meta in found.values() if meta.node_id is not None), None)
    cluster_id = next((meta.cluster_id for meta in found.values() if meta.cluster_id), new_id())
    fresh = MetaProperties(
        cluster_id=cluster_id,
        node_id=directories.config.node_id if node_id is None else node_id,
        directory_id=None,
    )
    for directory in new:
        _write(directories, directory, fresh._replace(directory_id=new_id()))
    for directory, meta in found.items():
        if meta.directory_id is None and meta.cluster_id is not None and meta.node_id is not None:
            _write(directories, directory, meta._replace(directory_id=new_id(), version=1))


def _check_together(found: dict[OpenDirectory, MetaProperties]) -> None:
    first: dict[str, tuple[str, OpenDirectory]] = {}
    ids: dict[str, OpenDirectory] = {}
    for directory, meta in found.items():
        for name, value in (("cluster.id", meta.cluster_id), ("node.id", meta.node_id)):
            if value is None:
                continue
            known, other = first.setdefault(name, (str(value), directory))
            if known != str(value):
                raise StorageError(
                    f"{directory}: has {name}={value}, {other} has {known}: they do not belong to the same node"
                )
        if meta.directory_id is not None:
            other = ids.setdefault(meta.directory_id, directory)
            if other is not directory:
                raise StorageError(
                    f"{directory}: has the directory.id of {other}; one is a copy of the other, use only one"
                )


def _write(directories: Directories, directory: OpenDirectory, meta: MetaProperties) -> None:
    data = directory.data
    directories.attempt(
        directory, lambda: write_meta_properties(data.files, data.path, meta, written_at=data.clock())
    )
