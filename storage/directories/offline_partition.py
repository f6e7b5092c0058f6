"""A partition whose log could not be loaded: each operation fails with the reason, while other partitions serve."""

# ruff: noqa: ARG002 - a protocol's arguments, all refused alike.
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from topicfs.storage.checkpoints.leader_epochs import LeaderEpochs
from topicfs.storage.config.topic import TopicConfig
from topicfs.storage.engine import Cancel
from topicfs.storage.errors import PartitionOfflineError
from topicfs.storage.log.log import Log
from topicfs.storage.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Isolation,
    Offset,
    PartitionOffsets,
    PartitionStatus,
    PartitionSummary,
    SegmentInfo,
    TopicPartition,
)


def loaded_logs(partitions: Iterable[object]) -> Iterator[Log]:
    """Return the logs of those `partitions` that were loaded, even if a log went offline later."""
    return (partition for partition in partitions if isinstance(partition, Log))


class OfflinePartition:
    """Implements storage.engine.Partition."""

    cuts: tuple[Offset, ...] = ()
    rewrites = 0
    newest_timestamp = NO_TIMESTAMP

    def __init__(
        self,
        partition: TopicPartition,
        *,
        config: TopicConfig,
        directory: Path,
        reason: str,
        log_start_offset: Offset,
    ) -> None:
        self._partition = partition
        self.topic, self.number = partition
        self.config = config
        self.directory = directory
        self.log_start_offset = log_start_offset
        self.reason = self.unknown = reason

    def offsets(self) -> PartitionOffsets:
        """Return an empty range at the log start offset of the checkpoint."""
        start = self.log_start_offset
        return PartitionOffsets(
            log_start_offset=start,
            last_stable_offset=start,
            high_watermark=start,
            log_end_offset=start,
            recovery_point=start,
            leader_epoch=NO_LEADER_EPOCH,
        )

    def visible_end(self, isolation: Isolation) -> Offset:
        del isolation
        return self.log_start_offset

    def summary(self) -> PartitionSummary:
        start = self.log_start_offset
        return PartitionSummary(start, start, start, log_bytes=None, offline=True)

    def status(self) -> PartitionStatus:
        return PartitionStatus(
            offsets=self.offsets(),
            offline=self.reason,
            segments=0,
            log_bytes=0,
            index_bytes=0,
            first_timestamp=NO_TIMESTAMP,
            last_timestamp=NO_TIMESTAMP,
        )

    @property
    def epochs(self) -> LeaderEpochs:
        """Raise PartitionOfflineError."""
        self._refuse()

    def available_end(self, offset: Offset) -> Offset:
        return offset

    def segments(self) -> Sequence[SegmentInfo]:
        return ()

    def segment_of(self, name: str) -> SegmentInfo | None:
        return None

    def listen(self, listener: Callable[[], None]) -> Cancel:
        """Do nothing, because this partition never changes."""
        return lambda: None

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PartitionOfflineError(f"{self._partition}: {self.reason}")

    find_bounds = check_in_sync = append = read = offset_for_timestamp = record_at = _refuse
    open_segment_file = delete_records = sync = producers = begin_verification = _refuse
