"""Small appends: of one batch that needs no roll and no index entry. Followers in sync get it in the same step."""

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
    """Write a plain batch behind the log's end, unpublished, under the log's lock; return its last offset and max timestamp.

    None: something else is due, and nothing is written. Raises what `LogAppender.append` does.
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
    """Append a batch of this process's codec to a log that leads, and to its followers; listeners are not told.

    The leader's high watermark passes it where each of them took it; one that could not has nothing of it. None: something
    else is due, or the leader's disk refused it; nothing is appended then.
    """
    # One long function: each call in it would be made at each append, for each replica.
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
            pass  # It meets it again, and is left behind, where the others are handed the batch one by one.
        except PartitionOfflineError as error:
            follower.mark_offline(str(error))
        finally:
            leader.producers.state.end_offset = end_offset
            leader.state = state.extended(end_offset, segment.size, replicated)
    return _new(Appended, (base_offset, last_offset, NO_TIMESTAMP, state.start_offset, False))
