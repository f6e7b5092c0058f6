"""Topics in and out of Apache Spark, for programs: `topicfs.spark.register(session)`. Needs the extra `topicfs[spark]`."""

from topicfs.pipeline import from_topicfs_avro, from_topicfs_json, from_topicfs_protobuf, kafka_jars, register

__all__ = ["from_topicfs_avro", "from_topicfs_json", "from_topicfs_protobuf", "kafka_jars", "register"]
