"""Changes a log's role, and carries out a leader's requests (kafka-storage.md#replication, Kafka's Partition)."""

from __future__ import annotations

from struct import Struct

from topicfs.storage.codec.binary.fields import CONTROL_MASK, LOG_OVERHEAD, TRANSACTIONAL_MASK
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.log.life import Role
from topicfs.storage.log.parts import LogParts
from topicfs.storage.model import NO_PRODUCER_ID, Offset
from topicfs.storage.segment.segment import Segment

_PLAIN = Struct(">qiiBIhiqqq")
"""A batch header up to its producer ID."""
_OF_A_TRANSACTION = TRANSACTIONAL_MASK | CONTROL_MASK


class LogRoles:
    """Changes a log's role, moves its high watermark, and appends what its leader has just written."""

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def lead(self, epoch: int, high_watermark: Offset | None) -> None:
        """Become the leader in a new epoch, on disk on return. An error changes nothing: PartitionOfflineError, OSError.

        If `high_watermark` is None, the leader has no followers, and all records up to the log end are visible.
        """
        parts = self._parts
        with parts.lock:
            parts.life.check_writable()
            self._begin_epoch(epoch)
            parts.life.take(Role.ALONE if high_watermark is None else Role.LEADER)
            self._publish(high_watermark)
        parts.listeners.notify()

    def follow(self, high_watermark: Offset) -> None:
        """Become a follower: only `append_as_follower` may append, and the high watermark hides all later records."""
        parts = self._parts
        with parts.lock:
            parts.life.take(Role.FOLLOWER)
            self._publish(high_watermark)
        parts.listeners.notify()

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Move a leader's high watermark up to `offset` or the log end, never down. Return whether it moved."""
        parts = self._parts
        with parts.lock:
            state = parts.state
            before = state.replicated
            if before is None or offset <= before:
                return False
            if offset <= state.end_offset and state.first_unstable is None:  # This is the usual case.
                parts.state = state.extended(state.end_offset, state.end_position, offset)
                moved = True
            else:
                self._publish(offset)
                moved = parts.state.high_watermark > before
        if moved:
            parts.listeners.notify()
        return moved

    def follow_high_watermark(self, offset: Offset) -> None:
        """Set a follower's high watermark to that of its leader, but at most to the follower's log end.

        It may move down, as in Kafka.
        """
        with self._parts.lock:
            self._publish(offset)

    def extend_as_follower(self, batch: bytearray, segment_base_offset: Offset) -> bool:
        """Append a small plain batch from the leader; return False if `append_as_follower` has to append it."""
        parts = self._parts
        base_offset, length, epoch, _, _, attributes, delta, _, max_timestamp, producer_id = (
            _PLAIN.unpack_from(batch)
        )
        with parts.lock:
            parts.life.check_writable()
            state = parts.state
            active = state.chain.segments[-1]
            if (
                LOG_OVERHEAD + length != len(batch)
                or base_offset != state.end_offset
                or active.base_offset != segment_base_offset
                or epoch != parts.noted_epoch
                or parts.append_gate.closed
                or producer_id != NO_PRODUCER_ID
                or attributes & _OF_A_TRANSACTION
            ):
                return False
            last_offset = base_offset + delta
            entry_due = len(batch) > active.bytes_until_due
            if entry_due and (active.index_full or len(batch) >= active.settings.index_interval_bytes):
                return False
            try:
                if entry_due:  # Do not roll, because the leader has not rolled either.
                    active.append(batch, ((len(batch), last_offset, max_timestamp),))
                    rules = parts.rules
                    active.look_ahead(rules.max_segment_bytes, rules.max_segment_ms, last_offset)
                else:
                    active.extend(batch, last_offset, max_timestamp)
            except PartitionOfflineError as error:
                parts.mark_offline(str(error))
                raise
            end_offset = Offset(last_offset + 1)
            parts.producers.state.end_offset = end_offset
            state = state.extended(end_offset, active.size, state.replicated)
            parts.state = state if state.first_unstable is None else parts.with_first_unstable(state)
        return True

    def match_indexes(self, leader: Segment) -> None:
        """Give the active segment `leader`'s index entries if both have the same batches. Raises OSError."""
        with self._parts.lock:
            active = self._parts.state.chain.active
            same = (active.base_offset, active.size) == (leader.base_offset, leader.size)
            if same and not _indexed_alike(active, leader):
                active.truncate_indexes()
                active.activate()
                active.offset_index.extend(list(leader.offset_index))
                active.time_index.extend(list(leader.time_index))
                active.count_like(leader)

    def _begin_epoch(self, epoch: int) -> None:
        parts = self._parts
        if epoch < parts.latest_epoch():
            raise ValueError(f"leader epoch {epoch} after {parts.latest_epoch()}")
        parts.epochs.assign(epoch, parts.state.end_offset)
        parts.leader_epoch = epoch
        parts.noted_epoch = parts.latest_epoch()

    def _publish(self, high_watermark: Offset | None) -> None:
        parts, state = self._parts, self._parts.state
        if high_watermark is not None:
            high_watermark = Offset(max(state.start_offset, min(high_watermark, state.end_offset)))
        parts.state = parts.with_first_unstable(state._replace(replicated=high_watermark))


def _indexed_alike(one: Segment, other: Segment) -> bool:
    """Return whether two segments with the same batches have equal index entries, also after further equal appends."""
    offsets, times = one.offset_index, one.time_index
    other_offsets, other_times = other.offset_index, other.time_index
    if (offsets.entries, times.entries) != (other_offsets.entries, other_times.entries):
        return False
    if (times.last, one.counted_from) != (other_times.last, other.counted_from):
        return False
    # Equal last entries do not prove that all entries are equal: two segments that counted from different
    # positions may still have the same later entries.
    pairs = ((offsets.slots, other_offsets.slots), (times.slots, other_times.slots))
    return all(not mine.entries or mine.used()[0] == theirs.used()[0] for mine, theirs in pairs)
