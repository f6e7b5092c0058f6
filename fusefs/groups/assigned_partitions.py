"""The partitions assigned to a reader. Each has its first offset, its next record, and the records that are done."""

from __future__ import annotations

from collections.abc import Callable

from topicfs.coordination.membership import CommittedPosition
from topicfs.fusefs.groups.chunks import Chunk, ChunkReader
from topicfs.fusefs.views.measure import Source
from topicfs.storage.config.group import BY_DURATION, EARLIEST, NONE, OffsetReset
from topicfs.storage.engine import Partition
from topicfs.storage.errors import NoPositionError, SegmentDeletedError
from topicfs.storage.model import Offset, Timestamp, TopicPartition

Warn = Callable[[str], None]


def reset_offset(partition: Partition, source: Source, reset: OffsetReset, now: Timestamp) -> Offset:
    """Return the offset that auto.offset.reset selects (kafka-coordinators.md#consumer-protocol). Raises NoPositionError."""
    if reset.kind == EARLIEST:
        return partition.log_start_offset
    if reset.kind == NONE:
        raise NoPositionError(
            f"{partition.topic}-{partition.number}: the group has no position there, and auto.offset.reset=none; "
            "write one to `position`"
        )
    if reset.kind == BY_DURATION:
        since = Timestamp(now - reset.milliseconds)
        found = partition.offset_for_timestamp(since, isolation=source.isolation)
        if found is not None:
            return found.offset
    return partition.visible_end(source.isolation)


class AssignedPartition:
    """A partition of a reader, from assignment to release. Not thread-safe: the reader holds a lock."""

    def __init__(
        self, topic_id: str, source: Source, committed: CommittedPosition | None, *, end_offset: Offset | None
    ) -> None:
        """`end_offset` is where a draining reader stops; None for a reader that never stops."""
        self.partition = TopicPartition(source.partition.topic, source.partition.number)
        self.topic_id = topic_id
        self.source = source
        """The records to read. The reader has handled its `cuts`, where unclean elections lost records."""
        self._committed = committed
        self._reader: ChunkReader | None = None
        self._end_offset = end_offset
        self.ended = False
        """True once a draining reader has delivered everything."""
        self.given = False
        """True once a record was delivered."""
        self.done: Offset | None = None
        """The position to commit: all records below it are done. None: nothing to commit yet."""
        self.said: Offset | None = None
        """The offset passed to the last commit."""

    def serve_from(self, partition: Partition) -> None:
        """Continue with the partition object of a reopened partition."""
        offset = self.next_offset
        self.source = self.source._replace(partition=partition, cuts=partition.cuts)
        if offset is not None:
            self._reader = ChunkReader(self.source, offset)

    def pass_over(self) -> None:
        """If all delivered records are done, advance `done` over offsets that show nothing, such as markers."""
        if self.done is not None and self._reader is not None:
            self.done = max(self.done, self._reader.next_offset)

    @property
    def next_offset(self) -> Offset | None:
        """Offset of the next record to deliver; None before the first `next`."""
        return None if self._reader is None else self._reader.next_offset

    def go_to(self, offset: Offset) -> None:
        """Continue from `offset`; the records from `offset` on are delivered again."""
        if self._reader is not None:
            self._reader.go_to(offset)
            self.ended = False

    def begin(self, reset: OffsetReset, now: Timestamp, warn: Warn) -> None:
        """Set the first offset; warn if it differs from the committed position. Raises NoPositionError."""
        if self._reader is not None:
            return
        partition, committed = self.source.partition, self._committed
        if committed is not None and self._is_in_range(committed.offset):
            self._reader = ChunkReader(self.source, committed.offset)
            self.done = self.said = committed.offset
            return
        offset = reset_offset(partition, self.source, reset, now)
        self._reader = ChunkReader(self.source, offset)
        self.done = offset
        if committed is not None:
            warn(
                f"{self.partition}: position {committed.offset} is outside the log; reading continues at {offset}"
            )
        if reset.kind == EARLIEST:
            self.said = offset  # Do not commit it yet: the next member begins at the same record.

    def _is_in_range(self, offset: Offset) -> bool:
        bounds = self.source.partition.offsets()
        return bounds.log_start_offset <= offset <= bounds.log_end_offset

    def next(self, reset: OffsetReset, now: Timestamp, warn: Warn, most: int | None) -> Chunk | None:
        """Return the next records, at most `most`; None if there are none yet.

        If the next record was deleted, continues as `reset` says. If an unclean election lost delivered records,
        continues from the first lost offset, as Kafka's consumers do. Raises NoPositionError, ThreadNeededError.
        """
        self.source.partition.find_bounds()  # Raises the error if the partition cannot be read.
        self.begin(reset, now, warn)
        reader = self._reader
        assert reader is not None
        bound = self._bound()
        try:
            chunk = reader.next(bound, most)
        except SegmentDeletedError as error:
            reader = self._go_on_after(error, reader.next_offset, reset, now, warn)
            bound = self._bound()
            chunk = reader.next(bound, most)
        behind, end_offset = max(bound, reader.next_offset), self._end_offset
        self.ended = chunk is None and end_offset is not None and behind >= end_offset
        return chunk

    def _bound(self) -> Offset:
        visible_end = self.source.visible_end()
        return visible_end if self._end_offset is None else min(visible_end, self._end_offset)

    def _go_on_after(
        self, error: SegmentDeletedError, place: Offset, reset: OffsetReset, now: Timestamp, warn: Warn
    ) -> ChunkReader:
        """Choose where to continue after the records at `place` were removed. Raises NoPositionError."""
        cuts = self.source.partition.cuts
        lost = cuts[len(self.source.cuts) :]
        offset = min((*lost, place))
        if not lost or (offset < place and reset.kind == NONE):
            offset = reset_offset(self.source.partition, self.source, reset, now)
        if offset != place:
            warn(f"records were deleted: {error}; reading continues at {offset}")
        self.source = self.source._replace(cuts=cuts)
        self._reader = reader = ChunkReader(self.source, offset)
        if self.done is not None:
            self.done = min(self.done, offset)
        if lost and self._end_offset is not None:
            self._end_offset = min(self._end_offset, self.source.visible_end())
        return reader
