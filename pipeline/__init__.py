"""Topics in and out of Apache Spark: a data directory as a source and a sink of DataFrames, and jobs over it.

What is asked for and which offsets that means is decided by modules that know no Spark; only those that face it import
pyspark, the extra `topicfs[spark]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import SparkMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["kafka_jars", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("topicfs")` known to a session, with filter pushdown. SparkMissingError without pyspark."""
    try:
        from pipeline import data_source  # noqa: PLC0415 (everything else works without Spark)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"pyspark", "pyarrow"}:
            raise SparkMissingError from None
        raise
    data_source.register(spark)


def kafka_jars() -> str:
    """Return the jars of Spark's own Kafka connector, for the setting `spark.jars` of a session that is not begun yet.

        SparkSession.builder.config("spark.jars", pipeline.kafka_jars()).getOrCreate()

    Maven fetches them the first time (a line of the log says so); TOPICFS_SPARK_KAFKA_JARS may name a folder that has
    them. PipelineError where they cannot be had.
    """
    from pipeline.connector.maven import CONNECTOR  # noqa: PLC0415 (needed here alone)
    from pipeline.connector.settings import joined  # noqa: PLC0415 (as above)

    return joined(CONNECTOR.folder())
