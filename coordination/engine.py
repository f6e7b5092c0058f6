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
        """Scrub everything from the front, in a thread, unless one that was asked for goes on."""
        ...

    def report(self) -> list[str]:
        """Return `state running` or `state idle`, how much was read and healed, and what was found since it was asked for."""
        ...


class Replication(Protocol):
    """Changes of replicas, in an engine that has several of each partition. All calls are blocking."""

    def set_replicas(self, topic: str, replicas: int) -> None:
        """Give each partition of a topic so many replicas, while it serves: new ones catch up, others go.

        Raises UnknownTopicError, InvalidConfigError, ReadOnlyError, OSError.
        """
        ...

    def catch_up(self) -> None:
        """Have replicas that are behind catch up now; what fails is tried again later."""
        ...

    def elect_preferred(self, topic: str | None = None) -> int:
        """Elect the first assigned replicas where they are in sync; return how many partitions changed."""
        ...

    def elect_unclean(self, partition: TopicPartition, directory: str) -> None:
        """Elect the replica in a data directory though it was not in sync: what only others have is lost.

        Raises UnknownTopicError, StorageError where its log is not there.
        """
        ...

    def move_replica(self, partition: TopicPartition, directory: str, source: str | None = None) -> None:
        """Move a replica to another data directory, while it serves; returns once it is on its way.

        `source`: the directory of the replica, where there are several. Raises UnknownTopicError, InvalidConfigError (no
        such replica or directory, or one is on its way), ReadOnlyError, OSError.
        """
        ...

    def cancel_move(self, partition: TopicPartition) -> None:
        """Leave a replica where it is that is on its way, and remove its copy (InvalidConfigError where none is, OSError)."""
        ...


class Engine(LogEngine, Protocol):
    """Topics, those who read them, and what keeps their copies sound."""

    @property
    def scrubber(self) -> ScrubOnDemand | None:
        """Its scrub; None where it has none (*known*)."""
        ...

    @property
    def scrub(self) -> str | None:
        """The counts of what was scrubbed and healed since the engine was opened, as a line; None where nothing was (*known*)."""
        ...

    @property
    def groups(self) -> Groups:
        """The groups of readers, and their positions (*known*; of its calls `coordination.membership` says who may wait)."""
        ...

    @property
    def share_groups(self) -> ShareGroups:
        """Queues: records handed out one by one, each to one holder at a time (*known*; see `coordination.share_groups`)."""
        ...

    @property
    def replication(self) -> Replication | None:
        """Changes of replicas; None for an engine that has one of each partition, or whose replicas others look after (*known*)."""
        ...
