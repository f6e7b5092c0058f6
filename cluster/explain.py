"""The steps of a lookup in a cluster: who leads, what was asked of it, and the record in its answer."""

from __future__ import annotations

from topicfs.cluster.engine import ClusterEngine
from topicfs.cluster.protocol.traced_connection import Trace
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.inspection.explain import ExplainedRecord, LeaderKnown, Lookup, LookupStep, record_at
from topicfs.storage.model import Isolation, Offset, Timestamp
from topicfs.storage.segment.trace import BatchFound, RecordFound


class ClusterExplainer:
    """Looks records up as readers do, through an engine whose connections are traced.

    Each lookup has the requests that were made since the one before.
    """

    def __init__(self, engine: ClusterEngine, trace: Trace) -> None:
        self._engine, self._trace = engine, trace

    def offset(self, partition: ClusterPartition, offset: Offset) -> Lookup:
        """Look an offset up (blocking). Raises what `Partition.read` does."""
        found = record_at(partition, offset)
        return self._lookup(partition, found)

    def timestamp(self, partition: ClusterPartition, timestamp: Timestamp, isolation: Isolation) -> Lookup:
        """Look for the first record at or after a timestamp (blocking). Raises what `Partition.offset_for_timestamp` does."""
        answer = partition.offset_for_timestamp(timestamp, isolation=isolation)
        found = None if answer is None else record_at(partition, answer.offset)
        return self._lookup(partition, found)

    def _lookup(self, partition: ClusterPartition, found: ExplainedRecord | None) -> Lookup:
        metadata = self._engine.leaders.metadata
        leader = metadata.leader(partition.name)
        server = metadata.brokers.get(leader.node)
        steps: list[LookupStep] = [
            LeaderKnown(leader.node, str(server or "nobody knows where"), leader.epoch)
        ]
        steps += self._trace.take()
        if found is not None:
            batch, record = found.batch, found.record
            steps.append(BatchFound(0, batch.size_bytes, batch.base_offset, batch.last_offset))
            steps.append(RecordFound(record.offset, record.timestamp))
        return Lookup(tuple(steps), found)
