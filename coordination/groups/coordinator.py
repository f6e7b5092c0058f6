"""The group coordinator of one partition of `__consumer_offsets`: joins, syncs, heartbeats, leaves, and deletion.

It uses no thread, disk or clock: its owner passes it the requests, the timers that are due and the results of its
writes. It checks each request in Kafka's order (kafka-coordinators.md#requests).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from topicfs.coordination.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group
from topicfs.coordination.groups.joins import Joins
from topicfs.coordination.groups.rebalance import GroupLimits, RebalancePhases
from topicfs.coordination.groups.requests import (
    Code,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    LeavingMember,
    RequestError,
    SyncAnswer,
    SyncReply,
    SyncRequest,
    Write,
)
from topicfs.coordination.groups.timers import Timers
from topicfs.coordination.records.group_records import write_group_key
from topicfs.storage.model import Offset


class GroupCoordinator:
    """The groups of one partition of `__consumer_offsets`, by name."""

    def __init__(
        self,
        timers: Timers,
        *,
        limits: GroupLimits,
        log: logging.Logger | logging.LoggerAdapter[Any],
        new_id: Callable[[], str],
        changed: Callable[[Group], None] = lambda _group: None,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.timers = timers
        self.limits = limits
        self.log = log
        self.phases = RebalancePhases(timers, limits, log, changed=changed)
        self._joining = Joins(self.phases, new_id)

    def find(self, name: str) -> Group | None:
        return self.groups.get(name)

    def new_group(self, name: str) -> Group:
        """Make a group in memory only. The first record that the coordinator writes for the group makes it durable."""
        group = self.groups[name] = Group(name=name, state_since=self.phases.now)
        self.phases.changed(group)
        return group

    # Requests.

    def join(self, request: JoinRequest, reply: JoinReply) -> Write | None:
        """Join a group; the coordinator replies when the join phase ends."""
        try:
            self._check_join(request)
            group = self.groups.get(request.group)
            if group is None:
                return self._join_first(request, reply)
            return self._joining.join(group, request, reply)
        except RequestError as error:
            reply(JoinAnswer(code=error.code, member_id=request.member_id))
            return None

    def _check_join(self, request: JoinRequest) -> None:
        if not request.group:
            raise RequestError(Code.INVALID_GROUP_ID)
        limits, timeout = self.limits, request.session_timeout_ms
        if (
            request.heartbeats
            and not limits.min_session_timeout_ms <= timeout <= limits.max_session_timeout_ms
        ):
            raise RequestError(Code.INVALID_SESSION_TIMEOUT)
        if request.group not in self.groups and request.member_id:
            raise RequestError(Code.UNKNOWN_MEMBER_ID)

    def _join_first(self, request: JoinRequest, reply: JoinReply) -> Write:
        """Join a new group. The group is written to the log first, so that it survives a crash."""
        group = self.new_group(request.group)
        record = group.record({})
        answers: list[JoinAnswer] = []
        held = True

        def answer(answer: JoinAnswer) -> None:
            # Hold back answers until the group is in the log.
            if held:
                answers.append(answer)
            else:
                reply(answer)

        def written(code: Code, _offset: Offset) -> None:
            nonlocal held
            held = False
            if code is Code.NONE:
                for one in answers:
                    reply(one)
                return
            self.log.warning("Failed to write empty metadata for group %s: %s", group.name, code.name)
            self._forget(group)
            reply(JoinAnswer(code=code, member_id=request.member_id))

        try:
            write = self._joining.join(group, request, answer)
        except RequestError:
            self._forget(group)
            raise
        assert write is None
        return Write((record,), written)

    def sync(self, request: SyncRequest, reply: SyncReply) -> Write | None:
        """Get the member's assignment; the coordinator replies once the leader's assignments are in the log."""
        try:
            group = self._checked(request.group, request.member_id, request.instance_id, request.generation)
            _check_protocol(group, request)
            return self._sync(group, request, reply)
        except RequestError as error:
            reply(SyncAnswer(error.code))
            return None

    def _sync(self, group: Group, request: SyncRequest, reply: SyncReply) -> Write | None:
        member = group.members[request.member_id]
        if group.state is PREPARING:
            raise RequestError(Code.REBALANCE_IN_PROGRESS)
        self.phases.synced(group, request.member_id)
        if group.state is STABLE:
            reply(SyncAnswer(Code.NONE, member.assignment, group.protocol_type, group.protocol))
            self.phases.keep_alive(group, member)
            return None
        member.wait_for_sync(reply)
        if group.leader != request.member_id:
            return None
        static = sum(one.instance_id is not None for one in group.members.values())
        self.log.info(
            "Assignment received from leader %s for group %s for generation %d. The group has %d members, %d of which "
            "are static.",
            request.member_id,
            group.name,
            group.generation,
            len(group.members),
            static,
        )
        record = group.record(request.assignments)
        return Write((record,), partial(self._assigned, group, group.generation, request.assignments))

    def _assigned(
        self, group: Group, generation: int, assignments: Mapping[str, bytes], code: Code, _offset: Offset
    ) -> None:
        if group.state is not COMPLETING or group.generation != generation:
            return  # Another member joined while the record was being written, so the rebalance starts again.
        if code is not Code.NONE:
            self.phases.answer_syncs(group, code)
            write = self.phases.rebalance(
                group, f"Error {code.name} when storing group assignment during SyncGroup"
            )
            assert write is None
            return
        group.move_to(STABLE, self.phases.now)
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            if member.answer_sync(
                SyncAnswer(Code.NONE, member.assignment, group.protocol_type, group.protocol)
            ):
                self.phases.keep_alive(group, member)
        self.phases.changed(group)

    def heartbeat(
        self, group_name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> Code:
        """Restart a member's session timer. If a rebalance has begun, the answer asks the member to rejoin."""
        try:
            group = self._checked(group_name, member_id, instance_id, generation)
        except RequestError as error:
            return error.code
        self.phases.keep_alive(group, group.members[member_id])
        return Code.REBALANCE_IN_PROGRESS if group.state is PREPARING else Code.NONE

    def leave(
        self, group_name: str, leaving: Sequence[LeavingMember], reply: Callable[[Sequence[Code]], None]
    ) -> Write | None:
        """Remove members that leave, with one rebalance for all of them."""
        group = self.groups.get(group_name)
        if group is None or group.state is DEAD:
            code = Code.UNKNOWN_MEMBER_ID if group is None else Code.COORDINATOR_NOT_AVAILABLE
            reply([code] * len(leaving))
            return None
        codes = [self._leave_one(group, one) for one in leaving]
        gone = [one for one, code in zip(leaving, codes, strict=True) if code is Code.NONE]
        write = None
        if gone:
            names = ", ".join(one.member_id or str(one.instance_id) for one in gone)
            if group.in_state(STABLE, COMPLETING):
                write = self.phases.rebalance(group, f"explicit `LeaveGroup` request for ({names}) members.")
            else:
                write = self.phases.end_join_phase_if_all_joined(group)
        if write is None:
            reply(codes)
            return None
        inner = write.written

        def written(code: Code, offset: Offset) -> None:
            inner(code, offset)
            reply(codes)

        return Write(write.records, written)

    def _leave_one(self, group: Group, leaving: LeavingMember) -> Code:
        reason = leaving.reason or "not provided"
        if leaving.member_id in group.pending:
            self.phases.forget(group, leaving.member_id)
            self.log.info(
                "Pending member %s has left group %s through explicit `LeaveGroup` request; client reason: %s",
                leaving.member_id,
                group.name,
                reason,
            )
            return Code.NONE
        if not leaving.member_id and leaving.instance_id is not None:
            known = group.static.get(leaving.instance_id)
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
            member_id = known
        else:
            try:
                member_id = group.check_member(leaving.member_id, leaving.instance_id).member_id
            except RequestError as error:
                return error.code
        self.log.info(
            "%s member %s has left group %s through explicit `LeaveGroup` request; client reason: %s",
            "Dynamic" if group.members[member_id].instance_id is None else "Static",
            member_id,
            group.name,
            reason,
        )
        self.phases.remove(group, member_id)
        return Code.NONE

    def _checked(self, name: str, member_id: str, instance_id: str | None, generation: int) -> Group:
        group = self.groups.get(name)
        if group is None:
            raise RequestError(Code.UNKNOWN_MEMBER_ID)
        if group.state is DEAD:
            raise RequestError(Code.COORDINATOR_NOT_AVAILABLE)
        group.check_member(member_id, instance_id)
        if group.generation != generation:
            raise RequestError(Code.ILLEGAL_GENERATION)
        return group

    # Creation and deletion.

    def create(self, name: str, reply: Callable[[Code], None]) -> Write | None:
        """Create a group without members. Do nothing if the group exists."""
        if name in self.groups:
            reply(Code.NONE)
            return None
        group = self.new_group(name)

        def written(code: Code, _offset: Offset) -> None:
            if code is not Code.NONE and group.state is EMPTY and not group.members:
                self._forget(group)
            reply(code)

        return Write((group.record({}),), written)

    def check_deletable(self, name: str) -> Group:
        """Return a group that may be deleted. Raises RequestError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self.groups.get(name)
        if group is None or group.state is DEAD:
            raise RequestError(Code.GROUP_ID_NOT_FOUND)
        if group.state is not EMPTY:
            raise RequestError(Code.NON_EMPTY_GROUP)
        return group

    def deleted(self, name: str) -> None:
        """Forget a group whose tombstone is in the log."""
        group = self.groups.get(name)
        if group is not None:
            self._forget(group)

    def _forget(self, group: Group) -> None:
        self.phases.forget_timers(group)
        del self.groups[group.name]
        group.state = DEAD
        self.phases.changed(group)

    # Loading and unloading.

    def replay(self, name: str, fields: Mapping[str, object] | None) -> None:
        """Load a group's record; `fields` is None for a tombstone. Raises as `Group.from_record` does."""
        if fields is None:
            self.groups.pop(name, None)
        else:
            self.groups[name] = Group.from_record(name, fields)

    def loaded(self) -> list[Write]:
        """Begin to serve the loaded groups: start the session timers, and rebalance groups that exceed `max_size`."""
        writes = []
        for group in list(self.groups.values()):
            self.log.info("Loaded classic group %s with %d members.", group.name, len(group.members))
            for member in group.members.values():
                self.phases.keep_alive(group, member)
            if len(group.members) > self.limits.max_size:
                reason = (
                    f"Freshly-loaded group {group.name} (size {len(group.members)}) is over capacity "
                    f"{self.limits.max_size}. Rebalancing in order to give a chance for consumers to commit offsets"
                )
                write = self.phases.prepare(group, reason)
                if write is not None:
                    writes.append(write)
        return writes

    def remove_all(self, names: Iterable[str], reason: str, *, but_clients: bool = False) -> list[Write]:
        """Remove all members of the named groups. The process of these members has ended, or is about to end.

        With `but_clients`, keep Kafka clients: they are other processes, which send heartbeats.
        """
        writes = []
        for name in names:
            group = self.groups.get(name)
            if group is None:
                continue
            gone = [*group.members, *group.pending]
            if but_clients:
                gone = [one.member_id for one in group.members.values() if not one.heartbeats]
            for member_id in gone:
                self.phases.remove(group, member_id)
            if not gone:
                continue
            if group.state is PREPARING and not group.members:
                # With EMPTY as the previous state, the join phase would wait for members.
                group.previous_state = STABLE
                write = self.phases.end_join_phase(group)
            else:
                write = self.phases.rebalance(group, reason)
            if write is not None:
                writes.append(write)
        return writes

    def unload(self) -> None:
        """Stop serving: answer waiting members with NOT_COORDINATOR, so that they look for the new coordinator."""
        self.timers.cancel_all()
        for group in list(self.groups.values()):
            group.move_to(DEAD, self.phases.now)
            for member in list(group.members.values()):
                member.answer_join(JoinAnswer(code=Code.NOT_COORDINATOR, member_id=member.member_id))
                member.answer_sync(SyncAnswer(Code.NOT_COORDINATOR))
            self.phases.changed(group)
        self.groups.clear()


def group_tombstone(name: str) -> tuple[bytes, None]:
    """Return the tombstone that deletes a group's own record."""
    return write_group_key(name), None


def _check_protocol(group: Group, request: SyncRequest) -> None:
    for given, own in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if given is not None and given != own:
            raise RequestError(Code.INCONSISTENT_GROUP_PROTOCOL)
