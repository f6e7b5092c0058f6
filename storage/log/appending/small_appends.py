"""Small appends: one batch that needs no roll and no index entry. In-sync followers get the batch in the same step."""

from __future__ import annotations

from collections.abc import Sequence

from topicfs.storage.codec.batch import assign_one
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.log.parts import LogParts
from topicfs.storage.model import NO_TIMESTAMP, Appended, Offset, Timestamp
from topicfs.storage.validation.batches import AppendRules

_new = tuple.__new__


def write_small(
    parts: LogParts, batch: bytearray, now: Timestamp, rules: AppendRules
) -> tuple[int, int] | None:
    """Write a plain batch at the log end under the log's lock, without publishing it.

    Return its last offset and max timestamp. Return None and write nothing if the batch needs the general path.
    Raises the errors of `LogAppender.append`.
    """
    state, epoch = parts.state, parts.leader_epoch
    active = state.chain.segments[-1]
    if len(batch) > active.bytes_until_due or epoch != parts.noted_epoch or parts.append_gate.closed:
        return None
    latest = min(active.latest_timestamp, now + rules.after_max_ms)
    end_offset, counts = state.end_offset, parts.counts
    assigned = assign_one(batch, end_offset, epoch, rules.max_message_bytes, latest, counts)
    if assigned is None:
        return None
    last_offset, max_timestamp = assigned
    try:
        active.extend(batch, last_offset, max_timestamp)
    except BaseException as error:
        counts.take_back(last_offset + 1 - end_offset, len(batch))
        if isinstance(error, PartitionOfflineError):
            parts.mark_offline(str(error))
        raise
    return assigned


def append_in_step(leader: LogParts, followers: Sequence[LogParts], batch: bytearray) -> Appended | None:
    """Append a batch that this process encoded to a leader's log and to its followers, without notifying listeners.

    If every follower appended the batch, the leader's high watermark moves past it. A follower that fails keeps no
    part of the batch. Return None and append nothing if the batch needs the general path or the leader's disk failed.
    """
    # One long function, because each call inside it would be made for every append and every replica.
    rules = leader.rules
    if rules.codec or not rules.accepts_own_batches:
        return None
    now = leader.clock()
    with leader.lock:
        state = leader.state
        if not leader.life.takes_appends or state.first_unstable is not None:
            return None
        try:
            placed = write_small(leader, batch, now, rules)
        except (OSError, PartitionOfflineError):
            return None
        if placed is None:
            return None
        last_offset, max_timestamp = placed
        end_offset, size = Offset(last_offset + 1), len(batch)
        base_offset, segment, replicated = state.end_offset, state.chain.segments[-1], state.replicated
        try:
            for follower in followers:
                with follower.lock:
                    behind = follower.state
                    active = behind.chain.segments[-1]
                    if (
                        not follower.life.takes_copies
                        or size > active.bytes_until_due
                        or behind.end_offset != base_offset
                        or active.base_offset != segment.base_offset
                        or follower.noted_epoch != leader.leader_epoch
                        or follower.append_gate.closed
                    ):
                        break
                    active.extend(batch, last_offset, max_timestamp)
                    follower.producers.state.end_offset = end_offset
                    follower.state = behind.extended(end_offset, active.size, behind.replicated)
            else:
                replicated = end_offset
        except OSError:
            pass  # The general path meets the same error, and removes this follower from the replicas in sync.
        except PartitionOfflineError as error:
            follower.mark_offline(str(error))
        finally:
            leader.producers.state.end_offset = end_offset
            leader.state = state.extended(end_offset, segment.size, replicated)
    return _new(Appended, (base_offset, last_offset, NO_TIMESTAMP, state.start_offset, False))
