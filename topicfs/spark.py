"""Topics as sources and sinks of Apache Spark: `topicfs.spark.register(session)`. Needs the extra `topicfs[spark]`."""

from topicfs.pipeline import (
    from_topicfs_avro,
    from_topicfs_json,
    from_topicfs_protobuf,
    kafka_jars,
    offsets_behind_latest,
    register,
)
from topicfs.pipeline.errors import Raised, raised_in

__all__ = [
    "Raised",
    "from_topicfs_avro",
    "from_topicfs_json",
    "from_topicfs_protobuf",
    "kafka_jars",
    "offsets_behind_latest",
    "raised_in",
    "register",
]
