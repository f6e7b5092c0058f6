"""The takeover: moves a stopped broker's topics to data directories of topicfs.

The broker's log directories are only read. The copies are opened before success is reported; if the broker was not
stopped cleanly, this recovers them. Topics keep their ids. Settings come from the cluster's metadata log. Positions
of groups are written into `__consumer_offsets` of the data directories, and transactions that the broker has not ended
into `__transaction_state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from topicfs.coordination.engine import Engine
from topicfs.coordination.records.group_records import CommittedOffset
from topicfs.coordination.records.share_group_records import GroupTopics
from topicfs.coordination.shares.groups import QueueGroups
from topicfs.coordination.shares.state.store import TOPIC as STATES_TOPIC
from topicfs.coordination.transactions.transaction import Transaction
from topicfs.migration.partition_copy import PartitionCopy, copy_partition, is_in_place
from topicfs.migration.positions import TOPIC as POSITIONS_TOPIC
from topicfs.migration.positions import (
    GroupStateRecord,
    Positions,
    belongs,
    directories_of,
    group_batches,
    newer_than,
    position_batches,
    read_group_records,
    read_positions,
)
from topicfs.migration.share_groups import ShareGroupsFound, read_share_groups
from topicfs.migration.transactions import TOPIC as TRANSACTIONS_TOPIC
from topicfs.migration.transactions import committing, put_transactions, read_transactions, unfinished
from topicfs.replication import open_engine
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean, remove_mark
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.checkpoints.offset_checkpoint import read_lines
from topicfs.storage.checkpoints.partition_metadata import read_topic_id
from topicfs.storage.config.broker import KEEP_FOREVER
from topicfs.storage.directories.cluster_metadata import DIRECTORY, ClusterImage, find_cluster_metadata
from topicfs.storage.directories.contents import find_partitions
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.lock import DirectoryLock, find_holder
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.errors import DirectoryLockedError, StorageError
from topicfs.storage.manager import Machine
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import ProducerId, TopicPartition
from topicfs.storage.partitioning import least_count
from topicfs.storage.topics.registry import TopicEntry, TopicRegistry, read_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDirectories:
    log_dirs: Sequence[Path]
    """The broker's log.dirs. Partitions in directories that are not named are not taken over."""
    metadata_dir: Path | None = None
    """The directory with `__cluster_metadata-0` (metadata.log.dir); None if it is one of the log directories."""
    without_settings: bool = False
    """True: take over the topics even if their settings are unavailable."""


@dataclass(frozen=True, slots=True)
class TopicFound:
    name: str
    topic_id: str
    log_dirs: Mapping[int, Path]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupsFound:
    wanted: Positions
    new: Sequence[CommittedOffset]
    """Positions that the data directory lacks, or for which it has an earlier commit time."""
    records: Mapping[str, GroupStateRecord]
    partitions: int
    """Number of partitions of the broker's `__consumer_offsets`, derived from the partitions in the given
    directories.
    """


class Takeover:
    def __init__(
        self,
        source: BrokerDirectories,
        data: Sequence[Path],
        *,
        report: ReportLine,
        files: FileSystem | None = None,
    ) -> None:
        self._source = source
        self._log_dirs = [directory.absolute() for directory in source.log_dirs]
        self._data = [directory.absolute() for directory in data]
        self._report = report
        self._files = files or NativeFileSystem()

    def take(self, *, link: bool = False) -> None:
        """Copy topics (or hard-link them, with `link`), and positions. Blocks.

        Raises DirectoryLockedError, StorageError, OSError.
        """
        self._check_stopped()
        log_dirs = find_partitions(self._files, self._log_dirs)
        topics = self._find_topics(log_dirs)
        # Check all before anything is written.
        self._check_free(topics)
        self._check_whole()
        copies = self._plan_copies(topics, link=link)
        transactions = read_transactions(self._files, directories_of(log_dirs, TRANSACTIONS_TOPIC))
        groups = self._find_groups(log_dirs, topics, committing(transactions))
        share_groups = read_share_groups(
            self._files, directories_of(log_dirs, POSITIONS_TOPIC), directories_of(log_dirs, STATES_TOPIC)
        )
        self._make_directories()
        with ExitStack() as stack:
            if isinstance(self._files, NativeFileSystem):
                for directory in self._data:
                    stack.callback(DirectoryLock(directory).release)
            self._check_free(topics)
            # Without the clean mark, the copies are checked from their recovery points on.
            for directory in self._data:
                remove_mark(self._files, directory)
            for topic in topics:
                self._copy_topic(topic, copies)
        self._check_stopped()
        self._open(topics, groups, share_groups)
        taken = {TopicPartition(topic.name, number) for topic in topics for number in topic.log_dirs}
        self._put_transactions(unfinished(transactions, taken))

    def _make_directories(self) -> None:
        for directory in self._data:
            if not self._files.exists(directory):
                self._files.make_directory(directory, private=True)
        if len(self._data) > 1:
            # The directories must know of each other before one of them has topics.
            open_engine(self._data, machine=Machine(files=self._files)).close()

    def _check_stopped(self) -> None:
        if not isinstance(self._files, NativeFileSystem):
            return
        for directory in (*self._log_dirs, *self._data):
            holder = find_holder(directory)
            if holder is not None:
                raise DirectoryLockedError(directory, holder.pid)

    # The source.

    def _find_topics(self, log_dirs: Mapping[TopicPartition, Path]) -> list[TopicFound]:
        numbers: dict[str, dict[int, Path]] = {}
        for (name, number), log_dir in log_dirs.items():
            numbers.setdefault(name, {})[number] = log_dir
        image = self._read_image()
        found = []
        for name, by_number in numbers.items():
            if not names.is_internal(name):
                topic_id = self._topic_id(name, by_number)
                found.append(TopicFound(name, topic_id, by_number, self._settings(image, name)))
            elif name not in (POSITIONS_TOPIC, STATES_TOPIC, TRANSACTIONS_TOPIC):
                self._report(f"{name}: an internal topic, not taken over")
        if not found:
            raise StorageError(f"{', '.join(map(str, self._log_dirs))}: no topics to take over")
        return found

    def _read_image(self) -> ClusterImage | None:
        given = self._source.metadata_dir
        places = [given.absolute()] if given else self._log_dirs
        image = find_cluster_metadata(self._files, places)
        if image is not None or self._source.without_settings:
            return image
        raise StorageError(
            f"{places[0] / DIRECTORY}: missing, so the topics' settings are unknown; name the broker's "
            f"metadata.log.dir with --metadata-dir, or go on without settings by --without-settings"
        )

    def _topic_id(self, name: str, log_dirs: Mapping[int, Path]) -> str:
        ids = set()
        for number, log_dir in log_dirs.items():
            directory = log_dir / names.partition_directory(TopicPartition(name, number))
            found = read_topic_id(self._files, directory)
            if found is None:
                raise StorageError(f"{directory}: has no {names.PARTITION_METADATA}")
            ids.add(found)
        if len(ids) > 1:
            raise StorageError(f"{name}: its partitions have different topic ids: {', '.join(sorted(ids))}")
        return ids.pop()

    def _settings(self, image: ClusterImage | None, name: str) -> Mapping[str, str]:
        """Return the topic's settings. If no retention is set, the topic keeps its records without limit."""
        own = image.settings.get(name, {}) if image else {}
        return {**KEEP_FOREVER, **own}

    def _find_groups(
        self,
        log_dirs: Mapping[TopicPartition, Path],
        topics: Iterable[TopicFound],
        committing: Collection[ProducerId],
    ) -> GroupsFound:
        """Return the groups with positions in the topics that are taken over.

        If the data directory has the same or a newer position, the broker's position is left out.
        """
        numbers = [number for name, number in log_dirs if name == POSITIONS_TOPIC]
        theirs = directories_of(log_dirs, POSITIONS_TOPIC)
        found = read_positions(self._files, theirs, committing)
        by_name = {topic.name: topic for topic in topics}
        wanted = {
            place: position
            for place, position in found.items()
            if position.topic in by_name
            and position.partition in by_name[position.topic].log_dirs
            and belongs(position, by_name[position.topic].topic_id)
        }
        if len(found) > len(wanted):
            self._report(
                f"{POSITIONS_TOPIC}: {len(found) - len(wanted)} positions in topics that are not here, skipped"
            )
        if numbers and len(numbers) <= max(numbers):
            self._report(
                f"{POSITIONS_TOPIC}: partitions are missing here; the groups in them stay on other brokers"
            )
        ours = directories_of(self._our_partitions(), POSITIONS_TOPIC)
        present = read_positions(self._files, ours)
        elsewhere = {place.group for place in found} - {place.group for place in wanted}
        records = self._find_records(theirs, elsewhere | read_group_records(self._files, ours).keys())
        partitions = max(numbers, default=0) + 1
        return GroupsFound(wanted, newer_than(present, wanted), records, partitions)

    def _find_records(
        self, directories: Iterable[Path], others: Collection[str]
    ) -> Mapping[str, GroupStateRecord]:
        found = read_group_records(self._files, directories)
        for group in sorted(found.keys() - others):
            if not found[group].is_readable:
                self._report(f"group {group}: its record has an unknown version, skipped")
        return {group: one for group, one in found.items() if group not in others and one.is_readable}

    # Copying.

    def _registry(self) -> TopicRegistry:
        if len(self._data) == 1:
            return TopicRegistry.read(self._data[0], self._files)
        copies = {directory: read_copy(directory, self._files) for directory in self._data}
        together = max(copies.values(), key=lambda copy: copy.revision).directories
        return TopicRegistry(copies, self._files, all_directories=together)

    def _check_free(self, topics: list[TopicFound]) -> None:
        """Raise StorageError if a directory is named twice, or if a topic name is used by a different topic here."""
        for directory in self._data:
            if directory.resolve() in map(Path.resolve, self._log_dirs):
                raise StorageError(
                    f"{directory}: named both as the broker's directory and as a data directory; name another one"
                )
        entries = self._registry().entries
        for topic in topics:
            entry = entries.get(topic.name)
            if entry is not None and entry.topic_id != topic.topic_id:
                raise StorageError(
                    f"{topic.name}: {', '.join(map(str, self._data))} has another topic of that name; "
                    f"nothing is overwritten"
                )

    def _check_whole(self) -> None:
        """Raise StorageError if our directories lack a partition of a topic that coordinators divide by names."""
        for topic in (POSITIONS_TOPIC, STATES_TOPIC, TRANSACTIONS_TOPIC):
            numbers = [one.partition for one in self._our_partitions() if one.topic == topic]
            if least_count(numbers) != len(numbers):
                raise StorageError(
                    f"{', '.join(map(str, self._data))}: some partitions of {topic} are not here; "
                    "add the data directories that have them"
                )

    def _our_partitions(self) -> dict[TopicPartition, Path]:
        return find_partitions(self._files, filter(self._files.exists, self._data))

    def _plan_copies(self, topics: Iterable[TopicFound], *, link: bool) -> list[PartitionCopy]:
        """Return the copies to make; fill the directory with the fewest partitions. Raises StorageError, OSError."""
        ours = self._our_partitions()
        used = Counter(ours.values())
        copies = []
        for topic in topics:
            for number, log_dir in topic.log_dirs.items():
                partition = TopicPartition(topic.name, number)
                target = ours.get(partition) or min(self._data, key=lambda directory: used[directory])
                used[target] += partition not in ours
                copy = PartitionCopy(
                    partition=partition,
                    source=log_dir / names.partition_directory(partition),
                    target=target / names.partition_directory(partition),
                    topic_id=topic.topic_id,
                    link=link,
                    recovered=is_marked_clean(self._files, log_dir),
                    lines=read_lines(self._files, log_dir, partition),
                )
                if not is_in_place(self._files, copy):
                    copies.append(copy)
        return copies

    def _copy_topic(self, topic: TopicFound, copies: Iterable[PartitionCopy]) -> None:
        registry = self._registry()
        if topic.name not in registry.entries:
            registry.put({topic.name: TopicEntry(topic.topic_id, dict(topic.settings))})
        copied = sum(copy_partition(self._files, one) for one in copies if one.partition.topic == topic.name)
        settings = ", ".join(f"{name}={value}" for name, value in sorted(topic.settings.items()))
        self._report(f"{topic.name}: {_taken_over(copied, len(topic.log_dirs), 'partitions')}; {settings}")

    def _open(self, topics: list[TopicFound], groups: GroupsFound, share_groups: ShareGroupsFound) -> None:
        """Open everything, with recovery if necessary, and close it cleanly. Raises StorageError."""
        with closing(open_engine(self._data, machine=Machine(files=self._files))) as engine:
            for topic in topics:
                for number in topic.log_dirs:
                    partition = engine.partition(topic.name, number)
                    status = partition.status()
                    if status.offline is not None:
                        raise StorageError(f"{topic.name}-{number}: {status.state}")
                    offsets = partition.offsets()
                    self._report(
                        f"{topic.name}-{number}: offsets {offsets.log_start_offset} to {offsets.log_end_offset}"
                    )
            self._put_groups(engine, groups)
            for line in adopt_share_groups(engine.share_groups, share_groups, topics):
                self._report(line)

    def _put_transactions(self, transactions: Mapping[str, Transaction]) -> None:
        if transactions:
            ours = directories_of(self._our_partitions(), TRANSACTIONS_TOPIC)
            present = read_transactions(self._files, ours)
            with closing(open_engine(self._data, machine=Machine(files=self._files))) as engine:
                for line in put_transactions(engine, transactions, present):
                    self._report(line)

    def _put_groups(self, engine: Engine, groups: GroupsFound) -> None:
        if groups.new or groups.records:
            topic = engine.topics().get(POSITIONS_TOPIC) or engine.create_topic(
                POSITIONS_TOPIC, partitions=groups.partitions
            )
            partitions = topic.partitions()
            batches = chain(
                group_batches(groups.records, len(partitions)), position_batches(groups.new, len(partitions))
            )
            for number, batch in batches:
                partitions[number].append(batch, durable=True, encoded_here=True)
        new = Counter(position.group for position in groups.new)
        for group, count in sorted(Counter(place.group for place in groups.wanted).items()):
            self._report(f"group {group}: {_taken_over(new[group], count, 'positions')}")


def adopt_share_groups(
    own: QueueGroups, found: ShareGroupsFound, topics: Iterable[TopicFound]
) -> Iterator[str]:
    """Take over the share groups that read `topics`; yield a line for each group."""
    taken = {decode_id(topic.topic_id): topic.log_dirs for topic in topics}
    for name, group_topics in sorted(found.topics.items()):
        states = {
            key: state
            for key, state in found.states.items()
            if key.group == name and key.partition in taken.get(key.topic_id, ())
        }
        kept = GroupTopics(
            initialized={one: topic for one, topic in group_topics.initialized.items() if one in taken}
        )
        if states:
            count = own.adopt(name, found.epochs[name], kept, states)
            yield f"share group {name}: {_taken_over(count, len(states), 'states')}"


def _taken_over(count: int, total: int, what: str) -> str:
    present = "" if count == total else ", the others were already there"
    return f"{count} of {total} {what} taken over{present}"
