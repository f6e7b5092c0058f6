"""Passes the group requests of Kafka clients to the coordinators of an engine.

A member in this process ends when its open file is closed. A Kafka client is another program, so only its heartbeats
show that it is alive. Both kinds of members can belong to the same group.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias, TypeVar

from topicfs.coordination.groups.group import Group
from topicfs.coordination.groups.offsets import StoredOffset
from topicfs.coordination.groups.requests import (
    Code,
    CommitReply,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeavingMember,
    OffsetCommitRequest,
    RequestError,
    SyncAnswer,
    SyncReply,
    SyncRequest,
    Write,
)
from topicfs.coordination.groups.runtime.runner import TOPIC, Runner
from topicfs.coordination.groups.runtime.shard import Shard, ShardState
from topicfs.coordination.records.group_records import fits_key
from topicfs.storage.errors import GroupError, ReadOnlyError, StorageError
from topicfs.storage.model import TopicPartition

T = TypeVar("T")
_ID_SUFFIX = f"-{uuid.UUID(int=0)}"
"""A stand-in for the suffix that the coordinator appends to a client id or instance id to make a member id. It has
the same length.
"""
Fetched: TypeAlias = Mapping[TopicPartition, StoredOffset | Code]
LeaveReply: TypeAlias = Callable[[list[Code]], None]


class ClientRequests:
    """Group requests of Kafka clients.

    Each method returns without waiting. `reply` is called in the coordinator's thread; if that thread has ended, in
    the caller's thread. The reply to a join or a sync may take as long as a rebalance.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Join a group, which is created if it does not exist."""

        def refuse(code: Code) -> None:
            reply(JoinAnswer(code=code, member_id=request.member_id))

        def ask(shard: Shard) -> Write | None:
            if self._runner.is_other(request.group):
                refuse(Code.INCONSISTENT_GROUP_PROTOCOL)
                return None
            if self._is_too_large(one.metadata for one in request.protocols):
                refuse(Code.INVALID_REQUEST)
                return None
            return shard.coordinator.join(request, reply)

        if not request.group:
            refuse(Code.INVALID_GROUP_ID)
        elif not _fits_record(request):
            refuse(Code.INVALID_REQUEST)
        else:
            self._submit(request.group, ask, refuse, creates=True)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """Get a member's assignment. The leader's request contains the assignments of all members."""

        def ask(shard: Shard) -> Write | None:
            if self._is_too_large(request.assignments.values()):
                reply(SyncAnswer(Code.UNKNOWN_SERVER_ERROR))
                return None
            return shard.coordinator.sync(request, reply)

        self._submit(request.group, self._change(ask), lambda code: reply(SyncAnswer(code)))

    def heartbeat(
        self,
        group: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        reply: Callable[[Code], None],
    ) -> None:
        """Keep a member alive."""

        def ask(shard: Shard) -> None:
            reply(shard.coordinator.heartbeat(group, member_id, generation, instance_id))

        self._submit(group, self._change(ask), reply)

    def leave(self, group: str, leaving: Collection[LeavingMember], reply: LeaveReply) -> None:
        """Remove members. The reply has a code for each member."""
        self._submit(
            group,
            self._change(
                lambda shard: shard.coordinator.leave(group, list(leaving), lambda codes: reply(list(codes)))
            ),
            lambda code: reply([code] * len(leaving)),
        )

    def commit(self, request: OffsetCommitRequest, reply: CommitReply) -> None:
        """Commit positions. If the commit names no member and the group is missing, create the group."""

        def ask(shard: Shard) -> Write | None:
            if self._runner.is_other(request.group):
                reply(Code.GROUP_ID_NOT_FOUND)
                return None
            return shard.commit(request, reply)

        self._submit(request.group, ask, reply, creates=True)

    def fetch(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        reply: Callable[[Fetched | Code], None],
        *,
        require_stable: bool,
    ) -> None:
        """Reply with a group's positions in `partitions`, or in all partitions if that is None.

        A partition without a position is left out. With `require_stable`, a partition whose position an open
        transaction may change gets the code UNSTABLE_OFFSET_COMMIT.
        """

        def ask(shard: Shard) -> None:
            asked = shard.offsets.places(group) if partitions is None else partitions
            found: dict[TopicPartition, StoredOffset | Code] = {}
            for place in asked:
                try:
                    stored = shard.offsets.fetch(group, place, require_stable=require_stable)
                except RequestError as error:
                    found[place] = error.code
                else:
                    if stored is not None:
                        found[place] = stored
            reply(found)

        self._submit(group, ask, reply, without_topic=lambda: reply({}))

    def delete_positions(
        self, group: str, partitions: Collection[TopicPartition], reply: CommitReply
    ) -> None:
        self._submit(
            group,
            self._change(
                lambda shard: shard.offsets.delete(shard.coordinator.find(group), partitions, reply)
            ),
            reply,
            without_topic=lambda: reply(Code.GROUP_ID_NOT_FOUND),
        )

    def describe(self, group: str, show: Callable[[Group], T], reply: Callable[[T | Code], None]) -> None:
        """Reply with what `show` returns for a group; `show` runs in the coordinator's thread."""

        def ask(shard: Shard) -> None:
            found = shard.coordinator.find(group)
            reply(Code.GROUP_ID_NOT_FOUND if found is None else show(found))

        self._submit(group, ask, reply, without_topic=lambda: reply(Code.GROUP_ID_NOT_FOUND))

    def list(self, show: Callable[[Group], T], reply: Callable[[list[T] | Code], None]) -> None:
        """Reply with what `show` returns for each group that this engine serves."""

        def ask() -> None:
            shards = [one for one in self._runner.shards.values() if one.state is ShardState.ACTIVE]
            reply([show(group) for shard in shards for group in shard.coordinator.groups.values()])

        self._post(ask, reply)

    def _is_too_large(self, parts: Iterable[bytes]) -> bool:
        """Return whether `parts` together are too large for a group's record.

        A request with such parts is refused immediately, so that the parts do not wait in memory.
        """
        return sum(map(len, parts)) > self._runner.engine.topic(TOPIC).config.max_message_bytes

    def _change(self, ask: Callable[[Shard], Write | None]) -> Callable[[Shard], Write | None]:
        """Return a function that raises ReadOnlyError if groups cannot be changed, and otherwise calls `ask`."""

        def checked(shard: Shard) -> Write | None:
            self._runner.check_writable()
            return ask(shard)

        return checked

    def _submit(
        self,
        group: str,
        ask: Callable[[Shard], Write | None],
        refuse: Callable[[Code], None],
        *,
        creates: bool = False,
        without_topic: Callable[[], None] | None = None,
    ) -> None:
        """Run `ask` on the group's shard.

        If `__consumer_offsets` is missing, call `without_topic` if it is given, otherwise `refuse`.
        """

        def run() -> None:
            shard = self._runner.shard_of(group, to_write=creates)
            if shard is not None:
                shard.append([ask(shard)])
            elif without_topic is not None:
                without_topic()
            else:
                refuse(Code.UNKNOWN_MEMBER_ID)

        if fits_key(group):
            self._post(run, refuse)
        else:
            refuse(Code.INVALID_GROUP_ID)

    def _post(self, action: Callable[[], None], refuse: Callable[[Code], None]) -> None:
        def run() -> None:
            try:
                action()
            except ReadOnlyError:
                refuse(Code.GROUP_AUTHORIZATION_FAILED)
            except (StorageError, OSError):
                refuse(Code.NOT_COORDINATOR)
            except Exception:  # Catch every exception: without an answer, the client would wait forever.
                refuse(Code.UNKNOWN_SERVER_ERROR)
                raise  # The coordinator's thread logs the error.

        try:
            self._runner.post(run)
        except GroupError:
            refuse(Code.NOT_COORDINATOR)


def _fits_record(request: JoinRequest) -> bool:
    """Return whether the strings of the request fit into a group's record.

    A string that is too long would make each rebalance of the group fail.
    """
    member_id = f"{request.instance_id or request.client_id}{_ID_SUFFIX}"
    return all(map(fits_key, (member_id, request.protocol_type, *(one.name for one in request.protocols))))
