"""Spark's own Kafka connector: its jars, fetched once by Maven into the user's cache, and how a session gets them.

`pom.xml` is the one place of their versions. Nothing of it is needed, or fetched, where no place is a Kafka cluster.
"""
