"""A follower's step: fetch the records after its log end from the leader, and append them at their offsets.

    leader     ████████████████████████▒▒▒▒     ▒ not fetched yet
    follower   ████████████████████████ ◄── whole batches, as they are

A follower rolls its segments where the leader rolled, so that the files of both are equal byte for byte. The rules
are those of Kafka's follower (kafka-storage.md#follower-append, kafka-storage.md#truncation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from topicfs.replication.replicas.rules.state import LogEnd
from topicfs.storage.checkpoints.leader_epochs import Entries, EpochEnd, end_offset_for
from topicfs.storage.codec.batch import scan
from topicfs.storage.disk.names import LEADER_EPOCHS
from topicfs.storage.errors import CorruptionError
from topicfs.storage.log.log import Log
from topicfs.storage.log.parts import Hole
from topicfs.storage.log.soundness import is_compacted, keep_lost_start, true_start
from topicfs.storage.model import NO_LEADER_EPOCH, Fetched, Offset


def diverging(leader: Entries, leader_end: Offset, epoch: int, end_offset: Offset) -> EpochEnd | None:
    """Return the end of the last epoch that a leader shares with a diverging follower; None if they do not diverge.

        leader     epoch 0 ──────────┬ epoch 2 ───
                                     │ 40
        follower   epoch 0 ──────────┴──── epoch 1 ──
                                     40      55          cut at 40: the leader has no epoch 1, and its epoch 0 ended there

    The follower sends its log end and its last batch's epoch. It truncates its log to the answer, and asks again
    (kafka-storage.md#truncation; KIP-101, KIP-279, KIP-595).
    """
    if epoch == NO_LEADER_EPOCH or not leader:
        return None
    end = end_offset_for(leader, epoch, leader_end)
    if end is None:
        # The leader does not know the follower's epoch. The leader of that epoch was lost before another
        # replica fetched from it.
        return EpochEnd(leader[-1].epoch, leader_end)
    return end if end.epoch < epoch or end.end_offset < end_offset else None


def truncation_point(answer: EpochEnd, follower: Entries, follower_end: Offset) -> Offset:
    """Return where the follower truncates its log: at the lowest of three offsets.

    These are the end of the answer's epoch in the leader's log, the end of this epoch in the follower's log, and the
    follower's log end.
    """
    own = end_offset_for(follower, answer.epoch, follower_end)
    return min(answer.end_offset, own.end_offset if own else follower_end, follower_end)


class Step(NamedTuple):
    copied_bytes: int = 0
    truncated: bool = False


def log_end(log: Log) -> LogEnd:
    latest = log.epochs.latest
    return LogEnd(latest.epoch if latest else NO_LEADER_EPOCH, log.log_end_offset)


def fetch_once(leader: Log, follower: Log, *, max_bytes: int) -> Step:
    """Do one step (blocking): truncate the follower, copy some batches, or do nothing if it has everything.

    Raises the errors of the logs.
    """
    if follower.holes:
        lost = first_lost(leader, follower.holes)
        follower.holes = ()
        if lost is not None:
            follower.replacer.truncate_to(lost, "its leader has records that a power loss destroyed here")
            return Step(truncated=True)
    end = log_end(follower)
    start = leader.log_start_offset
    if end.end_offset < start and (
        end.end_offset < true_start(leader) or end.end_offset == follower.log_start_offset
    ):
        follower.replacer.truncate_fully_and_start_at(start, "its leader begins there")
        return Step(truncated=True)
    answer = diverging(leader.epochs.entries, leader.log_end_offset, *end)
    if answer is not None:
        point = truncation_point(answer, follower.epochs.entries, end.end_offset)
        follower.replacer.truncate_to(point, f"its leader's epoch {answer.epoch} ended there")
        return Step(truncated=True)
    if end.end_offset > leader.log_end_offset:  # Logs without epochs, for example of message sets.
        follower.replacer.truncate_to(leader.log_end_offset, "its leader ends there")
        return Step(truncated=True)
    # Keep records that the leader has lost at its log start.
    fetched = leader.read_as_follower(max(end.end_offset, start), max_bytes=max_bytes)
    if fetched.data:
        if _rolls(follower, fetched):
            _match_indexes(leader, follower)
        append_fetched(follower, fetched)
    _follow_bounds(leader, follower)
    return Step(len(fetched.data))


def first_lost(other: Log, holes: Iterable[Hole]) -> Offset | None:
    """Return the start of the first hole in which the log `other` has records.

    If it has no records in any hole, compaction removed the records: return None.
    """
    for start, stop in holes:
        begin = max(start, other.log_start_offset)
        if begin < min(stop, other.log_end_offset):
            batch = next(iter(scan(other.read_as_follower(begin, max_bytes=1).data)), None)
            if batch is not None and batch.base_offset < stop:
                return start
    return None


def _rolls(follower: Log, fetched: Fetched) -> bool:
    """Return whether the fetched data begins a segment that the follower does not have yet."""
    return fetched.segment_base_offset > follower.chain.base_offsets[-1]


def _match_indexes(leader: Log, follower: Log) -> None:
    """Give the follower's last segment its leader's index entries: recovery does not index a segment as appends do."""
    base_offset = follower.chain.base_offsets[-1]
    follower.roles.match_indexes(leader.chain.segments[leader.chain.floor(base_offset)])


def _roll(follower: Log, base_offset: Offset) -> None:
    end = follower.log_end_offset
    follower.appender.roll("its leader rolled", base_offset=base_offset)
    if end < base_offset and not is_compacted(follower):
        # Recovery drops batches after a gap above the stored recovery point, so store it now.
        follower.sync()
        try:
            follower.checkpoint([follower])
        except OSError:
            follower.replacer.truncate_to(end, "its recovery point cannot be written")
            raise


def append_fetched(follower: Log, fetched: Fetched) -> None:
    data = fetched.data
    if fetched.segment_base_offset < follower.chain.base_offsets[-1]:
        follower.replacer.drop_empty_segment("its leader has not rolled there")
    if _rolls(follower, fetched):
        _roll(follower, fetched.segment_base_offset)
    transactional = False
    pieces: list[int] = []
    for batch in scan(data):
        if batch.last_offset < follower.log_end_offset:
            continue
        if batch.base_offset < follower.log_end_offset:
            # The log was truncated inside this batch. A batch is always appended whole.
            follower.replacer.truncate_to(Offset(batch.base_offset), "a batch begins here")
        transactional = transactional or batch.is_transactional
        pieces += [batch.position]
    if not pieces:
        return
    end = len(data)
    if transactional:
        # Append transactional batches one by one as the leader did: the index entries of aborted transactions
        # depend on it.
        for start, stop in zip(pieces, [*pieces[1:], end], strict=True):
            follower.appender.append_as_follower(data[start:stop])
    else:
        follower.appender.append_as_follower(data[pieces[0] : end])


def match_segments(leader: Log, follower: Log) -> None:
    """Give a caught-up follower the same last segment and index entries that its leader has. Raises OSError."""
    base_offset = leader.chain.base_offsets[-1]
    if base_offset < follower.chain.base_offsets[-1]:
        follower.replacer.drop_empty_segment("its leader has not rolled there")
    elif follower.chain.base_offsets[-1] < base_offset == leader.log_end_offset:
        # Also needed after a power loss left a hole exactly at the end of a segment.
        _match_indexes(leader, follower)
        _roll(follower, base_offset)
    _match_indexes(leader, follower)


def _follow_bounds(leader: Log, follower: Log) -> None:
    """Take over the leader's high watermark and log start, but keep first records that the leader lost."""
    follower.roles.follow_high_watermark(leader.high_watermark)
    start = true_start(leader)
    if start > follower.log_start_offset:
        follower.replacer.follow_start(start)
    keep_lost_start(follower, leader)


def catch_up(leader: Log, follower: Log, *, max_bytes: int) -> int:
    """Call `fetch_once` until the follower is complete (blocking). Return the number of bytes copied.

    Raises CorruptionError for wrong epochs.
    """
    return sum(step.copied_bytes for step in steps(leader, follower, max_bytes=max_bytes))


def steps(leader: Log, follower: Log, *, max_bytes: int) -> Iterator[Step]:
    """Repeat `fetch_once` until the follower is complete (blocking). Raises the errors of `catch_up`."""
    cuts_left = len(leader.epochs.entries) + len(follower.epochs.entries) + 2
    while True:
        step = fetch_once(leader, follower, max_bytes=max_bytes)
        cuts_left -= step.truncated
        if (
            cuts_left < 0
        ):  # Stop: with wrong epochs, the same records would be copied and truncated endlessly.
            raise CorruptionError(
                leader.directory / LEADER_EPOCHS, 0, "its leader epochs are not those of the batches"
            )
        yield step
        if not step.copied_bytes and not step.truncated:
            return
