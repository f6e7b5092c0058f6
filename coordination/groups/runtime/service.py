"""Implements `coordination.membership.Groups` for an engine that stores its groups, using the runner's thread."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from topicfs.coordination import membership
from topicfs.coordination.engine import Engine
from topicfs.coordination.groups.group import EMPTY, Group, GroupMember
from topicfs.coordination.groups.rebalance import GroupLimits
from topicfs.coordination.groups.requests import Code, OffsetCommitRequest, RequestError
from topicfs.coordination.groups.runtime.assignment import read_assignment, read_topics
from topicfs.coordination.groups.runtime.client_requests import ClientRequests
from topicfs.coordination.groups.runtime.commits import error_of, position_error, shown_position
from topicfs.coordination.groups.runtime.embedded_member import EmbeddedCoordinator
from topicfs.coordination.groups.runtime.member import LocalMember
from topicfs.coordination.groups.runtime.runner import TOPIC, Runner
from topicfs.coordination.groups.runtime.shard import Shard, ShardState
from topicfs.coordination.records.group_records import check_group_name
from topicfs.storage import errors
from topicfs.storage.codec.control import EndTransactionMarker
from topicfs.storage.codec.headers import BatchStamp
from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.config.group import GROUP_SETTINGS, GroupConfig, merge_group_overrides
from topicfs.storage.config.listing import ShownSetting, list_group
from topicfs.storage.disk.filesystem import Clock
from topicfs.storage.disk.names import is_internal
from topicfs.storage.engine import Cancel, Partition
from topicfs.storage.model import Offset, ProducerId, Timestamp, TopicPartition
from topicfs.storage.producers.append import VerificationGuard


class GroupsOwner(Engine, Protocol):
    """An engine that stores its groups, and their settings."""

    serves_clients: bool
    """True if Kafka clients may be members. Clients do not end with this process, so their groups keep them."""

    def group_overrides(self) -> Mapping[str, Mapping[str, str]]:
        """Return a snapshot of the settings of each group that differ from the defaults."""

    def put_group_overrides(self, group: str, overrides: Mapping[str, str]) -> None:
        """Replace a group's settings, also on disk; an empty mapping removes them. Raises OSError, ReadOnlyError."""


class EmbeddedGroups:
    """Implements `coordination.membership.Groups` for an embedded engine."""

    def __init__(
        self,
        engine: GroupsOwner,
        *,
        clock: Clock,
        limits: GroupLimits,
        partitions: int,
        follows: bool,
    ) -> None:
        """Make the service. `follows`: another engine leads the logs, so this service writes nothing."""
        self._engine = engine
        self._clock = clock
        self._runner = Runner(
            engine,
            clock=clock,
            limits=limits,
            partitions=partitions,
            follows=follows,
            serves_clients=lambda: engine.serves_clients,
        )
        self.client_requests = ClientRequests(self._runner)
        engine.listen(self._runner.topics_changed)

    # Queries.

    def summary(self) -> membership.GroupsSummary | None:
        return self._runner.summary()

    def known_positions(self) -> Mapping[str, Mapping[TopicPartition, Offset]]:
        runner = self._runner
        if not runner.started:
            if TOPIC in self._engine.topics():
                with suppress(errors.GroupError):  # A closed runner cannot load the positions.
                    runner.post(lambda: None)
            return {}
        shards = list(runner.shards.values())
        return {group: own for shard in shards for group, own in shard.offsets.known().items()}

    def listed(self) -> Mapping[str, membership.GroupListing]:
        return self._runner.call(self._list)

    def _list(self) -> Mapping[str, membership.GroupListing]:
        found = {
            name: membership.GroupListing(name=name, state=group.state)
            for shard in self._runner.shards.values()
            if shard.state is ShardState.ACTIVE
            for name, group in shard.coordinator.groups.items()
        }
        return dict(sorted(found.items()))

    def describe(self, group: str) -> membership.GroupDescription:
        return self._runner.call(lambda: self._describe(group))

    def _describe(self, name: str) -> membership.GroupDescription:
        shard, group = self._find(name)
        members = [self._member(group, one) for one in group.members.values()]
        return membership.GroupDescription(
            name=name,
            state=group.state,
            generation=group.generation,
            assignor=group.protocol or "",
            coordinator=shard.place,
            members=tuple(sorted(members, key=lambda one: one.member_id)),
        )

    def _member(self, group: Group, member: GroupMember) -> membership.MemberDescription:
        protocol = group.protocol or (member.protocols[0].name if member.protocols else None)
        return membership.MemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            reader=member.reader,
            topics=read_topics(member.metadata(protocol)),
            partitions=tuple(sorted(read_assignment(member.assignment))),
        )

    def positions(self, group: str) -> membership.GroupPositions:
        return self._runner.call(lambda: self._positions(group))

    def _positions(self, group: str) -> membership.GroupPositions:
        shard = self._runner.shard_of(group)
        if shard is None:
            return membership.GroupPositions()
        committed = {
            place: shown_position(one) for place, one in sorted(shard.offsets.committed(group).items())
        }
        pending: dict[TopicPartition, list[membership.PendingPosition]] = {}
        for producer_id, place, stored in shard.offsets.pending(group):
            pending.setdefault(place, []).append(
                membership.PendingPosition(Offset(stored.position.offset), producer_id)
            )
        return membership.GroupPositions(committed, pending)

    def positions_in(self, topic: str) -> Mapping[str, Mapping[TopicPartition, membership.CommittedPosition]]:
        return self._runner.call(lambda: self._positions_in(topic))

    def _positions_in(
        self, topic: str
    ) -> Mapping[str, Mapping[TopicPartition, membership.CommittedPosition]]:
        found = {}
        for shard in self._runner.shards.values():
            for group in shard.offsets.groups():
                own = sorted(shard.offsets.committed(group).items())
                if any(place.topic == topic for place, _ in own):
                    found[group] = {place: shown_position(one) for place, one in own if place.topic == topic}
        return dict(sorted(found.items()))

    # Changes of positions.

    def set_positions(self, group: str, positions: Mapping[TopicPartition, membership.Position]) -> None:
        check_group_name(group)
        self._runner.check_writable()
        membership.check_positions(group, positions)
        for place in positions:
            if self._runner.topic_id(place) is None:
                raise errors.UnknownTopicError(f"{place}: no such partition")
        if positions:
            self._runner.call(lambda: self._set_positions(group, dict(positions)))

    def _set_positions(self, name: str, positions: Mapping[TopicPartition, membership.Position]) -> None:
        shard = self._runner.shard_to_write(name)
        group = shard.coordinator.find(name)
        if self._runner.is_other(name):
            raise errors.GroupError(
                f"{name}: a queue or a group of another protocol; its positions cannot be set here"
            )
        if group is not None and group.state is not EMPTY:
            raise _not_empty(group)
        limit = shard.coordinator.limits.metadata_max_bytes
        for place, position in positions.items():
            if len(position.metadata.encode("utf-16-le")) // 2 > limit:
                raise position_error(Code.OFFSET_METADATA_TOO_LARGE, name, place)
        answers: list[Code | Mapping[TopicPartition, Code]] = []
        shard.append([shard.commit(OffsetCommitRequest(group=name, positions=positions), answers.append)])
        (answer,) = answers
        _raise_first(answer, name, shard)

    def delete_positions(self, group: str, partitions: Collection[TopicPartition]) -> None:
        self._runner.check_writable()
        self._runner.call(lambda: self._delete_positions(group, list(partitions)))

    def _delete_positions(self, name: str, partitions: Collection[TopicPartition]) -> None:
        shard, group = self._find(name)
        answers: list[Code | Mapping[TopicPartition, Code]] = []
        shard.append([shard.offsets.delete(group, partitions, answers.append)])
        (answer,) = answers
        codes = {answer} if isinstance(answer, Code) else set(answer.values())
        if codes & {Code.NON_EMPTY_GROUP, Code.GROUP_SUBSCRIBED_TO_TOPIC}:
            raise _not_empty(group)
        for code in codes - {Code.NONE}:
            raise error_of(code, name, shard.cause)

    # Positions in transactions, for the transaction coordinator.

    def coordinator_partition(self, group: str) -> Partition:
        """Return the partition of `__consumer_offsets` with a group's positions; create the topic if it is missing.

        Raises GroupError if the partition is not served, ReadOnlyError, OSError.
        """
        self._runner.check_writable()
        return self._runner.call(lambda: self._runner.shard_to_write(group).partition)

    def commit_in_transaction(
        self,
        request: OffsetCommitRequest,
        producer_id: ProducerId,
        producer_epoch: int,
        guard: VerificationGuard | None = None,
    ) -> Code | Mapping[TopicPartition, Code]:
        """Write positions of an open transaction to disk. They take effect when the transaction is committed.

        `guard` proves that the group's `coordinator_partition` is part of the transaction. Return the answer by
        partition, or for the whole request. Raises GroupError, ReadOnlyError, OSError.
        """
        self._runner.check_writable()
        stamp = BatchStamp(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, transactional=True
        )
        return self._runner.call(lambda: self._commit_in_transaction(request, stamp, guard))

    def _commit_in_transaction(
        self, request: OffsetCommitRequest, stamp: BatchStamp, guard: VerificationGuard | None
    ) -> Code | Mapping[TopicPartition, Code]:
        shard = self._runner.shard_to_write(request.group)
        if self._runner.is_other(request.group):
            return Code.UNKNOWN_MEMBER_ID
        answers: list[Code | Mapping[TopicPartition, Code]] = []
        shard.append([shard.commit(request, answers.append, stamp.producer_id)], stamp, guard)
        (answer,) = answers
        return answer

    def end_transaction(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Collection[int],
        marker: EndTransactionMarker,
    ) -> None:
        """Append a transaction's marker to partitions of `__consumer_offsets`.

        The marker applies or drops the positions of the transaction. It is on disk when the call returns.

        Raises ProducerFencedError (also for an older coordinator epoch), GroupError, OSError. After an error the
        caller repeats the call: appending a marker twice does no harm.
        """
        self._runner.check_writable()
        for number in partitions:
            self._runner.call(partial(self._end_transaction, number, producer_id, producer_epoch, marker))

    def _end_transaction(
        self, number: int, producer_id: ProducerId, producer_epoch: int, marker: EndTransactionMarker
    ) -> None:
        shard = self._runner.shards.get(number)
        if shard is None:
            raise errors.GroupError(f"{TOPIC}-{number}: is not served")
        shard.end_transaction(producer_id, producer_epoch, marker)

    # Creation and deletion.

    def create(self, group: str) -> None:
        check_group_name(group)
        self._runner.check_writable()
        if group in self._engine.share_groups.groups():
            raise errors.GroupExistsError(f"{group}: is a queue; choose another name for a consumer group")
        self._runner.call(lambda: self._create(group))

    def _create(self, name: str) -> None:
        shard = self._runner.shard_to_write(name)
        if name in shard.coordinator.groups or self._runner.is_other(name):
            raise errors.GroupExistsError(f"{name}: a group of that name exists")
        codes: list[Code] = []
        shard.append([shard.coordinator.create(name, codes.append)])
        if codes[0] is not Code.NONE:
            raise error_of(codes[0], name, shard.cause)

    def delete(self, group: str) -> None:
        self._runner.check_writable()
        self._runner.call(lambda: self._delete(group))

    def _delete(self, name: str) -> None:
        shard, group = self._find(name)
        try:
            code = shard.delete_group(name)
        except RequestError as error:
            if error.code is Code.NON_EMPTY_GROUP:
                raise _not_empty(group) from None
            raise _unknown(name) from None
        if code is not Code.NONE:
            raise error_of(code, name, shard.cause)
        self._engine.put_group_overrides(name, {})

    def _find(self, name: str) -> tuple[Shard, Group]:
        shard = self._runner.shard_of(name)
        group = None if shard is None else shard.coordinator.find(name)
        if shard is None or group is None:
            raise _unknown(name)
        return shard, group

    # Settings.

    def config(self, group: str) -> GroupConfig:
        """Return a group's settings. Stored settings that are invalid, perhaps from a newer version, are skipped."""
        config, _ = self._lenient(group)
        return config

    def settings(self, group: str) -> Sequence[ShownSetting]:
        return list_group(GROUP_SETTINGS, *self._lenient(group))

    def _lenient(self, group: str) -> tuple[GroupConfig, Mapping[str, str]]:
        overrides = self._engine.group_overrides().get(group, {})
        try:
            return GroupConfig.from_overrides(overrides), overrides
        except errors.InvalidConfigError:
            good = {name: text for name, text in overrides.items() if _is_good(name, text)}
            return GroupConfig.from_overrides(good), good

    def alter_config(self, group: str, changes: Mapping[str, str | None]) -> None:
        self._runner.check_writable()
        self._runner.call(lambda: self._alter_config(group, changes))

    def _alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        merged = merge_group_overrides(self._engine.group_overrides().get(name, {}), changes)
        _, group = self._find(name)
        if "assignor" in changes and group.members:
            raise _not_empty(group)
        self._engine.put_group_overrides(name, merged)

    # Members.

    def join(
        self,
        group: str,
        subscription: membership.Subscription,
        *,
        client_id: str,
        reader: str = "",
        listener: Callable[[], None],
    ) -> membership.Membership:
        check_group_name(group)
        self._runner.check_writable()
        coordinator = EmbeddedCoordinator(self._runner, group, client_id=client_id, reader=reader)
        member = LocalMember(
            coordinator,
            subscription,
            member_id=f"{client_id}-{uuid.uuid4()}",
            config=lambda: self.config(group),
            listener=listener,
        )
        coordinator.start(member)
        return member

    def listen(self, listener: Callable[[], None]) -> Cancel:
        return self._runner.listeners.add(listener)

    # For the engine.

    def load(self) -> None:
        """Load the positions, if there are any (blocking).

        Once the positions are loaded, deleting a topic also deletes the positions in this topic.
        """
        if TOPIC in self._engine.topics() and not self._runner.read_only:
            self._runner.call(lambda: None)

    def prepare_new_topic(self, name: str) -> None:
        """Delete old positions that would apply to a new topic of this name (blocking). Raises StorageError, OSError.

        Transactions and older brokers commit positions without the topic's id. When a topic is deleted, such
        positions are deleted after the topic, because they must stay if the deletion of the topic fails. If the
        process is killed or the disk fails between the two deletions, the positions remain in the log. This method
        deletes them, so that a new topic of the name does not inherit them. It skips partitions of
        `__consumer_offsets` that are not served.
        """
        if not is_internal(name) and TOPIC in self._engine.topics() and not self._runner.read_only:
            self._runner.call(lambda: self._prepare_new_topic(name))

    def _prepare_new_topic(self, name: str) -> None:
        if name in self._engine.topics():
            return  # The engine will refuse to create the topic.
        for shard in self._runner.shards.values():
            if shard.state is ShardState.ACTIVE:
                for group, places in shard.offsets.without_topic_id(name).items():
                    codes: list[Code] = []
                    shard.append([shard.offsets.tombstones(group, places, codes.append)])
                    if codes[0] is not Code.NONE:
                        raise error_of(codes[0], group, shard.cause)

    def expire(self, now: Timestamp) -> None:
        """Delete the positions and groups that have expired by `now` (blocking). The engine calls this regularly."""
        if TOPIC in self._engine.topics() and not self._runner.read_only:
            self._runner.call(lambda: self._expire(now))

    def _expire(self, now: Timestamp) -> None:
        for shard in self._runner.shards.values():
            if shard.state is ShardState.ACTIVE:
                shard.expire(now)

    def close(self) -> None:
        """End all memberships cleanly (blocking). Idempotent."""
        self._runner.close()


def _unknown(name: str) -> errors.UnknownGroupError:
    return errors.UnknownGroupError(f"{name}: no such group")


def _not_empty(group: Group) -> errors.GroupNotEmptyError:
    state: membership.GroupState = group.state
    return errors.GroupNotEmptyError(
        f"{group.name}: the group is {state.value} and has {len(group.members)} members; end them first"
    )


def _raise_first(answer: Code | Mapping[TopicPartition, Code], group: str, shard: Shard) -> None:
    """Raise the exception for the first code that is not NONE."""
    if isinstance(answer, Code):
        raise error_of(answer, group, shard.cause)
    for place, code in answer.items():
        if code is not Code.NONE:
            raise position_error(code, group, place)


def _is_good(name: str, text: str) -> bool:
    try:
        GroupConfig.from_overrides({name: text})
    except errors.InvalidConfigError:
        return False
    return True


MS_A_MINUTE = 60_000


def make_groups(engine: GroupsOwner, config: EngineConfig, clock: Clock) -> EmbeddedGroups:
    """Return the object that serves an engine's groups. It reads nothing from disk until it is used."""
    limits = GroupLimits(
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        max_size=config.group_max_size,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        metadata_max_bytes=config.offset_metadata_max_bytes,
        retention_ms=config.offsets_retention_minutes * MS_A_MINUTE,
    )
    return EmbeddedGroups(
        engine,
        clock=clock,
        limits=limits,
        partitions=config.offsets_topic_num_partitions,
        follows=config.follows,
    )
