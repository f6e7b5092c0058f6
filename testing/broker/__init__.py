"""A real Apache Kafka broker: its jars are fetched once by Maven, it runs on loopback, and it is always stopped.

`libraries` has the jars (`pom.xml` is the only file with their versions), `broker` runs one node, `formatting` writes
the node's initial files, `tools` runs the command line tools, including kcat, and `client` is an independent client.
"""
