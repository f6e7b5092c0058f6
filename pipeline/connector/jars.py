"""Which jars let Spark read from and write to Kafka."""

from __future__ import annotations

from pathlib import Path

from pipeline.connector.maven import Jars

CONNECTOR = Jars(
    name="spark-kafka",
    pom=Path(__file__).with_name("pom.xml"),
    variable="TOPICFS_SPARK_KAFKA_JARS",
    first="spark-sql-kafka-0-10_*.jar",
)
"""Spark's connector with what it needs beyond Spark itself."""
