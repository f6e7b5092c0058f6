"""The ids of topics in a directory's partitions, written again where they are lost, before the directory is opened.

The directory's own copy of what is agreed on says whose its partitions were when it served last: then a partition.metadata that
is missing or cannot be read has one id only that it can have had. One that has another id is left: it may be another topic.
"""

from __future__ import annotations

from pathlib import Path

from topicfs.replication.replicas.members.state_file import ReplicaFile
from topicfs.replication.replicas.rules.state import ReplicaId
from topicfs.storage.checkpoints.partition_metadata import topic_id_of, write_topic_id_again
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.messages import Say
from topicfs.storage.model import TopicPartition


def restore_topic_ids(files: FileSystem, path: Path, number: ReplicaId, copy: ReplicaFile, warn: Say) -> None:
    """Write them again in a data directory, given its number and its copy (OSError; blocking)."""
    there = {entry.name for entry in files.list_directory(path) if entry.is_directory}
    for topic, entry in copy.topics.items():
        for partition, state in entry.partitions.items():
            name = str(TopicPartition(topic, partition))
            if number in state.assigned and name in there and topic_id_of(path / name, files) is None:
                write_topic_id_again(files, path / name, entry.topic_id)
                warn(f"{path / name}: its partition.metadata was missing or damaged, and is written again")
