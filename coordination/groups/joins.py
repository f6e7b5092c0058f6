"""Handles joins by new, known and returning static members (rules, order of checks: kafka-coordinators.md#join)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topicfs.coordination.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, GroupMember
from topicfs.coordination.groups.rebalance import NEW_MEMBER_TIMEOUT_MS, RebalancePhases, session_timer
from topicfs.coordination.groups.requests import (
    Code,
    JoinAnswer,
    JoinReply,
    JoinRequest,
    Protocol,
    RequestError,
    Write,
)
from topicfs.storage.model import Offset

VERSION_WITH_MEMBER_ID = 4
"""From this version of the request on, a new member first gets an id, and rejoins with it."""
VERSION_WITH_SKIPPED_ASSIGNMENT = 9
"""From this version of the request on, the answer to a returning static leader lists all members, and tells the
leader to skip the assignment.
"""


class Joins:
    """The joins of all groups of one coordinator."""

    def __init__(self, phases: RebalancePhases, new_id: Callable[[], str]) -> None:
        self._phases = phases
        self._new_id = new_id

    def join(self, group: Group, request: JoinRequest, reply: JoinReply) -> Write | None:
        """Join an existing group. Raises RequestError."""
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            raise RequestError(Code.GROUP_MAX_SIZE_REACHED)
        if group.state is DEAD:
            raise RequestError(Code.COORDINATOR_NOT_AVAILABLE)
        if not group.supports(request.protocol_type, request.protocols):
            raise RequestError(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            return self._join_new(group, request, reply)
        return self._join_known(group, request, reply)

    def _has_room(self, group: Group, member_id: str) -> bool:
        most = self._phases.limits.max_size
        if len(group.members) < most:
            return True
        if group.state is PREPARING:
            member = group.members.get(member_id)
            return (member is not None and member.join_reply is not None) or group.waiting_to_join < most
        if group.in_state(COMPLETING, STABLE):
            return member_id in group.members
        return True

    def _join_new(self, group: Group, request: JoinRequest, reply: JoinReply) -> Write | None:
        member_id = request.proposed_id or f"{request.instance_id or request.client_id}-{self._new_id()}"
        log = self._phases.log
        if request.instance_id is not None:
            known = group.static.get(request.instance_id)
            if known is not None:
                log.info(
                    "Static member with groupInstanceId=%s and unknown member id joins group %s in %s state. "
                    "Replacing previously mapped member %s with this groupInstanceId.",
                    request.instance_id,
                    group.name,
                    group.state.value,
                    known,
                )
                return self._replace(group, request, reply, known, member_id)
            log.info(
                "Static member with groupInstanceId=%s and unknown member id joins group %s in %s state. "
                "Created a new member id %s for this member and add to the group.",
                request.instance_id,
                group.name,
                group.state.value,
                member_id,
            )
        elif request.version >= VERSION_WITH_MEMBER_ID and request.heartbeats:
            log.info(
                "Dynamic member with unknown member id joins group %s in %s state. Created a new member id %s and "
                "requesting the member to rejoin with this id.",
                group.name,
                group.state.value,
                member_id,
            )
            group.pending.add(member_id)
            self._phases.set_session_timer(group, member_id, request.session_timeout_ms, heartbeats=True)
            reply(JoinAnswer(code=Code.MEMBER_ID_REQUIRED, member_id=member_id))
            return None
        else:
            log.info(
                "Dynamic member with unknown member id joins group %s in %s state. Created a new member id %s for this "
                "member and add to the group.",
                group.name,
                group.state.value,
                member_id,
            )
        return self._add(group, request, reply, member_id)

    def _add(self, group: Group, request: JoinRequest, reply: JoinReply, member_id: str) -> Write | None:
        member = GroupMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            reader=request.reader,
            heartbeats=request.heartbeats,
            is_new=True,
            join_reply=reply,
        )
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.member_added = True
        group.add(member, request.protocol_type)
        self._phases.set_session_timer(group, member_id, NEW_MEMBER_TIMEOUT_MS, request.heartbeats)
        self._phases.changed(group)
        return self._phases.rebalance(
            group,
            f"Adding new member {member_id} with group instance id {request.instance_id}{_because(request)}",
        )

    # Known members.

    def _join_known(self, group: Group, request: JoinRequest, reply: JoinReply) -> Write | None:
        if request.member_id in group.pending:
            if request.instance_id is not None:  # Only dynamic members get pending ids.
                reply(JoinAnswer(code=Code.UNKNOWN_SERVER_ERROR))
                return None
            return self._add(group, request, reply, request.member_id)
        member = group.check_member(request.member_id, request.instance_id)
        reason = self._reason_to_rebalance(group, member, request)
        if reason is None:
            reply(self._phases.join_answer(group, member))
            return None
        return self._update(group, member, request, reply, reason)

    def _reason_to_rebalance(self, group: Group, member: GroupMember, request: JoinRequest) -> str | None:
        """Return why a rejoining member makes the group rebalance.

        If None, no rebalance is needed: the coordinator repeats the member's last join answer.
        """
        if group.state is PREPARING:
            return f"Member {member.member_id} joining during {group.state.value}"
        if group.state is STABLE and group.leader == member.member_id:
            return f"Leader {member.member_id} re-joining group during {group.state.value}"
        if member.protocols != request.protocols:
            return f"Updating metadata for member {member.member_id} during {group.state.value}"
        return None

    def _update(
        self, group: Group, member: GroupMember, request: JoinRequest, reply: JoinReply, reason: str
    ) -> Write | None:
        _set(group, member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        member.wait_for_join(reply)
        return self._phases.rebalance(group, reason + _because(request))

    def _replace(
        self, group: Group, request: JoinRequest, reply: JoinReply, old_id: str, new_id: str
    ) -> Write | None:
        """Give a returning static member its former assignment and leadership, under the id `new_id`."""
        assert request.instance_id is not None
        old_leader = group.leader
        member = group.replace_static(request.instance_id, old_id, new_id)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        self._phases.timers.cancel(session_timer(group, old_id))
        self._phases.keep_alive(group, member)
        _set(group, member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        member.join_reply = reply
        if group.state is PREPARING:
            return self._phases.end_join_phase_if_all_joined(group)
        if group.state is not STABLE:
            return self._phases.rebalance(
                group, f"Updating metadata for static member {new_id} with instance id {request.instance_id}"
            )
        if group.select_protocol() != group.protocol:
            reason = f"Group's selectedProtocol will change because static member {new_id} with instance id "
            return self._phases.rebalance(
                group, f"{reason}{request.instance_id} joined with change of protocol"
            )
        return Write(
            (group.record(),), partial(self._replaced, group, member, request, (old_id, old_leader), before)
        )

    def _replaced(
        self,
        group: Group,
        member: GroupMember,
        request: JoinRequest,
        old: tuple[str, str | None],
        before: tuple[tuple[Protocol, ...], int, int],
        code: Code,
        _offset: Offset,
    ) -> None:
        old_id, old_leader = old
        new_id = member.member_id
        assert request.instance_id is not None
        if code is not Code.NONE:
            self._phases.log.warning(
                "Failed to persist metadata for group %s static member %s with group instance id %s due to %s. Reverting "
                "to old member id %s.",
                group.name,
                new_id,
                request.instance_id,
                code.name,
                old_id,
            )
            _set(group, member, *before)
            reply, member.join_reply = member.join_reply, None
            group.replace_static(request.instance_id, new_id, old_id)
            self._phases.timers.cancel(session_timer(group, new_id))
            self._phases.keep_alive(group, member)
            if reply is not None:
                reply(JoinAnswer(code=code, member_id=request.member_id))
            return
        answer = self._phases.join_answer(group, member)
        if request.version >= VERSION_WITH_SKIPPED_ASSIGNMENT:
            skips = group.leader == new_id
            member.answer_join(answer._replace(member_id=new_id, skip_assignment=skips))
        else:
            # Older clients do not know skip_assignment. They skip the assignment as well, because the answer
            # names the member's old id as the leader.
            member.answer_join(answer._replace(member_id=new_id, leader=old_leader or "", members=()))


def _set(
    group: Group,
    member: GroupMember,
    protocols: tuple[Protocol, ...],
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
) -> None:
    group.set_protocols(member, protocols)
    member.rebalance_timeout_ms = rebalance_timeout_ms
    member.session_timeout_ms = session_timeout_ms


def _because(request: JoinRequest) -> str:
    return f"; client reason: {request.reason or 'not provided'}"
