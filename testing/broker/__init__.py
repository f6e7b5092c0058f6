"""A real Apache Kafka broker: fetched by Maven once, run on loopback, stopped for good.

`libraries` has the jars (`pom.xml` is the one place of their versions), `broker` one node, `formatting` the files
that it begins with, `tools` the command line tools, kcat among them, and `client` an independent client.
"""
