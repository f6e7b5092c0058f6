"""The phases of a rebalance: all members join, the leader assigns, and members that miss a phase are removed.

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable
               │  ▲    all members wait, or time is over     the leader's assignment is in the log
               └──┘    members come, go, or change, at any time: back to PreparingRebalance

Rules: kafka-coordinators.md#rebalance. Source: Kafka's GroupMetadataManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from topicfs.coordination.groups.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, Group, GroupMember
from topicfs.coordination.groups.requests import Code, JoinAnswer, SyncAnswer, Write
from topicfs.coordination.groups.timers import Timers
from topicfs.storage.model import Offset, Timestamp

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member may wait for the answer to its first join. Until that answer it cannot send heartbeats."""
RETRY_MS = 1000
"""Minimum length of a join phase if nobody joined in the previous one: a client's own timeout may be 0 or less."""


class GroupLimits(NamedTuple):
    """The limits and delays of a coordinator, from its settings."""

    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    metadata_max_bytes: int = 4_096
    retention_ms: int = 7 * 24 * 3600 * 1000


class RebalancePhases:
    """The phases of all groups of one coordinator."""

    def __init__(
        self,
        timers: Timers,
        limits: GroupLimits,
        log: logging.Logger | logging.LoggerAdapter[Any],
        *,
        changed: Callable[[Group], None],
    ) -> None:
        self.timers = timers
        self.limits = limits
        self.log = log
        self.changed = changed
        """Called after a group's state or members changed; it must not call back into the coordinator."""

    @property
    def now(self) -> Timestamp:
        return self.timers.clock()

    # Start of the join phase.

    def rebalance(self, group: Group, reason: str) -> Write | None:
        """Begin a rebalance. If the group is already in its join phase, end that phase once all members have joined."""
        if group.in_state(STABLE, COMPLETING, EMPTY):
            return self.prepare(group, reason)
        return self.end_join_phase_if_all_joined(group)

    def prepare(self, group: Group, reason: str) -> Write | None:
        if group.state is COMPLETING:
            self.answer_syncs(group, Code.REBALANCE_IN_PROGRESS)
        self.timers.cancel(sync_timer(group))
        first = group.state is EMPTY
        if first:
            delay = self.limits.initial_rebalance_delay_ms
            self._wait_for_members(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        group.move_to(PREPARING, self.now)
        self.log.info(
            "Preparing to rebalance group %s in state %s with old generation %d (reason: %s).",
            group.name,
            group.state.value,
            group.generation,
            reason,
        )
        self.changed(group)
        if first:
            return None
        if group.all_joined:
            return self.end_join_phase(group)
        self._arm_join_timer(group)
        return None

    def _wait_for_members(self, group: Group, delay: int, remaining: int) -> None:
        """Wait for the initial delay. Members that start one after another then share a single rebalance."""

        def over() -> Write | None:
            if group.state is not PREPARING:
                return None
            if group.member_added and remaining:
                group.member_added = False
                again = min(self.limits.initial_rebalance_delay_ms, remaining)
                self._wait_for_members(group, again, max(remaining - delay, 0))
                return None
            return self.end_join_phase(group)

        self.timers.set(join_timer(group), delay, over)

    def _arm_join_timer(self, group: Group, at_least_ms: int = 0) -> None:
        timeout = max(group.rebalance_timeout_ms, at_least_ms)
        self.timers.set(join_timer(group), timeout, partial(self._join_timed_out, group))

    def _join_timed_out(self, group: Group) -> Write | None:
        return self.end_join_phase(group) if group.state is PREPARING else None

    # End of the join phase.

    def end_join_phase_if_all_joined(self, group: Group) -> Write | None:
        if group.state is PREPARING and group.previous_state is not EMPTY and group.all_joined:
            return self.end_join_phase(group)
        return None

    def end_join_phase(self, group: Group) -> Write | None:
        """End the join phase with the members that joined. Remove the dynamic members that did not join."""
        self.timers.cancel(join_timer(group))
        group.member_added = False
        late = [one for one in group.members.values() if one.join_reply is None and one.instance_id is None]
        for member in late:
            self.forget(group, member.member_id)
        if late:
            names = ", ".join(member.member_id for member in late)
            self.log.info("Group %s removed members who haven't joined: %s", group.name, names)
        if group.members and not group.elect_joined_leader():
            self.log.error("Group %s could not complete rebalance because no members rejoined.", group.name)
            self._arm_join_timer(group, at_least_ms=RETRY_MS)
            return None
        group.next_generation(self.now)
        if group.state is EMPTY:
            return self._emptied(group)
        self._admit(group)
        return None

    def _emptied(self, group: Group) -> Write:
        self.log.info("Group %s with generation %d is now empty.", group.name, group.generation)
        self.changed(group)

        def written(code: Code, _offset: Offset) -> None:
            if code is not Code.NONE:
                self.log.warning("Failed to write empty metadata for group %s: %s", group.name, code.name)

        return Write((group.record({}),), written)

    def _admit(self, group: Group) -> None:
        """Answer all waiting joins, and start waiting for the members' syncs."""
        self.log.info(
            "Stabilized group %s generation %d with %d members.",
            group.name,
            group.generation,
            len(group.members),
        )
        group.pending_sync = set(group.members)
        for member in list(group.members.values()):
            member.is_new = False
            self.keep_alive(group, member)
            member.answer_join(self.join_answer(group, member))
        self.timers.set(
            sync_timer(group),
            group.rebalance_timeout_ms,
            partial(self._sync_timed_out, group, group.generation),
        )
        self.changed(group)

    def join_answer(self, group: Group, member: GroupMember) -> JoinAnswer:
        leads = member.member_id == group.leader
        return JoinAnswer(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.joined_members() if leads else (),
        )

    # The assignment.

    def synced(self, group: Group, member_id: str) -> None:
        """Record that a member has asked for its assignment."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.timers.cancel(sync_timer(group))

    def _sync_timed_out(self, group: Group, generation: int) -> Write | None:
        if generation != group.generation or not group.in_state(COMPLETING, STABLE) or not group.pending_sync:
            return None
        late = sorted(group.pending_sync)
        for member_id in late:
            self.forget(group, member_id)
        names = ", ".join(late)
        self.log.debug("Group %s removed members who haven't sent their sync requests: %s", group.name, names)
        return self.prepare(group, f"Removing [{names}] on pending sync request expiration")

    def answer_syncs(self, group: Group, code: Code) -> None:
        """Answer all waiting syncs with an error code."""
        for member in list(group.members.values()):
            member.assignment = b""
            if member.answer_sync(SyncAnswer(code)):
                self.keep_alive(group, member)

    # Sessions and removal.

    def keep_alive(self, group: Group, member: GroupMember) -> None:
        """Restart a member's session timer."""
        self.set_session_timer(group, member.member_id, member.session_timeout_ms, member.heartbeats)

    def set_session_timer(self, group: Group, member_id: str, timeout_ms: int, heartbeats: bool) -> None:
        if heartbeats:
            expire = partial(self._session_timed_out, group, member_id)
            self.timers.set(session_timer(group, member_id), timeout_ms, expire)

    def _session_timed_out(self, group: Group, member_id: str) -> Write | None:
        if group.state is DEAD:
            return None
        if member_id in group.pending:
            group.pending.discard(member_id)
            self.log.info(
                "Pending member %s in group %s has been removed after session timeout expiration.",
                member_id,
                group.name,
            )
            return self.end_join_phase_if_all_joined(group)
        member = group.members.get(member_id)
        if member is None or member.waits:
            return None
        self.log.info("Member %s in group %s has failed, removing it from the group.", member_id, group.name)
        self.remove(group, member_id)
        return self.rebalance(group, f"removing member {member_id} on heartbeat expiration")

    def remove(self, group: Group, member_id: str) -> None:
        """Remove a member, and answer its waiting requests with UNKNOWN_MEMBER_ID."""
        member = group.members.get(member_id)
        self.forget(group, member_id)
        if member is not None:
            member.answer_join(JoinAnswer(code=Code.UNKNOWN_MEMBER_ID, member_id=member_id))
            member.answer_sync(SyncAnswer(Code.UNKNOWN_MEMBER_ID))
        self.changed(group)

    def forget(self, group: Group, member_id: str) -> None:
        self.timers.cancel(session_timer(group, member_id))
        group.remove(member_id)

    def forget_timers(self, group: Group) -> None:
        self.timers.cancel(join_timer(group))
        self.timers.cancel(sync_timer(group))
        for member_id in (*group.members, *group.pending):
            self.timers.cancel(session_timer(group, member_id))


def join_timer(group: Group) -> tuple[str, ...]:
    return "join", group.name


def sync_timer(group: Group) -> tuple[str, ...]:
    return "sync", group.name


def session_timer(group: Group, member_id: str) -> tuple[str, ...]:
    return "session", group.name, member_id
