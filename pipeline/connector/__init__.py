"""Spark's own Kafka connector: Maven fetches its jars once into the user's cache, and a session uses them.

`pom.xml` is the one place of their versions. Nothing of it is needed, or fetched, where no place is a Kafka cluster.
"""
