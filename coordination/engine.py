"""The protocol through which the mount, the command and the pipeline reach topics, groups, queues and replicas.

An embedded engine implements it over data directories (`replication`), and a Kafka cluster stands behind it, too. What
is *known*, and who may wait, says `storage.engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from topicfs.storage.engine import LogEngine
from topicfs.storage.model import TopicPartition

if TYPE_CHECKING:
    from topicfs.coordination.membership import Groups
    from topicfs.coordination.share_groups import ShareGroups


class ScrubOnDemand(Protocol):
    """A scrub that can be asked for while the engine serves."""

    def start(self) -> None:
        """Begin a scrub of everything in a thread. A scrub that was started here before and still runs goes on instead."""

    def report(self) -> list[str]:
        """Return lines: `state running` or `state idle`, the bytes read and healed, and the findings since `start`."""


class Replication(Protocol):
    def set_replicas(self, topic: str, replicas: int) -> None:
        """Change the number of replicas of each partition of a topic. New replicas catch up while the topic is served.

        Raises UnknownTopicError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def catch_up(self) -> None:
        """Have the replicas that are behind catch up now. A replica that fails is tried again later."""

    def elect_preferred(self, topic: str | None = None) -> int:
        """Elect the first assigned replicas where they are in sync; return how many partitions changed."""

    def elect_unclean(self, partition: TopicPartition, directory: str) -> None:
        """Elect a replica that is not in sync: records may be lost (UnknownTopicError; StorageError without its log)."""

    def move_replica(self, partition: TopicPartition, directory: str, source: str | None = None) -> None:
        """Begin to move a replica to another data directory; `source` is its own one if there are several.

        Raises UnknownTopicError, InvalidConfigError, ReadOnlyError, OSError.
        """

    def cancel_move(self, partition: TopicPartition) -> None:
        """Cancel the move of a replica, and remove its copy. Raises InvalidConfigError if no replica is being moved, and OSError."""


class Engine(LogEngine, Protocol):
    """Topics with their groups, queues and replicas."""

    @property
    def scrubber(self) -> ScrubOnDemand | None:
        """The scrub of the engine. None: it has none (*known*)."""

    @property
    def scrub(self) -> str | None:
        """A line with the bytes scrubbed and healed since the engine was opened. None: there was no scrub (*known*)."""

    @property
    def groups(self) -> Groups:
        """The groups of readers, and their positions (*known*; of its calls `coordination.membership` says who may wait)."""

    @property
    def share_groups(self) -> ShareGroups:
        """Queues: records handed out one by one, each to one holder at a time (*known*; see `coordination.share_groups`)."""

    @property
    def replication(self) -> Replication | None:
        """Changes of replicas. None: the engine has one copy of each partition, or the brokers of a cluster manage them (*known*)."""
