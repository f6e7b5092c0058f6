"""A real Apache Kafka broker for tests: fetched by Maven once, run on loopback, stopped for good.

`libraries.py` has the jars (`pom.xml` the one place of their versions), `broker.py` one node, `tools.py` Kafka's own
command line tools, `client.py` and `kcat.py` two independent clients, `make_vectors.py` the script that makes
`tests/vectors/broker-made` again.
"""
