"""The copy of one partition: how far it has come, and how it applies the leader's answers.

It follows the rules for followers (kafka-storage.md#follower-append, kafka-storage.md#truncation). Batches keep their
offsets, and the log start follows the leader's. If the leader's log diverges, the copy is truncated first.
"""

from __future__ import annotations

import time

from topicfs.cluster import errors
from topicfs.cluster.brokers.brokers import Backoff, Brokers, Leader
from topicfs.cluster.brokers.fetch import (
    EARLIEST,
    LATEST,
    FetchedPartition,
    FetchPartition,
    fetch,
    list_offsets,
)
from topicfs.storage.checkpoints.leader_epochs import EpochEnd
from topicfs.storage.codec.batch import find_end, read_header, scan
from topicfs.storage.codec.headers import BatchHeader
from topicfs.storage.errors import CorruptBatchError, InvalidRecordError, StorageError
from topicfs.storage.log.log import Log
from topicfs.storage.messages import ReportLine
from topicfs.storage.model import NO_LEADER_EPOCH, Isolation, Offset, TopicPartition

MIRROR_PARTITION_FETCH_BYTES = 8 << 20
"""Maximum size of a fetch from one partition."""
REFUSED_RETRY_SECONDS = 30.0
"""Pause after an error that does not end without a user's action."""
FAILURES_TOLD = 7
"""Number of failed attempts after which the error is reported. These attempts take about three seconds."""
_HEADER_BYTES = 61


class MirroredPartition:
    """The copy of one partition: its log and its state."""

    def __init__(self, log: Log, topic_id: str, *, placed: bool, verified: bool, report: ReportLine) -> None:
        self.log = log
        self.topic_id = topic_id
        self.partition = TopicPartition(log.topic, log.number)
        self.placed = placed
        """True once the first offset of the copy is known."""
        self.verified = verified
        """True once it is certain that only the mirror has written to the copy."""
        self.goal: Offset | None = None
        """The source's high watermark when it was first known. `--once` copies up to this offset."""
        self.problem: str | None = None
        """Why the copy makes no progress at present; None if it does."""
        self.stale = False
        """True if the partition's leader may have changed."""
        self.refused = False
        """True if the problem does not end without a user's action."""
        self.served_at = 0.0
        """When records last arrived. The copies that have waited longest are served first."""
        self.copied_bytes = 0
        self._report = report
        self._backoff = Backoff()
        self._not_before = 0.0
        self._told: str | None = None
        self._at_end = False

    @property
    def due(self) -> bool:
        """True unless the copy is pausing after an error."""
        return time.monotonic() >= self._not_before

    @property
    def complete(self) -> bool:
        """True once the copy has reached `goal`."""
        return self.goal is not None and self.log.log_end_offset >= self.goal

    def wanted(self, leader: Leader) -> FetchPartition:
        return FetchPartition(
            self.partition,
            self.topic_id,
            self.log.log_end_offset,
            leader_epoch=leader.epoch,
            last_epoch=self._latest_epoch,
            max_bytes=MIRROR_PARTITION_FETCH_BYTES,
        )

    def place(self, start_offset: Offset) -> None:
        """Set the first offset of an empty copy."""
        if start_offset != self.log.log_end_offset:
            self.log.replacer.truncate_fully_and_start_at(start_offset, "the mirror begins here")
        self.placed = True

    def verify(self, brokers: Brokers, leader: Leader) -> None:
        """Compare the copy's last batch with the source's batch, to find appends by another program (blocking).

        If a power loss destroyed batches of the copy that the source still has, first truncate the copy before these
        batches. Raises WrittenByOthersError, and the errors of `fetch`.
        """
        log, self.verified = self.log, True
        for hole in log.holes:
            answer = self._first_at(hole.start, brokers, leader)
            if answer is None:
                return
            theirs = self._header_of(answer)
            if theirs is not None and theirs.base_offset < hole.stop:
                log.replacer.truncate_to(
                    hole.start, "its source has records that a power loss destroyed here"
                )
                break
        log.holes = ()
        if log.log_end_offset == log.log_start_offset:
            return
        last = Offset(log.log_end_offset - 1)
        ours = log.read(last, max_bytes=1, isolation=Isolation.READ_UNCOMMITTED).data
        if not ours:
            return  # The batch was removed by compaction.
        header = read_header(ours)
        answer = self._first_at(header.base_offset, brokers, leader)
        theirs = None if answer is None else self._header_of(answer)
        if answer is None or theirs is None:
            return  # The source has no batch at the offset; the next fetch shows why.
        same_bytes = ours[:_HEADER_BYTES] == answer.records[:_HEADER_BYTES]
        if not same_bytes and _contradict(header, theirs):
            what = f"has another batch at offset {header.base_offset} than its source"
            raise errors.WrittenByOthersError(self.log.directory, what)

    def _first_at(self, offset: Offset, brokers: Brokers, leader: Leader) -> FetchedPartition | None:
        """Fetch the first batch at an offset. After an error, record it, unset `verified` and return None."""
        wanted = FetchPartition(self.partition, self.topic_id, offset, leader.epoch, max_bytes=1)
        answer = fetch(
            brokers, leader.node, [wanted], max_bytes=1, isolation=Isolation.READ_UNCOMMITTED
        ).partitions.get(self.partition)
        if answer is None or answer.error not in {errors.NONE, errors.OFFSET_OUT_OF_RANGE}:
            self.verified, code = False, answer.error if answer else errors.LEADER_NOT_AVAILABLE
            self.failed(errors.error_of(code, str(self.partition)), code=code)
            return None
        return answer

    def _header_of(self, answer: FetchedPartition) -> BatchHeader | None:
        """Return the header of the answer's batch; None without a batch. Record a damaged batch, and return None."""
        if len(answer.records) < _HEADER_BYTES:
            return None
        try:
            return read_header(answer.records)
        except CorruptBatchError as error:
            self.verified = False
            self.failed(error)
            return None

    def take(self, answer: FetchedPartition, brokers: Brokers, leader: Leader) -> None:
        """Apply a leader's answer (blocking). Raises WrittenByOthersError. Errors of the disk end the run."""
        if answer.error == errors.OFFSET_OUT_OF_RANGE:
            self._out_of_range(brokers, leader)
        elif answer.error:
            self.failed(errors.error_of(answer.error, str(self.partition)), code=answer.error)
        elif answer.diverging is not None:
            self._go_back(answer.diverging, leader)
        else:
            try:
                self._append(answer.records, leader)
            except (InvalidRecordError, CorruptBatchError) as error:
                self.failed(error)
                return
            self._follow_bounds(answer)
            self._worked()

    def lacks_epoch(self, leader: Leader) -> bool:
        """Return whether the copy has all records, but no batch of the leader's present epoch.

        In this case the leader may have written no batch in this epoch yet.
        """
        return self._at_end and leader.epoch > self._latest_epoch

    def note_epoch(self, leader: Leader, end: EpochEnd | None) -> None:
        """Record the leader's epoch in the copy, if the leader has written no batch in this epoch yet.

        Normally the copy learns an epoch from a batch. `end` is the epoch's end, as the leader reported it.
        """
        if end == EpochEnd(leader.epoch, self.log.log_end_offset):
            self.log.appender.follow_epoch(end.epoch, end.end_offset)

    def has_all(self, answer: FetchedPartition | None) -> None:
        """Lower `goal` to the copy's log end, because the source has no more records.

        Compaction may have removed the last records below the source's high watermark. `answer` is the answer about
        this partition, or None if the partition has not changed. After an error in the answer, `goal` stays
        unchanged.
        """
        if self.goal is not None and (answer is None or answer.at_place):
            self.goal = min(self.goal, self.log.log_end_offset)

    def failed(self, error: StorageError, *, code: int = errors.NONE) -> None:
        """Record an error, report it once, and pause before the next attempt."""
        retry = errors.kind_of(code).retry if code in errors.ERRORS else errors.RetryCondition.LATER
        self.stale = self.stale or retry is errors.RetryCondition.ELSEWHERE
        self.refused = retry is errors.RetryCondition.NO
        pause = REFUSED_RETRY_SECONDS if retry is errors.RetryCondition.NO else self._backoff.next()
        self._not_before = time.monotonic() + pause
        self.problem = str(error)
        # Leaders often move, and a second attempt mostly succeeds: do not report the first failures.
        if self.problem != self._told and (self.refused or self._backoff.failures >= FAILURES_TOLD):
            self._told = self.problem
            self._report(self.problem)

    def _worked(self) -> None:
        self.problem, self._told, self.refused = None, None, False
        self._backoff = Backoff()

    @property
    def _latest_epoch(self) -> int:
        latest = self.log.epochs.latest
        return latest.epoch if latest else NO_LEADER_EPOCH

    def _append(self, records: memoryview, leader: Leader) -> None:
        """Append the whole batches one by one as the leader did, so that segments and indexes become the same."""
        end, _ = find_end(records)
        log = self.log
        for batch in scan(records, 0, end):
            if batch.last_offset < log.log_end_offset:
                continue
            if (
                not NO_LEADER_EPOCH <= batch.leader_epoch <= leader.epoch
            ):  # The epoch is not covered by the checksum.
                raise CorruptBatchError(
                    batch.position,
                    f"leader epoch {batch.leader_epoch} in a batch from the leader of epoch {leader.epoch}",
                )
            start = log.log_start_offset
            if batch.base_offset < log.log_end_offset:
                # The copy's log begins inside this batch, or was truncated inside it. Only a whole batch can
                # be appended.
                log.replacer.truncate_to(batch.base_offset, "a batch begins here")
            log.appender.append_as_follower(bytearray(records[batch.position : batch.end_position]))
            if log.log_start_offset < start:
                log.replacer.follow_start(start)
        self.copied_bytes += end

    def _follow_bounds(self, answer: FetchedPartition) -> None:
        log = self.log
        if answer.log_start_offset > log.log_start_offset:
            log.replacer.follow_start(answer.log_start_offset)
        if self.goal is None:
            self.goal = answer.high_watermark
        self._at_end = log.log_end_offset == answer.high_watermark

    def _go_back(self, diverging: EpochEnd, leader: Leader) -> None:
        """Truncate the records that the leader lacks.

        An unclean election lost these records, because the only replica that had them failed.
        """
        log = self.log
        own = log.epochs.end_offset_for(diverging.epoch, log.log_end_offset)
        target = min(diverging.end_offset, own.end_offset if own else log.log_end_offset, log.log_end_offset)
        self._truncate(Offset(target), leader, f"its leader's epoch {diverging.epoch} ends there")

    def _out_of_range(self, brokers: Brokers, leader: Leader) -> None:
        log = self.log
        bounds = []
        for which in (EARLIEST, LATEST):
            found = list_offsets(brokers, leader.node, [self.partition], which)[self.partition]
            if found.error:
                self.failed(errors.error_of(found.error, str(self.partition)), code=found.error)
                return
            bounds.append(found.offset)
        earliest, latest = bounds
        if log.log_end_offset < earliest:
            if log.log_end_offset > log.log_start_offset:
                self._report(
                    f"{self.partition}: offsets {log.log_end_offset} to {earliest - 1} were deleted at the source "
                    f"before they were read; the copy begins again at {earliest}"
                )
            log.replacer.truncate_fully_and_start_at(earliest, "the source begins there")
        elif log.log_end_offset > latest:
            self._truncate(latest, leader, "its source ends there")

    def _truncate(self, offset: Offset, leader: Leader, why: str) -> None:
        log = self.log
        if leader.epoch <= self._latest_epoch:
            what = f"ends at {log.log_end_offset}, above {offset}: {why}, and the leader has not changed"
            raise errors.WrittenByOthersError(log.directory, what)
        if offset < log.log_end_offset:
            self._report(f"{self.partition}: cut back from {log.log_end_offset} to {offset}: {why}")
        log.replacer.truncate_to(offset, why)


def _contradict(ours: BatchHeader, theirs: BatchHeader) -> bool:
    """Return whether two batches cannot belong to one log; `theirs` is the source's batch at or after `ours`.

    Compaction may remove records or a whole batch, and may set a delete horizon. It keeps offsets, epoch and
    producer. Any batch of a newer leader is possible, because the leader may have written it after it lost ours.
    """
    if theirs.leader_epoch > ours.leader_epoch or theirs.base_offset > ours.last_offset:
        return False
    compacted = any(
        one.record_count <= one.last_offset - one.base_offset or one.delete_horizon_ms is not None
        for one in (ours, theirs)
    )
    return not compacted or _origin(ours) != _origin(theirs)


def _origin(batch: BatchHeader) -> tuple[int, ...]:
    return (
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )
