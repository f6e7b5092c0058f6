"""The journal of a handover: a text file in the data directory, from which an interrupted handover continues.

    topicfs.handover:  {"version": 1, "cluster_id": "_uqHDrtZRiWyQpGqbURDug",
                        "topics": {"orders": {"topic_id": "1EvPSKI_SvihSIy3lMKMvg", "partitions": 2}},
                        "places": {"orders-0": "/var/lib/kafka/data"}, "placed": ["orders-0"],
                        "positions": {"billing": {"orders-0": 12}}}

`topics` lists the topics with their ids in the cluster. `places` has the log directory of each partition, recorded
before that directory is changed. `placed` lists the partitions that are in place. `positions` has the positions that
the handover set: a group with another position in the cluster has continued there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from topicfs.storage.checkpoints.atomic import write_atomically
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.errors import CorruptionError
from topicfs.storage.model import Offset, TopicPartition

VERSION = 1


@dataclass(frozen=True, slots=True)
class JournalTopic:
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class HandoverJournal:
    cluster_id: str
    topics: Mapping[str, JournalTopic] = field(default_factory=dict)
    places: Mapping[str, Path] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The offsets that were set in the cluster, by group and partition."""

    def with_topic(self, name: str, topic: JournalTopic) -> HandoverJournal:
        """Add a topic. Forget which partitions of an earlier topic of that name were placed."""
        if self.topics.get(name) == topic:
            return self
        former = (
            {str(one) for one in partitions_of(name, self.topics[name])} if name in self.topics else set()
        )
        return replace(
            self,
            topics={**self.topics, name: topic},
            places={one: place for one, place in self.places.items() if one not in former},
            placed=self.placed - former,
            positions={
                group: {one: offset for one, offset in given.items() if one not in former}
                for group, given in self.positions.items()
            },
        )

    def with_place(self, partition: TopicPartition, log_dir: Path) -> HandoverJournal:
        return replace(self, places={**self.places, str(partition): log_dir})

    def with_placed(self, partition: TopicPartition) -> HandoverJournal:
        return replace(self, placed=self.placed | {str(partition)})

    def with_positions(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> HandoverJournal:
        given = {**self.positions.get(group, {}), **{str(one): offset for one, offset in offsets.items()}}
        return replace(self, positions={**self.positions, group: given})

    def waiting(self) -> list[TopicPartition]:
        return [
            partition
            for name, topic in self.topics.items()
            for partition in partitions_of(name, topic)
            if str(partition) not in self.placed
        ]


def partitions_of(name: str, topic: JournalTopic) -> list[TopicPartition]:
    return [TopicPartition(name, number) for number in range(topic.partitions)]


def encode_journal(journal: HandoverJournal) -> bytes:
    content = {
        "version": VERSION,
        "cluster_id": journal.cluster_id,
        "topics": {
            name: {"topic_id": topic.topic_id, "partitions": topic.partitions}
            for name, topic in sorted(journal.topics.items())
        },
        "places": {one: str(place) for one, place in sorted(journal.places.items())},
        "placed": sorted(journal.placed),
        "positions": {
            group: dict(sorted(given.items())) for group, given in sorted(journal.positions.items())
        },
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def decode_journal(data: bytes, *, file: Path) -> HandoverJournal:
    """Parse the file. Raises CorruptionError."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise CorruptionError(file, 0, f"version {content['version']}, expected {VERSION}")
        return HandoverJournal(
            cluster_id=content["cluster_id"],
            topics={
                name: JournalTopic(str(topic["topic_id"]), int(topic["partitions"]))
                for name, topic in content["topics"].items()
            },
            places={one: Path(place) for one, place in content["places"].items()},
            placed=frozenset(content["placed"]),
            positions={
                group: {one: int(offset) for one, offset in given.items()}
                for group, given in content.get("positions", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(file, 0, f"not a handover journal: {error!r}") from None


def read_journal(files: FileSystem, directory: Path) -> HandoverJournal | None:
    """Read a data directory's journal; None if there is none. Raises CorruptionError, OSError."""
    path = directory / names.HANDOVER
    return decode_journal(files.read_bytes(path), file=path) if files.exists(path) else None


def write_journal(files: FileSystem, directory: Path, journal: HandoverJournal) -> None:
    """Replace a data directory's journal atomically (blocking). Raises OSError."""
    write_atomically(files, directory / names.HANDOVER, encode_journal(journal))
