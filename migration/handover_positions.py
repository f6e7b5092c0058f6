"""Commits the positions of groups in the new cluster: after it has the topics, and again after it serves all records.

If a group's position in the cluster has changed since the handover, the group has continued there. Its position then
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from topicfs.coordination.membership import Position
from topicfs.coordination.records.group_records import CommittedOffset
from topicfs.migration.cluster import KafkaCluster
from topicfs.migration.journal import HandoverJournal
from topicfs.storage.errors import ClusterError
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import Offset, TopicPartition

Note = Callable[[HandoverJournal], HandoverJournal]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCommitter:
    cluster: KafkaCluster
    report: ReportLine
    note: Note

    def commit(self, journal: HandoverJournal, positions: Iterable[CommittedOffset]) -> HandoverJournal:
        """Commit positions of groups that have not continued in the cluster (blocking).

        Raises ClusterError, also if a group has members.
        """
        ordered = sorted(positions, key=lambda one: (one.group, one.topic, one.partition))
        for group, own in groupby(ordered, key=lambda one: one.group):
            wanted = {
                TopicPartition(one.topic, one.partition): Position(one.offset, one.metadata) for one in own
            }
            journal = self._commit_group(journal, group, wanted)
        return journal

    def _commit_group(
        self, journal: HandoverJournal, group: str, wanted: Mapping[TopicPartition, Position]
    ) -> HandoverJournal:
        present = self.cluster.positions(group, list(wanted))
        committed = journal.positions.get(group, {})
        missing = {}
        left = 0
        for partition, position in wanted.items():
            there = present.get(partition)
            if there is None or (there == committed.get(str(partition)) and there != position.offset):
                missing[partition] = position
            elif there != position.offset:
                left += 1
                self.report(
                    f"group {group}: {partition}: at {there} in the cluster, at {position.offset} here; not changed"
                )
        if not missing:
            if not left:
                self.report(f"group {group}: has the same position as here")
            return journal
        # Record the positions in the journal before they are committed. If the run is interrupted, the next
        # run then knows that the handover set them.
        journal = self.note(
            journal.with_positions(group, {each: Offset(one.offset) for each, one in missing.items()})
        )
        self._put(group, missing)
        return journal

    def _put(self, group: str, positions: Mapping[TopicPartition, Position]) -> None:
        try:
            self.cluster.set_positions(group, positions)
        except ClusterError as error:
            raise ClusterError(
                f"group {group}: its position cannot be set as here; if it has consumers there, end them and run this "
                f"again ({error})"
            ) from None
        places = ", ".join(f"{each} at {position.offset}" for each, position in sorted(positions.items()))
        self.report(f"group {group}: its position was set as here: {places}")
