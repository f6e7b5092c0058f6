"""A real Apache Kafka broker: fetched by Maven once, run on loopback, always stopped.

`libraries` has the jars (`pom.xml` is the only place with their versions), `broker` runs one node, `formatting`
writes its initial files, `tools` runs the command line tools, including kcat, and `client` is an independent client.
"""
