"""Loading the partitions of a data directory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from storage.config.topic import TopicConfig
from storage.engine import Partition
from storage.errors import StorageError
from storage.log.log import Log
from storage.manager.checkpointing import CheckpointFiles
from storage.manager.data_directory import DataDirectory
from storage.manager.offline import OfflinePartition
from storage.model import TopicPartition
from storage.recovery.load import Checkpointed, load_log


class Found(NamedTuple):
    """A partition to be loaded."""

    partition: TopicPartition
    config: TopicConfig
    refused: str | None = None
    """Why it may not be loaded at all."""


@dataclass(frozen=True, slots=True)
class PartitionLoader:
    """Loads logs; what fails becomes an offline partition instead of an error."""

    data: DataDirectory
    checkpoints: CheckpointFiles
    clean: bool
    """Whether the directory was closed in order, so that logs need no recovery."""
    below_high_watermark: bool
    """Whether only what lies below the checkpointed high watermark counts: beside a live owner."""
    warn: Callable[[str], None]

    def load_all(self, found: Iterable[Found]) -> dict[TopicPartition, Partition]:
        """Load partitions, a few at a time (blocking)."""
        wanted = list(found)
        with ThreadPoolExecutor(self.data.config.recovery_threads, thread_name_prefix="load") as threads:
            return {
                one.partition: log for one, log in zip(wanted, threads.map(self.load, wanted), strict=True)
            }

    def load(self, found: Found) -> Partition:
        """Load a partition (blocking)."""
        checkpointed = self.checkpoints.of(found.partition)
        try:
            if found.refused is not None:
                reason = found.refused
            else:
                return self._load_log(found, checkpointed, clean=self.clean)
        except (StorageError, OSError) as error:
            reason = str(error)
        self.warn(f"{found.partition}: offline: {reason}")
        return OfflinePartition(
            found.partition,
            config=found.config,
            directory=str(self.data.partition_path(found.partition)),
            reason=reason,
            log_start_offset=checkpointed.log_start_offset,
        )

    def load_new(self, partition: TopicPartition, config: TopicConfig) -> Log:
        """Load a partition whose directory was just made (StorageError, OSError)."""
        return self._load_log(Found(partition, config), Checkpointed(), clean=True)

    def reload(self, partition: TopicPartition, config: TopicConfig, checkpointed: Checkpointed) -> Log:
        """Load a partition anew after a repair, with recovery (StorageError, OSError)."""
        return self._load_log(Found(partition, config), checkpointed, clean=False)

    def _load_log(self, found: Found, checkpointed: Checkpointed, *, clean: bool) -> Log:
        return load_log(
            self.data.partition_path(found.partition),
            files=self.data.files,
            config=found.config,
            clock=self.data.clock,
            clean=clean,
            recovery_point=checkpointed.recovery_point,
            log_start_offset=checkpointed.log_start_offset,
            high_watermark=checkpointed.high_watermark if self.below_high_watermark else None,
            producer_expiration_ms=self.data.config.producer_id_expiration_ms,
        )
