"""The groups of an engine that the command itself has opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topicfs.coordination.engine import Engine
from topicfs.coordination.membership import Position
from topicfs.fusefs.groups.positions import lags
from topicfs.groups.view import SHARE, GroupSummary, GroupView, MemberView, PartitionPosition, PositionBounds
from topicfs.storage.errors import UnknownGroupError
from topicfs.storage.model import Isolation, Offset, Timestamp, TopicPartition

ISOLATION = Isolation.READ_COMMITTED


class EngineGroups:
    """The groups of an engine. See `GroupAdmin`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listed(self) -> Sequence[GroupSummary]:
        groups, queues = self._engine.groups.listed(), self._engine.share_groups.groups()
        consumers = [GroupSummary(name, one.state.value) for name, one in groups.items()]
        return consumers + [GroupSummary(name, one.state, SHARE) for name, one in queues.items()]

    def describe(self, group: str) -> GroupView:
        groups = self._engine.groups
        if group not in groups.listed():
            return self._describe_queue(group)
        found, committed = groups.describe(group), groups.positions(group).committed
        places = []
        for where, lag in lags(self._engine, committed, found.members).items():
            held = committed.get(where)
            position, by = (None, "") if held is None else (held.offset, held.metadata)
            end_offset = self._engine.partition(*where).offsets().last_stable_offset
            places.append(PartitionPosition(where, position, end_offset, lag, by))
        return GroupView(
            name=group,
            state=found.state.value,
            generation=found.generation,
            assignor=found.assignor,
            coordinator=str(found.coordinator),
            members=[
                MemberView(
                    one.member_id, one.reader or f"{one.client_id} {one.host}", one.topics, one.partitions
                )
                for one in found.members
            ],
            places=places,
        )

    def _describe_queue(self, name: str) -> GroupView:
        queue = self._engine.share_groups.groups().get(name)
        if queue is None:
            reason = self._engine.share_groups.unavailable
            raise UnknownGroupError(
                f"{name}: no such group; topicfs groups list shows all" + (f" ({reason})" if reason else "")
            )
        places = [
            PartitionPosition(
                one.partition,
                None if one.start_offset < 0 else one.start_offset,
                self.bounds(one.partition).end_offset,
                one.lag,
            )
            for topic in queue.topics()
            for one in queue.positions(topic)
        ]
        members = [MemberView(one.member_id, one.holder, one.topics, ()) for one in queue.members()]
        return GroupView(
            name=name, state=queue.state, type=SHARE, generation=queue.epoch, members=members, places=places
        )

    def partitions(self, topic: str) -> Sequence[int]:
        return list(self._engine.topic(topic).partitions())

    def bounds(self, partition: TopicPartition) -> PositionBounds:
        found = self._engine.partition(*partition)
        found.find_bounds()
        return PositionBounds(found.log_start_offset, found.visible_end(ISOLATION))

    def offset_at(self, partition: TopicPartition, timestamp: Timestamp) -> Offset | None:
        found = self._engine.partition(*partition).offset_for_timestamp(timestamp, isolation=ISOLATION)
        return None if found is None else found.offset

    def set_positions(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        queue = self._engine.share_groups.groups().get(group)
        if queue is not None:
            for partition, offset in positions.items():
                queue.reset(partition, offset)
            return
        self._engine.groups.set_positions(group, {one: Position(offset) for one, offset in positions.items()})

    def delete_positions(self, group: str, partitions: Sequence[TopicPartition]) -> None:
        self._engine.groups.delete_positions(group, partitions)

    def delete(self, group: str) -> None:
        queues = self._engine.share_groups
        (queues if group in queues.groups() else self._engine.groups).delete(group)
