"""The protocol through which the mount, the command and the pipeline reach topics, groups, queues and replicas.

The embedded engine implements it over data directories (`replication`), and `cluster` over a Kafka cluster.
`storage.engine` says which calls may wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from topicfs.storage.engine import LogEngine
from topicfs.storage.model import TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.membership import Groups
    from topicfs.coordination.shares.groups import ShareGroups


class ScrubOnDemand(Protocol):
    """A scrub that a user starts while the engine is running."""

    def start(self) -> None:
        """Start a scrub of all logs in a thread. If an earlier call's scrub is still running, do nothing."""

    def report(self) -> list[str]:
        """Return lines: `state running` or `state idle`, the bytes read and healed, and the findings since `start`."""


class Replication(Protocol):
    def set_replicas(self, topic: str, replicas: int) -> None:
        """Change the number of replicas of each partition of a topic. New replicas catch up while the topic is served.

        Raises UnknownTopicError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def catch_up(self) -> None:
        """Copy the missing records to replicas that lag behind. A replica that fails is retried later."""

    def elect_preferred(self, topic: str | None = None) -> int:
        """Elect the preferred replicas that are in sync; return how many partitions changed their leader."""

    def elect_unclean(self, partition: TopicPartition, directory: str) -> None:
        """Elect the replica in `directory`, even if it is not in sync. Records may then be lost.

        Raises UnknownTopicError, StorageError.
        """

    def move_replica(self, partition: TopicPartition, directory: str, source: str | None = None) -> None:
        """Start moving a replica to another data directory.

        `source` names the replica's present directory, if the partition has several replicas. Raises
        UnknownTopicError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def cancel_move(self, partition: TopicPartition) -> None:
        """Cancel the move of a replica and delete the copy. Raises OSError; InvalidConfigError if none is moving."""


class Engine(LogEngine, Protocol):
    """Topics with their groups, queues and replicas."""

    @property
    def scrubber(self) -> ScrubOnDemand | None:
        """The scrub that can be started by hand; None if the engine has none. Never waits."""

    @property
    def scrub(self) -> str | None:
        """A line with the bytes scrubbed and the bytes healed since the engine was opened.

        None if nothing was scrubbed. Never waits.
        """

    @property
    def groups(self) -> Groups:
        """The groups of readers and their positions (`coordination.membership`). Never waits."""

    @property
    def share_groups(self) -> ShareGroups:
        """The queues, which lease each record to one holder at a time (`coordination.share_groups`). Never waits."""

    @property
    def replication(self) -> Replication | None:
        """The object that changes replicas. None if each partition has one copy, or if brokers manage the replicas.

        Never waits.
        """
