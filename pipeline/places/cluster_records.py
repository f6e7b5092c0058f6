"""A Kafka cluster through the client of topicfs: its topics, and the records of a partition as columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from topicfs.cluster.engine import ClusterEngine, open_engine
from topicfs.cluster.errors import error_of
from topicfs.cluster.place import cluster_address
from topicfs.cluster.protocol.security import security_of
from topicfs.cluster.topics.partition import ClusterPartition
from topicfs.cluster.topics.topic import ClusterTopic
from topicfs.pipeline.errors import DataLossError
from topicfs.pipeline.places.place import SparkPlace
from topicfs.storage.codec.columns import Columns, decode_each
from topicfs.storage.errors import OffsetOutOfRangeError, PartitionGoneError
from topicfs.storage.model import Isolation, Offset, TopicPartition

TASK_FETCH_BYTES = 4 << 20


@contextmanager
def opened_cluster(place: SparkPlace, *, read_only: bool = True) -> Iterator[ClusterEngine]:
    """Open a cluster, in the process that uses it (blocking). Raises UnreachableError, ClusterError, OSError."""
    settings = place.resolved().settings if place.settings is None else place.settings
    security = security_of(settings or {})
    with closing(open_engine(cluster_address(str(place)), security, read_only=read_only)) as engine:
        if engine.leaders.metadata.topics.keys() - engine.topics().keys():
            engine.look()  # Topics are listed even if a partition does not answer. Reading that partition then fails.
        yield engine


def topic_of(engine: ClusterEngine, name: str) -> ClusterTopic | None:
    """Return a topic; None if the brokers do not list it. If they list it without partitions, raise their error."""
    topic = engine.topics().get(name)
    if topic is None and name in engine.leaders.metadata.topics:
        raise error_of(engine.leaders.metadata.topics[name].error, name)
    return topic


def partition_of(engine: ClusterEngine, partition: TopicPartition, topic_id: str | None) -> ClusterPartition:
    """Return a partition of the topic with this id. Raises DataLossError if it is gone or a new topic has the name."""
    topic = engine.topics().get(partition.topic)
    found = topic.partitions().get(partition.partition) if topic and topic.topic_id == topic_id else None
    if found is None:
        raise DataLossError(f"{partition}: its topic was deleted, or created again, meanwhile")
    return found


def read_columns(
    log: ClusterPartition, offsets: range, isolation: Isolation, *, create_times: bool = False
) -> Iterator[tuple[Columns, int, int]]:
    """Yield columns, each with the range of its records whose offsets are in `offsets` (blocking).

    Raises DataLossError if the log lacks some of these offsets, CorruptBatchError, and the errors of `Partition.read`.
    """
    at = offsets.start
    try:
        log.find_bounds()
        while at < offsets.stop:
            fetched = log.read(Offset(at), max_bytes=TASK_FETCH_BYTES, isolation=isolation)
            if not fetched.data:
                if log.visible_end(isolation) < offsets.stop:
                    raise DataLossError(f"{log}: the log ends before offset {offsets.stop}")
                return  # Compaction removed the last records of the range.
            data = fetched.data
            for columns in decode_each(
                data, 0, len(data), aborted=fetched.aborted, create_times=create_times
            ):
                start, end = columns.find(at), columns.find(offsets.stop)
                if start < end:
                    yield columns, start, end
            at = fetched.next_offset
    except (OffsetOutOfRangeError, PartitionGoneError) as error:
        raise DataLossError(f"{log}: records from offset {at} on are gone: {error}") from None
