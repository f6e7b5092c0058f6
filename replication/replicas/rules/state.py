"""The state of a partition's replicas, and the decisions about it: pure functions of frozen values.

    assigned   the replicas that should exist, the preferred leader first
    in sync    those that have all acknowledged records; one of them leads, and the next leader is one of them
    leader     None while the partition is offline: no replica in sync is available, and no other is elected silently
    moving     a replica that moves to another directory; nothing depends on the copy until it is complete

The rules are those of Kafka's controller and partitions (kafka-storage.md#replication): each election starts a new
leader epoch, and each change a new version. A replica in sync is either available, or was the last one in sync. In
the latter case no other replica has all its records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, NewType

from topicfs.storage.model import Offset

ReplicaId = NewType("ReplicaId", int)
"""The number of a data directory in its set of replica directories, from 1."""


class Move(NamedTuple):
    source: ReplicaId
    target: ReplicaId


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The agreed state of one partition's replicas."""

    assigned: tuple[ReplicaId, ...]
    in_sync: tuple[ReplicaId, ...]
    """The replicas in sync, in the order of `assigned`; never empty."""
    leader: ReplicaId | None
    leader_epoch: int = 0
    version: int = 0
    moving: Move | None = None

    def __post_init__(self) -> None:
        if not self.in_sync or not set(self.in_sync) <= set(self.assigned):
            raise ValueError(f"in sync {self.in_sync}, but assigned {self.assigned}")
        if self.leader is not None and self.leader not in self.in_sync:
            raise ValueError(f"leader {self.leader} is not in sync: {self.in_sync}")
        move = self.moving
        if move is not None and (move.source not in self.assigned or move.target in self.assigned):
            raise ValueError(f"moving from {move.source} to {move.target}, but assigned {self.assigned}")


class LogEnd(NamedTuple):
    leader_epoch: int
    """The newest epoch in the log's file of leader epochs; -1 if there is none."""
    end_offset: Offset


def new_state(assigned: tuple[ReplicaId, ...]) -> ReplicaState:
    return ReplicaState(assigned, assigned, assigned[0])


def without_replicas(
    state: ReplicaState, gone: Collection[ReplicaId], ends: Mapping[ReplicaId, LogEnd]
) -> ReplicaState:
    """Return the state after replicas failed.

    If the leader failed, another replica in sync leads. If no replica in sync is left, the replicas that were the
    last in sync stay in sync, and the partition has no leader.
    """
    remaining = tuple(one for one in state.in_sync if one not in gone)
    in_sync = remaining or state.in_sync
    leads = state.leader in remaining
    if leads:
        return _changed(state, in_sync=in_sync) if in_sync != state.in_sync else state
    return elect(replace(state, in_sync=in_sync, leader=None), ends)


def elect(
    state: ReplicaState, ends: Mapping[ReplicaId, LogEnd], *, prefer: ReplicaId | None = None
) -> ReplicaState:
    """Return the state with a new leader in a new epoch: the replica in sync with the longest log.

    If several logs are equally long, `prefer` leads if its log is one of them.
    """
    candidates = [one for one in state.in_sync if one in ends]
    if not candidates:
        return state if state.leader is None and state.version else _changed(state, leader=None)
    most = max(ends[one] for one in candidates)
    equals = [one for one in candidates if ends[one] == most]
    leader = prefer if prefer in equals else equals[0]
    return _changed(state, leader=leader, leader_epoch=_next_epoch(state, ends))


def begun(state: ReplicaState, ends: Mapping[ReplicaId, LogEnd]) -> ReplicaState:
    """Return the state in which serving starts: always in a new epoch, with an elected leader that is in sync."""
    there = tuple(one for one in state.in_sync if one in ends)
    return elect(replace(state, in_sync=there or state.in_sync, leader=None), ends, prefer=state.leader)


def elect_unclean(state: ReplicaState, ends: Mapping[ReplicaId, LogEnd], leader: ReplicaId) -> ReplicaState:
    """Return the state with a leader that a user chose although it was not in sync.

    Records that only other logs have are lost.
    """
    epoch = _next_epoch(state, ends)
    return _changed(replace(state, in_sync=(leader,), leader=leader), leader_epoch=epoch)


def joined(state: ReplicaState, replica: ReplicaId) -> ReplicaState:
    in_sync = {*state.in_sync, replica}
    return _changed(state, in_sync=tuple(one for one in state.assigned if one in in_sync))


def reassigned(state: ReplicaState, assigned: tuple[ReplicaId, ...]) -> ReplicaState:
    """Return the state with `assigned` replicas, at least one of them in sync. If none leads, the caller elects one."""
    in_sync = tuple(one for one in assigned if one in state.in_sync)
    leader = state.leader if state.leader in in_sync else None
    return _changed(replace(state, assigned=assigned, in_sync=in_sync, leader=leader))


def with_move(state: ReplicaState, move: Move | None) -> ReplicaState:
    return _changed(state, moving=move)


def ended_move(state: ReplicaState) -> ReplicaState:
    """Return the state after a move, with the target in sync. If the source led, the caller elects a leader."""
    assert state.moving is not None, "no replica is being moved"
    source, target = state.moving
    assigned = tuple(target if one == source else one for one in state.assigned)
    in_sync = {*state.in_sync, target} - {source}
    return _changed(
        replace(
            state,
            assigned=assigned,
            in_sync=tuple(one for one in assigned if one in in_sync),
            leader=None if state.leader == source else state.leader,
            moving=None,
        )
    )


def high_watermark(present: Offset, ends: Collection[Offset], *, min_in_sync: int, assigned: int) -> Offset:
    """Return the lowest log end in sync, but at least `present`. It rises only with min.insync.replicas in sync."""
    if len(ends) < min(min_in_sync, assigned):
        return present
    return max(present, min(ends))


def _next_epoch(state: ReplicaState, ends: Mapping[ReplicaId, LogEnd]) -> int:
    return max(state.leader_epoch, *(end.leader_epoch for end in ends.values()), -1) + 1


def _changed(state: ReplicaState, **changes: object) -> ReplicaState:
    return replace(state, **changes, version=state.version + 1)  # type: ignore[arg-type]
