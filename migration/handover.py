"""The handover: moves topics of a data directory to a broker.

A broker renames a directory whose topic is unknown to its cluster to `…-stray`, and only the cluster assigns topic
ids. Therefore there are three phases, each of which can be repeated:

    prepare    broker running     it creates the topics with their settings; we note their ids; groups get the
                                      positions that they have here
    place      broker stopped     our files replace its empty partitions (kafka-storage.md#moving-partitions)
    verify     broker running     it serves from our log start to our log end, and groups have their positions

The first and the last phase also set the positions of share groups.

The handover writes a journal into the data directory, and recovers logs that were not closed cleanly. It changes
nothing else there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from topicfs.cluster.brokers.share_groups import ShareGroupAdmin
from topicfs.coordination.shares.state.store import TOPIC as STATES_TOPIC
from topicfs.coordination.transactions.transaction import Status
from topicfs.migration.cluster import KafkaCluster, TopicDescription
from topicfs.migration.handover_positions import PositionCommitter
from topicfs.migration.journal import HandoverJournal, JournalTopic, read_journal, write_journal
from topicfs.migration.partition_copy import PartitionCopy, copy_partition, first_base_offset, is_in_place
from topicfs.migration.positions import TOPIC as POSITIONS_TOPIC
from topicfs.migration.positions import belongs, directories_of, read_positions
from topicfs.migration.share_groups import put_share_groups, read_share_groups
from topicfs.migration.transactions import TOPIC as TRANSACTIONS_TOPIC
from topicfs.migration.transactions import read_transactions
from topicfs.replication.replicas.directories.engine import ReplicaLogManager
from topicfs.storage.checkpoints.clean_shutdown import is_marked_clean
from topicfs.storage.checkpoints.identifiers import decode_id
from topicfs.storage.checkpoints.leader_epochs import decode_epochs
from topicfs.storage.checkpoints.meta_properties import has_replicas, read_meta_properties
from topicfs.storage.checkpoints.offset_checkpoint import read_lines
from topicfs.storage.checkpoints.partition_metadata import read_topic_id
from topicfs.storage.directories.contents import find_partitions
from topicfs.storage.disk import names
from topicfs.storage.disk.filesystem import FileSystem
from topicfs.storage.disk.lock import DirectoryLock
from topicfs.storage.disk.native import NativeFileSystem
from topicfs.storage.engine import Topic
from topicfs.storage.errors import ClusterError, StorageError
from topicfs.storage.manager import LogManager, Machine, open_logs
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Isolation, Offset, PartitionOffsets, TopicPartition


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """A topic of the data directory, whose logs are closed."""

    name: str
    topic_id: str
    settings: Mapping[str, str]
    offsets: Mapping[int, PartitionOffsets]

    def open_transactions(self) -> list[TopicPartition]:
        return [
            TopicPartition(self.name, number)
            for number, offsets in self.offsets.items()
            if offsets.last_stable_offset < offsets.high_watermark
        ]


class Handover:
    def __init__(
        self,
        data: Sequence[Path],
        log_dirs: Sequence[Path],
        *,
        report: ReportLine,
        files: FileSystem | None = None,
        with_open_transactions: bool = False,
        share_groups: ShareGroupAdmin | None = None,
    ) -> None:
        """Set up the handover; `report` gets a line for each step. Raises CorruptionError, StorageError, OSError."""
        self._files = files or NativeFileSystem()
        self._data = [directory.absolute() for directory in data]
        self._log_dirs = [directory.absolute() for directory in log_dirs]
        self._report = report
        self._with_open_transactions = with_open_transactions
        self._share_groups = share_groups
        self._cluster_id, self._node_id = _read_node(self._files, self._log_dirs)
        self._journal_dir = self._find_journal()
        self._journal = read_journal(self._files, self._journal_dir)

    @property
    def prepared(self) -> bool:
        """True if the cluster has every topic that the data directory has now."""
        if self._journal is None:
            return False
        own = self._own_topics()
        return all(self._is_noted(topic) for topic in own)

    @property
    def placed(self) -> bool:
        return self._journal is not None and bool(self._journal.topics) and not self._journal.waiting()

    # While the broker runs.

    def prepare(self, cluster: KafkaCluster) -> None:
        """Let the cluster create the topics. Raises ClusterError, OSError; StorageError if one has records already."""
        cluster_id = cluster.cluster_id()
        if cluster_id != self._cluster_id:
            raise ClusterError(
                f"{self._log_dirs[0]} belongs to cluster {self._cluster_id}, but the cluster that answers is "
                f"{cluster_id}; give the address of a broker of the same cluster"
            )
        own = self._own_topics()
        self._check_transactions(own)
        journal = self._journal or HandoverJournal(cluster_id)
        if journal.cluster_id != cluster_id:
            raise StorageError(
                f"{self._journal_dir / names.HANDOVER}: a handover to cluster {journal.cluster_id} was begun; "
                f"remove that file to begin one to {cluster_id}"
            )
        for topic in own:  # Check all before anything is created or changed.
            self._find_topic(cluster, topic, journal.topics.get(topic.name))
        for topic in own:
            found = self._prepare_topic(cluster, topic, journal.topics.get(topic.name))
            journal = self._note(
                journal.with_topic(topic.name, JournalTopic(found.topic_id, found.partitions))
            )
        self._commit_positions(cluster, journal, own)

    def _find_topic(
        self, cluster: KafkaCluster, topic: OwnTopic, noted: JournalTopic | None
    ) -> TopicDescription | None:
        """Return the cluster's topic of that name, or None. Raises StorageError if it differs or has records."""
        found = cluster.find_topic(topic.name)
        if found is None:
            return None
        _check_fits(topic.name, found, max(topic.offsets) + 1, self._node_id)
        is_ours = noted is not None and noted.topic_id == found.topic_id
        if not is_ours and any(one.stop for one in cluster.offsets(topic.name, found.partitions).values()):
            raise StorageError(
                f"{topic.name}: the cluster has a topic of that name with records of its own; nothing is "
                f"overwritten, so delete it there first"
            )
        return found

    def _prepare_topic(
        self, cluster: KafkaCluster, topic: OwnTopic, noted: JournalTopic | None
    ) -> TopicDescription:
        partitions = max(topic.offsets) + 1
        found = self._find_topic(cluster, topic, noted)
        if found is None:
            found = cluster.create_topic(
                topic.name, partitions=partitions, settings=topic.settings, node_id=self._node_id
            )
            self._report(
                f"{topic.name}: created in the cluster, {_count(partitions)}, topic id {found.topic_id}"
            )
            return found
        if noted is not None and noted.topic_id == found.topic_id:
            self._report(f"{topic.name}: known to the cluster, topic id {found.topic_id}")
            return found
        cluster.change_settings(topic.name, topic.settings)
        self._report(
            f"{topic.name}: exists in the cluster and is empty, so it is used, topic id {found.topic_id}"
        )
        return found

    def verify(self, cluster: KafkaCluster) -> None:
        """Check that the cluster serves all records. Raises ClusterError, and StorageError for the first difference."""
        journal = self._journal
        assert journal is not None, "asked for by `placed`"
        topics = [topic for topic in self._own_topics() if self._is_noted(topic)]
        for topic in topics:
            served = cluster.offsets(topic.name, journal.topics[topic.name].partitions)
            for number, offsets in topic.offsets.items():
                _check_served(TopicPartition(topic.name, number), offsets, served[number])
            total = sum(len(offsets) for offsets in served.values())
            self._report(f"{topic.name}: served, offsets as here ({total} in {_count(len(served))})")
        self._commit_positions(cluster, journal, topics)

    def _commit_positions(
        self, cluster: KafkaCluster, journal: HandoverJournal, topics: Iterable[OwnTopic]
    ) -> None:
        by_name = {topic.name: topic for topic in topics}
        directories = directories_of(find_partitions(self._files, self._data), POSITIONS_TOPIC)
        positions = [
            position
            for position in read_positions(self._files, directories).values()
            if position.topic in by_name
            and position.partition in by_name[position.topic].offsets
            and belongs(position, by_name[position.topic].topic_id)
        ]
        PositionCommitter(cluster=cluster, report=self._report, note=self._note).commit(journal, positions)
        self._put_share_groups(journal, by_name)

    def _put_share_groups(self, journal: HandoverJournal, topics: Mapping[str, OwnTopic]) -> None:
        states = directories_of(find_partitions(self._files, self._data), STATES_TOPIC)
        if self._share_groups is None or not states:
            return
        found = read_share_groups(self._files, (), states)
        own = {decode_id(topic.topic_id): name for name, topic in topics.items()}
        ids = {name: topic.topic_id for name, topic in journal.topics.items()}
        for line in put_share_groups(self._share_groups, found, own, ids):
            self._report(line)

    # While the broker is stopped.

    def place(self) -> None:
        """Put each waiting partition in place (blocking). Raises DirectoryLockedError, StorageError, OSError."""
        journal = self._journal
        assert journal is not None, "asked for by `prepared`"
        topics = {topic.name: topic for topic in self._own_topics()}
        with self._locked():
            for directory in self._data:
                if not is_marked_clean(self._files, directory):
                    raise StorageError(f"{directory}: is being written to; run this again")
            self._check_transactions(topics.values())
            data_dirs = find_partitions(self._files, self._data)
            copies = [self._copy_of(journal, topics, data_dirs, one) for one in journal.waiting()]
            for copy in copies:  # Check all before anything is written.
                is_in_place(self._files, copy)
            for copy in copies:
                offsets = topics[copy.partition.topic].offsets[copy.partition.partition]
                journal = self._place_partition(journal, copy, offsets)
            if not all(is_marked_clean(self._files, directory) for directory in self._log_dirs):
                self._report(
                    "the broker was not stopped cleanly: its next start checks the files, and takes longer"
                )

    def _place_partition(
        self, journal: HandoverJournal, copy: PartitionCopy, offsets: PartitionOffsets
    ) -> HandoverJournal:
        partition, log_dir = copy.partition, copy.target.parent
        if journal.places.get(str(partition)) != log_dir:
            journal = self._note(journal.with_place(partition, log_dir))
        copied = copy_partition(self._files, copy)
        records = f"offsets {offsets.log_start_offset} to {offsets.log_end_offset}"
        self._report(f"{partition}: {'put into' if copied else 'already in'} {copy.target}, {records}")
        return self._note(journal.with_placed(partition))

    def _find_place(self, journal: HandoverJournal, partition: TopicPartition) -> Path:
        name = names.partition_directory(partition)
        found = [directory for directory in self._log_dirs if self._files.exists(directory / name)]
        if found:
            return found[0]
        noted = journal.places.get(str(partition))
        if noted in self._log_dirs:
            # An earlier run was interrupted between two renames. The log that is missing now was the broker's
            # empty log.
            assert noted is not None, "None is no log directory"
            return noted
        raise StorageError(
            f"{partition}: in none of {', '.join(map(str, self._log_dirs))}; name every directory of the broker's "
            f"log.dirs, each with --log-dir"
        )

    def _copy_of(
        self,
        journal: HandoverJournal,
        topics: Mapping[str, OwnTopic],
        data_dirs: Mapping[TopicPartition, Path],
        partition: TopicPartition,
    ) -> PartitionCopy:
        """Return the copy to make for a partition.

        Raises StorageError if the data directory or the broker lacks the partition, or if the broker's partition
        belongs to another topic.
        """
        topic = topics.get(partition.topic)
        if topic is None or partition.partition not in topic.offsets:
            raise StorageError(
                f"{partition}: listed in {self._journal_dir / names.HANDOVER}, but no longer here"
            )
        data_dir, log_dir = data_dirs[partition], self._find_place(journal, partition)
        target = log_dir / names.partition_directory(partition)
        topic_id = journal.topics[partition.topic].topic_id
        found = read_topic_id(self._files, target) if self._files.exists(target) else topic_id
        if found != topic_id:
            raise StorageError(
                f"{target}: has topic id {found}, but the cluster reported {topic_id}; start the broker and run this again"
            )
        return PartitionCopy(
            partition=partition,
            source=data_dir / names.partition_directory(partition),
            target=target,
            topic_id=topic_id,
            highest_epoch=self._epoch_of(target),
            lines=self._lines(partition, data_dir, topic.offsets[partition.partition]),
        )

    def _epoch_of(self, target: Path) -> int:
        """Return the last epoch in the broker's file of leader epochs for the partition; 0 if the file has none."""
        path = target / names.LEADER_EPOCHS
        entries = decode_epochs(self._files.read_bytes(path), file=path) if self._files.exists(path) else ()
        return entries[-1].epoch if entries else 0

    def _lines(
        self, partition: TopicPartition, data_dir: Path, offsets: PartitionOffsets
    ) -> dict[str, Offset | None]:
        """Return the partition's lines for the broker's checkpoint files.

        They say that the whole log is on disk and committed.
        """
        source = data_dir / names.partition_directory(partition)
        inside = offsets.log_start_offset > first_base_offset(self._files, source)
        return {
            **read_lines(self._files, data_dir, partition),
            names.RECOVERY_POINTS: offsets.log_end_offset,
            names.HIGH_WATERMARKS: offsets.log_end_offset,
            names.LOG_START_OFFSETS: offsets.log_start_offset if inside else None,
        }

    # The data directories.

    def _own_topics(self) -> list[OwnTopic]:
        """Open the data directory, with recovery if necessary, close it cleanly, and return its topics."""
        if all(names.is_internal(one.topic) for one in find_partitions(self._files, self._data)):
            raise StorageError(f"{', '.join(map(str, self._data))}: no topics to hand over")
        alone = len(self._data) == 1 and has_replicas(self._files, self._data[0])
        machine, kind = Machine(files=self._files), ReplicaLogManager if alone else LogManager
        with closing(open_logs(kind, self._data, machine=machine)) as engine:
            return [_closed_topic(topic) for topic in engine.topics().values() if not topic.internal]

    def _find_journal(self) -> Path:
        """Return the directory with the journal; the first directory for a new handover."""
        with_journal = (one for one in self._data if self._files.exists(one / names.HANDOVER))
        return next(with_journal, self._data[0])

    def _check_transactions(self, topics: Iterable[OwnTopic]) -> None:
        """Raise StorageError for open transactions unless they are allowed: the cluster would never end them.

        A transaction that is committed, but lacks markers, is never allowed. The markers decide which records and
        positions count, and the cluster would abort the transaction in some places after it was committed in others.
        """
        states = directories_of(find_partitions(self._files, self._data), TRANSACTIONS_TOPIC)
        for name, one in read_transactions(self._files, states).items():
            if one.status is Status.PREPARE_COMMIT:
                raise StorageError(
                    f"transactional id {name}: its transaction is committed, but partitions lack the marker; start and "
                    f"stop `topicfs serve`, which writes the markers, then run this again"
                )
        for partition in (each for topic in topics for each in topic.open_transactions()):
            if not self._with_open_transactions:
                raise StorageError(
                    f"{partition}: has an open transaction, which nobody would end in another cluster: its "
                    f"readers of committed records would wait; hand it over nevertheless by --with-open-transactions"
                )
            self._report(
                f"{partition}: has an open transaction; end it afterwards by "
                f"kafka-transactions abort --topic {partition.topic} --partition {partition.partition}"
            )

    def _is_noted(self, topic: OwnTopic) -> bool:
        noted = self._journal.topics.get(topic.name) if self._journal else None
        return noted is not None and noted.partitions == max(topic.offsets) + 1

    def _note(self, journal: HandoverJournal) -> HandoverJournal:
        write_journal(self._files, self._journal_dir, journal)
        self._journal = journal
        return journal

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            if isinstance(self._files, NativeFileSystem):
                for directory in (*self._data, *self._log_dirs):
                    stack.callback(DirectoryLock(directory).release)
            yield


def _read_node(files: FileSystem, log_dirs: Sequence[Path]) -> tuple[str, int]:
    """Return the ids of cluster and node. Raises StorageError unless all log directories belong to one broker."""
    found = set()
    for directory in log_dirs:
        meta = read_meta_properties(files, directory)
        if meta is None or meta.cluster_id is None or meta.node_id is None:
            raise StorageError(
                f"{directory}: no {names.META_PROPERTIES} of a broker; name a formatted directory of its log.dirs"
            )
        found.add((meta.cluster_id, meta.node_id))
    if len(found) != 1:
        raise StorageError(f"{', '.join(map(str, log_dirs))}: not log directories of one and the same broker")
    return found.pop()


def _closed_topic(topic: Topic) -> OwnTopic:
    """Return a topic's offsets and settings. Raises StorageError if a partition is offline or missing."""
    offsets = {}
    for number, partition in topic.partitions().items():
        status = partition.status()
        if status.offline is not None:
            raise StorageError(f"{topic.name}-{number}: {status.state}; repair it before it is handed over")
        offsets[number] = partition.offsets()
    if set(offsets) != set(range(len(offsets))):
        raise StorageError(f"{topic.name}: has the partitions {sorted(offsets)}; some below them are missing")
    return OwnTopic(topic.name, topic.topic_id, dict(topic.overrides), offsets)


def _check_fits(name: str, found: TopicDescription, partitions: int, node_id: int) -> None:
    if found.partitions != partitions:
        raise StorageError(f"{name}: {_count(found.partitions)} in the cluster, {_count(partitions)} here")
    if found.node_ids != {node_id}:
        raise StorageError(
            f"{name}: its replicas are on the brokers {sorted(found.node_ids)}, the log directory belongs to broker {node_id}"
        )


def _check_served(partition: TopicPartition, offsets: PartitionOffsets, served: range) -> None:
    own = range(offsets.log_start_offset, offsets.visible_end(Isolation.READ_UNCOMMITTED))
    if served.start != own.start or served.stop < own.stop:
        raise StorageError(
            f"{partition}: the broker serves offsets {served.start} to {served.stop}, here they are "
            f"{own.start} to {own.stop}"
        )


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"
