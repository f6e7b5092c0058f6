"""The bounds of partitions (log start offset, last stable offset and high watermark) and the sizes of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from topicfs.cluster.brokers.brokers import Brokers, Leader
from topicfs.cluster.brokers.fetch import EARLIEST, LATEST, list_all_offsets
from topicfs.cluster.brokers.leaders import ATTEMPT_SECONDS, Leaders
from topicfs.cluster.errors import LEADER_NOT_AVAILABLE, NONE, error_of
from topicfs.protocol.messages import DESCRIBE_LOG_DIRS
from topicfs.storage.model import Isolation, Offset, PartitionOffsets, Timestamp, TopicPartition

NO_LEADER = "no broker leads it"


class PartitionBounds(NamedTuple):
    """A partition's bounds, as the leader of `leader_epoch` reported them.

    The log start is inclusive, and the other bounds are exclusive.
    """

    log_start_offset: Offset
    last_stable_offset: Offset
    high_watermark: Offset
    leader_epoch: int

    def raised(self, other: PartitionBounds) -> PartitionBounds:
        """Return the larger value of each bound: bounds only rise, and the older of two answers may arrive later."""
        return PartitionBounds(
            max(self.log_start_offset, other.log_start_offset),
            max(self.last_stable_offset, other.last_stable_offset),
            max(self.high_watermark, other.high_watermark),
            max(self.leader_epoch, other.leader_epoch),
        )

    def visible_end(self, isolation: Isolation) -> Offset:
        """Return the exclusive end of the records that a reader with `isolation` sees."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    def offsets(self) -> PartitionOffsets:
        """Return the bounds in the engine's form; the log end is the high watermark, as clients see nothing later."""
        start, stable, end, epoch = self
        return PartitionOffsets(start, stable, end, end, recovery_point=start, leader_epoch=epoch)


class KnownBounds(Protocol):
    """A partition's last known bounds, which each answer of a leader updates."""

    bounds: PartitionBounds
    unknown: str | None
    """Why the bounds are not known; None if they are known."""

    def learn(self, bounds: PartitionBounds, *, proven: bool = True) -> None: ...

    def note_append(self, timestamp: Timestamp, told_until: float) -> None:
        """Record the largest timestamp of an append, and until when the bounds in the append's answer are used.

        No other bounds are requested before the time `told_until`; 0 means that the answer did not give all bounds.
        """

    def moved(self) -> None:
        """Record that the bounds have changed, and that the new values are not known."""


class AskedBounds(NamedTuple):
    """The bounds of one partition, or the error code that the broker returned."""

    error: int
    bounds: PartitionBounds | None = None


def ask_leader_for_bounds(leaders: Leaders, partition: TopicPartition, topic_id: str) -> PartitionBounds:
    """Return a partition's bounds (blocking). Raises like `Leaders.ask`, or an error for the answer's error code."""

    def attempt(leader: Leader) -> AskedBounds:
        found = ask_bounds(leaders.brokers, leader.node, {partition: leader.epoch}, seconds=ATTEMPT_SECONDS)
        one = found.get(partition, LEADER_NOT_AVAILABLE)
        return AskedBounds(NONE, one) if isinstance(one, PartitionBounds) else AskedBounds(one)

    answer = leaders.ask(partition, topic_id, attempt)
    if answer.bounds is None:
        raise error_of(answer.error, str(partition))
    return answer.bounds


def ask_bounds(
    brokers: Brokers, node: int, epochs: Mapping[TopicPartition, int], *, seconds: float
) -> dict[TopicPartition, PartitionBounds | int]:
    """Ask a broker for the bounds of partitions (blocking); return the bounds of each partition, or Kafka's error code.

    `epochs` has the partitions, each with the epoch in which the broker leads it. Needs the permission Describe, but
    not Read. Raises the errors of `Connection.call`.
    """
    starts, stable, ends = list_all_offsets(
        brokers,
        node,
        epochs,
        (EARLIEST, Isolation.READ_UNCOMMITTED),
        (LATEST, Isolation.READ_COMMITTED),
        (LATEST, Isolation.READ_UNCOMMITTED),
        seconds=seconds,
    )
    found: dict[TopicPartition, PartitionBounds | int] = {}
    for one in epochs:
        if one in starts and one in stable and one in ends:
            error = starts[one].error or stable[one].error or ends[one].error
            start = starts[one].offset
            found[one] = error or PartitionBounds(
                start, max(start, stable[one].offset), max(start, ends[one].offset), epochs[one]
            )
    return found


def log_size(brokers: Brokers, node: int, partition: TopicPartition) -> int | None:
    """Return the size of a partition's log at a broker; None if not reported. Blocks. Raises like `Connection.call`."""
    request = {"topics": [{"topic": partition.topic, "partitions": [partition.partition]}]}
    answer = brokers.ask(node, DESCRIBE_LOG_DIRS, request, seconds=ATTEMPT_SECONDS)
    sizes = [
        one["partitionSize"]
        for directory in answer["results"]
        for topic in directory["topics"]
        for one in topic["partitions"]
        if (topic["name"], one["partitionIndex"]) == partition and not one["isFutureKey"]
    ]
    return int(sizes[0]) if sizes else None
